// Embedding: copies rows of a table by id. Its gradient adds rows of dy to rows of the table's
// gradient; each thread computes a range of the table's rows, so that every row is summed in the
// order of the ids (row_sums.h). On a rank that has only a slice of the table, ids of other rows
// give zeros.
#include "device/cpu/row_sums.h"

#include "device/ref/node.h"

#include <stdlib.h>
#include <string.h>

typedef struct embedding_state {
    const cpu_device *device;
    tri_embedding_attr attr;  // which rows of the full table this table has
    int64_t ids, rows, width; // number of ids; rows of the table; elements of a row
    bool bf16;                // true: the table (or, in the gradient, dy) is BF16; false: F32
} embedding_state;

typedef struct embedding_job {
    const embedding_state *state;
    const int64_t *ids;
    const void *from; // the table, or dy
    void *to;         // y, or the gradient of the table
    cpu_row_sums *sums;
} embedding_job;

static void gather_range(void *context, int64_t begin, int64_t end, int thread) {
    const embedding_job *job = context;
    const embedding_state *s = job->state;
    size_t bytes = (size_t)s->width * (s->bf16 ? 2 : 4);
    for (int64_t i = begin; i < end; i++) {
        int64_t row = job->ids[i] - s->attr.first;
        char *to = (char *)job->to + (size_t)i * bytes;
        if (row >= 0 && row < s->rows)
            memcpy(to, (const char *)job->from + (size_t)row * bytes, bytes);
        else
            memset(to, 0, bytes);
    }
}

CPU_BODY scatter_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const embedding_job *job = context;
    const embedding_state *s = job->state;
    float *table = job->to;
    memset(table + begin * s->width, 0, (size_t)((end - begin) * s->width) * sizeof *table);
    cpu_row_sums_begin(job->sums, begin, end);
    for (int64_t i = 0; i < s->ids; i++) {
        int64_t row = job->ids[i] - s->attr.first;
        if (row < begin || row >= end) continue;
        float *restrict sum = table + row * s->width;
        const void *dy = cpu_row(job->from, bf16, i * s->width);
        for (int64_t k = 0; k < s->width; k++) sum[k] += cpu_get(dy, bf16, k);
        cpu_row_sums_added(job->sums, row);
    }
    cpu_row_sums_end(job->sums, begin, end);
}
CPU_TYPED_RANGES(scatter)

static tri_status check_ids(const embedding_state *s, const int64_t *ids) {
    for (int64_t i = 0; i < s->ids; i++)
        TRI_TRY(ref_check_token(ids[i], i, s->attr.total ? s->attr.total : s->rows));
    return TRI_OK;
}

static tri_status gather_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const embedding_state *s = kernel->state;
    embedding_job job = {s, args->in[0], args->in[1], args->out[0], NULL};
    TRI_TRY(check_ids(s, job.ids));
    cpu_parallel(s->device, s->ids, 1 + 8192 / s->width, gather_range, &job);
    return TRI_OK;
}

static tri_status scatter_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const embedding_state *s = kernel->state;
    cpu_row_sums sums;
    embedding_job job = {s, args->in[0], args->in[1], args->out[0], &sums};
    TRI_TRY(check_ids(s, job.ids));
    cpu_row_sums_open(&sums, args->out[0], s->rows, s->ids, s->width, args->workspace);
    cpu_parallel(s->device, s->rows, 1 + 8192 / s->width, scatter_range(s->device, s->bf16), &job);
    return TRI_OK;
}

static bool embedding_supports(const tri_device_description *device, const tri_graph *graph,
                               const tri_node *node) {
    tri_dtype dtype = tri_value_get(graph, node->inputs[1])->dtype;
    return dtype == TRI_F32 || dtype == TRI_BF16;
}

static tri_status embedding_prepare(tri_device *device, const tri_graph *graph,
                                    const tri_node *node, tri_kernel *kernel) {
    embedding_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for an embedding");
    bool forward = node->op == &tri_op_embedding;
    const tri_embedding_grad_attr *grad = node->attr;
    const tri_shape *table = forward ? cpu_in_shape(graph, node, 1) : &grad->shape;
    *state = (embedding_state){
        .device = cpu_of(device),
        .attr = forward ? *(const tri_embedding_attr *)node->attr : grad->rows,
        .ids = tri_shape_count(cpu_in_shape(graph, node, 0)),
        .rows = table->dims[0],
        .width = table->dims[1],
        .bf16 = tri_value_get(graph, node->inputs[1])->dtype == TRI_BF16,
    };
    kernel->state = state;
    return TRI_OK;
}

static tri_status embedding_workspace(const tri_device_description *device, const tri_graph *graph,
                                      const tri_node *node, size_t *out) {
    if (node->op == &tri_op_embedding) return TRI_OK;
    const int64_t *table = ((const tri_embedding_grad_attr *)node->attr)->shape.dims;
    *out = cpu_row_sums_bytes(table[0], tri_shape_count(cpu_in_shape(graph, node, 0)), table[1]);
    return TRI_OK;
}

static void embedding_release(tri_kernel *kernel) { free(kernel->state); }

#define EMBEDDING_KERNEL(opname, run_function)                                                     \
    const tri_kernel_def cpu_##opname##_rows = {                                                   \
        .op = &tri_op_##opname,                                                                    \
        .name = "rows",                                                                            \
        .supports = embedding_supports,                                                            \
        .workspace = embedding_workspace,                                                          \
        .prepare = embedding_prepare,                                                              \
        .run = run_function,                                                                       \
        .release = embedding_release,                                                              \
    };
EMBEDDING_KERNEL(embedding, gather_run)
EMBEDDING_KERNEL(embedding_grad_weight, scatter_run)
