// A model as a shared object, for test_odd.py: layers of image networks beside those of
// pools_net.c, in blocks that pipelines divide.
#include <trireme/trireme.h>

static void layers_net(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "first");
    tri_value x = tri_conv2d(g, "c1", batch->images,
                             (tri_conv2d_options){.channels = 32, .kernel = 3, .padding = 1});
    x = tri_silu(g, tri_group_norm(g, "n1", x, (tri_group_norm_options){.groups = 4}));
    tri_block(g, "second");
    x = tri_conv2d(g, "depth", x, (tri_conv_options){.channels = 32, .kernel = 3, .groups = 32});
    x = tri_conv2d(g, "c2", x, (tri_conv_options){.channels = 6, .kernels = {2, 3}, .same = true});
    x = tri_instance_norm(g, "n2", x, (tri_instance_norm_options){.affine = true});
    tri_block(g, "third");
    x = tri_layer_norm(g, "n3", tri_tanh(g, x), (tri_layer_norm_options){.axes = 3});
    tri_conv_options up = {.channels = 3, .kernel = 2, .stride = 2};
    up.weight_value = tri_spectral_norm(g, "up2", tri_shape_of(6, 3, 2, 2),
                                        (tri_spectral_norm_options){.dim = 1, .iterations = 2});
    x = tri_conv_transpose2d(g, "up2", x, up);
    x = tri_interpolate(g, x, (tri_interpolate_options){.sizes = {14, 17}, .linear = true});
    tri_shape volume = tri_value_shape(g, x);
    tri_value frames = tri_reshape(g, x, tri_shape_of(batch->size, 1, 3, 14, 17));
    frames = tri_conv3d(g, "frames", frames, (tri_conv_options){.channels = 2, .kernel = 2});
    frames =
        tri_conv_transpose3d(g, "back", frames, (tri_conv_options){.channels = 1, .kernel = 2});
    x = tri_add(g, x, tri_reshape(g, frames, volume));
    x = tri_adaptive_max_pool(g, x, (const int64_t[]){7, 4});
    tri_shape rows = tri_value_shape(g, x);
    x = tri_reshape(g, x, tri_shape_of(batch->size, rows.dims[1] * rows.dims[2], rows.dims[3]));
    tri_conv_options of_rows = {.channels = 5, .kernel = 3, .padding = 1};
    of_rows.weight_value = tri_weight_norm(g, "rows", tri_shape_of(5, 21, 3), 0, (tri_init){0});
    x = tri_conv1d(g, "rows", x, of_rows);
    tri_block(g, "head");
    x = tri_gelu(g, tri_linear(g, "up", tri_flatten(g, x), 16));
    tri_split_layer(g, "up", TRI_SPLIT_COLUMN);
    x = tri_linear(g, "down", x, 10);
    tri_split_layer(g, "down", TRI_SPLIT_ROW);
    tri_loss(g, tri_cross_entropy(g, x, batch->labels));
}

static const tri_task layers = {.name = "layers", .build = layers_net};

TRI_EXPORT_TASK(layers)
