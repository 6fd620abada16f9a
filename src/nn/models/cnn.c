// Convolutional models: mnist-cnn, mnist-convnet and denoise-cnn. Each function builds the model's
// graph; the planner calls it for each size of micro-batch. pass/pass.h lists what rewrites the
// graph next. tri_block begins a block: layers that are scheduled as one.
#include "nn/models/models.h"

#include <trireme/nn.h>

// The CNN of PyTorch's MNIST example.
static void mnist_cnn(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "conv1");
    tri_value x =
        tri_conv2d(g, "conv1", batch->images, (tri_conv2d_options){.channels = 32, .kernel = 3});
    x = tri_relu(g, x);
    tri_block(g, "conv2");
    x = tri_conv2d(g, "conv2", x, (tri_conv2d_options){.channels = 64, .kernel = 3});
    x = tri_max_pool2d(g, tri_relu(g, x), (tri_pool2d_options){.kernel = 2});
    x = tri_dropout(g, "dropout1", x, 0.25);
    tri_block(g, "fc1");
    x = tri_relu(g, tri_linear(g, "fc1", tri_flatten(g, x), 128));
    tri_split_layer(g, "fc1", TRI_SPLIT_COLUMN);
    x = tri_dropout(g, "dropout2", x, 0.5);
    tri_block(g, "fc2");
    x = tri_log_softmax(g, tri_linear(g, "fc2", x, model_classes(g, &model_mnist_cnn_options)));
    tri_split_layer(g, "fc2", TRI_SPLIT_ROW);
    tri_output(g, "logits", x);
    tri_loss(g, tri_nll_loss(g, x, model_labels(batch)));
}

const tri_task tri_model_mnist_cnn = {
    .name = "mnist-cnn", .build = mnist_cnn, .fields = {MODEL_IMAGES_28, MODEL_LABELS}};

// One of the two layers of the MNIST example of CSC (the Finnish supercomputing centre):
// convolution, batch norm, ReLU and pooling.
static tri_value convnet_layer(tri_graph *g, const char *convolution, const char *norm, tri_value x,
                               int64_t channels) {
    x = tri_conv2d(g, convolution, x,
                   (tri_conv2d_options){.channels = channels, .kernel = 5, .padding = 2});
    x = tri_batch_norm(g, norm, x, (tri_batch_norm_options){0});
    return tri_max_pool2d(g, tri_relu(g, x), (tri_pool2d_options){.kernel = 2});
}

static void mnist_convnet(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "layer1");
    tri_value x = convnet_layer(g, "layer1.0", "layer1.1", batch->images, 16);
    tri_block(g, "layer2");
    x = convnet_layer(g, "layer2.0", "layer2.1", x, 32);
    tri_block(g, "fc");
    x = tri_linear(g, "fc", tri_flatten(g, x), model_classes(g, &model_mnist_convnet_options));
    tri_output(g, "logits", x);
    tri_loss(g, tri_cross_entropy(g, x, model_labels(batch)));
}

const tri_task tri_model_mnist_convnet = {
    .name = "mnist-convnet", .build = mnist_convnet, .fields = {MODEL_IMAGES_28, MODEL_LABELS}};

typedef struct denoise_options {
    int64_t hidden;
} denoise_options;

static const tri_option denoise_rows[] = {
    TRI_OPTION_INT(denoise_options, hidden, "64", 1, 65536, "channels of the hidden layers"),
};

const tri_option_table model_denoise_cnn_options = TRI_OPTION_TABLE(
    "denoise-cnn", denoise_options, denoise_rows, "five convolutions, from image to image");

// One of the five layers of the denoising example of NERSC (a US supercomputing centre): a 3×3
// convolution that keeps the size of the image.
static tri_value denoise_layer(tri_graph *g, const char *name, tri_value x, int64_t channels) {
    x = tri_conv2d(g, name, x,
                   (tri_conv2d_options){.channels = channels, .kernel = 3, .padding = 1});
    return tri_leaky_relu(g, x, 0.01);
}

static void denoise_cnn(tri_graph *g, const tri_batch *batch) {
    static const char *const hidden[] = {"conv_hidden.0", "conv_hidden.1", "conv_hidden.2"};
    denoise_options o;
    if (!model_read_options(g, &model_denoise_cnn_options, &o)) return;
    int64_t width = o.hidden;
    tri_block(g, "conv_in");
    tri_value x = denoise_layer(g, "conv_in.0", batch->inputs, width);
    for (int i = 0; i < 3; i++) {
        tri_block(g, hidden[i]);
        x = denoise_layer(g, tri_name(g, "%s.0", hidden[i]), x, width);
    }
    tri_block(g, "conv_out");
    x = denoise_layer(g, "conv_out.0", x, 1);
    tri_output(g, "outputs", x);
    tri_loss(g, tri_mse_loss(g, x, batch->targets));
}

const tri_task tri_model_denoise_cnn = {
    .name = "denoise-cnn",
    .build = denoise_cnn,
    .fields = {{"inputs", TRI_F32, {3, {1, 128, 128}}}, {"targets", TRI_F32, {3, {1, 128, 128}}}}};
