// Joins row-major tensors of any type along one axis. The gradient copies the elements of one input
// out of the joined tensor's gradient. A row is all elements of a tensor that have the same indices
// along the axes before the joined one. A run is one input's elements of a row; they are
// consecutive in the joined tensor, so they are copied at once.
#include "device/cpu/internal.h"

#include <stdlib.h>
#include <string.h>

// Where one input lies in the joined tensor: in each row, it takes `bytes` bytes from byte `offset`
// on. In the input itself, row r begins at byte r · `bytes`.
typedef struct concat_run {
    size_t bytes, offset;
} concat_run;

typedef struct concat_state {
    const cpu_device *device;
    int64_t rows;              // number of rows
    size_t row_bytes;          // size of a row of the joined tensor
    int runs;                  // number of runs in a row: one for each input that is present
    int input[TRI_MAX_INPUTS]; // by run: the index of its input among the node's inputs
    concat_run run[TRI_MAX_INPUTS];
} concat_state;

typedef struct concat_job {
    const concat_state *state;
    const void *const *from;
    void *to;
} concat_job;

// Copies runs [begin, end), counted over all rows, to the joined tensor: run i is number i % runs
// of row i / runs.
static void join_range(void *context, int64_t begin, int64_t end, int thread) {
    const concat_job *job = context;
    const concat_state *s = job->state;
    for (int64_t i = begin; i < end; i++) {
        size_t row = (size_t)(i / s->runs);
        const concat_run *run = &s->run[i % s->runs];
        const char *from = job->from[s->input[i % s->runs]];
        memcpy((char *)job->to + row * s->row_bytes + run->offset, from + row * run->bytes,
               run->bytes);
    }
}

static void cut_range(void *context, int64_t begin, int64_t end, int thread) {
    const concat_job *job = context;
    const concat_state *s = job->state;
    const concat_run *run = &s->run[0];
    for (int64_t i = begin; i < end; i++)
        memcpy((char *)job->to + (size_t)i * run->bytes,
               (const char *)job->from[0] + (size_t)i * s->row_bytes + run->offset, run->bytes);
}

// The distance in bytes between neighbours along axis `dim`: the size of all elements along the
// axes behind it.
static size_t inner_bytes(const tri_value_info *x, int64_t dim) {
    size_t bytes = tri_dtype_bytes(x->dtype);
    for (int64_t i = dim + 1; i < x->shape.rank; i++) bytes *= (size_t)x->shape.dims[i];
    return bytes;
}

static concat_state *make_state(tri_device *device, const tri_value_info *whole, int64_t dim) {
    concat_state *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->device = cpu_of(device);
    s->row_bytes = inner_bytes(whole, dim) * (size_t)whole->shape.dims[dim];
    s->rows = 1;
    for (int64_t i = 0; i < dim; i++) s->rows *= whole->shape.dims[i];
    return s;
}

static tri_status concat_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                 tri_kernel *kernel) {
    int64_t dim = ((const tri_concat_attr *)node->attr)->dim;
    const tri_value_info *y = tri_value_get(graph, node->outputs[0]);
    concat_state *s = make_state(device, y, dim);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a concatenation");
    size_t offset = 0, inner = inner_bytes(y, dim);
    for (int i = 0; i < node->input_count; i++) {
        if (!tri_value_is(node->inputs[i])) continue;
        size_t bytes = inner * (size_t)cpu_in_shape(graph, node, i)->dims[dim];
        s->input[s->runs] = i;
        s->run[s->runs++] = (concat_run){bytes, offset};
        offset += bytes;
    }
    kernel->state = s;
    return TRI_OK;
}

static tri_status concat_grad_prepare(tri_device *device, const tri_graph *graph,
                                      const tri_node *node, tri_kernel *kernel) {
    const tri_concat_grad_attr *a = node->attr;
    const tri_value_info *dy = tri_value_get(graph, node->inputs[0]);
    concat_state *s = make_state(device, dy, a->dim);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a concatenation");
    size_t inner = inner_bytes(dy, a->dim);
    s->runs = 1;
    s->run[0] = (concat_run){inner * (size_t)a->size, inner * (size_t)a->first};
    kernel->state = s;
    return TRI_OK;
}

static tri_status run(const tri_kernel *kernel, const tri_kernel_args *args, cpu_range range) {
    enum { GRAIN_BYTES = 1 << 16 };
    const concat_state *s = kernel->state;
    concat_job job = {.state = s, .from = (const void *const *)args->in, .to = args->out[0]};
    int64_t grain = (int64_t)(GRAIN_BYTES / (s->row_bytes / (size_t)s->runs + 1)) + 1;
    if (s->row_bytes > 0) cpu_parallel(s->device, s->rows * s->runs, grain, range, &job);
    return TRI_OK;
}

static tri_status concat_run_all(const tri_kernel *kernel, const tri_kernel_args *args) {
    return run(kernel, args, join_range);
}

static tri_status concat_grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    return run(kernel, args, cut_range);
}

static void concat_release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_concat_runs = {
    .op = &tri_op_concat,
    .name = "runs",
    .prepare = concat_prepare,
    .run = concat_run_all,
    .release = concat_release,
};

const tri_kernel_def cpu_concat_grad_runs = {
    .op = &tri_op_concat_grad,
    .name = "runs",
    .prepare = concat_grad_prepare,
    .run = concat_grad_run,
    .release = concat_release,
};
