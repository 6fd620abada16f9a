// The model vit: the Vision Transformer (Dosovitskiy and others 2020) as torchvision has it, with
// its options, parameters' names and initial weights.
#include "nn/models/models.h"

#include "base/limits.h"
#include "graph/graph.h"

#include <math.h>
#include <trireme/nn.h>
#include <trireme/transformer.h>

typedef struct vit_options {
    int64_t image_size, patch_size, num_layers, num_heads, hidden_dim, mlp_dim, num_classes;
    double dropout, attention_dropout;
} vit_options;

#define O vit_options
static const tri_option rows[] = {
    TRI_OPTION_INT(O, image_size, "224", 1, 65536, "height and width of the images"),
    TRI_OPTION_INT(O, patch_size, "16", 1, 65536,
                   "height and width of the patches into which an image is cut"),
    TRI_OPTION_INT(O, num_layers, "12", 1, TRI_MAX_MODEL_BLOCKS - 2, "layers of the encoder"),
    TRI_OPTION_INT(O, num_heads, "12", 1, INT32_MAX, "heads of the attention"),
    TRI_OPTION_INT(O, hidden_dim, "768", 1, INT32_MAX, "features of a patch"),
    TRI_OPTION_INT(O, mlp_dim, "3072", 1, INT32_MAX, "features between the MLP's layers"),
    TRI_OPTION_INT(O, num_classes, "1000", 1, TRI_MAX_CLASSES,
                   "outputs of the last layer: labels are below it"),
    TRI_OPTION_FLOAT(O, dropout, "0", 0, 1,
                     "rate of the dropout layers, less than 1; where a recipe sets it to 0, "
                     "attention_dropout is 0, too"),
    TRI_OPTION_FLOAT(O, attention_dropout, "0", 0, 1,
                     "rate at which the attention's probabilities are dropped; less than 1"),
};
#undef O

const tri_option_table model_vit_options =
    TRI_OPTION_TABLE("vit", vit_options, rows,
                     "the Vision Transformer, with torchvision's names; the defaults are ViT-B/16");

static const tri_layer_norm_options norm = {.eps = 1e-6};

// A linear layer of an encoder layer's MLP.
static tri_value mlp_layer(tri_graph *g, const char *name, tri_value x, int64_t features) {
    return tri_linear_with(
        g, name, x,
        (tri_linear_options){.features = features,
                             .weight_init = {.kind = TRI_INIT_XAVIER_UNIFORM},
                             .bias_init = {.kind = TRI_INIT_NORMAL, .std = 1e-6}});
}

static tri_value encoder_layer(tri_graph *g, const vit_options *o, const char *layer, tri_value x) {
    const char *fc1 = tri_name(g, "%s.mlp.0", layer), *fc2 = tri_name(g, "%s.mlp.3", layer);
    tri_value y = tri_layer_norm(g, tri_name(g, "%s.ln_1", layer), x, norm);
    y = tri_multihead_attention(
        g, tri_name(g, "%s.self_attention", layer), y, y, y,
        (tri_multihead_options){.heads = o->num_heads,
                                .attention = {.dropout = o->attention_dropout, .own_rate = true}});
    x = tri_add(g, x, tri_dropout(g, tri_name(g, "%s.dropout", layer), y, o->dropout));
    y = tri_layer_norm(g, tri_name(g, "%s.ln_2", layer), x, norm);
    y = tri_gelu(g, mlp_layer(g, fc1, y, o->mlp_dim));
    y = tri_dropout(g, tri_name(g, "%s.mlp.2", layer), y, o->dropout);
    y = mlp_layer(g, fc2, y, o->hidden_dim);
    tri_split_layer(g, fc1, TRI_SPLIT_COLUMN);
    tri_split_layer(g, fc2, TRI_SPLIT_ROW);
    return tri_add(g, x, tri_dropout(g, tri_name(g, "%s.mlp.4", layer), y, o->dropout));
}

static bool fits(tri_graph *g, const vit_options *o, tri_shape images) {
    int64_t size = o->image_size;
    if (size % o->patch_size)
        tri_graph_fail(g, "model.image_size (%lld) must be a multiple of model.patch_size (%lld)",
                       (long long)size, (long long)o->patch_size);
    if (o->hidden_dim % o->num_heads)
        tri_graph_fail(g, "model.hidden_dim (%lld) must be a multiple of model.num_heads (%lld)",
                       (long long)o->hidden_dim, (long long)o->num_heads);
    if (o->attention_dropout > 0 && o->dropout == 0 && tri_graph_model_option(g, "dropout"))
        tri_graph_fail(g,
                       "model.dropout 0 turns off all rates, and so model.attention_dropout "
                       "(%g): leave out model.dropout, or set both to 0",
                       o->attention_dropout);
    if (images.rank == 4 && (images.dims[2] != size || images.dims[3] != size))
        tri_graph_fail(g,
                       "images have %lld × %lld pixels, but model.image_size is %lld: set it, or "
                       "resize them by data.transform",
                       (long long)images.dims[2], (long long)images.dims[3], (long long)size);
    return tri_graph_status(g, NULL) == TRI_OK;
}

// The patches of the images as a sequence [N, T, hidden_dim] behind the class token, to which the
// places of the patches are added.
static tri_value embed(tri_graph *g, const vit_options *o, tri_value images) {
    tri_shape shape = tri_value_shape(g, images);
    int64_t n = shape.dims[0], channels = shape.dims[1], width = o->hidden_dim,
            across = o->image_size / o->patch_size, patches = across * across;
    double fan_in = (double)(channels * o->patch_size * o->patch_size);
    tri_value x = tri_conv2d(g, "conv_proj", images,
                             (tri_conv2d_options){.channels = width,
                                                  .kernel = o->patch_size,
                                                  .stride = o->patch_size,
                                                  .weight_init = {.kind = TRI_INIT_TRUNC_NORMAL,
                                                                  .std = sqrt(1 / fan_in)},
                                                  .bias_init = {.kind = TRI_INIT_ZEROS}});
    x = tri_transpose(g, tri_reshape(g, x, tri_shape_of(n, width, patches)), 1, 2);
    tri_value token = tri_parameter(g, "class_token", tri_shape_of(1, 1, width), (tri_init){0});
    tri_value both[] = {tri_expand(g, token, tri_shape_of(n, 1, width)), x};
    x = tri_concat(g, both, 2, 1);
    tri_value places =
        tri_parameter(g, "encoder.pos_embedding", tri_shape_of(1, patches + 1, width),
                      (tri_init){.kind = TRI_INIT_NORMAL, .std = 0.02});
    return tri_dropout(g, "encoder.dropout", tri_add(g, x, places), o->dropout);
}

static void vit(tri_graph *g, const tri_batch *batch) {
    vit_options o;
    if (!model_read_options(g, &model_vit_options, &o)) return;
    if (!fits(g, &o, tri_value_shape(g, batch->images))) return;
    tri_block(g, "embed");
    tri_value x = embed(g, &o, batch->images);
    for (int64_t i = 0; i < o.num_layers; i++) {
        const char *layer = tri_name(g, "encoder.layers.encoder_layer_%lld", (long long)i);
        tri_block(g, tri_name(g, "encoder_layer_%lld", (long long)i));
        x = encoder_layer(g, &o, layer, x);
    }
    tri_block(g, "head");
    x = tri_layer_norm(g, "encoder.ln", x, norm);
    x = tri_flatten(g, tri_slice(g, x, 1, 0, 1, 1)); // the class token
    x = tri_linear_with(g, "heads.head", x,
                        (tri_linear_options){.features = o.num_classes,
                                             .weight_init = {.kind = TRI_INIT_ZEROS},
                                             .bias_init = {.kind = TRI_INIT_ZEROS}});
    tri_output(g, "logits", x);
    tri_loss(g, tri_cross_entropy(g, x, model_labels(batch)));
}

const tri_task tri_model_vit = {
    .name = "vit", .build = vit, .fields = {{"images", TRI_F32, {3, {3, 224, 224}}}, MODEL_LABELS}};
