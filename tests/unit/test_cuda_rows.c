// Compares kernels of the device `cuda` with those of the reference device `ref` where rows are
// long or many, so that a thread block takes several parts of a row, or several rows. It runs on an
// emulated GPU or, if TRIREME_TEST_GPU is set, on the GPU of this host.
#include "device/cuda/cuda.h"
#include "support/op_compare.h"
#include "support/op_families.h"
#include "support/test_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// Draws a shape [rows, width] of long rows, or of many short ones.
static tri_shape large_rows(op_case *c) {
    static const int64_t widths[] = {1, 16, 255, 256, 257, 1024, 2056, 2100};
    int64_t width = widths[op_draw(c, 0, 7)];
    int64_t most = width > 16 ? 40 : 16500;
    return tri_shape_of(op_draw(c, 1, most), width);
}

static void build_norm(op_case *c) {
    static const int64_t longer[] = {1032, 4096, 4104, 8192, 8200}; // around the kernels' limits
    tri_norm_attr a = {.eps = 1e-5, .narrow = op_chance(c, 50) ? (int64_t)c->dtype : 0};
    tri_shape shape = large_rows(c), rows;
    if (op_chance(c, 40)) shape = tri_shape_of(op_draw(c, 1, 9), longer[op_draw(c, 0, 4)]);
    rows = shape;
    rows.rank--;
    if (c->dtype == TRI_F32) a.narrow = 0;
    tri_value x = a.narrow ? op_wide_unit(c, shape) : op_numbers(c, shape, -1, 1);
    tri_value sum = a.narrow ? op_wide_unit(c, shape) : op_numbers(c, shape, -1, 1);
    tri_value dy = op_numbers(c, shape, -1, 1);
    tri_value weight = op_wide_unit(c, tri_shape_of(shape.dims[1]));
    tri_value bias = op_wide_unit(c, tri_shape_of(shape.dims[1]));
    tri_value mean = op_wide(c, rows, -0.5, 0.5), inv = op_wide(c, rows, 0.5, 2);
    if (op_chance(c, 50)) {
        op_add(c, &tri_op_rms_norm, (tri_value[]){x, weight}, &a);
        op_add(c, &tri_op_rms_norm_grad, (tri_value[]){x, dy, weight, inv, sum}, &a);
    } else {
        op_add(c, &tri_op_layer_norm, (tri_value[]){x, weight, bias}, &a);
        op_add(c, &tri_op_layer_norm_grad, (tri_value[]){x, dy, mean, inv, weight, sum}, &a);
    }
}

// Draws embeddings, often with more tokens than the sorting thread block has threads, and with so
// many rows in the table that the sort by row number needs several digits.
static void build_embedding(op_case *c) {
    int64_t tokens = op_chance(c, 50) ? op_draw(c, 60000, 70000) : op_draw(c, 1, 20);
    int64_t width = op_chance(c, 50) ? 8 : op_draw(c, 1, 9);
    if (tokens <= 20 && op_chance(c, 50)) width = 520; // rows of several warps
    tri_shape ids = tri_shape_of(op_draw(c, 1, 3), op_draw(c, 200, 600)), y = ids;
    y.dims[y.rank++] = width;
    tri_embedding_grad_attr a = {.shape = tri_shape_of(tokens, width)};
    tri_value id = op_tokens(c, ids, tokens);
    op_add(c, &tri_op_embedding, (tri_value[]){id, op_numbers(c, a.shape, -1, 1)}, &a.rows);
    op_add(c, &tri_op_embedding_grad_weight, (tri_value[]){id, op_numbers(c, y, -1, 1)}, &a);
    op_add(c, &tri_op_next_token, &id, NULL);
}

static void build_bias(op_case *c) {
    tri_shape shape = large_rows(c);
    tri_value x = op_numbers(c, shape, -1, 1);
    tri_value bias = op_numbers(c, tri_shape_of(shape.dims[1]), -1, 1);
    op_add(c, &tri_op_add_bias_grad, &x, NULL);
    op_add(c, &tri_op_add_bias, (tri_value[]){x, bias}, NULL);
}

// Draws losses on rows with more classes than a thread block has threads.
static void build_classes(op_case *c) {
    static const int64_t widths[] = {300, 1000, 2056, 32001};
    int64_t k = widths[op_draw(c, 0, 3)];
    tri_shape rows = tri_shape_of(op_draw(c, 1, 4)), scores = tri_shape_of(rows.dims[0], k);
    tri_classes_attr slice = {.classes = k};
    tri_value x = op_numbers(c, scores, -5, 5), labels = op_labels(c, rows, k);
    tri_value seed = tri_scalar(c->graph, TRI_SCALAR_SEED), max = op_wide(c, rows, 5, 6);
    tri_value sums = op_wide(c, tri_shape_of(rows.dims[0], 2), 1, 3);
    tri_value in[] = {x, labels, max, sums, seed};
    tri_value soft[] = {x, op_soft_labels(c, scores)};
    tri_soft_labels_attr smooth = {.smoothing = 0.1};
    op_add(c, &tri_op_soft_nll_loss, soft, &smooth);
    op_add(c, &tri_op_soft_nll_loss_grad, (tri_value[]){soft[1], seed}, &smooth);
    op_add(c, &tri_op_one_hot, &labels, &(tri_one_hot_attr){.classes = k, .dtype = c->dtype});
    op_add(c, &tri_op_top_class, &soft[1], NULL);
    op_add(c, &tri_op_cross_entropy, in, NULL);
    op_add(c, &tri_op_accuracy, in, NULL);
    op_add(c, &tri_op_vocab_parallel_softmax, in, &slice);
    op_add(c, &tri_op_row_max, in, NULL);
    op_add(c, &tri_op_log_softmax, in, NULL);
    op_add(c, &tri_op_vocab_parallel_cross_entropy_grad, in, &slice);
    op_add(c, &tri_op_cross_entropy_grad, (tri_value[]){x, labels, seed}, NULL);
}

// Losses over more elements than one thread block sums in one go, so that several blocks take part.
static void build_distance(op_case *c) {
    tri_shape shape = tri_shape_of(op_draw(c, 1, 3), op_draw(c, 3000, 9000));
    tri_value seed = tri_scalar(c->graph, TRI_SCALAR_SEED);
    tri_value in[] = {op_numbers(c, shape, -3, 3), op_numbers(c, shape, 0, 1), seed};
    op_add(c, &tri_op_mse_loss, in, NULL);
    op_add(c, &tri_op_binary_cross_entropy, in, NULL);
    op_add(c, &tri_op_relative_l2_loss, in, NULL);
    op_add(c, &tri_op_mse_loss_grad, in, NULL);
    op_add(c, &tri_op_binary_cross_entropy_grad, in, NULL);
    op_add(c, &tri_op_relative_l2_loss_grad, in, NULL);
}

static void add_attention(op_case *c, int64_t queries, tri_shape kv, int64_t group) {
    tri_shape q = tri_shape_of(kv.dims[0], queries, kv.dims[2] * group, kv.dims[3]);
    tri_attention_attr a = {.scale = op_chance(c, 80) ? 0.1 : -0.1, .causal = op_chance(c, 60)};
    tri_value qv = op_numbers(c, q, -2, 2), k = op_numbers(c, kv, -2, 2),
              v = op_numbers(c, kv, -1, 1);
    tri_value y = tri_node_add(c->graph, &tri_op_attention, (tri_value[]){qv, k, v}, 3, &a, "");
    tri_value in[] = {qv, k, v, y, op_numbers(c, q, -1, 1), tri_node_output(c->graph, y, 1)};
    op_add(c, &tri_op_attention_grad, in, &a);
}

// Draws attention with heads of all sizes, the largest included, and often with more queries than
// one thread block takes.
static void build_attention(op_case *c) {
    static const int64_t widths[] = {8, 64, 80, 128, 129, 256};
    int64_t width = widths[op_draw(c, 0, 5)], keys = op_draw(c, 30, 70);
    int64_t queries = op_chance(c, 60) ? keys : op_draw(c, 1, keys);
    tri_shape kv = tri_shape_of(op_draw(c, 1, 2), keys, op_draw(c, 1, 2), width);
    add_attention(c, queries, kv, op_draw(c, 1, 2));
}

// Draws attention with more queries and keys than one tile of the tensor-core kernels has. Some
// lengths are multiples of the tile's size, others are not.
static void build_long_attention(op_case *c) {
    static const int64_t lengths[] = {64, 128, 129, 200, 256, 300};
    static const int64_t widths[] = {16, 64, 72, 128};
    int64_t keys = lengths[op_draw(c, 0, 5)],
            queries = op_chance(c, 60) ? keys : op_draw(c, 1, keys);
    tri_shape kv = tri_shape_of(1, keys, 1, widths[op_draw(c, 0, 3)]);
    add_attention(c, queries, kv, op_draw(c, 1, 3));
}

// Draws attention that cuDNN computes in half types. (Its double refuses odd numbers of samples.)
static void build_even_attention(op_case *c) {
    int64_t keys = op_draw(c, 2, 60), width = 8 * op_draw(c, 1, 9);
    tri_shape kv = tri_shape_of(2 * op_draw(c, 1, 2), keys, op_draw(c, 1, 2), width);
    add_attention(c, keys, kv, op_draw(c, 1, 3));
}

static const op_family families[] = {
    {.name = "losses of many classes", .build = build_classes, .tolerance = 2e-5},
    {.name = "distances of many elements", .build = build_distance, .tolerance = 1e-5},
    {.name = "attention of all head sizes",
     .build = build_attention,
     .tolerance = 2e-5,
     .rounding = 1e-5,
     .half_tolerance = 0.01},
    {.name = "attention of an even number of samples",
     .build = build_even_attention,
     .tolerance = 2e-5,
     .rounding = 1e-5,
     .half_tolerance = 0.01},
    {.name = "attention over many keys",
     .build = build_long_attention,
     .tolerance = 2e-5,
     .rounding = 1e-5,
     .half_tolerance = 0.01},
    {.name = "norm of large rows", .build = build_norm, .tolerance = 2e-5},
    {.name = "embedding of many tokens", .build = build_embedding, .tolerance = 1e-5},
    {.name = "bias of large rows", .build = build_bias, .tolerance = 2e-5},
};

enum { FAMILIES = sizeof families / sizeof *families };

static void compare(tri_dtype dtype, uint64_t seed) {
    op_compare_each(families, FAMILIES, &tri_device_cuda, 1, dtype, seed, test_gpu_rounds(4, 12));
}

// Copies the elements of all values of a session (a graph with memory that has been run) into one
// array, one value after the other. Sets *size to its bytes. The caller frees it.
static unsigned char *numbers_of(const op_session *session, const tri_graph *g, size_t *size) {
    unsigned char *all = NULL;
    *size = 0;
    for (int i = 1; i < g->value_count; i++) {
        tri_value value = {(uint32_t)i};
        size_t bytes = (size_t)op_count(session, value) * tri_dtype_bytes(g->values[i].dtype);
        all = realloc(all, *size + bytes + 1);
        assert_non_null(all);
        memcpy(all + *size, op_host(session, value), bytes);
        *size += bytes;
    }
    return all;
}

// Checks that the results have the same bits after all tensors were moved by 8 bytes. Then no
// address is a multiple of 16 any more, and kernels cannot read 16 bytes at a time.
static void check_shift(void (*build)(op_case *c), tri_dtype dtype, uint64_t seed) {
    op_case c = {.graph = op_graph_open(TRI_F32), .dtype = dtype, .seed = seed};
    build(&c);
    tri_device *device = op_device_open(&tri_device_cuda, 1);
    op_session *session = op_session_open(c.graph, device, false);
    op_sources_fill(session, &c);
    size_t size, size_after;
    op_run_ok(session);
    unsigned char *before = numbers_of(session, c.graph, &size);
    op_session_shift(session, sizeof(double)); // addresses are no longer aligned to 16 bytes
    op_run_ok(session);
    unsigned char *after = numbers_of(session, c.graph, &size_after);
    assert_int_equal(size, size_after);
    if (memcmp(before, after, size) != 0)
        fail_msg("%s, seed %llu: other bits at other addresses", tri_dtype_name(dtype),
                 (unsigned long long)seed);
    free(before);
    free(after);
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(c.graph);
}

static void test_addresses(void **state) {
    static const tri_dtype dtypes[] = {TRI_F32, TRI_BF16, TRI_F16};
    for (int k = 0; k < 3; k++)
        for (uint64_t seed = 1; seed <= (uint64_t)test_gpu_rounds(4, 12); seed++) {
            check_shift(build_norm, dtypes[k], seed);
            check_shift(build_classes, dtypes[k], seed);
            check_shift(build_distance, dtypes[k], seed);
            check_shift(build_bias, dtypes[k], seed);
        }
}

static void test_f32(void **state) { compare(TRI_F32, 100); }
static void test_bf16(void **state) { compare(TRI_BF16, 200); }
static void test_f16(void **state) { compare(TRI_F16, 300); }

int main(void) {
    test_gpu_choose();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_bf16),
                                       cmocka_unit_test(test_f16),
                                       cmocka_unit_test(test_addresses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
