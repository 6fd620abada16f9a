// Pools, and images of other sizes.
#include "nn/exported/build.h"

#include <string.h>
#include <trireme/nn.h>

// How many axes the operation has behind samples and channels, by its name: max_pool2d has 2. 0: x
// has others, and the graph has failed.
static int axes_of(exported_call *c, const char *word) {
    exported_value x = exported_operand(c, 0);
    const char *name = strstr(c->node->target, word);
    int axes = name ? name[strlen(word)] - '0' : 0, rank = exported_rank(c->build, &x);
    if (axes >= 1 && axes <= 3 && rank == axes + 2) return axes;
    exported_fail(c, "it has a tensor of %d axes, and needs samples, channels and %d more", rank,
                  axes);
    return 0;
}

// Reads kernel, stride and padding of a pool from the arguments 1, 2 and 3.
static int pool_options(exported_call *c, tri_pool_options *o) {
    int axes = axes_of(c, "pool");
    int64_t list[3], strides[3];
    if (axes == 0) return 0;
    exported_sizes(c, 1, o->kernels, axes);
    int given = exported_ints(c, 2, list, 3);
    if (given > 0) exported_sizes(c, 2, strides, axes);
    for (int i = 0; i < axes; i++) o->strides[i] = given > 0 ? strides[i] : o->kernels[i];
    exported_sizes(c, 3, o->pads, axes);
    return axes;
}

static void max_pool(exported_call *c) {
    tri_graph *g = c->build->graph;
    tri_pool_options o = {.ceil_mode = exported_bool(c, 5)};
    int axes = pool_options(c, &o);
    if (axes == 0) return;
    exported_sizes(c, 4, o.dilations, axes);
    tri_value x = exported_tensor(c, 0);
    if (exported_result_count(c) < 2) {
        tri_value (*const pools[])(tri_graph *, tri_value, tri_pool_options) = {
            tri_max_pool1d, tri_max_pool2d, tri_max_pool3d};
        exported_give_graph(c, pools[axes - 1](g, x, o));
        return;
    }
    tri_value (*const pools[])(tri_graph *, tri_value, tri_pool_options, tri_value *) = {
        tri_max_pool1d_with_indices, tri_max_pool2d_with_indices, tri_max_pool3d_with_indices};
    tri_value index, y = pools[axes - 1](g, x, o, &index);
    exported_give_graph_at(c, 0, y);
    exported_give_graph_at(c, 1, index);
}

static void avg_pool(exported_call *c) {
    tri_value (*const pools[])(tri_graph *, tri_value,
                               tri_pool_options) = {tri_avg_pool1d, tri_avg_pool2d, tri_avg_pool3d};
    tri_pool_options o = {.ceil_mode = exported_bool(c, 4),
                          .exclude_padding = !exported_bool(c, 5)};
    int axes = pool_options(c, &o);
    if (axes == 0) return;
    if (!exported_is_none(c, 6)) o.divisor_override = exported_int(c, 6);
    exported_give_graph(c, pools[axes - 1](c->build->graph, exported_tensor(c, 0), o));
}

// The sizes of an adaptive pool; None leaves an axis as it is.
static bool adaptive_sizes(exported_call *c, int64_t *sizes) {
    int axes = axes_of(c, "pool");
    const tri_pt2_argument *a = &c->arguments[1];
    if (axes == 0) return false;
    for (int i = 0; i < axes; i++) {
        const tri_pt2_argument *item = a->kind == TRI_PT2_LIST && i < a->count ? &a->items[i] : a;
        sizes[i] = item->kind == TRI_PT2_INT ? item->number : 0;
        if (item->kind == TRI_PT2_LIST && item->count == 1) sizes[i] = item->items[0].number;
    }
    return true;
}

static void adaptive_avg_pool(exported_call *c) {
    int64_t sizes[3] = {0};
    if (!adaptive_sizes(c, sizes)) return;
    tri_graph *g = c->build->graph;
    tri_value x = exported_tensor(c, 0);
    bool is_whole = tri_value_shape(g, x).rank == 4 && sizes[0] == sizes[1] && sizes[0] > 0;
    exported_give_graph(c, is_whole ? tri_adaptive_avg_pool2d(g, x, sizes[0])
                                    : tri_adaptive_avg_pool(g, x, sizes));
}

static void adaptive_max_pool(exported_call *c) {
    int64_t sizes[3] = {0};
    if (!adaptive_sizes(c, sizes)) return;
    tri_value index, y = tri_adaptive_max_pool_with_indices(c->build->graph, exported_tensor(c, 0),
                                                            sizes, &index);
    exported_give_graph_at(c, 0, y);
    exported_give_graph_at(c, 1, index);
}

// input output_size align_corners scale_factors
static void interpolate(exported_call *c, tri_interpolate_options o) {
    exported_value in = exported_operand(c, 0);
    int axes = exported_rank(c->build, &in) - 2;
    double factors[EXPORTED_MAX_RANK];
    int given = exported_reals(c, 3, factors, EXPORTED_MAX_RANK);
    if (!exported_is_none(c, 1))
        exported_sizes(c, 1, o.sizes, axes);
    else
        for (int i = 0; i < given && i < 3; i++) o.factors[i] = factors[i];
    exported_give_graph(c, tri_interpolate(c->build->graph, exported_tensor(c, 0), o));
}

static void nearest(exported_call *c) {
    interpolate(c, (tri_interpolate_options){.mode = TRI_INTERPOLATE_NEAREST});
}
static void nearest_exact(exported_call *c) {
    interpolate(c, (tri_interpolate_options){.mode = TRI_INTERPOLATE_NEAREST_EXACT});
}
static void bilinear(exported_call *c) {
    interpolate(c, (tri_interpolate_options){.mode = TRI_INTERPOLATE_LINEAR,
                                             .align_corners = exported_bool(c, 2)});
}
static void bicubic(exported_call *c) {
    interpolate(c, (tri_interpolate_options){.mode = TRI_INTERPOLATE_CUBIC,
                                             .align_corners = exported_bool(c, 2)});
}
static void bilinear_smooth(exported_call *c) {
    interpolate(c, (tri_interpolate_options){.mode = TRI_INTERPOLATE_LINEAR,
                                             .align_corners = exported_bool(c, 2),
                                             .antialias = true});
}

#define POOL "self kernel_size stride=[] padding=0 "
const exported_row exported_pool_rows[] = {
    ROW("aten.max_pool1d", POOL "dilation=1 ceil_mode=False", max_pool),
    ROW("aten.max_pool2d", POOL "dilation=1 ceil_mode=False", max_pool),
    ROW("aten.max_pool3d", POOL "dilation=1 ceil_mode=False", max_pool),
    ROW("aten.max_pool2d_with_indices", POOL "dilation=1 ceil_mode=False", max_pool),
    ROW("aten.avg_pool1d", POOL "ceil_mode=False count_include_pad=True divisor_override=None",
        avg_pool),
    ROW("aten.avg_pool2d", POOL "ceil_mode=False count_include_pad=True divisor_override=None",
        avg_pool),
    ROW("aten.avg_pool3d", POOL "ceil_mode=False count_include_pad=True divisor_override=None",
        avg_pool),
    ROW("aten.adaptive_avg_pool1d", "self output_size", adaptive_avg_pool),
    ROW("aten.adaptive_avg_pool2d", "self output_size", adaptive_avg_pool),
    ROW("aten.adaptive_avg_pool3d", "self output_size", adaptive_avg_pool),
    ROW("aten.adaptive_max_pool1d", "self output_size", adaptive_max_pool),
    ROW("aten.adaptive_max_pool2d", "self output_size", adaptive_max_pool),
    ROW("aten.adaptive_max_pool3d", "self output_size", adaptive_max_pool),
    ROW("aten.upsample_nearest1d.vec", "input output_size align=None scale_factors", nearest),
    ROW("aten.upsample_nearest2d.vec", "input output_size align=None scale_factors", nearest),
    ROW("aten.upsample_nearest3d.vec", "input output_size align=None scale_factors", nearest),
    ROW("aten._upsample_nearest_exact1d.vec", "input output_size align=None scale_factors",
        nearest_exact),
    ROW("aten._upsample_nearest_exact3d.vec", "input output_size align=None scale_factors",
        nearest_exact),
    ROW("aten._upsample_nearest_exact2d.vec", "input output_size align=None scale_factors",
        nearest_exact),
    ROW("aten.upsample_linear1d.vec", "input output_size align_corners scale_factors", bilinear),
    ROW("aten.upsample_bilinear2d.vec", "input output_size align_corners scale_factors", bilinear),
    ROW("aten.upsample_trilinear3d.vec", "input output_size align_corners scale_factors", bilinear),
    ROW("aten.upsample_bicubic2d.vec", "input output_size align_corners scale_factors", bicubic),
    ROW("aten._upsample_bilinear2d_aa.vec", "input output_size align_corners scale_factors",
        bilinear_smooth),
    {NULL, NULL, NULL, NULL, NULL, false},
};
