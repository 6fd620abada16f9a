// A model as a shared object, for test_odd.py. As a pipeline it sends more values from stage to
// stage than usual: the second block reads the outputs of all 100 dropout layers of the first. It
// normalises after adding each of them, so that the result changes if two values are exchanged.
#include <stdio.h>
#include <trireme/trireme.h>

enum { LAYERS = 100, FEATURES = 8 };

static void wide_net(tri_graph *g, const tri_batch *batch) {
    tri_value kept[LAYERS];
    tri_block(g, "down");
    tri_value x = tri_linear(g, "first", tri_flatten(g, batch->images), FEATURES);
    for (int i = 0; i < LAYERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "drop%d", i);
        kept[i] = tri_dropout(g, name, x, 0.2);
    }
    tri_block(g, "up");
    tri_share_layer(g, "norm");
    for (int i = 0; i < LAYERS; i++)
        x = tri_layer_norm(g, "norm", tri_add(g, x, kept[i]), (tri_layer_norm_options){0});
    tri_block(g, "head");
    tri_value scores = tri_linear(g, "middle", x, FEATURES);
    tri_loss(g, tri_cross_entropy(g, tri_linear(g, "last", scores, 10), batch->labels));
}

static const tri_task wide = {.name = "wide", .build = wide_net};

TRI_EXPORT_TASK(wide)
