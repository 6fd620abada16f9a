// Sums of squares, for the norm of the gradients: one sum of all numbers, or one for each chunk of
// a fixed size. If each chunk has its own sum, the sums of all ranks can be added in the order of
// the chunks, so that the bits of the norm do not depend on the number of ranks.
#include "device/cpu/internal.h"

#include <stdlib.h>

enum { SUM_CHUNK = 1 << 14 }; // numbers that one thread sums at a time

typedef struct squares_state {
    const cpu_device *device;
    // How many numbers are summed in all, and how many each sum of the output covers. With chunk 0
    // one sum covers all of them.
    int64_t count, chunk;
} squares_state;

typedef struct squares_job {
    const float *from;
    int64_t count, chunk;
    double *sums;
} squares_job;

// Adds up the squares of one chunk, by partial sums in a fixed order, so that the bits do not
// depend on which thread does it.
static inline __attribute__((always_inline)) double chunk_sum(const float *values, int64_t count) {
    enum { LANES = 32 };
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += (double)values[i + k] * (double)values[i + k];
    for (; i < count; i++) lane[0] += (double)values[i] * (double)values[i];
    double sum = 0;
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum;
}

CPU_BODY square_body(void *context, int64_t begin, int64_t end) {
    squares_job *job = context;
    for (int64_t c = begin; c < end; c++) {
        int64_t first = c * job->chunk, left = job->count - first;
        if (left > job->chunk) left = job->chunk;
        job->sums[c] = chunk_sum(job->from + first, left);
    }
}
CPU_RANGES(square)

static double sum_all(const squares_state *s, const float *values) {
    // How many chunks are summed at a time. Their sums lie on the stack.
    enum { CHUNKS_AT_ONCE = 256 };
    double sums[CHUNKS_AT_ONCE], total = 0;
    for (int64_t first = 0; first < s->count; first += (int64_t)CHUNKS_AT_ONCE * SUM_CHUNK) {
        int64_t left = s->count - first, chunks = (left + SUM_CHUNK - 1) / SUM_CHUNK;
        if (chunks > CHUNKS_AT_ONCE) chunks = CHUNKS_AT_ONCE;
        squares_job job = {values + first, left, SUM_CHUNK, sums};
        cpu_parallel(s->device, chunks, 2, square_range(s->device), &job);
        for (int64_t c = 0; c < chunks; c++) total += sums[c];
    }
    return total;
}

static tri_status squares_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                  tri_kernel *kernel) {
    const tri_sum_of_squares_attr *a = node->attr;
    squares_state *state = malloc(sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for kernel %s", node->op->name);
    *state =
        (squares_state){cpu_of(device), tri_shape_count(cpu_in_shape(graph, node, 0)), a->chunk};
    kernel->state = state;
    return TRI_OK;
}

static tri_status squares_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const squares_state *s = kernel->state;
    double *sums = args->out[0];
    if (s->chunk == 0) {
        sums[0] = sum_all(s, args->in[0]);
        return TRI_OK;
    }
    squares_job job = {args->in[0], s->count, s->chunk, sums};
    int64_t grain = 1 + 2 * SUM_CHUNK / s->chunk;
    cpu_parallel(s->device, s->count / s->chunk, grain, square_range(s->device), &job);
    return TRI_OK;
}

static void squares_release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_sum_of_squares_lanes = {
    .op = &tri_op_sum_of_squares,
    .name = "lanes",
    .supports = cpu_is_f32,
    .prepare = squares_prepare,
    .run = squares_run,
    .release = squares_release,
};
