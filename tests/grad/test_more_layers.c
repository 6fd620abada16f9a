// Compares the layers of more_layers.h with PyTorch (more_tables.h), value and gradients, on `ref`,
// `cpu` and the emulated GPU; and checks what they drop and what they refuse.
#include "engine/initial.h"
#include "support/torch_check.h"

#include <trireme/losses.h>
#include <trireme/more_layers.h>

#include "grad/more_tables.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static tri_value index_below(tri_graph *g, int limit, tri_shape shape) {
    return tri_input(g, tri_name(g, "index below %d", limit), TRI_I64, shape);
}

// Numbers between 0 and 1, as make_more_tables.py has them.
static tri_value places(tri_graph *g, tri_shape shape) {
    tri_value index = tri_cast(g, index_below(g, 97, shape), TRI_F32);
    return tri_map(g, "i -> (i + 0.5) / 97", index);
}

static tri_value fractional(tri_graph *g, tri_value x, tri_fractional_pool_options o) {
    tri_shape shape = tri_value_shape(g, x);
    o.places = places(g, tri_shape_of(shape.dims[0], shape.dims[1], shape.rank - 2));
    return tri_fractional_max_pool(g, "l", x, o);
}

static tri_value bag(tri_graph *g, tri_value x, tri_bag_mode mode, bool pads) {
    tri_embedding_bag_options o = {
        .embedding = {.tokens = 5, .features = 4}, .mode = mode, .pads = pads, .padding = 1};
    tri_value ids = index_below(g, 5, tri_shape_of(3, 4));
    return tri_mul(g, x, tri_embedding_bag(g, "l", ids, o));
}

// The second input, which in PyTorch's function stands before the weights.
static tri_value other(tri_graph *g, tri_shape shape) {
    return tri_parameter(g, "other", shape, (tri_init){0});
}

// The loss of each sample: the mean over the classes of the terms whose mean is the loss.
static tri_value margin_terms(tri_graph *g, tri_value x, int classes, tri_multi_margin_options o) {
    tri_value labels = index_below(g, classes, tri_shape_of(tri_value_shape(g, x).dims[0]));
    tri_value loss = tri_multi_margin_loss(g, x, labels, o);
    return tri_mean(g, tri_value_node(g, loss)->inputs[0], (int[]){1}, 1, false);
}

#define CASE(text, value)                                                                          \
    if (!strcmp(name, text)) return value;

// Layers of large vocabularies, pools at random places, and layers whose weight is made of others.
static tri_value weights_layer(tri_graph *g, const char *name, tri_value x) {
    if (!strcmp(name, "bag of weights")) {
        tri_embedding_bag_options o = {
            .embedding = {.tokens = 5, .features = 4}, .mode = TRI_BAG_SUM, .pads = true};
        o.padding = 1;
        tri_value ids = index_below(g, 5, tri_shape_of(3, 4));
        tri_parameter(g, "l.weight", tri_shape_of(5, 4), (tri_init){0});
        o.weights = other(g, tri_shape_of(3, 4));
        return tri_mul(g, x, tri_embedding_bag(g, "l", ids, o));
    }
#define ADAPTIVE(...)                                                                              \
    tri_adaptive_log_softmax(g, "l", x, (tri_adaptive_softmax_options){__VA_ARGS__})
#define FRACTIONAL(...) fractional(g, x, (tri_fractional_pool_options){__VA_ARGS__})
    CASE("adaptive",
         ADAPTIVE(.classes = 7, .cutoffs = (int64_t[]){2, 4}, .count = 2, .div_value = 2))
    CASE("adaptive with bias",
         ADAPTIVE(.classes = 2, .cutoffs = (int64_t[]){1}, .count = 1, .head_bias = true))
    CASE("fractional pool", FRACTIONAL(.kernel = 2, .sizes = {3, 4}))
    CASE("fractional pool of a ratio",
         FRACTIONAL(.kernels = {3, 2}, .ratio = 0.5, .ratios[1] = 0.75))
    CASE("fractional pool of volumes", FRACTIONAL(.kernels = {2, 3, 1}, .sizes = {3, 2, 3}))
    CASE("fractional pool of one", FRACTIONAL(.kernel = 1, .sizes = {1, 1}))
#define WEIGHT(dim, ...) tri_weight_norm(g, "l", tri_shape_of(__VA_ARGS__), dim, (tri_init){0})
#define SPECTRAL(shape, ...)                                                                       \
    tri_spectral_norm(g, "l", shape, (tri_spectral_norm_options){__VA_ARGS__})
#define LINEAR(count, bare, weight)                                                                \
    tri_linear_with(                                                                               \
        g, "l", x,                                                                                 \
        (tri_linear_options){.features = count, .no_bias = bare, .weight_value = weight})
#define CONV(kind, count, bare, weight, ...)                                                       \
    tri_##kind(g, "l", x,                                                                          \
               (tri_conv_options){                                                                 \
                   .channels = count, .no_bias = bare, .weight_value = weight, __VA_ARGS__})
    CASE("weight norm", CONV(conv1d, 4, false, WEIGHT(0, 4, 3, 2), .kernel = 2))
    CASE("weight norm of columns", LINEAR(2, true, WEIGHT(1, 2, 4)))
    CASE("weight norm of all", CONV(conv2d, 3, true, WEIGHT(-1, 3, 2, 2, 2), .kernel = 2))
    CASE("weight norm of one", LINEAR(1, true, WEIGHT(0, 1, 1)))
    CASE("spectral norm", LINEAR(3, false, SPECTRAL(tri_shape_of(3, 5), .dim = 0)))
    CASE("spectral norm of images",
         CONV(conv2d, 4, true, SPECTRAL(tri_shape_of(4, 2, 3, 3), .iterations = 3), .kernel = 3))
    CASE("spectral norm transposed",
         CONV(conv_transpose1d, 2, false,
              SPECTRAL(tri_shape_of(3, 2, 4), .dim = 1, .iterations = 2), .kernel = 4))
    CASE("spectral norm of one", LINEAR(1, true, SPECTRAL(tri_shape_of(1, 1), .dim = 0)))
    fail_msg("there is no case for %s", name);
    return x;
}

// What each row of torch_more is here.
static tri_value layer(tri_graph *g, const char *name, tri_value x) {
#define BILINEAR(count, shape, ...)                                                                \
    tri_bilinear(g, "l", x, other(g, shape), (tri_bilinear_options){.features = count, __VA_ARGS__})
#define RESPONSE_NORM(...)                                                                         \
    tri_local_response_norm(g, x, (tri_local_response_norm_options){__VA_ARGS__})
    CASE("bilinear", BILINEAR(2, tri_shape_of(3, 5)))
    CASE("bilinear of sequences", BILINEAR(5, tri_shape_of(2, 3, 2)))
    CASE("bilinear without bias", BILINEAR(3, tri_shape_of(4, 3), .no_bias = true))
    CASE("prelu", tri_prelu(g, "l", x, 3))
    CASE("prelu of one", tri_prelu(g, "l", x, 1))
    CASE("softmin", tri_softmin(g, x, 1))
    CASE("lp_pool1d",
         tri_lp_pool(g, tri_square(g, x), 3, (tri_pool_options){.kernel = 4, .stride = 2}))
    CASE("lp_pool2d",
         tri_lp_pool(g, x, 2, (tri_pool_options){.kernels = {3, 2}, .strides = {2, 1}}))
    CASE("local_response_norm", RESPONSE_NORM(.size = 3, .alpha = 0.5, .beta = 0.6, .k = 2))
    CASE("local_response_norm even", RESPONSE_NORM(.size = 4))
    CASE("channel_shuffle", tri_channel_shuffle(g, x, 3))
    CASE("pad constant", tri_pad_constant(g, x, -1, 2, 1, 1.5))
    CASE("pad reflect", tri_pad_reflect(g, x, -1, 2, 3))
    CASE("pad reflect rows", tri_pad_reflect(g, x, 1, 0, 2))
    CASE("pad replicate", tri_pad_replicate(g, x, 2, 5, 2))
    CASE("pad circular", tri_pad_circular(g, x, -1, 4, 1))
#define COLUMNS ((tri_conv_options){.kernels = {3, 2}, .strides = {2, 1}, .pads = {{1, 1}, {0, 0}}})
#define FAR ((tri_conv_options){.kernel = 2, .dilations = {1, 3}})
    CASE("unfold images", tri_unfold_images(g, x, COLUMNS))
    CASE("unfold images dilated", tri_unfold_images(g, x, FAR))
    CASE("fold images", tri_fold_images(g, x, 5, 4, COLUMNS))
    CASE("fold images dilated", tri_fold_images(g, x, 4, 6, FAR))
    CASE("embedding padded",
         tri_mul(g, x,
                 tri_embedding_padded(g, "l", index_below(g, 5, tri_shape_of(3, 2)), 2,
                                      (tri_embedding_options){.tokens = 5, .features = 4})))
    CASE("bag mean", bag(g, x, TRI_BAG_MEAN, false))
    CASE("bag sum", bag(g, x, TRI_BAG_SUM, false))
    CASE("bag max", bag(g, x, TRI_BAG_MAX, false))
    CASE("bag mean padded", bag(g, x, TRI_BAG_MEAN, true))
    CASE("bag sum padded", bag(g, x, TRI_BAG_SUM, true))
    CASE("bag max padded", bag(g, x, TRI_BAG_MAX, true))
    CASE("pairwise_distance", tri_pairwise_distance(g, x, other(g, tri_shape_of(3, 4)), 0, 0))
    CASE("pairwise_distance of three",
         tri_pairwise_distance(g, x, other(g, tri_shape_of(2, 5)), 3, 1e-3))
    CASE("multi_margin", margin_terms(g, x, 4, (tri_multi_margin_options){0}))
    CASE("multi_margin squared",
         margin_terms(g, x, 3, (tri_multi_margin_options){.margin = 0.5, .squared = true}))
    return weights_layer(g, name, x);
}

static void test_layers(void **state) {
    for (size_t i = 0; i < COUNT(torch_more); i++)
        torch_check_devices(&torch_more[i], layer, 1e-10, 2e-4);
}

// The row of the padding begins as 0 in a table of normal numbers, as PyTorch's.
static void test_padding_begins_as_zero(void **state) {
    enum { TOKENS = 5, FEATURES = 4, PADDING = 2 };
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value ids = tri_input(g, "ids", TRI_I64, tri_shape_of(3, 2));
    tri_embedding_padded(g, "l", ids, PADDING,
                         (tri_embedding_options){.tokens = TOKENS, .features = FEATURES});
    engine_initial initial;
    float weight[TOKENS * FEATURES];
    assert_int_equal(g->parameter_count, 1);
    assert_int_equal(engine_initial_begin(&g->parameters[0], 1, &initial), TRI_OK);
    engine_initial_make(&initial, 0, 9, weight); // in two parts, as ranks make it
    engine_initial_make(&initial, 9, TOKENS * FEATURES - 9, weight + 9);
    engine_initial_end(&initial);
    for (int i = 0; i < TOKENS * FEATURES; i++)
        assert_true((weight[i] == 0) == (i / FEATURES == PADDING));
    op_graph_close(g);
}

// Two layers may read one weight, and a weight that is made again takes no further step.
static void test_shared_spectral_norm(void **state) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(2, 4));
    tri_share_layer(g, "l");
    LINEAR(3, false, SPECTRAL(tri_shape_of(3, 4), .dim = 0));
    LINEAR(3, false, SPECTRAL(tri_shape_of(3, 4), .dim = 0));
    const char *message = "";
    if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s", message);
    assert_int_equal(g->parameter_count, 4);
    assert_int_equal(g->gradient_count, 2);
    op_graph_close(g);
}

// Whole channels or samples are dropped, and the others scaled; alpha dropout moves and scales what
// is left.
static void test_dropouts(void **state) {
    enum { SAMPLES = 40, CHANNELS = 25, PIXELS = 6 };
    tri_graph *g = op_graph_open(TRI_F64);
    tri_value x = tri_input(g, "x", TRI_F64, tri_shape_of(SAMPLES, CHANNELS, 2, 3));
    tri_value y = tri_dropout_channels(g, "channels", x, 0.25);
    tri_value z = tri_alpha_dropout(g, "alpha", x, 0.2);
    tri_value w = tri_feature_alpha_dropout(g, "features", x, 0.2);
    tri_value path = tri_drop_path(g, "path", x, 0.4);
    const char *message = "";
    if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s", message);
    tri_device *device = op_device_open(&tri_device_ref, 1);
    op_session *session = op_session_open(g, device, false);
    op_fill(session, x, 77, 0.5, 1);
    memset(op_host(session, tri_position(g)), 0, 2 * sizeof(int64_t));
    op_run_ok(session);
    int dropped = 0, moved = 0, left_out = 0;
    const double least = -1.7580993408473766, a = 1 / sqrt((least * least * 0.2 + 1) * 0.8);
    for (int64_t c = 0; c < SAMPLES * CHANNELS; c++) {
        bool is_zero = op_get(session, y, c * PIXELS) == 0;
        dropped += is_zero;
        bool keeps = fabs(op_get(session, w, c * PIXELS) + a * least * 0.2 - a * least) > 1e-9;
        for (int64_t i = c * PIXELS; i < (c + 1) * PIXELS; i++) {
            double from = op_get(session, x, i), to = op_get(session, z, i) + a * least * 0.2;
            bool moves = fabs(to - a * least) < 1e-9;
            assert_true(fabs(op_get(session, y, i) - (is_zero ? 0 : from / 0.75)) < 1e-12);
            assert_true(moves || fabs(to - a * from) < 1e-9);
            double of_channel = op_get(session, w, i) + a * least * 0.2;
            assert_true(fabs(of_channel - a * (keeps ? from : least)) < 1e-9);
            moved += moves;
        }
    }
    for (int64_t n = 0; n < SAMPLES; n++) {
        bool is_zero = op_get(session, path, n * CHANNELS * PIXELS) == 0;
        left_out += is_zero;
        for (int64_t i = n * CHANNELS * PIXELS; i < (n + 1) * CHANNELS * PIXELS; i++) {
            double from = op_get(session, x, i);
            assert_true(fabs(op_get(session, path, i) - (is_zero ? 0 : from / 0.6)) < 1e-12);
        }
    }
    assert_in_range(left_out, 8, 24);   // of 40, with 0.4
    assert_in_range(dropped, 200, 300); // of 1000, with 0.25
    assert_in_range(moved, 1050, 1350); // of 6000, with 0.2
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(g);
}

// Random numbers have the distributions of PyTorch's, in F32 on the device cpu as in F64, and are
// no others for a network that is cut into two micro-batches. Statistics of the first numbers:
// means, squares, and how many lie below a limit.
static void test_random_numbers(void **state) {
    enum { SAMPLES = 64, ELEMENTS = 250, COUNT_OF_ALL = SAMPLES * ELEMENTS, LAYERS = 5 };
    static const double mean[LAYERS] = {0.5, 0, 0.3, -0.75 * 0.2, 0.5772156649 + 0.75},
                        square[LAYERS] = {1 / 3.0, 1, 0.3, 0.75 * 0.75 * (0.04 + 0.01 / 3), 0};
    static float values[2][LAYERS][COUNT_OF_ALL];
    for (int part = 0; part < 3; part++) { // all samples in F64, then two halves in F32
        int64_t samples = part ? SAMPLES / 2 : SAMPLES;
        tri_dtype dtype = part ? TRI_F32 : TRI_F64;
        tri_graph *g = op_graph_open(dtype);
        tri_value x = tri_input(g, "x", dtype, tri_shape_of(samples, ELEMENTS)), y[LAYERS];
        y[0] = tri_rand_like(g, "u", x);
        y[1] = tri_randn_like(g, "e", x);
        y[2] = tri_bernoulli(g, "b", tri_map(g, "x -> x < 0 ? 0.3 : 0.7", x));
        y[3] = tri_rrelu(g, "r", x, 0.1, 0.3);
        y[4] = tri_map(g, "x, u -> -log(-log(max(u, 1e-9))) - x", x, tri_rand_like(g, "g", x));
        tri_device *device = op_device_open(part ? &tri_device_cpu : &tri_device_ref, 2);
        op_session *session = op_session_open(g, device, false);
        for (int64_t i = 0; i < samples * ELEMENTS; i++) op_set(session, x, i, -0.75);
        int64_t *position = op_host(session, tri_position(g));
        position[0] = 12, position[1] = part == 2 ? SAMPLES / 2 : 0;
        op_run_ok(session);
        float(*to)[COUNT_OF_ALL] = values[part != 0];
        int64_t first = part == 2 ? COUNT_OF_ALL / 2 : 0;
        for (int k = 0; k < LAYERS; k++)
            for (int64_t i = 0; i < samples * ELEMENTS; i++)
                to[k][first + i] = (float)op_get(session, y[k], i);
        op_session_close(session);
        device->backend->close(device);
        op_graph_close(g);
    }
    for (int k = 0; k < LAYERS; k++) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < COUNT_OF_ALL; i++) {
            double value = values[0][k][i];
            assert_true(fabs(value - (double)values[1][k][i]) < 1e-5 * (1 + fabs(value)));
            sum += value;
            squares += value * value;
        }
        assert_true(fabs(sum / COUNT_OF_ALL - mean[k]) < 0.03);
        if (square[k] > 0) assert_true(fabs(squares / COUNT_OF_ALL - square[k]) < 0.05 * square[k]);
    }
}

// Whole numbers, orders and classes are drawn as often as they should be, and are the same for a
// network that is cut into two micro-batches, on any device.
static void test_random_integers(void **state) {
    enum { SAMPLES = 500, CLASSES = 4, PICKS = 6, LAYERS = 4 };
    static const int width[LAYERS] = {CLASSES, CLASSES, PICKS, 2};
    static int64_t values[2][LAYERS][SAMPLES * PICKS];
    static const float weights[CLASSES] = {1, 0, 3, 4};
    for (int part = 0; part < 3; part++) {
        int64_t samples = part ? SAMPLES / 2 : SAMPLES;
        tri_graph *g = op_graph_open(part ? TRI_F32 : TRI_F64);
        tri_shape shape = tri_shape_of(samples, CLASSES);
        tri_input(g, "index below 2", TRI_I64, shape); // which says how many samples there are
        tri_value w = tri_expand(g, tri_constant(g, "w", tri_shape_of(CLASSES), weights), shape);
        tri_value y[LAYERS] = {tri_randint(g, "i", shape, -1, 3), tri_randperm(g, "p", shape),
                               tri_multinomial(g, "m", w, PICKS, true),
                               tri_multinomial(g, "n", w, 2, false)};
        tri_device *device = op_device_open(part ? &tri_device_cpu : &tri_device_ref, 2);
        op_session *session = op_session_open(g, device, false);
        fill_constants(session, g);
        int64_t *position = op_host(session, tri_position(g));
        position[0] = 7, position[1] = part == 2 ? SAMPLES / 2 : 0;
        op_run_ok(session);
        for (int k = 0; k < LAYERS; k++)
            memcpy(values[part != 0][k] + (part == 2 ? SAMPLES / 2 * width[k] : 0),
                   op_host(session, y[k]), (size_t)(samples * width[k]) * sizeof(int64_t));
        op_session_close(session);
        device->backend->close(device);
        op_graph_close(g);
    }
    assert_memory_equal(values[0], values[1], sizeof values[0]);
    int integers[CLASSES] = {0}, firsts[CLASSES] = {0}, classes[CLASSES] = {0}, pairs = 0;
    for (int i = 0; i < SAMPLES; i++) {
        int seen = 0;
        for (int k = 0; k < CLASSES; k++) {
            integers[values[0][0][i * CLASSES + k] + 1]++;
            seen |= 1 << values[0][1][i * CLASSES + k];
        }
        assert_int_equal(seen, (1 << CLASSES) - 1);
        firsts[values[0][1][i * CLASSES]]++;
        for (int k = 0; k < PICKS; k++) classes[values[0][2][i * PICKS + k]]++;
        assert_true(values[0][3][2 * i] != values[0][3][2 * i + 1]);
        pairs += values[0][3][2 * i] == 3 && values[0][3][2 * i + 1] == 2;
    }
    for (int k = 0; k < CLASSES; k++) {
        assert_in_range(integers[k], 440, 560); // of 2000, each 0.25
        assert_in_range(firsts[k], 90, 160);    // of 500
        double wanted = SAMPLES * PICKS * (double)weights[k] / 8;
        assert_true(fabs(classes[k] - wanted) <= 0.1 * wanted);
    }
    assert_in_range(pairs, 155, 220); // class 3 of all, then class 2 of the others: 1/2 · 3/4
}

// Windows of fractional pools lie where the formula may put them, elsewhere in each channel. An
// element of x is its own number, so that the largest of a window is the last one.
static void test_fractional_places(void **state) {
    enum { CHANNELS = 60, ROWS = 11, WIDTH = 7, KERNEL = 2, HEIGHT = 4 };
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(2, CHANNELS / 2, ROWS, WIDTH));
    tri_fractional_pool_options o = {.kernel = KERNEL, .sizes = {HEIGHT, 3}};
    tri_value y = tri_fractional_max_pool(g, "l", x, o);
    tri_device *device = op_device_open(&tri_device_cpu, 1);
    op_session *session = op_session_open(g, device, false);
    fill_constants(session, g);
    for (int64_t i = 0; i < op_count(session, x); i++)
        op_set(session, x, i, (double)(i % (ROWS * WIDTH)));
    memset(op_host(session, tri_position(g)), 0, 2 * sizeof(int64_t));
    op_run_ok(session);
    int found[ROWS] = {0};
    for (int64_t c = 0; c < CHANNELS; c++) {
        int64_t before = 0;
        for (int64_t i = 0; i < HEIGHT; i++) {
            int64_t row = (int64_t)op_get(session, y, (c * HEIGHT + i) * 3) / WIDTH;
            if (i == 0) assert_int_equal(row, KERNEL - 1);
            if (i > 0) assert_in_range(row - before, 3, 3);
            if (i == HEIGHT - 1) assert_int_equal(row, ROWS - 1);
            int64_t last = (int64_t)op_get(session, y, (c * HEIGHT + i) * 3 + 1) % WIDTH;
            found[last]++;
            before = row;
        }
    }
    // The middle one of three windows of 7 columns begins at 2 or 3, each in half of the channels.
    assert_int_equal(found[3] + found[4], CHANNELS * HEIGHT);
    assert_in_range(found[3], CHANNELS * HEIGHT / 4, CHANNELS * HEIGHT * 3 / 4);
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(g);
}

// The gradient of x of a sum with factors, by the softmax or by the hard choice; *y: what it chose.
static void gumbel_gradient(bool hard, int64_t count, double *y, double *dx) {
    tri_graph *g = op_graph_open(TRI_F64);
    tri_value x = tri_parameter(g, "x", tri_shape_of(count / 5, 5), (tri_init){0});
    tri_value wave = tri_input(g, "wave", TRI_F64, tri_shape_of(count / 5, 5));
    tri_value p = (hard ? tri_gumbel_softmax_hard : tri_gumbel_softmax)(g, "l", x, 0.7, 1);
    tri_loss(g, tri_mean_loss(g, tri_mul(g, p, wave)));
    assert_int_equal(tri_pass_autodiff(g), TRI_OK);
    tri_device *device = op_device_open(&tri_device_ref, 1);
    op_session *session = op_session_open(g, device, false);
    fill_constants(session, g);
    for (int64_t i = 0; i < count; i++) op_set(session, x, i, i % 5 == 2 ? 1.5 : 0);
    fill_wave(session, wave, 3, 1, 0);
    memset(op_host(session, tri_position(g)), 0, 2 * sizeof(int64_t));
    op_set(session, g->scalars[TRI_SCALAR_SEED], 0, 1);
    op_run_ok(session);
    for (int64_t i = 0; i < count; i++) {
        y[i] = op_get(session, p, i);
        dx[i] = op_get(session, g->gradients[0].value, i);
    }
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(g);
}

// The hard choice is that of the softmax, as often as its probability, and has its gradient.
static void test_hard_choice(void **state) {
    enum { COUNT_OF_ALL = 5 * 400 };
    static double soft[COUNT_OF_ALL], hard[COUNT_OF_ALL], of_soft[COUNT_OF_ALL],
        of_hard[COUNT_OF_ALL];
    int favourites = 0;
    gumbel_gradient(false, COUNT_OF_ALL, soft, of_soft);
    gumbel_gradient(true, COUNT_OF_ALL, hard, of_hard);
    for (int i = 0; i < COUNT_OF_ALL; i++) {
        bool largest = true;
        for (int k = i - i % 5; k < i - i % 5 + 5; k++) largest = largest && soft[k] <= soft[i];
        assert_true(fabs(hard[i] - largest) < 1e-15);
        assert_true(fabs(of_hard[i] - of_soft[i]) < 1e-12);
        favourites += largest && i % 5 == 2;
    }
    assert_in_range(favourites, 185, 240); // of 400, with e^1.5 / (4 + e^1.5) = 0.53
}

// Evaluation drops nothing, and takes the mean slope.
static void test_random_layers_evaluate(void **state) {
    tri_graph *g = op_graph_open(TRI_F64);
    g->options.training = false;
    tri_value x = tri_input(g, "x", TRI_F64, tri_shape_of(2, 3, 4));
    assert_int_equal(tri_dropout(g, "a", x, 0.5).id, x.id);
    assert_int_equal(tri_dropout_channels(g, "b", x, 0.5).id, x.id);
    assert_int_equal(tri_alpha_dropout(g, "c", x, 0.5).id, x.id);
    assert_int_equal(tri_feature_alpha_dropout(g, "d", x, 0.5).id, x.id);
    assert_int_equal(tri_drop_path(g, "f", x, 0.5).id, x.id);
    tri_value y = tri_rrelu(g, "e", x, 0.1, 0.3);
    tri_device *device = op_device_open(&tri_device_ref, 1);
    op_session *session = op_session_open(g, device, false);
    for (int64_t i = 0; i < 24; i++) op_set(session, x, i, i % 2 ? 2 : -2);
    op_run_ok(session);
    for (int64_t i = 0; i < 24; i++)
        assert_true(fabs(op_get(session, y, i) - (i % 2 ? 2 : -0.4)) < 1e-12);
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(g);
}

// See op_graph_check_refused.
#define REFUSED(words, call)                                                                       \
    do {                                                                                           \
        tri_graph *g = op_graph_open(TRI_F32);                                                     \
        tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(2, 6, 4));                           \
        tri_value ids = tri_input(g, "ids", TRI_I64, tri_shape_of(2, 6, 4));                       \
        (void)x, (void)ids;                                                                        \
        (void)(call);                                                                              \
        op_graph_check_refused(g, words);                                                          \
    } while (0)

static void test_refuses(void **state) {
    OP_REFUSED("randint l|low < high|3|3", tri_shape_of(2),
               tri_randint(g, "l", tri_shape_of(2), 3, 3));
    OP_REFUSED("randint l|2^24", tri_shape_of(2),
               tri_randint(g, "l", tri_shape_of(2), -1, 1 << 24));
    OP_REFUSED("multinomial l|4 classes|[2, 3]", tri_shape_of(2, 3),
               tri_multinomial(g, "l", x, 4, false));
    OP_REFUSED("multinomial l|0 classes", tri_shape_of(2, 3), tri_multinomial(g, "l", x, 0, true));
    tri_embedding_options table = {.tokens = 5, .features = 4};
    tri_fractional_pool_options fractions = {.kernel = 3, .ratio = 0.5};
    REFUSED("bilinear l|[2, 6, 4]|[2, 5, 4]", BILINEAR(3, tri_shape_of(2, 5, 4)));
    REFUSED("bilinear l|features", BILINEAR(0, tri_shape_of(2, 6, 4)));
#define WEIGHTED_BAG(ids)                                                                          \
    tri_embedding_bag(g, "l", ids, (tri_embedding_bag_options){.embedding = table, .weights = x})
    REFUSED("embedding_bag l|weights", WEIGHTED_BAG(tri_select(g, ids, 2, 0)));
    REFUSED("embedding_bag l|[N, L]", WEIGHTED_BAG(ids));
    REFUSED("adaptive_log_softmax l|cutoffs|7 classes",
            ADAPTIVE(.classes = 7, .cutoffs = (int64_t[]){4, 2}, .count = 2));
    REFUSED("adaptive_log_softmax l|cluster 1|4",
            ADAPTIVE(.classes = 7, .cutoffs = (int64_t[]){2, 4}, .count = 2));
    REFUSED("fractional_max_pool|[2, 6, 4]", tri_fractional_max_pool(g, "l", x, fractions));
    tri_shape image = tri_shape_of(2, 6, 2, 2);
    REFUSED("fractional_max_pool l|1 windows of 3|2 elements",
            tri_fractional_max_pool(g, "l", tri_reshape(g, x, image), fractions));
    fractions.kernel = 1;
    fractions.sizes[0] = fractions.sizes[1] = 1;
    REFUSED("fractional_max_pool l|places|[2, 6, 2]|[2, 6, 4]",
            tri_fractional_max_pool(g, "l", tri_reshape(g, x, image),
                                    (fractions.places = x, fractions)));
    REFUSED("gumbel_softmax l|0", tri_gumbel_softmax_hard(g, "l", x, 0, -1));
    REFUSED("softmax|axis 3", tri_gumbel_softmax_hard(g, "l", x, 1, 3));
    REFUSED("weight_norm l|[3, 4]|2", WEIGHT(2, 3, 4));
    REFUSED("weight_norm l|impossible", WEIGHT(0, 3, 0));
    REFUSED("spectral_norm l|[3, 4]|-1", SPECTRAL(tri_shape_of(3, 4), .dim = -1));
    REFUSED("spectral_norm l|iterations", SPECTRAL(tri_shape_of(3, 4), .iterations = -1));
    REFUSED("linear l|weight_value|[3, 4]|[3, 5]", LINEAR(3, true, WEIGHT(0, 3, 5)));
    REFUSED("conv1d l|weight_value|[3, 6, 2]|[3, 5]",
            CONV(conv1d, 3, true, WEIGHT(0, 3, 5), .kernel = 2));
    REFUSED("linear l|weight and weight_value",
            tri_linear_with(g, "l", x,
                            (tri_linear_options){
                                .features = 3, .weight = "t", .weight_value = WEIGHT(0, 3, 4)}));
    REFUSED("rrelu l|0.3|0.1", tri_rrelu(g, "l", x, 0.3, 0.1));
    REFUSED("gumbel_softmax l|0", tri_gumbel_softmax(g, "l", x, 0, -1));
    REFUSED("dropout_channels l|2 axes|[48]",
            tri_dropout_channels(g, "l", tri_reshape(g, x, tri_shape_of(48)), 0.5));
    REFUSED("feature_alpha_dropout l|1.5", tri_feature_alpha_dropout(g, "l", x, 1.5));
    REFUSED("prelu l|5", tri_prelu(g, "l", x, 5));
    REFUSED("lp_pool|p > 0", tri_lp_pool(g, x, 0, (tri_pool_options){.kernel = 2}));
    REFUSED("lp_pool|padding", tri_lp_pool(g, x, 2, (tri_pool_options){.kernel = 2, .padding = 1}));
    REFUSED("local_response_norm|0", RESPONSE_NORM(.size = 0));
    REFUSED("channel_shuffle|4 groups|6", tri_channel_shuffle(g, x, 4));
    REFUSED("pad_reflect|4 elements|axis 2", tri_pad_reflect(g, x, -1, 0, 4));
    REFUSED("pad_circular|5 elements", tri_pad_circular(g, x, 2, 5, 0));
    REFUSED("pad_replicate|-1", tri_pad_replicate(g, x, 2, -1, 0));
    REFUSED("pad_reflect|axis 3", tri_pad_reflect(g, x, 3, 1, 0));
    tri_conv_options five = {.kernel = 5};
    REFUSED("unfold_images|4 axes", tri_unfold_images(g, x, five));
    REFUSED("fold_images|no window|4 x 6", tri_fold_images(g, x, 4, 6, five));
    REFUSED("fold_images|[N, C * 4, 9]|[2, 6, 4]",
            tri_fold_images(g, x, 4, 4, (tri_conv_options){.kernel = 2}));
    REFUSED("embedding l|padding 5", tri_embedding_padded(g, "l", ids, 5, table));
    REFUSED("embedding_bag l|[N, L]",
            tri_embedding_bag(g, "l", ids, (tri_embedding_bag_options){.embedding = table}));
    REFUSED("multi_margin_loss|[2, 6, 4]",
            tri_multi_margin_loss(g, x, ids, (tri_multi_margin_options){0}));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_padding_begins_as_zero),
        cmocka_unit_test(test_shared_spectral_norm),
        cmocka_unit_test(test_dropouts),
        cmocka_unit_test(test_random_numbers),
        cmocka_unit_test(test_random_integers),
        cmocka_unit_test(test_fractional_places),
        cmocka_unit_test(test_hard_choice),
        cmocka_unit_test(test_random_layers_evaluate),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
