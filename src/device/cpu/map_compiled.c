// Formulas of the op map that are compiled ahead: those that networks use most. Each is one loop
// over all elements, without the tiles of steps (map.c) between which a step stores its results.
// The text that the parser makes a formula of is also the C expression of the loop; a node has the
// kernel if its formula is the same one, so gradients are found here as well.
#include "device/cpu/functions.h"
#include "device/cpu/map.h"
#include "device/map_plan.h"

#include <stdlib.h>
#include <string.h>

enum { COMPILED_GRAIN = 1 << 13 };

// The functions of formulas that stand in the list.
#define sigmoid(x) cpu_sigmoid_scalar(x)
#define tanh(x) cpu_tanh_scalar(x)

// ONE(NAME, X, EXPRESSION) is a formula of one input, TWO(NAME, A, B, EXPRESSION) of two.
#define COMPILED_LIST(ONE, TWO)                                                                    \
    ONE(sigmoid, x, sigmoid(x))                                                                    \
    TWO(sigmoid_grad, dy, y, dy *(y * (1 - y)))                                                    \
    ONE(tanh, x, tanh(x))                                                                          \
    TWO(tanh_grad, dy, y, dy *(1 - y * y))

#define ONE(name, a, expression)                                                                   \
    CPU_BODY map_##name##_typed(void *context, int64_t begin, int64_t end, bool bf16) {            \
        const tri_kernel_args *args = context;                                                     \
        const void *from = args->in[0];                                                            \
        void *out = args->out[0];                                                                  \
        _Pragma("GCC ivdep") for (int64_t i = begin; i < end; i++) {                               \
            float a = cpu_get(from, bf16, i);                                                      \
            cpu_put(out, bf16, i, expression);                                                     \
        }                                                                                          \
    }                                                                                              \
    CPU_TYPED_RANGES(map_##name)
#define TWO(name, a, b, expression)                                                                \
    CPU_BODY map_##name##_typed(void *context, int64_t begin, int64_t end, bool bf16) {            \
        const tri_kernel_args *args = context;                                                     \
        const void *first = args->in[0], *second = args->in[1];                                    \
        void *out = args->out[0];                                                                  \
        _Pragma("GCC ivdep") for (int64_t i = begin; i < end; i++) {                               \
            float a = cpu_get(first, bf16, i), b = cpu_get(second, bf16, i);                       \
            cpu_put(out, bf16, i, expression);                                                     \
        }                                                                                          \
    }                                                                                              \
    CPU_TYPED_RANGES(map_##name)
COMPILED_LIST(ONE, TWO)
#undef ONE
#undef TWO

#define ONE(name, a, expression) {#a " -> " #expression, map_##name##_range},
#define TWO(name, a, b, expression) {#a ", " #b " -> " #expression, map_##name##_range},
static const struct compiled {
    const char *text;
    cpu_range (*range)(const cpu_device *device, bool bf16);
} list[] = {COMPILED_LIST(ONE, TWO)};

static const struct compiled *find(const tri_formula *formula) {
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        tri_formula parsed;
        if (tri_formula_parse(list[i].text, NULL, &parsed) == TRI_OK &&
            !memcmp(&parsed, formula, sizeof parsed))
            return &list[i];
    }
    return NULL;
}

static bool compiled_supports(const tri_device_description *device, const tri_graph *graph,
                              const tri_node *node) {
    bool mixed;
    tri_map_plan_type(graph, node, &mixed);
    return !mixed && cpu_is_float(device, graph, node) && tri_map_is_flat(graph, node) &&
           find(&((const tri_map_attr *)node->attr)->formula);
}

typedef struct compiled_state {
    const cpu_device *device;
    cpu_range range;
    int64_t count;
} compiled_state;

static tri_status compiled_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                   tri_kernel *kernel) {
    compiled_state *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a map");
    const tri_value_info *x = tri_value_get(graph, node->inputs[0]);
    const struct compiled *found = find(&((const tri_map_attr *)node->attr)->formula);
    *s = (compiled_state){.device = cpu_of(device),
                          .range = found->range(cpu_of(device), cpu_is_bf16(graph, node)),
                          .count = tri_layout_elements(&x->layout, &x->shape)};
    kernel->state = s;
    return TRI_OK;
}

static tri_status compiled_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const compiled_state *s = kernel->state;
    cpu_parallel(s->device, s->count, COMPILED_GRAIN, s->range, (void *)args);
    return TRI_OK;
}

static void compiled_release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_map_compiled = {
    .op = &tri_op_map,
    .name = "compiled",
    .supports = compiled_supports,
    .layouts = cpu_map_layouts,
    .prepare = compiled_prepare,
    .run = compiled_run,
    .release = compiled_release,
};
