// The model resnet: residual networks (He, Zhang, Ren, Sun 2015) as torchvision has them, with its
// parameters' names and initial weights. In a bottleneck the 3×3 convolution has the stride
// ("ResNet v1.5").
#include "nn/models/models.h"

#include "base/limits.h"

#include <trireme/nn.h>

typedef struct resnet_options {
    int64_t num_classes;
    int depth, stem;
} resnet_options;

enum { STEM_IMAGENET, STEM_CIFAR };
enum { STAGES = 4 };

static const char *const depths[] = {"18", "34", "50", "101", "152", NULL};
static const char *const stems[] = {"imagenet", "cifar", NULL};

// By depth: the residual blocks of each stage, and whether they are bottlenecks.
static const struct {
    int blocks[STAGES];
    bool is_bottleneck;
} kinds[] = {
    {{2, 2, 2, 2}, false}, {{3, 4, 6, 3}, false}, {{3, 4, 6, 3}, true},
    {{3, 4, 23, 3}, true}, {{3, 8, 36, 3}, true},
};

static const tri_option rows[] = {
    TRI_OPTION_CHOICE(resnet_options, depth, "50", depths, "layers with weights"),
    TRI_OPTION_INT(resnet_options, num_classes, "1000", 1, TRI_MAX_CLASSES,
                   "outputs of the last layer: labels are below it"),
    TRI_OPTION_CHOICE(resnet_options, stem, "imagenet", stems,
                      "what stands before the blocks: for images of about 224 pixels a convolution "
                      "of 7 with stride 2 and a pool, for those of 32 a convolution of 3 alone"),
};

const tri_option_table model_resnet_options =
    TRI_OPTION_TABLE("resnet", resnet_options, rows,
                     "residual networks of images, with torchvision's names: depth 18 to 152");

// A convolution of `kernel` that keeps the size of the image, or divides it by `stride`, and its
// batch norm.
static tri_value conv_norm(tri_graph *g, const char *conv, const char *norm, tri_value x,
                           int64_t channels, int64_t kernel, int64_t stride) {
    x = tri_conv2d(g, conv, x,
                   (tri_conv2d_options){
                       .channels = channels,
                       .kernel = kernel,
                       .stride = stride,
                       .padding = kernel / 2,
                       .no_bias = true,
                       .weight_init = {.kind = TRI_INIT_KAIMING_NORMAL,
                                       .fan_out = true,
                                       .nonlinearity = TRI_NONLINEARITY_RELU},
                   });
    return tri_batch_norm(g, norm, x, (tri_batch_norm_options){0});
}

// Convolution and batch norm number `number` of a block.
static tri_value layer(tri_graph *g, const char *block, int number, tri_value x, int64_t channels,
                       int64_t kernel, int64_t stride) {
    return conv_norm(g, tri_name(g, "%s.conv%d", block, number),
                     tri_name(g, "%s.bn%d", block, number), x, channels, kernel, stride);
}

static tri_value residual_block(tri_graph *g, const char *block, tri_value x, int64_t width,
                                bool is_bottleneck, int64_t stride) {
    int64_t channels = is_bottleneck ? 4 * width : width;
    tri_value y;
    if (is_bottleneck) {
        y = tri_relu(g, layer(g, block, 1, x, width, 1, 1));
        y = tri_relu(g, layer(g, block, 2, y, width, 3, stride));
        y = layer(g, block, 3, y, channels, 1, 1);
    } else {
        y = tri_relu(g, layer(g, block, 1, x, width, 3, stride));
        y = layer(g, block, 2, y, width, 3, 1);
    }
    if (stride != 1 || tri_value_shape(g, x).dims[1] != channels)
        x = conv_norm(g, tri_name(g, "%s.downsample.0", block),
                      tri_name(g, "%s.downsample.1", block), x, channels, 1, stride);
    return tri_relu(g, tri_add(g, y, x));
}

static void resnet(tri_graph *g, const tri_batch *batch) {
    resnet_options o;
    if (!model_read_options(g, &model_resnet_options, &o)) return;
    bool is_small = o.stem == STEM_CIFAR;
    tri_block(g, "stem");
    tri_value x =
        conv_norm(g, "conv1", "bn1", batch->images, 64, is_small ? 3 : 7, is_small ? 1 : 2);
    x = tri_relu(g, x);
    if (!is_small)
        x = tri_max_pool2d(g, x, (tri_pool2d_options){.kernel = 3, .stride = 2, .padding = 1});
    for (int stage = 0; stage < STAGES; stage++)
        for (int i = 0; i < kinds[o.depth].blocks[stage]; i++) {
            const char *name = tri_name(g, "layer%d.%d", stage + 1, i);
            tri_block(g, name);
            x = residual_block(g, name, x, (int64_t)64 << stage, kinds[o.depth].is_bottleneck,
                               stage > 0 && i == 0 ? 2 : 1);
        }
    tri_block(g, "fc");
    x = tri_linear(g, "fc", tri_flatten(g, tri_adaptive_avg_pool2d(g, x, 1)), o.num_classes);
    tri_output(g, "logits", x);
    tri_loss(g, tri_cross_entropy(g, x, model_labels(batch)));
}

const tri_task tri_model_resnet = {
    .name = "resnet",
    .build = resnet,
    .fields = {{"images", TRI_F32, {3, {3, 224, 224}}}, MODEL_LABELS}};
