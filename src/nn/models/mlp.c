// Models of linear layers only: autoencoder and mlp-jax.
#include "nn/models/models.h"

#include <trireme/nn.h>

// 784-64-3-64-784 with ReLU inside encoder and decoder: the network of PyTorch Lightning's first
// example.
static void autoencoder(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "encoder");
    tri_value images = tri_flatten(g, batch->images);
    int64_t pixels = tri_value_shape(g, images).dims[1];
    tri_value x = tri_relu(g, tri_linear(g, "encoder.0", images, 64));
    x = tri_linear(g, "encoder.2", x, 3);
    tri_block(g, "decoder");
    x = tri_relu(g, tri_linear(g, "decoder.0", x, 64));
    x = tri_linear(g, "decoder.2", x, pixels);
    tri_output(g, "outputs", x);
    tri_loss(g, tri_mse_loss(g, x, images));
}

const tri_task tri_model_autoencoder = {
    .name = "autoencoder", .build = autoencoder, .fields = {MODEL_IMAGES_28, MODEL_LABELS}};

// 784-512-512-10 with ReLU: the network of the first example of JAX's tutorials. Data without
// images, such as tables, have inputs.
static void mlp_jax(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "fc1");
    tri_value data = tri_flatten(g, batch->images.id ? batch->images : batch->inputs);
    tri_value x = tri_relu(g, tri_linear(g, "fc1", data, 512));
    tri_block(g, "fc2");
    x = tri_relu(g, tri_linear(g, "fc2", x, 512));
    tri_block(g, "fc3");
    x = tri_linear(g, "fc3", x, model_classes(g, &model_mlp_jax_options));
    tri_output(g, "logits", x);
    tri_loss(g, tri_cross_entropy(g, x, model_labels(batch)));
}

const tri_task tri_model_mlp_jax = {
    .name = "mlp-jax", .build = mlp_jax, .fields = {MODEL_IMAGES_28, MODEL_LABELS}};
