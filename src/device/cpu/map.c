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
    else if (stride == 0)
        for (int64_t i = 0, one = index; i < count; i++) to[i] = cpu_get(from, s->bf16, one);
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

// Four neighbours, at any address.
typedef float map_four __attribute__((vector_size(16), aligned(4), may_alias));

// to[r · step + c] = from[c · between + r], by squares of 4 × 4 in registers.
static void transpose(const float *from, int64_t between, int64_t rows, int64_t columns, float *to,
                      int64_t step) {
    int64_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
    for (int64_t c = 0; c < whole_columns; c += 4)
        for (int64_t r = 0; r < whole_rows; r += 4) {
            map_four x[4], pair[4];
            for (int k = 0; k < 4; k++) x[k] = *(const map_four *)(from + (c + k) * between + r);
            for (int k = 0; k < 4; k += 2) {
                pair[k] = __builtin_shufflevector(x[k], x[k + 1], 0, 4, 1, 5);
                pair[k + 1] = __builtin_shufflevector(x[k], x[k + 1], 2, 6, 3, 7);
            }
            for (int k = 0; k < 4; k += 2) {
                map_four *row = (map_four *)(to + (r + k) * step + c);
                map_four *next = (map_four *)(to + (r + k + 1) * step + c);
                *row = __builtin_shufflevector(pair[k / 2], pair[2 + k / 2], 0, 1, 4, 5);
                *next = __builtin_shufflevector(pair[k / 2], pair[2 + k / 2], 2, 3, 6, 7);
            }
        }
    for (int64_t c = 0; c < columns; c++)
        for (int64_t r = c < whole_columns ? whole_rows : 0; r < rows; r++)
            to[r * step + c] = from[c * between + r];
}

static void load_column(const run_source *s, const cpu_map_run *run, int64_t column, float *to) {
    enum { SOME = 64 };
    float *at = to + run->at + column, some[SOME];
    int64_t stride = run->stride, step = run->step, index = run->index + column * run->between;
    if (run->index < 0) {
        for (int64_t i = 0; i < run->count; i++) at[i * step] = 0;
    } else if (step == 1) {
        load_elements(s->map, s->input, s->from, index, stride, run->count, at);
    } else {
        for (int64_t i = 0; i < run->count; i += SOME) {
            int64_t count = run->count - i < SOME ? run->count - i : SOME;
            load_elements(s->map, s->input, s->from, index + i * stride, stride, count, some);
            for (int64_t k = 0; k < count; k++) at[(i + k) * step] = some[k];
        }
    }
}

// The same of BF16, in squares whose lines stay in a cache.
static void transpose_halves(const uint16_t *from, const cpu_map_run *run, float *to) {
    enum { SIDE = 16 };
    for (int64_t c = 0; c < run->columns; c += SIDE) {
        int64_t end = run->columns - c < SIDE ? run->columns : c + SIDE;
        for (int64_t i = 0; i < run->count; i++)
            for (int64_t k = c; k < end; k++)
                to[i * run->step + k] = tri_bf16_to_float(from[i * run->stride + k * run->between]);
    }
}

static void load_run(const void *context, const cpu_map_run *run, void *to) {
    const run_source *s = context;
    bool simple = run->columns > 1 && run->index >= 0 && !s->map->bytes[s->input] &&
                  s->map->plan.inputs[s->input].draws.kind == TRI_DRAW_NONE;
    const float *from = (const float *)s->from + run->index;
    float *at = (float *)to + run->at;
    if (simple && s->map->bf16)
        transpose_halves((const uint16_t *)s->from + run->index, run, at);
    else if (simple && run->stride == 1)
        transpose(from, run->between, run->count, run->columns, at, run->step);
    else if (simple && run->between == 1)
        for (int64_t i = 0; i < run->count; i++, at += run->step, from += run->stride)
            for (int64_t c = 0; c < run->columns; c++) at[c] = from[c];
    else
        for (int64_t c = 0; c < run->columns; c++) load_column(s, run, c, to);
}

static int64_t size_of(int64_t stride) { return stride < 0 ? -stride : stride; }

// Where an input is read by strides: its plan, and the index along each axis.
typedef struct view_walk {
    const tri_map_plan *plan;
    const tri_map_input *input;
    int64_t at[TRI_MAX_RANK];
} view_walk;

// The index of the element at the walk's place.
static int64_t walk_index(const view_walk *w) {
    int64_t index = w->input->offset;
    for (int i = 0; i < w->plan->rank; i++) index += w->at[i] * w->input->strides[i];
    return index;
}

// Whether the whole row at the walk's place lies outside of the input.
static bool walk_is_outside(const view_walk *w) {
    bool outside = false;
    for (int i = 0; i < w->plan->rank - 1; i++)
        outside |= w->at[i] < w->input->first[i] || w->at[i] >= w->input->end[i];
    return outside;
}

// Goes `rows` rows on, not beyond those of one index of the axes outside of them.
static void walk_rows(view_walk *w, int64_t rows) {
    int axis = w->plan->rank - 2;
    w->at[axis + 1] = 0;
    if (axis >= 0) w->at[axis] += rows;
    for (; axis > 0 && w->at[axis] == w->plan->dims[axis]; axis--) {
        w->at[axis] = 0;
        w->at[axis - 1]++;
    }
}

// Reads a part of a row, whose elements outside of the input are 0.
static void take_row(const view_walk *w, int64_t count, int64_t done, cpu_map_take take,
                     const void *context, void *to) {
    int inner = w->plan->rank - 1;
    int64_t index = walk_index(w), stride = w->input->strides[inner];
    int64_t begin = w->input->first[inner] - w->at[inner];
    int64_t end = w->input->end[inner] - w->at[inner];
    begin = begin < 0 ? 0 : begin > count ? count : begin;
    end = end > count ? count : end < begin ? begin : end;
    if (walk_is_outside(w)) begin = end = count;
    if (begin > 0) take(context, &(cpu_map_run){-1, 0, begin, done, 1, 1, 0}, to);
    if (end > begin)
        take(context,
             &(cpu_map_run){index + begin * stride, stride, end - begin, done + begin, 1, 1, 0},
             to);
    if (count > end) take(context, &(cpu_map_run){-1, 0, count - end, done + end, 1, 1, 0}, to);
}

// How many whole rows can be read column by column, which is faster where rows are short, or where
// elements of neighbouring rows lie nearer to each other than those of a row. 0: none.
static int64_t rows_by_column(const view_walk *w, int64_t count) {
    enum { SHORT = 16, LEAST_ROWS = 4 };
    int inner = w->plan->rank - 1, outer = inner - 1;
    if (inner == 0 || w->at[inner] > 0) return 0;
    const int64_t *strides = w->input->strides;
    int64_t width = w->plan->dims[inner], rows = count / width;
    if (rows > w->plan->dims[outer] - w->at[outer]) rows = w->plan->dims[outer] - w->at[outer];
    bool faster = width < SHORT || size_of(strides[outer]) < size_of(strides[inner]);
    bool inside =
        w->at[outer] >= w->input->first[outer] && w->at[outer] + rows <= w->input->end[outer];
    return rows >= LEAST_ROWS && faster && inside ? rows : 0;
}

static void take_columns(const view_walk *w, int64_t rows, int64_t done, cpu_map_take take,
                         const void *context, void *to) {
    int inner = w->plan->rank - 1;
    int64_t width = w->plan->dims[inner], index = walk_index(w);
    int64_t begin = w->input->first[inner], end = w->input->end[inner];
    int64_t stride = w->input->strides[inner], along = w->input->strides[inner - 1];
    if (begin < 0) begin = 0;
    if (end > width) end = width;
    if (walk_is_outside(w) || begin > end) begin = end = width;
    if (begin > 0) take(context, &(cpu_map_run){-1, 0, rows, done, width, begin, 0}, to);
    if (end > begin)
        take(context,
             &(cpu_map_run){index + begin * stride, along, rows, done + begin, width, end - begin,
                            stride},
             to);
    if (width > end)
        take(context, &(cpu_map_run){-1, 0, rows, done + end, width, width - end, 0}, to);
}

// How many elements, from the walk's place on, are rows that follow one another in the input, so
// that they can be read as one row. 0: they cannot.
static int64_t rows_joined(const view_walk *w, int64_t count) {
    int inner = w->plan->rank - 1, outer = inner - 1;
    if (inner == 0) return 0;
    const tri_map_input *input = w->input;
    int64_t width = w->plan->dims[inner], rows = input->end[outer] - w->at[outer];
    bool joins = input->strides[outer] == input->strides[inner] * width &&
                 input->first[inner] == 0 && input->end[inner] == width &&
                 w->at[outer] >= input->first[outer] && rows > 1;
    int64_t left = rows * width - w->at[inner];
    return joins && !walk_is_outside(w) ? left < count ? left : count : 0;
}

void cpu_map_read_view(const tri_map_plan *plan, int input, int64_t begin, int64_t count,
                       cpu_map_take take, const void *context, void *to) {
    view_walk w = {plan, &plan->inputs[input], {0}};
    int inner = plan->rank - 1;
    for (int i = inner; i >= 0; i--) {
        w.at[i] = begin % plan->dims[i];
        begin /= plan->dims[i];
    }
    for (int64_t done = 0; done < count;) {
        int64_t left = count - done, width = plan->dims[inner], row = width - w.at[inner];
        int64_t joined = rows_joined(&w, left), rows = joined ? 0 : rows_by_column(&w, left);
        if (row > left) row = left;
        if (joined)
            take(context,
                 &(cpu_map_run){walk_index(&w), w.input->strides[inner], joined, done, 1, 1, 0},
                 to);
        else if (rows)
            take_columns(&w, rows, done, take, context, to);
        else
            take_row(&w, row, done, take, context, to);
        int64_t taken = joined ? joined : rows ? rows * width : row;
        done += taken; // a row that is not taken to its end is the last one
        walk_rows(&w, (w.at[inner] + taken) / width);
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

static int64_t room_of(const tri_formula *f, int slots, int64_t tile) {
    return slots * CPU_MAP_BLOCK + (f->input_count + f->output_count) * tile;
}

int64_t cpu_map_room(const tri_node *node) {
    return room_of(&((const tri_map_attr *)node->attr)->formula, tri_map_plan_slots(node),
                   CPU_MAP_TILE);
}

// How many elements are best copied at a time. Where an input is transposed, neighbours of the
// input lie in neighbouring rows of the output. So that all that comes with them into a cache is
// used, a tile then has 16 rows, or as many more as are whole blocks.
static int64_t tile_of(const tri_map_plan *plan) {
    enum { ROWS = 16, MOST = 1 << 16 };
    int inner = plan->rank - 1;
    bool transposes = false;
    for (int k = 0; k < plan->formula.input_count && inner > 0; k++) {
        const tri_map_input *input = &plan->inputs[k];
        transposes = transposes || (!input->flat && input->strides[inner - 1] == 1 &&
                                    size_of(input->strides[inner]) > 1);
    }
    if (!transposes) return CPU_MAP_TILE;
    int64_t tile = ROWS * plan->dims[inner];
    while (tile % CPU_MAP_BLOCK) tile *= 2;
    return tile > MOST || tile < CPU_MAP_TILE ? CPU_MAP_TILE : tile;
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
    out->tile = CPU_MAP_TILE;
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
            load(s, k, w->args->in[k], begin, count, at = w->tiles + k * s->tile);
        w->operands[TRI_OPERAND_INPUT + k] = (cpu_map_operand){at, -1};
    }
}

static float *output_tile(const cpu_map_work *w, int k) {
    return w->tiles + (w->map->plan.formula.input_count + k) * w->map->tile;
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
        next = i % CPU_MAP_BLOCK ? rounded_up(i) : i + w->map->tile;
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
    cpu_map_make(s->device, graph, node, &s->map);
    s->map.tile = tile_of(&s->map.plan);
    s->room = room_of(&s->map.plan.formula, s->map.plan.slot_count, s->map.tile);
    return TRI_OK;
}

static tri_status map_workspace(const tri_device_description *device, const tri_graph *graph,
                                const tri_node *node, size_t *out) {
    tri_map_plan plan;
    tri_map_plan_make(graph, node, &plan);
    *out = (size_t)(device->threads * room_of(&plan.formula, plan.slot_count, tile_of(&plan))) *
           sizeof(float);
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
