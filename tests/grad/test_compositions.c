// Each fused op computes what its composition of primitives does: maps, sums, products of matrices
// and gathers. Each row of the table builds both, and compares values and gradients of x and of all
// parameters, on `ref`, `cpu` and the emulated GPU. Recurrent layers are in test_recurrent.c, a
// linear layer with its loss in chunks in unit/test_chunk_loss.c.
#include "graph/loss.h"
#include "support/torch_check.h"
#include "tensor/half.h"

#include <trireme/losses.h>
#include <trireme/more_layers.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

// How a row's op is called. Each builder reads the numbers in its own way.
typedef struct row row;
struct row {
    const char *name;
    tri_value (*fused)(tri_graph *g, const row *r, tri_value x);
    tri_value (*composed)(tri_graph *g, const row *r, tri_value x);
    tri_shape x;
    int axis;
    int64_t n;
    double p;
    bool with, also, evaluates;
};

#define BUILDER(name) static tri_value name(tri_graph *g, const row *r, tri_value x)

static tri_value own(tri_graph *g, const char *name, tri_shape shape) {
    return tri_parameter(g, name, shape, (tri_init){0});
}

static tri_value sum(tri_graph *g, tri_value x, int axis, bool keep) {
    return tri_sum(g, x, &axis, 1, keep);
}

static int last_of(const tri_graph *g, tri_value x) { return tri_value_shape(g, x).rank - 1; }

// x less its largest element along an axis, which softmax does not depend on.
static tri_value lowered(tri_graph *g, tri_value x, int axis) {
    return tri_sub(g, x, tri_detach(g, tri_amax(g, x, &axis, 1, true)));
}

static tri_value softmax_of(tri_graph *g, tri_value x, int axis) {
    tri_value e = tri_exp(g, lowered(g, x, axis));
    return tri_div(g, e, sum(g, e, axis, true));
}

static tri_value log_softmax_of(tri_graph *g, tri_value x, int axis) {
    tri_value low = lowered(g, x, axis);
    return tri_sub(g, low, tri_log(g, sum(g, tri_exp(g, low), axis, true)));
}

BUILDER(softmax) { return tri_softmax(g, x, r->axis); }
BUILDER(softmax_composed) { return softmax_of(g, x, r->axis); }
BUILDER(log_softmax) { return tri_log_softmax_along(g, x, r->axis); }
BUILDER(log_softmax_composed) { return log_softmax_of(g, x, r->axis); }

// Losses on labels: p is the smoothing, `with` class weights, `also`: labels are probabilities.
static const float class_weights[] = {0.5F, 1.25F, 0, 2, 0.75F, 1, 3};

static tri_value labels_of(tri_graph *g, const row *r) {
    tri_shape shape = r->x;
    if (r->also) return tri_input(g, "soft", g->options.dtype, shape);
    shape.dims[--shape.rank] = 0;
    return tri_input(g, "labels", TRI_I64, shape);
}

static tri_label_loss_options options_of(const row *r) {
    return (tri_label_loss_options){.class_weights = r->with ? class_weights : NULL,
                                    .label_smoothing = r->p};
}

BUILDER(cross_entropy) { return tri_cross_entropy_with(g, x, labels_of(g, r), options_of(r)); }

BUILDER(nll) { return tri_nll_loss_with(g, x, labels_of(g, r), options_of(r)); }

// Of labels that are probabilities, all rows count.
static tri_value soft_terms(tri_graph *g, const row *r, tri_value scores, tri_value soft,
                            tri_value weights) {
    int64_t classes = r->x.dims[r->x.rank - 1];
    const char *formula =
        tri_name(g, "p, t, w -> -(w * p) * (%.17g * t + %.17g)", 1 - r->p, r->p / (double)classes);
    return sum(g, tri_map(g, formula, scores, soft, weights), -1, false);
}

static tri_value label_loss(tri_graph *g, const row *r, tri_value scores) {
    int last = last_of(g, scores);
    int64_t classes = r->x.dims[last];
    static const float ones[] = {1, 1, 1, 1, 1, 1, 1};
    tri_value labels = labels_of(g, r), weights = tri_constant(g, "weights", tri_shape_of(classes),
                                                               r->with ? class_weights : ones);
    if (r->also) return tri_mean_loss(g, soft_terms(g, r, scores, labels, weights));
    tri_value index = tri_unsqueeze(g, tri_map(g, "k -> k < 0 ? 0 : k", labels), -1);
    tri_value counts = tri_cast(g, tri_map(g, "k -> k >= 0", labels), TRI_F32);
    tri_value of_labels = tri_index_select(g, weights, 0, tri_reshape(g, index, tri_shape_of(-1)));
    of_labels = tri_mul(g, counts, tri_reshape(g, of_labels, tri_value_shape(g, labels)));
    tri_value hit = tri_squeeze(g, tri_gather(g, scores, last, index), -1);
    tri_value all = sum(g, tri_mul(g, scores, weights), -1, false);
    const char *formula = tri_name(g, "hit, all, w, n -> -(%.17g * w * hit + %.17g * n * all)",
                                   1 - r->p, r->p / (double)classes);
    return tri_ratio_loss(g, tri_map(g, formula, hit, all, of_labels, counts), of_labels);
}

BUILDER(cross_entropy_composed) { return label_loss(g, r, log_softmax_of(g, x, last_of(g, x))); }

BUILDER(nll_composed) { return label_loss(g, r, x); }

// Losses of numbers.
static tri_value target_of(tri_graph *g, const row *r) {
    return tri_input(g, "soft", g->options.dtype, r->x);
}

BUILDER(mse) { return tri_mse_loss(g, x, target_of(g, r)); }
BUILDER(mse_composed) { return tri_mean_loss(g, tri_square(g, tri_sub(g, x, target_of(g, r)))); }
BUILDER(bce) { return tri_binary_cross_entropy(g, x, target_of(g, r)); }
BUILDER(bce_composed) {
    return tri_mean_loss(g,
                         tri_map(g, "x, t -> -(t * log(sigmoid(x)) + (1 - t) * log(sigmoid(-x)))",
                                 x, target_of(g, r)));
}
BUILDER(relative_l2) { return tri_relative_l2_loss(g, x, target_of(g, r)); }
BUILDER(relative_l2_composed) {
    tri_value t = tri_flatten(g, target_of(g, r));
    tri_value of_error = sum(g, tri_square(g, tri_sub(g, tri_flatten(g, x), t)), 1, false);
    tri_value of_target = sum(g, tri_square(g, t), 1, false);
    return tri_mean_loss(g, tri_map(g, "e, t -> sqrt(e / t)", of_error, of_target));
}

// x less its mean, divided by its deviation, both along the axes.
static tri_value normed(tri_graph *g, tri_value x, const int *axes, int count, double eps) {
    tri_value mean = tri_mean(g, x, axes, count, true), var = tri_var(g, x, axes, count, 0, true);
    return tri_map(g, tri_name(g, "x, m, v -> (x - m) / sqrt(v + %.17g)", eps), x, mean, var);
}

// Weight and bias along the channels, axis 1.
static tri_value affine(tri_graph *g, tri_value y, const char *weight, const char *bias) {
    tri_shape shape = tri_value_shape(g, y), one = {.rank = shape.rank - 1};
    for (int i = 0; i < one.rank; i++) one.dims[i] = 1;
    one.dims[0] = shape.dims[1];
    tri_value w = own(g, weight, tri_shape_of(shape.dims[1]));
    tri_value b = own(g, bias, tri_shape_of(shape.dims[1]));
    return tri_map(g, "y, w, b -> y * w + b", y, tri_reshape(g, w, one), tri_reshape(g, b, one));
}

// Of norms: n groups or axes, p is eps, `with`: without weight and bias, of instance norm with.
BUILDER(layer_norm) {
    return tri_layer_norm(
        g, "l", x, (tri_layer_norm_options){.eps = r->p, .plain = r->with, .axes = (int)r->n});
}

BUILDER(layer_norm_composed) {
    int axes[TRI_MAX_RANK], count = (int)r->n, rank = r->x.rank;
    tri_shape width = {.rank = count};
    for (int i = 0; i < count; i++) {
        axes[i] = rank - count + i;
        width.dims[i] = r->x.dims[axes[i]];
    }
    tri_value y = normed(g, x, axes, count, r->p);
    if (r->with) return y;
    y = tri_mul(g, y, own(g, "l.weight", width));
    return tri_add(g, y, own(g, "l.bias", width));
}

BUILDER(rms_norm) { return tri_rms_norm(g, "l", x, r->p); }
BUILDER(rms_norm_composed) {
    int last = r->x.rank - 1;
    tri_value w = own(g, "l.weight", tri_shape_of(r->x.dims[last]));
    tri_value mean = tri_mean(g, tri_square(g, x), &last, 1, true);
    return tri_map(g, tri_name(g, "x, w, m -> x * w / sqrt(m + %.17g)", r->p), x, w, mean);
}

BUILDER(group_norm) {
    return tri_group_norm(g, "l", x,
                          (tri_group_norm_options){.groups = r->n, .eps = r->p, .plain = r->with});
}

BUILDER(group_norm_composed) {
    tri_value y = tri_reshape(g, x, tri_shape_of(r->x.dims[0], r->n, -1));
    y = tri_reshape(g, normed(g, y, (int[]){2}, 1, r->p), r->x);
    return r->with ? y : affine(g, y, "l.weight", "l.bias");
}

BUILDER(instance_norm) {
    return tri_instance_norm(g, "l", x,
                             (tri_instance_norm_options){.eps = r->p, .affine = r->with});
}

BUILDER(instance_norm_composed) {
    tri_value y = tri_reshape(g, x, tri_shape_of(r->x.dims[0], r->x.dims[1], -1));
    y = tri_reshape(g, normed(g, y, (int[]){2}, 1, r->p), r->x);
    return r->with ? affine(g, y, "l.weight", "l.bias") : y;
}

BUILDER(batch_norm) { return tri_batch_norm(g, "l", x, (tri_batch_norm_options){.eps = r->p}); }

// In evaluation by the running statistics, which here are parameters.
BUILDER(batch_norm_composed) {
    int axes[TRI_MAX_RANK] = {0};
    tri_shape channels = tri_shape_of(r->x.dims[1]), one = {.rank = r->x.rank - 1};
    for (int i = 2; i < r->x.rank; i++) axes[i - 1] = i;
    if (!r->evaluates)
        return affine(g, normed(g, x, axes, r->x.rank - 1, r->p), "l.weight", "l.bias");
    for (int i = 0; i < one.rank; i++) one.dims[i] = i ? 1 : r->x.dims[1];
    own(g, "l.weight", channels);
    own(g, "l.bias", channels);
    tri_value mean = tri_reshape(g, own(g, "l.running_mean", channels), one);
    tri_value var = tri_reshape(g, own(g, "l.running_var", channels), one);
    const char *formula = tri_name(g, "x, m, v -> (x - m) / sqrt(v + %.17g)", r->p);
    return affine(g, tri_map(g, formula, x, mean, var), "l.weight", "l.bias");
}

BUILDER(rotary) { return tri_rotary(g, x, r->p); }
BUILDER(rotary_composed) {
    int64_t steps = r->x.dims[1], half = r->x.dims[3] / 2;
    tri_value t = tri_cast(g, tri_arange(g, steps), TRI_F32);
    tri_value k = tri_cast(g, tri_arange(g, half), TRI_F32);
    const char *formula = tri_name(g, "t, k -> t * exp(k * %.17g)", -log(r->p) / (double)half);
    tri_value angle = tri_map(g, formula, tri_reshape(g, t, tri_shape_of(steps, 1, 1)), k);
    tri_value a = tri_slice(g, x, 3, 0, half, 1), b = tri_slice(g, x, 3, half, 2 * half, 1);
    tri_value parts[] = {tri_map(g, "a, b, t -> a * cos(t) - b * sin(t)", a, b, angle),
                         tri_map(g, "a, b, t -> b * cos(t) + a * sin(t)", a, b, angle)};
    return tri_concat(g, parts, 2, 3);
}

// Attention of x [N, T, H, D] to n keys: `axis` heads of k and v, p the scale; `with`: a bias,
// `also`: a mask, `evaluates`: causal.
static tri_attention_options attention_options(tri_graph *g, const row *r) {
    tri_attention_options o = {.scale = r->p, .causal = r->evaluates};
    if (r->with) o.bias = own(g, "bias", tri_shape_of(1, r->x.dims[2], 1, r->n));
    if (r->also)
        o.mask =
            tri_map(g, "k -> k != 1",
                    tri_input(g, "index below 3", TRI_I64, tri_shape_of(r->x.dims[0], 1, 1, r->n)));
    if (r->also) o.mask = tri_cast(g, o.mask, TRI_F32);
    return o;
}

static void keys_of(tri_graph *g, const row *r, tri_value kv[2]) {
    tri_shape shape = tri_shape_of(r->x.dims[0], r->n, r->axis, r->x.dims[3]);
    kv[0] = own(g, "k", shape);
    kv[1] = own(g, "v", shape);
}

BUILDER(attention) {
    tri_value kv[2];
    keys_of(g, r, kv);
    return tri_attention(g, "a", x, kv[0], kv[1], attention_options(g, r));
}

BUILDER(attention_composed) {
    static const int heads_first[] = {0, 2, 1, 3};
    tri_value kv[2], q = tri_permute(g, x, heads_first);
    keys_of(g, r, kv);
    tri_attention_options o = attention_options(g, r);
    for (int i = 0; i < 2; i++) { // a head of k and v for each head of q
        kv[i] = tri_repeat_interleave(g, kv[i], 2, r->x.dims[2] / r->axis);
        kv[i] = tri_permute(g, kv[i], heads_first);
    }
    double scale = r->p != 0 ? r->p : 1 / sqrt((double)r->x.dims[3]);
    tri_value scores = tri_mul_scalar(g, tri_matmul(g, q, tri_transpose(g, kv[0], 2, 3)), scale);
    if (r->with) scores = tri_add(g, scores, o.bias);
    if (r->also) scores = tri_map(g, "x, mask -> mask != 0 ? x : -1e9", scores, o.mask);
    if (r->evaluates) {
        tri_value t = tri_cast(g, tri_arange(g, r->x.dims[1]), TRI_F32);
        tri_value s = tri_cast(g, tri_arange(g, r->n), TRI_F32);
        const char *formula =
            tri_name(g, "x, t, s -> s <= t + %lld ? x : -1e9", (long long)(r->n - r->x.dims[1]));
        scores = tri_map(g, formula, scores, tri_unsqueeze(g, t, 1), s);
    }
    return tri_permute(g, tri_matmul(g, softmax_of(g, scores, 3), kv[1]), heads_first);
}

BUILDER(linear) {
    return tri_linear_with(g, "l", x, (tri_linear_options){.features = r->n, .no_bias = r->with});
}

BUILDER(linear_composed) {
    tri_value w = own(g, "l.weight", tri_shape_of(r->n, r->x.dims[r->x.rank - 1]));
    tri_value y = tri_matmul(g, x, tri_transpose(g, w, 0, 1));
    return r->with ? y : tri_add(g, y, own(g, "l.bias", tri_shape_of(r->n)));
}

static tri_conv_options conv_options(const row *r) {
    return (tri_conv_options){
        .channels = r->n, .kernels = {3, 2}, .strides = {2, 1}, .dilations = {1, 2}, .padding = 1};
}

BUILDER(conv) { return tri_conv2d(g, "l", x, conv_options(r)); }
BUILDER(conv_composed) {
    tri_conv_options o = conv_options(r);
    int64_t elements = r->x.dims[1] * 6, rows = (r->x.dims[2] - 1) / 2 + 1;
    tri_value w = own(g, "l.weight", tri_shape_of(r->n, r->x.dims[1], 3, 2));
    tri_value b = own(g, "l.bias", tri_shape_of(r->n));
    w = tri_reshape(g, w, tri_shape_of(r->n, elements));
    tri_value y = tri_matmul(g, w, tri_unfold_images(g, x, o));
    y = tri_add(g, y, tri_reshape(g, b, tri_shape_of(r->n, 1)));
    return tri_reshape(g, y, tri_shape_of(r->x.dims[0], r->n, rows, -1));
}

#define SHAPE(...) .x = {sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), {__VA_ARGS__}}

static const row rows[] = {
    {"softmax", softmax, softmax_composed, SHAPE(3, 7, 5), .axis = 0},
    {"softmax", softmax, softmax_composed, SHAPE(3, 7, 5), .axis = 1},
    {"softmax", softmax, softmax_composed, SHAPE(3, 7, 5), .axis = 2},
    {"softmax", softmax, softmax_composed, SHAPE(2, 1, 4), .axis = 1},
    {"softmax", softmax, softmax_composed, SHAPE(1), .axis = 0},
    {"softmax", softmax, softmax_composed, SHAPE(2, 130), .axis = 1},
    {"log_softmax", log_softmax, log_softmax_composed, SHAPE(3, 7, 5), .axis = 0},
    {"log_softmax", log_softmax, log_softmax_composed, SHAPE(3, 7, 5), .axis = 1},
    {"log_softmax", log_softmax, log_softmax_composed, SHAPE(3, 7, 5), .axis = 2},
    {"log_softmax", log_softmax, log_softmax_composed, SHAPE(2, 1, 4), .axis = 1},
    {"log_softmax", log_softmax, log_softmax_composed, SHAPE(1), .axis = 0},
    {"log_softmax", log_softmax, log_softmax_composed, SHAPE(2, 130), .axis = 1},
    {"cross_entropy", cross_entropy, cross_entropy_composed, SHAPE(9, 5)},
    {"cross_entropy", cross_entropy, cross_entropy_composed, SHAPE(2, 4, 7)},
    {"cross_entropy", cross_entropy, cross_entropy_composed, SHAPE(9, 5), .p = 0.2},
    {"cross_entropy", cross_entropy, cross_entropy_composed, SHAPE(3, 4, 5), .with = true},
    {"cross_entropy", cross_entropy, cross_entropy_composed, SHAPE(9, 5), .p = 0.3, .with = true},
    {"cross_entropy", cross_entropy, cross_entropy_composed, SHAPE(6, 5), .also = true},
    {"cross_entropy", cross_entropy, cross_entropy_composed, SHAPE(6, 5), .also = true, .p = 0.1},
    {"cross_entropy", cross_entropy, cross_entropy_composed, SHAPE(2, 3, 5), .also = true, .p = 0.1,
     .with = true},
    {"cross_entropy", cross_entropy, cross_entropy_composed, SHAPE(1, 1)},
    {"cross_entropy", cross_entropy, cross_entropy_composed, SHAPE(1, 2), .p = 0.4},
    {"nll", nll, nll_composed, SHAPE(9, 5)},
    {"nll", nll, nll_composed, SHAPE(2, 4, 7)},
    {"nll", nll, nll_composed, SHAPE(9, 5), .p = 0.2},
    {"nll", nll, nll_composed, SHAPE(3, 4, 5), .with = true},
    {"nll", nll, nll_composed, SHAPE(9, 5), .p = 0.3, .with = true},
    {"nll", nll, nll_composed, SHAPE(6, 5), .also = true},
    {"nll", nll, nll_composed, SHAPE(6, 5), .also = true, .p = 0.1},
    {"nll", nll, nll_composed, SHAPE(2, 3, 5), .also = true, .p = 0.1, .with = true},
    {"nll", nll, nll_composed, SHAPE(1, 1)},
    {"nll", nll, nll_composed, SHAPE(1, 2), .p = 0.4},
    {"mse", mse, mse_composed, SHAPE(3, 5, 2)},
    {"mse", mse, mse_composed, SHAPE(1, 1)},
    {"bce", bce, bce_composed, SHAPE(3, 5, 2)},
    {"bce", bce, bce_composed, SHAPE(1, 1)},
    {"relative_l2", relative_l2, relative_l2_composed, SHAPE(3, 5, 2)},
    {"relative_l2", relative_l2, relative_l2_composed, SHAPE(1, 1)},
    {"layer_norm", layer_norm, layer_norm_composed, SHAPE(3, 7), .n = 1, .p = 1e-05},
    {"layer_norm", layer_norm, layer_norm_composed, SHAPE(2, 3, 4, 5), .n = 3, .p = 0.01},
    {"layer_norm", layer_norm, layer_norm_composed, SHAPE(5, 2, 6), .n = 2, .p = 1e-05,
     .with = true},
    {"layer_norm", layer_norm, layer_norm_composed, SHAPE(4, 1), .n = 1, .p = 0.1},
    {"layer_norm", layer_norm, layer_norm_composed, SHAPE(1, 260), .n = 1, .p = 1e-05},
    {"rms_norm", rms_norm, rms_norm_composed, SHAPE(3, 7), .p = 1e-05},
    {"rms_norm", rms_norm, rms_norm_composed, SHAPE(2, 3, 1), .p = 0.1},
    {"rms_norm", rms_norm, rms_norm_composed, SHAPE(1, 260), .p = 1e-06},
    {"group_norm", group_norm, group_norm_composed, SHAPE(2, 6, 3, 5), .n = 3, .p = 1e-05},
    {"group_norm", group_norm, group_norm_composed, SHAPE(3, 4, 7), .n = 1, .p = 0.001},
    {"group_norm", group_norm, group_norm_composed, SHAPE(2, 4, 5), .n = 4, .p = 1e-05,
     .with = true},
    {"group_norm", group_norm, group_norm_composed, SHAPE(1, 1, 2), .n = 1, .p = 0.01},
    {"instance_norm", instance_norm, instance_norm_composed, SHAPE(2, 3, 5), .p = 1e-05},
    {"instance_norm", instance_norm, instance_norm_composed, SHAPE(2, 3, 4, 5), .p = 0.001,
     .with = true},
    {"instance_norm", instance_norm, instance_norm_composed, SHAPE(1, 1, 3), .p = 0.01,
     .with = true},
    {"batch_norm", batch_norm, batch_norm_composed, SHAPE(4, 3, 5), .p = 1e-05},
    {"batch_norm", batch_norm, batch_norm_composed, SHAPE(5, 2), .p = 0.001},
    {"batch_norm", batch_norm, batch_norm_composed, SHAPE(2, 3, 2, 5), .p = 1e-05},
    {"batch_norm", batch_norm, batch_norm_composed, SHAPE(2, 1, 1, 1), .p = 0.1},
    {"batch_norm", batch_norm, batch_norm_composed, SHAPE(3, 2, 4), .p = 1e-05, .evaluates = true},
    {"batch_norm", batch_norm, batch_norm_composed, SHAPE(1, 3), .p = 0.001, .evaluates = true},
    {"rotary", rotary, rotary_composed, SHAPE(2, 5, 3, 6), .p = 10000},
    {"rotary", rotary, rotary_composed, SHAPE(1, 1, 1, 2), .p = 100},
    {"attention", attention, attention_composed, SHAPE(2, 5, 4, 3), .axis = 4, .n = 5},
    {"attention", attention, attention_composed, SHAPE(2, 5, 4, 3), .axis = 2, .n = 7, .p = 0.6},
    {"attention", attention, attention_composed, SHAPE(2, 5, 4, 8), .axis = 1, .n = 5,
     .evaluates = true},
    {"attention", attention, attention_composed, SHAPE(1, 3, 2, 5), .axis = 2, .n = 9,
     .evaluates = true},
    {"attention", attention, attention_composed, SHAPE(2, 4, 2, 3), .axis = 1, .n = 6,
     .with = true},
    {"attention", attention, attention_composed, SHAPE(2, 4, 3, 2), .axis = 3, .n = 5,
     .also = true},
    {"attention", attention, attention_composed, SHAPE(2, 4, 4, 3), .axis = 2, .n = 6, .with = true,
     .also = true, .evaluates = true, .p = 0.8},
    {"attention", attention, attention_composed, SHAPE(1, 1, 1, 1), .axis = 1, .n = 1},
    {"attention", attention, attention_composed, SHAPE(1, 70, 2, 16), .axis = 1, .n = 70,
     .evaluates = true},
    {"linear", linear, linear_composed, SHAPE(3, 5), .n = 4},
    {"linear", linear, linear_composed, SHAPE(2, 3, 7), .n = 1, .with = true},
    {"linear", linear, linear_composed, SHAPE(1, 1), .n = 1},
    {"conv", conv, conv_composed, SHAPE(2, 3, 5, 6), .n = 4},
    {"conv", conv, conv_composed, SHAPE(1, 1, 1, 1), .n = 1},
};

// The results of one side: y, or the loss's mean, then the gradients, parameter by parameter.
typedef struct results {
    double *numbers;
    int64_t count;
} results;

static void add(results *r, op_session *session, tri_value value) {
    int64_t count = op_count(session, value);
    r->numbers = realloc(r->numbers, (size_t)(r->count + count) * sizeof *r->numbers);
    for (int64_t i = 0; i < count; i++) r->numbers[r->count++] = op_get(session, value, i);
}

static void fill(op_session *session, const tri_graph *g, int64_t classes) {
    int wave = 0;
    for (int i = 0; i < g->parameter_count; i++) {
        const tri_parameter_info *p = &g->parameters[i];
        bool is_number = tri_dtype_is_float(p->dtype) && p->role != TRI_ROLE_CONSTANT;
        if (is_number) fill_wave(session, p->value, ++wave, 1, strstr(p->name, "_var") ? 1.5 : 0);
    }
    fill_constants(session, g);
    for (int i = 0; i < g->input_count; i++) {
        const tri_input_info *input = &g->inputs[i];
        int64_t count = op_count(session, input->value), *whole = op_host(session, input->value);
        if (!strcmp(input->name, "labels"))
            for (int64_t k = 0; k < count; k++)
                whole[k] = k % 5 == 3 ? TRI_IGNORED_LABEL : (7 * k * k + 3 * k) % classes;
        else if (!strcmp(input->name, "soft"))
            for (int64_t k = 0; k < count; k++)
                op_set(session, input->value, k, 0.1 + 0.2 * (double)(k * 7 % 5));
        else if (tri_value_get(g, input->value)->dtype == TRI_I64)
            fill_index(session, input);
        else
            fill_wave(session, input->value, 9, 1, 0);
    }
}

static results run(const row *r, bool composes, const tri_device_backend *backend,
                   tri_dtype dtype) {
    results found = {0};
    tri_graph *g = op_graph_open(dtype);
    const char *message = "";
    bool is_attention = r->fused == attention;
    g->options.training = !r->evaluates || is_attention;
    tri_value x = own(g, "x", r->x), y = (composes ? r->composed : r->fused)(g, r, x);
    bool is_loss = tri_value_is_loss(g, y);
    tri_value loss = y;
    if (!is_loss && g->status == TRI_OK) {
        tri_value factors = tri_input(g, "factors", dtype, tri_value_shape(g, y));
        loss = tri_mean_loss(g, tri_mul(g, y, factors));
    }
    tri_loss(g, loss);
    if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s: %s", r->name, message);
    if (g->options.training && tri_pass_autodiff(g) != TRI_OK)
        fail_msg("%s: %s", r->name, tri_error_message());
    tri_device *device = op_device_open(backend, 1);
    op_session *session = op_session_open(g, device, false);
    fill(session, g, r->x.dims[r->x.rank - 1]);
    double seed = 1;
    if (g->options.training) op_set(session, g->scalars[TRI_SCALAR_SEED], 0, seed);
    op_run_ok(session);
    add(&found, session, y);
    if (is_loss) {
        seed = 1 / found.numbers[1];
        found.numbers[0] *= seed;
        found.count = 1;
        op_set(session, g->scalars[TRI_SCALAR_SEED], 0, seed);
        op_run_ok(session);
    }
    for (int i = 0; i < g->parameter_count; i++)
        for (int k = 0; k < g->gradient_count; k++)
            if (g->gradients[k].parameter == i && g->parameters[i].role == TRI_ROLE_TRAINED)
                add(&found, session, g->gradients[k].value);
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(g);
    return found;
}

// Compares one side with the exact numbers, relative to the largest of them.
static void near(const row *r, int number, const char *what, results got, results wanted,
                 double allowed) {
    double most = 1;
    if (got.count != wanted.count)
        fail_msg("row %d, %s, %s: %lld numbers, not %lld", number, r->name, what,
                 (long long)got.count, (long long)wanted.count);
    for (int64_t i = 0; i < wanted.count; i++) most = fmax(most, fabs(wanted.numbers[i]));
    for (int64_t i = 0; i < wanted.count; i++)
        if (!(fabs(got.numbers[i] - wanted.numbers[i]) <= allowed * most))
            fail_msg("row %d, %s, %s: number %lld is %.9g, not %.9g", number, r->name, what,
                     (long long)i, got.numbers[i], wanted.numbers[i]);
    free(got.numbers);
}

static void test_rows(void **state) {
    static const struct {
        const char *name;
        const tri_device_backend *backend;
        tri_dtype dtype;
        double allowed;
    } devices[] = {{"ref", &tri_device_ref, TRI_F64, 1e-12},
                   {"cpu", &tri_device_cpu, TRI_F32, 2e-5},
                   {"cuda", &tri_device_cuda, TRI_F32, 2e-5}};
    test_gpu_choose();
    for (int i = 0; i < (int)COUNT(rows); i++) {
        results exact = run(&rows[i], true, &tri_device_ref, TRI_F64);
        for (size_t d = 0; d < COUNT(devices); d++)
            for (int composes = 0; composes < 2; composes++)
                near(&rows[i], i, devices[d].name,
                     run(&rows[i], composes, devices[d].backend, devices[d].dtype), exact,
                     devices[d].allowed);
        free(exact.numbers);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
