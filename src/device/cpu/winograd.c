// Convolutions and gradients of their input by Winograd's F(4×4, 3×3) (winograd_transform.h), for
// the shapes of conv_is_winograd.
//
// The results are cut into tiles of 4×4 pixels, numbered over all images. A block of tiles goes
// through three steps, between which its numbers stay in the L2 cache:
//   1. the 6×6 pixels that each tile reads are transformed: 36 matrices v [tiles, c];
//   2. each is multiplied by the transformed taps u [c, o] of its position: 36 matrices m [tiles,
//   o];
//   3. each tile of m is transformed to 4×4 results, which get bias and activation.
// Every tile is computed alike, whatever block it is in. So the results depend neither on the
// number of threads nor on the other images of the batch.
//
// The gradient of the input is a convolution too: of dy, padded by 2 − padding, with the taps
// rotated by 180° and input and output channels exchanged.
#include "device/cpu/epilogue.h"
#include "device/cpu/winograd_tiles.h"
#include "device/cpu/winograd_transform.h"

#include <stdlib.h>

enum {
    BLOCK = 12, // tiles that are computed together: with CHUNK, as many sums as the registers hold
    CHUNK = 32, // channels of results that are computed together: two vectors
    U_AHEAD = 2048, // floats of u that are prefetched ahead of the product
    WEIGHT_FLOATS = CPU_BLOCK * CPU_BLOCK * WINOGRAD_TAPS * WINOGRAD_TAPS, // of a block of weights
    WEIGHT_GRAIN = 4,                   // blocks of weights that are worth another thread
    M_STEP = BLOCK * CHUNK + CPU_BLOCK, // as winograd_step
};

// The correlation that is computed: x [n, c, in] with 3×3 taps makes y [n, o, out]. Arrays hold the
// height's value and the width's.
typedef struct winograd_state {
    const cpu_device *device;
    bool forward; // false: x is dy and y is dx
    bool bias;
    cpu_epilogue epilogue; // its bias is set by each run
    winograd_grid grid;
    int64_t v_step; // floats from position to position of v
} winograd_state;

typedef struct winograd_job {
    const winograd_state *state;
    cpu_epilogue epilogue;
    const float *x, *weight; // nChw16c; OIhw16i16o
    float *y;                // nChw16c
    float *u;                // [o / 32][36][c][32]
    float *blocks;           // by thread: v [36][c / 16][12][16], m [36][12][32]
} winograd_job;

static winograd_state state_of(const tri_device_description *device, const tri_graph *graph,
                               const tri_node *node) {
    conv_shape s = conv_shape_of_node(graph, node);
    winograd_state t = {.forward = node->op == &tri_op_conv2d};
    t.grid = winograd_grid_of(&s, !t.forward);
    t.v_step = winograd_step(BLOCK, t.grid.c);
    if (!t.forward) return t;
    const tri_conv2d_attr *attr = node->attr;
    t.bias = tri_value_is(node->inputs[2]);
    t.epilogue.activation = (tri_activation)attr->activation;
    t.epilogue.slope = (float)attr->slope;
    return t;
}

// Copies the taps of a block of 16 × 16 channels to [tap][16 of c][16 of o].
static CPU_AVX512 void order_taps(const winograd_state *t, const float *weight, float *taps) {
    enum { COUNT = WINOGRAD_TAPS * WINOGRAD_TAPS, CHANNELS = CPU_BLOCK * CPU_BLOCK };
    for (int k = 0; k < COUNT; k++) {
        __m512 r[CPU_BLOCK];
        for (int i = 0; i < CPU_BLOCK; i++)
            r[i] = _mm512_loadu_ps(weight + k * CHANNELS + i * CPU_BLOCK);
        if (!t->forward) cpu_transpose16(r);
        float *to = taps + (t->forward ? k : COUNT - 1 - k) * CHANNELS;
        for (int i = 0; i < CPU_BLOCK; i++) _mm512_storeu_ps(to + i * CPU_BLOCK, r[i]);
    }
}

// Transforms the taps of blocks of 16 × 16 channels.
static CPU_AVX512 void weight_range(void *context, int64_t begin, int64_t end, int thread) {
    const winograd_job *job = context;
    const winograd_state *t = job->state;
    int64_t rows = t->grid.c / CPU_BLOCK, columns = t->grid.o / CPU_BLOCK;
    float taps[WEIGHT_FLOATS] __attribute__((aligned(64)));
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / columns, column = i % columns, channel = column * CPU_BLOCK;
        int64_t from = t->forward ? column * rows + row : row * columns + column;
        order_taps(t, job->weight + from * WEIGHT_FLOATS, taps);
        float *to = job->u + channel % CHUNK +
                    (channel / CHUNK * WINOGRAD_POSITIONS * t->grid.c + row * CPU_BLOCK) * CHUNK;
        for (int c = 0; c < CPU_BLOCK; c++, to += CHUNK) {
            __m512 g[WINOGRAD_TAPS][WINOGRAD_TAPS], half[WINOGRAD_TAPS][WINOGRAD_IN];
            for (int k = 0; k < WINOGRAD_TAPS * WINOGRAD_TAPS; k++)
                g[k / WINOGRAD_TAPS][k % WINOGRAD_TAPS] =
                    _mm512_loadu_ps(taps + (k * CPU_BLOCK + c) * CPU_BLOCK);
            for (int k = 0; k < WINOGRAD_TAPS; k++) winograd_taps(g[0] + k, WINOGRAD_TAPS, half[k]);
            for (int k = 0; k < WINOGRAD_IN; k++) {
                __m512 u[WINOGRAD_IN];
                winograd_taps(half[0] + k, WINOGRAD_IN, u);
                for (int j = 0; j < WINOGRAD_IN; j++)
                    _mm512_storeu_ps(to + (k * WINOGRAD_IN + j) * t->grid.c * CHUNK, u[j]);
            }
        }
    }
}

// Computes m for `vectors` vectors of 16 channels: m[position][tile][32] = the sum over c of
// v[position][c / 16][tile][c % 16] · u[position][c][32]. Also computes tiles that a block does not
// have, from whatever v holds there.
CPU_INLINE void multiply(const winograd_state *t, const float *v, const float *u, float *m,
                         int vectors) {
    for (int position = 0; position < WINOGRAD_POSITIONS; position++) {
        __m512 sum[BLOCK][2];
        const float *a = v + position * t->v_step;
#pragma GCC unroll 12
        for (int i = 0; i < BLOCK; i++)
            for (int j = 0; j < vectors; j++) sum[i][j] = _mm512_setzero_ps();
        for (int64_t block = 0; block < t->grid.c; block += CPU_BLOCK) {
            for (int c = 0; c < CPU_BLOCK; c++, u += CHUNK, a++) {
                __m512 column[2];
                for (int j = 0; j < vectors; j++) {
                    column[j] = _mm512_loadu_ps(u + 16 * j);
                    _mm_prefetch(u + U_AHEAD + 16 * j, _MM_HINT_T0);
                }
#pragma GCC unroll 12
                for (int i = 0; i < BLOCK; i++) {
                    __m512 x = _mm512_set1_ps(a[i * CPU_BLOCK]);
                    for (int j = 0; j < vectors; j++)
                        sum[i][j] = _mm512_fmadd_ps(x, column[j], sum[i][j]);
                }
            }
            a += (BLOCK - 1) * CPU_BLOCK;
        }
#pragma GCC unroll 12
        for (int i = 0; i < BLOCK; i++)
            for (int j = 0; j < vectors; j++)
                _mm512_storeu_ps(m + position * M_STEP + i * CHUNK + 16 * j, sum[i][j]);
    }
}

static CPU_AVX512 void multiply_one(const winograd_state *t, const float *v, const float *u,
                                    float *m) {
    multiply(t, v, u, m, 1);
}
static CPU_AVX512 void multiply_two(const winograd_state *t, const float *v, const float *u,
                                    float *m) {
    multiply(t, v, u, m, 2);
}

// Transforms a tile of m to 4×4 results of 16 channels, of which `rows` × `columns` lie in the
// image.
CPU_INLINE void write_results(const float *m, const cpu_epilogue *epilogue, int64_t channel,
                              float *y, int64_t width, int64_t rows, int64_t columns) {
    __m512 half[WINOGRAD_IN][WINOGRAD_OUT];
#pragma GCC unroll 6
    for (int j = 0; j < WINOGRAD_IN; j++) {
        __m512 x[WINOGRAD_IN];
        for (int i = 0; i < WINOGRAD_IN; i++)
            x[i] = _mm512_loadu_ps(m + (i * WINOGRAD_IN + j) * M_STEP);
        winograd_results(x, 1, half[j]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < WINOGRAD_OUT; i++) {
        __m512 out[WINOGRAD_OUT];
        winograd_results(half[0] + i, WINOGRAD_OUT, out);
        for (int j = 0; j < WINOGRAD_OUT; j++)
            if (i < rows && j < columns)
                _mm512_storeu_ps(y + (i * width + j) * CPU_BLOCK,
                                 cpu_epilogue_apply(epilogue, false, channel, 0xFFFF, out[j]));
    }
}

// Writes the results of channels [channel, channel + 16) of tiles.
static CPU_AVX512 void write_tiles(const winograd_job *job, const winograd_tile *tiles,
                                   int64_t count, const float *m, int64_t channel) {
    const winograd_state *t = job->state;
    int64_t plane_floats = t->grid.out[0] * t->grid.out[1] * CPU_BLOCK;
    for (int64_t i = 0; i < count; i++, m += CHUNK) {
        int64_t rows = t->grid.out[0] - tiles[i].row, columns = t->grid.out[1] - tiles[i].column;
        float *plane = job->y + (tiles[i].image * t->grid.o + channel) / CPU_BLOCK * plane_floats;
        float *y = plane + (tiles[i].row * t->grid.out[1] + tiles[i].column) * CPU_BLOCK;
        if (rows >= WINOGRAD_OUT && columns >= WINOGRAD_OUT)
            write_results(m, &job->epilogue, channel, y, t->grid.out[1], WINOGRAD_OUT,
                          WINOGRAD_OUT);
        else
            write_results(m, &job->epilogue, channel, y, t->grid.out[1], rows, columns);
    }
}

static void block_range(void *context, int64_t begin, int64_t end, int thread) {
    const winograd_job *job = context;
    const winograd_state *t = job->state;
    float *v = job->blocks + thread * WINOGRAD_POSITIONS * (t->v_step + M_STEP);
    float *m = v + WINOGRAD_POSITIONS * t->v_step;
    for (int64_t block = begin; block < end; block++) {
        int64_t left = t->grid.count - block * BLOCK, count = left < BLOCK ? left : BLOCK;
        winograd_tile tiles[BLOCK];
        winograd_find_tiles(&t->grid, block * BLOCK, count, tiles);
        winograd_read_tiles(&t->grid, job->x, tiles, count, v, BLOCK, t->v_step);
        for (int64_t channel = 0; channel < t->grid.o; channel += CHUNK) {
            const float *u = job->u + channel * WINOGRAD_POSITIONS * t->grid.c;
            bool two = channel + CPU_BLOCK < t->grid.o;
            (two ? multiply_two : multiply_one)(t, v, u, m);
            write_tiles(job, tiles, count, m, channel);
            if (two) write_tiles(job, tiles, count, m + CPU_BLOCK, channel + CPU_BLOCK);
        }
    }
}

static bool winograd_supports(const tri_device_description *device, const tri_graph *graph,
                              const tri_node *node) {
    conv_shape s = conv_shape_of_node(graph, node);
    return cpu_has(device, CPU_HAS_AVX512) && s.n > 0 && conv_is_winograd(&s);
}

static void winograd_layouts(const tri_device_description *device, const tri_graph *graph,
                             const tri_node *node, tri_layout *in, tri_layout *out) {
    conv_set_layouts(node, (conv_formats){CPU_NCHW16C, CPU_OIHW16I16O, CPU_NCHW16C}, in, out);
}

static tri_status winograd_workspace(const tri_device_description *device, const tri_graph *graph,
                                     const tri_node *node, size_t *out) {
    winograd_state t = state_of(device, graph, node);
    int64_t chunks = (t.grid.o + CHUNK - 1) / CHUNK;
    int64_t floats = chunks * t.grid.c * CHUNK + device->threads * (t.v_step + M_STEP);
    *out = (size_t)(floats * WINOGRAD_POSITIONS) * sizeof(float);
    return TRI_OK;
}

static tri_status winograd_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                   tri_kernel *kernel) {
    winograd_state *state = malloc(sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a convolution");
    *state = state_of(&device->description, graph, node);
    state->device = cpu_of(device);
    kernel->state = state;
    return TRI_OK;
}

static tri_status winograd_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const winograd_state *t = kernel->state;
    winograd_job job = {.state = t,
                        .epilogue = t->epilogue,
                        .x = args->in[0],
                        .weight = args->in[1],
                        .y = args->out[0],
                        .u = args->workspace};
    job.epilogue.bias = t->bias ? args->in[2] : NULL;
    job.blocks = job.u + (t->grid.o + CHUNK - 1) / CHUNK * WINOGRAD_POSITIONS * t->grid.c * CHUNK;
    cpu_parallel(t->device, t->grid.c / CPU_BLOCK * (t->grid.o / CPU_BLOCK), WEIGHT_GRAIN,
                 weight_range, &job);
    cpu_parallel(t->device, (t->grid.count + BLOCK - 1) / BLOCK, 1, block_range, &job);
    return TRI_OK;
}

static void winograd_release(tri_kernel *kernel) { free(kernel->state); }

#define WINOGRAD_KERNEL(opname)                                                                    \
    const tri_kernel_def cpu_##opname##_winograd = {                                               \
        .op = &tri_op_##opname,                                                                    \
        .name = "winograd",                                                                        \
        .supports = winograd_supports,                                                             \
        .layouts = winograd_layouts,                                                               \
        .workspace = winograd_workspace,                                                           \
        .prepare = winograd_prepare,                                                               \
        .run = winograd_run,                                                                       \
        .is_winograd = conv_always_winograd,                                                       \
        .release = winograd_release,                                                               \
    };
WINOGRAD_KERNEL(conv2d)
WINOGRAD_KERNEL(conv2d_grad_input)
