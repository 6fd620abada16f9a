// Builds random graphs of each op, which op_compare runs on two devices. A `case` (op_case) is one
// such graph while it is being built.
#include "support/op_families.h"

#include "support/mapped_product.h"

#include <string.h>
#include <trireme/functions.h>
#include <trireme/nn.h>

static tri_shape any_shape(op_case *c) {
    tri_shape shape = {.rank = (int)op_draw(c, 1, 4)};
    for (int i = 0; i < shape.rank; i++) shape.dims[i] = op_draw(c, 1, 9);
    if (op_chance(c, 30) && shape.rank == 4) shape.dims[1] = 16 * op_draw(c, 1, 4);
    return shape;
}

static tri_value numbers(op_case *c, tri_shape shape) { return op_numbers(c, shape, -1, 1); }

// Draws the input x of a norm. In a case of a half type, every second norm (at random) reads an x
// of F32 and makes a y of the half type; *narrow then becomes this type.
static tri_value norm_input(op_case *c, tri_shape shape, int64_t *narrow) {
    if (c->dtype == TRI_F32 || op_chance(c, 50)) return numbers(c, shape);
    *narrow = c->dtype;
    return op_wide_unit(c, shape);
}

static tri_shape linear_x(op_case *c, int64_t axes, int64_t *inputs) {
    static const int64_t some[] = {1, 3, 10, 16, 17, 64, 100, 256};
    tri_shape x = {.rank = 1, .dims = {op_draw(c, 1, 20)}};
    if (axes == 1) {
        if (op_chance(c, 20)) x.dims[x.rank++] = op_draw(c, 1, 5);
        x.dims[x.rank++] = some[op_draw(c, 0, 7)];
    }
    for (int i = 0; axes > 1 && i < axes; i++)
        x.dims[x.rank++] = i == 0 ? op_channels(c) : op_draw(c, 1, 6);
    *inputs = 1;
    for (int i = x.rank - (int)axes; i < x.rank; i++) *inputs *= x.dims[i];
    return x;
}

static int64_t features(op_case *c) {
    static const int64_t some[] = {1, 3, 10, 64, 64, 100, 128, 784};
    return some[op_draw(c, 0, 7)];
}

static void build_linear(op_case *c) {
    tri_linear_attr a = {.axes = op_chance(c, 60) ? 1 : op_draw(c, 2, 3)};
    int64_t inputs, out = features(c);
    tri_shape x = linear_x(c, a.axes, &inputs);
    a.wide = op_chance(c, 30);
    tri_value in[] = {numbers(c, x), numbers(c, tri_shape_of(out, inputs)), {0}};
    if (op_chance(c, 70)) in[2] = numbers(c, tri_shape_of(out));
    mapped_product(c->graph, &tri_op_linear, in, 3, &a, op_draw(c, 0, 2));
}

static void build_linear_grad(op_case *c) {
    tri_linear_grad_attr a = {.axes = op_chance(c, 60) ? 1 : op_draw(c, 2, 3),
                              .has_bias = op_chance(c, 70)};
    int64_t inputs, out = features(c);
    tri_shape x = linear_x(c, a.axes, &inputs), y = x;
    y.rank -= (int)a.axes;
    y.dims[y.rank++] = out;
    tri_value xv = numbers(c, x), wv = numbers(c, tri_shape_of(out, inputs)), dy = numbers(c, y);
    a.shape = tri_shape_of(out, inputs);
    op_add(c, &tri_op_linear_grad_weight, (tri_value[]){xv, dy}, &a);
    a.shape = x;
    a.has_bias = false;
    a.wide = op_chance(c, 30);
    op_add(c, &tri_op_linear_grad_input, (tri_value[]){dy, wv}, &a);
}

// Builds the ops of a linear layer with hundreds of rows, as a transformer has them.
static void build_linear_rows(op_case *c) {
    static const int64_t some[] = {1, 15, 33, 64, 100, 128, 160, 530};
    int64_t in = some[op_draw(c, 0, 7)], out = some[op_draw(c, 0, 7)];
    tri_shape x = tri_shape_of(op_draw(c, 2, 3), op_draw(c, 96, 130), in), y = x;
    tri_linear_attr a = {.axes = 1};
    tri_linear_grad_attr grad = {.axes = 1, .shape = tri_shape_of(out, in)};
    y.dims[2] = out;
    tri_value xv = numbers(c, x), wv = numbers(c, tri_shape_of(out, in)), dy = numbers(c, y);
    tri_value bias = op_chance(c, 40) ? numbers(c, tri_shape_of(out)) : (tri_value){0};
    op_add(c, &tri_op_linear, (tri_value[]){xv, wv, bias}, &a);
    op_add(c, &tri_op_linear_grad_weight, (tri_value[]){xv, dy}, &grad);
    grad.shape = x;
    op_add(c, &tri_op_linear_grad_input, (tri_value[]){dy, wv}, &grad);
}

static void build_elementwise(op_case *c) {
    tri_shape shape = any_shape(c);
    tri_value a = numbers(c, shape), b = numbers(c, shape), w = op_wide_unit(c, shape);
    tri_cast_attr half = {.dtype = c->dtype}, f32 = {.dtype = TRI_F32};
    tri_value bias = numbers(c, tri_shape_of(shape.dims[shape.rank - 1]));
    switch (op_draw(c, 0, 5)) {
    case 2:
        op_add(c, &tri_op_add_bias, (tri_value[]){a, bias}, NULL);
        break;
    case 3:
        op_add(c, &tri_op_add_bias_grad, &a, NULL);
        break;
    case 0:
        op_add(c, &tri_op_cast, &a, &f32);
        op_add(c, &tri_op_cast, &w, &half);
        break;
    case 1:
        op_add(c, &tri_op_add, op_chance(c, 50) ? (tri_value[]){a, w} : (tri_value[]){w, b}, NULL);
        break;
    default:
        op_add(c, &tri_op_add, (tri_value[]){a, b}, NULL);
    }
}

static void build_concat(op_case *c) {
    tri_shape shape = any_shape(c), whole = shape;
    tri_concat_attr a = {.dim = op_draw(c, 0, shape.rank - 1)};
    tri_value in[TRI_MAX_INPUTS] = {{0}};
    int inputs = (int)op_draw(c, 1, TRI_MAX_INPUTS);
    whole.dims[a.dim] = 0;
    for (int i = 0; i < inputs; i++) {
        shape.dims[a.dim] = op_draw(c, 1, 5);
        whole.dims[a.dim] += shape.dims[a.dim];
        in[i] = numbers(c, shape);
    }
    op_add(c, &tri_op_concat, in, &a);
    tri_concat_grad_attr cut = {.dim = a.dim, .first = op_draw(c, 0, whole.dims[a.dim] - 1)};
    cut.size = op_draw(c, 1, whole.dims[a.dim] - cut.first);
    tri_value dy = numbers(c, whole);
    op_add(c, &tri_op_concat_grad, &dy, &cut);
    tri_collective_attr part = {.dim = a.dim, .slices = op_draw(c, 1, 3)};
    tri_rechunk_attr chunks = {a.dim, op_draw(c, 0, whole.rank - 1), part.slices};
    part.index = op_draw(c, 0, part.slices - 1);
    whole.dims[a.dim] *= part.slices;
    tri_value x = numbers(c, whole);
    op_add(c, &tri_op_split, &x, &part);
    op_add(c, &tri_op_split_grad, &dy, &part);
    op_add(c, &tri_op_rechunk, &x, &chunks);
}

static void build_max_pool2d(op_case *c) {
    tri_max_pool2d_attr a = {.relu = op_chance(c, 50), .indexed = op_chance(c, 20), .key = 31};
    bool usual = op_chance(c, 60); // windows of 2 x 2
    tri_shape x = op_image(c, op_draw(c, 1, 4), op_channels(c), 3), y = x;
    for (int i = 0; i < 2; i++) {
        a.kernel[i] = usual ? 2 : op_draw(c, 1, 3);
        a.stride[i] = usual ? 2 : op_draw(c, 1, 3);
        a.padding[i] = usual ? 0 : op_draw(c, 0, a.kernel[i] / 2);
        y.dims[2 + i] = op_window(x.dims[2 + i], a.kernel[i], a.stride[i], a.padding[i], 1);
    }
    tri_value in[] = {numbers(c, x), {0}}, dy = numbers(c, y);
    if (op_chance(c, 50)) {
        a.dropout = op_chance(c, 10) ? 1 : 0.25;
        in[1] = op_position(c);
    }
    tri_value pool = tri_node_add(c->graph, &tri_op_max_pool2d, in, 2, &a, "");
    a.x_shape = x;
    op_add(c, &tri_op_max_pool2d_grad, (tri_value[]){tri_node_output(c->graph, pool, 1), dy}, &a);
}

static void build_avg_pool2d(op_case *c) {
    tri_avg_pool2d_attr a = {.exclude_padding = op_chance(c, 30)};
    bool adapts = op_chance(c, 40), to_one = op_chance(c, 50);
    tri_shape x = op_image(c, op_draw(c, 1, 4), op_channels(c), adapts ? 1 : 3), y = x;
    for (int i = 0; i < 2; i++) {
        a.kernel[i] = op_draw(c, 1, 3);
        a.stride[i] = op_draw(c, 1, 3);
        a.padding[i] = op_draw(c, 0, a.kernel[i] / 2);
        if (adapts) a.out[i] = to_one ? 1 : op_draw(c, 1, 7);
        y.dims[2 + i] =
            adapts ? a.out[i] : op_window(x.dims[2 + i], a.kernel[i], a.stride[i], a.padding[i], 1);
    }
    tri_value in = numbers(c, x), dy = numbers(c, y);
    op_add(c, &tri_op_avg_pool2d, &in, &a);
    a.x_shape = x;
    op_add(c, &tri_op_avg_pool2d_grad, &dy, &a);
}

// Draws whether a pooling is fused into a batch norm of x, and which. Makes two inputs of the
// norm's gradient: `dy`, and `mask`, which for a pooling has the index of each window's maximum.
// Without a pooling both have the shape of x.
static void draw_norm_pool(op_case *c, tri_shape x, tri_batch_norm_attr *a, tri_value *mask,
                           tri_value *dy) {
    bool pools = x.rank == 4 && x.dims[2] > 2 && x.dims[3] > 2 && op_chance(c, 60);
    bool usual = op_chance(c, 60); // windows of 2 x 2
    tri_shape y = x;
    for (int i = 0; pools && i < 2; i++) {
        a->pool.kernel[i] = usual ? 2 : op_draw(c, 1, 3);
        a->pool.stride[i] = usual ? 2 : op_draw(c, 1, 4);
        a->pool.padding[i] = usual ? 0 : op_draw(c, 0, a->pool.kernel[i] / 2);
        y.dims[2 + i] =
            op_window(x.dims[2 + i], a->pool.kernel[i], a->pool.stride[i], a->pool.padding[i], 1);
    }
    *dy = numbers(c, y);
    *mask = pools ? (tri_value){0} : numbers(c, x);
    if (!pools) return;
    a->pool.relu = a->relu;
    a->relu = false;
    tri_value in = numbers(c, x);
    *mask = tri_node_output(c->graph,
                            tri_node_add(c->graph, &tri_op_max_pool2d, &in, 1, &a->pool, ""), 1);
}

static void build_batch_norm(op_case *c) {
    tri_batch_norm_attr a = {.eps = 1e-5, .relu = op_chance(c, 50)};
    tri_shape x = op_chance(c, 70) ? op_image(c, op_draw(c, 2, 4), op_channels(c), 1)
                                   : tri_shape_of(op_draw(c, 2, 9), op_draw(c, 1, 40));
    tri_shape ch = tri_shape_of(x.dims[1]);
    tri_value xv = norm_input(c, x, &a.narrow), weight = op_wide_unit(c, ch),
              bias = op_wide_unit(c, ch);
    tri_value mean = op_wide(c, ch, -0.5, 0.5), positive = op_wide(c, ch, 0.5, 2), mask, dy;
    draw_norm_pool(c, x, &a, &mask, &dy);
    if (op_chance(c, 50)) {
        op_add(c, &tri_op_batch_norm, (tri_value[]){xv, weight, bias}, &a);
        op_add(c, &tri_op_batch_norm_inference, (tri_value[]){xv, weight, bias, mean, positive},
               &a);
    } else {
        op_add(c, &tri_op_batch_norm_grad, (tri_value[]){xv, mask, dy, weight, mean, positive}, &a);
    }
}

static void build_batch_norm_shared(op_case *c) {
    tri_batch_norm_shared_attr a = {.norm = {.eps = 1e-5, .relu = op_chance(c, 50)},
                                    .replicas.slices = op_draw(c, 1, 3)};
    tri_shape x = op_chance(c, 70) ? op_image(c, op_draw(c, 1, 4), op_channels(c), 1)
                                   : tri_shape_of(op_draw(c, 1, 9), op_draw(c, 1, 40));
    tri_shape ch = tri_shape_of(x.dims[1]);
    tri_value xv = norm_input(c, x, &a.norm.narrow), weight = op_wide_unit(c, ch),
              bias = op_wide_unit(c, ch);
    tri_value mask, dy;
    draw_norm_pool(c, x, &a.norm, &mask, &dy);
    // These stand for the moments of all replicas: means, sums of squared deviations, and numbers
    // of samples. All are drawn from 1 to 3: the last two must be positive, and means may be.
    tri_value all = op_wide(c, tri_shape_of(a.replicas.slices, 2 * x.dims[1] + 1), 1, 3);
    if (op_chance(c, 50)) {
        op_add(c, &tri_op_batch_norm_moments, &xv, NULL);
        op_add(c, &tri_op_batch_norm_shared, (tri_value[]){xv, weight, bias, all}, &a);
    } else {
        tri_value mean = op_wide(c, ch, -0.5, 0.5);
        tri_value inv_std = op_wide(c, ch, 0.5, 2),
                  sums = op_wide_unit(c, tri_shape_of(2, x.dims[1]));
        tri_value in[] = {xv, mask, dy, weight, mean, inv_std, sums, all};
        op_add(c, &tri_op_batch_norm_shared_grad, in, &a);
        op_add(c, &tri_op_batch_norm_sums, (tri_value[]){xv, mask, dy, mean, inv_std}, &a.norm);
    }
}

static void build_dropout(op_case *c) {
    // x is one rank's slice of a larger tensor along an axis. Mostly the lengths of its runs of
    // neighbouring elements are multiples of 64, so that they fill whole vector registers.
    bool is_slice = op_chance(c, 40);
    int64_t unit = op_chance(c, 70) ? 64 : 1;
    tri_shape shape =
        is_slice ? tri_shape_of(op_draw(c, 1, 4), op_draw(c, 1, 3), unit * op_draw(c, 1, 5))
                 : any_shape(c);
    tri_shape full = shape;
    int along = (int)op_draw(c, op_chance(c, 80), 2);
    int64_t first = (along == 2 ? unit : 1) * op_draw(c, 0, 3);
    if (is_slice) full.dims[along] += first + (along == 2 ? unit : 1) * op_draw(c, 0, 3);
    tri_map_attr a = tri_map_of_dropout(&full, (double)op_draw(c, 0, 10) / 10, 77);
    if (is_slice) {
        a.expands = true;
        a.shape = shape;
        a.views[1] = tri_map_view_of(&a, 1, &full, &shape);
        a.views[1].start[along] = first;
        a.views[1].axis[along] = (int8_t)along;
        a.viewed = 2;
    }
    tri_value in[] = {numbers(c, shape), op_position(c)};
    tri_node_add(c->graph, &tri_op_map, in, 2, &a, "");
}

static void build_softmax(op_case *c) {
    tri_shape shape = any_shape(c);
    if (op_chance(c, 8)) // columns that are more than a kernel takes at a time
        shape = tri_shape_of(op_draw(c, 1, 3), op_draw(c, 2, 9), op_draw(c, 200, 700));
    tri_softmax_attr attr = {.behind = op_chance(c, 40) ? 0 : op_draw(c, 0, shape.rank - 1)};
    if (op_chance(c, 20)) shape.dims[op_draw(c, 0, shape.rank - 1)] = op_draw(c, 60, 300);
    tri_value y = op_numbers(c, shape, -4, 0), dy = numbers(c, shape);
    bool is_log = op_chance(c, 50), forward = op_chance(c, 50);
    if (forward && !is_log && attr.behind == 0) {
        attr.empty = op_chance(c, 50);
        attr.causal = shape.rank > 1 && shape.dims[shape.rank - 1] >= shape.dims[shape.rank - 2];
    }
    if (forward)
        op_add(c, is_log ? &tri_op_log_softmax : &tri_op_softmax, &y, &attr);
    else
        op_add(c, is_log ? &tri_op_log_softmax_grad : &tri_op_softmax_grad, (tri_value[]){y, dy},
               &attr);
}

static void build_class_loss(op_case *c) {
    int64_t k = op_chance(c, 60) ? 10 : op_draw(c, 1, 40);
    if (op_chance(c, 30)) k = op_draw(c, 60, 400);
    tri_shape rows = tri_shape_of(op_draw(c, 1, 70)), scores;
    if (op_chance(c, 30)) rows.dims[rows.rank++] = op_draw(c, 1, 5);
    scores = rows;
    scores.dims[scores.rank++] = k;
    tri_value x = op_numbers(c, scores, -5, 5), labels = op_labels(c, rows, k);
    tri_value seed = tri_scalar(c->graph, TRI_SCALAR_SEED);
    tri_nll_loss_grad_attr a = {.shape = scores, .dtype = c->dtype};
    op_add(c, &tri_op_nll_loss, (tri_value[]){x, labels}, NULL);
    op_add(c, &tri_op_nll_loss_grad, (tri_value[]){labels, seed}, &a);
    tri_soft_labels_attr smooth = {.smoothing = op_chance(c, 50) ? 0.1 : 0};
    tri_value soft[] = {op_numbers(c, scores, -9, 0), op_soft_labels(c, scores)};
    op_add(c, &tri_op_soft_nll_loss, soft, &smooth);
    op_add(c, &tri_op_soft_nll_loss_grad, (tri_value[]){soft[1], seed}, &smooth);
    op_add(c, &tri_op_one_hot, &labels, &(tri_one_hot_attr){.classes = k, .dtype = c->dtype});
    op_add(c, &tri_op_top_class, &soft[1], NULL);
    op_add(c, &tri_op_cross_entropy, (tri_value[]){x, labels}, NULL);
    op_add(c, &tri_op_accuracy, (tri_value[]){x, labels}, NULL);
    // This node comes last, because it may write over x.
    op_add(c, &tri_op_cross_entropy_grad, (tri_value[]){x, labels, seed}, NULL);
}

// A linear layer fused with its cross-entropy loss: the scores of one chunk of rows are computed at
// a time. Mostly all rows fit into one chunk, now and then they need several. In a half type the
// device rounds the scores and their gradient, and the reference device `ref` does not. Then nearly
// equal scores may be in another order and the accuracy may differ, so it is computed only in F32.
static void build_linear_cross_entropy(op_case *c) {
    int64_t k = op_chance(c, 60) ? op_draw(c, 1, 40) : 64 * op_draw(c, 1, 3);
    int64_t inputs = op_chance(c, 50) ? op_draw(c, 1, 40) : 16 * op_draw(c, 1, 6);
    tri_linear_cross_entropy_attr a = {.accuracy = c->dtype == TRI_F32 && op_chance(c, 50)};
    tri_shape rows = tri_shape_of(op_chance(c, 70) ? op_draw(c, 1, 70) : op_draw(c, 500, 1200)), x;
    if (op_chance(c, 30)) rows = tri_shape_of(op_draw(c, 1, 5), rows.dims[0]);
    x = rows;
    x.dims[x.rank++] = inputs;
    tri_value xv = numbers(c, x), weight = numbers(c, tri_shape_of(k, inputs)), bias = {0};
    tri_value labels = op_labels(c, rows, k), seed = tri_scalar(c->graph, TRI_SCALAR_SEED);
    if (op_chance(c, 50)) bias = numbers(c, tri_shape_of(k));
    op_add(c, &tri_op_linear_cross_entropy, (tri_value[]){xv, weight, labels, bias}, &a);
    op_add(c, &tri_op_linear_cross_entropy_grad, (tri_value[]){xv, weight, labels, seed, bias},
           NULL);
}

// Builds losses of scores that are one rank's slice of the classes. The maxima and sums over all
// classes are drawn as if the slices of other ranks had larger scores.
static void build_vocab_parallel_loss(op_case *c) {
    int64_t k = op_draw(c, 1, 40);
    tri_classes_attr slice = {.first = op_draw(c, 0, 5)};
    slice.classes = slice.first + k + op_draw(c, 0, 5);
    tri_shape rows = tri_shape_of(op_draw(c, 1, 70)), scores, two;
    if (op_chance(c, 30)) rows.dims[rows.rank++] = op_draw(c, 1, 5);
    scores = two = rows;
    scores.dims[scores.rank++] = k;
    two.dims[two.rank++] = 2;
    tri_value x = op_numbers(c, scores, -5, 5), labels = op_labels(c, rows, slice.classes);
    tri_value in[] = {x, labels, op_wide(c, rows, 5, 7), op_wide(c, two, 1, 3),
                      tri_scalar(c->graph, TRI_SCALAR_SEED)};
    op_add(c, &tri_op_vocab_parallel_softmax, in, &slice);
    op_add(c, &tri_op_vocab_parallel_cross_entropy, in, &slice);
    op_add(c, &tri_op_vocab_parallel_cross_entropy_grad, in, &slice);
    tri_value max = tri_node_add(c->graph, &tri_op_row_max, &x, 1, NULL, "");
    max =
        tri_node_add(c->graph, &tri_op_vocab_parallel_argmax, (tri_value[]){x, max}, 2, &slice, "");
    op_add(c, &tri_op_vocab_parallel_accuracy, (tri_value[]){max, labels}, &slice);
}

static void build_embedding(op_case *c) {
    int64_t tokens = op_draw(c, 1, 300), width = op_channels(c);
    tri_shape ids = tri_shape_of(op_draw(c, 1, 4), op_draw(c, 1, 90)), y = ids;
    y.dims[y.rank++] = width;
    tri_embedding_grad_attr a = {.shape = tri_shape_of(tokens, width)};
    tri_value id = op_tokens(c, ids, tokens);
    if (op_chance(c, 50)) { // the rank has only a slice of the table
        a.rows = (tri_embedding_attr){.first = op_draw(c, 0, tokens - 1), .total = tokens};
        a.shape.dims[0] = op_draw(c, 1, tokens - a.rows.first);
    }
    op_add(c, &tri_op_embedding, (tri_value[]){id, numbers(c, a.shape)}, &a.rows);
    op_add(c, &tri_op_embedding_grad_weight, (tri_value[]){id, numbers(c, y)}, &a);
    op_add(c, &tri_op_next_token, &id, NULL);
}

// Builds the op that normalises bytes. Its results must have the same bits as those of `ref`, for
// any mean and standard deviation.
static void build_normalize_bytes(op_case *c) {
    tri_pixel_scale scale = {.channels = op_draw(c, 1, 5)};
    tri_shape x = tri_shape_of(op_draw(c, 1, 9), scale.channels, op_draw(c, 1, 40));
    if (op_chance(c, 60)) x.dims[x.rank++] = op_draw(c, 1, 40);
    for (int64_t i = 0; i < scale.channels; i++) {
        scale.mean[i] = (double)((float)op_draw(c, -900, 900) / 997.0f);
        scale.std[i] = (double)((float)op_draw(c, 1, 3000) / 991.0f);
    }
    tri_value bytes = op_bytes(c, x);
    op_add(c, &tri_op_normalize_bytes, &bytes, &scale);
}

// Draws the shape of a tensor of rows; *width is the length of a row. Mostly it is a multiple of
// 16, as in transformers.
static tri_shape rows_of(op_case *c, int64_t *width) {
    tri_shape x = any_shape(c);
    if (op_chance(c, 60)) x.dims[x.rank - 1] = 16 * op_draw(c, 1, 20);
    *width = x.dims[x.rank - 1];
    return x;
}

static void build_norm(op_case *c) {
    tri_norm_attr a = {.eps = 1e-5};
    int64_t width;
    tri_shape shape = rows_of(c, &width), rows = shape, w = tri_shape_of(width);
    rows.rank--;
    tri_value x = norm_input(c, shape, &a.narrow), dy = numbers(c, shape),
              weight = op_wide_unit(c, w);
    tri_value bias = op_wide_unit(c, w), mean = op_wide(c, rows, -0.5, 0.5);
    tri_value inv = op_wide(c, rows, 0.5, 2), sum = {0};
    if (op_chance(c, 50)) sum = a.narrow ? op_wide_unit(c, shape) : numbers(c, shape);
    if (op_chance(c, 50)) {
        op_add(c, &tri_op_rms_norm, (tri_value[]){x, weight}, &a);
        op_add(c, &tri_op_rms_norm_grad, (tri_value[]){x, dy, weight, inv, sum}, &a);
        return;
    }
    if (op_chance(c, 30)) weight = bias = (tri_value){0};
    op_add(c, &tri_op_layer_norm, (tri_value[]){x, weight, bias}, &a);
    op_add(c, &tri_op_layer_norm_grad, (tri_value[]){x, dy, mean, inv, weight, sum}, &a);
}

static void build_group_norm(op_case *c) {
    tri_group_norm_attr a = {.norm.eps = 1e-5, .groups = op_draw(c, 1, 4)};
    tri_shape shape = op_image(c, op_draw(c, 1, 4), a.groups * op_channels(c), 1);
    if (op_chance(c, 30)) shape.rank = 2, shape.dims[2] = shape.dims[3] = 0;
    tri_shape groups = tri_shape_of(shape.dims[0], a.groups),
              channels = tri_shape_of(shape.dims[1]);
    tri_value x = norm_input(c, shape, &a.norm.narrow), dy = numbers(c, shape);
    tri_value weight = op_wide_unit(c, channels), bias = op_wide_unit(c, channels);
    tri_value mean = op_wide(c, groups, -0.5, 0.5), inv = op_wide(c, groups, 0.5, 2);
    if (op_chance(c, 30)) weight = bias = (tri_value){0};
    op_add(c, &tri_op_group_norm, (tri_value[]){x, weight, bias}, &a);
    op_add(c, &tri_op_group_norm_grad, (tri_value[]){x, dy, mean, inv, weight}, &a);
}

static void build_rotary(op_case *c) {
    tri_shape x = tri_shape_of(op_draw(c, 1, 3), op_draw(c, 1, 40), op_draw(c, 1, 8),
                               2 * (op_chance(c, 60) ? 16 * op_draw(c, 1, 4) : op_draw(c, 1, 20)));
    tri_rotary_attr a = {.theta = 10000, .inverse = op_chance(c, 50)};
    if (op_chance(c, 30)) a.first = op_draw(c, 0, 1000);
    if (op_chance(c, 30)) a.scaling = (tri_rotary_scaling){8, 1, 4, (double)op_draw(c, 16, 4096)};
    tri_value in[2] = {numbers(c, x)};
    if (op_chance(c, 50)) in[1] = op_tokens(c, tri_shape_of(x.dims[0], 2), 1000);
    op_add(c, &tri_op_rotary, in, &a);
}

static void build_attention(op_case *c) {
    int64_t width = op_chance(c, 60) ? 16 * op_draw(c, 1, 4) : op_draw(c, 1, 20);
    if (op_chance(c, 15)) width = op_draw(c, 65, 140);
    int64_t samples = op_draw(c, 1, 2), kv_heads = op_draw(c, 1, 3);
    int64_t keys = op_chance(c, 30) ? op_draw(c, 60, 200) : op_draw(c, 1, 40);
    int64_t queries = op_chance(c, 70) ? keys : op_draw(c, 1, keys);
    tri_shape kv = tri_shape_of(samples, keys, kv_heads, width);
    tri_shape q = tri_shape_of(samples, queries, kv_heads * op_draw(c, 1, 3), width);
    tri_attention_attr a = {.scale = (double)op_draw(c, 1, 8) / 8, .causal = op_chance(c, 70)};
    tri_value qv = op_numbers(c, q, -2, 2), k = op_numbers(c, kv, -2, 2), v = numbers(c, kv);
    tri_value y = tri_node_add(c->graph, &tri_op_attention, (tri_value[]){qv, k, v}, 3, &a, "");
    tri_value grad[] = {qv, k, v, y, numbers(c, q), tri_node_output(c->graph, y, 1)};
    op_add(c, &tri_op_attention_grad, grad, &a);
}

static tri_layout draw_layout(op_case *c) {
    static const tri_layout some[] = {
        {0},
        {.block_count = 1, .block_axis = {1}, .block_size = {16}},
        {.block_count = 2, .block_axis = {1, 0}, .block_size = {16, 16}},
        {.block_count = 1, .block_axis = {0}, .block_size = {16}, .order = {0, 2, 3, 1}},
        {.order = {0, 2, 3, 1}},
        {.block_count = 3, .block_axis = {0, 1, 0}, .block_size = {4, 8, 2}},
    };
    return some[op_draw(c, 0, 5)];
}

static void build_reorder(op_case *c) {
    tri_value x =
        tri_input(c->graph, "x", c->dtype, op_image(c, op_draw(c, 1, 20), op_draw(c, 1, 40), 1));
    c->sources[c->source_count++] = (op_source){x, OP_SOURCE_NUMBERS, -1, 1};
    c->graph->values[x.id].layout = draw_layout(c);
    tri_value y = tri_node_add(c->graph, &tri_op_reorder, &x, 1, NULL, "");
    c->graph->values[y.id].layout = draw_layout(c);
}

const op_family op_families[] = {
    // Sums of thousands of terms up to 1 may come to nothing.
    {.name = "map", .build = op_build_map, .tolerance = 1e-5, .rounding = 1e-6},
    {.name = "reduce", .build = op_build_reduce, .tolerance = 1e-5},
    {.name = "gather", .build = op_build_gather, .tolerance = 1e-5},
    {.name = "scatter", .build = op_build_scatter, .tolerance = 1e-5},
    {.name = "order", .build = op_build_order, .tolerance = 1e-5},
    {.name = "scan", .build = op_build_scan, .tolerance = 1e-5},
    {.name = "recurrent", .build = op_build_recurrent, .tolerance = 1e-5, .half_tolerance = 0.05},
    {.name = "integers", .build = op_build_integers, .tolerance = 1e-6},
    {.name = "masks", .build = op_build_masks, .tolerance = 1e-6},
    {.name = "own", .build = op_build_own, .tolerance = 1e-6},
    {.name = "matmul", .build = op_build_matmul, .tolerance = 1e-5},
    // Products of hundreds of terms, rounded to a half type, are read by functions.
    {.name = "map of a product",
     .build = op_build_product_map,
     .tolerance = 1e-5,
     .half_tolerance = 0x1p-6},
    {.name = "conv2d",
     .build = op_build_conv2d,
     .tolerance = 1e-4,
     .rounds_on_gpu = true,
     .not_finite = OP_NOT_FINITE_SPREADS},
    {.name = "conv2d_grad",
     .build = op_build_conv2d_grad,
     .tolerance = 1e-4,
     .rounds_on_gpu = true,
     .not_finite = OP_NOT_FINITE_SPREADS},
    {.name = "conv2d of images",
     .build = op_build_conv2d_first,
     .tolerance = 1e-4,
     .rounds_on_gpu = true,
     .not_finite = OP_NOT_FINITE_SPREADS},
    {.name = "depthwise",
     .build = op_build_depthwise,
     .tolerance = 1e-5,
     .rounds_on_gpu = true,
     .not_finite = OP_NOT_FINITE_SPREADS},
    {.name = "interpolate", .build = op_build_interpolate, .tolerance = 1e-5},
    {.name = "linear", .build = build_linear, .tolerance = 1e-5},
    {.name = "linear_grad", .build = build_linear_grad, .tolerance = 1e-5},
    {.name = "linear on many rows", .build = build_linear_rows, .tolerance = 1e-5},
    {.name = "elementwise", .build = build_elementwise, .tolerance = 1e-6},
    {.name = "concat and split", .build = build_concat, .tolerance = 0},
    {.name = "max_pool2d", .build = build_max_pool2d, .tolerance = 1e-6},
    {.name = "avg_pool2d", .build = build_avg_pool2d, .tolerance = 1e-5},
    {.name = "batch_norm",
     .build = build_batch_norm,
     .tolerance = 2e-5,
     .not_finite = OP_INFINITY_SPREADS},
    {.name = "batch_norm_shared",
     .build = build_batch_norm_shared,
     .tolerance = 2e-5,
     .not_finite = OP_INFINITY_SPREADS},
    {.name = "dropout", .build = build_dropout, .tolerance = 1e-6},
    {.name = "ratios", .build = op_build_ratio_loss, .tolerance = 1e-6},
    {.name = "metric sums", .build = op_build_metric_sums, .tolerance = 1e-6},
    {.name = "ctc", .build = op_build_ctc_loss, .tolerance = 1e-5},
    {.name = "softmax", .build = build_softmax, .tolerance = 1e-5},
    {.name = "class losses", .build = build_class_loss, .tolerance = 1e-5},
    {.name = "linear with cross-entropy",
     .build = build_linear_cross_entropy,
     .tolerance = 1e-5,
     .half_tolerance = 0x1p-6},
    {.name = "vocabulary-parallel losses", .build = build_vocab_parallel_loss, .tolerance = 1e-5},
    {.name = "embedding", .build = build_embedding, .tolerance = 1e-5},
    {.name = "bytes", .build = build_normalize_bytes, .tolerance = 1e-30},
    {.name = "norm", .build = build_norm, .tolerance = 1e-5},
    {.name = "group_norm",
     .build = build_group_norm,
     .tolerance = 1e-5,
     .not_finite = OP_INFINITY_SPREADS},
    {.name = "rotary", .build = build_rotary, .tolerance = 1e-5},
    {.name = "attention",
     .build = build_attention,
     .tolerance = 2e-5,
     .rounding = 1e-5,
     .half_tolerance = 0.01,
     .not_finite = OP_NOT_FINITE_SPREADS},
    {.name = "caches",
     .build = op_build_cache,
     .tolerance = 2e-5,
     .rounding = 1e-5,
     .half_tolerance = 0.01,
     .not_finite = OP_NOT_FINITE_ALIKE},
    {.name = "distance losses", .build = op_build_distance_loss, .tolerance = 1e-5},
    {.name = "updates", .build = op_build_update, .tolerance = 1e-5},
    {.name = "numbers of a step", .build = op_build_step_numbers, .tolerance = 1e-12},
    {.name = "reorder", .build = build_reorder, .tolerance = 0, .any_layout = true},
    {.name = "network",
     .build = op_build_network,
     .tolerance = 1e-3,
     .half_tolerance = 0.03,
     .not_finite = OP_NOT_FINITE_ANYWHERE},
    {0},
};
