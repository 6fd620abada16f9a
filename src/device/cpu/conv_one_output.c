// Convolutions with one output channel, such as the last layer of an image-to-image network. oneDNN
// would compute 16 output channels for these, or fall back to im2col.
//
// Forward: for each pixel a vector holds 16 sums, one for each channel of a block of 16, which are
// added at the end.
//
// Backward: oneDNN is fast for the mirrored convolution, which makes C channels from the one
// channel of dy, with the weight rotated by 180°. Its result is dx. To get dweight, the gradient of
// the mirrored convolution's weight is computed, with dy as its input and x in place of the
// gradient of its result; then it is rotated by 180°.
#include "device/cpu/conv.h"
#include "device/cpu/product_map.h"
#include "device/cpu/simd.h"

#include <stdlib.h>
#include <string.h>

enum { ONE_OUTPUT_TILE = 16 }; // pixels that are computed at a time, with their sums in registers

typedef struct one_output_state {
    const cpu_device *device;
    conv_shape s;
    conv_task task;
    bool bias;
    int64_t taps;                // weights of one channel: kernel height · kernel width
    conv_primitives *primitives; // used only by the gradients
} one_output_state;

typedef struct one_output_job {
    const one_output_state *state;
    const float *x, *weight; // weight: [C/16][kh][kw][16]
    const float *bias;
    float *y;
    float *rows; // for each thread a buffer [width of y][16]: the 16 sums of each pixel of a row
    const cpu_finish *finish; // NULL: the sums are what is wanted
} one_output_job;

// Packs a plain weight [C][kh][kw] into [C/16][kh][kw][16], rotated by 180° if `rotate` is set.
static void pack_weight(const one_output_state *t, const float *plain, float *packed, bool rotate) {
    for (int64_t c = 0; c < t->s.c; c++)
        for (int64_t k = 0; k < t->taps; k++) {
            int64_t to = (c / CPU_BLOCK * t->taps + k) * CPU_BLOCK + c % CPU_BLOCK;
            packed[to] = plain[c * t->taps + (rotate ? t->taps - 1 - k : k)];
        }
}

static void unpack_rotated(const one_output_state *t, const float *packed, float *plain) {
    for (int64_t c = 0; c < t->s.c; c++)
        for (int64_t k = 0; k < t->taps; k++) {
            int64_t from = (c / CPU_BLOCK * t->taps + k) * CPU_BLOCK + c % CPU_BLOCK;
            plain[c * t->taps + t->taps - 1 - k] = packed[from];
        }
}

// Computes `count` ≤ 16 pixels of a row, from `column` on: for each pixel 16 sums, one for each
// position in a block of channels, added up over all blocks. `inside`: all 16 pixels exist and no
// tap lies left or right of the image, so that the inner loop need not check this.
CPU_INLINE void one_output_tile(const one_output_job *job, const float *image, int64_t row,
                                int64_t column, int64_t count, bool inside, float *out) {
    const conv_shape *s = &job->state->s;
    __m512 sum[ONE_OUTPUT_TILE];
    for (int t = 0; t < ONE_OUTPUT_TILE; t++) sum[t] = _mm512_setzero_ps();
    const float *weight = job->weight;
    for (int64_t block = 0; block < s->c / CPU_BLOCK; block++) {
        const float *plane = image + block * s->in[0] * s->in[1] * CPU_BLOCK;
        for (int64_t kh = 0; kh < s->kernel[0]; kh++) {
            int64_t h = row + kh - s->padding[0];
            for (int64_t kw = 0; kw < s->kernel[1]; kw++, weight += CPU_BLOCK) {
                if (h < 0 || h >= s->in[0]) continue;
                __m512 tap = _mm512_loadu_ps(weight);
                int64_t first = column + kw - s->padding[1];
                const float *x = plane + (h * s->in[1] + first) * CPU_BLOCK;
#pragma GCC unroll 16
                for (int t = 0; t < ONE_OUTPUT_TILE; t++) {
                    if (!inside && (t >= count || first + t < 0 || first + t >= s->in[1])) continue;
                    sum[t] = _mm512_fmadd_ps(_mm512_loadu_ps(x + t * CPU_BLOCK), tap, sum[t]);
                }
            }
        }
    }
#pragma GCC unroll 16
    for (int t = 0; t < ONE_OUTPUT_TILE; t++)
        if (inside || t < count) _mm512_storeu_ps(out + t * CPU_BLOCK, sum[t]);
}

static CPU_AVX512 void one_output_rows(void *context, int64_t begin, int64_t end, int thread) {
    const one_output_job *job = context;
    const conv_shape *s = &job->state->s;
    int64_t width = s->out[1];
    float *sums = job->rows + thread * width * CPU_BLOCK, bias = job->bias ? *job->bias : 0;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i % s->out[0];
        const float *image = job->x + i / s->out[0] * s->c * s->in[0] * s->in[1];
        for (int64_t column = 0; column < width; column += ONE_OUTPUT_TILE) {
            int64_t count = width - column < ONE_OUTPUT_TILE ? width - column : ONE_OUTPUT_TILE;
            int64_t left = column - s->padding[1];
            bool inside = count == ONE_OUTPUT_TILE && left >= 0 &&
                          left + ONE_OUTPUT_TILE + s->kernel[1] - 1 <= s->in[1];
            float *to = sums + column * CPU_BLOCK;
            if (inside)
                one_output_tile(job, image, row, column, count, true, to);
            else
                one_output_tile(job, image, row, column, count, false, to);
        }
        float *y = job->y + i * width;
        cpu_sum_lanes(sums, y, width);
        for (int64_t w = 0; w < width; w++) y[w] += bias;
        if (job->finish) cpu_finish_rows(job->finish, i * width, width, 1, width);
    }
}

static bool one_output_supports(const tri_device_description *device, const tri_graph *graph,
                                const tri_node *node) {
    if (!cpu_has_avx512_f32(device, graph, node)) return false;
    conv_shape s = conv_shape_of_node(graph, node);
    bool fits = s.groups == 1 && s.o == 1 && s.c % CPU_BLOCK == 0 && s.n > 0;
    for (int i = 0; i < 2; i++)
        fits = fits && s.stride[i] == 1 && s.dilation[i] == 1 && s.padding[i] < s.kernel[i];
    return fits;
}

static void one_output_layouts(const tri_device_description *device, const tri_graph *graph,
                               const tri_node *node, tri_layout *in, tri_layout *out) {
    conv_set_layouts(node, (conv_formats){CPU_NCHW16C, CPU_PLAIN, CPU_PLAIN}, in, out);
}

static size_t packed_bytes(const conv_shape *s) {
    // This is a multiple of 64 bytes, because c is a multiple of 16. So the buffers behind the
    // packed weight are aligned too.
    return (size_t)(s->c * s->kernel[0] * s->kernel[1]) * sizeof(float);
}

// The sizes of the convolution that computes dx: it makes C channels from the one channel of dy,
// with the weight rotated by 180°.
static conv_shape mirrored(const conv_shape *s) {
    conv_shape m = *s;
    m.c = 1;
    m.o = s->c;
    for (int i = 0; i < 2; i++) {
        m.in[i] = s->out[i];
        m.out[i] = s->in[i];
        m.padding[i] = s->kernel[i] - 1 - s->padding[i];
    }
    return m;
}

// Makes the request to oneDNN: for dx the mirrored convolution, for dweight the gradient of its
// weight.
static conv_request request_of(const tri_graph *graph, const tri_node *node, const conv_shape *s) {
    bool weight = node->op == &tri_op_conv2d_grad_weight;
    return (conv_request){.task = weight ? CONV_GRAD_WEIGHT : CONV_FORWARD,
                          .shape = mirrored(s),
                          .formats = {CPU_PLAIN, CPU_OHWI16O, CPU_NCHW16C},
                          .deterministic = graph->options.deterministic};
}

static tri_status one_output_workspace(const tri_device_description *device, const tri_graph *graph,
                                       const tri_node *node, size_t *out) {
    conv_shape s = conv_shape_of_node(graph, node);
    *out = packed_bytes(&s);
    if (node->op == &tri_op_conv2d) {
        *out += (size_t)(s.out[1] * CPU_BLOCK * device->threads) * sizeof(float);
        return TRI_OK;
    }
    conv_request request = request_of(graph, node, &s);
    cpu_primitive_facts facts = conv_facts(device, &request);
    if (!facts.exists) return TRI_FAIL(TRI_UNSUPPORTED, "oneDNN has no such convolution");
    *out += facts.scratchpad_bytes;
    return TRI_OK;
}

static tri_status one_output_prepare(tri_device *device, const tri_graph *graph,
                                     const tri_node *node, tri_kernel *kernel) {
    one_output_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a convolution");
    *state = (one_output_state){.device = cpu_of(device), .s = conv_shape_of_node(graph, node)};
    state->taps = state->s.kernel[0] * state->s.kernel[1];
    kernel->state = state;
    if (node->op == &tri_op_conv2d) {
        state->task = CONV_FORWARD;
        state->bias = tri_value_is(node->inputs[2]);
        return TRI_OK;
    }
    bool weight = node->op == &tri_op_conv2d_grad_weight;
    state->task = weight ? CONV_GRAD_WEIGHT : CONV_GRAD_INPUT;
    state->bias = weight && ((const tri_conv2d_grad_attr *)node->attr)->has_bias;
    conv_request request = request_of(graph, node, &state->s);
    TRI_TRY(conv_primitives_make(state->device, &request, &state->primitives));
    kernel->workspace_bytes =
        packed_bytes(&state->s) + conv_primitives_workspace(state->primitives);
    return TRI_OK;
}

static float sum_of(const float *values, int64_t count) {
    double lane[8] = {0}, sum = 0;
    for (int64_t i = 0; i < count; i++) lane[i & 7] += (double)values[i];
    for (int k = 0; k < 8; k++) sum += lane[k];
    return (float)sum;
}

tri_status cpu_one_output_compute(const tri_kernel *kernel, const tri_kernel_args *args,
                                  const cpu_finish *finish) {
    one_output_state *state = kernel->state;
    float *packed = args->workspace;
    void *rest = (char *)args->workspace + packed_bytes(&state->s);
    if (state->task == CONV_FORWARD) {
        pack_weight(state, args->in[1], packed, false);
        one_output_job job = {.state = state,
                              .x = args->in[0],
                              .weight = packed,
                              .bias = state->bias ? args->in[2] : NULL,
                              .y = args->out[0],
                              .rows = rest,
                              .finish = finish};
        cpu_parallel(state->device, state->s.n * state->s.out[0], 8, one_output_rows, &job);
        return TRI_OK;
    }
    if (state->task == CONV_GRAD_INPUT) {
        pack_weight(state, args->in[1], packed, true);
        void *data[] = {args->in[0], packed, args->out[0], NULL};
        return conv_primitives_run(state->primitives, data, rest, finish);
    }
    void *data[] = {args->in[1], args->in[0], packed, NULL};
    TRI_TRY(conv_primitives_run(state->primitives, data, rest, NULL));
    unpack_rotated(state, packed, args->out[0]);
    if (state->bias)
        *(float *)args->out[1] =
            sum_of(args->in[1], state->s.n * state->s.out[0] * state->s.out[1]);
    return TRI_OK;
}

static tri_status one_output_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    return cpu_one_output_compute(kernel, args, NULL);
}

static void one_output_release(tri_kernel *kernel) {
    one_output_state *state = kernel->state;
    if (!state) return;
    conv_primitives_release(state->primitives);
    free(state);
}

#define ONE_OUTPUT_KERNEL(opname)                                                                  \
    const tri_kernel_def cpu_##opname##_one_output = {                                             \
        .op = &tri_op_##opname,                                                                    \
        .name = "one-output",                                                                      \
        .supports = one_output_supports,                                                           \
        .layouts = one_output_layouts,                                                             \
        .workspace = one_output_workspace,                                                         \
        .prepare = one_output_prepare,                                                             \
        .run = one_output_run,                                                                     \
        .release = one_output_release,                                                             \
    };
ONE_OUTPUT_KERNEL(conv2d)
ONE_OUTPUT_KERNEL(conv2d_grad_input)
ONE_OUTPUT_KERNEL(conv2d_grad_weight)
