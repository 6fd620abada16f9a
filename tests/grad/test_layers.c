// Compares layers of images with PyTorch (layer_tables.h), value and gradients, on the devices
// `ref`, `cpu` and the emulated GPU; and checks what they refuse.
#include "support/torch_check.h"

#include "grad/layer_tables.h"

#include <trireme/caches.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

// Layers without parameters.
static tri_value pooled(tri_graph *g, const char *name, tri_value x) {
#define CASE(text, value)                                                                          \
    if (!strcmp(name, text)) return value;
#define POOL(kind, axes, ...) tri_##kind##_pool##axes##d(g, x, (tri_pool_options){__VA_ARGS__})
#define ADAPTIVE(kind, ...) tri_adaptive_##kind##_pool(g, x, (const int64_t[]){__VA_ARGS__})
#define RESIZE(...) tri_interpolate(g, x, (tri_interpolate_options){__VA_ARGS__})
    CASE("max_pool1d", POOL(max, 1, .kernel = 3, .stride = 2, .padding = 1))
    CASE("max_pool2d rectangular",
         POOL(max, 2, .kernels = {3, 2}, .strides = {1, 2}, .pads = {1, 0}))
    CASE("max_pool2d large", POOL(max, 2, .kernels = {17, 18}, .stride = 1))
    CASE("max_pool3d", POOL(max, 3, .kernels = {2, 3, 2}, .strides = {2, 1, 3}, .pads = {1, 1, 0}))
    CASE("avg_pool1d", POOL(avg, 1, .kernel = 4, .stride = 3, .padding = 2))
    CASE("avg_pool2d rectangular",
         POOL(avg, 2, .kernels = {2, 3}, .strides = {2, 1}, .pads = {0, 1}))
    CASE("avg_pool2d inside",
         POOL(avg, 2, .kernel = 3, .stride = 2, .padding = 1, .exclude_padding = true))
    CASE("avg_pool3d", POOL(avg, 3, .kernels = {3, 2, 2}, .strides = {1, 2, 1}, .pads = {1, 1, 0}))
    CASE("avg_pool3d inside",
         POOL(avg, 3, .kernel = 3, .stride = 2, .padding = 1, .exclude_padding = true))
    CASE("adaptive_avg_pool1d", ADAPTIVE(avg, 4))
    CASE("adaptive_avg_pool2d", ADAPTIVE(avg, 3, 8))
    CASE("adaptive_avg_pool3d", ADAPTIVE(avg, 2, 3, 0))
    CASE("adaptive_max_pool1d", ADAPTIVE(max, 3))
    CASE("adaptive_max_pool2d", ADAPTIVE(max, 3, 7))
    CASE("adaptive_max_pool3d", ADAPTIVE(max, 1, 3, 2))
    CASE("interpolate nearest", RESIZE(.sizes = {7, 3}))
    CASE("interpolate nearest of one", RESIZE(.factor = 5))
    CASE("interpolate linear", RESIZE(.sizes = {8}, .linear = true))
    CASE("interpolate bilinear", RESIZE(.sizes = {7, 3}, .linear = true))
    CASE("interpolate bilinear twice", RESIZE(.factor = 2, .linear = true))
    CASE("interpolate bilinear aligned",
         RESIZE(.sizes = {7, 3}, .linear = true, .align_corners = true))
    CASE("interpolate aligned to one",
         RESIZE(.sizes = {1, 9}, .linear = true, .align_corners = true))
    CASE("interpolate trilinear", RESIZE(.sizes = {3, 5, 2}, .linear = true))
#undef CASE
    fail_msg("there is no case for %s", name);
    return x;
}

// What each row of torch_layers is here: the layer, called "l", of x.
static tri_value layer(tri_graph *g, const char *name, tri_value x) {
#define CASE(text, value)                                                                          \
    if (!strcmp(name, text)) return value;
#define GROUP_NORM(...) tri_group_norm(g, "l", x, (tri_group_norm_options){__VA_ARGS__})
#define LAYER_NORM(...) tri_layer_norm(g, "l", x, (tri_layer_norm_options){__VA_ARGS__})
    CASE("group_norm", GROUP_NORM(.groups = 3))
    CASE("group_norm plain", GROUP_NORM(.groups = 2, .eps = 1e-3, .plain = true))
    CASE("group_norm of blocks", GROUP_NORM(.groups = 4))
    CASE("group_norm across blocks", GROUP_NORM(.groups = 2))
    CASE("group_norm of rows", GROUP_NORM(.groups = 5))
    CASE("group_norm of volumes", GROUP_NORM(.groups = 1))
    CASE("instance_norm", tri_instance_norm(g, "l", x, (tri_instance_norm_options){0}))
    CASE("instance_norm affine",
         tri_instance_norm(g, "l", x, (tri_instance_norm_options){.affine = true}))
    CASE("layer_norm of two axes", LAYER_NORM(.axes = 2))
    CASE("layer_norm of three axes", LAYER_NORM(.axes = 3))
    CASE("layer_norm plain", LAYER_NORM(.axes = 2, .plain = true))
    CASE("layer_norm without bias", LAYER_NORM(.no_bias = true))
    CASE("layer_norm of one element", LAYER_NORM(.axes = 2, .no_bias = true))
#define RMS_NORM(...) tri_rms_norm_with(g, "l", x, (tri_rms_norm_options){__VA_ARGS__})
#define BATCH_NORM(...) tri_batch_norm(g, "l", x, (tri_batch_norm_options){__VA_ARGS__})
    CASE("rms_norm", tri_rms_norm(g, "l", x, 1e-3))
    CASE("rms_norm of two axes", RMS_NORM(.axes = 2))
    CASE("rms_norm plain", RMS_NORM(.plain = true))
    CASE("rms_norm plain of all axes", RMS_NORM(.plain = true, .axes = 3, .eps = 0.25))
    CASE("batch_norm plain", BATCH_NORM(.plain = true))
    CASE("batch_norm", BATCH_NORM(.cumulative = true))
#define CONV(axes, number, size, ...)                                                              \
    tri_conv##axes##d(g, "l", x,                                                                   \
                      (tri_conv_options){.channels = number, .kernel = size, __VA_ARGS__})
#define TRANSPOSE(axes, number, size, ...)                                                         \
    tri_conv_transpose##axes##d(                                                                   \
        g, "l", x, (tri_conv_options){.channels = number, .kernel = size, __VA_ARGS__})
    CASE("conv2d rectangular",
         CONV(2, 4, 0, .kernels = {3, 2}, .strides = {2}, .pads[1] = {2, 2}, .dilations = {1, 2}))
    CASE("conv2d pads", CONV(2, 6, 3, .groups = 2, .pads = {{0, 3}, {1, 0}}))
    CASE("conv2d same", CONV(2, 3, 0, .kernels = {4, 2}, .dilations[1] = 3, .same = true))
    CASE("conv2d depthwise", CONV(2, 5, 3, .stride = 2, .padding = 1, .groups = 5))
    CASE("conv2d depthwise of blocks", CONV(2, 32, 3, .padding = 1, .groups = 32))
    CASE("conv2d depthwise multiplied",
         CONV(2, 6, 0, .kernels = {5, 1}, .pads[0] = {2, 2}, .groups = 3, .no_bias = true))
    CASE("conv2d one pixel", CONV(2, 1, 3, .padding = 1))
    CASE("conv1d", CONV(1, 4, 3, .stride = 2, .padding = 3, .dilation = 2))
    CASE("conv1d depthwise", CONV(1, 4, 4, .pads[0] = {3, 0}, .groups = 4, .no_bias = true))
    CASE("conv_transpose2d", TRANSPOSE(2, 4, 3, .stride = 2, .padding = 1, .output_padding = 1))
    CASE("conv_transpose2d rectangular",
         TRANSPOSE(2, 6, 0, .kernels = {2, 3}, .strides = {3}, .pads[1] = {2, 2}, .dilations[1] = 2,
                   .groups = 2))
    CASE("conv_transpose2d of blocks", TRANSPOSE(2, 16, 2, .stride = 2))
    CASE("conv_transpose2d dilated", TRANSPOSE(2, 3, 0, .kernels = {3, 2}, .pads[0] = {1, 1},
                                               .output_paddings = {1, 2}, .dilations = {2, 3}))
    CASE("conv_transpose2d depthwise",
         TRANSPOSE(2, 3, 4, .stride = 2, .groups = 3, .no_bias = true))
    CASE("conv_transpose1d", TRANSPOSE(1, 2, 4, .stride = 3, .padding = 1, .output_padding = 2))
    CASE("conv3d", CONV(3, 3, 3, .padding = 1))
    CASE("conv3d strides", CONV(3, 2, 0, .kernels = {3, 2, 3}, .strides = {2, 1, 2}, .groups = 2,
                                .pads = {{2, 2}, {0}, {1, 1}}, .dilations[0] = 2))
    CASE("conv3d flat",
         CONV(3, 2, 3, .kernels[0] = 1, .pads = {{0}, {1, 1}, {1, 1}}, .no_bias = true))
    CASE("conv3d deep", CONV(3, 2, 1, .kernels[0] = 10, .pads[0] = {9, 1}))
    CASE("conv_transpose3d", TRANSPOSE(3, 3, 3, .stride = 2, .padding = 1, .output_padding = 1))
    CASE("conv_transpose3d groups", TRANSPOSE(3, 2, 0, .kernels = {2, 3, 1}, .strides = {3, 1, 2},
                                              .dilations[0] = 2, .groups = 2, .no_bias = true))
    return pooled(g, name, x);
}

static void test_layers(void **state) {
    for (size_t i = 0; i < COUNT(torch_layers); i++) {
        torch_check_devices(&torch_layers[i], layer, 1e-10, 1e-4);
    }
}

#define TRACKED(...)                                                                               \
    tri_instance_norm(g, "l", x, (tri_instance_norm_options){.tracks = true, __VA_ARGS__})

static void test_norms_refuse(void **state) {
    OP_REFUSED("cache|keys|without caches", tri_shape_of(2, 3, 8), tri_cache(g, "keys", x, x));
    OP_REFUSED("group_norm l|[2, 6, 3]|groups 4", tri_shape_of(2, 6, 3), GROUP_NORM(.groups = 4));
    OP_REFUSED("group_norm l|groups 0", tri_shape_of(2, 6, 3), GROUP_NORM(0));
    OP_REFUSED("group_norm l|[6]", tri_shape_of(6), GROUP_NORM(.groups = 1));
    OP_REFUSED("group_norm l|[2, 6, 0]", tri_shape_of(2, 6, 0), GROUP_NORM(.groups = 3));
    OP_REFUSED("group_norm l|eps|-1", tri_shape_of(2, 6), GROUP_NORM(.groups = 3, .eps = -1));
    OP_REFUSED("instance_norm l|[5]", tri_shape_of(5),
               tri_instance_norm(g, "l", x, (tri_instance_norm_options){0}));
    OP_REFUSED("layer_norm l|4 axes|3", tri_shape_of(2, 6, 3), LAYER_NORM(.axes = 4));
    OP_REFUSED("layer_norm l|-1", tri_shape_of(2, 6, 3), LAYER_NORM(.axes = -1));
    OP_REFUSED("layer_norm l|eps|inf", tri_shape_of(2, 6), LAYER_NORM(.eps = INFINITY));
    OP_REFUSED("rms_norm l|2 axes of 1", tri_shape_of(6), RMS_NORM(.axes = 2));
    OP_REFUSED("rms_norm l|eps|-1", tri_shape_of(2, 6), RMS_NORM(.eps = -1));
    OP_REFUSED("rms_norm l|eps|above 0", tri_shape_of(2, 6), tri_rms_norm(g, "l", x, 0));
    OP_REFUSED("batch_norm l|cumulative|momentum", tri_shape_of(2, 6),
               BATCH_NORM(.cumulative = true, .momentum = 0.1));
    OP_REFUSED("instance_norm l|momentum|2", tri_shape_of(2, 6, 2), TRACKED(.momentum = 2));
    OP_REFUSED("instance_norm l|cumulative|momentum", tri_shape_of(2, 6, 2),
               TRACKED(.cumulative = true, .momentum = 0.1));
    OP_REFUSED("instance_norm l|more than 1 pixel", tri_shape_of(2, 6, 1), TRACKED(0));
}

static void test_convolutions_refuse(void **state) {
    tri_shape image = tri_shape_of(2, 4, 5, 6);
    OP_REFUSED("conv2d l|[2, 4, 5]|[N, C, H, W]", tri_shape_of(2, 4, 5), CONV(2, 4, 3));
    OP_REFUSED("conv2d l|groups 3", image, CONV(2, 6, 3, .groups = 3));
    OP_REFUSED("conv2d l|channels 0", image, CONV(2, 0, 3));
    OP_REFUSED("conv2d l|kernel|0", image, CONV(2, 4, 0));
    OP_REFUSED("conv2d l|kernel|-1", image, CONV(2, 4, 0, .kernels = {3, -1}));
    OP_REFUSED("conv2d l|padding|-1", image, CONV(2, 4, 3, .pads[1] = {0, -1}));
    OP_REFUSED("conv2d l|1048577", image, CONV(2, 4, 3, .stride = 1048577));
    OP_REFUSED("conv2d l|kernel of 7|of 5", image, CONV(2, 4, 7));
    OP_REFUSED("conv2d l|output padding of 1", image,
               CONV(2, 4, 3, .stride = 2, .output_padding = 1));
    OP_REFUSED("conv2d l|`same`|stride", image, CONV(2, 4, 3, .stride = 2, .same = true));
    OP_REFUSED("conv2d l|`same`|padding 1", image, CONV(2, 4, 3, .padding = 1, .same = true));
    OP_REFUSED("conv2d l|of 0", tri_shape_of(2, 4, 0, 6), CONV(2, 4, 3, .padding = 2));
    OP_REFUSED("conv1d l|[N, C, L]", image, CONV(1, 4, 3));
    OP_REFUSED("conv_transpose2d l|padding mode 1", image,
               TRANSPOSE(2, 4, 3, .padding_mode = TRI_PADDING_REFLECT));
    OP_REFUSED("pad_reflect|5 elements", image,
               CONV(2, 4, 3, .padding = 5, .padding_mode = TRI_PADDING_REFLECT));
    OP_REFUSED("conv_transpose2d l|output padding of 2", image,
               TRANSPOSE(2, 4, 3, .stride = 2, .output_padding = 2));
    OP_REFUSED("conv_transpose2d l|no result", tri_shape_of(2, 4, 1, 1),
               TRANSPOSE(2, 4, 3, .padding = 2));
    OP_REFUSED("conv_transpose2d l|of 0", tri_shape_of(2, 4, 0, 6), TRANSPOSE(2, 4, 3));
    OP_REFUSED("conv_transpose2d l|`same`", image, TRANSPOSE(2, 4, 3, .same = true));
}

static void test_pools_refuse(void **state) {
    tri_shape image = tri_shape_of(2, 4, 5, 6);
    OP_REFUSED("max_pool1d|[2, 4, 5, 6]", image, POOL(max, 1, .kernel = 2));
    OP_REFUSED("max_pool2d|kernel|0", image, POOL(max, 2, .stride = 1));
    OP_REFUSED("max_pool2d|kernel of 6", image, POOL(max, 2, .kernels = {6, 1}));
    OP_REFUSED("max_pool2d|padding 2", image, POOL(max, 2, .kernel = 3, .padding = 2));
    OP_REFUSED("max_pool2d|without effect", image, POOL(max, 2, .kernel = 3, .kernels[2] = 1));
    OP_REFUSED("max_pool2d|padding only", tri_shape_of(1, 1, 1, 3),
               POOL(max, 2, .kernels = {2, 1}, .pads = {1}, .dilations = {2}));
    OP_REFUSED("avg_pool2d|without effect", image, POOL(avg, 2, .kernel = 2, .dilation = 2));
    OP_REFUSED("avg_pool2d|padding|-1", image, POOL(avg, 2, .kernel = 2, .padding = -1));
    OP_REFUSED("avg_pool3d|[2, 4, 0, 5, 6]", tri_shape_of(2, 4, 0, 5, 6),
               POOL(avg, 3, .kernel = 1));
    OP_REFUSED("adaptive_avg_pool|-1", image, ADAPTIVE(avg, 2, -1));
    OP_REFUSED("adaptive_max_pool|[2, 4]", tri_shape_of(2, 4), ADAPTIVE(max, 2));
    OP_REFUSED("interpolate|-2", image, RESIZE(.factor = -2));
    OP_REFUSED("interpolate|align_corners|antialias", image,
               RESIZE(.factor = 2, .antialias = true, .mode = TRI_INTERPOLATE_AREA));
    OP_REFUSED("interpolate|-3", image, RESIZE(.sizes = {4, -3}));
    OP_REFUSED("interpolate|align_corners", image, RESIZE(.factor = 2, .align_corners = true));
    OP_REFUSED("interpolate|1048577", image, RESIZE(.sizes = {1048577, 4}));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_norms_refuse),
        cmocka_unit_test(test_convolutions_refuse),
        cmocka_unit_test(test_pools_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
