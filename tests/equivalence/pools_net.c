// A model as a shared object, for test_odd.py. It has layers that image networks use beside
// convolutions: concatenation along the channels, average pooling over windows and over whole
// channels, gates (sigmoid), and a second loss, binary cross-entropy, on numbers from 0 to 1.
#include <trireme/trireme.h>

static tri_value conv(tri_graph *g, const char *name, tri_value x, int64_t channels) {
    tri_conv2d_options options = {.channels = channels, .kernel = 3, .padding = 1};
    return tri_conv2d(g, name, x, options);
}

static void pools_net(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "first");
    tri_value x = tri_tanh(g, conv(g, "c1", batch->images, 5));
    tri_block(g, "gate");
    tri_value gated = tri_sigmoid(g, conv(g, "c2", x, 11));
    x = tri_concat(g, (tri_value[]){x, gated, batch->images}, 3, 1);
    tri_block(g, "pool");
    x = tri_avg_pool2d(g, x, (tri_pool2d_options){.kernel = 3, .stride = 2, .padding = 1});
    x = tri_tanh(g, conv(g, "c3", x, 32));
    tri_block(g, "head");
    tri_value mean = tri_adaptive_avg_pool2d(g, x, 1), parts = tri_adaptive_avg_pool2d(g, x, 4);
    x = tri_concat(g, (tri_value[]){tri_flatten(g, mean), tri_flatten(g, parts)}, 2, -1);
    x = tri_sigmoid(g, tri_linear(g, "up", x, 16));
    tri_split_layer(g, "up", TRI_SPLIT_COLUMN);
    x = tri_linear(g, "down", x, 10);
    tri_split_layer(g, "down", TRI_SPLIT_ROW);
    tri_value image = tri_reshape(g, batch->images, tri_shape_of(batch->size, -1));
    tri_value again = tri_linear(g, "again", x, tri_value_shape(g, image).dims[1]);
    tri_loss(g, tri_add(g, tri_cross_entropy(g, x, batch->labels),
                        tri_weighted(g, tri_binary_cross_entropy(g, again, image), 0.5)));
}

static const tri_task pools = {.name = "pools", .build = pools_net};

TRI_EXPORT_TASK(pools)
