// A model for test_norms.py: layers that normalise, with statistics that training keeps or with
// parts of their parameters left out.
#include <trireme/trireme.h>

static void norms(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "images");
    tri_value x = tri_instance_norm(
        g, "in", batch->images,
        (tri_instance_norm_options){.affine = true, .tracks = true, .momentum = 0.3});
    x = tri_conv2d(g, "conv", x, (tri_conv_options){.channels = 4, .kernel = 2});
    x = tri_instance_norm(g, "plain", x,
                          (tri_instance_norm_options){.tracks = true, .cumulative = true});
    tri_block(g, "batch");
    x = tri_linear(g, "wide", tri_flatten(g, tri_relu(g, x)), 12);
    tri_split_layer(g, "wide", TRI_SPLIT_COLUMN);
    x = tri_batch_norm(g, "bn", x, (tri_batch_norm_options){.cumulative = true, .plain = true});
    tri_block(g, "head");
    x = tri_layer_norm(g, "ln", tri_tanh(g, x), (tri_layer_norm_options){.no_bias = true});
    x = tri_rms_norm_with(g, "rms", tri_linear(g, "fc", x, 3),
                          (tri_rms_norm_options){.plain = true});
    tri_loss(g, tri_cross_entropy(g, x, batch->labels));
}

static const tri_task task = {
    .name = "norms",
    .build = norms,
    .fields = {{"images", TRI_F32, {3, {2, 3, 3}}}, {"labels", TRI_I64, {0}}}};

TRI_EXPORT_TASK(task)
