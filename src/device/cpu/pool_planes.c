// Max pooling of plain tensors with any number of channels, and its gradient. A plane is one
// channel of one sample. Neighbouring windows of a row are looked at together.
#include "device/cpu/scalar.h"
#include "ops/pool_window.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POOL_TILE = 64, POOL_GRAIN = 1 << 13 };

typedef struct planes_state {
    const cpu_device *device;
    tri_max_pool2d_attr attr;
    int64_t planes, in[2], out[2];
    float scale; // of the gradient
    bool bf16;
} planes_state;

typedef struct planes_job {
    const planes_state *state;
    const void *from; // x, or dy
    void *to;         // y, or dx
    uint8_t *index;   // NULL: no gradient follows
} planes_job;

// The largest elements of `count` windows so far, and their places in the windows.
typedef struct pool_tile {
    float most[POOL_TILE];
    int32_t at[POOL_TILE];
} pool_tile;

// Looks at one place of windows, whose elements lie `stride` apart. NaN is the largest.
CPU_SCALAR void look(const void *x, bool bf16, int64_t first, int64_t stride, int64_t count,
                     int32_t place, float *most, int32_t *at) {
#pragma GCC ivdep
    for (int64_t k = 0; k < count; k++) {
        float value = cpu_get(x, bf16, first + k * stride);
        bool more = (most[k] == most[k]) & !(value <= most[k]);
        most[k] = more ? value : most[k];
        at[k] = more ? place : at[k];
    }
}

// The smallest window number, at least `low` and at most `high`, that begins at or behind `from`.
CPU_SCALAR int64_t window_from(int64_t from, int64_t stride, int64_t low, int64_t high) {
    int64_t window = from > 0 ? (from + stride - 1) / stride : 0;
    return window < low ? low : window > high ? high : window;
}

// Looks at all places of windows `first` to first + width - 1 of a row.
CPU_SCALAR void pool_windows(const planes_state *s, const void *x, bool bf16, int64_t plane,
                             int64_t row, int64_t first, int64_t width, pool_tile *tile) {
    const int64_t *kernel = s->attr.kernel, *padding = s->attr.padding;
    int64_t stride = s->attr.stride[1], top = row * s->attr.stride[0] - padding[0];
    int64_t skipped = top < 0 ? -top : 0; // rows of the windows
    for (int64_t k = 0; k < width; k++) {
        int64_t left = (first + k) * stride - padding[1];
        tile->most[k] = -INFINITY;
        tile->at[k] = (int32_t)(skipped * kernel[1] + (left < 0 ? -left : 0));
    }
    for (int64_t h = skipped; h < kernel[0] && top + h < s->in[0]; h++)
        for (int64_t w = 0; w < kernel[1]; w++) {
            int64_t shift = padding[1] - w, last = first + width;
            int64_t begin = window_from(shift, stride, first, last);
            int64_t end = window_from(s->in[1] + shift, stride, first, last);
            int64_t element = plane + (top + h) * s->in[1] + begin * stride - shift;
            int32_t place = (int32_t)(h * kernel[1] + w);
            float *most = tile->most + begin - first;
            int32_t *at = tile->at + begin - first;
            if (stride == 1)
                look(x, bf16, element, 1, end - begin, place, most, at);
            else if (stride == 2)
                look(x, bf16, element, 2, end - begin, place, most, at);
            else
                look(x, bf16, element, stride, end - begin, place, most, at);
        }
}

// Item i is one row of windows.
CPU_BODY planes_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const planes_job *job = context;
    const planes_state *s = job->state;
    bool relu = s->attr.relu;
    for (int64_t i = begin; i < end; i++) {
        int64_t plane = i / s->out[0] * s->in[0] * s->in[1], to = i * s->out[1];
        for (int64_t first = 0; first < s->out[1]; first += POOL_TILE) {
            pool_tile tile;
            int64_t left = s->out[1] - first, width = left < POOL_TILE ? left : POOL_TILE;
            pool_windows(s, job->from, bf16, plane, i % s->out[0], first, width, &tile);
#pragma GCC ivdep
            for (int64_t k = 0; k < width; k++) {
                bool cut = relu & (tile.most[k] <= 0);
                cpu_put(job->to, bf16, to + first + k, cut ? 0 : tile.most[k]);
                tile.at[k] = cut ? TRI_POOL_NO_GRADIENT : tile.at[k];
            }
            for (int64_t k = 0; k < width && job->index; k++)
                job->index[to + first + k] = (uint8_t)tile.at[k];
        }
    }
}
CPU_TYPED_RANGES(planes)

// The gradient of windows of 2 × 2 that do not overlap: writes each element of dx once.
CPU_SCALAR void scatter_pairs(const planes_state *s, const uint8_t *index, const float *dy,
                              float *dx) {
    int64_t height = s->in[0], width = s->in[1];
    for (int64_t h = 0; h < height; h++, dx += width) {
        int64_t row = h / 2, first = h % 2 * 2, windows = row < s->out[0] ? s->out[1] : 0;
        const float *from = dy + row * s->out[1];
        const uint8_t *at = index + row * s->out[1];
#pragma GCC ivdep
        for (int64_t c = 0; c < windows; c++) {
            float value = from[c] * s->scale;
            dx[2 * c] = at[c] == first ? value : 0;
            dx[2 * c + 1] = at[c] == first + 1 ? value : 0;
        }
        for (int64_t w = 2 * windows; w < width; w++) dx[w] = 0;
    }
}

// Any windows: adds each element of dy where the largest of its window was.
CPU_SCALAR void scatter_any(const planes_state *s, const uint8_t *index, const float *dy,
                            float *dx) {
    const tri_max_pool2d_attr *a = &s->attr;
    int64_t offset[TRI_POOL_NO_GRADIENT + 1];
    for (int64_t p = 0; p <= TRI_POOL_NO_GRADIENT; p++)
        offset[p] = p / a->kernel[1] * s->in[1] + p % a->kernel[1];
    memset(dx, 0, (size_t)(s->in[0] * s->in[1]) * sizeof *dx);
    for (int64_t row = 0; row < s->out[0]; row++)
        for (int64_t c = 0; c < s->out[1]; c++, index++, dy++) {
            int64_t first =
                (row * a->stride[0] - a->padding[0]) * s->in[1] + c * a->stride[1] - a->padding[1];
            if (*index != TRI_POOL_NO_GRADIENT) dx[first + offset[*index]] += *dy * s->scale;
        }
}

CPU_BODY scatter_body(void *context, int64_t begin, int64_t end) {
    const planes_job *job = context;
    const planes_state *s = job->state;
    const tri_max_pool2d_attr *a = &s->attr;
    bool pairs = true;
    for (int i = 0; i < 2; i++)
        pairs = pairs && a->kernel[i] == 2 && a->stride[i] == 2 && a->padding[i] == 0;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = i * s->out[0] * s->out[1];
        const float *dy = (const float *)job->from + at;
        float *dx = (float *)job->to + i * s->in[0] * s->in[1];
        if (pairs)
            scatter_pairs(s, job->index + at, dy, dx);
        else
            scatter_any(s, job->index + at, dy, dx);
    }
}
CPU_RANGES(scatter)

static bool planes_supports(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node) {
    return cpu_is_float(device, graph, node) &&
           ((const tri_max_pool2d_attr *)node->attr)->dropout == 0;
}

static bool scatter_supports(const tri_device_description *device, const tri_graph *graph,
                             const tri_node *node) {
    return tri_value_get(graph, node->inputs[1])->dtype == TRI_F32;
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    bool is_grad = node->op == &tri_op_max_pool2d_grad;
    const tri_max_pool2d_attr *attr = node->attr;
    const tri_shape *x = is_grad ? &attr->x_shape : cpu_in_shape(graph, node, 0);
    const tri_shape *y = is_grad ? cpu_in_shape(graph, node, 0) : cpu_out_shape(graph, node, 0);
    planes_state *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for pooling");
    *s = (planes_state){.device = cpu_of(device),
                        .attr = *attr,
                        .planes = x->dims[0] * x->dims[1],
                        .in = {x->dims[2], x->dims[3]},
                        .out = {y->dims[2], y->dims[3]},
                        .scale = attr->dropout < 1 ? (float)(1 / (1 - attr->dropout)) : 0,
                        .bf16 = cpu_is_bf16(graph, node)};
    kernel->state = s;
    return TRI_OK;
}

static tri_status planes_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const planes_state *s = kernel->state;
    planes_job job = {s, args->in[0], args->out[0], args->out[1]};
    int64_t row = s->out[1] * s->attr.kernel[0] * s->attr.kernel[1];
    cpu_parallel(s->device, s->planes * s->out[0], POOL_GRAIN / (row > 0 ? row : 1) + 1,
                 planes_range(s->device, s->bf16), &job);
    return TRI_OK;
}

static tri_status scatter_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const planes_state *s = kernel->state;
    planes_job job = {s, args->in[1], args->out[0], args->in[0]};
    int64_t plane = s->in[0] * s->in[1];
    cpu_parallel(s->device, s->planes, POOL_GRAIN / (plane > 0 ? plane : 1) + 1,
                 scatter_range(s->device), &job);
    return TRI_OK;
}

static void release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_max_pool2d_planes = {
    .op = &tri_op_max_pool2d,
    .name = "planes",
    .supports = planes_supports,
    .prepare = prepare,
    .run = planes_run,
    .release = release,
};
const tri_kernel_def cpu_max_pool2d_grad_planes = {
    .op = &tri_op_max_pool2d_grad,
    .name = "planes",
    .supports = scatter_supports,
    .prepare = prepare,
    .run = scatter_run,
    .release = release,
};
