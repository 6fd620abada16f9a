// The table of patterns, and when they apply.
#include "nn/exported/match.h"

#include <math.h>
#include <string.h>

typedef struct pattern {
    const char *name;        // what is found
    const char *text;        // match.h says how to read it
    const char *replacement; // the operation that takes the place of the last one
    // Looks at shapes and numbers, and may bind further variables. NULL: the text says all.
    bool (*fits)(exported_match *match);
} pattern;

// The size of the last axis; 0: it is not fixed.
static int64_t width_of(const tri_pt2_value *v) {
    return v && v->rank > 0 && v->sizes[v->rank - 1] > 0 ? v->sizes[v->rank - 1] : 0;
}

static bool fits_unit_rms(exported_match *m) {
    double eps;
    int64_t width = width_of(exported_bound_tensor(m, "x"));
    if (width == 0 || !exported_bound_number(m, "eps", &eps) || !(eps > 0)) return false;
    tri_pt2_argument *size = TRI_NEW(m->network->arena, tri_pt2_argument);
    *size = (tri_pt2_argument){.kind = TRI_PT2_INT, .number = width};
    exported_bind_variable(m, "sizes",
                           (tri_pt2_argument){.kind = TRI_PT2_LIST, .count = 1, .items = size});
    return true;
}

// The factor is a weight of the axis that is normalised, and no other tensor.
static bool fits_rms(exported_match *m) {
    const tri_pt2_value *w = exported_bound_tensor(m, "w");
    return w && w->rank == 1 && width_of(w) == width_of(exported_bound_tensor(m, "x")) &&
           fits_unit_rms(m);
}

static bool fits_layer_norm(exported_match *m) {
    const tri_pt2_value *bias = exported_bound_tensor(m, "bias");
    return bias && bias->rank == 1 && width_of(bias) == width_of(exported_bound_tensor(m, "x")) &&
           fits_rms(m);
}

// Labels [N] of scores [N, C].
static bool fits_labels(exported_match *m) {
    const tri_pt2_value *x = exported_bound_tensor(m, "x"),
                        *labels = exported_bound_tensor(m, "labels");
    return x && labels && x->rank == 2 && labels->rank == 1 && x->sizes[0] == labels->sizes[0] &&
           exported_type_is_float(x->dtype) && exported_type_is_int(labels->dtype);
}

static bool has_sizes_of(const tri_pt2_value *a, const tri_pt2_value *b) {
    if (!a || !b || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->sizes[i] != b->sizes[i]) return false;
    return true;
}

static bool fits_gate(exported_match *m) {
    const tri_pt2_value *up = exported_bound_tensor(m, "up"),
                        *gate = exported_bound_tensor(m, "gate");
    return has_sizes_of(up, gate) && exported_type_is_float(up->dtype) &&
           exported_type_is_float(gate->dtype);
}

static bool has_rank_4(const exported_match *m, const char *name) {
    const tri_pt2_value *v = exported_bound_tensor(m, name);
    return v && v->rank == 4 && exported_type_is_float(v->dtype);
}

static void set_wanted(const tri_pt2_argument *a, int count, bool *wanted) {
    for (int i = 0; i < count; i++) {
        if (a[i].kind == TRI_PT2_LIST) set_wanted(a[i].items, a[i].count, wanted);
        if (a[i].kind == TRI_PT2_VALUE) wanted[a[i].number] = true;
    }
}

static bool makes_wanted(const tri_pt2_argument *a, int count, const bool *wanted) {
    bool makes = false;
    for (int i = 0; i < count; i++) {
        if (a[i].kind == TRI_PT2_LIST) makes |= makes_wanted(a[i].items, a[i].count, wanted);
        if (a[i].kind == TRI_PT2_VALUE) makes |= wanted[a[i].number];
    }
    return makes;
}

// A node reads what nodes before it make.
bool exported_follows_from(const nn_exported *n, int value, tri_pt2_role role) {
    bool *wanted = TRI_NEW_ARRAY(n->arena, bool, n->file.value_count);
    wanted[value] = true;
    for (int i = n->makers[value]; i >= 0; i--) {
        const tri_pt2_node *node = &n->file.nodes[i];
        if (makes_wanted(node->outputs, node->output_count, wanted))
            set_wanted(node->arguments, node->argument_count, wanted);
    }
    for (int i = 0; i < n->file.input_count; i++) {
        const tri_pt2_port *port = &n->file.inputs[i];
        if (port->role == role && port->argument.kind == TRI_PT2_VALUE &&
            wanted[port->argument.number])
            return true;
    }
    return false;
}

static bool is_of_data(const exported_match *m, const char *name) {
    const tri_pt2_argument *a = exported_bound(m, name);
    return a && a->kind == TRI_PT2_VALUE &&
           exported_follows_from(m->network, (int)a->number, TRI_PT2_INPUT);
}

// Whether queries, keys and values are of the same samples and heads, and a mask is of these, of
// one for all, or of the last two axes alone.
static bool has_samples_and_heads(const exported_match *m, const tri_pt2_value *mask) {
    const tri_pt2_value *q = exported_bound_tensor(m, "q"), *k = exported_bound_tensor(m, "k"),
                        *v = exported_bound_tensor(m, "v");
    for (int i = 0; i < 2; i++) {
        int at = mask ? i - (4 - mask->rank) : -1;
        if (q->sizes[i] != k->sizes[i] || q->sizes[i] != v->sizes[i]) return false;
        if (at >= 0 && mask->sizes[at] != 1 && mask->sizes[at] != q->sizes[i]) return false;
    }
    return true;
}

// Attention without a scale has the scale 1, and a divisor is the opposite of one. Where a query
// sees no key, a low number in place of all scores makes a mean of the values, and no attention
// with a mask does that: only a mask that data do not change is looked at for such queries later.
static bool fits_attention(exported_match *m) {
    double number = 1, low = -INFINITY;
    const tri_pt2_value *mask = exported_bound_tensor(m, "mask"),
                        *hidden = exported_bound_tensor(m, "hidden");
    bool has_root = exported_bound_number(m, "root", &number);
    bool has_scale = !has_root && exported_bound_number(m, "scale", &number);
    // What hides a key is so low that the softmax makes 0 of it.
    if (exported_bound(m, "low") && !exported_bound_number(m, "low", &low)) return false;
    if (!(low <= -1e9) || !(fabs(number) > 0) || !isfinite(number)) return false;
    if (exported_bound(m, "mask") && (!mask || mask->rank > 4)) return false;
    if (exported_bound(m, "hidden") && (!hidden || hidden->dtype != TRI_PT2_BOOLEAN)) return false;
    if (mask && exported_type_is_float(mask->dtype) == (exported_bound(m, "low") != NULL))
        return false;
    if (isfinite(low) && (is_of_data(m, "mask") || is_of_data(m, "hidden"))) return false;
    if (exported_bound(m, "root") && !has_root) return false;
    if (exported_bound(m, "scale") && !has_scale) return false;
    tri_pt2_argument scale = {.kind = TRI_PT2_FLOAT, .real = has_root ? 1 / number : number};
    exported_bind_variable(m, "factor", scale);
    return has_rank_4(m, "q") && has_rank_4(m, "k") && has_rank_4(m, "v") &&
           has_samples_and_heads(m, mask ? mask : hidden);
}

// Keys or values [N, K, S, D] of which each head is repeated for `groups` heads of queries.
static bool is_repeated(const exported_match *m, const char *name, const char *sizes,
                        const char *repeats, int64_t heads, int64_t *groups) {
    const tri_pt2_value *x = exported_bound_tensor(m, name);
    const tri_pt2_argument *list = exported_bound(m, sizes);
    double times;
    if (!x || x->rank != 4 || x->sizes[1] < 1 || heads % x->sizes[1]) return false;
    *groups = heads / x->sizes[1];
    if (exported_bound_number(m, repeats, &times)) return times == (double)*groups;
    return list && list->kind == TRI_PT2_LIST && list->count == 5 &&
           list->items[2].kind == TRI_PT2_INT && list->items[2].number == *groups;
}

static bool fits_groups(exported_match *m) {
    const tri_pt2_value *q = exported_bound_tensor(m, "q");
    int64_t of_k, of_v, heads = q && q->rank == 4 ? q->sizes[1] : 0;
    return heads > 0 && is_repeated(m, "k", "k_sizes", "k_times", heads, &of_k) &&
           is_repeated(m, "v", "v_sizes", "v_times", heads, &of_v) && of_k == of_v;
}

// The halves of the last axis are exchanged, whatever lies behind the second one's end.
static bool fits_rotary(exported_match *m) {
    const tri_pt2_value *x = exported_bound_tensor(m, "x");
    int64_t width = width_of(x);
    double half = (double)width / 2, end = (double)width;
    if (exported_bound(m, "half") && !exported_bound_number(m, "half", &half)) return false;
    if (exported_bound(m, "end") && !exported_bound_number(m, "end", &end)) return false;
    return width > 0 && width % 2 == 0 && x->rank == 4 && half == (double)width / 2 &&
           end >= (double)width && exported_bound_tensor(m, "cos") &&
           exported_bound_tensor(m, "sin");
}

// Whether another name stands for the same weight.
static bool is_tied(const tri_pt2 *file, const tri_pt2_tensor *stored) {
    for (int i = 0; i < file->tensor_count; i++)
        if (file->tensors[i].twin && !strcmp(file->tensors[i].twin, stored->entry.name))
            return true;
    return stored->twin != NULL;
}

// The weight is a parameter [in, out] that nothing else reads, and only rows are joined for the
// product. A network of which evaluation is a program of its own declares its parameters twice, as
// they are in the file.
static bool fits_conv1d(exported_match *m) {
    const nn_exported *n = m->network;
    if (n->trained || n->draws || exported_option(n, NN_EXPORTED_EVALUATION_KEY)) return false;
    const tri_pt2_value *x = exported_bound_tensor(m, "x"), *w = exported_bound_tensor(m, "w"),
                        *bias = exported_bound_tensor(m, "bias");
    const tri_pt2_value *y = &n->file.values[n->file.nodes[m->root].outputs[0].number];
    if (!x || !w || !bias || w->rank != 2 || bias->rank != 1 || x->rank < 2 || y->rank != x->rank)
        return false;
    int weight = (int)exported_bound(m, "w")->number;
    const tri_pt2_port *port = n->ports[weight];
    const tri_pt2_tensor *stored = port ? tri_pt2_find(&n->file, port->name) : NULL;
    if (!stored || port->role != TRI_PT2_PARAMETER || m->uses[weight] != 1 ||
        is_tied(&n->file, stored))
        return false;
    for (int i = 0; i < x->rank - 1; i++)
        if (x->sizes[i] != y->sizes[i]) return false;
    return w->sizes[0] > 0 && w->sizes[1] > 0 && width_of(x) == w->sizes[0] &&
           width_of(y) == w->sizes[1] && bias->sizes[0] == w->sizes[1];
}

#define UNIT_RMS(square)                                                                           \
    "{mul(rsqrt(add(mean(" square ", [-1], True), eps)), x)"                                       \
    " | div(x, sqrt(add(mean(" square ", [-1], True), eps)))}"
#define CENTERED "sub(x, mean(x, [-1], True))"
#define SQUARE_OF(x) "{pow(" x ", 2) | mul(" x ", " x ") | square(" x ")}"
#define VARIANCE                                                                                   \
    "{mean(" SQUARE_OF(CENTERED) ", [-1], True) | var(x, [-1], False, True)"                       \
                                 " | var(x, [-1], correction=0, keepdim=True)}"
#define UNIT_LAYER                                                                                 \
    "{mul(rsqrt(add(" VARIANCE ", eps)), " CENTERED ")"                                            \
    " | div(" CENTERED ", sqrt(add(" VARIANCE ", eps)))}"
// With a weight in front of the quotient, or behind it.
#define SCALED_LAYER                                                                               \
    "{mul(" UNIT_LAYER ", w) | div(mul(" CENTERED ", w), sqrt(add(" VARIANCE ", eps)))"            \
    " | mul(mul(" CENTERED ", w), rsqrt(add(" VARIANCE ", eps)))}"
#define SQUARE "{pow(x, 2) | mul(x, x) | square(x)}"
#define TANH                                                                                       \
    "add(tanh({mul(add(mul({pow(x, 3) | mul(mul(x, x), x)}, 0.044715), x), 0.7978845608)"          \
    " | mul(add(mul(mul(x, 0.044715), x), 1), mul(x, 0.7978845608))}), 1)"
#define ERF "add(erf({div(x, 1.41421356) | mul(x, 0.70710678)}), 1)"
// x / 2 times a factor, in any order.
#define HALF_TIMES(factor)                                                                         \
    "{mul(" factor ", mul(x, 0.5)) | mul(mul(" factor ", x), 0.5) | mul(mul(" factor ", 0.5), x)}"
#define GATHERED "squeeze?(gather(log_softmax(x, -1), -1, unsqueeze(labels, {1 | -1})), -1)"
#define SCORES                                                                                     \
    "{mul(matmul(q, {transpose(k, -2, -1) | transpose(k, -1, -2)}), scale)"                        \
    " | div(matmul(q, {transpose(k, -2, -1) | transpose(k, -1, -2)}), root)"                       \
    " | matmul(q, {transpose(k, -2, -1) | transpose(k, -1, -2)})}"
#define ATTENTION(scores) "matmul(dropout?(softmax(" scores ", -1), p, True), v)"
#define REPEATED(x)                                                                                \
    "{reshape(expand(unsqueeze(" x ", 2), " x "_sizes), any_" x ")"                                \
    " | repeat_interleave(" x ", " x "_times, 1)}"

// Earlier rows are tried first, and the later ones find what they have made.
static const pattern patterns[] = {
    {"layer norm", "add(" SCALED_LAYER ", bias)",
     "aten.layer_norm(x, sizes, weight=w, bias=bias, eps=eps)", fits_layer_norm},
    {"layer norm", UNIT_LAYER, "aten.layer_norm(x, sizes, eps=eps)", fits_unit_rms},
    {"cross-entropy", "{mul(mean_loss(" GATHERED "), -1) | mean_loss(neg(" GATHERED "))}",
     "aten.cross_entropy_loss(x, labels)", fits_labels},
    {"RMS norm", "mul(" UNIT_RMS(SQUARE) ", w)", "aten.rms_norm(x, sizes, weight=w, eps=eps)",
     fits_rms},
    {"RMS norm", UNIT_RMS(SQUARE), "aten.rms_norm(x, sizes, eps=eps)", fits_unit_rms},
    {"GELU by tanh", HALF_TIMES(TANH), "aten.gelu(x, 'tanh')", NULL},
    {"GELU", HALF_TIMES(ERF), "aten.gelu(x)", NULL},
    {"SwiGLU", "mul({silu(gate) | mul(sigmoid(gate), gate)}, up)", "fused.silu_mul(gate, up)",
     fits_gate},
    {"attention", ATTENTION("add?(" SCORES ", mask)"),
     "aten.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p, scale=factor)",
     fits_attention},
    {"attention", ATTENTION("masked_fill(" SCORES ", hidden, low)"),
     "aten.scaled_dot_product_attention(q, k, v, hidden=hidden, dropout_p=p, scale=factor, "
     "low=low)",
     fits_attention},
    {"attention", ATTENTION("where(mask, " SCORES ", low)"),
     "aten.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p, scale=factor, "
     "low=low)",
     fits_attention},
    {"grouped heads",
     "scaled_dot_product_attention(q, " REPEATED("k") ", " REPEATED(
         "v") ", attn_mask=mask, "
              "dropout_p=p, is_causal=causal, scale=factor, hidden=hidden, low=low)",
     "aten.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p, is_causal=causal, "
     "scale=factor, hidden=hidden, low=low)",
     fits_groups},
    {"rotary embedding",
     "add(mul(cat({[neg(slice(x, -1, half, end)), slice(x, -1, 0, half)]"
     " | [neg(chunk(x, 2, -1).1), chunk(x, 2, -1).0]}, -1), sin), mul(x, cos))",
     "fused.rotary(x, cos, sin)", fits_rotary},
    {"linear layer, weight [in, out]", "view(addmm(bias, view(x, any_rows), w), any_sizes)",
     "fused.conv1d(x, w, bias)", fits_conv1d},
};

enum { PATTERNS = sizeof patterns / sizeof *patterns };

static void add_uses(const tri_pt2_argument *a, int count, int *uses) {
    for (int i = 0; i < count; i++) {
        if (a[i].kind == TRI_PT2_LIST) add_uses(a[i].items, a[i].count, uses);
        if (a[i].kind == TRI_PT2_VALUE) uses[a[i].number]++;
    }
}

static bool is_read(const tri_pt2_argument *a, int count, const int *uses) {
    bool read = false;
    for (int i = 0; i < count; i++) {
        if (a[i].kind == TRI_PT2_LIST) read = read || is_read(a[i].items, a[i].count, uses);
        if (a[i].kind == TRI_PT2_VALUE) read = read || uses[a[i].number] > 0;
    }
    return read;
}

static bool is_live(const tri_pt2_node *node, const int *uses) {
    return is_read(node->outputs, node->output_count, uses);
}

// Counts how often live nodes and outputs read each value.
static void count_uses(const nn_exported *n, int *uses) {
    const tri_pt2 *f = &n->file;
    memset(uses, 0, (size_t)f->value_count * sizeof *uses);
    for (int i = 0; i < f->output_count; i++)
        if (f->outputs[i].role == TRI_PT2_OUTPUT) add_uses(&f->outputs[i].argument, 1, uses);
    for (int i = f->node_count - 1; i >= 0; i--)
        if (is_live(&f->nodes[i], uses))
            add_uses(f->nodes[i].arguments, f->nodes[i].argument_count, uses);
}

static void count_found(nn_exported *n, const char *name, int times) {
    for (int i = 0; i < n->fused_count; i++)
        if (!strcmp(n->fused[i].name, name)) {
            n->fused[i].count += times;
            return;
        }
    TRI_PUSH(n->arena, n->fused, n->fused_count, n->fused_capacity) = (exported_fused){name, times};
}

void exported_find_patterns(nn_exported *n) {
    int *uses = TRI_NEW_ARRAY(n->arena, int, n->file.value_count + 1);
    count_uses(n, uses);
    int losses = exported_find_losses(n, uses);
    if (losses > 0) count_found(n, "mean as a loss", losses);
    count_uses(n, uses);
    for (int k = 0; k < PATTERNS; k++) {
        const exported_term *term = exported_parse_pattern(n->arena, patterns[k].text);
        const exported_term *replacement =
            exported_parse_pattern(n->arena, patterns[k].replacement);
        for (int i = n->file.node_count - 1; i >= 0; i--) {
            exported_match m;
            if (!is_live(&n->file.nodes[i], uses) || !exported_match_node(n, term, i, uses, &m) ||
                (patterns[k].fits && !patterns[k].fits(&m)))
                continue;
            exported_replace_root(&m, replacement);
            n->nodes[i].row = exported_find_row(n->arena, n->file.nodes[i].target);
            count_uses(n, uses);
            count_found(n, patterns[k].name, 1);
        }
    }
}
