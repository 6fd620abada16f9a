// The op reduce: sums, products and extremes over axes. Neighbouring axes are joined, so that most
// tensors become [outer, reduced, inner], or several of these (repeats), which are reduced too. A
// long reduction is cut into parts by the shapes alone, and the parts are added in their order, so
// that the result does not depend on the number of threads.
#include "device/cpu/scalar.h"
#include "device/reduce_plan.h"

#include <stdlib.h>

enum { REDUCE_LANES = 64, REDUCE_GRAIN = 1 << 14 };

typedef struct reduce_state {
    const cpu_device *device;
    tri_reduce_plan plan;
    int64_t kind, tiles; // tiles: how many pieces of REDUCE_LANES elements the inner axis has
    bool bf16;
    cpu_range range;
} reduce_state;

typedef struct reduce_job {
    const reduce_state *state;
    const void *x;
    float *to; // [repeats, outer, parts, inner]
} reduce_job;

CPU_SCALAR float joined(int64_t kind, float a, float b) {
    if (kind == TRI_REDUCTION_SUM) return a + b;
    if (kind == TRI_REDUCTION_PROD) return a * b;
    float more = kind == TRI_REDUCTION_MAX ? (b > a ? b : a) : (b < a ? b : a);
    return b != b ? b : more; // NaN stays
}

CPU_SCALAR float start_of(int64_t kind) {
    return kind == TRI_REDUCTION_SUM    ? 0
           : kind == TRI_REDUCTION_PROD ? 1
           : kind == TRI_REDUCTION_MAX  ? -__builtin_inff()
                                        : __builtin_inff();
}

// Reduces `count` elements that lie one after the other, in REDUCE_LANES interleaved sums.
CPU_SCALAR float reduce_row(const void *x, bool bf16, int64_t kind, int64_t first, int64_t count) {
    float lanes[REDUCE_LANES];
    int64_t i = 0;
    for (int k = 0; k < REDUCE_LANES; k++) lanes[k] = start_of(kind);
    for (; i + REDUCE_LANES <= count; i += REDUCE_LANES)
#pragma GCC ivdep
        for (int k = 0; k < REDUCE_LANES; k++)
            lanes[k] = joined(kind, lanes[k], cpu_get(x, bf16, first + i + k));
    for (int k = 0; i + k < count; k++)
        lanes[k] = joined(kind, lanes[k], cpu_get(x, bf16, first + i + k));
    for (int half = REDUCE_LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) lanes[k] = joined(kind, lanes[k], lanes[k + half]);
    return lanes[0];
}

// Reduces `count` rows of `width` elements, `stride` elements apart, to one row.
CPU_SCALAR void reduce_rows(const void *x, bool bf16, int64_t kind, int64_t first, int64_t count,
                            int64_t stride, int64_t width, float *to) {
    float sums[REDUCE_LANES];
    for (int k = 0; k < REDUCE_LANES; k++) sums[k] = start_of(kind);
    for (int64_t r = 0; r < count; r++)
        if (width == REDUCE_LANES) {
#pragma GCC ivdep
            for (int k = 0; k < REDUCE_LANES; k++)
                sums[k] = joined(kind, sums[k], cpu_get(x, bf16, first + r * stride + k));
        } else {
            for (int64_t k = 0; k < width; k++)
                sums[k] = joined(kind, sums[k], cpu_get(x, bf16, first + r * stride + k));
        }
    for (int64_t k = 0; k < width; k++) to[k] = sums[k];
}

// Item i is one part of one piece of one outer index.
CPU_SCALAR void reduce_items(const reduce_job *job, int64_t begin, int64_t end, bool bf16,
                             int64_t kind) {
    const reduce_state *s = job->state;
    for (int64_t i = begin; i < end; i++) {
        int64_t tile = i % s->tiles, part = i / s->tiles % s->plan.parts,
                outer = i / s->tiles / s->plan.parts;
        int64_t row = part * s->plan.part, left = s->plan.reduced - row,
                column = tile * REDUCE_LANES;
        int64_t rows = left < s->plan.part ? left : s->plan.part, width = s->plan.inner - column;
        int64_t first = (outer * s->plan.reduced + row) * s->plan.inner + column;
        float *to = job->to + (outer * s->plan.parts + part) * s->plan.inner + column;
        if (s->plan.inner == 1)
            *to = reduce_row(job->x, bf16, kind, first, rows);
        else
            reduce_rows(job->x, bf16, kind, first, rows, s->plan.inner,
                        width < REDUCE_LANES ? width : REDUCE_LANES, to);
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

static bool reduce_supports(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node) {
    tri_reduce_plan plan;
    return cpu_is_float(device, graph, node) &&
           tri_reduce_plan_make(graph, node, REDUCE_LANES, true, &plan);
}

static tri_status reduce_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                 tri_kernel *kernel) {
    reduce_state *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a reduction");
    const tri_reduce_attr *attr = node->attr;
    cpu_range (*const ranges[][2])(const cpu_device *) = {
        [TRI_REDUCTION_SUM] = {sum_f32_range, sum_bf16_range},
        [TRI_REDUCTION_MAX] = {max_f32_range, max_bf16_range},
        [TRI_REDUCTION_MIN] = {min_f32_range, min_bf16_range},
        [TRI_REDUCTION_PROD] = {prod_f32_range, prod_bf16_range},
    };
    kernel->state = s;
    tri_reduce_plan_make(graph, node, REDUCE_LANES, true, &s->plan);
    s->tiles = (s->plan.inner + REDUCE_LANES - 1) / REDUCE_LANES;
    s->device = cpu_of(device);
    s->kind = attr->kind;
    s->bf16 = cpu_is_bf16(graph, node);
    s->range = ranges[attr->kind][s->bf16](s->device);
    return TRI_OK;
}

static tri_status reduce_workspace(const tri_device_description *device, const tri_graph *graph,
                                   const tri_node *node, size_t *out) {
    tri_reduce_plan plan;
    tri_reduce_plan_make(graph, node, REDUCE_LANES, true, &plan);
    *out = (size_t)(plan.repeats * plan.outer * plan.parts * plan.inner) * sizeof(float);
    return TRI_OK;
}

static tri_status reduce_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const reduce_state *s = kernel->state;
    reduce_job job = {s, args->in[0], args->workspace};
    int64_t items = s->plan.repeats * s->plan.outer * s->plan.parts * s->tiles;
    int64_t size = s->plan.part * (s->plan.inner < REDUCE_LANES ? s->plan.inner : REDUCE_LANES);
    cpu_parallel(s->device, items, REDUCE_GRAIN / (size > 0 ? size : 1) + 1, s->range, &job);
    int64_t row = s->plan.parts * s->plan.inner;
    for (int64_t o = 0; o < s->plan.outer; o++)
        for (int64_t i = 0; i < s->plan.inner; i++) {
            float sum = start_of(s->kind);
            for (int64_t r = 0; r < s->plan.repeats; r++)
                for (int64_t p = 0; p < s->plan.parts; p++)
                    sum = joined(s->kind, sum,
                                 job.to[(r * s->plan.outer + o) * row + p * s->plan.inner + i]);
            cpu_put(args->out[0], s->bf16, o * s->plan.inner + i, sum);
        }
    return TRI_OK;
}

static void reduce_release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_reduce_axes = {
    .op = &tri_op_reduce,
    .name = "axes",
    .supports = reduce_supports,
    .workspace = reduce_workspace,
    .prepare = reduce_prepare,
    .run = reduce_run,
    .release = reduce_release,
};
