// The op reduce: sums, products and extremes over axes. Neighbouring axes are joined, so that most
// tensors become [outer, reduced, inner], or several of these (repeats), which are reduced too. A
// long reduction is cut into parts by the shapes alone, and the parts are added in their order, so
// that the result does not depend on the number of threads. Short rows are reduced side by side. Of
// map_reduce, the elements are computed before they are added, some at a time, and added in the
// same order. Sums are F32 within blocks of CPU_SUM_TERMS terms, and F64 over these.
#include "device/cpu/map.h"
#include "device/cpu/scalar.h"
#include "device/reduce_plan.h"

#include <stdlib.h>

enum {
    REDUCE_LANES = 64,
    REDUCE_SPAN = REDUCE_LANES * CPU_SUM_TERMS, // elements of a row that are joined in F32
    REDUCE_GRAIN = 1 << 14,
    REDUCE_COLUMNS = 1024, // of a row that are one piece of a plan
    REDUCE_MOST = 4096,    // of a row that are read in one piece; their sums stay in the cache
    REDUCE_FETCHED = 512,  // elements of a row at most, of which some are fetched ahead
    REDUCE_AHEAD = 2048,
    REDUCE_LINE = 16,  // elements that are fetched together
    REDUCE_SHORT = 32, // a row of at most so many elements
    REDUCE_FEW = 8,    // elements of a row that are too few for a vector
    REDUCE_SIDE = 16,  // rows at a time
};

typedef struct reduce_state {
    const cpu_device *device;
    tri_reduce_plan plan;
    int64_t kind, tiles; // tiles: how many pieces of `columns` elements the inner axis has
    int64_t columns;
    bool bf16;
    cpu_range range;
    int64_t room; // of map_reduce: of a thread, in floats
    cpu_map *map; // NULL: what is reduced is the input
} reduce_state;

typedef struct reduce_job {
    const reduce_state *state;
    const tri_kernel_args *args;
    const void *x;
    float *to;   // [repeats, outer, parts, inner]
    float *room; // of map_reduce: of all threads
} reduce_job;

CPU_SCALAR float joined(int64_t kind, float a, float b) {
    if (kind == TRI_REDUCTION_SUM) return a + b;
    if (kind == TRI_REDUCTION_PROD) return a * b;
    float more = kind == TRI_REDUCTION_MAX ? (b > a ? b : a) : (b < a ? b : a);
    return b != b ? b : more; // NaN stays
}

CPU_SCALAR double joined_f64(int64_t kind, double a, double b) {
    if (kind == TRI_REDUCTION_SUM) return a + b;
    if (kind == TRI_REDUCTION_PROD) return a * b;
    double more = kind == TRI_REDUCTION_MAX ? (b > a ? b : a) : (b < a ? b : a);
    return b != b ? b : more;
}

CPU_SCALAR float start_of(int64_t kind) {
    return kind == TRI_REDUCTION_SUM    ? 0
           : kind == TRI_REDUCTION_PROD ? 1
           : kind == TRI_REDUCTION_MAX  ? -__builtin_inff()
                                        : __builtin_inff();
}

// Joins the lanes of a row.
CPU_SCALAR float join_lanes(int64_t kind, float *lanes) {
    for (int half = REDUCE_LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) lanes[k] = joined(kind, lanes[k], lanes[k + half]);
    return lanes[0];
}

// Reduces at most REDUCE_SPAN elements that lie one after the other, in REDUCE_LANES interleaved
// sums.
CPU_SCALAR float reduce_span(const void *x, bool bf16, int64_t kind, int64_t first, int64_t count) {
    float lanes[REDUCE_LANES];
    int64_t i = 0;
    for (int k = 0; k < REDUCE_LANES; k++) lanes[k] = start_of(kind);
    for (; i + REDUCE_LANES <= count; i += REDUCE_LANES)
#pragma GCC ivdep
        for (int k = 0; k < REDUCE_LANES; k++)
            lanes[k] = joined(kind, lanes[k], cpu_get(x, bf16, first + i + k));
    for (int k = 0; i + k < count; k++)
        lanes[k] = joined(kind, lanes[k], cpu_get(x, bf16, first + i + k));
    return join_lanes(kind, lanes);
}

CPU_SCALAR float reduce_row(const void *x, bool bf16, int64_t kind, int64_t first, int64_t count) {
    int64_t whole = count < REDUCE_SPAN ? count : REDUCE_SPAN;
    double total = (double)reduce_span(x, bf16, kind, first, whole);
    for (int64_t i = whole; i < count; i += REDUCE_SPAN) {
        int64_t left = count - i;
        float span = reduce_span(x, bf16, kind, first + i, left < REDUCE_SPAN ? left : REDUCE_SPAN);
        total = joined_f64(kind, total, (double)span);
    }
    return (float)total;
}

CPU_SCALAR void join_row(const void *x, bool bf16, int64_t kind, int64_t at, int64_t width,
                         float *to) {
#pragma GCC ivdep
    for (int64_t k = 0; k < width; k++) to[k] = joined(kind, to[k], cpu_get(x, bf16, at + k));
}

// Reduces at most CPU_SUM_TERMS rows of `width` elements, `stride` elements apart, to one row.
// Whole rows follow one another in memory, and are read in this order, which processors expect. Of
// others four are read at a time. Processors fetch long rows by themselves, but lose track of
// shorter ones, so that sums of them took twice as long.
CPU_SCALAR void reduce_block(const void *x, bool bf16, int64_t kind, int64_t first, int64_t count,
                             int64_t stride, int64_t width, float *to) {
    int64_t r = 0;
    for (int64_t k = 0; k < width; k++) to[k] = start_of(kind);
    for (; r + 4 <= count && width < stride; r += 4) {
        int64_t at = first + r * stride;
#pragma GCC ivdep
        for (int64_t k = 0; k < width; k++) {
            float sum = joined(kind, to[k], cpu_get(x, bf16, at + k));
            sum = joined(kind, sum, cpu_get(x, bf16, at + stride + k));
            sum = joined(kind, sum, cpu_get(x, bf16, at + 2 * stride + k));
            to[k] = joined(kind, sum, cpu_get(x, bf16, at + 3 * stride + k));
        }
    }
    for (bool fetches = width >= REDUCE_LANES && width <= REDUCE_FETCHED; r < count && fetches;
         r++) {
        int64_t at = first + r * stride;
        for (int64_t k = 0; k < width; k += REDUCE_LINE)
            __builtin_prefetch(cpu_row(x, bf16, at + REDUCE_AHEAD + k));
        join_row(x, bf16, kind, at, width, to);
    }
    for (; r < count; r++) join_row(x, bf16, kind, first + r * stride, width, to);
}

// Reduces any number of such rows.
CPU_SCALAR void reduce_rows(const void *x, bool bf16, int64_t kind, int64_t first, int64_t count,
                            int64_t stride, int64_t width, float *to) {
    int64_t block = count < CPU_SUM_TERMS ? count : CPU_SUM_TERMS;
    reduce_block(x, bf16, kind, first, block, stride, width, to);
    if (count == block) return;
    double totals[REDUCE_MOST];
    for (int64_t k = 0; k < width; k++) totals[k] = (double)to[k];
    for (int64_t r = block; r < count; r += block) {
        float sums[REDUCE_MOST];
        reduce_block(x, bf16, kind, first + r * stride, count - r < block ? count - r : block,
                     stride, width, sums);
        for (int64_t k = 0; k < width; k++)
            totals[k] = joined_f64(kind, totals[k], (double)sums[k]);
    }
    for (int64_t k = 0; k < width; k++) to[k] = (float)totals[k];
}

// Adds up a short row: it is filled up to REDUCE_SHORT elements, of which the halves are added
// again and again.
CPU_SCALAR float sum_filled(const void *x, bool bf16, int64_t at, int64_t length) {
    float lanes[REDUCE_SHORT];
#pragma GCC ivdep
    for (int k = 0; k < REDUCE_SHORT; k++) lanes[k] = k < length ? cpu_get(x, bf16, at + k) : 0;
#pragma GCC unroll 8
    for (int half = REDUCE_SHORT / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) lanes[k] += lanes[k + half];
    return lanes[0];
}

// Reduces `count` rows of `length` elements that lie one after the other, each to one element:
// side by side, but for sums that fill a vector. (Other kinds gain nothing by that.)
CPU_SCALAR void reduce_short(const void *x, bool bf16, int64_t kind, int64_t first, int64_t count,
                             int64_t length, float *to) {
    bool fills = kind == TRI_REDUCTION_SUM && length >= REDUCE_FEW;
    for (int64_t r = 0; r < count && fills; r++)
        to[r] = sum_filled(x, bf16, first + r * length, length);
    for (int64_t r = 0; r < count && !fills; r += REDUCE_SIDE) {
        int64_t width = count - r < REDUCE_SIDE ? count - r : REDUCE_SIDE, at = first + r * length;
        float sums[REDUCE_SIDE];
        for (int i = 0; i < REDUCE_SIDE; i++) sums[i] = start_of(kind);
        for (int64_t k = 0; k < length; k++)
            if (width == REDUCE_SIDE) {
#pragma GCC ivdep
                for (int i = 0; i < REDUCE_SIDE; i++)
                    sums[i] = joined(kind, sums[i], cpu_get(x, bf16, at + i * length + k));
            } else {
                for (int64_t i = 0; i < width; i++)
                    sums[i] = joined(kind, sums[i], cpu_get(x, bf16, at + i * length + k));
            }
        for (int64_t i = 0; i < width; i++) to[r + i] = sums[i];
    }
}

// Whether an item is a short row, which is reduced beside others.
static inline bool is_short(const tri_reduce_plan *plan) {
    return plan->inner == 1 && plan->parts == 1 && plan->reduced <= REDUCE_SHORT;
}

// One part of one piece of one outer index: `rows` rows of `width` elements, of which the first is
// number `first`.
typedef struct reduce_item {
    int64_t first, rows, width;
    float *to;
} reduce_item;

CPU_SCALAR reduce_item item_of(const reduce_job *job, int64_t i) {
    const reduce_state *s = job->state;
    int64_t tile = i % s->tiles, part = i / s->tiles % s->plan.parts,
            outer = i / s->tiles / s->plan.parts;
    int64_t row = part * s->plan.part, left = s->plan.reduced - row, column = tile * s->columns;
    int64_t width = s->plan.inner - column;
    return (reduce_item){
        .first = (outer * s->plan.reduced + row) * s->plan.inner + column,
        .rows = left < s->plan.part ? left : s->plan.part,
        .width = width < s->columns ? width : s->columns,
        .to = job->to + (outer * s->plan.parts + part) * s->plan.inner + column,
    };
}

CPU_SCALAR void reduce_items(const reduce_job *job, int64_t begin, int64_t end, bool bf16,
                             int64_t kind) {
    const tri_reduce_plan *plan = &job->state->plan;
    int64_t inner = plan->inner;
    if (is_short(plan)) {
        reduce_short(job->x, bf16, kind, begin * plan->reduced, end - begin, plan->reduced,
                     job->to + begin);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        reduce_item item = item_of(job, i);
        if (inner == 1)
            *item.to = reduce_row(job->x, bf16, kind, item.first, item.rows);
        else
            reduce_rows(job->x, bf16, kind, item.first, item.rows, inner, item.width, item.to);
    }
}

#define REDUCE(name, kind, bf16)                                                                   \
    CPU_BODY name##_body(void *context, int64_t begin, int64_t end) {                              \
        reduce_items(context, begin, end, bf16, kind);                                             \
    }                                                                                              \
    CPU_RANGES(name)
REDUCE(sum_f32, TRI_REDUCTION_SUM, false)
REDUCE(sum_bf16, TRI_REDUCTION_SUM, true)
REDUCE(max_f32, TRI_REDUCTION_MAX, false)
REDUCE(max_bf16, TRI_REDUCTION_MAX, true)
REDUCE(min_f32, TRI_REDUCTION_MIN, false)
REDUCE(min_bf16, TRI_REDUCTION_MIN, true)
REDUCE(prod_f32, TRI_REDUCTION_PROD, false)
REDUCE(prod_bf16, TRI_REDUCTION_PROD, true)

// The sums of a map, to which elements are added: each one to the sum of its index modulo `period`.
// Once each has CPU_SUM_TERMS terms, they are added to `totals` and begin again.
typedef struct reduce_sums {
    float sums[CPU_MAP_TILE];
    double totals[CPU_MAP_TILE];
    int64_t period; // REDUCE_LANES, or the width of a row
    const float *x;
    float *to; // not NULL: x is short rows of `period` elements, and each has its own sum there
} reduce_sums;

CPU_SCALAR void add_elements(reduce_sums *s, int64_t begin, int64_t end, int64_t kind) {
    if (s->to) {
        reduce_short(s->x, false, kind, 0, end / s->period, s->period, s->to);
        return;
    }
    for (int64_t i = begin; i < end; i += s->period) {
        int64_t count = end - i < s->period ? end - i : s->period;
#pragma GCC ivdep
        for (int64_t k = 0; k < count; k++) s->sums[k] = joined(kind, s->sums[k], s->x[i + k]);
    }
}

#define ADD(name, kind)                                                                            \
    CPU_BODY name##_body(void *context, int64_t begin, int64_t end) {                              \
        add_elements(context, begin, end, kind);                                                   \
    }                                                                                              \
    CPU_RANGES(name)
ADD(add_sum, TRI_REDUCTION_SUM)
ADD(add_max, TRI_REDUCTION_MAX)
ADD(add_min, TRI_REDUCTION_MIN)
ADD(add_prod, TRI_REDUCTION_PROD)

static void start_sums(const reduce_state *s, reduce_sums *out) {
    out->to = NULL;
    for (int64_t k = 0; k < out->period; k++) out->sums[k] = start_of(s->kind);
}

// Adds the sums to the totals, those of a row as one.
static void join_totals(const reduce_state *s, reduce_sums *sums) {
    int64_t count = s->plan.inner == 1 ? 1 : sums->period;
    if (s->plan.inner == 1) join_lanes(s->kind, sums->sums);
    for (int64_t k = 0; k < count; k++)
        sums->totals[k] = joined_f64(s->kind, sums->totals[k], (double)sums->sums[k]);
}

// Reduces an item of a map: rows that lie one after the other are computed together.
static void reduce_map_item(const reduce_state *s, cpu_map_work *work, const reduce_item *item) {
    int64_t inner = s->plan.inner, step = inner > CPU_MAP_TILE ? 1 : CPU_MAP_TILE / inner;
    int64_t block = inner == 1 ? REDUCE_SPAN : CPU_SUM_TERMS, width = item->width;
    reduce_sums sums;
    sums.period = inner == 1 ? REDUCE_LANES : width;
    for (int64_t k = 0; k < width; k++) sums.totals[k] = (double)start_of(s->kind);
    for (int64_t r = 0, end, stop; r < item->rows; r = end) {
        end = item->rows - r < step ? item->rows : r + step;
        sums.x = cpu_map_read(work, item->first + r * inner, (end - r) * width);
        for (int64_t q = r; q < end; q = stop) {
            if (q % block == 0) start_sums(s, &sums);
            stop = q - q % block + block < end ? q - q % block + block : end;
            s->range(&sums, (q - r) * width, (stop - r) * width, 0);
            if (stop % block == 0 || stop == item->rows) join_totals(s, &sums);
        }
    }
    for (int64_t k = 0; k < width; k++) item->to[k] = (float)sums.totals[k];
}

// Reduces items that are short rows, one after the other, which are computed together.
static void reduce_short_rows(const reduce_job *job, cpu_map_work *work, int64_t first,
                              int64_t count) {
    const reduce_state *s = job->state;
    int64_t length = s->plan.reduced;
    const float *x = cpu_map_read(work, first * length, count * length);
    if (is_short(&s->plan)) {
        reduce_sums rows = {.period = length, .x = x, .to = job->to + first};
        s->range(&rows, 0, count * length, 0);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        reduce_sums sums;
        sums.period = REDUCE_LANES;
        start_sums(s, &sums);
        sums.x = x + i * length;
        s->range(&sums, 0, length, 0);
        job->to[first + i] = join_lanes(s->kind, sums.sums);
    }
}

static void reduce_map_range(void *context, int64_t begin, int64_t end, int thread) {
    const reduce_job *job = context;
    const reduce_state *s = job->state;
    cpu_map_work work = cpu_map_begin(s->map, job->args, job->room + thread * s->room);
    bool gathers = s->plan.inner == 1 && s->plan.parts == 1 && s->plan.reduced < CPU_MAP_TILE;
    int64_t step = gathers ? CPU_MAP_TILE / s->plan.reduced : 1;
    for (int64_t i = begin; i < end; i += step) {
        reduce_item item = item_of(job, i);
        if (gathers)
            reduce_short_rows(job, &work, i, end - i < step ? end - i : step);
        else
            reduce_map_item(s, &work, &item);
    }
}

// What is reduced, and how: the input of reduce, or the map of map_reduce.
typedef struct reduction {
    const tri_shape *shape;
    const tri_reduce_attr *attr;
} reduction;

static reduction reduction_of(const tri_graph *graph, const tri_node *node) {
    if (node->op == &tri_op_reduce)
        return (reduction){&tri_value_get(graph, node->inputs[0])->shape, node->attr};
    const tri_map_reduce_attr *attr = node->attr;
    return (reduction){&attr->map.shape, &attr->reduce};
}

// How many columns make a piece. In which order a column is reduced does not depend on it.
static int64_t columns_of(const tri_node *node, const tri_reduce_plan *plan, int threads) {
    if (node->op != &tri_op_reduce) return CPU_MAP_TILE;
    int64_t columns = plan->repeats * plan->outer * plan->parts * plan->inner / (4 * threads);
    columns -= columns % REDUCE_LANES;
    return columns < REDUCE_LANES ? REDUCE_LANES : columns > REDUCE_MOST ? REDUCE_MOST : columns;
}

static bool make_plan(const tri_graph *graph, const tri_node *node, tri_reduce_plan *plan) {
    reduction r = reduction_of(graph, node);
    int64_t tile = node->op == &tri_op_reduce ? REDUCE_COLUMNS : CPU_MAP_TILE;
    return tri_reduce_plan_make(r.shape, r.attr->axes, tile, true, plan);
}

// The type of what is reduced. A map may read masks beside it.
static tri_dtype type_of(const tri_graph *graph, const tri_node *node) {
    bool mixed;
    if (node->op == &tri_op_reduce) return tri_value_get(graph, node->inputs[0])->dtype;
    return tri_map_plan_type(graph, node, &mixed);
}

static bool reduce_supports(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node) {
    tri_reduce_plan plan;
    tri_dtype type = type_of(graph, node);
    if (reduction_of(graph, node).attr->kind > TRI_REDUCTION_PROD) return false;
    return (type == TRI_F32 || type == TRI_BF16) && make_plan(graph, node, &plan);
}

static tri_status reduce_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                 tri_kernel *kernel) {
    reduce_state *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a reduction");
    const tri_reduce_attr *attr = reduction_of(graph, node).attr;
    cpu_range (*const ranges[][2])(const cpu_device *) = {
        [TRI_REDUCTION_SUM] = {sum_f32_range, sum_bf16_range},
        [TRI_REDUCTION_MAX] = {max_f32_range, max_bf16_range},
        [TRI_REDUCTION_MIN] = {min_f32_range, min_bf16_range},
        [TRI_REDUCTION_PROD] = {prod_f32_range, prod_bf16_range},
    };
    cpu_range (*const adds[])(const cpu_device *) = {
        [TRI_REDUCTION_SUM] = add_sum_range,
        [TRI_REDUCTION_MAX] = add_max_range,
        [TRI_REDUCTION_MIN] = add_min_range,
        [TRI_REDUCTION_PROD] = add_prod_range,
    };
    kernel->state = s;
    make_plan(graph, node, &s->plan);
    s->device = cpu_of(device);
    s->columns = columns_of(node, &s->plan, device->description.threads);
    s->tiles = (s->plan.inner + s->columns - 1) / s->columns;
    s->kind = attr->kind;
    s->bf16 = type_of(graph, node) == TRI_BF16;
    s->range = ranges[attr->kind][s->bf16](s->device);
    if (node->op == &tri_op_reduce) return TRI_OK;
    s->range = adds[attr->kind](s->device);
    s->room = cpu_map_room(node);
    s->map = malloc(sizeof *s->map);
    if (!s->map) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a map");
    cpu_map_make(cpu_of(device), graph, node, s->map);
    return TRI_OK;
}

static tri_status reduce_workspace(const tri_device_description *device, const tri_graph *graph,
                                   const tri_node *node, size_t *out) {
    tri_reduce_plan plan;
    make_plan(graph, node, &plan);
    int64_t floats = plan.repeats * plan.outer * plan.parts * plan.inner;
    if (node->op == &tri_op_map_reduce) floats += device->threads * cpu_map_room(node);
    *out = (size_t)floats * sizeof(float);
    return TRI_OK;
}

// Joins what repeats and parts have, for elements of the result.
static void join_range(void *context, int64_t begin, int64_t end, int thread) {
    const reduce_job *job = context;
    const reduce_state *s = job->state;
    int64_t inner = s->plan.inner, row = s->plan.parts * inner;
    for (int64_t n = begin; n < end; n++) {
        const float *from = job->to + n / inner * row + n % inner;
        double sum = (double)start_of(s->kind);
        for (int64_t r = 0; r < s->plan.repeats; r++)
            for (int64_t p = 0; p < s->plan.parts; p++)
                sum = joined_f64(s->kind, sum, (double)from[r * s->plan.outer * row + p * inner]);
        cpu_put(job->args->out[0], s->bf16, n, (float)sum);
    }
}

static tri_status reduce_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const reduce_state *s = kernel->state;
    int64_t items = s->plan.repeats * s->plan.outer * s->plan.parts * s->tiles;
    int64_t size = s->plan.part * (s->plan.inner < s->columns ? s->plan.inner : s->columns);
    bool at_once = s->plan.repeats == 1 && s->plan.parts == 1 && !s->bf16;
    float *partial = args->workspace;
    reduce_job job = {s, args, args->in[0], partial,
                      partial + s->plan.repeats * s->plan.outer * s->plan.parts * s->plan.inner};
    if (at_once) job.to = args->out[0];
    cpu_parallel(s->device, items, REDUCE_GRAIN / (size > 0 ? size : 1) + 1,
                 s->map ? reduce_map_range : s->range, &job);
    if (!at_once)
        cpu_parallel(s->device, s->plan.outer * s->plan.inner, REDUCE_GRAIN, join_range, &job);
    return TRI_OK;
}

static void reduce_release(tri_kernel *kernel) {
    reduce_state *s = kernel->state;
    if (s) free(s->map);
    free(s);
}

const tri_kernel_def cpu_reduce_axes = {
    .op = &tri_op_reduce,
    .name = "axes",
    .supports = reduce_supports,
    .workspace = reduce_workspace,
    .prepare = reduce_prepare,
    .run = reduce_run,
    .release = reduce_release,
};

const tri_kernel_def cpu_map_reduce_axes = {
    .op = &tri_op_map_reduce,
    .name = "axes",
    .supports = reduce_supports,
    .workspace = reduce_workspace,
    .prepare = reduce_prepare,
    .run = reduce_run,
    .release = reduce_release,
};
