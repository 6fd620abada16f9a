// The gradient of a convolution's weight by Winograd's formula (winograd_transform.h), for the
// shapes of conv_is_winograd with at most 96 × 96 channels; with oneDNN 3, for all of them.
//
// A block of tiles goes through two steps: the 6×6 pixels of x and the 4×4 pixels of dy that belong
// to each tile are transformed, to 36 matrices v [tiles, c] and w [tiles, o]; then vᵀ·w is added to
// m [c, o] of each position. At the end, m becomes 3×3 taps.
//
// The tiles are divided into groups, whose gradients are added at the end, in order. How many
// groups there are depends on shapes alone, so the bits do not depend on the number of threads.
// That sums are short also makes them more exact.
//
// Zeros stay exact where a whole channel of x or dy is zero: each of its products is zero.
#include "device/cpu/winograd_tiles.h"
#include "device/cpu/winograd_transform.h"

#include <stdlib.h>

enum {
    BLOCK = 48,              // tiles that are transformed together
    GROUPS = 16,             // at most
    MOST_CHANNELS = 96 * 96, // of x times of dy: of more, m does not stay in the L2 cache
    ROWS = 8, // channels of x whose sums stay in registers, with CHUNK channels of dy
    CHUNK = 32,
    TAPS = WINOGRAD_TAPS * WINOGRAD_TAPS,
    REDUCE_GRAIN = 1 << 10, // vectors of 16 sums that are worth another thread
};

typedef struct grad_state {
    const cpu_device *device;
    bool bias;
    winograd_grid grid;
    int64_t blocks, groups;
    int64_t v_step, w_step, m_step; // floats from position to position
    int64_t group_floats;           // of a group: its gradients of weight and bias
} grad_state;

typedef struct grad_job {
    const grad_state *state;
    const float *x, *dy; // nChw16c
    float *dweight;      // OIhw16i16o
    float *dbias;        // or NULL
    float *groups;       // by group: [o / 16][c / 16][9][16][16], bias [o]
    float *threads;      // by thread: v [36][c / 16][48][16], w [36][o / 16][48][16],
                         // m [36][o / 32][c][32]
} grad_job;

static grad_state state_of(const tri_graph *graph, const tri_node *node) {
    conv_shape s = conv_shape_of_node(graph, node);
    grad_state t = {.grid = winograd_grid_of(&s, false)};
    t.bias = ((const tri_conv2d_grad_attr *)node->attr)->has_bias;
    t.blocks = (t.grid.count + BLOCK - 1) / BLOCK;
    t.groups = t.blocks < GROUPS ? t.blocks : GROUPS;
    t.v_step = winograd_step(BLOCK, t.grid.c);
    t.w_step = winograd_step(BLOCK, t.grid.o);
    t.m_step = winograd_step((t.grid.o + CHUNK - 1) / CHUNK * CHUNK, t.grid.c);
    t.group_floats = t.grid.c * t.grid.o * TAPS + t.grid.o;
    return t;
}

// Transforms 4×4 pixels of dy, 16 channels, of which `rows` × `columns` lie in the image:
// w[position · step]. Returns their sum.
CPU_INLINE __m512 transform_gradients(const float *pixels, int64_t width, int64_t rows,
                                      int64_t columns, float *w, int64_t step) {
    __m512 half[WINOGRAD_OUT][WINOGRAD_IN], sum = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int j = 0; j < WINOGRAD_OUT; j++) {
        __m512 x[WINOGRAD_OUT];
        for (int i = 0; i < WINOGRAD_OUT; i++) {
            x[i] = _mm512_setzero_ps();
            if (i < rows && j < columns)
                x[i] = _mm512_loadu_ps(pixels + (i * width + j) * CPU_BLOCK);
        }
        __m512 pairs = _mm512_add_ps(_mm512_add_ps(x[0], x[1]), _mm512_add_ps(x[2], x[3]));
        sum = _mm512_add_ps(sum, pairs);
        winograd_gradients(x, 1, half[j]);
    }
#pragma GCC unroll 6
    for (int i = 0; i < WINOGRAD_IN; i++) {
        __m512 y[WINOGRAD_IN];
        winograd_gradients(half[0] + i, WINOGRAD_IN, y);
        for (int j = 0; j < WINOGRAD_IN; j++)
            _mm512_storeu_ps(w + (i * WINOGRAD_IN + j) * step, y[j]);
    }
    return sum;
}

// Transforms dy of `count` tiles, and adds their pixels to the sums [o].
static CPU_AVX512 void read_gradients(const grad_job *job, const winograd_tile *tiles,
                                      int64_t count, float *w, float *sums) {
    const grad_state *t = job->state;
    const winograd_grid *g = &t->grid;
    for (int64_t channel = 0; channel < g->o; channel += CPU_BLOCK) {
        __m512 sum = _mm512_loadu_ps(sums + channel);
        for (int64_t i = 0; i < count; i++) {
            int64_t rows = g->out[0] - tiles[i].row, columns = g->out[1] - tiles[i].column;
            const float *plane =
                job->dy + (tiles[i].image * g->o + channel) * g->out[0] * g->out[1];
            const float *pixels = plane + (tiles[i].row * g->out[1] + tiles[i].column) * CPU_BLOCK;
            float *to = w + channel * BLOCK + i * CPU_BLOCK;
            __m512 more =
                rows >= WINOGRAD_OUT && columns >= WINOGRAD_OUT
                    ? transform_gradients(pixels, g->out[1], WINOGRAD_OUT, WINOGRAD_OUT, to,
                                          t->w_step)
                    : transform_gradients(pixels, g->out[1], rows, columns, to, t->w_step);
            sum = _mm512_add_ps(sum, more);
        }
        _mm512_storeu_ps(sums + channel, sum);
    }
}

// Adds products of `count` tiles to m of 8 channels of x and `vectors` · 16 of dy, or overwrites it
// if `first`: m[i][j] += the sum over tiles of v[tile][i] · w[tile][j].
CPU_INLINE void multiply(const float *v, const float *w, int64_t count, float *m, bool first,
                         int vectors) {
    __m512 sum[ROWS][2];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < vectors; j++)
            sum[i][j] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(m + i * CHUNK + 16 * j);
    for (int64_t tile = 0; tile < count; tile++, v += CPU_BLOCK, w += CPU_BLOCK) {
        __m512 column[2];
        for (int j = 0; j < vectors; j++) column[j] = _mm512_loadu_ps(w + j * BLOCK * CPU_BLOCK);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++) {
            __m512 x = _mm512_set1_ps(v[i]);
            for (int j = 0; j < vectors; j++) sum[i][j] = _mm512_fmadd_ps(x, column[j], sum[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < vectors; j++) _mm512_storeu_ps(m + i * CHUNK + 16 * j, sum[i][j]);
}

static CPU_AVX512 void multiply_positions(const grad_state *t, const float *v, const float *w,
                                          int64_t count, float *m, bool first) {
    for (int64_t position = 0; position < WINOGRAD_POSITIONS; position++) {
        const float *rows = v + position * t->v_step, *columns = w + position * t->w_step;
        float *to = m + position * t->m_step;
        for (int64_t o = 0; o < t->grid.o; o += CHUNK)
            for (int64_t c = 0; c < t->grid.c; c += ROWS, to += ROWS * CHUNK) {
                const float *a = rows + c / CPU_BLOCK * BLOCK * CPU_BLOCK + c % CPU_BLOCK;
                if (o + CPU_BLOCK < t->grid.o)
                    multiply(a, columns + o * BLOCK, count, to, first, 2);
                else
                    multiply(a, columns + o * BLOCK, count, to, first, 1);
            }
    }
}

// Turns m into the gradient of the weight.
static CPU_AVX512 void write_group(const grad_state *t, const float *m, float *gradients) {
    const winograd_grid *g = &t->grid;
    for (int64_t o = 0; o < g->o; o += CPU_BLOCK)
        for (int64_t c = 0; c < g->c; c++) {
            const float *from = m + (o / CHUNK * g->c + c) * CHUNK + o % CHUNK;
            float *to = gradients +
                        (o / CPU_BLOCK * (g->c / CPU_BLOCK) + c / CPU_BLOCK) * TAPS * CPU_BLOCK *
                            CPU_BLOCK +
                        c % CPU_BLOCK * CPU_BLOCK;
            __m512 half[WINOGRAD_IN][WINOGRAD_TAPS];
            for (int j = 0; j < WINOGRAD_IN; j++) {
                __m512 x[WINOGRAD_IN];
                for (int i = 0; i < WINOGRAD_IN; i++)
                    x[i] = _mm512_loadu_ps(from + (i * WINOGRAD_IN + j) * t->m_step);
                winograd_tap_gradients(x, 1, half[j]);
            }
            for (int i = 0; i < WINOGRAD_TAPS; i++) {
                __m512 y[WINOGRAD_TAPS];
                winograd_tap_gradients(half[0] + i, WINOGRAD_TAPS, y);
                for (int j = 0; j < WINOGRAD_TAPS; j++)
                    _mm512_storeu_ps(to + (i * WINOGRAD_TAPS + j) * CPU_BLOCK * CPU_BLOCK, y[j]);
            }
        }
}

static void group_range(void *context, int64_t begin, int64_t end, int thread) {
    const grad_job *job = context;
    const grad_state *t = job->state;
    float *v = job->threads + thread * WINOGRAD_POSITIONS * (t->v_step + t->w_step + t->m_step);
    float *w = v + WINOGRAD_POSITIONS * t->v_step, *m = w + WINOGRAD_POSITIONS * t->w_step;
    for (int64_t group = begin; group < end; group++) {
        float *gradients = job->groups + group * t->group_floats;
        float *sums = gradients + t->group_floats - t->grid.o;
        for (int64_t o = 0; o < t->grid.o; o++) sums[o] = 0;
        int64_t from = group * t->blocks / t->groups, to = (group + 1) * t->blocks / t->groups;
        for (int64_t block = from; block < to; block++) {
            int64_t left = t->grid.count - block * BLOCK, count = left < BLOCK ? left : BLOCK;
            winograd_tile tiles[BLOCK];
            winograd_find_tiles(&t->grid, block * BLOCK, count, tiles);
            winograd_read_tiles(&t->grid, job->x, tiles, count, v, BLOCK, t->v_step);
            read_gradients(job, tiles, count, w, sums);
            multiply_positions(t, v, w, count, m, block == from);
        }
        write_group(t, m, gradients);
    }
}

// Adds up the groups' gradients, for vectors [begin, end) of 16 elements.
static CPU_AVX512 void reduce_range(void *context, int64_t begin, int64_t end, int thread) {
    const grad_job *job = context;
    const grad_state *t = job->state;
    int64_t weights = t->group_floats - t->grid.o;
    for (int64_t i = begin * CPU_BLOCK; i < end * CPU_BLOCK; i += CPU_BLOCK) {
        __m512 sum = _mm512_loadu_ps(job->groups + i);
        for (int64_t group = 1; group < t->groups; group++)
            sum = _mm512_add_ps(sum, _mm512_loadu_ps(job->groups + group * t->group_floats + i));
        if (i < weights)
            _mm512_storeu_ps(job->dweight + i, sum);
        else if (job->dbias)
            _mm512_storeu_ps(job->dbias + i - weights, sum);
    }
}

static bool grad_supports(const tri_device_description *device, const tri_graph *graph,
                          const tri_node *node) {
    conv_shape s = conv_shape_of_node(graph, node);
    bool fast = s.c * s.o <= MOST_CHANNELS || !onednn_has_winograd();
    return cpu_has(device, CPU_HAS_AVX512) && s.n > 0 && fast && conv_is_winograd(&s);
}

static void grad_layouts(const tri_device_description *device, const tri_graph *graph,
                         const tri_node *node, tri_layout *in, tri_layout *out) {
    conv_set_layouts(node, (conv_formats){CPU_NCHW16C, CPU_OIHW16I16O, CPU_NCHW16C}, in, out);
}

static tri_status grad_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    grad_state t = state_of(graph, node);
    int64_t each = WINOGRAD_POSITIONS * (t.v_step + t.w_step + t.m_step);
    *out = (size_t)(t.groups * t.group_floats + device->threads * each) * sizeof(float);
    return TRI_OK;
}

static tri_status grad_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    grad_state *state = malloc(sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a convolution");
    *state = state_of(graph, node);
    state->device = cpu_of(device);
    kernel->state = state;
    return TRI_OK;
}

static tri_status grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const grad_state *t = kernel->state;
    grad_job job = {.state = t,
                    .x = args->in[0],
                    .dy = args->in[1],
                    .dweight = args->out[0],
                    .dbias = t->bias ? args->out[1] : NULL,
                    .groups = args->workspace};
    job.threads = job.groups + t->groups * t->group_floats;
    cpu_parallel(t->device, t->groups, 1, group_range, &job);
    cpu_parallel(t->device, t->group_floats / CPU_BLOCK, REDUCE_GRAIN, reduce_range, &job);
    return TRI_OK;
}

static void grad_release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def cpu_conv2d_grad_weight_winograd = {
    .op = &tri_op_conv2d_grad_weight,
    .name = "winograd",
    .supports = grad_supports,
    .layouts = grad_layouts,
    .workspace = grad_workspace,
    .prepare = grad_prepare,
    .run = grad_run,
    .is_winograd = conv_always_winograd,
    .release = grad_release,
};
