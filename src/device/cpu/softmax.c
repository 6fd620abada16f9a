// Softmax and its logarithm over any axis, and their gradients. A column is what is summed over:
// the elements of the axis for one index of all others. Over the last axis a column is a row of
// memory, whose elements are vectorised; over another axis as many neighbouring columns as there
// are lanes are computed together.
#include "device/cpu/class_row.h"

#include <stdlib.h>

enum {
    SOFTMAX_GRAIN = 1 << 11, // elements that are worth a thread of their own
    // Columns of a tile. Its elements, which are read two or three times, shall stay in the cache.
    LEAST_COLUMNS = 64,
    MOST_COLUMNS = 256,
    TILE_ELEMENTS = 1 << 16,
};

typedef struct softmax_state {
    const cpu_device *device;
    int64_t outer, count, inner; // x is [outer, count, inner]
    int64_t queries; // of causal rows: how many follow one another; 0: rows are not causal
    int64_t columns; // of a tile
    bool is_log, empty, bf16;
} softmax_state;

typedef struct softmax_job {
    const softmax_state *state;
    const void *x, *dy; // x: the input, or y of a gradient
    void *out;
} softmax_job;

// Computes y of a row from its largest number and the sum of its exponentials.
CPU_SCALAR void finish_row(const softmax_state *s, const void *x, int64_t count, void *y, bool bf16,
                           float largest, float sum) {
    float less = logf(sum), factor = 1 / sum;
    if (s->is_log) {
#pragma GCC ivdep
        for (int64_t k = 0; k < count; k++)
            cpu_put(y, bf16, k, cpu_get(x, bf16, k) - largest - less);
    } else if (bf16) {
#pragma GCC ivdep
        for (int64_t k = 0; k < count; k++)
            cpu_put(y, bf16, k, cpu_exp_scalar(cpu_get(x, bf16, k) - largest) * factor);
    } else { // y has the exponentials
#pragma GCC ivdep
        for (int64_t k = 0; k < count; k++) ((float *)y)[k] *= factor;
    }
}

CPU_BODY rows_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const softmax_job *job = context;
    const softmax_state *s = job->state;
    for (int64_t r = begin; r < end; r++) {
        const void *x = cpu_row(job->x, bf16, r * s->count);
        void *y = (char *)job->out + r * s->count * (bf16 ? 2 : 4);
        int64_t count = s->queries ? r % s->queries + 1 + s->count - s->queries : s->count;
        float largest = cpu_largest_of_row(x, count, bf16);
        float *keeps = bf16 || s->is_log ? NULL : y;
        if (s->empty && largest == -INFINITY && !cpu_row_has_nan(x, count, bf16)) count = 0;
        float sum = cpu_exp_sum_of_row(x, count, bf16, largest, keeps);
        finish_row(s, x, count, y, bf16, largest, sum);
        for (int64_t k = count; k < s->count; k++) cpu_put(y, bf16, k, 0);
    }
}
CPU_TYPED_RANGES(rows)

// The sum of dy over a row, or of y · dy.
CPU_SCALAR float sum_of_row(const softmax_state *s, const void *y, const void *dy, bool bf16) {
    float lane[CLASS_LANES] = {0}, sum = 0;
    int64_t whole = s->count / CLASS_LANES * CLASS_LANES;
    for (int64_t i = 0; i < whole; i += CLASS_LANES)
        for (int k = 0; k < CLASS_LANES; k++)
            lane[k] += cpu_get(dy, bf16, i + k) * (s->is_log ? 1 : cpu_get(y, bf16, i + k));
    for (int64_t i = whole; i < s->count; i++)
        sum += cpu_get(dy, bf16, i) * (s->is_log ? 1 : cpu_get(y, bf16, i));
    for (int width = CLASS_LANES / 2; width; width /= 2)
        for (int k = 0; k < width; k++) lane[k] += lane[k + width];
    return sum + lane[0];
}

CPU_SCALAR float slope(bool is_log, float y, float dy, float sum) {
    return is_log ? dy - cpu_exp_scalar(y) * sum : y * (dy - sum);
}

CPU_BODY rows_grad_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const softmax_job *job = context;
    const softmax_state *s = job->state;
    bool is_log = s->is_log;
    for (int64_t r = begin; r < end; r++) {
        const void *y = cpu_row(job->x, bf16, r * s->count);
        const void *dy = cpu_row(job->dy, bf16, r * s->count);
        void *dx = (char *)job->out + r * s->count * (bf16 ? 2 : 4);
        float sum = sum_of_row(s, y, dy, bf16);
#pragma GCC ivdep
        for (int64_t k = 0; k < s->count; k++)
            cpu_put(dx, bf16, k, slope(is_log, cpu_get(y, bf16, k), cpu_get(dy, bf16, k), sum));
    }
}
CPU_TYPED_RANGES(rows_grad)

// A tile of neighbouring columns.
typedef struct columns {
    int64_t at, width; // where the first one begins, and how many there are
} columns;

static columns columns_of(const softmax_state *s, int64_t tile) {
    int64_t tiles = (s->inner + s->columns - 1) / s->columns;
    int64_t first = tile % tiles * s->columns, left = s->inner - first;
    return (columns){.at = tile / tiles * s->count * s->inner + first,
                     .width = left < s->columns ? left : s->columns};
}

CPU_SCALAR void softmax_columns(const softmax_state *s, const void *x, void *y, bool bf16,
                                int64_t width, int64_t first) {
    float most[MOST_COLUMNS], sum[MOST_COLUMNS], factor[MOST_COLUMNS], less[MOST_COLUMNS];
    bool keeps = !bf16 && !s->is_log; // y has the exponentials
    for (int64_t i = 0; i < width; i++) {
        most[i] = -INFINITY;
        sum[i] = 0;
    }
    for (int64_t k = 0; k < s->count; k++)
#pragma GCC ivdep
        for (int64_t i = 0; i < width; i++) {
            float value = cpu_get(x, bf16, first + k * s->inner + i);
            most[i] = most[i] < value ? value : most[i];
        }
    for (int64_t k = 0; k < s->count; k++)
#pragma GCC ivdep
        for (int64_t i = 0; i < width; i++) {
            int64_t at = first + k * s->inner + i;
            float power = cpu_exp_scalar(cpu_get(x, bf16, at) - most[i]);
            sum[i] += power;
            if (keeps) ((float *)y)[at] = power;
        }
    for (int64_t i = 0; i < width; i++) {
        factor[i] = 1 / sum[i];
        less[i] = logf(sum[i]);
    }
    for (int64_t k = 0; k < s->count; k++)
#pragma GCC ivdep
        for (int64_t i = 0; i < width; i++) {
            int64_t at = first + k * s->inner + i;
            if (keeps) {
                ((float *)y)[at] *= factor[i];
                continue;
            }
            float value = cpu_get(x, bf16, at) - most[i];
            cpu_put(y, bf16, at, s->is_log ? value - less[i] : cpu_exp_scalar(value) * factor[i]);
        }
}

CPU_BODY columns_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const softmax_job *job = context;
    for (int64_t tile = begin; tile < end; tile++) {
        columns c = columns_of(job->state, tile);
        softmax_columns(job->state, job->x, job->out, bf16, c.width, c.at);
    }
}
CPU_TYPED_RANGES(columns)

CPU_SCALAR void softmax_grad_columns(const softmax_state *s, const void *y, const void *dy,
                                     void *dx, bool bf16, int64_t width, int64_t first) {
    float sum[MOST_COLUMNS];
    bool is_log = s->is_log;
    for (int64_t i = 0; i < width; i++) sum[i] = 0;
    for (int64_t k = 0; k < s->count; k++)
#pragma GCC ivdep
        for (int64_t i = 0; i < width; i++) {
            int64_t at = first + k * s->inner + i;
            sum[i] += cpu_get(dy, bf16, at) * (is_log ? 1 : cpu_get(y, bf16, at));
        }
    for (int64_t k = 0; k < s->count; k++)
#pragma GCC ivdep
        for (int64_t i = 0; i < width; i++) {
            int64_t at = first + k * s->inner + i;
            cpu_put(dx, bf16, at,
                    slope(is_log, cpu_get(y, bf16, at), cpu_get(dy, bf16, at), sum[i]));
        }
}

CPU_BODY columns_grad_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const softmax_job *job = context;
    for (int64_t tile = begin; tile < end; tile++) {
        columns c = columns_of(job->state, tile);
        softmax_grad_columns(job->state, job->x, job->dy, job->out, bf16, c.width, c.at);
    }
}
CPU_TYPED_RANGES(columns_grad)

static tri_status softmax_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                  tri_kernel *kernel) {
    const tri_softmax_attr *attr = node->attr;
    const tri_shape *x = cpu_in_shape(graph, node, 0);
    int axis = x->rank - 1 - (int)attr->behind;
    softmax_state *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for softmax");
    *s = (softmax_state){.device = cpu_of(device),
                         .outer = 1,
                         .count = x->dims[axis],
                         .inner = 1,
                         .queries = attr->causal ? x->dims[axis - 1] : 0,
                         .empty = attr->empty,
                         .is_log = node->op == &tri_op_log_softmax ||
                                   node->op == &tri_op_log_softmax_grad,
                         .bf16 = cpu_is_bf16(graph, node)};
    for (int i = 0; i < axis; i++) s->outer *= x->dims[i];
    for (int i = axis + 1; i < x->rank; i++) s->inner *= x->dims[i];
    s->columns = TILE_ELEMENTS / (s->count > 0 ? s->count : 1) / LEAST_COLUMNS * LEAST_COLUMNS;
    if (s->columns < LEAST_COLUMNS) s->columns = LEAST_COLUMNS;
    if (s->columns > MOST_COLUMNS) s->columns = MOST_COLUMNS;
    kernel->state = s;
    return TRI_OK;
}

static tri_status softmax_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const softmax_state *s = kernel->state;
    bool is_gradient =
        kernel->def->op == &tri_op_softmax_grad || kernel->def->op == &tri_op_log_softmax_grad;
    softmax_job job = {
        .state = s, .x = args->in[0], .dy = is_gradient ? args->in[1] : NULL, .out = args->out[0]};
    if (s->inner == 0) return TRI_OK; // x has no elements
    int64_t tiles = s->inner == 1 ? 1 : (s->inner + s->columns - 1) / s->columns;
    int64_t width = s->inner < s->columns ? s->inner : s->columns;
    cpu_range range = s->inner == 1 ? is_gradient ? rows_grad_range(s->device, s->bf16)
                                                  : rows_range(s->device, s->bf16)
                      : is_gradient ? columns_grad_range(s->device, s->bf16)
                                    : columns_range(s->device, s->bf16);
    cpu_parallel(s->device, s->outer * tiles, 1 + SOFTMAX_GRAIN / (s->count * width), range, &job);
    return TRI_OK;
}

static void softmax_release(tri_kernel *kernel) { free(kernel->state); }

#define SOFTMAX_KERNEL(opname)                                                                     \
    const tri_kernel_def cpu_##opname##_axis = {                                                   \
        .op = &tri_op_##opname,                                                                    \
        .name = "axis",                                                                            \
        .supports = cpu_is_float,                                                                  \
        .prepare = softmax_prepare,                                                                \
        .run = softmax_run,                                                                        \
        .release = softmax_release,                                                                \
    };
SOFTMAX_KERNEL(softmax)
SOFTMAX_KERNEL(softmax_grad)
SOFTMAX_KERNEL(log_softmax)
SOFTMAX_KERNEL(log_softmax_grad)
