// Compares pools, interpolation, samples at the places of a grid and padded convolutions of random
// shapes with PyTorch (pool_tables.h, sample_tables.h), value and gradients, on the devices `ref`,
// `cpu` and the emulated `cuda`; and checks what they refuse.
#include "device/cpu/cpu.h"
#include "device/cuda/cuda.h"
#include "support/test_gpu.h"
#include "support/torch_check.h"

#include <trireme/more_layers.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef enum spatial_kind {
    SPATIAL_MAX,
    SPATIAL_AVG,
    SPATIAL_ADAPTIVE,
    SPATIAL_UNPOOL,
    SPATIAL_LP,
    SPATIAL_CONV,
    SPATIAL_INTERPOLATE,
    SPATIAL_GRID,
    SPATIAL_AFFINE
} spatial_kind;

typedef struct spatial_case {
    torch_case c;
    spatial_kind kind;
    int axes;
    double index[2]; // of a maximum with indices
    int64_t own[1][5], sizes[3];
    tri_pool_options pool;
    tri_conv_options conv;
    tri_interpolate_options interpolate;
    tri_grid_sample_options grid;
} spatial_case;

#include "grad/pool_tables.h"
#include "grad/sample_tables.h"

typedef tri_value pool_function(tri_graph *, tri_value, tri_pool_options);
typedef tri_value conv_function(tri_graph *, const char *, tri_value, tri_conv_options);

// The case that is checked, and the indices that it makes.
static const spatial_case *row;
static tri_value indices;

static tri_value maximum(tri_graph *g, tri_value x) {
    static pool_function *const pools[] = {tri_max_pool1d, tri_max_pool2d, tri_max_pool3d};
    static tri_value (*const with[])(tri_graph *, tri_value, tri_pool_options, tri_value *) = {
        tri_max_pool1d_with_indices, tri_max_pool2d_with_indices, tri_max_pool3d_with_indices};
    bool plain = row->kind == SPATIAL_MAX && row->index[1] == 0;
    return plain ? pools[row->axes - 1](g, x, row->pool)
                 : with[row->axes - 1](g, x, row->pool, &indices);
}

static tri_value unpooled(tri_graph *g, tri_value x) {
    static tri_value (*const back[])(tri_graph *, tri_value, tri_value, tri_pool_options,
                                     const int64_t *) = {tri_max_unpool1d, tri_max_unpool2d,
                                                         tri_max_unpool3d};
    tri_value y = tri_square(g, maximum(g, x));
    return back[row->axes - 1](g, y, indices, row->pool, row->sizes[0] ? row->sizes : NULL);
}

static tri_value sampled(tri_graph *g, tri_value x) {
    const tri_grid_sample_options *o = &row->grid;
    tri_value own = tri_parameter(
        g, "own", torch_shape_of(row->kind == SPATIAL_AFFINE ? 3 : row->axes + 2, row->own[0]),
        (tri_init){0});
    own = row->kind == SPATIAL_AFFINE ? tri_affine_grid(g, own, row->sizes, o->align_corners)
                                      : tri_mul_scalar(g, own, 1.6);
    return tri_grid_sample(g, x, own, *o);
}

static tri_value spatial(tri_graph *g, const char *name, tri_value x) {
    static pool_function *const means[] = {tri_avg_pool1d, tri_avg_pool2d, tri_avg_pool3d};
    static conv_function *const convs[] = {tri_conv1d, tri_conv2d, tri_conv3d};
    indices = (tri_value){0};
    switch (row->kind) {
    case SPATIAL_MAX:
        return maximum(g, x);
    case SPATIAL_AVG:
        return means[row->axes - 1](g, x, row->pool);
    case SPATIAL_ADAPTIVE: {
        tri_value y = tri_adaptive_max_pool_with_indices(g, x, row->sizes, &indices);
        tri_value same = tri_adaptive_max_pool(g, x, row->sizes);
        return tri_add(g, tri_mul_scalar(g, y, 0.25), tri_mul_scalar(g, same, 0.75));
    }
    case SPATIAL_UNPOOL:
        return unpooled(g, x);
    case SPATIAL_LP:
        return tri_lp_pool(g, tri_square(g, x), 2, row->pool);
    case SPATIAL_CONV:
        return convs[row->axes - 1](g, "l", x, row->conv);
    case SPATIAL_INTERPOLATE:
        return tri_interpolate(g, x, row->interpolate);
    default:
        return sampled(g, x);
    }
}

// Compares the indices of a maximum, which the graph that torch_check makes does not keep.
static void check_indices(const tri_device_backend *backend, tri_dtype dtype) {
    tri_graph *g = op_graph_open(dtype);
    tri_value x = tri_input(g, "x", dtype, torch_shape_of(row->c.rank, row->c.x));
    spatial(g, row->c.name, x);
    tri_device *device = op_device_open(backend, 1);
    op_session *session = op_session_open(g, device, false);
    fill_wave(session, x, 1, 1, 0);
    fill_constants(session, g);
    op_run_ok(session);
    const int64_t *found = op_host(session, indices);
    double cosine = 0, squares = 0;
    for (int64_t i = 0; i < op_count(session, indices); i++) {
        cosine += (double)found[i] * cos(1.7 * (double)i + 0.3);
        squares += (double)(found[i] * found[i]);
    }
    if (fabs(cosine - row->index[0]) > 1e-6 || squares != row->index[1])
        fail_msg("%s: indices: got %.9g %.9g, PyTorch has %.9g %.9g", row->c.name, cosine, squares,
                 row->index[0], row->index[1]);
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(g);
}

static void check_on(const tri_device_backend *backend, tri_dtype dtype, double allowed) {
    torch_check(&row->c, spatial, backend, dtype, allowed);
    if (row->index[1] != 0) check_indices(backend, dtype);
}

static void check_rows(const spatial_case *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        row = &rows[i];
        check_on(&tri_device_ref, TRI_F64, 1e-10);
        check_on(&tri_device_cpu, TRI_F32, 1e-4);
        check_on(&tri_device_cuda, TRI_F32, 1e-4);
    }
}

static void test_pools(void **state) { check_rows(torch_pools, COUNT(torch_pools)); }

static void test_samples(void **state) { check_rows(torch_samples, COUNT(torch_samples)); }

static void test_refuses(void **state) {
    tri_shape image = tri_shape_of(2, 4, 5, 6);
    tri_pool_options two = {.kernel = 2}, four = {.kernel = 4, .padding = 1},
                     seven = {.kernel = 7, .stride = 1, .ceil_mode = true};
    tri_grid_sample_options cubic = {.mode = TRI_SAMPLE_CUBIC};
    OP_REFUSED("max_unpool2d|indices", image,
               tri_max_unpool2d(g, x, tri_slice(g, x, 1, 0, 2, 1), two, NULL));
    OP_REFUSED("max_unpool2d|not 0", image, tri_max_unpool2d(g, x, x, two, (int64_t[]){0, 3}));
    OP_REFUSED("avg_pool3d|kernel of 4", tri_shape_of(1, 1, 5, 5, 3), tri_avg_pool3d(g, x, four));
    OP_REFUSED("max_pool2d|kernel of 7", image, tri_max_pool2d(g, x, seven));
    OP_REFUSED("affine_grid|[2, 4, 5, 6]", image, tri_affine_grid(g, x, (int64_t[]){2, 2}, false));
    OP_REFUSED("affine_grid|[2, 3, 4]", tri_shape_of(2, 3, 4),
               tri_affine_grid(g, x, (int64_t[]){2, 0, 2}, false));
    OP_REFUSED("grid_sample|[2, 4, 5, 6]", image,
               tri_grid_sample(g, x, x, (tri_grid_sample_options){0}));
    OP_REFUSED("grid_sample|cubic|[2, 3, 4, 5, 3]", tri_shape_of(2, 3, 4, 5, 3),
               tri_grid_sample(g, x, x, cubic));
}

int main(void) {
    test_gpu_choose();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pools),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
