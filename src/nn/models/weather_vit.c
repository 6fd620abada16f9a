// The model weather-vit: the Vision Transformer that forecasts weather in NERSC's tutorial of
// deep learning at scale (SC23), with its options, parameters' names and initial weights. It makes
// fields [N, n_out_channels, H, W] of fields [N, n_in_channels, H, W].
#include "nn/models/models.h"

#include "base/limits.h"

#include <trireme/more_layers.h>
#include <trireme/nn.h>

typedef struct weather_options {
    tri_ints img_size;
    int64_t patch_size, n_in_channels, n_out_channels, embed_dim, depth, num_heads, mlp_ratio;
    double dropout;
} weather_options;

#define O weather_options
static const tri_option rows[] = {
    TRI_OPTION_INTS(O, img_size, "[360, 720]", 1, 65536, 2, "height and width of the fields"),
    TRI_OPTION_INT(O, patch_size, "8", 1, 65536,
                   "height and width of the patches into which a field is cut"),
    TRI_OPTION_INT(O, n_in_channels, "20", 1, 65536, "fields from which the model computes"),
    TRI_OPTION_INT(O, n_out_channels, "20", 1, 65536, "fields that it makes"),
    TRI_OPTION_INT(O, embed_dim, "384", 1, 1 << 20, "features of a patch"),
    TRI_OPTION_INT(O, depth, "12", 1, TRI_MAX_MODEL_BLOCKS - 2, "layers"),
    TRI_OPTION_INT(O, num_heads, "8", 1, 65536, "heads of the attention"),
    TRI_OPTION_INT(O, mlp_ratio, "4", 1, 1024,
                   "how many times as many features there are between the MLP's layers"),
    TRI_OPTION_FLOAT(O, dropout, "0", 0, 1,
                     "rate of the dropout layers, and of leaving out whole layers, which rises to "
                     "it from 0 in the first one; less than 1"),
};
#undef O

const tri_option_table model_weather_vit_options =
    TRI_OPTION_TABLE("weather-vit", weather_options, rows,
                     "a Vision Transformer from weather to weather, as in NERSC's tutorial");

static const tri_layer_norm_options norm = {.eps = 1e-6};
static const tri_init normal = {.kind = TRI_INIT_TRUNC_NORMAL, .std = 0.02};

static tri_value linear(tri_graph *g, const char *name, tri_value x, int64_t features) {
    return tri_linear_with(g, name, x,
                           (tri_linear_options){.features = features,
                                                .weight_init = normal,
                                                .bias_init = {.kind = TRI_INIT_ZEROS}});
}

static tri_value attend(tri_graph *g, const weather_options *o, const char *name, tri_value x) {
    tri_shape shape = tri_value_shape(g, x);
    int64_t n = shape.dims[0], t = shape.dims[1], width = shape.dims[2];
    const char *qkv = tri_name(g, "%s.qkv", name), *proj = tri_name(g, "%s.proj", name);
    tri_value y = linear(g, qkv, x, 3 * width), heads[3];
    tri_split_fused_layer(g, qkv, 3);
    for (int i = 0; i < 3; i++)
        heads[i] = tri_reshape(g, tri_chunk(g, y, 2, 3, i),
                               tri_shape_of(n, t, o->num_heads, width / o->num_heads));
    y = tri_attention(g, tri_name(g, "%s.attention", name), heads[0], heads[1], heads[2],
                      (tri_attention_options){.dropout = o->dropout});
    y = linear(g, proj, tri_reshape(g, y, shape), width);
    tri_split_layer(g, proj, TRI_SPLIT_ROW);
    return tri_dropout(g, tri_name(g, "%s.proj_drop", name), y, o->dropout);
}

static tri_value mlp(tri_graph *g, const weather_options *o, const char *name, tri_value x) {
    const char *fc1 = tri_name(g, "%s.fc1", name), *fc2 = tri_name(g, "%s.fc2", name);
    tri_value y = tri_gelu(g, linear(g, fc1, x, o->embed_dim * o->mlp_ratio));
    y = tri_dropout(g, tri_name(g, "%s.drop1", name), y, o->dropout);
    y = linear(g, fc2, y, o->embed_dim);
    tri_split_layer(g, fc1, TRI_SPLIT_COLUMN);
    tri_split_layer(g, fc2, TRI_SPLIT_ROW);
    return tri_dropout(g, tri_name(g, "%s.drop2", name), y, o->dropout);
}

static tri_value layer(tri_graph *g, const weather_options *o, int64_t number, tri_value x) {
    const char *name = tri_name(g, "blocks.%lld", (long long)number);
    double path = o->depth > 1 ? o->dropout * (double)number / (double)(o->depth - 1) : 0;
    tri_value y = tri_layer_norm(g, tri_name(g, "%s.norm1", name), x, norm);
    y = attend(g, o, tri_name(g, "%s.attn", name), y);
    x = tri_add(g, x, tri_drop_path(g, tri_name(g, "%s.drop_path1", name), y, path));
    y = tri_layer_norm(g, tri_name(g, "%s.norm2", name), x, norm);
    y = mlp(g, o, tri_name(g, "%s.mlp", name), y);
    return tri_add(g, x, tri_drop_path(g, tri_name(g, "%s.drop_path2", name), y, path));
}

static bool fits(tri_graph *g, const weather_options *o, tri_shape in) {
    long long h = o->img_size.items[0], w = o->img_size.items[1];
    if (h % o->patch_size || w % o->patch_size)
        tri_graph_fail(g,
                       "model.img_size [%lld, %lld] must be multiples of model.patch_size (%lld)",
                       h, w, (long long)o->patch_size);
    if (o->embed_dim % o->num_heads)
        tri_graph_fail(g, "model.embed_dim (%lld) must be a multiple of model.num_heads (%lld)",
                       (long long)o->embed_dim, (long long)o->num_heads);
    if (in.rank != 4 || in.dims[1] != o->n_in_channels || in.dims[2] != h || in.dims[3] != w) {
        char text[128];
        tri_graph_fail(g,
                       "inputs %s do not fit the model: it takes [N, %lld, %lld, %lld], as "
                       "model.n_in_channels and model.img_size say",
                       tri_shape_text(&in, text, sizeof text), (long long)o->n_in_channels, h, w);
    }
    return tri_graph_status(g, NULL) == TRI_OK;
}

static void weather_vit(tri_graph *g, const tri_batch *batch) {
    weather_options o;
    if (!model_read_options(g, &model_weather_vit_options, &o)) return;
    if (!fits(g, &o, tri_value_shape(g, batch->inputs))) return;
    int64_t n = batch->size, p = o.patch_size, h = o.img_size.items[0] / p,
            w = o.img_size.items[1] / p, c = o.n_out_channels;
    tri_block(g, "embed");
    tri_value x =
        tri_conv2d(g, "patch_embed.proj", batch->inputs,
                   (tri_conv2d_options){.channels = o.embed_dim, .kernel = p, .stride = p});
    x = tri_transpose(g, tri_reshape(g, x, tri_shape_of(n, o.embed_dim, h * w)), 1, 2);
    x = tri_add(g, x, tri_parameter(g, "pos_embed", tri_shape_of(1, h * w, o.embed_dim), normal));
    x = tri_dropout(g, "pos_drop", x, o.dropout);
    for (int64_t i = 0; i < o.depth; i++) {
        tri_block(g, tri_name(g, "blocks.%lld", (long long)i));
        x = layer(g, &o, i, x);
    }
    tri_block(g, "head");
    x = tri_layer_norm(g, "norm", x, norm);
    x = tri_linear_with(
        g, "head", x,
        (tri_linear_options){.features = p * p * c, .no_bias = true, .weight_init = normal});
    // [n, h, w, p, q, c], the pixels of each patch, → [n, c, h, p, w, q]
    x = tri_permute(g, tri_reshape(g, x, tri_shape_of(n, h, w, p, p, c)),
                    (int[]){0, 5, 1, 3, 2, 4});
    x = tri_reshape(g, x, tri_shape_of(n, c, h * p, w * p));
    tri_output(g, "outputs", x);
    tri_loss(g, tri_relative_l2_loss(g, x, batch->targets));
}

const tri_task tri_model_weather_vit = {.name = "weather-vit",
                                        .build = weather_vit,
                                        .fields = {{"inputs", TRI_F32, {3, {20, 360, 720}}},
                                                   {"targets", TRI_F32, {3, {20, 360, 720}}}}};
