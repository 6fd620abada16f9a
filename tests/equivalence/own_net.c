// A model as a shared object, for test_odd.py: parameters of its own, as a vision transformer has
// them (a class token, a position embedding, a scale that two blocks read), a buffer and constants.
#include <math.h>
#include <trireme/trireme.h>

enum { PATCHES = 9, PATCH = 16, WIDTH = 24, TOKENS = PATCHES + 1, CLASSES = 10 };

static tri_value positions(tri_graph *g) {
    float waves[TOKENS * WIDTH];
    for (int i = 0; i < TOKENS * WIDTH; i++) {
        double angle = i / WIDTH * pow(100, -(double)(i % WIDTH / 2 * 2) / WIDTH);
        waves[i] = (float)(i % 2 ? cos(angle) : sin(angle));
    }
    return tri_constant(g, "waves", tri_shape_of(TOKENS, WIDTH), waves);
}

static void own_net(tri_graph *g, const tri_batch *batch) {
    int64_t n = batch->size;
    tri_init truncated = {.kind = TRI_INIT_TRUNC_NORMAL, .std = 0.5, .low = -1, .high = 1};
    tri_block(g, "embed");
    tri_value patches = tri_reshape(g, batch->images, tri_shape_of(n, PATCHES, PATCH));
    tri_value x = tri_linear_with(g, "patches", patches,
                                  (tri_linear_options){.features = WIDTH,
                                                       .weight_init = {.kind = TRI_INIT_ORTHOGONAL},
                                                       .bias_init = {.kind = TRI_INIT_ZEROS}});
    tri_value token = tri_parameter(g, "class_token", tri_shape_of(1, 1, WIDTH), truncated);
    token = tri_expand(g, token, tri_shape_of(n, 1, WIDTH));
    x = tri_concat(g, (tri_value[]){token, x}, 2, 1);
    tri_init small = {.kind = TRI_INIT_NORMAL, .std = 0.1};
    tri_value learned = tri_add(
        g, tri_parameter(g, "embed.positions", tri_shape_of(1, TOKENS, WIDTH), small),
        tri_reshape(g, tri_parameter(g, "embed.offsets", tri_shape_of(TOKENS * WIDTH), small),
                    tri_shape_of(1, TOKENS, WIDTH)));
    x = tri_add(g, tri_add(g, x, positions(g)), learned);
    tri_value scale = tri_parameter(g, "scale", tri_shape_of(WIDTH),
                                    (tri_init){.kind = TRI_INIT_CONSTANT, .value = 0.5});
    tri_value fixed = tri_register_buffer(g, "fixed", tri_shape_of(WIDTH, WIDTH),
                                          (tri_init){.kind = TRI_INIT_XAVIER_NORMAL, .gain = 0.5});
    tri_block(g, "mix");
    tri_value normed = tri_spectral_norm(g, "normed", tri_shape_of(WIDTH, WIDTH),
                                         (tri_spectral_norm_options){.dim = 0});
    x = tri_linear_with(g, "normed", x,
                        (tri_linear_options){.features = WIDTH, .weight_value = normed});
    x = tri_add(g, x, tri_mul(g, tri_matmul(g, tri_gelu(g, x), fixed), scale));
    tri_value y = tri_gelu(g, tri_linear(g, "up", x, 2 * WIDTH));
    tri_split_layer(g, "up", TRI_SPLIT_COLUMN);
    y = tri_linear(g, "down", y, WIDTH);
    tri_split_layer(g, "down", TRI_SPLIT_ROW);
    tri_block(g, "head");
    x = tri_mul(g, tri_select(g, tri_add(g, x, y), 1, 0), scale);
    tri_value scores =
        tri_linear(g, "head", tri_layer_norm(g, "norm", x, (tri_layer_norm_options){0}), CLASSES);
    // Classes with weights, of which one is left out, alone or beside a loss with another count.
    float weights[CLASSES];
    for (int k = 0; k < CLASSES; k++) weights[k] = (float)(k % 4) / 2;
    tri_value labels = tri_ignore_label(g, batch->labels, tri_model_int(g, "ignored", 7));
    tri_value loss = tri_cross_entropy_with(
        g, scores, labels,
        (tri_label_loss_options){.class_weights = weights, .label_smoothing = 0.1});
    if (tri_model_bool(g, "alone", false)) {
        tri_loss(g, loss);
        return;
    }
    tri_value pixels = tri_flatten(g, batch->images), again = tri_linear(g, "again", x, 144);
    tri_value mask = tri_map(g, "x > 0.2", pixels);
    again = tri_map(g, "x, y, m -> m * (x - y) ^ 2", pixels, again, mask);
    tri_metric(g, "masked", tri_ratio_loss(g, again, mask));
    tri_loss(g, tri_add(g, loss, tri_weighted(g, tri_mean_loss(g, again), 0.5)));
}

static const tri_task own = {.name = "own", .build = own_net};

TRI_EXPORT_TASK(own)
