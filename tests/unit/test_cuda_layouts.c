// Checks which layouts the layout pass gives images on a GPU. Where tensor cores compute, channels
// are last from the bytes of a batch to the first linear layer, and nothing is reordered in
// between; F32 without TF32 stays row-major. No kernel runs, so the test needs no GPU.
#include "device/cuda/cuda.h"
#include "ops/ops.h"
#include "plan/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <trireme/trireme.h>

enum { SAMPLES = 1024, CHANNELS = 64 };

static tri_value convolve(tri_graph *g, const char *name, tri_value x, int64_t channels,
                          int64_t stride) {
    x = tri_conv2d(
        g, name, x,
        (tri_conv2d_options){.channels = channels, .kernel = 3, .stride = stride, .padding = 1});
    return tri_batch_norm(g, tri_name(g, "%s.norm", name), x, (tri_batch_norm_options){0});
}

// A residual network with ops that image networks have between convolutions: batch norm, pooling,
// dropout, activations, additions and a concatenation.
static void residual(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "stem");
    tri_value x = tri_relu(g, convolve(g, "stem", batch->images, 16, 2));
    x = tri_max_pool2d(g, x, (tri_pool2d_options){.kernel = 3, .stride = 2, .padding = 1});
    tri_block(g, "one");
    tri_value side = x;
    x = tri_relu(g, convolve(g, "one.a", x, 16, 1));
    x = tri_dropout(g, "drop", x, 0.25);
    x = tri_relu(g, tri_add(g, convolve(g, "one.b", x, 16, 1), side));
    tri_block(g, "two");
    tri_value wide = tri_avg_pool2d(g, x, (tri_pool2d_options){.kernel = 2});
    x = tri_gelu(g, convolve(g, "two.a", x, 16, 2));
    x = tri_sigmoid(g, tri_concat(g, (tri_value[]){x, wide}, 2, 1));
    tri_block(g, "head");
    x = tri_flatten(g, tri_adaptive_avg_pool2d(g, x, 1));
    tri_loss(g, tri_cross_entropy(g, tri_linear(g, "head", x, 10), batch->labels));
}

// A convolution of which the channels of a pixel, in x and in y, fill a multiple of 16 bytes. So
// cuDNN can use x and y as they are, with channels last, and needs no memory for padded copies.
static void wide(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "all");
    tri_value x = tri_conv2d(g, "conv", batch->images, (tri_conv2d_options){64, .kernel = 3});
    tri_loss(g, tri_cross_entropy(g, tri_linear(g, "head", tri_flatten(g, x), 10), batch->labels));
}

typedef struct counts {
    int reorders, last; // number of reorders, and of images whose channels are last
    int64_t workspace_bytes;
} counts;

static counts count_on(const char *gpu, void (*build)(tri_graph *g, const tri_batch *batch),
                       int64_t channels, tri_precision precision, bool tf32, bool has_bytes) {
    static const tri_pixel_scale scale = {.channels = 3, .std = {1, 1, 1}};
    const tri_task task = {.name = "images", .build = build};
    const tri_field fields[] = {{"images", TRI_F32, {3, {channels, 32, 32}}},
                                {"labels", TRI_I64, {0}}};
    tri_device_config config = {0};
    for (config.model = tri_device_cuda.models; strcmp(config.model->name, gpu) != 0;)
        config.model++;
    tri_device_description device = tri_device_description_of(&tri_device_cuda, &config);
    tri_model_request model = {
        .task = &task,
        .fields = fields,
        .field_count = 2,
        .options = {.seed = 1, .training = true, .precision = precision, .tf32 = tf32},
        .image_scale = has_bytes ? &scale : NULL};
    tri_program_request request = {.model = &model, .batch = SAMPLES};
    tri_program *p = NULL;
    counts c = {0};
    if (tri_program_create(NULL, &device, &request, &p) != TRI_OK)
        fail_msg("%s", tri_error_message());
    for (int i = 0; i < p->graph->node_count; i++)
        c.reorders += p->graph->nodes[i].op == &tri_op_reorder;
    for (int i = 0; i < p->graph->value_count; i++)
        c.last += p->graph->values[i].layout.order[1] == 2;
    c.workspace_bytes = p->workspace_bytes;
    tri_program_destroy(p);
    return c;
}

static counts count(void (*build)(tri_graph *g, const tri_batch *batch), int64_t channels,
                    tri_precision precision, bool tf32, bool has_bytes) {
    return count_on("h200", build, channels, precision, tf32, has_bytes);
}

static void test_tensor_cores(void **state) {
    for (int precision = TRI_PRECISION_32_TRUE; precision <= TRI_PRECISION_BF16_TRUE; precision++) {
        // Images that are not bytes are reordered once, before the first convolution.
        counts bytes = count(residual, 3, precision, true, true);
        counts floats = count(residual, 3, precision, true, false);
        assert_int_equal(bytes.reorders, 0);
        assert_int_equal(floats.reorders, 1);
        assert_true(bytes.last > 20);
    }
}

static void test_exact(void **state) {
    counts exact = count(residual, 3, TRI_PRECISION_32_TRUE, false, true);
    assert_int_equal(exact.reorders, 0);
    assert_int_equal(exact.last, 0);
}

// A V100 has tensor cores for F16, but not for TF32. So images of F16 have their channels last, and
// those of F32 are row-major even if TF32 is allowed.
static void test_older_gpu(void **state) {
    counts exact = count_on("v100-32", residual, 3, TRI_PRECISION_32_TRUE, false, true);
    counts tf32 = count_on("v100-32", residual, 3, TRI_PRECISION_32_TRUE, true, true);
    counts half = count_on("v100-32", residual, 3, TRI_PRECISION_16_MIXED, false, true);
    assert_int_equal(tf32.reorders, 0);
    assert_int_equal(tf32.last, 0);
    assert_int_equal(tf32.workspace_bytes, exact.workspace_bytes);
    assert_true(half.last > 20);
}

// A convolution whose images need no copy in another layout gets no workspace for one: the
// workspace has the 64 MiB that cuDNN may always use, and a few times the size of the weight,
// because the gradient of the weight is computed there in BF16 and then widened to F32. (A copy of
// the images would take 128 MiB.)
static void test_workspace(void **state) {
    int64_t most = (64 << 20) + 4 * CHANNELS * CHANNELS * 3 * 3 * (int64_t)sizeof(float);
    counts c = count(wide, CHANNELS, TRI_PRECISION_BF16_MIXED, false, false);
    assert_true(c.workspace_bytes >= 64 << 20 && c.workspace_bytes <= most);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_cores), cmocka_unit_test(test_exact),
        cmocka_unit_test(test_older_gpu), cmocka_unit_test(test_workspace)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
