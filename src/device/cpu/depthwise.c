// Depthwise convolutions, in which each channel has its own kernel, and their gradients, for plain
// tensors and for tensors in blocks of 16 channels. oneDNN computes them by products of matrices
// with one row, or wants blocks.
//
// A unit is 16 channels of one sample. A band of rows of the unit's image is copied into a buffer
// in which the 16 channels of a pixel lie side by side, with its padding, so that the loops over
// pixels need no checks and a vector is one pixel. Numbers of channels that do not exist are 0.
//
// With a stride, the gradient of the input has several phases: all pixels whose coordinates leave
// the same remainders are sums of the same taps (numbers of the kernel), of which each belongs to
// one phase. So each phase is a convolution of dy with a stride of 1.
#include "device/cpu/conv.h"
#include "device/cpu/product_map.h"
#include "device/cpu/scalar.h"

#include <stdlib.h>
#include <string.h>

enum {
    DEPTH_TAPS = 1024,    // the most weights of a channel
    DEPTH_PHASES = 64,    // the most phases
    DEPTH_BAND = 1 << 15, // numbers of a band's buffer, if a band of one row has not more
    DEPTH_GRAIN = 1 << 14,
    DEPTH_PIXELS = 8, // whose sums are in registers at once
};

// A weight, and where the number lies in the buffer that it is multiplied with: which row below
// that of the result's position, and how many numbers after the position.
typedef struct depth_tap {
    int64_t weight, row, offset;
} depth_tap;

// The pixels `first`, `first` + up, … of the result are sums of taps [begin, end).
typedef struct depth_phase {
    int64_t first[2], size[2];
    int64_t begin, end;
} depth_phase;

// Position i of the result begins at pixel i · step of the buffer, whose pixel 0 is pixel `origin`
// of x, which has `size` pixels.
typedef struct depth_source {
    int64_t size[2], step[2], origin[2];
} depth_source;

typedef struct depth_state {
    const cpu_device *device;
    conv_shape s;
    bool weight_gradient, bias, bf16;
    bool blocked; // x, y and their gradients lie in blocks
    int64_t units, taps;
    depth_source x; // of the gradient of the input: dy
    int64_t out[2]; // pixels of what is computed from x; of the gradient of the weight: of dy
    int64_t up[2];  // pixels of the result from one position to the next
    int64_t pitch;  // pixels of a row of the buffer
    int64_t reach;  // rows below that of a position which its taps need
    int64_t band;   // rows of positions in a band
    int64_t threads;
    int64_t room[3]; // numbers of the buffers of a thread: x, a row of the result or dy, weights
    int phase_count;
    depth_phase phases[DEPTH_PHASES];
    depth_tap tap[DEPTH_TAPS];
} depth_state;

typedef struct depth_job {
    const depth_state *state;
    const void *x, *dy, *weight, *bias;
    void *out, *dbias;
    float *sums; // of the gradient of the weight: [units][taps + 1][16], the bias last
    float *buffers;
    const cpu_finish *finish; // NULL: the sums are what is wanted
} depth_job;

// The numbers of one pixel, at any address.
typedef float depth_vector __attribute__((vector_size(64), aligned(4), may_alias));

// Units of the same channels follow each other, so that a thread lays out their weights once.
CPU_SCALAR int64_t unit_channel(const depth_state *s, int64_t unit) {
    return unit / s->s.n * CPU_BLOCK;
}

CPU_SCALAR int64_t channels_of(const depth_state *s, int64_t unit) {
    int64_t rest = s->s.groups - unit_channel(s, unit);
    return rest < CPU_BLOCK ? rest : CPU_BLOCK;
}

// The number of the unit's first element in a tensor with so many pixels.
CPU_SCALAR int64_t unit_first(const depth_state *s, int64_t unit, int64_t pixels) {
    return (unit % s->s.n * s->s.groups + unit_channel(s, unit)) * pixels;
}

// Copies pixels [from, from + count) of a unit's image, which has so many pixels.
CPU_SCALAR void fill_pixels(float *to, const void *image, bool bf16, bool blocked, int64_t channels,
                            int64_t pixels, int64_t from, int64_t count) {
    if (blocked) {
        const void *at = cpu_row(image, bf16, from * CPU_BLOCK);
        for (int64_t i = 0; i < count * CPU_BLOCK; i++) to[i] = cpu_get(at, bf16, i);
        return;
    }
    if (channels < CPU_BLOCK) memset(to, 0, (size_t)(count * CPU_BLOCK) * sizeof *to);
    for (int64_t k = 0; k < channels; k++) {
        const void *at = cpu_row(image, bf16, k * pixels + from);
        for (int64_t i = 0; i < count; i++) to[i * CPU_BLOCK + k] = cpu_get(at, bf16, i);
    }
}

static void clear_pixels(float *to, int64_t count) {
    memset(to, 0, (size_t)(count * CPU_BLOCK) * sizeof *to);
}

// Fills `rows` rows of the buffer, the first of which is row `first` of the image.
CPU_SCALAR void fill_band(const depth_state *s, float *to, const void *image, bool bf16,
                          int64_t channels, int64_t first, int64_t rows) {
    int64_t width = s->x.size[1], origin = s->x.origin[1], pitch = s->pitch;
    int64_t left = origin < 0 ? -origin : 0,
            right = width - origin < pitch ? width - origin : pitch;
    if (left > pitch) left = pitch;
    if (right < left) right = left;
    for (int64_t r = 0; r < rows; r++, to += pitch * CPU_BLOCK) {
        int64_t row = first + r;
        if (row < 0 || row >= s->x.size[0]) {
            clear_pixels(to, pitch);
            continue;
        }
        clear_pixels(to, left);
        fill_pixels(to + left * CPU_BLOCK, image, bf16, s->blocked, channels, s->x.size[0] * width,
                    row * width + origin + left, right - left);
        clear_pixels(to + right * CPU_BLOCK, pitch - right);
    }
}

// to = start + the sum over the taps of weight · x, for so many pixels (a constant); `step` numbers
// lie between those that two of them begin with.
CPU_SCALAR void correlate_pixels(const depth_tap *taps, int64_t count, const float *x, int64_t step,
                                 const float *weights, depth_vector start, float *to,
                                 const int pixels) {
    depth_vector sum[DEPTH_PIXELS];
#pragma GCC unroll 8
    for (int v = 0; v < pixels; v++) sum[v] = start;
    for (int64_t t = 0; t < count; t++) {
        const float *from = x + taps[t].offset;
        depth_vector weight = *(const depth_vector *)(weights + t * CPU_BLOCK);
#pragma GCC unroll 8
        for (int v = 0; v < pixels; v++)
            sum[v] += weight * *(const depth_vector *)(from + v * step);
    }
#pragma GCC unroll 8
    for (int v = 0; v < pixels; v++) ((depth_vector *)to)[v] = sum[v];
}

CPU_SCALAR void correlate_row(const depth_tap *taps, int64_t count, const float *x, int64_t step,
                              const float *weights, const float *bias, int64_t pixels, float *to) {
    depth_vector start = *(const depth_vector *)bias;
    while (pixels > 0) {
        int64_t now = pixels < DEPTH_PIXELS ? pixels : DEPTH_PIXELS;
        switch (now) {
#define CASE(n)                                                                                    \
    case n:                                                                                        \
        correlate_pixels(taps, count, x, step, weights, start, to, n);                             \
        break
            CASE(1);
            CASE(2);
            CASE(3);
            CASE(4);
            CASE(5);
            CASE(6);
            CASE(7);
            CASE(8);
#undef CASE
        }
        x += now * step;
        to += now * CPU_BLOCK;
        pixels -= now;
    }
}

// Stores a row of pixels, from pixel `at` of a unit's image on, `up` pixels apart.
CPU_SCALAR void store_row(const depth_state *s, const float *row, bool bf16, void *image,
                          int64_t channels, int64_t at, int64_t count, int64_t up) {
    if (s->blocked) {
        for (int64_t i = 0; i < count; i++)
            for (int64_t k = 0; k < CPU_BLOCK; k++)
                cpu_put(image, bf16, (at + i * up) * CPU_BLOCK + k, row[i * CPU_BLOCK + k]);
        return;
    }
    int64_t pixels = s->out[0] * s->out[1];
    for (int64_t k = 0; k < channels; k++)
        for (int64_t i = 0; i < count; i++)
            cpu_put(image, bf16, k * pixels + at + i * up, row[i * CPU_BLOCK + k]);
}

// Lays out the weights of a unit's channels in the order of the taps, and behind them the bias.
CPU_SCALAR void lay_weights(const depth_job *job, int64_t channel, int64_t channels, bool bf16,
                            float *to) {
    const depth_state *s = job->state;
    memset(to, 0, (size_t)((s->taps + 1) * CPU_BLOCK) * sizeof *to);
    for (int64_t k = 0; k < channels; k++) {
        for (int64_t t = 0; t < s->taps; t++)
            to[t * CPU_BLOCK + k] =
                cpu_get(job->weight, bf16, (channel + k) * s->taps + s->tap[t].weight);
        if (job->bias) to[s->taps * CPU_BLOCK + k] = cpu_get(job->bias, bf16, channel + k);
    }
}

// Narrows taps [*begin, *end), whose rows rise or fall, to those that read rows of the image at
// position `row`: all others read zeros.
CPU_SCALAR void clip_taps(const depth_state *s, int64_t row, int64_t *begin, int64_t *end) {
    int64_t first = row * s->x.step[0] + s->x.origin[0], rows = s->x.size[0];
    while (*begin < *end && (uint64_t)(first + s->tap[*begin].row) >= (uint64_t)rows) ++*begin;
    while (*begin < *end && (uint64_t)(first + s->tap[*end - 1].row) >= (uint64_t)rows) --*end;
}

// Finishes the result's rows from `row` on, at most `rows` of them.
CPU_SCALAR void finish_band(const depth_job *job, int64_t first, int64_t channels, int64_t row,
                            int64_t rows) {
    const depth_state *s = job->state;
    int64_t pixels = s->out[0] * s->out[1], planes = s->blocked ? 1 : channels;
    int64_t width = s->blocked ? s->out[1] * CPU_BLOCK : s->out[1];
    int64_t count = (s->out[0] - row < rows ? s->out[0] - row : rows) * width;
    for (int64_t k = 0; k < planes; k++)
        cpu_finish_rows(job->finish, first + k * pixels + row * width, count, 1, count);
}

// Computes the rows of a phase in a band whose first row of positions is `first`.
CPU_SCALAR void convolve_phase(const depth_job *job, const depth_phase *phase, int64_t first,
                               const float *x, const float *weights, float *line, void *out,
                               int64_t channels, bool bf16) {
    const depth_state *s = job->state;
    int64_t last = first + s->band < phase->size[0] ? first + s->band : phase->size[0];
    for (int64_t r = first; r < last; r++) {
        int64_t begin = phase->begin, end = phase->end;
        clip_taps(s, r, &begin, &end);
        correlate_row(s->tap + begin, end - begin,
                      x + (r - first) * s->x.step[0] * s->pitch * CPU_BLOCK,
                      s->x.step[1] * CPU_BLOCK, weights + begin * CPU_BLOCK,
                      weights + s->taps * CPU_BLOCK, phase->size[1], line);
        store_row(s, line, bf16, out, channels,
                  (phase->first[0] + r * s->up[0]) * s->out[1] + phase->first[1], phase->size[1],
                  s->up[1]);
    }
}

CPU_SCALAR void convolve_unit(const depth_job *job, int64_t unit, float *buffers, bool bf16) {
    const depth_state *s = job->state;
    float *x = buffers, *line = x + s->room[0], *weights = line + s->room[1];
    int64_t channels = channels_of(s, unit), to = unit_first(s, unit, s->out[0] * s->out[1]);
    const void *image = cpu_row(job->x, bf16, unit_first(s, unit, s->x.size[0] * s->x.size[1]));
    void *out = (char *)job->out + to * (bf16 ? 2 : 4);
    int64_t positions = s->phases[0].size[0];
    for (int64_t first = 0; first < positions; first += s->band) {
        int64_t rows = positions - first < s->band ? positions - first : s->band;
        fill_band(s, x, image, bf16, channels, first * s->x.step[0] + s->x.origin[0],
                  (rows - 1) * s->x.step[0] + s->reach + 1);
        for (int i = 0; i < s->phase_count; i++)
            convolve_phase(job, &s->phases[i], first, x, weights, line, out, channels, bf16);
        if (job->finish) finish_band(job, to, channels, first * s->up[0], rows * s->up[0]);
    }
}

// Adds the sums over a row of pixels of dy · x to those of so many taps (a constant).
CPU_SCALAR void add_taps(const depth_tap *taps, const float *dy, int64_t count, const float *x,
                         int64_t step, float *sums, const int tap_count) {
    depth_vector sum[9];
#pragma GCC unroll 9
    for (int t = 0; t < tap_count; t++) sum[t] = (depth_vector){0};
    for (int64_t i = 0; i < count; i++) {
        depth_vector slope = *(const depth_vector *)(dy + i * CPU_BLOCK);
#pragma GCC unroll 9
        for (int t = 0; t < tap_count; t++)
            sum[t] += slope * *(const depth_vector *)(x + taps[t].offset + i * step);
    }
#pragma GCC unroll 9
    for (int t = 0; t < tap_count; t++) ((depth_vector *)sums)[t] += sum[t];
}

// How many taps are summed at once: as many as divide the taps and fit into registers.
CPU_SCALAR int64_t taps_at_once(int64_t taps) {
    for (int64_t n = 9; n > 1; n--)
        if (taps % n == 0) return n;
    return 1;
}

CPU_SCALAR void sum_row(const depth_state *s, int64_t row, const float *dy, const float *x,
                        float *sums) {
    int64_t step = s->x.step[1] * CPU_BLOCK, at_once = taps_at_once(s->taps), count = s->out[1];
    int64_t begin = 0, end = s->taps;
    clip_taps(s, row, &begin, &end);
    for (int64_t t = begin / at_once * at_once; t < end; t += at_once) {
        float *to = sums + t * CPU_BLOCK;
        switch (at_once) {
#define CASE(n)                                                                                    \
    case n:                                                                                        \
        add_taps(s->tap + t, dy, count, x, step, to, n);                                           \
        break
            CASE(1);
            CASE(2);
            CASE(3);
            CASE(4);
            CASE(5);
            CASE(6);
            CASE(7);
            CASE(8);
            CASE(9);
#undef CASE
        }
    }
    depth_vector sum = {0};
    for (int64_t i = 0; i < count; i++) sum += *(const depth_vector *)(dy + i * CPU_BLOCK);
    *(depth_vector *)(sums + s->taps * CPU_BLOCK) += sum;
}

// Computes the sums over one unit for the gradients of its weights and its bias.
CPU_SCALAR void sum_unit(const depth_job *job, int64_t unit, float *buffers, bool bf16) {
    const depth_state *s = job->state;
    float *x = buffers, *dy = x + s->room[0];
    float *sums = job->sums + unit * (s->taps + 1) * CPU_BLOCK;
    int64_t channels = channels_of(s, unit), pixels = s->out[0] * s->out[1];
    const void *image = cpu_row(job->x, bf16, unit_first(s, unit, s->x.size[0] * s->x.size[1]));
    const void *slopes = cpu_row(job->dy, bf16, unit_first(s, unit, pixels));
    clear_pixels(sums, s->taps + 1);
    for (int64_t first = 0; first < s->out[0]; first += s->band) {
        int64_t rows = s->out[0] - first < s->band ? s->out[0] - first : s->band;
        fill_band(s, x, image, bf16, channels, first * s->x.step[0] + s->x.origin[0],
                  (rows - 1) * s->x.step[0] + s->reach + 1);
        for (int64_t r = 0; r < rows; r++) {
            fill_pixels(dy, slopes, bf16, s->blocked, channels, pixels, (first + r) * s->out[1],
                        s->out[1]);
            sum_row(s, first + r, dy, x + r * s->x.step[0] * s->pitch * CPU_BLOCK, sums);
        }
    }
}

// Items are threads, each with buffers of its own and its share of the units.
CPU_BODY depth_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const depth_job *job = context;
    const depth_state *s = job->state;
    for (int64_t t = begin; t < end; t++) {
        float *buffers = job->buffers + t * (s->room[0] + s->room[1] + s->room[2]);
        int64_t first = t * s->units / s->threads, last = (t + 1) * s->units / s->threads;
        for (int64_t unit = first; unit < last; unit++) {
            if (s->weight_gradient) {
                sum_unit(job, unit, buffers, bf16);
                continue;
            }
            if (unit == first || unit % s->s.n == 0)
                lay_weights(job, unit_channel(s, unit), channels_of(s, unit), bf16,
                            buffers + s->room[0] + s->room[1]);
            convolve_unit(job, unit, buffers, bf16);
        }
    }
}
CPU_TYPED_RANGES(depth)

static bool depth_supports(const tri_device_description *device, const tri_graph *graph,
                           const tri_node *node) {
    if (!cpu_is_float(device, graph, node)) return false;
    conv_shape s = conv_shape_of_node(graph, node);
    return s.groups > 1 && s.groups == s.c && s.groups == s.o && s.n > 0 &&
           s.kernel[0] * s.kernel[1] <= DEPTH_TAPS && s.stride[0] * s.stride[1] <= DEPTH_PHASES;
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

static int64_t floor_quotient(int64_t a, int64_t b) { return a / b - (a % b < 0); }

// Sets the only phase: the taps in the order of the weights.
static void set_taps(depth_state *s) {
    const conv_shape *c = &s->s;
    s->phase_count = 1;
    s->phases[0] = (depth_phase){.size = {s->out[0], s->out[1]}, .end = s->taps};
    for (int64_t t = 0; t < s->taps; t++)
        s->tap[t] = (depth_tap){.weight = t,
                                .row = t / c->kernel[1] * c->dilation[0],
                                .offset = t % c->kernel[1] * c->dilation[1]};
}

// Sets the phases of the gradient of the input: dx[h] is the sum of weight[k] · dy[q] over all k
// for which h = q · stride + k · dilation - padding, on either axis.
static void set_phases(depth_state *s) {
    const conv_shape *c = &s->s;
    int64_t tap = 0;
    for (int64_t h = 0; h < c->stride[0]; h++)
        for (int64_t w = 0; w < c->stride[1]; w++) {
            depth_phase *phase = &s->phases[s->phase_count++];
            *phase = (depth_phase){.first = {h, w}, .begin = tap};
            for (int i = 0; i < 2; i++)
                phase->size[i] = (s->out[i] - phase->first[i] + c->stride[i] - 1) / c->stride[i];
            for (int64_t t = 0; t < s->taps; t++) {
                int64_t row = h + c->padding[0] - t / c->kernel[1] * c->dilation[0];
                int64_t column = w + c->padding[1] - t % c->kernel[1] * c->dilation[1];
                if (row % c->stride[0] || column % c->stride[1]) continue;
                s->tap[tap++] = (depth_tap){.weight = t,
                                            .row = row / c->stride[0] - s->x.origin[0],
                                            .offset = column / c->stride[1] - s->x.origin[1]};
            }
            phase->end = tap;
        }
}

// Everything but attributes that only the run needs.
static void set_state(const tri_device_description *device, const tri_graph *graph,
                      const tri_node *node, depth_state *s) {
    s->s = conv_shape_of_node(graph, node);
    const conv_shape *c = &s->s;
    bool rotated = node->op == &tri_op_conv2d_grad_input;
    s->blocked = cpu_layout_is(&tri_value_get(graph, node->inputs[0])->layout, CPU_NCHW16C);
    s->units = c->n * ((c->groups + CPU_BLOCK - 1) / CPU_BLOCK);
    s->taps = c->kernel[0] * c->kernel[1];
    s->weight_gradient = is_weight_gradient(node);
    s->bf16 = cpu_is_bf16(graph, node);
    s->threads = device->threads;
    int64_t reach[2], positions[2];
    for (int i = 0; i < 2; i++) {
        reach[i] = (c->kernel[i] - 1) * c->dilation[i];
        s->x.size[i] = rotated ? c->out[i] : c->in[i];
        s->x.step[i] = rotated ? 1 : c->stride[i];
        s->out[i] = rotated ? c->in[i] : c->out[i];
        s->up[i] = rotated ? c->stride[i] : 1;
        s->x.origin[i] = -c->padding[i];
        if (rotated) {
            s->x.origin[i] = floor_quotient(c->padding[i] - reach[i], c->stride[i]);
            reach[i] = (c->padding[i] + c->stride[i] - 1) / c->stride[i] - s->x.origin[i];
        }
        positions[i] = (s->out[i] + s->up[i] - 1) / s->up[i];
    }
    if (rotated)
        set_phases(s);
    else
        set_taps(s);
    s->reach = reach[0];
    s->pitch = (positions[1] - 1) * s->x.step[1] + reach[1] + 1;
    for (int64_t t = 0; t < s->taps; t++)
        s->tap[t].offset = (s->tap[t].row * s->pitch + s->tap[t].offset) * CPU_BLOCK;
    int64_t rows = DEPTH_BAND / (s->pitch * CPU_BLOCK) - s->reach;
    s->band = rows < s->x.step[0] ? 1 : rows / s->x.step[0];
    if (s->band > positions[0]) s->band = positions[0];
    s->room[0] = ((s->band - 1) * s->x.step[0] + s->reach + 1) * s->pitch * CPU_BLOCK;
    s->room[1] = positions[1] * CPU_BLOCK;
    s->room[2] = s->weight_gradient ? 0 : (s->taps + 1) * CPU_BLOCK;
}

static size_t sums_bytes(const depth_state *s) {
    if (!s->weight_gradient) return 0;
    return (size_t)(s->units * (s->taps + 1) * CPU_BLOCK) * sizeof(float);
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

// Adds up the units' sums of 16 channels in the order of the samples, so that the result does not
// depend on the number of threads.
static void add_samples(void *context, int64_t begin, int64_t end, int thread) {
    const depth_job *job = context;
    const depth_state *s = job->state;
    for (int64_t block = begin; block < end; block++)
        for (int64_t t = 0; t <= s->taps; t++) {
            double sum[CPU_BLOCK] = {0};
            for (int64_t n = 0; n < s->s.n; n++) {
                const float *from =
                    job->sums + ((block * s->s.n + n) * (s->taps + 1) + t) * CPU_BLOCK;
                for (int k = 0; k < CPU_BLOCK; k++) sum[k] += (double)from[k];
            }
            int64_t channel = block * CPU_BLOCK;
            for (int64_t k = 0; k < channels_of(s, block * s->s.n); k++)
                if (t < s->taps)
                    ((float *)job->out)[(channel + k) * s->taps + t] = (float)sum[k];
                else if (s->bias)
                    ((float *)job->dbias)[channel + k] = (float)sum[k];
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
    int64_t blocks = s->units / s->s.n;
    int64_t work = s->units * CPU_BLOCK * s->out[0] * s->out[1] * s->taps;
    int64_t grain = work / s->threads >= DEPTH_GRAIN ? 1 : s->threads;
    cpu_parallel(s->device, s->threads, grain, depth_range(s->device, s->bf16), &job);
    job.dbias = args->out[1];
    if (s->weight_gradient)
        cpu_parallel(s->device, blocks, 1 + DEPTH_GRAIN / (s->s.n * s->taps * CPU_BLOCK),
                     add_samples, &job);
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
