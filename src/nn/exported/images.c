// Windows of images as columns and back, and images that are sampled elsewhere.
#include "nn/exported/build.h"

#include <trireme/functions.h>
#include <trireme/more_layers.h>
#include <trireme/nn.h>

// kernel_size dilation padding stride, from argument k.
static tri_conv_options windows_of(exported_call *c, int k) {
    tri_conv_options o = {0};
    int64_t pads[2];
    exported_sizes(c, k, o.kernels, 2);
    exported_sizes(c, k + 1, o.dilations, 2);
    exported_sizes(c, k + 2, pads, 2);
    exported_sizes(c, k + 3, o.strides, 2);
    for (int i = 0; i < 2; i++) o.pads[i][0] = o.pads[i][1] = pads[i];
    return o;
}

static void im2col(exported_call *c) {
    exported_give_graph(
        c, tri_unfold_images(c->build->graph, exported_tensor(c, 0), windows_of(c, 1)));
}

static void col2im(exported_call *c) {
    int64_t sizes[2] = {0};
    exported_sizes(c, 1, sizes, 2);
    exported_give_graph(c, tri_fold_images(c->build->graph, exported_tensor(c, 0), sizes[0],
                                           sizes[1], windows_of(c, 2)));
}

// input grid interpolation_mode padding_mode align_corners, by PyTorch's numbers of modes.
static void grid_sample(exported_call *c) {
    static const tri_sample_mode modes[] = {TRI_SAMPLE_LINEAR, TRI_SAMPLE_NEAREST,
                                            TRI_SAMPLE_CUBIC};
    static const tri_sample_padding pads[] = {TRI_SAMPLE_ZEROS, TRI_SAMPLE_BORDER,
                                              TRI_SAMPLE_REFLECTION};
    int64_t mode = exported_int(c, 2), pad = exported_int(c, 3);
    if (mode < 0 || mode > 2 || pad < 0 || pad > 2) {
        exported_fail(c, "there is no such mode of sampling or padding");
        return;
    }
    tri_grid_sample_options o = {modes[mode], pads[pad], exported_bool(c, 4)};
    exported_give_graph(
        c, tri_grid_sample(c->build->graph, exported_tensor(c, 0), exported_tensor(c, 1), o));
}

static void affine_grid(exported_call *c) {
    int64_t sizes[5];
    if (exported_ints(c, 1, sizes, 5) < 4) return;
    exported_give_graph(
        c, tri_affine_grid(c->build->graph, exported_tensor(c, 0), sizes + 2, exported_bool(c, 2)));
}

// self indices output_size
static void max_unpool(exported_call *c) {
    exported_value x = exported_operand(c, 0), index = exported_operand(c, 1);
    tri_value (*const functions[])(tri_graph *, tri_value, tri_value, tri_pool_options,
                                   const int64_t *) = {tri_max_unpool2d, tri_max_unpool3d};
    int axes = exported_rank(c->build, &x) - 2;
    int64_t sizes[3];
    if (axes != 2 && axes != 3) {
        exported_fail(c, "it needs samples, channels and 2 or 3 axes more");
        return;
    }
    exported_sizes(c, 2, sizes, axes);
    exported_give_graph(c, functions[axes - 2](c->build->graph, exported_as_float(c->build, &x),
                                               exported_as_graph(c->build, &index),
                                               (tri_pool_options){.kernel = 1}, sizes));
}

const exported_row exported_image_rows[] = {
    ROW("aten.im2col", "self kernel_size dilation padding stride", im2col),
    ROW("aten.col2im", "self output_size kernel_size dilation padding stride", col2im),
    ROW("aten.grid_sampler", "input grid interpolation_mode padding_mode align_corners",
        grid_sample),
    ROW("aten.affine_grid_generator", "theta size align_corners", affine_grid),
    ROW("aten.max_unpool2d", "self indices output_size", max_unpool),
    ROW("aten.max_unpool3d", "self indices output_size", max_unpool),
    {NULL, NULL, NULL, NULL, NULL, false},
};
