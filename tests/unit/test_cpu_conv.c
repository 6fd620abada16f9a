// Compares convolutions and linear layers of `cpu`, and their gradients, with the reference device
// `ref`. A task is what is computed: 0: the layer itself; 1: the gradient of its input; 2: that of
// its weight.
#include "support/compare_kernels.h"
#include "support/mapped_product.h"

#include <cmocka.h>

typedef struct conv_size {
    int64_t n, c, o, height, width, kernel, stride, padding, groups, dilation;
} conv_size;

static tri_shape y_shape(const conv_size *s, int64_t dilation) {
    int64_t reach = (s->kernel - 1) * dilation + 1;
    return tri_shape_of(s->n, s->o, (s->height + 2 * s->padding - reach) / s->stride + 1,
                        (s->width + 2 * s->padding - reach) / s->stride + 1);
}

static void compare_conv(const conv_size *s, int task, int formula, bool direct, bool bias,
                         int threads) {
    compare_case c = compare_open(threads);
    int64_t dilation = s->dilation;
    tri_conv2d_attr attr = {.stride = {s->stride, s->stride},
                            .padding = {s->padding, s->padding},
                            .dilation = {dilation, dilation},
                            .groups = s->groups,
                            .direct = direct};
    tri_shape x = tri_shape_of(s->n, s->c, s->height, s->width), y = y_shape(s, dilation);
    tri_shape weight = tri_shape_of(s->o, s->c / s->groups, s->kernel, s->kernel);
    tri_conv2d_grad_attr grad = {.conv = attr, .shape = task == 1 ? x : weight, .has_bias = bias};
    c.tolerance = 3e-5; // more than usual, because Winograd's transforms add a few roundings
    if (task == 0) {
        tri_value in[] = {compare_input(&c, TRI_F32, x), compare_input(&c, TRI_F32, weight), {0}};
        if (bias) in[2] = compare_input(&c, TRI_F32, tri_shape_of(s->o));
        mapped_product(c.graph, &tri_op_conv2d, in, 3, &attr, formula);
    } else if (task == 1) {
        tri_value in[] = {compare_input(&c, TRI_F32, y), compare_input(&c, TRI_F32, weight)};
        mapped_product(c.graph, &tri_op_conv2d_grad_input, in, 2, &grad, formula);
    } else {
        tri_value in[] = {compare_input(&c, TRI_F32, x), compare_input(&c, TRI_F32, y)};
        tri_node_add(c.graph, &tri_op_conv2d_grad_weight, in, 2, &grad, "conv");
    }
    compare_last_node(&c, NULL, 1);
    compare_close(&c);
}

static void all_tasks(const conv_size *s) {
    for (int threads = 1; threads <= 2; threads++) {
        for (int task = 0; task < 3; task++)
            for (int direct = 0; direct < 2; direct++)
                compare_conv(s, task, 0, direct, task != 1, threads);
        compare_conv(s, 0, 1, false, false, threads);
        compare_conv(s, 0, 2, false, true, threads);
        compare_conv(s, 1, 1, false, false, threads);
        compare_conv(s, 2, 0, false, false, threads);
    }
}

static void test_convolutions(void **state) {
    static const conv_size sizes[] = {
        // as in the recipe mnist-cnn
        {2, 32, 64, 26, 26, 3, 1, 0, 1, 1},
        // odd sizes, by Winograd; the smallest output for which Winograd is used; a smaller one
        {2, 16, 16, 13, 11, 3, 1, 1, 1, 1},
        {1, 16, 32, 8, 8, 3, 1, 1, 1, 1},
        {3, 16, 16, 7, 7, 3, 1, 1, 1, 1},
        // as in the recipe mnist-convnet
        {2, 16, 32, 14, 14, 5, 1, 2, 1, 1},
        // a stride; a kernel of 1×1; both
        {2, 32, 16, 15, 15, 3, 2, 1, 1, 1},
        {2, 16, 16, 9, 9, 1, 1, 0, 1, 1},
        {2, 16, 16, 9, 9, 1, 2, 0, 1, 1},
        // few input channels
        {2, 1, 32, 28, 28, 3, 1, 0, 1, 1},
        {2, 3, 16, 17, 15, 5, 2, 2, 1, 1},
        // one output channel
        {2, 64, 1, 20, 33, 3, 1, 1, 1, 1},
        {2, 16, 1, 5, 3, 5, 1, 2, 1, 1},
        {1, 32, 1, 4, 70, 3, 1, 0, 1, 1},
        // channels that are no multiples of 16; two groups; 16 groups (depthwise); x, weight and y
        // of one number each; dilation; one output channel and few input channels
        {2, 4, 6, 9, 7, 3, 1, 1, 1, 1},
        {2, 6, 4, 9, 7, 3, 2, 1, 2, 1},
        {2, 16, 16, 9, 7, 3, 1, 1, 16, 1},
        {1, 1, 1, 1, 1, 1, 1, 0, 1, 1},
        {2, 16, 16, 12, 12, 3, 1, 2, 1, 2},
        {2, 5, 1, 6, 6, 2, 1, 0, 1, 1},
        // depthwise: planes smaller than the kernel, strides above and below it, bands of rows
        {2, 24, 24, 9, 7, 5, 2, 2, 24, 1},
        {3, 16, 16, 3, 3, 7, 1, 3, 16, 1},
        {2, 33, 33, 8, 10, 3, 3, 1, 33, 1},
        {2, 16, 16, 6, 5, 3, 2, 4, 16, 2},
        {2, 3, 3, 7, 9, 2, 5, 1, 3, 1},
        {1, 20, 20, 70, 61, 4, 1, 1, 20, 1},
        {1, 2, 2, 21, 12, 1, 2, 0, 2, 1},
        // groups: channels that are multiples of 16 or not, on one side or on both, or more outputs
        // than inputs
        {2, 32, 32, 9, 7, 3, 1, 1, 4, 1},
        {2, 24, 48, 10, 6, 3, 2, 1, 3, 1},
        {3, 16, 32, 5, 5, 1, 1, 0, 2, 1},
        {2, 12, 20, 6, 11, 2, 1, 1, 4, 2},
        {2, 6, 12, 9, 7, 3, 1, 1, 6, 1},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) all_tasks(&sizes[i]);
}

static void test_random_convolutions(void **state) {
    for (int i = 0; i < 40; i++) {
        compare_seed = (uint64_t)i;
        conv_size s = {.n = compare_between(1, 3),
                       .c = compare_between(1, 5),
                       .o = compare_between(1, 5),
                       .kernel = compare_between(1, 4),
                       .stride = compare_between(1, 3),
                       .groups = 1,
                       .dilation = 1};
        if (compare_between(0, 1)) s.c *= 16;
        if (compare_between(0, 1)) s.o *= 16;
        s.padding = compare_between(0, s.kernel - 1);
        s.height = s.kernel + compare_between(0, 14);
        s.width = s.kernel + compare_between(0, 14);
        for (int task = 0; task < 3; task++)
            compare_conv(&s, task, task < 2 ? (int)compare_between(0, 2) : 0, compare_between(0, 1),
                         task != 1, 2);
    }
}

static void test_rules(void **state) {
    compare_case c = compare_open(1);
    tri_conv2d_attr attr = {.stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .groups = 1};
    tri_value in[] = {compare_input(&c, TRI_F32, tri_shape_of(2, 16, 9, 9)),
                      compare_input(&c, TRI_F32, tri_shape_of(32, 16, 3, 3)),
                      {0}};
    tri_node_add(c.graph, &tri_op_conv2d, in, 3, &attr, "conv");
    const tri_node *node = &c.graph->nodes[0];
    const tri_kernel_def *def = tri_device_select(&c.cpu->description, c.graph, node);
    tri_layout layouts[3] = {0}, out[1] = {0};
    tri_kernel_layouts(def, &c.cpu->description, c.graph, node, layouts, out);
    if (__builtin_cpu_supports("avx512bw")) {
        tri_layout x = {.block_count = 1, .block_axis = {1}, .block_size = {16}};
        tri_layout w = {.block_count = 2, .block_axis = {1, 0}, .block_size = {16, 16}};
        assert_true(tri_layout_equal(&layouts[0], &x) && tri_layout_equal(&out[0], &x));
        assert_true(tri_layout_equal(&layouts[1], &w));
    }
    compare_close(&c);
}

static void compare_linear(int task, int64_t rows, int64_t inputs, int64_t outputs, int formula,
                           bool bias, int threads) {
    compare_case c = compare_open(threads);
    tri_shape x = tri_shape_of(rows, inputs), w = tri_shape_of(outputs, inputs);
    tri_shape y = tri_shape_of(rows, outputs);
    tri_linear_attr attr = {.axes = 1};
    tri_linear_grad_attr grad = {.axes = 1, .shape = task == 1 ? x : w, .has_bias = bias};
    if (task == 0) {
        tri_value in[] = {compare_input(&c, TRI_F32, x), compare_input(&c, TRI_F32, w), {0}};
        if (bias) in[2] = compare_input(&c, TRI_F32, tri_shape_of(outputs));
        mapped_product(c.graph, &tri_op_linear, in, 3, &attr, formula);
    } else if (task == 1) {
        tri_value in[] = {compare_input(&c, TRI_F32, y), compare_input(&c, TRI_F32, w)};
        mapped_product(c.graph, &tri_op_linear_grad_input, in, 2, &grad, formula);
    } else {
        tri_value in[] = {compare_input(&c, TRI_F32, x), compare_input(&c, TRI_F32, y)};
        tri_node_add(c.graph, &tri_op_linear_grad_weight, in, 2, &grad, "fc");
    }
    compare_last_node(&c, NULL, 1);
    compare_close(&c);
}

static void test_linear(void **state) {
    static const int64_t sizes[][2] = {{16, 64}, {784, 128}, {48, 192}, {10, 3}, {1, 1},   {7, 64},
                                       {64, 10}, {33, 65},   {128, 10}, {3, 64}, {64, 784}};
    static const int64_t rows[] = {1, 2, 17, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (int task = 0; task < 3; task++)
                for (int bias = 0; bias < 2; bias++)
                    compare_linear(task, rows[r], sizes[i][0], sizes[i][1],
                                   task < 2 ? (int)(r % 3) : 0, bias && task != 1,
                                   1 + (int)(r % 2));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_random_convolutions),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_linear),
    };
    const struct CMUnitTest plain[] = {
        cmocka_unit_test(test_random_convolutions),
        cmocka_unit_test(test_linear),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    setenv("TRIREME_CPU_ISA", "base", 1); // without AVX: all layouts are plain
    return failed + cmocka_run_group_tests(plain, NULL, NULL);
}
