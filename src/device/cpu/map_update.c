// Updates parameters by a formula. Parameter, gradient and states are copied a tile at a time, the
// formula runs in vector registers (map_steps.h), and what it makes is copied back.
#include "device/cpu/map.h"

#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

enum {
    UPDATE_GRAIN = 1 << 12,
    UPDATE_ARRAYS = TRI_FORMULA_OUTPUTS + 1, // the gradient, the parameter and its states
};

typedef struct update_state {
    const cpu_device *device;
    tri_map_plan plan;
    int count_input; // tri_map_update_count
    double lr_factor;
    cpu_map_machine machine;
    cpu_map_instruction code[CPU_MAP_INSTRUCTIONS];
    float constants[TRI_FORMULA_CONSTANTS][CPU_MAP_BLOCK];
} update_state;

typedef struct update_job {
    const update_state *state;
    float *arrays[TRI_FORMULA_OUTPUTS]; // the parameter and its states
    const float *grad;
    float scale[CPU_MAP_BLOCK], lr[CPU_MAP_BLOCK], count[CPU_MAP_BLOCK];
} update_job;

static int64_t blocks_of(int64_t count) { return (count + CPU_MAP_BLOCK - 1) / CPU_MAP_BLOCK; }

static void copy_in(const float *from, int64_t count, float *to) {
    memcpy(to, from, (size_t)count * sizeof *to);
    memset(to + count, 0, (size_t)(blocks_of(count) * CPU_MAP_BLOCK - count) * sizeof *to);
}

static void update_range(void *context, int64_t begin, int64_t end, int thread) {
    const update_job *job = context;
    const update_state *s = job->state;
    const tri_formula *f = &s->plan.formula;
    float steps[TRI_FORMULA_STEPS][CPU_MAP_BLOCK] __attribute__((aligned(64)));
    float in[UPDATE_ARRAYS][CPU_MAP_TILE], out[TRI_FORMULA_OUTPUTS][CPU_MAP_TILE];
    cpu_map_operand operands[UINT8_MAX + 1] = {{NULL, 0}};
    for (int i = 0; i < f->step_count; i++)
        operands[i] = (cpu_map_operand){steps[s->plan.slots[i]], 0};
    for (int k = 0; k < f->constant_count; k++)
        operands[TRI_OPERAND_CONSTANT + k] =
            (cpu_map_operand){(float *)(uintptr_t)s->constants[k], 0};
    cpu_map_operand *inputs = operands + TRI_OPERAND_INPUT;
    if (s->count_input)
        inputs[s->count_input] = (cpu_map_operand){(float *)(uintptr_t)job->count, 0};
    inputs[TRI_UPDATE_SCALE] = (cpu_map_operand){(float *)(uintptr_t)job->scale, 0};
    inputs[TRI_UPDATE_LR] = (cpu_map_operand){(float *)(uintptr_t)job->lr, 0};
    inputs[TRI_UPDATE_GRADIENT] = (cpu_map_operand){in[UPDATE_ARRAYS - 1], -1};
    for (int k = 0; k < f->output_count; k++) {
        int input = k == 0 ? TRI_UPDATE_PARAMETER : TRI_UPDATE_STATES + k - 1;
        inputs[input] = (cpu_map_operand){in[k], -1};
        operands[CPU_MAP_OUTPUT + k] = (cpu_map_operand){out[k], -1};
    }
    unsigned before = _mm_getcsr(); // as the other updates, without subnormal numbers
    _mm_setcsr(before | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
    for (int64_t i = begin; i < end; i += CPU_MAP_TILE) {
        int64_t count = end - i < CPU_MAP_TILE ? end - i : CPU_MAP_TILE;
        copy_in(job->grad + i, count, in[UPDATE_ARRAYS - 1]);
        for (int k = 0; k < f->output_count; k++) copy_in(job->arrays[k] + i, count, in[k]);
        s->machine(s->code, operands, blocks_of(count));
        for (int k = 0; k < f->output_count; k++)
            memcpy(job->arrays[k] + i, out[k], (size_t)count * sizeof(float));
    }
    _mm_setcsr(before);
}

static tri_status map_update_prepare(tri_device *device, const tri_graph *graph,
                                     const tri_node *node, tri_kernel *kernel) {
    const tri_map_update_attr *attr = node->attr;
    const tri_value_info *param = tri_value_get(graph, node->inputs[0]);
    update_state *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for an optimizer update");
    kernel->state = s;
    s->device = cpu_of(device);
    s->lr_factor = attr->lr_factor;
    s->count_input = tri_map_update_count(&attr->formula);
    tri_map_plan_formula(&attr->formula, tri_layout_elements(&param->layout, &param->shape),
                         &s->plan);
    s->machine = cpu_map_machine_of(&s->device->head.description);
    cpu_map_compile(&s->plan.formula, false, s->code);
    for (int k = 0; k < attr->formula.constant_count; k++)
        for (int i = 0; i < CPU_MAP_BLOCK; i++)
            s->constants[k][i] = (float)attr->formula.constants[k];
    return TRI_OK;
}

static tri_status map_update_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const update_state *s = kernel->state;
    const double *step = args->in[2];
    if (step[TRI_STEP_SKIP] != 0) return TRI_OK;
    update_job job = {.state = s, .arrays = {args->in[0]}, .grad = args->in[1]};
    for (int k = 1; k < s->plan.formula.output_count; k++) job.arrays[k] = args->in[2 + k];
    for (int i = 0; i < CPU_MAP_BLOCK; i++) {
        job.scale[i] = (float)step[TRI_STEP_GRADIENT_SCALE];
        job.lr[i] = (float)(step[TRI_STEP_LR] * s->lr_factor);
        job.count[i] = (float)step[TRI_STEP_UPDATE];
    }
    cpu_parallel(s->device, s->plan.count, UPDATE_GRAIN, update_range, &job);
    return TRI_OK;
}

static void map_update_release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_map_update_tiles = {
    .op = &tri_op_map_update,
    .name = "tiles",
    .supports = cpu_is_f32,
    .layouts = cpu_layouts_of_first,
    .prepare = map_update_prepare,
    .run = map_update_run,
    .release = map_update_release,
};
