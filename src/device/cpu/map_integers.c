// The op map on integers, some hundred elements at a time: each step is a loop over 64-bit integers
// in the cache. Threads share the elements.
#include "ops/formula_integer.h"

#include "device/cpu/map.h"
#include "device/cpu/scalar.h"

#include <stdlib.h>
#include <string.h>

enum { INTEGER_TILE = 256, INTEGER_GRAIN = 1 << 11 };

typedef struct integers_state {
    const cpu_device *device;
    tri_map_plan plan;
    tri_dtype in[TRI_FORMULA_INPUTS], out; // the types
    bool mask;
    cpu_range steps;
} integers_state;

typedef struct integers_job {
    const integers_state *state;
    const tri_kernel_args *args;
    int64_t *room; // of a thread: slots, then constants, each a tile
} integers_job;

static int64_t tiles_of(const tri_formula *f, int slots) { return slots + f->constant_count; }

// Where an operand lies: of a step and an input in its slot.
static int64_t *operand(const integers_job *job, int number) {
    const tri_map_plan *plan = &job->state->plan;
    int tile = number < TRI_OPERAND_CONSTANT ? plan->slots[number]
                                             : plan->slot_count + number - TRI_OPERAND_CONSTANT;
    return job->room + tile * INTEGER_TILE;
}

// Every kind of step that an integer may have, as a loop of its own.
// clang-format off
#define INTEGER_STEPS(X)                                                                           \
    X(add) X(sub) X(mul) X(min) X(max) X(neg) X(abs) X(sign) X(less) X(less_equal) X(equal)        \
    X(not) X(select) X(floor_div) X(remainder) X(fmod)
// clang-format on
#define STEP(name, ...)                                                                            \
    case TRI_STEP_##name:                                                                          \
        _Pragma("GCC ivdep") for (int64_t k = 0; k < INTEGER_TILE; k++) y[k] =                     \
            formula_integer_step(TRI_STEP_##name, a[k], b[k], c[k]);                               \
        break;

// Runs the steps on a tile.
CPU_BODY steps_body(void *context, int64_t begin, int64_t end) {
    const integers_job *job = context;
    const tri_formula *f = &job->state->plan.formula;
    for (int i = 0; i < f->step_count; i++) {
        const tri_formula_step *s = &f->steps[i];
        int arity = tri_step_arity((tri_step_kind)s->kind);
        int64_t *y = operand(job, i), *a = operand(job, s->a);
        int64_t *b = arity > 1 ? operand(job, s->b) : a, *c = arity > 2 ? operand(job, s->c) : a;
        switch (s->kind) {
            INTEGER_STEPS(STEP)
            TRI_BIT_STEP_LIST(STEP)
        default:
            break;
        }
    }
}
CPU_RANGES(steps)

// What load_run reads.
typedef struct run_source {
    tri_dtype type;
    const void *from;
} run_source;

static void load_column(const run_source *s, const cpu_map_run *run, int64_t column, int64_t *to) {
    int64_t *at = to + run->at + column, stride = run->stride, step = run->step;
    int64_t index = run->index + column * run->between;
    if (run->index < 0)
        for (int64_t i = 0; i < run->count; i++) at[i * step] = 0;
    else if (s->type == TRI_I64)
        for (int64_t i = 0; i < run->count; i++)
            at[i * step] = ((const int64_t *)s->from)[index + i * stride];
    else if (s->type == TRI_I32)
        for (int64_t i = 0; i < run->count; i++)
            at[i * step] = ((const int32_t *)s->from)[index + i * stride];
    else
        for (int64_t i = 0; i < run->count; i++)
            at[i * step] = ((const uint8_t *)s->from)[index + i * stride];
}

static void load_run(const void *context, const cpu_map_run *run, void *to) {
    for (int64_t c = 0; c < run->columns; c++) load_column(context, run, c, to);
}

static void store(const integers_state *s, const int64_t *from, int64_t begin, int64_t count,
                  void *out) {
    if (s->mask)
        for (int64_t i = 0; i < count; i++) ((uint8_t *)out)[begin + i] = from[i] != 0;
    else if (s->out == TRI_I64)
        memcpy((int64_t *)out + begin, from, (size_t)count * sizeof *from);
    else if (s->out == TRI_I32)
        for (int64_t i = 0; i < count; i++) ((int32_t *)out)[begin + i] = (int32_t)from[i];
    else
        for (int64_t i = 0; i < count; i++) ((uint8_t *)out)[begin + i] = (uint8_t)from[i];
}

static void integers_range(void *context, int64_t begin, int64_t end, int thread) {
    integers_job job = *(const integers_job *)context;
    const integers_state *s = job.state;
    const tri_formula *f = &s->plan.formula;
    int64_t tiles = tiles_of(f, s->plan.slot_count);
    if (begin == end) return;
    job.room += thread * tiles * INTEGER_TILE;
    memset(job.room, 0, (size_t)(tiles * INTEGER_TILE) * sizeof *job.room);
    for (int k = 0; k < f->constant_count; k++) {
        int64_t *constant = operand(&job, TRI_OPERAND_CONSTANT + k);
        for (int i = 0; i < INTEGER_TILE; i++) constant[i] = (int64_t)f->constants[k];
    }
    for (int64_t i = begin; i < end; i += INTEGER_TILE) {
        int64_t count = end - i < INTEGER_TILE ? end - i : INTEGER_TILE;
        for (int k = 0; k < f->input_count; k++) {
            run_source source = {s->in[k], job.args->in[k]};
            int64_t *to = operand(&job, TRI_OPERAND_INPUT + k);
            if (s->plan.inputs[k].flat)
                load_run(&source, &(cpu_map_run){i, 1, count, 0, 1, 1, 0}, to);
            else
                cpu_map_read_view(&s->plan, k, i, count, load_run, &source, to);
        }
        s->steps(&job, 0, 0, 0);
        for (int k = 0; k < f->output_count; k++)
            store(s, operand(&job, f->outputs[k]), i, count, job.args->out[k]);
    }
}

static tri_status integers_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                   tri_kernel *kernel) {
    integers_state *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a map");
    kernel->state = s;
    s->device = cpu_of(device);
    tri_map_plan_make(graph, node, &s->plan);
    for (int k = 0; k < s->plan.formula.input_count; k++)
        s->in[k] = tri_value_get(graph, node->inputs[k])->dtype;
    s->out = tri_value_get(graph, node->outputs[0])->dtype;
    s->mask = ((const tri_map_attr *)node->attr)->mask;
    s->steps = steps_range(s->device);
    return TRI_OK;
}

static tri_status integers_workspace(const tri_device_description *device, const tri_graph *graph,
                                     const tri_node *node, size_t *out) {
    const tri_formula *f = &((const tri_map_attr *)node->attr)->formula;
    int64_t tiles = device->threads * tiles_of(f, tri_map_plan_slots(node));
    *out = (size_t)(tiles * INTEGER_TILE) * sizeof(int64_t);
    return TRI_OK;
}

static tri_status integers_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const integers_state *s = kernel->state;
    integers_job job = {s, args, args->workspace};
    cpu_parallel(s->device, s->plan.count, INTEGER_GRAIN, integers_range, &job);
    return TRI_OK;
}

static bool integers_supports(const tri_device_description *device, const tri_graph *graph,
                              const tri_node *node) {
    bool mixed;
    tri_dtype type = tri_map_plan_type(graph, node, &mixed);
    return type == TRI_I64 || type == TRI_I32 || type == TRI_U8;
}

static void integers_release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_map_integers = {
    .op = &tri_op_map,
    .name = "integers",
    .supports = integers_supports,
    .layouts = tri_map_layouts,
    .workspace = integers_workspace,
    .prepare = integers_prepare,
    .run = integers_run,
    .release = integers_release,
};
