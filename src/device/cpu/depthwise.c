// Depthwise convolutions, in which each channel has its own kernel, and their gradients, for plain
// tensors and for tensors in blocks of 16 channels. oneDNN computes them by products of matrices
// with one row, or wants blocks.
//
// A plane is what lies together of one sample: the pixels of one channel, or of a block of 16. A
// band of its rows is copied into a buffer with its padding, so that the loops over pixels need no
// checks. A loop has DEPTH_LANES sums side by side; blocks divide the lanes, so both layouts have
// the same loops. Columns that a stride leaves out are computed too and not stored.
//
// The gradient of the input is a convolution with stride 1 of dy, with zeros between its pixels
// where the stride is more, and with the kernel rotated.
#include "device/cpu/conv.h"
#include "device/cpu/product_map.h"
#include "device/cpu/scalar.h"

#include <stdlib.h>
#include <string.h>

enum {
    DEPTH_LANES = 64,
    DEPTH_TAPS = 1024,    // the most weights of a channel
    DEPTH_BAND = 1 << 15, // numbers of a band's buffer, if a band of one row has not more
    DEPTH_GRAIN = 1 << 14,
};

// A plane as it is copied into the buffer: pixel (r, c) of the buffer is pixel (r - before) / up of
// the plane, and 0 where there is none.
typedef struct depth_source {
    int64_t size[2], up[2], before[2];
} depth_source;

typedef struct depth_state {
    const cpu_device *device;
    conv_shape s;
    bool weight_gradient, rotated, bias, bf16;
    int64_t block, planes, taps; // channels of a plane; planes of all samples
    depth_source x;              // of the gradient of the input: dy
    int64_t out[2], stride[2];   // of what is computed from x
    int64_t pitch, band;         // pixels of a row of the buffer; rows of the result in a band
    int64_t threads;
    int64_t room[3]; // numbers of the buffers of a thread: x, the result or dy, and the weights
    int64_t offset[DEPTH_TAPS];
} depth_state;

typedef struct depth_job {
    const depth_state *state;
    const void *x, *dy, *weight, *bias;
    void *out;
    float *sums; // of the gradient of the weight: [samples][channels][taps + 1], the bias last
    float *buffers;
    const cpu_finish *finish; // NULL: the sums are what is wanted
} depth_job;

// The rows [first, first + rows) of a plane, `pitch` pixels long.
CPU_SCALAR void fill_band(float *to, const void *plane, bool bf16, const depth_source *source,
                          int64_t block, int64_t first, int64_t rows, int64_t pitch) {
    memset(to, 0, (size_t)(rows * pitch * block) * sizeof *to);
    for (int64_t r = 0; r < rows; r++) {
        int64_t row = first + r - source->before[0];
        if (row < 0 || row % source->up[0] || row / source->up[0] >= source->size[0]) continue;
        int64_t from = row / source->up[0] * source->size[1], before = source->before[1];
        float *line = to + r * pitch * block;
        if (source->up[1] != 1) {
            for (int64_t w = 0; w < source->size[1]; w++)
                for (int64_t k = 0; k < block; k++) {
                    int64_t column = before + w * source->up[1];
                    if (column < 0 || column >= pitch) continue;
                    line[column * block + k] = cpu_get(plane, bf16, (from + w) * block + k);
                }
            continue;
        }
        int64_t begin = before < 0 ? -before : 0, end = source->size[1];
        if (before + end > pitch) end = pitch - before;
        const void *at = cpu_row(plane, bf16, (from + begin) * block);
        float *out = line + (before + begin) * block;
        for (int64_t i = 0; i < (end - begin) * block; i++) out[i] = cpu_get(at, bf16, i);
    }
}

// A quarter of the lanes, at any address. Left to itself, the compiler exchanges the loops over
// lanes and taps.
typedef float depth_vector __attribute__((vector_size(64), aligned(4), may_alias));
enum { DEPTH_VECTORS = DEPTH_LANES * (int)sizeof(float) / (int)sizeof(depth_vector) };

// to[i] = the sum over the taps of weight · from[i + offset], for i below `count` rounded up to
// whole tiles.
CPU_SCALAR void correlate(const depth_state *s, const float *from, const float *weights,
                          const float *start, int64_t count, float *to) {
    for (int64_t i = 0; i < count; i += DEPTH_LANES) {
        depth_vector sum[DEPTH_VECTORS];
        for (int v = 0; v < DEPTH_VECTORS; v++) sum[v] = ((const depth_vector *)start)[v];
        for (int64_t t = 0; t < s->taps; t++) {
            const depth_vector *x = (const depth_vector *)(from + i + s->offset[t]);
            const depth_vector *weight = (const depth_vector *)(weights + t * DEPTH_LANES);
            for (int v = 0; v < DEPTH_VECTORS; v++) sum[v] += weight[v] * x[v];
        }
        for (int v = 0; v < DEPTH_VECTORS; v++) ((depth_vector *)(to + i))[v] = sum[v];
    }
}

// Stores a row of sums, of which every stride-th pixel is wanted, from `at` on.
CPU_SCALAR void store_row(const depth_state *s, const float *row, bool bf16, void *out,
                          int64_t at) {
    int64_t block = s->block, width = s->out[1], stride = s->stride[1];
    if (stride == 1) { // as if all were one pixel
        block *= width;
        width = 1;
    }
    for (int64_t w = 0; w < width; w++) {
        const float *pixel = row + w * stride * block;
        for (int64_t k = 0; k < block; k++) cpu_put(out, bf16, at + w * block + k, pixel[k]);
    }
}

// Makes the weights of a plane's channels, each lane that of its channel: [taps][lanes], and behind
// them the bias.
CPU_SCALAR void lay_weights(const depth_job *job, int64_t channel, float *lanes) {
    const depth_state *s = job->state;
    for (int64_t t = 0; t <= s->taps; t++)
        for (int64_t k = 0; k < DEPTH_LANES; k++) {
            int64_t c = channel + k % s->block, tap = s->rotated ? s->taps - 1 - t : t;
            float *to = lanes + t * DEPTH_LANES + k;
            if (k >= s->block)
                *to = to[-s->block];
            else if (t == s->taps)
                *to = job->bias ? cpu_get(job->bias, s->bf16, c) : 0;
            else
                *to = cpu_get(job->weight, s->bf16, c * s->taps + tap);
        }
}

// Computes one plane from x.
CPU_SCALAR void convolve_plane(const depth_job *job, int64_t plane, float *buffers, bool bf16) {
    const depth_state *s = job->state;
    int64_t block = s->block, pitch = s->pitch * block, per_sample = s->s.groups / block;
    float *x = buffers, *sums = x + s->room[0], *weights = sums + s->room[1];
    const void *from = cpu_row(job->x, bf16, plane * s->x.size[0] * s->x.size[1] * block);
    int64_t wide = (s->out[1] - 1) * s->stride[1] + 1, to = plane * s->out[0] * s->out[1] * block;
    lay_weights(job, plane % per_sample * block, weights);
    for (int64_t first = 0; first < s->out[0]; first += s->band) {
        int64_t rows = s->out[0] - first < s->band ? s->out[0] - first : s->band;
        int64_t reach = (s->s.kernel[0] - 1) * s->s.dilation[0];
        fill_band(x, from, bf16, &s->x, block, first * s->stride[0],
                  (rows - 1) * s->stride[0] + reach + 1, s->pitch);
        // Rows with a stride of 1 are computed as one, with what lies between them.
        bool joined = s->stride[0] == 1;
        for (int64_t r = 0; r < (joined ? 1 : rows); r++)
            correlate(s, x + r * s->stride[0] * pitch, weights, weights + s->taps * DEPTH_LANES,
                      joined ? (rows - 1) * pitch + wide * block : wide * block, sums + r * pitch);
        for (int64_t r = 0; r < rows; r++)
            store_row(s, sums + r * pitch, bf16, job->out, to + (first + r) * s->out[1] * block);
        int64_t count = rows * s->out[1] * block;
        if (job->finish)
            cpu_finish_rows(job->finish, to + first * s->out[1] * block, count, 1, count);
    }
}

// Adds up a · b in lanes, over `count` numbers rounded up to whole tiles; b is 0 beyond `count`.
CPU_SCALAR void add_products(const float *a, const float *b, int64_t count, float *sum) {
    for (int64_t i = 0; i < count; i += DEPTH_LANES)
#pragma GCC ivdep
        for (int k = 0; k < DEPTH_LANES; k++) sum[k] += a[i + k] * b[i + k];
}

CPU_SCALAR void store_sums(const float *lanes, int64_t block, int64_t step, float *to) {
    float sum[DEPTH_LANES];
    for (int k = 0; k < DEPTH_LANES; k++) sum[k] = lanes[k];
    for (int64_t half = DEPTH_LANES / 2; half >= block; half /= 2)
        for (int64_t k = 0; k < half; k++) sum[k] += sum[k + half];
    for (int64_t k = 0; k < block; k++) to[k * step] = sum[k];
}

// Computes the sums over one plane for the gradients of its weights and its bias.
CPU_SCALAR void sum_plane(const depth_job *job, int64_t plane, float *buffers, bool bf16) {
    const depth_state *s = job->state;
    int64_t block = s->block, pitch = s->pitch * block;
    float *x = buffers, *dy = x + s->room[0], *lanes = dy + s->room[1];
    const void *x_plane = cpu_row(job->x, bf16, plane * s->x.size[0] * s->x.size[1] * block);
    const void *dy_plane = cpu_row(job->dy, bf16, plane * s->out[0] * s->out[1] * block);
    depth_source slopes = {.size = {s->out[0], s->out[1]}, .up = {1, s->stride[1]}};
    memset(lanes, 0, (size_t)((s->taps + 1) * DEPTH_LANES) * sizeof *lanes);
    for (int64_t first = 0; first < s->out[0]; first += s->band) {
        int64_t rows = s->out[0] - first < s->band ? s->out[0] - first : s->band;
        int64_t reach = (s->s.kernel[0] - 1) * s->s.dilation[0];
        fill_band(x, x_plane, bf16, &s->x, block, first * s->stride[0],
                  (rows - 1) * s->stride[0] + reach + 1, s->pitch);
        fill_band(dy, dy_plane, bf16, &slopes, block, first, rows, s->pitch);
        bool joined = s->stride[0] == 1;
        int64_t count = joined ? rows * pitch : pitch, lines = joined ? 1 : rows;
        // Whole tiles reach beyond the last row, where nothing may count.
        memset(dy + rows * pitch, 0, DEPTH_LANES * sizeof *dy);
        memset(x + ((rows - 1) * s->stride[0] + reach + 1) * pitch, 0,
               (size_t)(DEPTH_LANES + pitch) * sizeof *x);
        for (int64_t r = 0; r < lines; r++) {
            int64_t whole = r + 1 == lines ? count : count / DEPTH_LANES * DEPTH_LANES;
            const float *line = dy + r * pitch, *from = x + r * s->stride[0] * pitch;
            for (int64_t t = 0; t < s->taps; t++) {
                float *sum = lanes + t * DEPTH_LANES;
                add_products(from + s->offset[t], line, whole, sum);
                for (int64_t i = whole; i < count; i++)
                    sum[i % DEPTH_LANES] += from[s->offset[t] + i] * line[i];
            }
        }
        float *bias = lanes + s->taps * DEPTH_LANES;
        for (int64_t i = 0; i < rows * pitch; i += DEPTH_LANES)
#pragma GCC ivdep
            for (int k = 0; k < DEPTH_LANES; k++) bias[k] += dy[i + k];
    }
    for (int64_t t = 0; t <= s->taps; t++)
        store_sums(lanes + t * DEPTH_LANES, block, s->taps + 1,
                   job->sums + plane * block * (s->taps + 1) + t);
}

// Items are threads, each with buffers of its own and its share of the planes.
CPU_BODY depth_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const depth_job *job = context;
    const depth_state *s = job->state;
    for (int64_t t = begin; t < end; t++) {
        float *buffers = job->buffers + t * (s->room[0] + s->room[1] + s->room[2]);
        int64_t last = (t + 1) * s->planes / s->threads;
        for (int64_t plane = t * s->planes / s->threads; plane < last; plane++)
            if (s->weight_gradient)
                sum_plane(job, plane, buffers, bf16);
            else
                convolve_plane(job, plane, buffers, bf16);
    }
}
CPU_TYPED_RANGES(depth)

static bool depth_supports(const tri_device_description *device, const tri_graph *graph,
                           const tri_node *node) {
    if (!cpu_is_float(device, graph, node)) return false;
    conv_shape s = conv_shape_of_node(graph, node);
    return s.groups > 1 && s.groups == s.c && s.groups == s.o && s.n > 0 &&
           s.kernel[0] * s.kernel[1] <= DEPTH_TAPS;
}

static bool is_weight_gradient(const tri_node *node) {
    return node->op == &tri_op_conv2d_grad_weight;
}

static void depth_layouts(const tri_device_description *device, const tri_graph *graph,
                          const tri_node *node, tri_layout *in, tri_layout *out) {
    bool blocked = cpu_layout_is(&in[0], CPU_NCHW16C);
    cpu_format format = blocked ? CPU_NCHW16C : CPU_PLAIN;
    conv_set_layouts(node, (conv_formats){format, CPU_PLAIN, format}, in, out);
}

// Everything but attributes that only the run needs.
static void set_state(const tri_device_description *device, const tri_graph *graph,
                      const tri_node *node, depth_state *s) {
    s->s = conv_shape_of_node(graph, node);
    const conv_shape *c = &s->s;
    const tri_layout *layout = &tri_value_get(graph, node->inputs[0])->layout;
    s->block = cpu_layout_is(layout, CPU_NCHW16C) ? CPU_BLOCK : 1;
    s->planes = c->n * (c->groups / s->block);
    s->taps = c->kernel[0] * c->kernel[1];
    s->weight_gradient = is_weight_gradient(node);
    s->rotated = node->op == &tri_op_conv2d_grad_input;
    s->bf16 = cpu_is_bf16(graph, node);
    s->threads = device->threads;
    for (int i = 0; i < 2; i++) {
        int64_t reach = (c->kernel[i] - 1) * c->dilation[i];
        s->x.size[i] = s->rotated ? c->out[i] : c->in[i];
        s->x.up[i] = s->rotated ? c->stride[i] : 1;
        s->x.before[i] = s->rotated ? reach - c->padding[i] : c->padding[i];
        s->out[i] = s->rotated ? c->in[i] : c->out[i];
        s->stride[i] = s->rotated ? 1 : c->stride[i];
    }
    int64_t reach = (c->kernel[0] - 1) * c->dilation[0];
    s->pitch = (s->out[1] - 1) * s->stride[1] + (c->kernel[1] - 1) * c->dilation[1] + 1;
    int64_t rows = DEPTH_BAND / (s->pitch * s->block) - reach;
    s->band = rows < s->stride[0] ? 1 : rows / s->stride[0];
    if (s->band > s->out[0]) s->band = s->out[0];
    int64_t slack = DEPTH_LANES + s->pitch * s->block;
    s->room[0] = ((s->band - 1) * s->stride[0] + reach + 1) * s->pitch * s->block + slack;
    s->room[1] = s->band * s->pitch * s->block + slack;
    s->room[2] = (s->taps + 1) * DEPTH_LANES;
    for (int i = 0; i < 3; i++) s->room[i] = (s->room[i] + 15) / 16 * 16;
    for (int64_t t = 0; t < s->taps; t++)
        s->offset[t] =
            (t / c->kernel[1] * c->dilation[0] * s->pitch + t % c->kernel[1] * c->dilation[1]) *
            s->block;
}

static size_t sums_bytes(const depth_state *s) {
    if (!s->weight_gradient) return 0;
    return (size_t)(s->planes * s->block * (s->taps + 1) + 15) / 16 * 16 * sizeof(float);
}

static tri_status depth_workspace(const tri_device_description *device, const tri_graph *graph,
                                  const tri_node *node, size_t *out) {
    depth_state s;
    memset(&s, 0, sizeof s);
    set_state(device, graph, node, &s);
    *out =
        sums_bytes(&s) + (size_t)(s.threads * (s.room[0] + s.room[1] + s.room[2])) * sizeof(float);
    return TRI_OK;
}

static tri_status depth_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                tri_kernel *kernel) {
    depth_state *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a convolution");
    kernel->state = s;
    s->device = cpu_of(device);
    set_state(&device->description, graph, node, s);
    if (node->op == &tri_op_conv2d)
        s->bias = tri_value_is(node->inputs[2]);
    else if (s->weight_gradient)
        s->bias = ((const tri_conv2d_grad_attr *)node->attr)->has_bias;
    return TRI_OK;
}

// Adds up the planes' sums in the order of the samples, so that the result does not depend on the
// number of threads.
static void add_samples(const depth_state *s, const float *sums, float *dweight, float *dbias) {
    for (int64_t c = 0; c < s->s.groups; c++)
        for (int64_t t = 0; t <= s->taps; t++) {
            double sum = 0;
            for (int64_t n = 0; n < s->s.n; n++)
                sum += (double)sums[(n * s->s.groups + c) * (s->taps + 1) + t];
            if (t < s->taps)
                dweight[c * s->taps + t] = (float)sum;
            else if (s->bias)
                dbias[c] = (float)sum;
        }
}

tri_status cpu_depthwise_compute(const tri_kernel *kernel, const tri_kernel_args *args,
                                 const cpu_finish *finish) {
    const depth_state *s = kernel->state;
    depth_job job = {.state = s, .x = args->in[0], .out = args->out[0], .sums = args->workspace};
    job.finish = finish;
    job.buffers = (float *)((char *)args->workspace + sums_bytes(s));
    if (s->weight_gradient)
        job.dy = args->in[1];
    else
        job.weight = args->in[1];
    if (!s->weight_gradient && s->bias) job.bias = args->in[2];
    int64_t work = s->planes * s->block * s->out[0] * s->out[1] * s->taps;
    int64_t grain = work / s->threads >= DEPTH_GRAIN ? 1 : s->threads;
    cpu_parallel(s->device, s->threads, grain, depth_range(s->device, s->bf16), &job);
    if (s->weight_gradient) add_samples(s, job.sums, args->out[0], args->out[1]);
    return TRI_OK;
}

static tri_status depth_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    return cpu_depthwise_compute(kernel, args, NULL);
}

static void depth_release(tri_kernel *kernel) { free(kernel->state); }

#define DEPTH_KERNEL(opname)                                                                       \
    const tri_kernel_def cpu_##opname##_depthwise = {                                              \
        .op = &tri_op_##opname,                                                                    \
        .name = "depthwise",                                                                       \
        .supports = depth_supports,                                                                \
        .layouts = depth_layouts,                                                                  \
        .workspace = depth_workspace,                                                              \
        .prepare = depth_prepare,                                                                  \
        .run = depth_run,                                                                          \
        .release = depth_release,                                                                  \
    };
DEPTH_KERNEL(conv2d)
DEPTH_KERNEL(conv2d_grad_input)
DEPTH_KERNEL(conv2d_grad_weight)
