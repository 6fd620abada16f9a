// Compares layers of images with PyTorch (layer_tables.h), value and gradients, on the devices
// `ref` and `cpu`; and checks what they refuse.
#include "device/cpu/cpu.h"
#include "support/torch_check.h"

#include "grad/layer_tables.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

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
    fail_msg("there is no case for %s", name);
    return x;
}

static void test_layers(void **state) {
    for (size_t i = 0; i < COUNT(torch_layers); i++) {
        torch_check(&torch_layers[i], layer, &tri_device_ref, TRI_F64, 1e-10);
        torch_check(&torch_layers[i], layer, &tri_device_cpu, TRI_F32, 1e-4);
    }
}

// Fails unless the graph of `call` is refused with all words, which are parted by |.
#define REFUSED(words, shape, call)                                                                \
    do {                                                                                           \
        tri_graph *g = op_graph_open(TRI_F32);                                                     \
        tri_value x = tri_input(g, "x", TRI_F32, shape);                                           \
        (void)(call);                                                                              \
        check_refused(g, words);                                                                   \
    } while (0)

static void check_refused(tri_graph *g, const char *words) {
    const char *message = "";
    char copy[256], *rest = copy;
    if (tri_graph_status(g, &message) != TRI_BAD_INPUT) fail_msg("not refused: %s", words);
    snprintf(copy, sizeof copy, "%s", words);
    for (const char *word; (word = strsep(&rest, "|"));)
        if (!strstr(message, word)) fail_msg("\"%s\" has no \"%s\"", message, word);
    op_graph_close(g);
}

static void test_norms_refuse(void **state) {
    REFUSED("group_norm l|[2, 6, 3]|groups 4", tri_shape_of(2, 6, 3), GROUP_NORM(.groups = 4));
    REFUSED("group_norm l|groups 0", tri_shape_of(2, 6, 3), GROUP_NORM(0));
    REFUSED("group_norm l|[6]", tri_shape_of(6), GROUP_NORM(.groups = 1));
    REFUSED("group_norm l|[2, 6, 0]", tri_shape_of(2, 6, 0), GROUP_NORM(.groups = 3));
    REFUSED("group_norm l|eps|-1", tri_shape_of(2, 6), GROUP_NORM(.groups = 3, .eps = -1));
    REFUSED("instance_norm l|[5]", tri_shape_of(5),
            tri_instance_norm(g, "l", x, (tri_instance_norm_options){0}));
    REFUSED("layer_norm l|4 axes|3", tri_shape_of(2, 6, 3), LAYER_NORM(.axes = 4));
    REFUSED("layer_norm l|-1", tri_shape_of(2, 6, 3), LAYER_NORM(.axes = -1));
    REFUSED("layer_norm l|eps|inf", tri_shape_of(2, 6), LAYER_NORM(.eps = INFINITY));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_norms_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
