// A model as a shared object, for test_odd.py: two branches begin with the output of the first
// block and end in the last one. So stages send each other values that other stages read too,
// forward and backward (one gradient goes to both branches), and may run before these are sent.
#include <trireme/trireme.h>

static void branches_net(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "stem");
    tri_value stem = tri_linear(g, "stem", tri_flatten(g, batch->images), 24);
    tri_block(g, "long1");
    tri_value x = tri_relu(g, tri_linear(g, "long1", stem, 24));
    tri_block(g, "long2");
    x = tri_relu(g, tri_linear(g, "long2", x, 24));
    tri_block(g, "short");
    tri_value y = tri_linear(g, "short", tri_relu(g, stem), 24);
    tri_block(g, "loss");
    tri_value scores = tri_linear(g, "head", tri_add(g, y, x), 10);
    tri_value loss = tri_cross_entropy(g, scores, batch->labels);
    tri_block(g, "penalty");
    tri_value small = tri_weighted(g, tri_mean_loss(g, tri_square(g, stem)), 0.05);
    tri_loss(g, tri_add(g, loss, small));
}

static const tri_task branches = {.name = "branches", .build = branches_net};

TRI_EXPORT_TASK(branches)
