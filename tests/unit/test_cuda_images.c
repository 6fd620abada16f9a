// Compares kernels for images of the device `cuda` with those of the reference device `ref`, at
// sizes that are no multiples of the kernels' blocks, slices and vector accesses. It runs on an
// emulated GPU or, if TRIREME_TEST_GPU is set, on the GPU of this host.
#include "device/cuda/cuda.h"
#include "support/op_compare.h"
#include "support/op_families.h"
#include "support/test_gpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// Draws convolutions so large that the product has more than one tile of 64 rows and of 64 columns,
// and that the gradient of the weight is summed over several ranges of pixels.
static void build_conv(op_case *c) {
    int64_t groups = op_draw(c, 1, 2), in = op_draw(c, 1, 40), out = op_draw(c, 60, 70);
    tri_conv2d_grad_attr a = {.has_bias = true,
                              .conv = {.stride = {op_draw(c, 1, 2), 1},
                                       .padding = {1, op_draw(c, 0, 1)},
                                       .dilation = {1, op_draw(c, 1, 2)},
                                       .groups = groups}};
    tri_shape x = tri_shape_of(3, in * groups, op_draw(c, 20, 24), op_draw(c, 17, 19));
    tri_shape w = tri_shape_of(out * groups, in, 3, 3), y = x;
    y.dims[1] = w.dims[0];
    for (int i = 0; i < 2; i++)
        y.dims[2 + i] = (x.dims[2 + i] + 2 * a.conv.padding[i] - 2 * a.conv.dilation[i] - 1) /
                            a.conv.stride[i] +
                        1;
    tri_value xv = op_numbers(c, x, -1, 1), wv = op_numbers(c, w, -1, 1);
    tri_value dy = op_numbers(c, y, -1, 1), bias = op_numbers(c, tri_shape_of(w.dims[0]), -1, 1);
    op_add(c, &tri_op_conv2d, (tri_value[]){xv, wv, bias}, &a.conv);
    a.shape = w;
    op_add(c, &tri_op_conv2d_grad_weight, (tri_value[]){xv, dy}, &a);
    a.shape = x;
    a.has_bias = false;
    op_add(c, &tri_op_conv2d_grad_input, (tri_value[]){dy, wv}, &a);
}

// Builds batch norm over so many numbers that each channel is cut into several slices. In memory a
// channel has runs of one number, of few numbers or of many, one run for each sample.
static void build_norm(op_case *c) {
    static const int64_t sides[] = {0, 3, 72};
    int64_t side = sides[op_draw(c, 0, 2)];
    tri_shape x = side == 0   ? tri_shape_of(9000, 2)
                  : side == 3 ? tri_shape_of(2500, 2, side, side)
                              : tri_shape_of(4, 2, side, side);
    tri_batch_norm_attr a = {.eps = 1e-5, .relu = op_chance(c, 50)};
    tri_shape channels = tri_shape_of(2);
    tri_value xv = op_numbers(c, x, -1, 1), y = op_numbers(c, x, -1, 1);
    tri_value dy = op_numbers(c, x, -1, 1), weight = op_wide(c, channels, -1, 1);
    tri_value bias = op_wide(c, channels, -1, 1), mean = op_wide(c, channels, -0.5, 0.5);
    tri_value positive = op_wide(c, channels, 0.5, 2);
    op_add(c, &tri_op_batch_norm, (tri_value[]){xv, weight, bias}, &a);
    op_add(c, &tri_op_batch_norm_moments, &xv, NULL);
    op_add(c, &tri_op_batch_norm_grad, (tri_value[]){xv, y, dy, weight, mean, positive}, &a);
}

// Draws batch norm of large images. In the layout channels last, the channels are too many for one
// thread block, or the pixels are cut into several slices.
static void build_wide_norm(op_case *c) {
    static const int64_t channels[] = {8, 257, 264, 300};
    tri_shape x = tri_shape_of(op_draw(c, 1, 3), channels[op_draw(c, 0, 3)], 3, op_draw(c, 5, 130));
    if (x.dims[1] == 8) x.dims[2] = 40; // several thread blocks share the pixels of a channel
    tri_shape channel = tri_shape_of(x.dims[1]);
    tri_batch_norm_attr a = {.eps = 1e-5, .relu = op_chance(c, 50)};
    tri_value xv = op_numbers(c, x, -1, 1), y = op_numbers(c, x, -1, 1);
    tri_value dy = op_numbers(c, x, -1, 1), weight = op_wide(c, channel, -1, 1);
    tri_value mean = op_wide(c, channel, -0.5, 0.5), positive = op_wide(c, channel, 0.5, 2);
    op_add(c, &tri_op_batch_norm, (tri_value[]){xv, weight, mean}, &a);
    op_add(c, &tri_op_batch_norm_grad, (tri_value[]){xv, y, dy, weight, mean, positive}, &a);
}

// Draws ops that only move elements: a view whose output has memory of its own, so that it is
// copied, and rechunks, whose axes the kernel cannot merge into fewer axes.
static void build_moves(op_case *c) {
    tri_shape x = tri_shape_of(3, 4, op_draw(c, 1, 5), 2 * op_draw(c, 1, 9));
    tri_value xv = op_numbers(c, x, -1, 1);
    tri_reshape_attr flat = {.shape = tri_shape_of(tri_shape_count(&x))};
    op_add(c, &tri_op_reshape, &xv, &flat);
    op_add(c, &tri_op_rechunk, &xv, &(tri_rechunk_attr){.from = 1, .to = 3, .chunks = 2});
    op_add(c, &tri_op_rechunk, &xv, &(tri_rechunk_attr){.from = 3, .to = 0, .chunks = 2});
}

static const op_family families[] = {
    {.name = "tiles of convolutions",
     .build = build_conv,
     .tolerance = 1e-4,
     .rounds_on_gpu = true},
    {.name = "slices of channels", .build = build_norm, .tolerance = 2e-5},
    {.name = "moves", .build = build_moves, .tolerance = 0},
};

enum { FAMILIES = sizeof families / sizeof *families };

static void test_f32(void **state) {
    op_compare_each(families, FAMILIES, &tri_device_cuda, 1, TRI_F32, 100, test_gpu_rounds(4, 12));
}

static void test_bf16(void **state) {
    op_compare_each(families, FAMILIES, &tri_device_cuda, 1, TRI_BF16, 200, test_gpu_rounds(2, 12));
}

// Ops of image networks, on images whose channels are last. Some images have channels that fill 16
// bytes, others a number of channels that does not; some have so many channels and pixels that
// several thread blocks share them.
static void test_channels_last(void **state) {
    static const char *const names[] = {"elementwise",       "concat and split", "max_pool2d",
                                        "avg_pool2d",        "batch_norm",       "conv2d",
                                        "batch_norm_shared", "dropout",          "conv2d_grad"};
    static const tri_dtype dtypes[] = {TRI_F32, TRI_BF16, TRI_F16};
    op_family some[sizeof names / sizeof *names + 1] = {
        {.name = "wide images", .build = build_wide_norm, .tolerance = 2e-5}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const op_family *family = op_families;
        while (strcmp(family->name, names[i]) != 0) family++;
        some[i + 1] = *family;
    }
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) some[i].channels_last = true;
    for (uint64_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        op_compare_each(some, sizeof some / sizeof *some, &tri_device_cuda, 1, dtypes[i],
                        500 + 1000 * i, test_gpu_rounds(8, 24));
}

// Draws images that change between row-major and channels last, which transposes matrices, of up to
// several tiles of the kernel. Some have odd sides, so that elements of 2 bytes cannot be copied in
// pairs.
static void build_transpose(op_case *c) {
    static const int64_t channels[] = {3, 16, 64, 65, 70, 130};
    const tri_layout last = {.order = {0, 2, 3, 1}};
    bool is_last = op_chance(c, 50);
    tri_shape shape = tri_shape_of(op_draw(c, 1, 3), channels[op_draw(c, 0, 5)], op_draw(c, 2, 12),
                                   op_draw(c, 2, 14));
    tri_value x = op_numbers(c, shape, -1, 1);
    if (is_last) c->graph->values[x.id].layout = last;
    tri_value y = tri_node_add(c->graph, &tri_op_reorder, &x, 1, NULL, "");
    if (!is_last) c->graph->values[y.id].layout = last;
}

// Reorders tensors from any layout to any other. Only this test uses blocked layouts on the GPU,
// because no kernel of the device asks for them.
static void test_reorder(void **state) {
    const op_family transpose = {
        .name = "transpose", .build = build_transpose, .tolerance = 0, .any_layout = true};
    const op_family *family = op_families;
    while (!family->any_layout) family++;
    op_compare(family, &tri_device_cuda, 1, TRI_F32, 300, test_gpu_rounds(20, 40));
    op_compare(family, &tri_device_cuda, 1, TRI_BF16, 400, test_gpu_rounds(10, 40));
    op_compare(&transpose, &tri_device_cuda, 1, TRI_F32, 600, test_gpu_rounds(10, 40));
    op_compare(&transpose, &tri_device_cuda, 1, TRI_BF16, 700, test_gpu_rounds(20, 40));
}

enum { TF32_OUTPUTS = 2, TF32_MOST = 2 * 16 * 7 * 7 };

// Computes a matrix product and a convolution of F32 on a GPU. out[0] gets the product's numbers
// and out[1] the convolution's.
static void run_tf32(bool tf32, double (*out)[TF32_MOST], int64_t *counts) {
    op_case c = {.graph = op_graph_open(TRI_F32), .dtype = TRI_F32, .seed = 500};
    c.graph->options.tf32 = tf32;
    tri_value x = op_numbers(&c, tri_shape_of(8, 48), -1, 1);
    tri_value weight = op_numbers(&c, tri_shape_of(40, 48), -1, 1);
    tri_value image = op_numbers(&c, tri_shape_of(2, 8, 9, 9), -1, 1);
    tri_value filter = op_numbers(&c, tri_shape_of(16, 8, 3, 3), -1, 1);
    tri_conv2d_attr attr = {.stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
    tri_value made[TF32_OUTPUTS] = {
        tri_node_add(c.graph, &tri_op_linear, (tri_value[]){x, weight, {0}}, 3,
                     &(tri_linear_attr){.axes = 1}, ""),
        tri_node_add(c.graph, &tri_op_conv2d, (tri_value[]){image, filter, {0}}, 3, &attr, "")};
    tri_device *device = op_device_open(&tri_device_cuda, 1);
    op_session *session = op_session_open(c.graph, device, false);
    op_sources_fill(session, &c);
    op_run_ok(session);
    for (int k = 0; k < TF32_OUTPUTS; k++) {
        counts[k] = op_count(session, made[k]);
        for (int64_t i = 0; i < counts[k]; i++) out[k][i] = op_get(session, made[k], i);
    }
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(c.graph);
}

// TF32 rounds inputs to 10 bits of fraction. So results differ from those of F32, but by no more
// than this rounding explains.
static void test_tf32(void **state) {
    static double ieee[TF32_OUTPUTS][TF32_MOST], tf32[TF32_OUTPUTS][TF32_MOST];
    int64_t counts[TF32_OUTPUTS];
    run_tf32(false, ieee, counts);
    run_tf32(true, tf32, counts);
    for (int k = 0; k < TF32_OUTPUTS; k++) {
        double most = 0, largest = 0;
        for (int64_t i = 0; i < counts[k]; i++) {
            most = fmax(most, fabs(tf32[k][i] - ieee[k][i]));
            largest = fmax(largest, fabs(ieee[k][i]));
        }
        assert_true(most > 1e-6 * largest);
        assert_true(most < 4e-3 * largest);
    }
}

// Runs the op first_not_finite on 3 ranges of x. The op searches only if the step halts, as it does
// after a number that is not finite. The second range has a NaN, and the third infinity. Returns
// the number of the range found, from 1; 0: none.
static double first_not_finite(bool halts) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(3000));
    tri_value ranges = tri_input(g, "ranges", TRI_I64, tri_shape_of(3, 2));
    tri_value in[] = {x, ranges, tri_scalar(g, TRI_SCALAR_STEP)};
    tri_value found = tri_node_add(g, &tri_op_first_not_finite, in, 3, NULL, "");
    tri_device *device = op_device_open(&tri_device_cuda, 1);
    op_session *session = op_session_open(g, device, false);
    static const int64_t ends[] = {0, 1000, 1000, 1999, 2000, 3000};
    for (int i = 0; i < 6; i++) ((int64_t *)op_host(session, ranges))[i] = ends[i];
    op_set(session, x, 1998, NAN);
    op_set(session, x, 1999, NAN); // in no range
    op_set(session, x, 2500, INFINITY);
    ((double *)op_host(session, in[2]))[TRI_STEP_HALTS] = halts;
    op_run_ok(session);
    double result = op_get(session, found, 0);
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(g);
    return result;
}

static void test_first_not_finite(void **state) {
    assert_true(first_not_finite(true) == 2);
    assert_true(first_not_finite(false) == 0);
}

int main(void) {
    test_gpu_choose();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tf32),          cmocka_unit_test(test_f32),
        cmocka_unit_test(test_bf16),          cmocka_unit_test(test_reorder),
        cmocka_unit_test(test_channels_last), cmocka_unit_test(test_first_not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
