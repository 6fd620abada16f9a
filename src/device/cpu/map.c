// The op map: a formula on each element. It is computed a tile at a time, some hundred elements
// that stay in the cache: each step of the formula is a loop over the tile, compiled for each
// instruction set. Threads share the tiles.
#include "device/cpu/functions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAP_TILE = 256, MAP_GRAIN = 1 << 12 };

typedef void (*step_function)(float *out, const float *a, const float *b, const float *c,
                              int64_t count);

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
#define MAP_TANH(a) cpu_tanh_scalar(a)
#define MAP_SIGMOID(a) cpu_sigmoid_scalar(a)
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

// How an input is read: element by element with the output, or by strides along the axes of
// map_state.dims. Outside of [first, end) of an axis it is 0.
typedef struct map_input {
    bool flat;
    int64_t offset, strides[TRI_MAX_RANK], first[TRI_MAX_RANK], end[TRI_MAX_RANK];
} map_input;

typedef struct map_state {
    const cpu_device *device;
    tri_formula formula;
    // Where operands lie: results of steps in slots, each the size of a tile, which are used again
    // when no later step reads them; then come inputs that are not read in place, then constants.
    uint8_t slots[TRI_OPERAND_CONSTANT];
    int slot_count, level; // level: index in a row of `functions`
    bool bf16;
    int64_t count; // elements of the output, with the padding of its layout
    int rank;      // axes of the output; neighbours along which all inputs are alike are one axis
    int64_t dims[TRI_MAX_RANK];
    map_input inputs[TRI_FORMULA_INPUTS];
    float constants[TRI_FORMULA_CONSTANTS][MAP_TILE];
} map_state;

typedef struct map_job {
    const map_state *state;
    const tri_kernel_args *args;
} map_job;

// Gives each step a slot. Returns how many slots there are.
static int assign_slots(const tri_formula *f, uint8_t *slots) {
    int last[TRI_FORMULA_STEPS] = {0}, count = 0; // last[i]: the last step that reads step i
    bool taken[TRI_FORMULA_STEPS] = {false};
    for (int i = 0; i < f->step_count; i++) {
        uint8_t operands[] = {f->steps[i].a, f->steps[i].b, f->steps[i].c};
        for (int k = 0; k < tri_step_arity((tri_step_kind)f->steps[i].kind); k++)
            if (operands[k] < TRI_OPERAND_INPUT) last[operands[k]] = i;
    }
    for (int k = 0; k < f->output_count; k++)
        if (f->outputs[k] < TRI_OPERAND_INPUT) last[f->outputs[k]] = f->step_count;
    for (int i = 0; i < f->step_count; i++) {
        int slot = 0;
        for (int k = 0; k < i; k++) // an operand's slot may be the result's: the loops allow it
            if (last[k] == i) taken[slots[k]] = false;
        while (taken[slot]) slot++;
        taken[slot] = true;
        slots[i] = (uint8_t)slot;
        if (slot >= count) count = slot + 1;
    }
    for (int k = 0; k < f->input_count; k++) slots[TRI_OPERAND_INPUT + k] = (uint8_t)(count + k);
    return count + f->input_count;
}

// Reads `count` elements along the innermost axis, from `at` on, of which the first has the index
// `index`.
static void load_run(const map_state *s, const map_input *input, const void *from, int64_t index,
                     int64_t at, int64_t count, float *to) {
    int inner = s->rank - 1;
    int64_t stride = input->strides[inner], i = 0;
    for (; i < count && at + i < input->first[inner]; i++) to[i] = 0;
    int64_t end = input->end[inner] - at < count ? input->end[inner] - at : count;
    if (stride == 1 && !s->bf16)
        for (; i < end; i++) to[i] = ((const float *)from)[index + i];
    for (; i < end; i++) to[i] = cpu_get(from, s->bf16, index + i * stride);
    for (; i < count; i++) to[i] = 0;
}

// Reads elements [begin, begin + count) of an input that is not flat.
static void load_view(const map_state *s, const map_input *input, const void *from, int64_t begin,
                      int64_t count, float *to) {
    int64_t at[TRI_MAX_RANK], left = begin;
    int inner = s->rank - 1;
    for (int i = inner; i >= 0; i--) {
        at[i] = left % s->dims[i];
        left /= s->dims[i];
    }
    while (count > 0) {
        int64_t run = s->dims[inner] - at[inner] < count ? s->dims[inner] - at[inner] : count;
        int64_t index = input->offset;
        bool outside = false;
        for (int i = 0; i <= inner; i++) {
            index += at[i] * input->strides[i];
            if (i < inner) outside |= at[i] < input->first[i] || at[i] >= input->end[i];
        }
        if (outside)
            memset(to, 0, (size_t)run * sizeof *to);
        else
            load_run(s, input, from, index, at[inner], run, to);
        to += run;
        count -= run;
        at[inner] = 0;
        for (int i = inner - 1; i >= 0; i--) { // only a run that ends a row goes on here
            if (++at[i] < s->dims[i]) break;
            at[i] = 0;
        }
    }
}

static const float *load(const map_state *s, int k, const void *from, int64_t begin, int64_t count,
                         float *to) {
    if (!s->inputs[k].flat) {
        load_view(s, &s->inputs[k], from, begin, count, to);
        return to;
    }
    if (!s->bf16) return (const float *)from + begin;
    for (int64_t i = 0; i < count; i++) to[i] = cpu_get(from, true, begin + i);
    return to;
}

static void map_tile(const map_job *job, float *tiles, int64_t begin, int64_t count) {
    const map_state *s = job->state;
    const tri_formula *f = &s->formula;
    const float *operands[UINT8_MAX + 1];
    for (int k = 0; k < f->input_count; k++)
        operands[TRI_OPERAND_INPUT + k] =
            load(s, k, job->args->in[k], begin, count,
                 tiles + s->slots[TRI_OPERAND_INPUT + k] * (int64_t)MAP_TILE);
    for (int k = 0; k < f->constant_count; k++)
        operands[TRI_OPERAND_CONSTANT + k] = s->constants[k];
    for (int i = 0; i < f->step_count; i++) {
        const tri_formula_step *t = &f->steps[i];
        float *out = tiles + s->slots[i] * (int64_t)MAP_TILE;
        operands[i] = out;
        functions[t->kind][s->level](out, operands[t->a], operands[t->b], operands[t->c], count);
    }
    for (int k = 0; k < f->output_count; k++) {
        const float *from = operands[f->outputs[k]];
        for (int64_t i = 0; i < count; i++) cpu_put(job->args->out[k], s->bf16, begin + i, from[i]);
    }
}

static void map_range(void *context, int64_t begin, int64_t end, int thread) {
    const map_job *job = context;
    float *tiles =
        (float *)job->args->workspace + (int64_t)thread * job->state->slot_count * MAP_TILE;
    for (int64_t i = begin; i < end; i += MAP_TILE)
        map_tile(job, tiles, i, end - i < MAP_TILE ? end - i : MAP_TILE);
}

static bool is_flat(const tri_graph *graph, const tri_node *node, int input) {
    const tri_map_attr *attr = node->attr;
    return !(attr->viewed >> input & 1) &&
           tri_shape_equal(cpu_in_shape(graph, node, input), cpu_out_shape(graph, node, 0));
}

// Turns a view of x into strides along the axes of the output.
static map_input input_of(const tri_map_view *view, const tri_shape *x, const tri_shape *out) {
    map_input input = {0};
    int64_t stride = 1;
    for (int i = 0; i < out->rank; i++) input.end[i] = out->dims[i];
    for (int j = x->rank - 1; j >= 0; j--) {
        int64_t size = x->dims[j], start = view->start[j];
        int axis = view->axis[j];
        input.offset += start * stride;
        if (axis >= 0) {
            bool forward = view->sign[j] > 0;
            int64_t first = forward ? -start : start - size + 1;
            int64_t end = forward ? size - start : start + 1;
            input.strides[axis] = view->sign[j] * stride;
            if (first > 0) input.first[axis] = first;
            if (end < input.end[axis]) input.end[axis] = end;
        }
        stride *= size;
    }
    return input;
}

// Sets the axes of the output and the strides of the inputs along them. Neighbouring axes become
// one where every input runs through both as through one.
static void set_strides(map_state *s, const tri_graph *graph, const tri_node *node) {
    const tri_shape *out = cpu_out_shape(graph, node, 0);
    map_input whole[TRI_FORMULA_INPUTS];
    int count = s->formula.input_count;
    for (int k = 0; k < count; k++) {
        const tri_shape *x = cpu_in_shape(graph, node, k);
        tri_map_view view = tri_map_view_of(node->attr, k, x, out);
        whole[k] = input_of(&view, x, out);
        s->inputs[k].flat = is_flat(graph, node, k);
        s->inputs[k].offset = whole[k].offset;
    }
    for (int i = 0; i < out->rank; i++) {
        bool joins = s->rank > 0;
        int last = s->rank - 1;
        for (int k = 0; k < count && joins; k++) {
            const map_input *input = &s->inputs[k];
            joins = input->strides[last] == whole[k].strides[i] * out->dims[i] &&
                    input->first[last] == 0 && input->end[last] == s->dims[last] &&
                    whole[k].first[i] == 0 && whole[k].end[i] == out->dims[i];
        }
        if (!joins) s->dims[s->rank++] = 1;
        last = s->rank - 1;
        s->dims[last] *= out->dims[i];
        for (int k = 0; k < count; k++) {
            s->inputs[k].strides[last] = whole[k].strides[i];
            s->inputs[k].first[last] = joins ? 0 : whole[k].first[i];
            s->inputs[k].end[last] = joins ? s->dims[last] : whole[k].end[i];
        }
    }
    if (s->rank > 0) return;
    s->dims[s->rank++] = 1; // one element
    for (int k = 0; k < count; k++) s->inputs[k].end[0] = 1;
}

static tri_status map_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                              tri_kernel *kernel) {
    map_state *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a map");
    const tri_value_info *out = tri_value_get(graph, node->outputs[0]);
    kernel->state = s;
    s->device = cpu_of(device);
    s->formula = ((const tri_map_attr *)node->attr)->formula;
    s->slot_count = assign_slots(&s->formula, s->slots);
    s->level = cpu_has(&device->description, CPU_HAS_AVX512) ? 2
               : cpu_has(&device->description, CPU_HAS_AVX2) ? 1
                                                             : 0;
    s->bf16 = cpu_is_bf16(graph, node);
    s->count = tri_layout_elements(&out->layout, &out->shape);
    set_strides(s, graph, node);
    for (int k = 0; k < s->formula.constant_count; k++)
        for (int i = 0; i < MAP_TILE; i++) s->constants[k][i] = (float)s->formula.constants[k];
    return TRI_OK;
}

static tri_status map_workspace(const tri_device_description *device, const tri_graph *graph,
                                const tri_node *node, size_t *out) {
    uint8_t slots[TRI_OPERAND_CONSTANT];
    const tri_map_attr *attr = node->attr;
    *out = (size_t)device->threads * (size_t)assign_slots(&attr->formula, slots) * MAP_TILE *
           sizeof(float);
    return TRI_OK;
}

static tri_status map_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const map_state *s = kernel->state;
    map_job job = {s, args};
    cpu_parallel(s->device, s->count, MAP_GRAIN, map_range, &job);
    return TRI_OK;
}

static void map_release(tri_kernel *kernel) { free(kernel->state); }

// Inputs of the output's shape may have any layout, if it is the same one.
static void map_layouts(const tri_device_description *device, const tri_graph *graph,
                        const tri_node *node, tri_layout *in, tri_layout *out) {
    bool flat = true;
    for (int k = 0; k < node->input_count && tri_value_is(node->inputs[k]); k++)
        flat = flat && is_flat(graph, node, k);
    if (flat) {
        cpu_layouts_of_first(device, graph, node, in, out);
        return;
    }
    for (int k = 0; k < node->input_count; k++) in[k] = TRI_LAYOUT_PLAIN;
}

const tri_kernel_def cpu_map_tiles = {
    .op = &tri_op_map,
    .name = "tiles",
    .supports = cpu_is_float,
    .layouts = map_layouts,
    .workspace = map_workspace,
    .prepare = map_prepare,
    .run = map_run,
    .release = map_release,
};
