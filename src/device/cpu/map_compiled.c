// The formulas that are compiled ahead (map_compiled.h) on the device cpu.
#include "device/map_compiled.h"

#include "device/cpu/functions.h"
#include "device/map_plan.h"

#include <stdlib.h>

enum { COMPILED_GRAIN = 1 << 13 };

typedef struct compiled_job {
    const void *in[TRI_COMPILED_INPUTS];
    void *out[TRI_COMPILED_OUTPUTS];
    float slope;
} compiled_job;

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
        const compiled_job job = *(const compiled_job *)context;                                   \
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

static bool compiled_supports(const tri_device_description *device, const tri_graph *graph,
                              const tri_node *node) {
    double slope;
    bool mixed;
    tri_map_plan_type(graph, node, &mixed);
    return !mixed && cpu_is_float(device, graph, node) && tri_map_is_flat(graph, node) &&
           tri_compiled_find(&((const tri_map_attr *)node->attr)->formula, &slope) !=
               TRI_COMPILED_COUNT;
}

typedef struct compiled_state {
    const cpu_device *device;
    cpu_range range;
    int64_t count;
    int inputs, outputs;
    double slope;
} compiled_state;

static tri_status compiled_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                   tri_kernel *kernel) {
    compiled_state *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a map");
    const tri_value_info *x = tri_value_get(graph, node->inputs[0]);
    const tri_formula *formula = &((const tri_map_attr *)node->attr)->formula;
    *s = (compiled_state){.device = cpu_of(device),
                          .count = tri_layout_elements(&x->layout, &x->shape),
                          .inputs = formula->input_count,
                          .outputs = formula->output_count};
    tri_compiled row = tri_compiled_find(formula, &s->slope);
    s->range = ranges[row](s->device, cpu_is_bf16(graph, node));
    kernel->state = s;
    return TRI_OK;
}

static tri_status compiled_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const compiled_state *s = kernel->state;
    compiled_job job = {.slope = (float)s->slope};
    for (int k = 0; k < s->inputs; k++) job.in[k] = args->in[k];
    for (int k = 0; k < s->outputs; k++) job.out[k] = args->out[k];
    cpu_parallel(s->device, s->count, COMPILED_GRAIN, s->range, &job);
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
