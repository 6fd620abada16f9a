// The op map: a formula on each element. Inputs are read where they are, or copied a tile at a
// time, some hundred elements that stay in the cache, and the formula runs in vector registers
// (map_steps.h). Threads share the elements.
#include "device/cpu/map.h"
#include "device/cpu/scalar.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAP_GRAIN = 1 << 12,
    MAP_STREAM = 16 << 20, // outputs of so many bytes are not read from a cache again
};

typedef struct map_state {
    const cpu_device *device;
    cpu_map map;
    int64_t room; // of a thread, in floats
} map_state;

typedef struct map_job {
    const map_state *state;
    const tri_kernel_args *args;
} map_job;

// Reads elements from index on, `stride` apart.
static void load_elements(const cpu_map *s, int k, const void *from, int64_t index, int64_t stride,
                          int64_t count, float *to) {
    const tri_draw_stream *draws = &s->plan.inputs[k].draws;
    if (draws->kind != TRI_DRAW_NONE)
        cpu_map_draw(s->draws, draws, from, index, stride, count, to);
    else if (s->bytes[k])
        for (int64_t i = 0; i < count; i++) to[i] = ((const uint8_t *)from)[index + i * stride];
    else if (stride == 1 && s->bf16)
        s->copies.widen((const uint16_t *)from + index, count, to);
    else if (stride == 1)
        for (int64_t i = 0; i < count; i++) to[i] = ((const float *)from)[index + i];
    else
        for (int64_t i = 0; i < count; i++) to[i] = cpu_get(from, s->bf16, index + i * stride);
}

// What load_run reads.
typedef struct run_source {
    const cpu_map *map;
    int input;
    const void *from;
} run_source;

static void load_run(const void *context, int64_t index, int64_t stride, int64_t count,
                     void *values, int64_t at) {
    const run_source *s = context;
    float *to = (float *)values + at;
    if (index < 0)
        memset(to, 0, (size_t)count * sizeof *to);
    else
        load_elements(s->map, s->input, s->from, index, stride, count, to);
}

// Reads `count` elements along the innermost axis, from `at` on, of which the first has the index
// `index`; those outside of the input are 0.
static void read_row(const tri_map_plan *plan, const tri_map_input *input, int64_t index,
                     int64_t at, int64_t count, cpu_map_run run, const void *context, void *to,
                     int64_t first) {
    int inner = plan->rank - 1;
    int64_t stride = input->strides[inner];
    int64_t begin = input->first[inner] - at, end = input->end[inner] - at;
    if (begin < 0) begin = 0;
    if (begin > count) begin = count;
    if (end > count) end = count;
    if (end < begin) end = begin;
    if (begin > 0) run(context, -1, 0, begin, to, first);
    if (end > begin) run(context, index + begin * stride, stride, end - begin, to, first + begin);
    if (count > end) run(context, -1, 0, count - end, to, first + end);
}

void cpu_map_read_view(const tri_map_plan *plan, int input_number, int64_t begin, int64_t count,
                       cpu_map_run run, const void *context, void *to) {
    const tri_map_input *input = &plan->inputs[input_number];
    int64_t at[TRI_MAX_RANK], left = begin, done = 0;
    int inner = plan->rank - 1;
    for (int i = inner; i >= 0; i--) {
        at[i] = left % plan->dims[i];
        left /= plan->dims[i];
    }
    while (done < count) {
        int64_t row = plan->dims[inner] - at[inner];
        if (row > count - done) row = count - done;
        int64_t index = input->offset;
        bool outside = false;
        for (int i = 0; i <= inner; i++) {
            index += at[i] * input->strides[i];
            if (i < inner) outside |= at[i] < input->first[i] || at[i] >= input->end[i];
        }
        if (outside)
            run(context, -1, 0, row, to, done);
        else
            read_row(plan, input, index, at[inner], row, run, context, to, done);
        done += row;
        at[inner] = 0;
        for (int i = inner - 1; i >= 0; i--) { // only a row that has ended goes on here
            if (++at[i] < plan->dims[i]) break;
            at[i] = 0;
        }
    }
}

static int64_t rounded_up(int64_t count) {
    return (count + CPU_MAP_BLOCK - 1) / CPU_MAP_BLOCK * CPU_MAP_BLOCK;
}

// Copies elements [begin, begin + count) of input k, and fills the last block with zeros.
static void load(const cpu_map *s, int k, const void *from, int64_t begin, int64_t count,
                 float *to) {
    run_source source = {s, k, from};
    if (!s->plan.inputs[k].flat)
        cpu_map_read_view(&s->plan, k, begin, count, load_run, &source, to);
    else
        load_elements(s, k, from, begin, 1, count, to);
    memset(to + count, 0, (size_t)(rounded_up(count) - count) * sizeof *to);
}

static int64_t room_of(const tri_formula *f, int slots) {
    return slots * CPU_MAP_BLOCK + (f->input_count + f->output_count) * CPU_MAP_TILE;
}

int64_t cpu_map_room(const tri_node *node) {
    return room_of(&((const tri_map_attr *)node->attr)->formula, tri_map_plan_slots(node));
}

void cpu_map_make(const cpu_device *device, const tri_graph *graph, const tri_node *node,
                  cpu_map *out) {
    tri_map_plan_make(graph, node, &out->plan);
    bool mixed;
    out->bf16 = tri_map_plan_type(graph, node, &mixed) == TRI_BF16;
    out->mask = ((const tri_map_attr *)node->attr)->mask;
    out->reads_floats = !out->bf16;
    for (int k = 0; k < out->plan.formula.input_count; k++) {
        out->bytes[k] = tri_value_get(graph, node->inputs[k])->dtype == TRI_U8;
        out->reads_floats = out->reads_floats && !out->bytes[k];
    }
    out->streams = out->plan.count * (int64_t)sizeof(float) >= MAP_STREAM;
    out->draws = cpu_map_draws_of(device);
    out->machine = cpu_map_machine_of(&device->head.description);
    out->copies = cpu_map_copies_of(&device->head.description);
    cpu_map_compile(&out->plan.formula, false, out->code);
    cpu_map_compile(&out->plan.formula, true, out->streaming);
    for (int k = 0; k < out->plan.formula.constant_count; k++)
        for (int i = 0; i < CPU_MAP_BLOCK; i++)
            out->constants[k][i] = (float)out->plan.formula.constants[k];
}

cpu_map_work cpu_map_begin(const cpu_map *map, const tri_kernel_args *args, float *room) {
    const tri_formula *f = &map->plan.formula;
    cpu_map_work
        w; // operands that the formula does not have are not read: a product calls it often
    w.map = map;
    w.args = args;
    for (int i = 0; i < f->step_count; i++)
        w.operands[i] = (cpu_map_operand){room + map->plan.slots[i] * CPU_MAP_BLOCK, 0};
    for (int k = 0; k < f->constant_count; k++)
        w.operands[TRI_OPERAND_CONSTANT + k] =
            (cpu_map_operand){(float *)(uintptr_t)map->constants[k], 0};
    w.tiles = room + map->plan.slot_count * CPU_MAP_BLOCK;
    return w;
}

static bool is_whole(int64_t count) { return count == rounded_up(count); }

// Finds where the inputs have elements [begin, begin + count): in memory, or copied into tiles.
static void load_inputs(cpu_map_work *w, int64_t begin, int64_t count) {
    const cpu_map *s = w->map;
    for (int k = 0; k < s->plan.formula.input_count; k++) {
        float *at = (float *)(uintptr_t)w->args->in[k] + begin;
        if (!s->reads_floats || !is_whole(count) || !s->plan.inputs[k].flat)
            load(s, k, w->args->in[k], begin, count, at = w->tiles + k * CPU_MAP_TILE);
        w->operands[TRI_OPERAND_INPUT + k] = (cpu_map_operand){at, -1};
    }
}

static float *output_tile(const cpu_map_work *w, int k) {
    return w->tiles + (w->map->plan.formula.input_count + k) * CPU_MAP_TILE;
}

const float *cpu_map_read(cpu_map_work *w, int64_t begin, int64_t count) {
    load_inputs(w, begin, count);
    w->operands[CPU_MAP_OUTPUT] = (cpu_map_operand){output_tile(w, 0), -1};
    w->map->machine(w->map->code, w->operands, rounded_up(count) / CPU_MAP_BLOCK);
    return output_tile(w, 0);
}

// Computes elements [begin, begin + count). Whole blocks are written where they belong.
static void map_tile(cpu_map_work *w, int64_t begin, int64_t count) {
    const cpu_map *s = w->map;
    int outputs = s->plan.formula.output_count;
    bool in_place = !s->bf16 && !s->mask && is_whole(count), streams = s->streams && in_place;
    load_inputs(w, begin, count);
    for (int k = 0; k < outputs; k++) {
        float *at = in_place ? (float *)w->args->out[k] + begin : output_tile(w, k);
        streams = streams && (uintptr_t)at % 64 == 0;
        w->operands[CPU_MAP_OUTPUT + k] = (cpu_map_operand){at, -1};
    }
    s->machine(streams ? s->streaming : s->code, w->operands, rounded_up(count) / CPU_MAP_BLOCK);
    for (int k = 0; k < outputs && !in_place; k++) {
        const float *from = output_tile(w, k);
        for (int64_t i = 0; i < count && s->mask; i++)
            ((uint8_t *)w->args->out[k])[begin + i] = from[i] != 0;
        if (s->mask) continue;
        if (s->bf16)
            s->copies.narrow(from, count, (uint16_t *)w->args->out[k] + begin);
        else
            memcpy((float *)w->args->out[k] + begin, from, (size_t)count * sizeof *from);
    }
}

// The first and the last block of a range may not be whole; all others are.
void cpu_map_compute(cpu_map_work *w, int64_t begin, int64_t end) {
    int64_t whole = end - end % CPU_MAP_BLOCK; // behind it is a block that is not whole
    for (int64_t i = begin, next; i < end; i = next) {
        next = i % CPU_MAP_BLOCK ? rounded_up(i) : i + CPU_MAP_TILE;
        if (next > whole) next = i < whole ? whole : end;
        map_tile(w, i, next - i);
    }
}

static void map_range(void *context, int64_t begin, int64_t end, int thread) {
    const map_job *job = context;
    float *room = (float *)job->args->workspace + thread * job->state->room;
    cpu_map_work w = cpu_map_begin(&job->state->map, job->args, room);
    cpu_map_compute(&w, begin, end);
    if (job->state->map.streams) __builtin_ia32_sfence(); // other threads see all of it
}

static tri_status map_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                              tri_kernel *kernel) {
    map_state *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a map");
    kernel->state = s;
    s->device = cpu_of(device);
    s->room = cpu_map_room(node);
    cpu_map_make(s->device, graph, node, &s->map);
    return TRI_OK;
}

static tri_status map_workspace(const tri_device_description *device, const tri_graph *graph,
                                const tri_node *node, size_t *out) {
    *out = (size_t)(device->threads * cpu_map_room(node)) * sizeof(float);
    return TRI_OK;
}

static tri_status map_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const map_state *s = kernel->state;
    map_job job = {s, args};
    cpu_parallel(s->device, s->map.plan.count, MAP_GRAIN, map_range, &job);
    return TRI_OK;
}

static void map_release(tri_kernel *kernel) { free(kernel->state); }

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
    .layouts = tri_map_layouts,
    .workspace = map_workspace,
    .prepare = map_prepare,
    .run = map_run,
    .release = map_release,
};
