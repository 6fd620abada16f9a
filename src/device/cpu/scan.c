// Running sums, products and extremes along one axis, and their gradient. A thread takes whole
// axes, some neighbouring ones at a time, and goes along them in their order, in F64. So the result
// does not depend on the number of threads.
#include "ops/scan_step.h"

#include "device/cpu/scalar.h"

#include <stdlib.h>

enum { SCAN_GRAIN = 1 << 13, SCAN_TILE = 16 };

typedef struct scan_state {
    const cpu_device *device;
    tri_scan_attr attr;
    axis_cut cut;
} scan_state;

typedef struct scan_job {
    const scan_state *state;
    const float *x, *y, *dy;
    float *out;
    int64_t *index; // NULL: the scan finds no extreme
} scan_job;

// The axes that lie side by side from column n on, and where the first of them begins.
static int64_t columns_at(const axis_cut *cut, int64_t n, int64_t end, int64_t *first) {
    int64_t left = cut->inner - n % cut->inner, width = end - n < left ? end - n : left;
    *first = n / cut->inner * cut->size * cut->inner + n % cut->inner;
    return width < SCAN_TILE ? width : SCAN_TILE;
}

// `kind` is a constant where it is called, so that the compiler makes one loop for each.
CPU_SCALAR void scan_columns(const scan_job *job, int64_t begin, int64_t end, int64_t kind) {
    const scan_state *s = job->state;
    int64_t width, first;
    for (int64_t n = begin; n < end; n += width) {
        scan_so_far so_far[SCAN_TILE];
        width = columns_at(&s->cut, n, end, &first);
        for (int64_t i = 0; i < width; i++) so_far[i] = scan_start(kind);
        for (int64_t step = 0; step < s->cut.size; step++) {
            int64_t k = s->attr.reverse ? s->cut.size - 1 - step : step;
            int64_t at = first + k * s->cut.inner;
            for (int64_t i = 0; i < width; i++) {
                so_far[i] = scan_step(kind, so_far[i], job->x[at + i], k);
                job->out[at + i] = (float)so_far[i].value;
                if (job->index) job->index[at + i] = so_far[i].at;
            }
        }
    }
}

#define SCAN(name, kind)                                                                           \
    static void name##_range(void *context, int64_t begin, int64_t end, int thread) {              \
        scan_columns(context, begin, end, kind);                                                   \
    }
SCAN(sum, TRI_SCAN_SUM)
SCAN(prod, TRI_SCAN_PROD)
SCAN(max, TRI_SCAN_MAX)
SCAN(min, TRI_SCAN_MIN)
SCAN(logsumexp, TRI_SCAN_LOGSUMEXP)

static void grad_range(void *context, int64_t begin, int64_t end, int thread) {
    const scan_job *job = context;
    const scan_state *s = job->state;
    int64_t width, first, inner = s->cut.inner, kind = s->attr.kind;
    for (int64_t n = begin; n < end; n += width) {
        double sums[SCAN_TILE] = {0};
        width = columns_at(&s->cut, n, end, &first);
        for (int64_t k = s->cut.size - 1; k >= 0; k--)
            for (int64_t i = 0; i < width; i++) {
                int64_t at = first + k * inner + i;
                if (k + 1 < s->cut.size)
                    sums[i] *=
                        scan_behind(kind, job->y[at], job->x[at + inner], job->y[at + inner]);
                sums[i] += job->dy[at];
                double before = k ? job->y[at - inner] : 1;
                job->out[at] = (float)(sums[i] * scan_own(kind, job->x[at], job->y[at], before));
            }
    }
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    scan_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a %s", node->op->name);
    state->device = cpu_of(device);
    state->attr = *(const tri_scan_attr *)node->attr;
    state->cut = ops_axis_cut(cpu_in_shape(graph, node, 0), state->attr.axis);
    kernel->state = state;
    return TRI_OK;
}

static void run(const scan_state *s, cpu_range range, scan_job *job) {
    int64_t size = s->cut.size > 0 ? s->cut.size : 1;
    cpu_parallel(s->device, s->cut.outer * s->cut.inner, SCAN_GRAIN / size + 1, range, job);
}

static tri_status scan_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    static const cpu_range ranges[] = {[TRI_SCAN_SUM] = sum_range,
                                       [TRI_SCAN_PROD] = prod_range,
                                       [TRI_SCAN_MAX] = max_range,
                                       [TRI_SCAN_MIN] = min_range,
                                       [TRI_SCAN_LOGSUMEXP] = logsumexp_range};
    const scan_state *s = kernel->state;
    bool extreme = s->attr.kind == TRI_SCAN_MAX || s->attr.kind == TRI_SCAN_MIN;
    scan_job job = {
        .state = s, .x = args->in[0], .out = args->out[0], .index = extreme ? args->out[1] : NULL};
    run(s, ranges[s->attr.kind], &job);
    return TRI_OK;
}

static tri_status grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const scan_state *s = kernel->state;
    scan_job job = {s, args->in[0], args->in[1], args->in[2], args->out[0], NULL};
    run(s, grad_range, &job);
    return TRI_OK;
}

static void release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_scan_columns = {
    .op = &tri_op_scan,
    .name = "columns",
    .supports = cpu_is_f32,
    .prepare = prepare,
    .run = scan_run,
    .release = release,
};
const tri_kernel_def cpu_scan_grad_columns = {
    .op = &tri_op_scan_grad,
    .name = "columns",
    .supports = cpu_is_f32,
    .prepare = prepare,
    .run = grad_run,
    .release = release,
};
