// The formulas that are compiled ahead (map_compiled.h) on the device cpu.
#include "device/cpu/functions.h"
#include "device/cpu/map.h"

#include <stdlib.h>

enum { COMPILED_GRAIN = 1 << 13 };

#define NUMBER(x) x##f
#define AS(text, same) same
#define relu(x) ((x) <= 0 ? 0 : (x))
#define leaky_relu(x, slope) ((x) > 0 ? (x) : (x) * (slope))
#define sigmoid(x) cpu_sigmoid_scalar(x)
#define tanh(x) cpu_tanh_scalar(x)
#define exp(x) cpu_exp_scalar(x)
#define normal_cdf(x) cpu_normal_cdf_scalar(x)

#define LOOP(name, body)                                                                           \
    CPU_BODY map_##name##_typed(void *context, int64_t begin, int64_t end, bool bf16) {            \
        const cpu_compiled_job job = *(const cpu_compiled_job *)context;                           \
        const float slope = job.slope;                                                             \
        (void)slope;                                                                               \
        _Pragma("GCC ivdep") for (int64_t i = begin; i < end; i++) { body }                        \
    }                                                                                              \
    CPU_TYPED_RANGES(map_##name)
#define GET(k) cpu_get(job.in[k], bf16, i)
#define PUT(k, value) cpu_put(job.out[k], bf16, i, value)
#define PART(name, value) const float name = value;
#define ONE(name, a, parts, y) LOOP(name, float a = GET(0); parts PUT(0, y);)
#define TWO(name, a, b, parts, y) LOOP(name, float a = GET(0); float b = GET(1); parts PUT(0, y);)
#define PAIR(name, a, b, c, parts, y, z)                                                           \
    LOOP(name, float a = GET(0); float b = GET(1); float c = GET(2); parts PUT(0, y); PUT(1, z);)
TRI_COMPILED_LIST(ONE, TWO, PAIR)

#define X(name, ...) map_##name##_range,
static cpu_range (*const ranges[])(const cpu_device *device,
                                   bool bf16) = {TRI_COMPILED_LIST(X, X, X)};
#undef X

// The row of the list that the node has; TRI_COMPILED_COUNT: none.
static tri_compiled row_of(const tri_device_description *device, const tri_graph *graph,
                           const tri_node *node, double *slope) {
    bool mixed;
    tri_map_plan_type(graph, node, &mixed);
    if (mixed || !cpu_is_float(device, graph, node) || !tri_map_is_flat(graph, node))
        return TRI_COMPILED_COUNT;
    return tri_compiled_find(&((const tri_map_attr *)node->attr)->formula, slope);
}

cpu_compiled cpu_compiled_of(const cpu_device *device, const tri_graph *graph,
                             const tri_node *node) {
    double slope = 0;
    tri_compiled row = row_of(&device->head.description, graph, node, &slope);
    if (row == TRI_COMPILED_COUNT) return (cpu_compiled){0};
    return (cpu_compiled){ranges[row](device, cpu_is_bf16(graph, node)), (float)slope};
}

void cpu_compiled_begin(const cpu_compiled *compiled, const tri_formula *formula,
                        const tri_kernel_args *args, cpu_compiled_job *job) {
    *job = (cpu_compiled_job){.slope = compiled->slope};
    for (int k = 0; k < formula->input_count; k++) job->in[k] = args->in[k];
    for (int k = 0; k < formula->output_count; k++) job->out[k] = args->out[k];
}

static bool compiled_supports(const tri_device_description *device, const tri_graph *graph,
                              const tri_node *node) {
    double slope;
    return row_of(device, graph, node, &slope) != TRI_COMPILED_COUNT;
}

typedef struct compiled_state {
    const cpu_device *device;
    cpu_compiled compiled;
    int64_t count;
    tri_formula formula;
} compiled_state;

static tri_status compiled_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                   tri_kernel *kernel) {
    compiled_state *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a map");
    const tri_value_info *x = tri_value_get(graph, node->inputs[0]);
    *s = (compiled_state){.device = cpu_of(device),
                          .compiled = cpu_compiled_of(cpu_of(device), graph, node),
                          .count = tri_layout_elements(&x->layout, &x->shape),
                          .formula = ((const tri_map_attr *)node->attr)->formula};
    kernel->state = s;
    return TRI_OK;
}

static tri_status compiled_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const compiled_state *s = kernel->state;
    cpu_compiled_job job;
    cpu_compiled_begin(&s->compiled, &s->formula, args, &job);
    cpu_parallel(s->device, s->count, COMPILED_GRAIN, s->compiled.range, &job);
    return TRI_OK;
}

static void compiled_release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_map_compiled = {
    .op = &tri_op_map,
    .name = "compiled",
    .supports = compiled_supports,
    .layouts = tri_map_layouts,
    .prepare = compiled_prepare,
    .run = compiled_run,
    .release = compiled_release,
};
