// Compares pooling, batch norm, dropout, elementwise operations, losses, optimizer updates and
// reorders (copies into another layout) of `cpu` with the reference device `ref`.
#include "support/compare_kernels.h"

static bool is_avx512(void) {
    return !strcmp(getenv("TRIREME_CPU_ISA"), "avx512") && __builtin_cpu_supports("avx512bw");
}

// Gives a value [N, C, H, W] the layout in blocks of 16 channels.
static void make_blocked(compare_case *c, tri_value value) {
    c->graph->values[value.id].layout =
        (tri_layout){.block_count = 1, .block_axis = {1}, .block_size = {16}};
}

static void compare_pool(tri_shape x, int64_t kernel, int64_t stride, int64_t padding, bool relu,
                         double dropout, bool grad, bool blocked) {
    compare_case c = compare_open(2);
    tri_max_pool2d_attr attr = {.kernel = {kernel, kernel},
                                .stride = {stride, stride},
                                .padding = {padding, padding},
                                .relu = relu,
                                .dropout = dropout,
                                .key = 0x123456789abcdef,
                                .x_shape = x};
    tri_shape y = x;
    for (int i = 2; i < 4; i++) y.dims[i] = (x.dims[i] + 2 * padding - kernel) / stride + 1;
    int64_t position[] = {INT64_C(5000000001), 77};
    if (!grad) {
        tri_value in[] = {compare_input(&c, TRI_F32, x), {0}};
        if (dropout > 0) in[1] = tri_position(c.graph);
        tri_node_add(c.graph, &tri_op_max_pool2d, in, 2, &attr, "pool");
        // A convolution reads the result in blocks of 16 channels, a linear layer row-major. The
        // kernel chooses its layout by looking at the node `reader`.
        tri_node reader = {.op = blocked ? &tri_op_conv2d : &tri_op_linear,
                           .input_count = 1,
                           .inputs = {c.graph->nodes[0].outputs[0]}};
        c.graph->pending_nodes = &reader;
        c.graph->pending_node_count = 1;
        void *in_data[] = {NULL, position};
        compare_last_node(&c, in_data, 1);
        if (x.dims[1] % 16 == 0 && is_avx512()) {
            assert_string_equal(c.kernel, "avx512-blocked");
            assert_int_equal(tri_layout_is_plain(&c.out_layout[0]), !blocked);
        }
    } else {
        tri_value in[] = {compare_input(&c, TRI_U8, y), compare_input(&c, TRI_F32, y)};
        if (blocked) make_blocked(&c, in[1]);
        // Most windows get a random pixel inside the image as their maximum; the others get
        // TRI_POOL_NO_GRADIENT.
        int64_t count = tri_shape_count(&y);
        uint8_t *index = compare_alloc((size_t)count);
        for (int64_t i = 0; i < count; i++) {
            int64_t h = i / y.dims[3] % y.dims[2] * stride - padding;
            int64_t w = i % y.dims[3] * stride - padding, kh, kw;
            do {
                kh = compare_between(0, kernel - 1);
                kw = compare_between(0, kernel - 1);
            } while (h + kh < 0 || h + kh >= x.dims[2] || w + kw < 0 || w + kw >= x.dims[3]);
            bool none = compare_between(0, 4) == 0;
            index[i] = (uint8_t)(none ? TRI_POOL_NO_GRADIENT : kh * kernel + kw);
        }
        tri_node_add(c.graph, &tri_op_max_pool2d_grad, in, 2, &attr, "pool");
        void *in_data[] = {index, NULL};
        compare_last_node(&c, in_data, 1);
        free(index);
    }
    compare_close(&c);
}

static void test_max_pool2d(void **state) {
    static const struct {
        int64_t n, c, h, w, kernel, stride, padding;
    } sizes[] = {
        {3, 32, 24, 24, 2, 2, 0}, {2, 16, 7, 5, 2, 2, 0},   {1, 48, 9, 12, 3, 2, 1},
        {2, 16, 2, 2, 2, 2, 0},   {2, 16, 13, 13, 3, 1, 1}, {2, 5, 6, 6, 2, 2, 0},
        {2, 16, 8, 8, 2, 3, 1},   {1, 16, 20, 20, 2, 2, 0},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int form = 0; form < 16; form++)
            compare_pool(tri_shape_of(sizes[i].n, sizes[i].c, sizes[i].h, sizes[i].w),
                         sizes[i].kernel, sizes[i].stride, sizes[i].padding, form & 1,
                         form & 2 ? 0.25 : 0, form & 4, form & 8);
}

// PyTorch's rule for the maximum: NaN is larger than any number, and of equal values the first is
// taken.
static void test_max_pool2d_nan(void **state) {
    compare_case c = compare_open(1);
    tri_max_pool2d_attr attr = {.kernel = {2, 2}, .stride = {2, 2}};
    tri_shape x = tri_shape_of(1, 16, 2, 4);
    tri_value in[] = {compare_input(&c, TRI_F32, x), {0}};
    tri_value y = tri_node_add(c.graph, &tri_op_max_pool2d, in, 2, &attr, "pool");
    float *data = calloc(16 * 8, sizeof *data);
    for (int i = 0; i < 16; i++) {
        data[i * 8 + i % 8] = (float)NAN;
        data[i * 8 + (i + 3) % 8] = i < 8 ? (float)NAN : 5;
    }
    const tri_node *node = tri_value_node(c.graph, y);
    void *in_data[] = {data, NULL}, *expected[2], *actual[2], *unused[2];
    compare_run(c.ref, &c, node, in_data, expected, unused);
    free(unused[0]);
    compare_run(c.cpu, &c, node, in_data, actual, unused);
    free(unused[0]);
    for (int i = 0; i < 32; i++) {
        float a = ((float *)expected[0])[i], b = ((float *)actual[0])[i];
        assert_true((isnan(a) && isnan(b)) || a == b);
    }
    assert_memory_equal(expected[1], actual[1], 32);
    for (int i = 0; i < 2; i++) {
        free(expected[i]);
        free(actual[i]);
    }
    free(data);
    compare_close(&c);
}

static void test_batch_norm(void **state) {
    static const struct {
        int64_t n, c, h, w;
    } sizes[] = {{4, 16, 14, 14}, {3, 48, 5, 7},   {2, 16, 1, 1}, {1, 32, 33, 9},
                 {3, 5, 4, 4},    {2, 24, 33, 65}, {7, 3, 1, 1},  {2, 1, 7, 7}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int relu = 0; relu < 2; relu++)
            for (int what = 0; what < 3; what++) {
                compare_case c = compare_open(1 + relu);
                tri_shape x = tri_shape_of(sizes[i].n, sizes[i].c, sizes[i].h, sizes[i].w);
                tri_shape v = tri_shape_of(sizes[i].c);
                tri_batch_norm_attr attr = {.eps = 1e-5, .relu = relu};
                float *variance = compare_alloc((size_t)sizes[i].c * sizeof *variance);
                for (int64_t k = 0; k < sizes[i].c; k++) variance[k] = 0.3f + (float)k;
                static const tri_op *const ops[] = {
                    &tri_op_batch_norm, &tri_op_batch_norm_inference, &tri_op_batch_norm_grad};
                int inputs = (int[]){3, 5, 6}[what];
                tri_value in[6];
                for (int k = 0; k < inputs; k++)
                    in[k] = compare_input(&c, TRI_F32, k == 0 || (what == 2 && k < 3) ? x : v);
                tri_node_add(c.graph, ops[what], in, inputs, &attr, "bn");
                void *in_data[6] = {0};
                if (what == 1) in_data[4] = variance;
                compare_last_node(&c, in_data, 1);
                compare_close(&c);
                free(variance);
            }
}

// The variance must be exact although the mean is much larger than the deviation.
static void far_mean(int64_t channels) {
    compare_case c = compare_open(2);
    tri_shape x = tri_shape_of(4, channels, 12, 12), v = tri_shape_of(channels);
    tri_batch_norm_attr attr = {.eps = 1e-5};
    int64_t count = tri_shape_count(&x);
    float *data = compare_alloc((size_t)count * sizeof *data);
    for (int64_t i = 0; i < count; i++) data[i] = 1000 + compare_value();
    tri_value in[] = {compare_input(&c, TRI_F32, x), compare_input(&c, TRI_F32, v),
                      compare_input(&c, TRI_F32, v)};
    tri_node_add(c.graph, &tri_op_batch_norm, in, 3, &attr, "bn");
    c.tolerance = 2e-4;
    compare_last_node(&c, (void *[]){data, NULL, NULL}, 1);
    free(data);
    compare_close(&c);
}

static void test_batch_norm_far_mean(void **state) {
    far_mean(16);
    far_mean(6);
}

static void test_dropout(void **state) {
    const tri_shape shapes[] = {tri_shape_of(3, 128),      tri_shape_of(2, 7),
                                tri_shape_of(5, 9001),     tri_shape_of(2, 32, 6, 6),
                                tri_shape_of(3, 16, 5, 5), tri_shape_of(2, 3, 4, 5)};
    static const double rates[] = {0.5, 0.1, 0, 1, 0.9999999999};
    int64_t position[] = {INT64_C(1) << 33, 4294967290};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
            compare_case c = compare_open(2);
            tri_map_attr attr = tri_map_of_dropout(&shapes[i], rates[r], 42 + i);
            tri_value in[] = {compare_input(&c, TRI_F32, shapes[i]), tri_position(c.graph)};
            if (shapes[i].rank == 4 && shapes[i].dims[1] % 16 == 0) make_blocked(&c, in[0]);
            tri_node_add(c.graph, &tri_op_map, in, 2, &attr, "dropout");
            if (tri_graph_status(c.graph, NULL) == TRI_OK)
                compare_last_node(&c, (void *[]){NULL, position}, 1);
            compare_close(&c);
        }
}

static void compare_simple(const tri_op *op, int inputs, tri_shape shape, const void *attr,
                           bool blocked) {
    compare_case c = compare_open(2);
    tri_value in[3];
    for (int i = 0; i < inputs; i++) {
        in[i] = compare_input(&c, TRI_F32, shape);
        if (blocked && i == 0) make_blocked(&c, in[i]);
    }
    tri_node_add(c.graph, op, in, inputs, attr, "simple");
    compare_last_node(&c, NULL, 1);
    compare_close(&c);
}

static void test_elementwise(void **state) {
    const tri_shape shapes[] = {tri_shape_of(1), tri_shape_of(3, 5), tri_shape_of(2, 32, 5, 3),
                                tri_shape_of(40, 1001)};
    static const char *const texts[] = {"relu(x)", "leaky_relu(x, 0.01)", "leaky_relu(x, 2)",
                                        "dy, y -> y <= 0 ? 0 : dy",
                                        "dy, y -> dy * (y <= 0 ? 0.01 : 1)"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        bool blocked = shapes[i].rank == 4;
        for (int k = 0; k < 5; k++) {
            tri_map_attr map = {.viewed = 0};
            assert_int_equal(tri_formula_parse(texts[k], NULL, &map.formula), TRI_OK);
            compare_simple(&tri_op_map, k < 3 ? 1 : 2, shapes[i], &map, blocked);
        }
        compare_simple(&tri_op_add, 2, shapes[i], NULL, blocked);
        compare_simple(&tri_op_mse_loss, 2, shapes[i], NULL, false);
    }
}

static void test_mse_loss_grad(void **state) {
    compare_case c = compare_open(2);
    tri_shape shape = tri_shape_of(33, 1111);
    tri_value in[] = {compare_input(&c, TRI_F32, shape), compare_input(&c, TRI_F32, shape),
                      tri_scalar(c.graph, TRI_SCALAR_SEED)};
    tri_node_add(c.graph, &tri_op_mse_loss_grad, in, 3, NULL, "loss");
    compare_last_node(&c, NULL, 1);
    compare_close(&c);
}

static void compare_update(const tri_op *op, const void *attr, int states, double update, bool skip,
                           tri_shape shape) {
    compare_case c = compare_open(2);
    c.graph->phase = TRI_PHASE_STEP;
    tri_value in[5] = {compare_input(&c, TRI_F32, shape), compare_input(&c, TRI_F32, shape),
                       tri_scalar(c.graph, TRI_SCALAR_STEP)};
    int64_t count = tri_shape_count(&shape);
    void *in_data[5] = {0};
    double step[TRI_STEP_SCALAR_COUNT] = {[TRI_STEP_LR] = 0.1,
                                          [TRI_STEP_GRADIENT_SCALE] = 0.7,
                                          [TRI_STEP_SKIP] = skip,
                                          [TRI_STEP_UPDATE] = update};
    in_data[2] = step;
    for (int i = 3; i < 3 + states; i++) {
        in[i] = compare_input(&c, TRI_F32, shape);
        float *values = in_data[i] = compare_alloc((size_t)count * sizeof *values);
        for (int64_t k = 0; k < count; k++) values[k] = fabsf(compare_value());
    }
    tri_node_add(c.graph, op, in, op->input_count, attr, "update");
    compare_last_node(&c, in_data, 1);
    for (int i = 3; i < 3 + states; i++) free(in_data[i]);
    compare_close(&c);
}

static void test_updates(void **state) {
    static const tri_sgd_attr sgd[] = {{.lr_factor = 1},
                                       {.lr_factor = 0.5, .momentum = 0.9, .weight_decay = 1e-2},
                                       {.lr_factor = 0.5, .momentum = 0.9, .nesterov = true},
                                       {.lr_factor = 0.5, .momentum = 0.8, .dampening = 0.1}};
    static const tri_adam_attr adam[] = {
        {.lr_factor = 0.5, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
        {.lr_factor = 0.5, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1},
        {.lr_factor = 0.5,
         .beta1 = 0.9,
         .beta2 = 0.999,
         .eps = 1e-8,
         .weight_decay = 0.1,
         .decoupled = true}};
    static const tri_adadelta_attr adadelta[] = {
        {.lr_factor = 0.5, .rho = 0.9, .eps = 1e-6},
        {.lr_factor = 0.5, .rho = 0.8, .eps = 1e-6, .weight_decay = 0.1}};
    const tri_shape shapes[] = {tri_shape_of(1), tri_shape_of(7, 5), tri_shape_of(128, 300)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int form = 0; form < 4; form++) {
            double update = form & 1 ? 1 : 7;
            bool skip = form == 3;
            for (size_t k = 0; k < sizeof sgd / sizeof *sgd; k++)
                compare_update(&tri_op_sgd, &sgd[k], sgd[k].momentum != 0, update, skip, shapes[i]);
            for (size_t k = 0; k < sizeof adam / sizeof *adam; k++)
                compare_update(&tri_op_adam, &adam[k], 2, update, skip, shapes[i]);
            for (size_t k = 0; k < sizeof adadelta / sizeof *adadelta; k++)
                compare_update(&tri_op_adadelta, &adadelta[k], 2, update, skip, shapes[i]);
        }
}

// While gradients are zero, Adam's states shrink to zero and do not become subnormal numbers, with
// which CPUs are slow. After the update, other computations of the thread can have subnormal
// results again.
static void test_subnormal_states(void **state) {
    enum { COUNT = 40000 };
    static float parameter[COUNT], gradient[COUNT], first[COUNT], second[COUNT];
    static const tri_adam_attr adam = {.lr_factor = 1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    double step[TRI_STEP_SCALAR_COUNT] = {
        [TRI_STEP_LR] = 0.1, [TRI_STEP_GRADIENT_SCALE] = 1, [TRI_STEP_UPDATE] = 1000};
    for (int i = 0; i < COUNT; i++) {
        parameter[i] = 1;
        first[i] = second[i] = 1.2e-38f; // above the least normal number, 1.175e-38
    }
    tri_device *device;
    assert_int_equal(tri_device_cpu.open(&(tri_device_config){.threads = 2}, &device), TRI_OK);
    compare_case c = compare_open(1);
    c.graph->phase = TRI_PHASE_STEP;
    tri_value in[5];
    for (int i = 0; i < 5; i++)
        in[i] = i == 2 ? tri_scalar(c.graph, TRI_SCALAR_STEP)
                       : compare_input(&c, TRI_F32, tri_shape_of(COUNT));
    tri_node_add(c.graph, &tri_op_adam, in, 5, &adam, "");
    assert_int_equal(c.graph->status, TRI_OK);
    const tri_node *node = &c.graph->nodes[0];
    tri_kernel kernel;
    assert_int_equal(tri_kernel_prepare(tri_device_select(&device->description, c.graph, node),
                                        device, c.graph, node, &kernel),
                     TRI_OK);
    void *const data[] = {parameter, gradient, step, first, second};
    tri_queue queue = {device};
    for (int update = 0; update < 100; update++)
        assert_int_equal(kernel.def->run(&kernel, &(tri_kernel_args){.queue = &queue, .in = data}),
                         TRI_OK);
    for (int i = 0; i < COUNT; i++)
        assert_true(first[i] == 0 && second[i] == 0 && parameter[i] == 1);
    volatile float least = 1.2e-38f;
    assert_true(least / 4 > 0);
    tri_kernel_release(&kernel);
    compare_close(&c);
    device->backend->close(device);
}

static void compare_reorder(tri_dtype dtype, tri_shape shape, tri_layout from, tri_layout to) {
    compare_case c = compare_open(2);
    tri_value x = compare_input(&c, dtype, shape);
    tri_value y = tri_node_add(c.graph, &tri_op_reorder, &x, 1, NULL, "");
    c.graph->values[x.id].layout = from;
    c.graph->values[y.id].layout = to;
    compare_last_node(&c, NULL, 1);
    compare_close(&c);
}

static void test_reorders(void **state) {
    enum { HOME = 2, INPUT_PAIRS = 5, LAYOUTS = 7 }; // of a weight; those of BF16
    static const tri_layout layouts[LAYOUTS] = {
        {0},
        {.block_count = 1, .block_axis = {1}, .block_size = {16}},
        {.block_count = 2, .block_axis = {1, 0}, .block_size = {16, 16}},
        {.block_count = 2, .block_axis = {0, 1}, .block_size = {16, 16}},
        {.block_count = 1, .block_axis = {0}, .block_size = {16}, .order = {0, 2, 3, 1}},
        {.block_count = 3, .block_axis = {1, 0, 1}, .block_size = {8, 16, 2}},
        {.block_count = 3, .block_axis = {0, 1, 0}, .block_size = {8, 16, 2}},
    };
    static const tri_layout matrix[] = {
        {0}, {.block_count = 2, .block_axis = {1, 0}, .block_size = {16, 64}}};
    for (int from = 0; from < LAYOUTS; from++)
        for (int to = 0; to < LAYOUTS; to++)
            compare_reorder(TRI_F32, tri_shape_of(32, 48, 3, 5), layouts[from], layouts[to]);
    for (int to = INPUT_PAIRS; to < LAYOUTS && is_avx512(); to++)
        compare_reorder(TRI_BF16, tri_shape_of(32, 48, 3, 5), layouts[HOME], layouts[to]);
    for (int from = 0; from < 2; from++)
        for (int to = 0; to < 2; to++)
            compare_reorder(TRI_F32, tri_shape_of(128, 80), matrix[from], matrix[to]);
}

// Computes the sums of squares of each chunk of x (of all of x if `chunk` is 0) with two threads
// and with one.
static void sum_squares(tri_device *device, const float *x, int64_t count, int64_t chunk,
                        double *two, double *one) {
    compare_case c = compare_open(1);
    tri_value in = compare_input(&c, TRI_F32, tri_shape_of(count));
    tri_sum_of_squares_attr attr = {.chunk = chunk};
    tri_node_add(c.graph, &tri_op_sum_of_squares, &in, 1, &attr, "");
    assert_int_equal(c.graph->status, TRI_OK);
    const tri_node *node = &c.graph->nodes[0];
    tri_kernel kernel;
    tri_queue queue = {device};
    void *const data = (void *)(uintptr_t)x;
    for (int threads = 2; threads > 0; threads--) {
        void *const out = threads == 2 ? two : one;
        device->description.threads = threads;
        assert_int_equal(tri_kernel_prepare(tri_device_select(&device->description, c.graph, node),
                                            device, c.graph, node, &kernel),
                         TRI_OK);
        tri_kernel_args args = {.queue = &queue, .in = &data, .out = &out};
        assert_int_equal(kernel.def->run(&kernel, &args), TRI_OK);
        tri_kernel_release(&kernel);
    }
    device->description.threads = 2;
    compare_close(&c);
}

static void test_sum_of_squares(void **state) {
    tri_device *device;
    assert_int_equal(tri_device_cpu.open(&(tri_device_config){.threads = 2}, &device), TRI_OK);
    static const int64_t counts[] = {1, 7, 4096, 16384, 5000001, 4096 * 300};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        float *x = malloc((size_t)counts[i] * sizeof *x);
        double expected = 0, two, one;
        for (int64_t k = 0; k < counts[i]; k++) {
            x[k] = (float)(k % 5);
            expected += (double)((k % 5) * (k % 5));
        }
        sum_squares(device, x, counts[i], 0, &two, &one);
        assert_true(fabs(two - expected) <= 1e-12 * expected);
        assert_true(two == one);
        if (counts[i] % 4096 == 0) {
            int64_t chunks = counts[i] / 4096;
            double *of_two = malloc((size_t)chunks * sizeof *of_two),
                   *of_one = malloc((size_t)chunks * sizeof *of_one), sum = 0;
            sum_squares(device, x, counts[i], 4096, of_two, of_one);
            for (int64_t k = 0; k < chunks; k++) {
                assert_true(of_two[k] == of_one[k]);
                sum += of_two[k];
            }
            assert_true(fabs(sum - expected) <= 1e-12 * expected);
            free(of_two);
            free(of_one);
        }
        free(x);
    }
    device->backend->close(device);
}

static void test_memory(void **state) {
    tri_device *device;
    assert_int_equal(tri_device_cpu.open(&(tri_device_config){.threads = 2}, &device), TRI_OK);
    static const int64_t counts[] = {1, 7, 16384, 5000001};
    for (int i = 0; i < 4; i++) {
        void *a, *b;
        size_t bytes = (size_t)counts[i] * sizeof(float);
        assert_int_equal(tri_device_cpu.alloc(device, bytes, &a), TRI_OK);
        assert_int_equal(tri_device_cpu.alloc(device, bytes, &b), TRI_OK);
        assert_int_equal((uintptr_t)a % 64, 0);
        for (int64_t k = 0; k < counts[i]; k++) {
            assert_true(((float *)a)[k] == 0);
            ((float *)a)[k] = ((float *)b)[k] = (float)(k % 5);
        }
        tri_queue queue = {device};
        assert_int_equal(tri_device_cpu.add(&queue, a, b, counts[i]), TRI_OK);
        for (int64_t k = 0; k < counts[i]; k++) assert_true(((float *)a)[k] == 2 * (float)(k % 5));
        assert_int_equal(tri_device_cpu.zero(&queue, a, bytes), TRI_OK);
        for (int64_t k = 0; k < counts[i]; k++) assert_true(((float *)a)[k] == 0);
        tri_device_cpu.free(device, a);
        tri_device_cpu.free(device, b);
    }
#ifndef __SANITIZE_ADDRESS__ // AddressSanitizer ends the program if it cannot allocate
    void *unused;
    assert_int_equal(tri_device_cpu.alloc(device, SIZE_MAX / 2, &unused), TRI_NO_MEMORY);
#endif
    tri_device_cpu.close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_max_pool2d),     cmocka_unit_test(test_max_pool2d_nan),
        cmocka_unit_test(test_batch_norm),     cmocka_unit_test(test_batch_norm_far_mean),
        cmocka_unit_test(test_dropout),        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_mse_loss_grad),  cmocka_unit_test(test_updates),
        cmocka_unit_test(test_reorders),       cmocka_unit_test(test_memory),
        cmocka_unit_test(test_sum_of_squares), cmocka_unit_test(test_subnormal_states),
    };
    int failed = 0;
    static const char *const levels[] = {"avx512", "avx2", "base"};
    for (int i = 0; i < 3; i++) {
        setenv("TRIREME_CPU_ISA", levels[i], 1);
        printf("TRIREME_CPU_ISA=%s\n", levels[i]);
        failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    return failed;
}
