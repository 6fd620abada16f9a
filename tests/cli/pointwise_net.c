// A model of 1 x 1 convolutions, for a test (test_cuda.py) in which two ranks keep images in
// different memory layouts and must be refused. With larger convolutions the weights would then
// have different layouts too, and the ranks would be refused for that. Weights of 1 x 1
// convolutions have the same layout for every layout of images, so that only the images differ.
#include <trireme/trireme.h>

static tri_value pointwise(tri_graph *g, const char *name, tri_value x) {
    tri_block(g, name);
    return tri_relu(g, tri_conv2d(g, name, x, (tri_conv2d_options){.channels = 8, .kernel = 1}));
}

static void pointwise_net(tri_graph *g, const tri_batch *batch) {
    tri_value x = pointwise(g, "first", batch->images);
    x = pointwise(g, "second", x);
    x = pointwise(g, "third", x);
    x = pointwise(g, "fourth", x);
    tri_block(g, "head");
    x = tri_flatten(g, tri_adaptive_avg_pool2d(g, x, 1));
    tri_loss(g, tri_cross_entropy(g, tri_linear(g, "head", x, 10), batch->labels));
}

static const tri_task task = {.name = "pointwise", .build = pointwise_net};

TRI_EXPORT_TASK(task)
