// A model as a shared object, for test_odd.py: a second head shares the weights of the first. While
// the model trains, nothing reads its scores; in evaluation a metric does. model.early: the head
// stands nowhere (0), before the layers in the middle (1), or at the end of the network (2).
#include <trireme/trireme.h>

static void add_exit(tri_graph *g, tri_value x, tri_value labels) {
    tri_metric(g, "early_accuracy", tri_accuracy(g, tri_linear(g, "head", x, 10), labels));
}

static void early_net(tri_graph *g, const tri_batch *batch) {
    int64_t early = tri_model_int(g, "early", 1);
    tri_share_layer(g, "head");
    tri_block(g, "stem");
    tri_value x = tri_relu(g, tri_linear(g, "stem", tri_flatten(g, batch->images), 24));
    tri_value first = x;
    tri_block(g, "exit");
    if (early == 1) add_exit(g, first, batch->labels);
    tri_block(g, "middle");
    x = tri_add(g, x, tri_relu(g, tri_linear(g, "middle", x, 24)));
    tri_block(g, "loss");
    tri_loss(g, tri_cross_entropy(g, tri_linear(g, "head", x, 10), batch->labels));
    tri_block(g, "end");
    if (early == 2) add_exit(g, first, batch->labels);
}

static const tri_task early = {.name = "early", .build = early_net};

TRI_EXPORT_TASK(early)
