// The op reduce, of the kinds whose state are two numbers: the sum of squared distances from the
// mean, and the logarithm of a sum of exponentials. Tensors are cut as in reduce.c. A block of them
// is read from memory once, and a second time while it is in a cache; blocks are joined in F64, in
// their order, which depends on the shape alone.
#include "device/cpu/class_row.h"
#include "device/reduce_pair.h"
#include "device/reduce_plan.h"

#include <stdlib.h>

enum {
    PAIR_LANES = 64,
    PAIR_SPAN = 4096, // elements of a row that are a block
    PAIR_COLUMNS = 1024,
    PAIR_BLOCK = 1 << 15, // elements of a block of columns
    PAIR_SHORT = 64,      // a row of at most so many elements
    PAIR_SIDE = 16,       // such rows at a time
    PAIR_GRAIN = 1 << 14,
};

typedef struct pairs_state {
    const cpu_device *device;
    tri_reduce_plan plan;
    int64_t tiles; // how many pieces of PAIR_COLUMNS elements the inner axis has
    bool squares, bf16;
    cpu_range range;
} pairs_state;

typedef struct pairs_job {
    const pairs_state *state;
    const void *x;
    void *y;
    tri_reduce_pair *to; // [repeats, outer, parts, inner]
} pairs_job;

CPU_SCALAR float first_of(bool squares, float a, float b) {
    return squares ? a + b : b > a || b != b ? b : a;
}

// What the first pass gives, subtracted in the second one.
CPU_SCALAR float shift_of(bool squares, float first) {
    return squares || first - first == 0 ? first : 0;
}

CPU_SCALAR float second_of(bool squares, float distance) {
    return squares ? distance * distance : cpu_exp_scalar(distance);
}

// Sums of `width` columns, `apart` elements apart.
typedef struct pair_sums {
    float firsts[PAIR_COLUMNS], rests[PAIR_COLUMNS], seconds[PAIR_COLUMNS];
} pair_sums;

CPU_SCALAR void pair_columns(const void *x, bool bf16, bool squares, int64_t at, int64_t rows,
                             int64_t stride, int64_t width, int64_t apart, pair_sums *s) {
    for (int64_t k = 0; k < width; k++) {
        s->firsts[k] = squares ? 0 : -INFINITY;
        s->rests[k] = s->seconds[k] = 0;
    }
    for (int64_t r = 0; r < rows; r++)
#pragma GCC ivdep
        for (int64_t k = 0; k < width; k++)
            s->firsts[k] =
                first_of(squares, s->firsts[k], cpu_get(x, bf16, at + r * stride + k * apart));
    for (int64_t k = 0; squares && k < width; k++) s->firsts[k] /= (float)rows;
    for (int64_t r = 0; r < rows; r++)
#pragma GCC ivdep
        for (int64_t k = 0; k < width; k++) {
            float number = cpu_get(x, bf16, at + r * stride + k * apart);
            float distance = number - shift_of(squares, s->firsts[k]);
            s->seconds[k] += second_of(squares, distance);
            if (squares) s->rests[k] += distance;
        }
}

// Computes the sums of at most PAIR_SPAN elements that lie one after the other, as a column.
CPU_SCALAR void pair_span(const void *x, bool bf16, bool squares, int64_t at, int64_t count,
                          pair_sums *s) {
    int64_t whole = count - count % PAIR_LANES;
    float *firsts = s->firsts, *seconds = s->seconds, *rests = s->rests;
    for (int k = 0; k < PAIR_LANES; k++) {
        firsts[k] = squares ? 0 : -INFINITY;
        rests[k] = seconds[k] = 0;
    }
    for (int64_t i = 0; i < whole; i += PAIR_LANES)
#pragma GCC ivdep
        for (int k = 0; k < PAIR_LANES; k++)
            firsts[k] = first_of(squares, firsts[k], cpu_get(x, bf16, at + i + k));
    for (int64_t k = 0; k < count - whole; k++)
        firsts[k] = first_of(squares, firsts[k], cpu_get(x, bf16, at + whole + k));
    for (int half = PAIR_LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++) firsts[k] = first_of(squares, firsts[k], firsts[k + half]);
    if (squares) firsts[0] /= (float)count;
    float shift = shift_of(squares, firsts[0]);
    for (int64_t i = 0; i < whole; i += PAIR_LANES)
#pragma GCC ivdep
        for (int k = 0; k < PAIR_LANES; k++) {
            float distance = cpu_get(x, bf16, at + i + k) - shift;
            seconds[k] += second_of(squares, distance);
            if (squares) rests[k] += distance;
        }
    for (int64_t k = 0; k < count - whole; k++) {
        float distance = cpu_get(x, bf16, at + whole + k) - shift;
        seconds[k] += second_of(squares, distance);
        rests[k] += distance;
    }
    for (int half = PAIR_LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++) {
            seconds[k] += seconds[k + half];
            rests[k] += rests[k + half];
        }
}

// Joins the sums of `terms` elements of column k to what those before have.
CPU_SCALAR tri_reduce_pair pair_joined(bool squares, int64_t before, tri_reduce_pair all,
                                       int64_t terms, const pair_sums *s, int64_t k) {
    tri_reduce_pair pair = {(double)s->firsts[k], (double)s->seconds[k]};
    if (squares) { // the mean was rounded
        double rest = (double)s->rests[k];
        pair.first += rest / (double)terms;
        pair.second -= rest * rest / (double)terms;
    }
    return tri_pair_join(squares, (double)before, all, (double)terms, pair);
}

CPU_SCALAR void pair_row(const void *x, bool bf16, bool squares, int64_t at, int64_t count,
                         tri_reduce_pair *to) {
    for (int64_t i = 0; i < count; i += PAIR_SPAN) {
        int64_t terms = count - i < PAIR_SPAN ? count - i : PAIR_SPAN;
        pair_sums sums;
        pair_span(x, bf16, squares, at + i, terms, &sums);
        *to = pair_joined(squares, i, *to, terms, &sums, 0);
    }
}

// Of `width` columns next to each other, or of short rows, which lie `apart` elements apart.
CPU_SCALAR void pair_rows(const void *x, bool bf16, bool squares, int64_t at, int64_t rows,
                          int64_t stride, int64_t width, int64_t apart, tri_reduce_pair *to) {
    pair_sums sums;
    int64_t block = PAIR_BLOCK / width < CPU_SUM_TERMS ? PAIR_BLOCK / width : CPU_SUM_TERMS;
    for (int64_t r = 0; r < rows; r += block) {
        int64_t terms = rows - r < block ? rows - r : block;
        pair_columns(x, bf16, squares, at + r * stride, terms, stride, width, apart, &sums);
        for (int64_t k = 0; k < width; k++) to[k] = pair_joined(squares, r, to[k], terms, &sums, k);
    }
}

CPU_SCALAR void pair_items(const pairs_job *job, int64_t begin, int64_t end, bool bf16,
                           bool squares) {
    const tri_reduce_plan *p = &job->state->plan;
    int64_t tiles = job->state->tiles, width;
    for (int64_t i = begin; i < end; i += p->inner == 1 ? width : 1) {
        int64_t tile = i % tiles, part = i / tiles % p->parts, outer = i / tiles / p->parts;
        int64_t row = part * p->part, left = p->reduced - row, column = tile * PAIR_COLUMNS;
        int64_t rows = left < p->part ? left : p->part;
        int64_t at = (outer * p->reduced + row) * p->inner + column;
        tri_reduce_pair *to = job->to + (outer * p->parts + part) * p->inner + column;
        width = 1;
        if (p->inner > 1) {
            width = p->inner - column < PAIR_COLUMNS ? p->inner - column : PAIR_COLUMNS;
            pair_rows(job->x, bf16, squares, at, rows, p->inner, width, 1, to);
        } else if (rows > PAIR_SHORT || p->parts > 1) {
            pair_row(job->x, bf16, squares, at, rows, to);
        } else {
            width = end - i < PAIR_SIDE ? end - i : PAIR_SIDE;
            pair_rows(job->x, bf16, squares, at, rows, 1, width, rows, to);
        }
    }
}

#define PAIRS(name, bf16, squares)                                                                 \
    CPU_BODY name##_body(void *context, int64_t begin, int64_t end) {                              \
        pair_items(context, begin, end, bf16, squares);                                            \
    }                                                                                              \
    CPU_RANGES(name)
PAIRS(squares_f32, false, true)
PAIRS(squares_bf16, true, true)
PAIRS(logsumexp_f32, false, false)
PAIRS(logsumexp_bf16, true, false)

// Joins what repeats and parts have, for elements of the result.
static void join_range(void *context, int64_t begin, int64_t end, int thread) {
    const pairs_job *job = context;
    const tri_reduce_plan *p = &job->state->plan;
    bool squares = job->state->squares;
    int64_t row = p->parts * p->inner;
    for (int64_t n = begin; n < end; n++) {
        const tri_reduce_pair *from = job->to + n / p->inner * row + n % p->inner;
        tri_reduce_pair all = {0, 0};
        int64_t terms = 0;
        for (int64_t r = 0; r < p->repeats; r++)
            for (int64_t k = 0; k * p->part < p->reduced; k++) {
                int64_t left = p->reduced - k * p->part, more = left < p->part ? left : p->part;
                all = tri_pair_join(squares, (double)terms, all, (double)more,
                                    from[r * p->outer * row + k * p->inner]);
                terms += more;
            }
        cpu_put(job->y, job->state->bf16, n, (float)tri_pair_result(squares, all));
    }
}

static bool make_plan(const tri_graph *graph, const tri_node *node, tri_reduce_plan *plan) {
    return tri_reduce_plan_make(cpu_in_shape(graph, node, 0),
                                ((const tri_reduce_attr *)node->attr)->axes, PAIR_COLUMNS, true,
                                plan);
}

static bool supports(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node) {
    tri_reduce_plan plan;
    return ((const tri_reduce_attr *)node->attr)->kind > TRI_REDUCTION_PROD &&
           cpu_is_float(device, graph, node) && make_plan(graph, node, &plan);
}

static tri_status workspace(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, size_t *out) {
    tri_reduce_plan plan;
    make_plan(graph, node, &plan);
    *out = (size_t)(plan.repeats * plan.outer * plan.parts * plan.inner) * sizeof(tri_reduce_pair);
    return TRI_OK;
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    pairs_state *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a reduction");
    kernel->state = s;
    make_plan(graph, node, &s->plan);
    s->device = cpu_of(device);
    s->tiles = (s->plan.inner + PAIR_COLUMNS - 1) / PAIR_COLUMNS;
    s->squares = ((const tri_reduce_attr *)node->attr)->kind == TRI_REDUCTION_SQUARES;
    s->bf16 = cpu_is_bf16(graph, node);
    s->range = s->squares ? (s->bf16 ? squares_bf16_range : squares_f32_range)(s->device)
                          : (s->bf16 ? logsumexp_bf16_range : logsumexp_f32_range)(s->device);
    return TRI_OK;
}

static tri_status run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const pairs_state *s = kernel->state;
    const tri_reduce_plan *p = &s->plan;
    pairs_job job = {s, args->in[0], args->out[0], args->workspace};
    int64_t size = p->part * (p->inner < PAIR_COLUMNS ? p->inner : PAIR_COLUMNS);
    cpu_parallel(s->device, p->repeats * p->outer * p->parts * s->tiles, PAIR_GRAIN / size + 1,
                 s->range, &job);
    cpu_parallel(s->device, p->outer * p->inner, PAIR_GRAIN / PAIR_SIDE, join_range, &job);
    return TRI_OK;
}

static void release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_reduce_pairs = {
    .op = &tri_op_reduce,
    .name = "pairs",
    .supports = supports,
    .workspace = workspace,
    .prepare = prepare,
    .run = run,
    .release = release,
};
