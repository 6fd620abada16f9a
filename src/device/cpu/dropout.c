// Maps that are dropouts (tri_map_is_dropout), of plain tensors and, with AVX-512, of tensors in
// blocks of 16 channels. Whether an element is kept depends on a random word, which is drawn by
// Philox from the layer's key, the step, the sample's number and the element's number in its
// sample. The reference device `ref` draws the same words, one at a time, with tri_philox_at.
#include "device/cpu/scalar.h"
#include "device/cpu/simd.h"

#include "base/philox.h"

#include <stdlib.h>

enum {
    DROPOUT_CHUNK = 4096, // elements of a plain sample that one item of the parallel loop covers
    DROPOUT_DRAWS = 32, // how many blocks of four random words are drawn at a time without AVX-512
};

typedef struct dropout_state {
    const cpu_device *device;
    cpu_dropout dropout;
    int64_t samples, elements; // number of samples, and of elements in each sample
    // Pixels of one plane (a block of 16 channels of a sample) if the tensor is in such blocks; 0:
    // the layout is plain.
    int64_t pixels;
    // If x is a slice of a larger tensor, each of its samples has only some elements of a full
    // sample: runs of `run` elements, which begin at elements first, first + stride, first + 2 ·
    // stride, … of the full sample. If x is no slice, a sample is a single run.
    int64_t run, stride, first;
    bool bf16; // true: BF16; false: F32
} dropout_state;

typedef struct dropout_job {
    const dropout_state *state;
    cpu_dropout dropout;
    uint32_t first_sample; // position of x's first sample in the step's global batch
    const void *x;
    void *y;
    uint16_t *keep; // workspace: for each thread, the masks of one plane
} dropout_job;

// Consecutive elements of a plain tensor: the arguments of cpu_dropout_plain, without the count.
typedef struct dropout_span {
    const cpu_dropout *dropout;
    uint32_t sample;
    uint64_t first; // number of the first element in its full sample, a multiple of 64
    const void *x;
    void *y;
    int64_t at; // index of the first element in x and y
} dropout_span;

CPU_SCALAR void draw_words(const dropout_span *span, uint32_t block,
                           uint32_t words[4 * DROPOUT_DRAWS]) {
    const uint64_t key = span->dropout->key, step = span->dropout->step;
    const uint32_t sample = span->sample;
    for (uint32_t i = 0; i < DROPOUT_DRAWS; i++) {
        uint32_t counter[4] = {block + i, sample, (uint32_t)step, (uint32_t)(step >> 32)};
        tri_philox_block drawn = tri_philox(key, counter);
        for (int w = 0; w < 4; w++) words[4 * i + w] = drawn.word[w];
    }
}

CPU_BODY scalar_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const dropout_span span = *(const dropout_span *)context;
    const uint32_t threshold = span.dropout->threshold;
    const float scale = span.dropout->scale;
    const bool drops_all = span.dropout->drops_all;
    uint32_t words[4 * DROPOUT_DRAWS];
    for (int64_t first = begin; first < end; first += 4 * DROPOUT_DRAWS) {
        int64_t left = end - first < 4 * DROPOUT_DRAWS ? end - first : 4 * DROPOUT_DRAWS;
        draw_words(&span, (uint32_t)((span.first + (uint64_t)first) / 4), words);
#pragma GCC ivdep
        for (int64_t i = 0; i < left; i++) {
            float x = cpu_get(span.x, bf16, span.at + first + i) * scale;
            cpu_put(span.y, bf16, span.at + first + i, drops_all || words[i] < threshold ? 0 : x);
        }
    }
}
CPU_TYPED_RANGES(scalar)

static void drop_span(const dropout_state *s, dropout_span *span, int64_t count) {
    if (cpu_has(&s->device->head.description, CPU_HAS_AVX512))
        cpu_dropout_plain(span->dropout, span->sample, span->first, count, s->bf16, span->x,
                          span->y, span->at);
    else
        scalar_range(s->device, s->bf16)(span, 0, count, 0);
}

static void plain_range(void *context, int64_t begin, int64_t end, int thread) {
    const dropout_job *job = context;
    int64_t elements = job->state->elements;
    int64_t chunks = (elements + DROPOUT_CHUNK - 1) / DROPOUT_CHUNK;
    for (int64_t i = begin; i < end; i++) {
        int64_t sample = i / chunks, first = i % chunks * DROPOUT_CHUNK;
        int64_t count = elements - first < DROPOUT_CHUNK ? elements - first : DROPOUT_CHUNK;
        int64_t run = job->state->run, last = first + count;
        for (int64_t e = first, next; e < last; e = next) {
            next = (e / run + 1) * run < last ? (e / run + 1) * run : last;
            int64_t whole = e / run * job->state->stride + job->state->first + e % run;
            dropout_span span = {.dropout = &job->dropout,
                                 .sample = job->first_sample + (uint32_t)sample,
                                 .first = (uint64_t)whole,
                                 .x = job->x,
                                 .y = job->y,
                                 .at = sample * elements + e};
            drop_span(job->state, &span, next - e);
        }
    }
}

CPU_INLINE void blocked(const dropout_job *job, int64_t begin, int64_t end, int thread, bool bf16) {
    int64_t pixels = job->state->pixels, plane = pixels * CPU_BLOCK;
    int64_t blocks = job->state->elements / plane;
    uint16_t *keep = job->keep + thread * pixels;
    __m512 scale = _mm512_set1_ps(job->dropout.scale);
    for (int64_t i = begin; i < end; i++) {
        uint32_t sample = job->first_sample + (uint32_t)(i / blocks);
        cpu_dropout_block_masks(&job->dropout, sample, (uint64_t)(i % blocks * plane), pixels,
                                keep);
        for (int64_t p = 0; p < pixels; p++) {
            int64_t at = i * plane + p * CPU_BLOCK;
            __m512 value = cpu_load(job->x, bf16, at, keep[p]);
            cpu_store(job->y, bf16, at, 0xFFFF, _mm512_mul_ps(value, scale));
        }
    }
}

// Whether this kernel can compute the node. cpu_dropout_plain can begin only at multiples of 64
// elements of a sample. If x is a slice, each run of it (tri_map_dropout) must begin at such a
// multiple.
static bool dropout_supports(const tri_device_description *device, const tri_graph *graph,
                             const tri_node *node) {
    tri_map_dropout d;
    return tri_map_is_dropout(graph, node, &d) && cpu_is_float(device, graph, node) &&
           d.run % 64 == 0 && d.stride % 64 == 0 && d.first % 64 == 0;
}

static CPU_AVX512 void blocked_range(void *context, int64_t begin, int64_t end, int thread) {
    const dropout_job *job = context;
    if (job->state->bf16)
        blocked(job, begin, end, thread, true);
    else
        blocked(job, begin, end, thread, false);
}

static void dropout_layouts(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, tri_layout *in, tri_layout *out) {
    tri_map_dropout dropout;
    if (!cpu_has(device, CPU_HAS_AVX512) || !cpu_layout_is(&in[0], CPU_NCHW16C) ||
        cpu_in_shape(graph, node, 0)->rank != 4 ||
        (tri_map_is_dropout(graph, node, &dropout) && dropout.run > 0))
        in[0] = TRI_LAYOUT_PLAIN;
    in[1] = TRI_LAYOUT_PLAIN;
    out[0] = in[0];
}

// The number of pixels of a plane of 16 channels; 0: x is plain and has no such planes.
static int64_t blocked_pixels(const tri_value_info *x) {
    return tri_layout_is_plain(&x->layout) ? 0 : x->shape.dims[2] * x->shape.dims[3];
}

static tri_status dropout_workspace(const tri_device_description *device, const tri_graph *graph,
                                    const tri_node *node, size_t *out) {
    int64_t pixels = blocked_pixels(tri_value_get(graph, node->inputs[0]));
    *out = (size_t)(pixels * device->threads) * sizeof(uint16_t);
    return TRI_OK;
}

static tri_status dropout_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                  tri_kernel *kernel) {
    tri_map_dropout dropout = {.p = 0};
    const tri_value_info *x = tri_value_get(graph, node->inputs[0]);
    dropout_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for dropout");
    tri_map_is_dropout(graph, node, &dropout);
    *state = (dropout_state){.device = cpu_of(device),
                             .dropout = cpu_dropout_of(dropout.p, dropout.key),
                             .bf16 = x->dtype == TRI_BF16,
                             .samples = x->shape.dims[0],
                             .elements = 1};
    for (int i = 1; i < x->shape.rank; i++) state->elements *= x->shape.dims[i];
    state->run = dropout.run ? dropout.run : state->elements;
    state->stride = dropout.run ? dropout.stride : state->elements;
    state->first = dropout.first;
    state->pixels = blocked_pixels(x);
    kernel->state = state;
    return TRI_OK;
}

static tri_status dropout_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const dropout_state *state = kernel->state;
    const int64_t *position = args->in[1];
    dropout_job job = {.state = state,
                       .dropout = state->dropout,
                       .first_sample = (uint32_t)position[1],
                       .x = args->in[0],
                       .y = args->out[0],
                       .keep = args->workspace};
    job.dropout.step = (uint64_t)position[0];
    if (state->pixels) {
        int64_t plane = state->pixels * CPU_BLOCK;
        cpu_parallel(state->device, state->samples * state->elements / plane, 8, blocked_range,
                     &job);
    } else {
        int64_t chunks = (state->elements + DROPOUT_CHUNK - 1) / DROPOUT_CHUNK;
        int64_t grain = state->elements < 256 ? 64 : 8;
        cpu_parallel(state->device, state->samples * chunks, grain, plain_range, &job);
    }
    return TRI_OK;
}

static void dropout_release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_dropout_masks = {
    .op = &tri_op_map,
    .name = "dropout",
    .supports = dropout_supports,
    .layouts = dropout_layouts,
    .workspace = dropout_workspace,
    .prepare = dropout_prepare,
    .run = dropout_run,
    .release = dropout_release,
};
