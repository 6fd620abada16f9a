// One primitive at a time on large tensors, for `bench/run --only ops`, which times its kernels
// with `trireme bench kernels` beside PyTorch's (bench/torch/ops_bench.py has the same cases):
//     cc -shared -fPIC -Iinclude -o ops.so bench/ops.c
//     trireme bench kernels bench/ops.yaml model.name=./ops.so model.family=0 model.kind=0
#include <trireme/trireme.h>

enum { MOST_INPUTS = 2 };

static void chain(tri_graph *g, int64_t kind, tri_value *x, tri_value *y) {
    tri_value z = tri_relu(g, tri_sub(g, tri_mul(g, x[0], x[1]), x[1]));
    if (kind)
        *y = tri_mul(g, tri_sigmoid(g, tri_exp(g, tri_neg(g, z))), x[0]);
    else
        *y = tri_abs(g, tri_sub(g, tri_mul_scalar(g, z, 0.5), x[0]));
}

static void reduction(tri_graph *g, int64_t kind, tri_value *x, tri_value *y) {
    int axes[] = {(int)(kind % 3)};
    *y = kind < 3   ? tri_sum(g, x[0], axes, 1, false)
         : kind < 6 ? tri_mean(g, x[0], axes, 1, false)
         : kind < 9 ? tri_amax(g, x[0], axes, 1, false)
                    : tri_var(g, x[0], axes, 1, 1, false);
}

static void norm(tri_graph *g, int64_t kind, tri_value *x, tri_value *y) {
    *y = kind < 2 ? tri_softmax(g, x[0], kind ? 1 : -1)
                  : tri_layer_norm(g, "norm", x[0], (tri_layer_norm_options){0});
}

static void norm_of_images(tri_graph *g, int64_t kind, tri_value *x, tri_value *y) {
    *y = tri_group_norm(g, "norm", x[0], (tri_group_norm_options){.groups = 8});
}

// Also writes the numbers of the maxima.
static void image(tri_graph *g, int64_t kind, tri_value *x, tri_value *y) {
    if (kind == 0)
        y[0] = tri_max_pool2d_with_indices(g, x[0], (tri_pool_options){.kernel = 2}, &y[1]);
    else
        y[0] = tri_interpolate(g, x[0],
                               (tri_interpolate_options){.sizes = {48, 48},
                                                         .mode = TRI_INTERPOLATE_LINEAR,
                                                         .antialias = true});
}

static void sample(tri_graph *g, int64_t kind, tri_value *x, tri_value *y) {
    *y = tri_grid_sample(g, x[0], x[1], (tri_grid_sample_options){0});
}

// The cases of a family have the same inputs.
static const struct {
    void (*build)(tri_graph *g, int64_t kind, tri_value *x, tri_value *y);
    tri_shape inputs[MOST_INPUTS];
} families[] = {
    {chain, {{2, {1 << 12, 1 << 12}}, {2, {1 << 12, 1 << 12}}}},
    {reduction, {{3, {256, 256, 256}}}},
    {norm, {{3, {64, 256, 768}}}},
    {norm_of_images, {{4, {32, 64, 64, 64}}}},
    {image, {{4, {8, 3, 128, 128}}}},
    {image, {{4, {8, 32, 128, 128}}}},
    {sample, {{4, {8, 3, 128, 128}}, {4, {8, 128, 128, 2}}}},
    {sample, {{4, {8, 32, 128, 128}}, {4, {8, 128, 128, 2}}}},
};

static void ops_net(tri_graph *g, const tri_batch *batch) {
    int64_t family = tri_model_int(g, "family", 0), count = sizeof families / sizeof *families;
    tri_value x[MOST_INPUTS] = {{0}}, y[2] = {{0}};
    if (family < 0 || family >= count) tri_graph_fail(g, "there are %d families", (int)count);
    for (int i = 0; i < MOST_INPUTS && family >= 0 && family < count; i++) {
        tri_shape shape = families[family].inputs[i];
        tri_block(g, tri_name(g, "input%d", i));
        if (shape.rank) x[i] = tri_parameter(g, tri_name(g, "x%d", i), shape, (tri_init){0});
    }
    tri_block(g, "measured");
    if (family >= 0 && family < count) families[family].build(g, tri_model_int(g, "kind", 0), x, y);
    tri_block(g, "loss");
    if (y[1].id) y[0] = tri_add(g, y[0], tri_cast(g, y[1], TRI_F32));
    tri_loss(g, tri_mean_loss(g, y[0]));
}

static const tri_task ops = {.name = "ops", .build = ops_net};

TRI_EXPORT_TASK(ops)
