// Provokes every error of the shape rules of all ops, and checks the messages. An op's shape rule
// checks shapes, types and attributes when a node is added to a graph.
#include "graph/metric.h"
#include "ops/ops.h"
#include "support/message.h"
#include "support/op_session.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct input {
    bool present;
    tri_dtype dtype;
    tri_shape shape;
} input;

#define OF(type, ...) ((input){true, type, tri_shape_of(__VA_ARGS__)})
#define F(...) OF(TRI_F32, __VA_ARGS__)
#define D(...) OF(TRI_F64, __VA_ARGS__)
#define L(...) OF(TRI_I64, __VA_ARGS__)
#define B(...) OF(TRI_BF16, __VA_ARGS__)
#define H(...) OF(TRI_F16, __VA_ARGS__)
#define POINT ((input){true, TRI_F32, {0}})
#define STEP D(TRI_STEP_SCALAR_COUNT)
#define POSITION L(2)
// REFUSED(op, attributes, parts, inputs…) checks that the op refuses these attributes and inputs
// with a message that has the parts (support/message.h).
#define REFUSED(op, attr, parts, ...)                                                              \
    refused(&tri_op_##op, attr, parts, (input[TRI_MAX_INPUTS]){__VA_ARGS__})

static void refused(const tri_op *op, const void *attr, const char *parts, const input *in) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value values[TRI_MAX_INPUTS] = {{0}};
    for (int i = 0; i < op->input_count; i++) {
        char name[16];
        snprintf(name, sizeof name, "in%d", i);
        if (in[i].present) values[i] = tri_input(g, name, in[i].dtype, in[i].shape);
    }
    tri_value made = tri_node_add(g, op, values, op->input_count, attr, "layer7");
    const char *found = "";
    char want[512];
    snprintf(want, sizeof want, "layer7|%s|%s", op->name, parts);
    assert_int_equal(tri_graph_status(g, &found), TRI_BAD_INPUT);
    message_check(found, want);
    assert_false(tri_value_is(made));
    op_graph_close(g);
}

static const tri_conv2d_attr conv = {
    .stride = {1, 1}, .padding = {0, 0}, .dilation = {1, 1}, .groups = 1};

static tri_conv2d_attr conv_with(int64_t stride, int64_t padding, int64_t dilation,
                                 int64_t groups) {
    return (tri_conv2d_attr){.stride = {1, stride},
                             .padding = {0, padding},
                             .dilation = {1, dilation},
                             .groups = groups};
}

static void test_conv2d(void **state) {
    tri_conv2d_attr a;
    REFUSED(conv2d, &conv, "x|[N, C, H, W]|4|[2, 3, 8]", F(2, 3, 8), F(4, 3, 3, 3));
    REFUSED(conv2d, &conv, "weight|[O, C / groups, KH, KW]|4|[4, 27]", F(2, 3, 8, 8), F(4, 27));
    REFUSED(conv2d, &conv, "x|3|channels|weight|2|1|groups", F(2, 3, 8, 8), F(4, 2, 3, 3));
    REFUSED(conv2d, &conv, "kernel|9|dilation|1|8|padding|0", F(2, 3, 8, 9), F(4, 3, 9, 9));
    REFUSED(conv2d, &conv, "bias|[4]|[3]", F(2, 3, 8, 8), F(4, 3, 3, 3), F(3));
    REFUSED(conv2d, &conv, "input|1|F32|F64", F(2, 3, 8, 8), D(4, 3, 3, 3));
    REFUSED(conv2d, &conv, "input|0|F32|F64|F16|BF16|I64", L(2, 3, 8, 8), F(4, 3, 3, 3));
    a = conv_with(1, 0, 1, 0);
    REFUSED(conv2d, &a, "groups|1|0", F(2, 3, 8, 8), F(4, 3, 3, 3));
    a = conv_with(1, 0, 1, 3);
    REFUSED(conv2d, &a, "4|channels|3|groups", F(2, 3, 8, 8), F(4, 1, 3, 3));
    static const int64_t bad[][3] = {{0, 0, 1}, {1, -1, 1}, {1, 0, 0}};
    for (int i = 0; i < 3; i++) {
        char want[256];
        a = conv_with(bad[i][0], bad[i][1], bad[i][2], 1);
        snprintf(want, sizeof want, "kernel|stride|dilation|1|padding|0|3|%d|%d|%d", (int)bad[i][0],
                 (int)bad[i][2], (int)bad[i][1]);
        REFUSED(conv2d, &a, want, F(2, 3, 8, 8), F(4, 3, 3, 3));
    }
    a = conv_with(INT64_MAX, 0, 1, 1);
    REFUSED(conv2d, &a, "kernel|stride|dilation|padding|1048576|3|9223372036854775807|1|0",
            F(2, 3, 8, 8), F(4, 3, 3, 3));
    REFUSED(conv2d, &conv, "[1099511627776, 1099511627776, 6, 6]|elements",
            F((int64_t)1 << 40, 3, 8, 8), F((int64_t)1 << 40, 3, 3, 3));
}

static void test_conv2d_grad(void **state) {
    tri_conv2d_grad_attr a = {.conv = conv, .shape = tri_shape_of(2, 3, 8, 8)};
    REFUSED(conv2d_grad_input, &a, "dy|[2, 4, 6, 6]|[2, 4, 6, 5]", F(2, 4, 6, 5), F(4, 3, 3, 3));
    a.shape = tri_shape_of(4, 3, 3, 3);
    REFUSED(conv2d_grad_weight, &a, "dy|[2, 4, 6, 6]|[1, 4, 6, 6]", F(2, 3, 8, 8), F(1, 4, 6, 6));
}

static void test_linear(void **state) {
    tri_linear_attr a = {.axes = 1};
    REFUSED(linear, &a, "weight|[features, inputs]|2|[5]", F(2, 6), F(5));
    REFUSED(linear, &a, "x|[2, 6]|6|inputs|weight|[5, 7]|7", F(2, 6), F(5, 7));
    REFUSED(linear, &a, "bias|[5]|[1, 5]", F(2, 6), F(5, 6), F(1, 5));
    a.axes = 3;
    REFUSED(linear, &a, "3|x|[2, 6]", F(2, 6), F(5, 6));
    a.axes = 0;
    REFUSED(linear, &a, "0|x|[2, 6]", F(2, 6), F(5, 6));
    tri_linear_grad_attr grad = {.axes = 1, .shape = tri_shape_of(2, 6)};
    REFUSED(linear_grad_input, &grad, "dy|[2, 5]|[3, 5]", F(3, 5), F(5, 6));
    grad.shape = tri_shape_of(5, 6);
    REFUSED(linear_grad_weight, &grad, "dy|[2, 5]|[2, 4]", F(2, 6), F(2, 4));
}

static void test_elementwise(void **state) {
    REFUSED(add, NULL, "b|[2, 3]|[3, 2]", F(2, 3), F(3, 2));
    REFUSED(add, NULL, "F32|F64|sum", F(2, 3), D(2, 3));
    tri_shape drawn = tri_shape_of(2, 3);
    tri_map_attr dropout = tri_map_of_dropout(&drawn, 0.5, 7);
    REFUSED(map, &dropout, "position|[2]|[3]", F(2, 3), L(3));
    REFUSED(map, &dropout, "position|I64|F32", F(2, 3), F(2));
    REFUSED(map, &dropout, "random|F32|I64", L(2, 3), POSITION);
    REFUSED(map, &dropout, "[2, 4]|[2, 3]", F(2, 4), POSITION);
    dropout.draws[1].p = 1.5;
    REFUSED(map, &dropout, "p|0|1|1.5", F(2, 3), POSITION);
    dropout = tri_map_of_dropout(&(tri_shape){0}, 0.5, 7);
    REFUSED(map, &dropout, "random|samples|first|axis", POINT, POSITION);
    tri_reshape_attr reshape = {tri_shape_of(4, 2)};
    REFUSED(reshape, &reshape, "[4, 2]|elements|[3, 3]", F(3, 3));
    tri_concat_attr concat = {.dim = 1};
    REFUSED(concat, &concat, "input|0|[3]|axis|1", F(3));
    REFUSED(concat, &concat, "input|1|[2, 3]|input|0|[3, 3]|axis|1", F(3, 3), F(2, 3));
    REFUSED(concat, &concat, "input|2|[3]|input|0|[3, 3]|axis|1", F(3, 3), F(3, 1), F(3));
    REFUSED(concat, &concat, "input|1|F32|F64", F(3, 3), D(3, 3));
    tri_concat_grad_attr cut = {.dim = 1, .first = 2, .size = 2};
    REFUSED(concat_grad, &cut, "dy|[3, 3]|elements|2|3|axis|1", F(3, 3));
}

static void test_max_pool2d(void **state) {
    tri_max_pool2d_attr a = {.kernel = {2, 2}, .stride = {2, 2}};
    REFUSED(max_pool2d, &a, "x|[N, C, H, W]|4|[8, 8]", F(8, 8));
    REFUSED(max_pool2d, &a, "kernel|2|1|padding|0", F(1, 1, 8, 1));
    a.dropout = 0.5;
    REFUSED(max_pool2d, &a, "dropout|position", F(1, 1, 8, 8));
    a.dropout = -1;
    REFUSED(max_pool2d, &a, "dropout|0|1|-1", F(1, 1, 8, 8), POSITION);
    a = (tri_max_pool2d_attr){.kernel = {2, 2}, .stride = {2, 0}};
    REFUSED(max_pool2d, &a, "kernel|stride|1|2|0", F(1, 1, 8, 8));
    a = (tri_max_pool2d_attr){.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 2}};
    REFUSED(max_pool2d, &a, "padding|0|kernel|3|2", F(1, 1, 8, 8));
    a = (tri_max_pool2d_attr){.kernel = {16, 16}, .stride = {1, 1}};
    REFUSED(max_pool2d, &a, "kernel|16|x|16|255|positions", F(1, 1, 20, 20));
    a = (tri_max_pool2d_attr){
        .kernel = {2, 2}, .stride = {2, 2}, .x_shape = tri_shape_of(1, 1, 8, 8)};
    REFUSED(max_pool2d_grad, &a, "index|[1, 1, 4, 4]|[1, 1, 4, 5]", OF(TRI_U8, 1, 1, 4, 5),
            F(1, 1, 4, 4));
    REFUSED(max_pool2d_grad, &a, "index|U8|F32", F(1, 1, 4, 4), F(1, 1, 4, 4));
}

static void test_avg_pool2d(void **state) {
    tri_avg_pool2d_attr a = {.kernel = {2, 2}, .stride = {2, 2}};
    REFUSED(avg_pool2d, &a, "x|[N, C, H, W]|4|[8, 8]", F(8, 8));
    REFUSED(avg_pool2d, &a, "x|F32|F64|F16|BF16|I64", L(1, 1, 8, 8));
    REFUSED(avg_pool2d, &a, "kernel|2|1|padding|0", F(1, 1, 8, 1));
    a.stride[1] = 0;
    REFUSED(avg_pool2d, &a, "kernel|stride|1|2|0", F(1, 1, 8, 8));
    a = (tri_avg_pool2d_attr){.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 2}};
    REFUSED(avg_pool2d, &a, "padding|0|kernel|3|2", F(1, 1, 8, 8));
    a = (tri_avg_pool2d_attr){.out = {1, -1}};
    REFUSED(avg_pool2d, &a, "-1|windows|8|elements", F(1, 1, 8, 8));
    a.out[1] = 1;
    a.x_shape = tri_shape_of(1, 2, 8, 8);
    REFUSED(avg_pool2d_grad, &a, "dy|[1, 2, 1, 1]|[1, 2, 1, 2]", F(1, 2, 1, 2));
}

static void test_batch_norm(void **state) {
    tri_batch_norm_attr a = {.eps = 1e-5};
    REFUSED(batch_norm, &a, "x|[N, C, ...]|[3]", F(3), F(3), F(3));
    REFUSED(batch_norm, &a, "weight|[3]|[2]", F(4, 3), F(2), F(3));
    REFUSED(batch_norm_inference, &a, "running_var|[3]|[4]", F(1, 3), F(3), F(3), F(3), F(4));
    REFUSED(batch_norm_grad, &a, "y|[4, 3]|[3, 4]", F(4, 3), F(3, 4), F(4, 3), F(3), F(3), F(3));
    a.pool = (tri_max_pool2d_attr){.kernel = {2, 2}, .stride = {2, 2}};
    REFUSED(batch_norm_inference, &a, "x|[N, C, H, W]|4|[8, 8]", F(8, 8), F(8), F(8), F(8), F(8));
    REFUSED(batch_norm_grad, &a, "index|U8|F32", F(4, 3, 2, 2), F(4, 3, 1, 1), F(4, 3, 1, 1), F(3),
            F(3), F(3));
    REFUSED(batch_norm_grad, &a, "index|[4, 3, 1, 1]|[4, 3, 2, 2]", F(4, 3, 2, 2),
            OF(TRI_U8, 4, 3, 2, 2), F(4, 3, 1, 1), F(3), F(3), F(3));
    REFUSED(batch_norm_grad, &a, "dy|[4, 3, 1, 1]|[4, 3, 2, 2]", F(4, 3, 2, 2),
            OF(TRI_U8, 4, 3, 1, 1), F(4, 3, 2, 2), F(3), F(3), F(3));
    a.relu = true;
    REFUSED(batch_norm, &a, "ReLU|pooling|dropout", F(4, 3, 2, 2), F(3), F(3));
    a = (tri_batch_norm_attr){0};
    REFUSED(batch_norm, &a, "eps|0|0", F(4, 3), F(3), F(3));
}

static void test_losses(void **state) {
    tri_nll_loss_grad_attr grad = {.shape = tri_shape_of(4, 3), .dtype = TRI_F32};
    REFUSED(log_softmax, NULL, "x|[]|axis|sum", POINT);
    REFUSED(log_softmax_grad, NULL, "dy|[4, 3]|[3, 4]", F(4, 3), F(3, 4));
    tri_softmax_attr second = {.behind = 1}, beyond = {.behind = 2};
    REFUSED(softmax, &beyond, "x|[4, 3]|axis|2", F(4, 3));
    REFUSED(softmax, NULL, "x|F32|I64", L(4));
    tri_softmax_attr rows = {.behind = 1, .causal = true}, causal = {.causal = true};
    REFUSED(softmax, &rows, "causal|last axis", F(4, 4));
    REFUSED(softmax, &causal, "causal|[4, 3]", F(4, 3));
    REFUSED(softmax, &causal, "causal|[4]", F(4));
    REFUSED(softmax_grad, &second, "dy|[4, 3]|[3, 4]", F(4, 3), F(3, 4));
    tri_soft_labels_attr none = {.smoothing = 0}, much = {.smoothing = 1.5};
    REFUSED(soft_nll_loss, &none, "soft labels|[4, 3]|[4]", F(4, 3), F(4));
    REFUSED(soft_nll_loss, &none, "scores|F32|I64", L(4, 3), L(4, 3));
    REFUSED(soft_nll_loss, &none, "soft labels|F32|I64", F(4, 3), L(4, 3));
    REFUSED(soft_nll_loss, &none, "[.., K]|2|[4]", F(4), F(4));
    REFUSED(soft_nll_loss, &much, "smoothing|0|1|1.5", F(4, 3), F(4, 3));
    REFUSED(soft_nll_loss_grad, &much, "smoothing|0|1|1.5", F(4, 3), F(1));
    REFUSED(soft_nll_loss_grad, &none, "seed|[1]|[2]", F(4, 3), F(2));
    REFUSED(soft_nll_loss_grad, &none, "[.., K]|2|[4]", F(4), F(1));
    REFUSED(soft_nll_loss_grad, &none, "F32|F64|F16|BF16|I64", L(4, 3), F(1));
    tri_one_hot_attr hot = {.classes = 0, .dtype = TRI_F32};
    REFUSED(one_hot, &hot, "0|classes", L(4));
    hot.classes = 3;
    REFUSED(one_hot, &hot, "labels|I64|F32", F(4));
    REFUSED(top_class, NULL, "[.., K]|2|[4]", F(4));
    REFUSED(top_class, NULL, "F32|F64|F16|BF16|I64", L(4, 3));
    REFUSED(nll_loss, NULL, "scores|[.., K]|2|[4]", F(4), L(4));
    REFUSED(nll_loss, NULL, "labels|scores|[4, 3]|[4]|[5]", F(4, 3), L(5));
    REFUSED(nll_loss, NULL, "labels|I64|F32", F(4, 3), F(4));
    REFUSED(cross_entropy, NULL, "labels|scores|[2, 5, 3]|[2, 5]|[10]", F(2, 5, 3), L(10));
    REFUSED(accuracy, NULL, "labels|scores|[4, 3]|[4]|[4, 1]", F(4, 3), L(4, 1));
    tri_metric_sums_attr sums = {.tally = TRI_TALLY_CLASSES, .classes = 3, .bins = 1, .k = 1};
    REFUSED(metric_sums, &sums, "prediction|I64", L(4, 3), L(4));
    REFUSED(metric_sums, &sums, "labels|[4, 3]|[5]", F(4, 3), L(5));
    REFUSED(metric_sums, &sums, "tally|3 classes", F(4, 6), L(4));
    REFUSED(metric_sums, &sums, "tally|3 classes", F(4, 5), L(4));
    sums.tally = TRI_TALLY_TARGETS;
    REFUSED(metric_sums, &sums, "target|[4, 3]|[4]", F(4, 3), L(4));
    sums.tally = TRI_TALLY_PAIR;
    REFUSED(metric_sums, &sums, "tally 0", F(4, 3), F(4, 3));
    REFUSED(nll_loss_grad, &grad, "seed|[1]|[2]", L(4), F(2));
    grad.dtype = TRI_I64;
    REFUSED(nll_loss_grad, &grad, "dx|F32|F64|F16|BF16|I64", L(4), F(1));
    REFUSED(cross_entropy_grad, NULL, "seed|F32|F64|I64", F(4, 3), L(4), L(1));
    tri_linear_cross_entropy_attr scored = {.accuracy = true};
    REFUSED(linear_cross_entropy, &scored, "input|1|F32|F64", F(4, 3), D(5, 3), L(4));
    REFUSED(linear_cross_entropy, &scored, "weight|[5, 3]|[5, 2]", F(4, 3), F(5, 2), L(4));
    REFUSED(linear_cross_entropy, &scored, "labels|scores|[4, 5]|[4]|[3]", F(4, 3), F(5, 3), L(3));
    REFUSED(linear_cross_entropy, &scored, "bias|[5]|[3]", F(4, 3), F(5, 3), L(4), F(3));
    REFUSED(linear_cross_entropy, &scored, "bias|F32|F64", F(4, 3), F(5, 3), L(4), D(5));
    REFUSED(linear_cross_entropy_grad, NULL, "seed|[1]|[2]", F(4, 3), F(5, 3), L(4), F(2));
    REFUSED(linear_cross_entropy_grad, NULL, "bias|[5]|[3]", F(4, 3), F(5, 3), L(4), F(1), F(3));
    REFUSED(mse_loss, NULL, "target|[4, 3]|[4]", F(4, 3), F(4));
    REFUSED(mse_loss_grad, NULL, "target|[4, 3]|[4]", F(4, 3), F(4), F(1));
    REFUSED(binary_cross_entropy, NULL, "target|[4, 3]|[4]", F(4, 3), F(4));
    REFUSED(binary_cross_entropy, NULL, "target|F32|I64", F(4, 3), L(4, 3));
    REFUSED(mse_loss, NULL, "target|F32|I64", F(4, 3), L(4));
    REFUSED(relative_l2_loss, NULL, "target|F32|I64", F(4, 3), L(4, 3));
    REFUSED(binary_cross_entropy_grad, NULL, "seed|[1]|[2]", F(4, 3), F(4, 3), F(2));
    REFUSED(relative_l2_loss, NULL, "prediction|samples|first|axis", POINT, POINT);
    REFUSED(relative_l2_loss_grad, NULL, "target|[4, 3]|[4, 2]", F(4, 3), F(4, 2), F(1));
}

static void test_tokens(void **state) {
    tri_embedding_grad_attr grad = {.shape = tri_shape_of(7, 3)};
    REFUSED(embedding, NULL, "ids|I64|F32", F(2, 5), F(7, 3));
    REFUSED(embedding, NULL, "weight|[V, D]|2|[7]", L(2, 5), F(7));
    REFUSED(embedding, NULL, "weight|F32|F64|F16|BF16|I64", L(2, 5), L(7, 3));
    REFUSED(embedding, NULL, "ids|[1, 1, 1, 1, 1, 1]", L(1, 1, 1, 1, 1, 1), F(7, 3));
    REFUSED(embedding_grad_weight, &grad, "dy|[2, 5, 3]|[2, 5, 4]", L(2, 5), F(2, 5, 4));
    REFUSED(embedding_grad_weight, &grad, "dy|F32|F64|F16|BF16|I64", L(2), L(2, 3));
    tri_embedding_attr rows = {.first = 2, .total = 8};
    REFUSED(embedding, &rows, "weight|[7, 3]|rows|2|8", L(2), F(7, 3));
    REFUSED(next_token, NULL, "ids|[N, T]|2|[5]", L(5));
    REFUSED(next_token, NULL, "ids|I64|F32", F(2, 5));
    const tri_pixel_scale scale = {.channels = 3};
    REFUSED(normalize_bytes, &scale, "x|U8|F32", F(2, 3, 4, 4));
    REFUSED(normalize_bytes, &scale, "x|[N, 3, ..]", OF(TRI_U8, 2, 1, 4, 4));
    REFUSED(normalize_bytes, &scale, "x|[N, 3, ..]", OF(TRI_U8, 3));
}

static void test_norms(void **state) {
    tri_norm_attr a = {.eps = 1e-5}, none = {0};
    REFUSED(rms_norm, &a, "x|[]|axis|sum", POINT, F(1));
    REFUSED(rms_norm, &a, "weight|[3]|[2]", F(4, 3), F(2));
    REFUSED(rms_norm, &none, "eps|0|0", F(4, 3), F(3));
    REFUSED(rms_norm_grad, &a, "dy|[4, 3]|[4]", F(4, 3), F(4), F(3), F(4));
    REFUSED(rms_norm_grad, &a, "inv_rms|[4]|[3]", F(4, 3), F(4, 3), F(3), F(3));
    REFUSED(rms_norm_grad, &a, "inv_rms|F64|F32", D(4, 3), D(4, 3), D(3), F(4));
    REFUSED(layer_norm, &a, "weight|bias", F(4, 3), F(3));
    REFUSED(layer_norm, &a, "bias|[3]|[4]", F(4, 3), F(3), F(4));
    REFUSED(layer_norm, &none, "eps|0|0", F(4, 3));
    REFUSED(layer_norm_grad, &a, "dy|[4, 3]|[3, 3]", F(4, 3), F(3, 3), F(4), F(4));
    REFUSED(layer_norm_grad, &a, "inv_std|F32|F64", F(4, 3), F(4, 3), F(4), D(4));
    REFUSED(layer_norm_grad, &a, "mean|[4]|[3]", F(4, 3), F(4, 3), F(3), F(4));
    REFUSED(layer_norm_grad, &a, "weight|[3]|[4]", F(4, 3), F(4, 3), F(4), F(4), F(4));
    tri_interpolate_attr wide = {.axis = 1, .size = 6, .x_shape = tri_shape_of(2, 4)};
    tri_interpolate_attr none_left = {.axis = 1}, no_axis = {.axis = 2, .size = 6};
    tri_interpolate_attr no_kind = {.axis = 1, .size = 6, .kind = 4};
    tri_interpolate_attr no_filter = {.axis = 1, .size = 6, .antialias = true};
    REFUSED(interpolate, &no_kind, "kind 4", F(2, 4));
    REFUSED(interpolate, &no_filter, "antialias 1", F(2, 4));
    REFUSED(interpolate, &no_axis, "axis|2", F(2, 4));
    REFUSED(interpolate, &none_left, "0 elements|4", F(2, 4));
    REFUSED(interpolate_grad, &wide, "dy|[2, 6]|[2, 4]", F(2, 4));
    tri_group_norm_attr groups = {.norm = a, .groups = 2}, five = {.norm = a, .groups = 5};
    REFUSED(group_norm, &five, "5|[2, 4, 3]", F(2, 4, 3));
    REFUSED(group_norm, &groups, "[4]", F(4));
    REFUSED(group_norm, &groups, "weight|bias", F(2, 4), F(4));
    REFUSED(group_norm, &groups, "bias|[4]|[2]", F(2, 4), F(4), F(2));
    REFUSED(group_norm_grad, &groups, "dy|[2, 4]|[4, 4]", F(2, 4), F(4, 4), F(2, 2), F(2, 2));
    REFUSED(group_norm_grad, &groups, "inv_std|[2, 2]|[2, 4]", F(2, 4), F(2, 4), F(2, 2), F(2, 4));
    REFUSED(group_norm_grad, &groups, "weight|F32|F64", F(2, 4), F(2, 4), F(2, 2), F(2, 2), D(4));
}

static void test_matmul(void **state) {
    tri_matmul_attr order = {.permuted = 2, .axes = {{0}, {0, 0, 1}}};
    tri_matmul_attr batch = {.permuted = 4, .axes = {{0}, {0}, {2, 0, 1}}};
    REFUSED(matmul, NULL, "input 1|F32|F64", F(2, 3), D(3, 2));
    REFUSED(matmul, NULL, "2|axes", F(3), F(3, 2));
    REFUSED(matmul, NULL, "2|axes", F(2, 3), F(1, 3, 2));
    REFUSED(matmul, NULL, "a [2, 3]|b [2, 3]", F(2, 3), F(2, 3));
    REFUSED(matmul, NULL, "a [2, 4, 3]|b [3, 3, 4]", F(2, 4, 3), F(3, 3, 4));
    REFUSED(matmul, &order, "operand 1|order", F(1, 2, 3), F(1, 3, 2));
    REFUSED(matmul, &batch, "operand 2|order", F(1, 2, 3), F(1, 3, 2));
}

static void test_attention(void **state) {
    tri_attention_attr a = {.scale = 1, .causal = true};
    tri_rotary_attr turn = {.theta = 10000};
    REFUSED(rotary, &turn, "x|[N, T, H, D]|4|[2, 3]", F(2, 3));
    REFUSED(rotary, &turn, "D|pairs|3", F(2, 3, 4, 3));
    turn.first = -1;
    REFUSED(rotary, &turn, "theta|0|first|0|10000|-1", F(2, 3, 4, 2));
    turn = (tri_rotary_attr){.theta = 10000, .scaling = {8, 4, 1, 100}};
    REFUSED(rotary, &turn, "factor 8|low 4|high 1|length 100", F(2, 3, 4, 2));
    REFUSED(attention, &a, "q|[N, T, H, D]|4|[5, 8]", F(5, 8), F(5, 8), F(5, 8));
    REFUSED(attention, &a, "k|[2, 5, 4, 8]|[2, 5, 4, 6]", F(2, 5, 4, 8), F(2, 5, 4, 6),
            F(2, 5, 4, 6));
    REFUSED(attention, &a, "v|[2, 5, 4, 8]|[2, 4, 4, 8]", F(2, 5, 4, 8), F(2, 5, 4, 8),
            F(2, 4, 4, 8));
    REFUSED(attention, &a, "4|heads|q|3|k|v", F(2, 5, 4, 8), F(2, 5, 3, 8), F(2, 5, 3, 8));
    REFUSED(attention, &a, "causal|5|queries|keys|4", F(2, 5, 4, 8), F(2, 4, 4, 8), F(2, 4, 4, 8));
    input q = F(2, 5, 4, 8), k = F(2, 5, 2, 8);
    REFUSED(attention_grad, &a, "y|[2, 5, 4, 8]|[2, 5, 2, 8]", q, k, k, k, q, F(2, 4, 5));
    REFUSED(attention_grad, &a, "dy|[2, 5, 4, 8]|[2, 5, 2, 8]", q, k, k, q, k, F(2, 4, 5));
    REFUSED(attention_grad, &a, "log_sum_exp|[2, 4, 5]|[2, 5, 4]", q, k, k, q, q, F(2, 5, 4));
    REFUSED(attention_grad, &a, "log_sum_exp|F32|F64", q, k, k, q, q, D(2, 4, 5));
    tri_cached_attention_attr past = {.scale = 1, .window = -1};
    REFUSED(rotary, &(tri_rotary_attr){.theta = 10}, "spans|[2, 2]|[3, 2]", q, L(3, 2));
    REFUSED(cache, &(tri_cache_attr){5}, "x|[N, T, ..]|1", F(2), L(2, 2));
    REFUSED(cache, &(tri_cache_attr){5}, "spans|I64|F32", q, F(2, 2));
    REFUSED(cache, &(tri_cache_attr){4}, "4|5", q, L(2, 2));
    REFUSED(cached_attention, &past, "k|[2, 5, 4, 8]|[2, 5, 4, 6]", q, F(2, 5, 4, 6), q, L(2, 2));
    REFUSED(cached_attention, &past, "v|[2, 5, 2, 8]|[2, 5, 4, 8]", q, k, q, L(2, 2));
    REFUSED(cached_attention, &past, "4|heads|q|3", q, F(2, 5, 3, 8), F(2, 5, 3, 8), L(2, 2));
    REFUSED(cached_attention, &past, "spans|[2, 2]|[2, 1]", q, k, k, L(2, 1));
    REFUSED(cached_attention, &past, "window|0|-1", q, k, k, L(2, 2));
}

// Shape rules of ops that take half types (BF16 and F16) refuse inputs whose types do not fit
// together, and types that the op cannot make.
static void test_halves(void **state) {
    tri_linear_attr linear = {.axes = 1};
    tri_norm_attr norm = {.eps = 1e-5}, narrow = {.eps = 1e-5, .narrow = TRI_BF16};
    tri_batch_norm_attr batch = {.eps = 1e-5, .narrow = TRI_F16};
    tri_sgd_attr sgd = {.lr_factor = 1};
    REFUSED(linear, &linear, "input|1|BF16|F32", B(2, 3), F(4, 3));
    REFUSED(linear, &linear, "input|1|BF16|F16", B(2, 3), H(4, 3));
    REFUSED(add, NULL, "BF16|F16|sum", B(2), H(2));
    REFUSED(add, NULL, "BF16|F64|sum", B(2), D(2));
    REFUSED(rms_norm, &norm, "input|1|F32|BF16", B(4, 3), B(3));
    REFUSED(rms_norm, &narrow, "BF16|F16", H(4, 3), F(3));
    REFUSED(rms_norm, &narrow, "BF16|F64", D(4, 3), D(3));
    REFUSED(rms_norm_grad, &narrow, "input|1|BF16|F32", F(4, 3), F(4, 3), F(3), F(4));
    REFUSED(layer_norm_grad, &norm, "input|1|BF16|F32", B(4, 3), F(4, 3), F(4), F(4));
    REFUSED(batch_norm, &batch, "F16|BF16", B(4, 3), F(3), F(3));
    REFUSED(batch_norm_grad, &batch, "y|F16|F32", F(4, 3), F(4, 3), F(4, 3), F(3), F(3), F(3));
    REFUSED(cast, &(tri_cast_attr){TRI_U16}, "y|F32|F64|F16|BF16|I64|I32|U8|U16", F(2));
    REFUSED(cast, &(tri_cast_attr){TRI_F32}, "x|F32|F64|F16|BF16|I64|I32|U8|BOOL", OF(TRI_BOOL, 2));
    REFUSED(cross_entropy_grad, NULL, "seed|F32|F64|BF16", B(4, 3), L(4), B(1));
    REFUSED(sgd, &sgd, "parameter|F32|F64|BF16", B(5), F(5), STEP);
}

static void test_updates(void **state) {
    tri_sgd_attr sgd = {.lr_factor = 1, .momentum = 0.9};
    tri_adam_attr adam = {.lr_factor = 1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    tri_adadelta_attr adadelta = {.lr_factor = 1, .rho = 0.9, .eps = 1e-6};
    tri_moving_average_attr average = {.momentum = 2};
    REFUSED(sgd, &sgd, "momentum|momentum|0.9", F(5), F(5), STEP);
    REFUSED(sgd, &sgd, "gradient|[5]|[6]", F(5), F(6), STEP, F(5));
    REFUSED(sgd, &sgd, "scalars|F64|F32", F(5), F(5), F(9), F(5));
    REFUSED(sgd, &sgd, "scalars|[9]|[7]", F(5), F(5), D(7), F(5));
    REFUSED(sgd, &sgd, "state|F32|F64", F(5), F(5), STEP, D(5));
    sgd = (tri_sgd_attr){.lr_factor = 1, .momentum = 0.9, .dampening = 0.1, .nesterov = true};
    REFUSED(sgd, &sgd, "nesterov|momentum|0|dampening|0.9|0.1", F(5), F(5), STEP, F(5));
    sgd.lr_factor = 0;
    REFUSED(sgd, &sgd, "lr_factor|0", F(5), F(5), STEP, F(5));
    sgd = (tri_sgd_attr){.lr_factor = 1, .weight_decay = -1};
    REFUSED(sgd, &sgd, "momentum|weight_decay|0|0|-1", F(5), F(5), STEP);
    REFUSED(adam, &adam, "state|[5]|[4]", F(5), F(5), STEP, F(5), F(4));
    adam.beta2 = 1;
    REFUSED(adam, &adam, "betas|0|1|0.9|1", F(5), F(5), STEP, F(5), F(5));
    adam = (tri_adam_attr){.lr_factor = 1, .eps = -1};
    REFUSED(adam, &adam, "eps|weight_decay|0|-1|0", F(5), F(5), STEP, F(5), F(5));
    adadelta.rho = 1.1;
    REFUSED(adadelta, &adadelta, "rho|0|1|1.1", F(5), F(5), STEP, F(5), F(5));
    adadelta = (tri_adadelta_attr){.lr_factor = 1, .rho = 0.9, .weight_decay = -2};
    REFUSED(adadelta, &adadelta, "eps|weight_decay|0|0|-2", F(5), F(5), STEP, F(5), F(5));
    REFUSED(moving_average, &average, "momentum|0|1|2", F(5), F(5), STEP);
    REFUSED(average_weights, NULL, "[5]|[4]", F(5), F(4), STEP);
}

static void test_step_numbers(void **state) {
    (void)state;
    tri_sum_of_squares_attr squares = {.chunk = 4};
    tri_step_numbers_attr numbers = {.loss = 8, .losses = 2, .stride = 8, .count = 9};
    REFUSED(sum_of_squares, &squares, "10|numbers|chunks|4", F(10));
    REFUSED(sum_of_squares, &squares, "x|1|[2, 4]", F(2, 4));
    REFUSED(sum_rows, NULL, "x|F64|F32", F(2, 4));
    REFUSED(step_numbers, &numbers, "2|losses|8|17|sums", D(TRI_CARRIED_COUNT),
            D(TRI_STEP_CONTROL_COUNT), D(17), D(1));
    REFUSED(step_numbers, &numbers, "squares|[1]|[2]", D(TRI_CARRIED_COUNT),
            D(TRI_STEP_CONTROL_COUNT), D(24), D(2));
    REFUSED(step_numbers, &numbers, "carried|[8]|[7]", D(7), D(TRI_STEP_CONTROL_COUNT), D(24),
            D(1));
    REFUSED(loss_seeds, NULL, "losses|[3, 2]|[3, 3]", D(TRI_CARRIED_COUNT), D(3, 3));
    REFUSED(loss_seeds, NULL, "input|F64|F32", D(TRI_CARRIED_COUNT), F(3, 2));
}

// Gradient rules refuse to compute gradients that do not exist.
static void test_no_gradient(void **state) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_init init = {0};
    tri_batch_norm_attr a = {.eps = 1e-5};
    tri_shape c = tri_shape_of(3);
    tri_value x = tri_parameter(g, "x", tri_shape_of(4, 3), init);
    tri_value v = tri_parameter(g, "v", c, init);
    tri_value y =
        tri_node_add(g, &tri_op_batch_norm_inference, (tri_value[]){x, v, v, v, v}, 5, &a, "bn1");
    bool wanted[TRI_MAX_INPUTS] = {true};
    tri_value in_grads[TRI_MAX_INPUTS] = {{0}};
    const char *message = "";
    tri_op_batch_norm_inference.gradient(g, tri_value_node(g, y), &x, wanted, in_grads);
    assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
    message_check(message, "bn1|gradient");
    op_graph_close(g);
    g = op_graph_open(TRI_F32);
    x = tri_parameter(g, "x", tri_shape_of(4, 3), init);
    y = tri_node_add(g, &tri_op_relative_l2_loss, (tri_value[]){x, x}, 2, NULL, "");
    wanted[1] = true;
    tri_value seed = tri_scalar(g, TRI_SCALAR_SEED);
    tri_op_relative_l2_loss.gradient(g, tri_value_node(g, y), &seed, wanted, in_grads);
    assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
    message_check(message, "relative_l2_loss|target|gradient");
    op_graph_close(g);
    g = op_graph_open(TRI_F32);
    x = tri_parameter(g, "x", tri_shape_of(4, 3), init);
    y = tri_node_add(g, &tri_op_binary_cross_entropy, (tri_value[]){x, x}, 2, NULL, "");
    seed = tri_scalar(g, TRI_SCALAR_SEED);
    tri_op_binary_cross_entropy.gradient(g, tri_value_node(g, y), &seed, wanted, in_grads);
    assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
    message_check(message, "binary_cross_entropy|target|gradient");
    op_graph_close(g);
}

static void test_batch_norm_shared(void **state) {
    tri_batch_norm_shared_attr a = {.norm.eps = 1e-5, .replicas.slices = 2};
    REFUSED(batch_norm_moments, NULL, "x|[N, C, ...]|[3]", F(3));
    REFUSED(batch_norm_moments, NULL, "x|[N, C, ...]|[3]", F(3));
    REFUSED(batch_norm_shared, &a, "weight|[3]|[2]", F(4, 3), F(2), F(3), F(2, 7));
    REFUSED(batch_norm_shared, &a, "moments|[2, 7]|[1, 7]", F(4, 3), F(3), F(3), F(1, 7));
    REFUSED(batch_norm_sums, &a.norm, "dy|[4, 3]|[3, 4]", F(4, 3), F(4, 3), F(3, 4), F(3), F(3));
    REFUSED(batch_norm_sums, &a.norm, "inv_std|[3]|[2]", F(4, 3), F(4, 3), F(4, 3), F(3), F(2));
    REFUSED(batch_norm_shared_grad, &a, "sums|[2, 3]|[3, 2]", F(4, 3), F(4, 3), F(4, 3), F(3), F(3),
            F(3), F(3, 2), F(2, 7));
    a.norm.eps = 0;
    REFUSED(batch_norm_shared, &a, "eps|0|0", F(4, 3), F(3), F(3), F(2, 7));
}

static void test_vocab_parallel_losses(void **state) {
    tri_classes_attr classes = {.first = 4, .classes = 7};
    REFUSED(row_max, NULL, "x|[]|axis|sum", POINT);
    REFUSED(vocab_parallel_softmax, &classes, "4|scores|4|7|classes", F(2, 4), L(2), F(2));
    REFUSED(vocab_parallel_argmax, &classes, "4|scores|4|7|classes", F(2, 4), F(2));
    classes.first = 3;
    REFUSED(vocab_parallel_softmax, &classes, "max|[2]|[3]", F(2, 4), L(2), F(3));
    REFUSED(vocab_parallel_argmax, &classes, "max|[2]|[2, 4]", F(2, 4), F(2, 4));
    REFUSED(vocab_parallel_cross_entropy, &classes, "sums|[2, 2]|[2]", F(2, 4), L(2), F(2), F(2));
    REFUSED(vocab_parallel_cross_entropy_grad, &classes, "seed|[1]|[2]", F(2, 4), L(2), F(2),
            F(2, 2), F(2));
    REFUSED(vocab_parallel_accuracy, &classes, "labels|[2]|[3]", F(2), L(3));
    REFUSED(vocab_parallel_accuracy, &classes, "best|F32|F64|I64", L(2), L(2));
}

static void test_add_bias(void **state) {
    REFUSED(add_bias, NULL, "bias|[4]|[3]", F(3, 4), F(3));
    REFUSED(add_bias, NULL, "x|[]|axis|sum", POINT, F(1));
}

static void test_collectives(void **state) {
    tri_collective_attr a = {.slices = 3, .dim = 1};
    REFUSED(split, &a, "axis|1|x|[2, 4]|3", F(2, 4));
    REFUSED(reduce_scatter, &a, "axis|1|x|[1, 4]|3", F(1, 4));
    REFUSED(reduce_scatter, &a, "axis|1|x|[2, 3]|outermost|rechunk", F(2, 3));
    REFUSED(all_gather, &a, "axis|1|x|[2, 3]|outermost|rechunk", F(2, 3));
    REFUSED(all_gather, &a, "x|[2]|axis|1", F(2));
    REFUSED(all_reduce, &a, "x|F32|F64|F16|BF16|I64", L(2));
    REFUSED(split_grad, &a, "x|[2]|axis|1", F(2));
    tri_rechunk_attr chunks = {.from = 0, .to = 2, .chunks = 2};
    REFUSED(rechunk, &chunks, "axis|0|x|[3, 2, 2]|2", F(3, 2, 2));
    REFUSED(rechunk, &chunks, "x|[2, 2]|axis|2", F(2, 2));
    a.index = 3;
    REFUSED(copy_to, &a, "slice|3|3|group|0", F(2));
    a = (tri_collective_attr){.slices = 1, .group = TRI_GROUP_COUNT};
    REFUSED(all_reduce, &a, "slice|0|1|group|2", F(2));
}

// The table of ops, the look-up by name and the printed list of all ops agree. The help text of
// each op (tri_op.doc) is one line.
static void test_table(void **state) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    tri_ops_print(out);
    fclose(out);
    for (int i = 0; i < tri_op_count; i++) {
        const tri_op *op = tri_ops[i];
        assert_ptr_equal(tri_op_find(op->name), op);
        assert_non_null(op->shape);
        assert_null(strchr(op->doc, '\n'));
        assert_non_null(strstr(text, op->doc));
        assert_true(op->input_count <= TRI_MAX_INPUTS && op->output_count <= TRI_MAX_OUTPUTS);
        assert_true(op->in_place <= op->input_count);
        assert_true((op->output_count == 0) == ((op->flags & TRI_OP_UPDATE) != 0));
    }
    assert_null(tri_op_find("conv3d"));
    free(text);
}

// No op takes a tensor without elements, whichever of its inputs that is; and none makes one.
static void test_empty(void **state) {
    for (int n = 0; n < tri_op_count; n++) {
        if (tri_ops[n]->flags & TRI_OP_STEP) continue; // no model uses it
        char *attr = calloc(1, tri_ops[n]->attr_bytes + 1), parts[64];
        for (int i = 0; i < tri_ops[n]->input_count; i++) {
            input in[TRI_MAX_INPUTS];
            for (int k = 0; k < TRI_MAX_INPUTS; k++) in[k] = k == i ? F(2, 3, 0, 4) : F(2, 3, 5, 4);
            snprintf(parts, sizeof parts, "axis 2|input %d|[2, 3, 0, 4]|empty", i);
            refused(tri_ops[n], attr, parts, in);
        }
        free(attr);
    }
    tri_sort_attr none = {.axis = 1};
    REFUSED(sort, &none, "[2, 0]|no elements", F(2, 3));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv2d),
        cmocka_unit_test(test_conv2d_grad),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_max_pool2d),
        cmocka_unit_test(test_avg_pool2d),
        cmocka_unit_test(test_batch_norm),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_updates),
        cmocka_unit_test(test_step_numbers),
        cmocka_unit_test(test_no_gradient),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_add_bias),
        cmocka_unit_test(test_batch_norm_shared),
        cmocka_unit_test(test_vocab_parallel_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
