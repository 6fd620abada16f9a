// A model as a shared object, for test_odd.py, which runs it on several ranks. It is easy to divide
// wrongly into pipeline stages and shards: its first block and two others have no parameters;
// values skip blocks; three blocks share a weight; one layer makes a single number; the rows of one
// layer are parts of samples.
#include <trireme/trireme.h>

static void odd_net(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "noise");
    tri_value flat = tri_flatten(g, batch->images);
    int64_t size = tri_value_shape(g, flat).dims[1];
    tri_value x = tri_dropout(g, "noise", flat, 0.2);
    tri_share_layer(g, "shared");
    tri_block(g, "first");
    tri_value first = tri_relu(g, tri_linear(g, "shared", x, size));
    tri_block(g, "second");
    tri_value second = tri_relu(g, tri_linear(g, "shared", tri_add(g, first, flat), size));
    tri_block(g, "add");
    tri_value sum = tri_add(g, second, first);
    tri_shape samples = tri_value_shape(g, sum); // dropout of samples in several rows
    sum = tri_dropout(g, "rows", tri_reshape(g, sum, tri_shape_of(samples.dims[0] * size, 1)), 0.1);
    sum = tri_reshape(g, sum, samples);
    tri_block(g, "third");
    tri_value third = tri_linear(g, "shared", tri_relu(g, sum), size);
    tri_block(g, "narrow");
    tri_value one = tri_linear(g, "narrow", tri_add(g, third, x), 1);
    tri_block(g, "head");
    tri_value scores = tri_linear(g, "head", tri_add(g, third, first), 10);
    scores = tri_add(g, scores, tri_linear(g, "wide", one, 10));
    tri_block(g, "loss");
    tri_loss(g, tri_cross_entropy(g, scores, batch->labels));
}

static const tri_task odd = {.name = "odd", .build = odd_net};

TRI_EXPORT_TASK(odd)
