// The op map: a formula on each element. It is computed a tile at a time, some hundred elements
// that stay in the cache: each step of the formula is a loop over the tile, compiled for each
// instruction set. Threads share the tiles.
#include "device/cpu/map.h"
#include "device/cpu/functions.h"
#include "device/map_plan.h"
#include "ops/formula_division.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAP_TILE = 256, MAP_GRAIN = 1 << 12 };

typedef void (*step_function)(float *out, const float *a, const float *b, const float *c,
                              int64_t count);

FORMULA_DIVISION(float, fmodf, floorf)

#define MAP_POW(a, b) powf(a, b)
#define MAP_ABS(a) __builtin_fabsf(a)
#define MAP_FLOOR(a) floorf(a)
#define MAP_CEIL(a) ceilf(a)
#define MAP_ROUND(a) nearbyintf(a)
#define MAP_SQRT(a) sqrtf(a)
#define MAP_EXP(a) cpu_exp_scalar(a)
#define MAP_EXPM1(a) cpu_expm1_scalar(a)
#define MAP_LOG(a) cpu_log_scalar(a)
#define MAP_LOG1P(a) cpu_log1p_scalar(a)
#define MAP_SIN(a) sinf(a)
#define MAP_COS(a) cosf(a)
#define MAP_ERF(a) cpu_erf_scalar(a)
#define MAP_NORMAL_CDF(a) cpu_normal_cdf_scalar(a)
#define MAP_TANH(a) cpu_tanh_scalar(a)
#define MAP_SIGMOID(a) cpu_sigmoid_scalar(a)
#define MAP_FLOOR_DIV(a, b) formula_floor_div(a, b)
#define MAP_REMAINDER(a, b) formula_remainder(a, b)
#define MAP_FMOD(a, b) fmodf(a, b)
#define A a[i]
#define B b[i]
#define C c[i]

#define STEP_PARAMETERS float *out, const float *a, const float *b, const float *c, int64_t count
#define X(name, arity, value)                                                                      \
    CPU_BODY step_##name##_body(STEP_PARAMETERS) {                                                 \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < count; i++) out[i] = value;                   \
    }                                                                                              \
    static CPU_AVX512 void step_##name##_avx512(STEP_PARAMETERS) {                                 \
        step_##name##_body(out, a, b, c, count);                                                   \
    }                                                                                              \
    static __attribute__((target("avx2,fma"))) void step_##name##_avx2(STEP_PARAMETERS) {          \
        step_##name##_body(out, a, b, c, count);                                                   \
    }                                                                                              \
    static void step_##name##_base(STEP_PARAMETERS) { step_##name##_body(out, a, b, c, count); }
TRI_STEP_LIST(X)
#undef X

#define X(name, arity, value) {step_##name##_base, step_##name##_avx2, step_##name##_avx512},
static const step_function functions[][3] = {TRI_STEP_LIST(X)};
#undef X

typedef struct map_state {
    const cpu_device *device;
    tri_map_plan plan; // a slot has the size of a tile
    int level;         // index in a row of `functions`
    bool bf16, mask;
    bool bytes[TRI_FORMULA_INPUTS]; // the input is U8, a mask
    float constants[TRI_FORMULA_CONSTANTS][MAP_TILE];
} map_state;

typedef struct map_job {
    const map_state *state;
    const tri_kernel_args *args;
} map_job;

// Reads elements from index on, `stride` apart.
static void load_elements(const map_state *s, int k, const void *from, int64_t index,
                          int64_t stride, int64_t count, float *to) {
    if (s->bytes[k])
        for (int64_t i = 0; i < count; i++) to[i] = ((const uint8_t *)from)[index + i * stride];
    else if (stride == 1 && !s->bf16)
        for (int64_t i = 0; i < count; i++) to[i] = ((const float *)from)[index + i];
    else
        for (int64_t i = 0; i < count; i++) to[i] = cpu_get(from, s->bf16, index + i * stride);
}

// Reads `count` elements along the innermost axis, from `at` on, of which the first has the index
// `index`.
static void load_run(const map_state *s, int k, const void *from, int64_t index, int64_t at,
                     int64_t count, float *to) {
    const tri_map_input *input = &s->plan.inputs[k];
    int inner = s->plan.rank - 1;
    int64_t stride = input->strides[inner], i = 0;
    for (; i < count && at + i < input->first[inner]; i++) to[i] = 0;
    int64_t end = input->end[inner] - at < count ? input->end[inner] - at : count;
    if (end > i) {
        load_elements(s, k, from, index + i * stride, stride, end - i, to + i);
        i = end;
    }
    for (; i < count; i++) to[i] = 0;
}

// Reads elements [begin, begin + count) of an input that is not flat.
static void load_view(const map_state *s, int k, const void *from, int64_t begin, int64_t count,
                      float *to) {
    const tri_map_input *input = &s->plan.inputs[k];
    int64_t at[TRI_MAX_RANK], left = begin;
    int inner = s->plan.rank - 1;
    for (int i = inner; i >= 0; i--) {
        at[i] = left % s->plan.dims[i];
        left /= s->plan.dims[i];
    }
    while (count > 0) {
        int64_t run =
            s->plan.dims[inner] - at[inner] < count ? s->plan.dims[inner] - at[inner] : count;
        int64_t index = input->offset;
        bool outside = false;
        for (int i = 0; i <= inner; i++) {
            index += at[i] * input->strides[i];
            if (i < inner) outside |= at[i] < input->first[i] || at[i] >= input->end[i];
        }
        if (outside)
            memset(to, 0, (size_t)run * sizeof *to);
        else
            load_run(s, k, from, index, at[inner], run, to);
        to += run;
        count -= run;
        at[inner] = 0;
        for (int i = inner - 1; i >= 0; i--) { // only a run that ends a row goes on here
            if (++at[i] < s->plan.dims[i]) break;
            at[i] = 0;
        }
    }
}

static const float *load(const map_state *s, int k, const void *from, int64_t begin, int64_t count,
                         float *to) {
    if (!s->plan.inputs[k].flat) {
        load_view(s, k, from, begin, count, to);
        return to;
    }
    if (!s->bf16 && !s->bytes[k]) return (const float *)from + begin;
    load_elements(s, k, from, begin, 1, count, to);
    return to;
}

static void map_tile(const map_job *job, float *tiles, int64_t begin, int64_t count) {
    const map_state *s = job->state;
    const tri_formula *f = &s->plan.formula;
    const float *operands[UINT8_MAX + 1];
    for (int k = 0; k < f->input_count; k++)
        operands[TRI_OPERAND_INPUT + k] =
            load(s, k, job->args->in[k], begin, count,
                 tiles + s->plan.slots[TRI_OPERAND_INPUT + k] * (int64_t)MAP_TILE);
    for (int k = 0; k < f->constant_count; k++)
        operands[TRI_OPERAND_CONSTANT + k] = s->constants[k];
    for (int i = 0; i < f->step_count; i++) {
        const tri_formula_step *t = &f->steps[i];
        float *out = tiles + s->plan.slots[i] * (int64_t)MAP_TILE;
        operands[i] = out;
        functions[t->kind][s->level](out, operands[t->a], operands[t->b], operands[t->c], count);
    }
    // Output 0 may lie over input 0, which another output may still have to be copied from.
    for (int k = f->output_count - 1; k >= 0; k--) {
        const float *from = operands[f->outputs[k]];
        for (int64_t i = 0; i < count && s->mask; i++)
            ((uint8_t *)job->args->out[k])[begin + i] = from[i] != 0;
        for (int64_t i = 0; i < count && !s->mask; i++)
            cpu_put(job->args->out[k], s->bf16, begin + i, from[i]);
    }
}

static void map_range(void *context, int64_t begin, int64_t end, int thread) {
    const map_job *job = context;
    float *tiles =
        (float *)job->args->workspace + (int64_t)thread * job->state->plan.slot_count * MAP_TILE;
    for (int64_t i = begin; i < end; i += MAP_TILE)
        map_tile(job, tiles, i, end - i < MAP_TILE ? end - i : MAP_TILE);
}

static tri_status map_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                              tri_kernel *kernel) {
    map_state *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a map");
    kernel->state = s;
    s->device = cpu_of(device);
    tri_map_plan_make(graph, node, &s->plan);
    s->level = cpu_has(&device->description, CPU_HAS_AVX512) ? 2
               : cpu_has(&device->description, CPU_HAS_AVX2) ? 1
                                                             : 0;
    bool mixed;
    s->bf16 = tri_map_plan_type(graph, node, &mixed) == TRI_BF16;
    s->mask = ((const tri_map_attr *)node->attr)->mask;
    for (int k = 0; k < s->plan.formula.input_count; k++)
        s->bytes[k] = tri_value_get(graph, node->inputs[k])->dtype == TRI_U8;
    for (int k = 0; k < s->plan.formula.constant_count; k++)
        for (int i = 0; i < MAP_TILE; i++) s->constants[k][i] = (float)s->plan.formula.constants[k];
    return TRI_OK;
}

static tri_status map_workspace(const tri_device_description *device, const tri_graph *graph,
                                const tri_node *node, size_t *out) {
    *out = (size_t)device->threads * (size_t)tri_map_plan_slots(node) * MAP_TILE * sizeof(float);
    return TRI_OK;
}

static tri_status map_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const map_state *s = kernel->state;
    map_job job = {s, args};
    cpu_parallel(s->device, s->plan.count, MAP_GRAIN, map_range, &job);
    return TRI_OK;
}

static void map_release(tri_kernel *kernel) { free(kernel->state); }

void cpu_map_layouts(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node, tri_layout *in, tri_layout *out) {
    const tri_formula *f = &((const tri_map_attr *)node->attr)->formula;
    bool flat = tri_map_is_flat(graph, node);
    tri_layout layout = flat ? in[f->input_count - 1] : TRI_LAYOUT_PLAIN;
    for (int k = 0; k < f->input_count; k++) in[k] = layout;
    for (int k = 0; k < f->output_count; k++) out[k] = layout;
}

static bool map_supports(const tri_device_description *device, const tri_graph *graph,
                         const tri_node *node) {
    bool mixed;
    tri_dtype type = tri_map_plan_type(graph, node, &mixed);
    return type == TRI_F32 || type == TRI_BF16;
}

const tri_kernel_def cpu_map_tiles = {
    .op = &tri_op_map,
    .name = "tiles",
    .supports = map_supports,
    .layouts = cpu_map_layouts,
    .workspace = map_workspace,
    .prepare = map_prepare,
    .run = map_run,
    .release = map_release,
};
