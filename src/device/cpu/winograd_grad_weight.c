// The gradient of a convolution's weight by Winograd's formula (winograd_transform.h), for the
// shapes of conv_is_winograd. If oneDNN itself has a Winograd convolution (its version 2, with
// AVX-512), this kernel computes only those shapes for which the channels of x times those of dy
// are at most 96 × 96.
//
// dy is cut into tiles of 4×4 pixels; 6×6 pixels of x belong to each. A block of tiles goes through
// two steps:
//   1. the pixels of x and of dy of each tile are transformed to 36 numbers each, called positions.
//      For each position this makes matrices v [tiles, c] and w [tiles, o], where c are the
//      channels of x and o those of dy;
//   2. vᵀ·w is added to a matrix m [c, o] of the position.
// At the end, the 36 matrices m become the gradients of the 3×3 taps.
//
// The tiles are divided into groups, whose gradients are added at the end, in order. How many
// groups there are depends on shapes alone, so the bits do not depend on the number of threads. A
// group's sums have fewer terms than sums over all tiles, which also makes them more exact.
//
// Zeros stay exact where a whole channel of x or dy is zero: each of its products is zero.
#include "device/cpu/winograd_tiles.h"
#include "device/cpu/winograd_transform.h"

#include <stdlib.h>

enum {
    GROUPS = 16, // the most groups into which the tiles are divided
    // Channels of x times channels of dy up to which the sums m stay in the L2 cache. If oneDNN has
    // Winograd, this kernel computes no more.
    MOST_CHANNELS = 96 * 96,
    // Tiles that are transformed together: few, so that their numbers stay in the L2 cache; or, if
    // the sums m do not, many, so that m is loaded and stored less often.
    FEW_TILES = 48,
    MANY_TILES = 192,
    // ROWS channels of x and CHUNK channels of dy (two vectors) are multiplied together. Their
    // ROWS · CHUNK sums stay in registers.
    ROWS = CPU_LANES / 2,
    CHUNK = 2 * CPU_LANES,
    TAPS = WINOGRAD_TAPS * WINOGRAD_TAPS,
    REDUCE_GRAIN = 1 << 10, // number of vectors of sums that is worth another thread
};

typedef struct grad_state {
    const cpu_device *device;
    bool bias;
    winograd_grid grid;
    // Most tiles of a block, and how many floats their numbers of a vector of channels take.
    int64_t block, block_floats;
    int64_t blocks, groups; // number of blocks, and of groups of blocks
    // Into how many slices the channels of dy are cut, whose gradients threads compute apart, and
    // the channels of a slice (the last may have fewer). They change no result.
    int64_t slices, slice;
    // Distances in floats from one of the 36 positions to the next, in v, w and m.
    int64_t v_step, w_step, m_step;
    int64_t
        group_floats; // floats in the gradients of weight and bias that one group of tiles adds up
} grad_state;

typedef struct grad_job {
    const grad_state *state;
    const void *x, *dy; // with AVX-512 nChw16c, BF16 or F32; with AVX2 plain, F32
    float *dweight;     // with AVX-512 OIhw16i16o, with AVX2 plain
    float *dbias;       // NULL: there is no bias
    // For each group of tiles, its gradients: of the weight, [o / lanes][c / lanes][9][lanes of
    // c][lanes of o], and then of the bias, [o]. They are added up at the end. `lanes` is
    // CPU_LANES.
    float *groups;
    // For each thread its buffers: transformed tiles of x, v [36][c / lanes][block][lanes], and of
    // a slice of dy, w [36][slice / lanes][block][lanes], and their products m [36][slice /
    // CHUNK][c][CHUNK].
    float *threads;
} grad_job;

static grad_state state_of(const tri_device_description *device, const tri_graph *graph,
                           const tri_node *node) {
    conv_shape s = conv_shape_of_node(graph, node);
    grad_state t = {.grid = winograd_grid_of(&s, false)};
    int64_t chunks = (t.grid.o + CHUNK - 1) / CHUNK, wanted;
    t.bias = ((const tri_conv2d_grad_attr *)node->attr)->has_bias;
    t.block = t.grid.c * t.grid.o <= MOST_CHANNELS ? FEW_TILES : MANY_TILES;
    if (t.block > t.grid.count) t.block = t.grid.count;
    t.block_floats = t.block * CPU_LANES;
    t.blocks = (t.grid.count + t.block - 1) / t.block;
    t.groups = t.blocks < GROUPS ? t.blocks : GROUPS;
    wanted = (device->threads + t.groups - 1) / t.groups;
    t.slice = (chunks + wanted - 1) / wanted * CHUNK;
    if (t.slice < CHUNK) t.slice = CHUNK;
    t.slices = (t.grid.o + t.slice - 1) / t.slice;
    t.v_step = winograd_step(t.block, t.grid.c);
    t.w_step = winograd_step(t.block, t.slice);
    t.m_step = winograd_step(t.slice, t.grid.c);
    t.group_floats = t.grid.c * t.grid.o * TAPS + t.grid.o;
    return t;
}

// Loads 4 pixels of a tile of dy, of CPU_LANES channels: with AVX-512 column `k` of the tile, with
// AVX2 row `k`. Pixels outside the image become 0: only the tile's first `rows` rows and `columns`
// columns lie in it. The tile begins with element `at` of dy; `width` is the pixels of an image's
// row, and `plane` those of a channel.
#if CPU_LANES == 16
enum { LINES_ARE_ROWS = 0 };

CPU_LANES_INLINE void load_line(const void *dy, bool bf16, int64_t at, int64_t width, int64_t plane,
                                int64_t rows, int64_t columns, int k, cpu_lanes x[WINOGRAD_OUT]) {
    for (int i = 0; i < WINOGRAD_OUT; i++) {
        x[i] = CPU_OP(setzero_ps)();
        if (i < rows && k < columns)
            x[i] = winograd_load(dy, bf16, at + (i * width + k) * CPU_LANES);
    }
}
#else
enum { LINES_ARE_ROWS = 1 };

CPU_LANES_INLINE void load_line(const void *dy, bool bf16, int64_t at, int64_t width, int64_t plane,
                                int64_t rows, int64_t columns, int k, cpu_lanes x[WINOGRAD_OUT]) {
    const float *pixels = (const float *)dy + at;
    if (k < rows)
        cpu_load_pixels4(pixels + k * width, plane, columns < WINOGRAD_OUT, (1u << columns) - 1, x);
    else
        for (int j = 0; j < WINOGRAD_OUT; j++) x[j] = CPU_OP(setzero_ps)();
}
#endif

// Transforms 4×4 pixels of dy, of CPU_LANES channels, of which `rows` × `columns` lie in the image.
// Writes position i of the 6×6 results to w[i · step]. Returns the sum of the pixels.
CPU_LANES_INLINE cpu_lanes transform_gradients(const grad_job *job, bool bf16, int64_t at,
                                               int64_t rows, int64_t columns, float *w) {
    int64_t width = job->state->grid.out[1], plane = job->state->grid.out[0] * width;
    int64_t step = job->state->w_step;
    cpu_lanes half[WINOGRAD_OUT][WINOGRAD_IN], sum = CPU_OP(setzero_ps)();
#pragma GCC unroll 4
    for (int k = 0; k < WINOGRAD_OUT; k++) {
        cpu_lanes x[WINOGRAD_OUT];
        load_line(job->dy, bf16, at, width, plane, rows, columns, k, x);
        cpu_lanes pairs = CPU_OP(add_ps)(CPU_OP(add_ps)(x[0], x[1]), CPU_OP(add_ps)(x[2], x[3]));
        sum = CPU_OP(add_ps)(sum, pairs);
        winograd_gradients(x, 1, half[k]);
    }
#pragma GCC unroll 6
    for (int i = 0; i < WINOGRAD_IN; i++) {
        cpu_lanes y[WINOGRAD_IN];
        winograd_gradients(half[0] + i, WINOGRAD_IN, y);
        for (int j = 0; j < WINOGRAD_IN; j++) {
            int position = LINES_ARE_ROWS ? j * WINOGRAD_IN + i : i * WINOGRAD_IN + j;
            CPU_OP(storeu_ps)(w + position * step, y[j]);
        }
    }
    return sum;
}

// Channels [first, end) of dy: a slice.
typedef struct dy_slice {
    int64_t first, end;
} dy_slice;

// Transforms a slice of dy of `count` tiles to w, and adds the tiles' pixels of dy to `sums` [o],
// which becomes the gradient of the bias.
CPU_LANES_INLINE void read_typed(const grad_job *job, const winograd_tile *tiles, int64_t count,
                                 dy_slice slice, float *w, float *sums, bool bf16) {
    const winograd_grid *g = &job->state->grid;
    int64_t width = g->out[1], plane = g->out[0] * width, room = job->state->block;
    for (int64_t channel = slice.first; channel < slice.end; channel += CPU_LANES) {
        cpu_lanes sum = CPU_OP(loadu_ps)(sums + channel);
        for (int64_t i = 0; i < count; i++) {
            int64_t rows = g->out[0] - tiles[i].row, columns = width - tiles[i].column;
            int64_t at = (tiles[i].image * g->o + channel) * plane +
                         (tiles[i].row * width + tiles[i].column) * WINOGRAD_PIXEL;
            float *to = w + (channel - slice.first) * room + i * CPU_LANES;
            cpu_lanes tile_sum =
                rows >= WINOGRAD_OUT && columns >= WINOGRAD_OUT
                    ? transform_gradients(job, bf16, at, WINOGRAD_OUT, WINOGRAD_OUT, to)
                    : transform_gradients(job, bf16, at, rows, columns, to);
            sum = CPU_OP(add_ps)(sum, tile_sum);
        }
        CPU_OP(storeu_ps)(sums + channel, sum);
    }
}

static CPU_LANES_TARGET void read_gradients(const grad_job *job, const winograd_tile *tiles,
                                            int64_t count, dy_slice slice, float *w, float *sums) {
    if (job->state->grid.bf16)
        read_typed(job, tiles, count, slice, w, sums, true);
    else
        read_typed(job, tiles, count, slice, w, sums, false);
}

// Adds, for one position, the products of `count` tiles to m for ROWS channels i of x and `vectors`
// vectors of channels j of dy, which lie w_vector floats apart: m[i][j] += the sum over tiles of
// v[tile][i] · w[tile][j]. Overwrites m instead if `first`.
CPU_LANES_INLINE void multiply(const float *v, const float *w, int64_t w_vector, int64_t count,
                               float *m, bool first, int vectors) {
    cpu_lanes sum[ROWS][2];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < vectors; j++)
            sum[i][j] =
                first ? CPU_OP(setzero_ps)() : CPU_OP(loadu_ps)(m + i * CHUNK + CPU_LANES * j);
    for (int64_t tile = 0; tile < count; tile++, v += CPU_LANES, w += CPU_LANES) {
        cpu_lanes column[2];
        for (int j = 0; j < vectors; j++) column[j] = CPU_OP(loadu_ps)(w + j * w_vector);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++) {
            cpu_lanes x = CPU_OP(set1_ps)(v[i]);
            for (int j = 0; j < vectors; j++) sum[i][j] = CPU_OP(fmadd_ps)(x, column[j], sum[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < vectors; j++)
            CPU_OP(storeu_ps)(m + i * CHUNK + CPU_LANES * j, sum[i][j]);
}

static CPU_LANES_TARGET void multiply_positions(const grad_state *t, const float *v, const float *w,
                                                int64_t count, int64_t channels, float *m,
                                                bool first) {
    for (int64_t position = 0; position < WINOGRAD_POSITIONS; position++) {
        const float *rows = v + position * t->v_step, *columns = w + position * t->w_step;
        float *to = m + position * t->m_step;
        for (int64_t o = 0; o < channels; o += CHUNK)
            for (int64_t c = 0; c < t->grid.c; c += ROWS, to += ROWS * CHUNK) {
                const float *a = rows + c / CPU_LANES * t->block_floats + c % CPU_LANES;
                const float *b = columns + o * t->block;
                if (o + CPU_LANES < channels)
                    multiply(a, b, t->block_floats, count, to, first, 2);
                else
                    multiply(a, b, t->block_floats, count, to, first, 1);
            }
    }
}

// Transforms m, a group's sums of products for a slice of dy, to the 3×3 taps of the weight's
// gradient.
static CPU_LANES_TARGET void write_group(const grad_state *t, const float *m, dy_slice slice,
                                         float *gradients) {
    const winograd_grid *g = &t->grid;
    for (int64_t o = slice.first; o < slice.end; o += CPU_LANES)
        for (int64_t c = 0; c < g->c; c++) {
            int64_t column = o - slice.first;
            const float *from = m + (column / CHUNK * g->c + c) * CHUNK + column % CHUNK;
            float *to = gradients +
                        (o / CPU_LANES * (g->c / CPU_LANES) + c / CPU_LANES) * TAPS * CPU_LANES *
                            CPU_LANES +
                        c % CPU_LANES * CPU_LANES;
            cpu_lanes half[WINOGRAD_IN][WINOGRAD_TAPS];
            for (int j = 0; j < WINOGRAD_IN; j++) {
                cpu_lanes x[WINOGRAD_IN];
                for (int i = 0; i < WINOGRAD_IN; i++)
                    x[i] = CPU_OP(loadu_ps)(from + (i * WINOGRAD_IN + j) * t->m_step);
                winograd_tap_gradients(x, 1, half[j]);
            }
            for (int i = 0; i < WINOGRAD_TAPS; i++) {
                cpu_lanes y[WINOGRAD_TAPS];
                winograd_tap_gradients(half[0] + i, WINOGRAD_TAPS, y);
                for (int j = 0; j < WINOGRAD_TAPS; j++)
                    CPU_OP(storeu_ps)(to + (i * WINOGRAD_TAPS + j) * CPU_LANES * CPU_LANES, y[j]);
            }
        }
}

// Computes items [begin, end), each of which is a slice of a group.
static void group_range(void *context, int64_t begin, int64_t end, int thread) {
    const grad_job *job = context;
    const grad_state *t = job->state;
    float *v = job->threads + thread * WINOGRAD_POSITIONS * (t->v_step + t->w_step + t->m_step);
    float *w = v + WINOGRAD_POSITIONS * t->v_step, *m = w + WINOGRAD_POSITIONS * t->w_step;
    for (int64_t item = begin; item < end; item++) {
        int64_t group = item / t->slices;
        dy_slice slice = {.first = item % t->slices * t->slice};
        slice.end = slice.first + t->slice < t->grid.o ? slice.first + t->slice : t->grid.o;
        float *gradients = job->groups + group * t->group_floats;
        float *sums = gradients + t->group_floats - t->grid.o;
        for (int64_t o = slice.first; o < slice.end; o++) sums[o] = 0;
        int64_t from = group * t->blocks / t->groups, to = (group + 1) * t->blocks / t->groups;
        for (int64_t block = from; block < to; block++) {
            int64_t left = t->grid.count - block * t->block;
            int64_t count = left < t->block ? left : t->block;
            winograd_tile tiles[MANY_TILES];
            winograd_find_tiles(&t->grid, block * t->block, count, tiles);
            CPU_FOR_LANES(winograd_read_tiles)
            (&t->grid, job->x, tiles, count, v, t->block, t->v_step);
            read_gradients(job, tiles, count, slice, w, sums);
            multiply_positions(t, v, w, count, slice.end - slice.first, m, block == from);
        }
        write_group(t, m, slice, gradients);
    }
}

// Stores `sum`, vector number `i` of the gradient of the weight in the order of grad_job.groups, to
// its location in dweight.
static CPU_LANES_TARGET void store_weights(const grad_job *job, int64_t i, cpu_lanes sum) {
#if CPU_LANES == 16
    CPU_OP(storeu_ps)(job->dweight + i * CPU_LANES, sum);
#else
    const winograd_grid *g = &job->state->grid;
    int64_t c = i % CPU_LANES, tap = i / CPU_LANES % TAPS, block = i / CPU_LANES / TAPS;
    c += block % (g->c / CPU_LANES) * CPU_LANES;
    int64_t o = block / (g->c / CPU_LANES) * CPU_LANES;
    float values[CPU_LANES];
    CPU_OP(storeu_ps)(values, sum);
    for (int64_t k = 0; k < CPU_LANES; k++)
        job->dweight[((o + k) * g->c + c) * TAPS + tap] = values[k];
#endif
}

// Adds up the gradients of all groups, for vectors [begin, end) of CPU_LANES floats. A group's
// vectors are those of the weight's gradient, in the order of grad_job.groups, and then those of
// the bias's.
static CPU_LANES_TARGET void reduce_range(void *context, int64_t begin, int64_t end, int thread) {
    const grad_job *job = context;
    const grad_state *t = job->state;
    int64_t weights = (t->group_floats - t->grid.o) / CPU_LANES;
    for (int64_t i = begin; i < end; i++) {
        const float *first = job->groups + i * CPU_LANES;
        cpu_lanes sum = CPU_OP(loadu_ps)(first);
        for (int64_t group = 1; group < t->groups; group++)
            sum = CPU_OP(add_ps)(sum, CPU_OP(loadu_ps)(first + group * t->group_floats));
        if (i < weights)
            store_weights(job, i, sum);
        else if (job->dbias)
            CPU_OP(storeu_ps)(job->dbias + (i - weights) * CPU_LANES, sum);
    }
}

static bool grad_supports(const tri_device_description *device, const tri_graph *graph,
                          const tri_node *node) {
    conv_shape s = conv_shape_of_node(graph, node);
    // oneDNN's order of sums depends on the number of threads.
    bool ours = s.c * s.o <= MOST_CHANNELS || CPU_LANES != 16 || !onednn_has_winograd() ||
                s.dtype == TRI_BF16 || graph->options.deterministic;
    return ours && winograd_computes(device, &s);
}

static void grad_layouts(const tri_device_description *device, const tri_graph *graph,
                         const tri_node *node, tri_layout *in, tri_layout *out) {
    conv_set_layouts(node, WINOGRAD_FORMATS, in, out);
}

static tri_status grad_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    grad_state t = state_of(device, graph, node);
    int64_t each = WINOGRAD_POSITIONS * (t.v_step + t.w_step + t.m_step);
    *out = (size_t)(t.groups * t.group_floats + device->threads * each) * sizeof(float);
    return TRI_OK;
}

static tri_status grad_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    grad_state *state = malloc(sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a convolution");
    *state = state_of(&device->description, graph, node);
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
    cpu_parallel(t->device, t->groups * t->slices, 1, group_range, &job);
    cpu_parallel(t->device, t->group_floats / CPU_LANES, REDUCE_GRAIN, reduce_range, &job);
    return TRI_OK;
}

static void grad_release(tri_kernel *kernel) { free(kernel->state); }

const tri_kernel_def CPU_FOR_LANES(cpu_conv2d_grad_weight_winograd) = {
    .op = &tri_op_conv2d_grad_weight,
    .name = "winograd",
    .supports = grad_supports,
    .layouts = grad_layouts,
    .workspace = grad_workspace,
    .prepare = grad_prepare,
    .run = grad_run,
    .is_winograd = conv_node_is_winograd,
    .release = grad_release,
};
