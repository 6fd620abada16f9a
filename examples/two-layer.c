// A user's own model. As a program, it has the whole command line of trireme:
//     cc two-layer.c -o two-layer $(pkg-config --cflags --libs trireme)
//     ./two-layer train two-layer.yaml
// As a shared object, it is a model that a recipe can name (model.name):
//     cc -shared -fPIC two-layer.c -o two-layer.so $(pkg-config --cflags trireme)
//     trireme train two-layer.yaml model.name=./two-layer.so
#include <trireme/trireme.h>

static void two_layer_net(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "hidden");
    tri_value x = tri_relu(g, tri_linear(g, "fc1", tri_flatten(g, batch->images), 512));
    tri_block(g, "head");
    x = tri_linear(g, "fc2", x, 10);
    tri_output(g, "logits", x);
    tri_loss(g, tri_cross_entropy(g, x, batch->labels));
}

static const tri_task two_layer = {.name = "two-layer", .build = two_layer_net};

TRI_EXPORT_TASK(two_layer)

int main(int argc, char **argv) { return tri_main(argc, argv, &two_layer); }
