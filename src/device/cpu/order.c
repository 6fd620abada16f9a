// Order along one axis: argmax, and sort. A thread takes whole axes.
#include "ops/sort_key.h"

#include "device/cpu/scalar.h"
#include "device/sort_pairs.h"

#include <stdlib.h>

enum { ORDER_GRAIN = 1 << 13 };

typedef struct order_state {
    const cpu_device *device;
    axis_cut cut;
    int64_t count; // of sort: how many are kept
    bool opposite; // sort descends, or argmax looks for the smallest
} order_state;

typedef struct order_job {
    const order_state *state;
    const float *x;
    float *y;
    int64_t *index;
    tri_sort_pair *pairs; // of each thread twice the size of the axis
} order_job;

// The number of the first of the largest keys, where NaN is the largest. Neighbouring columns are
// looked at together.
CPU_BODY argmax_body(void *context, int64_t begin, int64_t end) {
    enum { TILE = 16 };
    const order_job *job = context;
    axis_cut cut = job->state->cut;
    float factor = job->state->opposite ? -1 : 1;
    for (int64_t n = begin; n < end;) {
        int64_t left = cut.inner - n % cut.inner, width = end - n < left ? end - n : left;
        if (width > TILE) width = TILE;
        const float *x = job->x + n / cut.inner * cut.size * cut.inner + n % cut.inner;
        float most[TILE];
        int64_t best[TILE] = {0};
        for (int64_t i = 0; i < width; i++) most[i] = x[i] * factor;
        for (int64_t k = 1; k < cut.size; k++)
            for (int64_t i = 0; i < width; i++) {
                float value = x[k * cut.inner + i] * factor;
                bool more = most[i] == most[i] && !(value <= most[i]);
                most[i] = more ? value : most[i];
                best[i] = more ? k : best[i];
            }
        for (int64_t i = 0; i < width; i++) job->index[n + i] = best[i];
        n += width;
    }
}
CPU_RANGES(argmax)

static void sort_range(void *context, int64_t begin, int64_t end, int thread) {
    const order_job *job = context;
    const order_state *s = job->state;
    axis_cut cut = s->cut;
    tri_sort_pair *pairs = job->pairs + 2 * cut.size * thread;
    for (int64_t n = begin; n < end; n++) {
        const float *x = job->x + n / cut.inner * cut.size * cut.inner + n % cut.inner;
        int64_t to = n / cut.inner * s->count * cut.inner + n % cut.inner;
        for (int64_t k = 0; k < cut.size; k++) {
            int64_t key = sort_key_f32(x[k * cut.inner]);
            pairs[k] = (tri_sort_pair){s->opposite ? ~key : key, k};
        }
        tri_sort_pairs(pairs, pairs + cut.size, cut.size, s->count);
        for (int64_t k = 0; k < s->count; k++) {
            job->index[to + k * cut.inner] = pairs[k].index;
            job->y[to + k * cut.inner] = x[pairs[k].index * cut.inner];
        }
    }
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    order_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a %s", node->op->name);
    const tri_sort_attr *sort = node->op == &tri_op_sort ? node->attr : NULL;
    const tri_argmax_attr *argmax = sort ? NULL : node->attr;
    *state = (order_state){
        .device = cpu_of(device),
        .cut = ops_axis_cut(cpu_in_shape(graph, node, 0), sort ? sort->axis : argmax->axis),
        .count = sort ? sort->count : 1,
        .opposite = sort ? sort->descending : argmax->minimum,
    };
    kernel->state = state;
    return TRI_OK;
}

static int64_t grain_of(const axis_cut *cut) {
    return ORDER_GRAIN / (cut->size > 0 ? cut->size : 1) + 1;
}

static tri_status argmax_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const order_state *s = kernel->state;
    order_job job = {.state = s, .x = args->in[0], .index = args->out[0]};
    cpu_parallel(s->device, s->cut.outer * s->cut.inner, grain_of(&s->cut), argmax_range(s->device),
                 &job);
    return TRI_OK;
}

static tri_status sort_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const order_state *s = kernel->state;
    order_job job = {s, args->in[0], args->out[0], args->out[1], args->workspace};
    cpu_parallel(s->device, s->cut.outer * s->cut.inner, grain_of(&s->cut) / 8 + 1, sort_range,
                 &job);
    return TRI_OK;
}

static tri_status sort_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    int64_t size = cpu_in_shape(graph, node, 0)->dims[((const tri_sort_attr *)node->attr)->axis];
    *out = 2 * (size_t)size * sizeof(tri_sort_pair) * (size_t)device->threads;
    return TRI_OK;
}

static void release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_argmax_columns = {
    .op = &tri_op_argmax,
    .name = "columns",
    .supports = cpu_is_f32,
    .prepare = prepare,
    .run = argmax_run,
    .release = release,
};
const tri_kernel_def cpu_sort_pairs = {
    .op = &tri_op_sort,
    .name = "pairs",
    .supports = cpu_is_f32,
    .workspace = sort_workspace,
    .prepare = prepare,
    .run = sort_run,
    .release = release,
};
