// Elements along an axis by their numbers. gather copies whole rows where all elements behind the
// axis share an index. scatter gives each thread a range of the rows of the result, in which it
// puts or adds what belongs there in the order of the index, so that sums (row_sums.h) do not
// depend on the number of threads.
#include "device/cpu/row_sums.h"

#include "device/ref/node.h"

#include <stdlib.h>
#include <string.h>

enum { GATHER_GRAIN = 1 << 14 };

typedef struct gather_state {
    const cpu_device *device;
    index_axis axis;
    int64_t kind; // of scatter
    bool last;    // of gather: an index that is there again later takes nothing
    size_t bytes; // of an element
} gather_state;

typedef struct gather_job {
    const gather_state *state;
    const int64_t *index;
    const char *x;
    char *y;
    const float *source, *base;
    cpu_row_sums *sums;
    int64_t *later; // with `last`: for each element of x the last one of y that takes it
} gather_job;

// Copies elements of one size, each from the row that its own index names.
static inline __attribute__((always_inline)) void copy_elements(const gather_job *job, int64_t o,
                                                                int64_t k, char *y, size_t bytes) {
    const index_axis *a = &job->state->axis;
    for (int64_t i = 0; i < a->cut.inner; i++) {
        int64_t row = o * a->cut.size + job->index[index_axis_at(a, o, k, i)];
        memcpy(y + (size_t)i * bytes, job->x + (size_t)(row * a->cut.inner + i) * bytes, bytes);
    }
}

static void leave_out_earlier(const gather_job *job, int64_t o, int64_t k, char *y) {
    const index_axis *a = &job->state->axis;
    size_t bytes = job->state->bytes;
    for (int64_t i = 0; i < a->cut.inner; i++) {
        int64_t row = o * a->cut.size + job->index[index_axis_at(a, o, k, i)];
        if (job->later[row * a->cut.inner + i] != k) memset(y + (size_t)i * bytes, 0, bytes);
    }
}

// Item n is one index along the axis for one outer index, and all that lies behind the axis.
static void gather_range(void *context, int64_t begin, int64_t end, int thread) {
    const gather_job *job = context;
    const gather_state *s = job->state;
    const index_axis *a = &s->axis;
    size_t width = (size_t)a->cut.inner * s->bytes;
    for (int64_t n = begin; n < end; n++) {
        int64_t k = n % a->count, o = n / a->count;
        char *y = job->y + (size_t)n * width;
        if (a->inner_step == 0) {
            int64_t row = o * a->cut.size + job->index[index_axis_at(a, o, k, 0)];
            memcpy(y, job->x + (size_t)row * width, width);
        } else if (s->bytes == 4) {
            copy_elements(job, o, k, y, 4);
        } else if (s->bytes == 2) {
            copy_elements(job, o, k, y, 2);
        } else {
            copy_elements(job, o, k, y, s->bytes);
        }
        if (s->last) leave_out_earlier(job, o, k, y);
    }
}

// The elements of a row of the result that have an index each, and those that share one.
static int64_t indices_of_row(const index_axis *a) { return a->inner_step ? a->cut.inner : 1; }
static int64_t sum_width(const index_axis *a) { return a->inner_step ? 1 : a->cut.inner; }

// How many terms the sums of a scatter have together.
static int64_t terms_of(const index_axis *a, int64_t kind) {
    bool many = kind == TRI_SCATTER_ADD && a->count >= CPU_SUM_TERMS;
    return many ? a->cut.outer * a->count * indices_of_row(a) : 0;
}

static int64_t sums_of(const index_axis *a) {
    return a->cut.outer * a->cut.size * indices_of_row(a);
}

// Puts or adds one element, or one row of them.
static void put_row(int64_t kind, float *restrict y, const float *restrict from, int64_t count) {
    if (kind == TRI_SCATTER_SET)
        memcpy(y, from, (size_t)count * sizeof *y);
    else if (kind == TRI_SCATTER_ADD)
        for (int64_t i = 0; i < count; i++) y[i] += from[i];
    else
        for (int64_t i = 0; i < count; i++) // NaN stays
            y[i] = y[i] != y[i] || from[i] <= y[i] ? y[i] : from[i];
}

// Puts or adds to the rows `begin` to end - 1 of the result what belongs there, in the order of the
// index. A sum is that of a row of the result, or of an element if each has its own index.
static void scatter_range(void *context, int64_t begin, int64_t end, int thread) {
    const gather_job *job = context;
    const gather_state *s = job->state;
    const index_axis *a = &s->axis;
    int64_t size = a->cut.size, inner = a->cut.inner, width = sum_width(a),
            each = indices_of_row(a);
    float *y = (float *)(void *)job->y;
    if (begin == end) return;
    size_t bytes = (size_t)((end - begin) * inner) * sizeof *y;
    if (job->base)
        memcpy(y + begin * inner, job->base + begin * inner, bytes);
    else
        memset(y + begin * inner, 0, bytes);
    cpu_row_sums_begin(job->sums, begin * each, end * each);
    for (int64_t o = begin / size; o <= (end - 1) / size; o++)
        for (int64_t k = 0; k < a->count; k++) {
            const float *from = job->source + (o * a->count + k) * inner;
            for (int64_t i = 0; i < each; i++) {
                int64_t row = o * size + job->index[index_axis_at(a, o, k, i)];
                if (row < begin || row >= end) continue;
                if (width == 1 && s->kind == TRI_SCATTER_ADD)
                    y[row * inner + i] += from[i];
                else
                    put_row(s->kind, y + row * inner + i, from + i, width);
                cpu_row_sums_added(job->sums, row * each + i);
            }
        }
    cpu_row_sums_end(job->sums, begin * each, end * each);
}

// Notes for each element of x that lies in the range which element of y takes it last.
static void note_last(void *context, int64_t begin, int64_t end, int thread) {
    const gather_job *job = context;
    const index_axis *a = &job->state->axis;
    int64_t inner = a->cut.inner;
    if (begin == end) return;
    for (int64_t o = begin / a->cut.size; o <= (end - 1) / a->cut.size; o++)
        for (int64_t k = 0; k < a->count; k++)
            for (int64_t i = 0; i < inner; i++) {
                int64_t row = o * a->cut.size + job->index[index_axis_at(a, o, k, i)];
                if (row >= begin && row < end) job->later[row * inner + i] = k;
            }
}

static int64_t grain_of(const index_axis *a) {
    return GATHER_GRAIN / (a->cut.inner > 0 ? a->cut.inner : 1) + 1;
}

static tri_status gather_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const gather_state *s = kernel->state;
    const index_axis *a = &s->axis;
    gather_job job = {.state = s,
                      .index = args->in[0],
                      .x = args->in[1],
                      .y = args->out[0],
                      .later = args->workspace};
    TRI_TRY(ref_check_indices(job.index, index_axis_indices(a), a->cut.size));
    if (s->last) cpu_parallel(s->device, a->cut.outer * a->cut.size, grain_of(a), note_last, &job);
    cpu_parallel(s->device, a->cut.outer * a->count, grain_of(a), gather_range, &job);
    return TRI_OK;
}

static tri_status scatter_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const gather_state *s = kernel->state;
    const index_axis *a = &s->axis;
    cpu_row_sums sums;
    gather_job job = {.state = s,
                      .index = args->in[0],
                      .y = args->out[0],
                      .source = args->in[1],
                      .base = args->in[2],
                      .sums = &sums};
    TRI_TRY(ref_check_indices(job.index, index_axis_indices(a), a->cut.size));
    cpu_row_sums_open(&sums, args->out[0], sums_of(a), terms_of(a, s->kind), sum_width(a),
                      args->workspace);
    cpu_parallel(s->device, a->cut.outer * a->cut.size, grain_of(a), scatter_range, &job);
    return TRI_OK;
}

static bool scatter_supports(const tri_device_description *device, const tri_graph *graph,
                             const tri_node *node) {
    return tri_value_get(graph, node->inputs[1])->dtype == TRI_F32;
}

static tri_status gather_workspace(const tri_device_description *device, const tri_graph *graph,
                                   const tri_node *node, size_t *out) {
    bool last = ((const tri_gather_attr *)node->attr)->last;
    *out = last ? (size_t)tri_shape_count(cpu_in_shape(graph, node, 1)) * sizeof(int64_t) : 0;
    return TRI_OK;
}

static index_axis scatter_axis(const tri_graph *graph, const tri_node *node) {
    const tri_scatter_attr *attr = node->attr;
    return ops_index_axis(attr->axis, &attr->shape, cpu_in_shape(graph, node, 0));
}

static tri_status scatter_workspace(const tri_device_description *device, const tri_graph *graph,
                                    const tri_node *node, size_t *out) {
    index_axis a = scatter_axis(graph, node);
    int64_t terms = terms_of(&a, ((const tri_scatter_attr *)node->attr)->kind);
    *out = cpu_row_sums_bytes(sums_of(&a), terms, sum_width(&a));
    return TRI_OK;
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    gather_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a %s", node->op->name);
    const tri_gather_attr *gather = node->op == &tri_op_gather ? node->attr : NULL;
    const tri_scatter_attr *scatter = gather ? NULL : node->attr;
    const tri_shape *index = cpu_in_shape(graph, node, 0), *x = cpu_in_shape(graph, node, 1);
    *state = (gather_state){
        .device = cpu_of(device),
        .axis = gather ? ops_index_axis(gather->axis, x, index) : scatter_axis(graph, node),
        .kind = scatter ? scatter->kind : 0,
        .last = gather && gather->last,
        .bytes = tri_dtype_bytes(tri_value_get(graph, node->inputs[1])->dtype),
    };
    kernel->state = state;
    return TRI_OK;
}

static void release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_gather_rows = {
    .op = &tri_op_gather,
    .name = "rows",
    .workspace = gather_workspace,
    .prepare = prepare,
    .run = gather_run,
    .release = release,
};
const tri_kernel_def cpu_scatter_rows = {
    .op = &tri_op_scatter,
    .name = "rows",
    .supports = scatter_supports,
    .workspace = scatter_workspace,
    .prepare = prepare,
    .run = scatter_run,
    .release = release,
};
