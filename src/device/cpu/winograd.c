// Convolutions and gradients of their input by Winograd's F(4×4, 3×3) (winograd_transform.h), for
// the shapes of conv_is_winograd.
//
// The results are cut into tiles of 4×4 pixels, numbered over all images. A block of tiles goes
// through three steps, between which its numbers stay in the L2 cache:
//   1. the 6×6 pixels that each tile reads are transformed to 36 numbers, called positions. For
//      each position this makes a matrix v [tiles, c], where c are the input channels;
//   2. each v is multiplied by the transformed taps u [c, o] of its position, where o are the
//      output channels: 36 matrices m [tiles, o];
//   3. the 36 numbers that m has for a tile are transformed to 4×4 results, which get the bias. A
//      map that finishes them runs while they are in the L1 cache.
// Every tile is computed alike, whatever block it is in. So the results depend neither on the
// number of threads nor on the other images of the batch.
//
// The gradient of the input is a convolution too: of dy, padded by 2 − padding, with the taps
// rotated by 180° and input and output channels exchanged.
#include "device/cpu/product_map.h"
#include "device/cpu/winograd_tiles.h"
#include "device/cpu/winograd_transform.h"

#include <stdlib.h>

enum {
    BLOCK = 12, // tiles that go through the steps together
    // Tiles whose products are computed together: the registers hold ROWS · CHUNK sums.
    ROWS = CPU_LANES == 16 ? 12 : 6,
    CHUNK = 2 * CPU_LANES, // output channels that are computed together: two vectors
    U_AHEAD = 2048,        // the product prefetches u this many floats ahead
    TAPS = WINOGRAD_TAPS * WINOGRAD_TAPS,
    // Floats of a block of weights: those of CPU_LANES input and CPU_LANES output channels.
    WEIGHT_FLOATS = CPU_LANES * CPU_LANES * TAPS,
    WEIGHT_GRAIN = CPU_LANES == 16 ? 4 : 16, // number of such blocks that is worth another thread
    // Floats from one position of m to the next. A cache line (CPU_BLOCK floats) is added so that
    // the positions lie in many sets of the L1 cache and not in a few.
    M_STEP = BLOCK * CHUNK + CPU_BLOCK,
};

// The correlation that is computed: x [n, c, in] with 3×3 taps makes y [n, o, out].
typedef struct winograd_state {
    const cpu_device *device;
    bool forward; // false: this computes the gradient of the input, so x is dy and y is dx
    bool bias;
    winograd_grid grid;
    int64_t v_step; // distance in floats from one position of v (winograd_job.blocks) to the next
} winograd_state;

typedef struct winograd_job {
    const winograd_state *state;
    const cpu_finish *finish; // NULL: the results are what is wanted
    // With AVX-512 x and y are nChw16c and weight is OIhw16i16o, all BF16 or all F32; with AVX2 all
    // are plain and F32. bias [o] has their type; NULL: there is none.
    const void *x, *weight, *bias;
    void *y;
    float *u; // the transformed weight [o / CHUNK][36][c][CHUNK]
    // For each thread its buffers for 12 tiles: v [36][c / lanes][12][lanes], the transformed
    // pixels of x, and m [36][12][CHUNK], the products of v and u. `lanes` is CPU_LANES.
    float *blocks;
} winograd_job;

static winograd_state state_of(const tri_device_description *device, const tri_graph *graph,
                               const tri_node *node) {
    conv_shape s = conv_shape_of_node(graph, node);
    winograd_state t = {.forward = node->op == &tri_op_conv2d};
    t.grid = winograd_grid_of(&s, !t.forward);
    t.v_step = winograd_step(BLOCK, t.grid.c);
    t.bias = t.forward && tri_value_is(node->inputs[2]);
    return t;
}

// Copies the taps of a block of weights to [tap][c][o] for CPU_LANES input channels c, block number
// `row`, and CPU_LANES output channels o, block number `column`. For the gradient of the input,
// reverses the order of the taps.
#if CPU_LANES == 16
static CPU_LANES_TARGET void order_taps(const winograd_state *t, const void *weights, int64_t row,
                                        int64_t column, float *taps) {
    enum { CHANNELS = CPU_BLOCK * CPU_BLOCK };
    int64_t rows = t->grid.c / CPU_BLOCK, columns = t->grid.o / CPU_BLOCK;
    int64_t block = t->forward ? column * rows + row : row * columns + column;
    int64_t at = block * WEIGHT_FLOATS;
    for (int k = 0; k < TAPS; k++) {
        cpu_lanes r[CPU_BLOCK];
        for (int i = 0; i < CPU_BLOCK; i++, at += CPU_BLOCK)
            r[i] = winograd_load(weights, t->grid.bf16, at);
        if (!t->forward) cpu_transpose16(r);
        float *to = taps + (t->forward ? k : TAPS - 1 - k) * CHANNELS;
        for (int i = 0; i < CPU_BLOCK; i++) CPU_OP(storeu_ps)(to + i * CPU_BLOCK, r[i]);
    }
}
#else
static CPU_LANES_TARGET void order_taps(const winograd_state *t, const void *weights, int64_t row,
                                        int64_t column, float *taps) {
    // Distances in floats between neighbouring channels c, and between neighbouring channels o.
    // Forward the weight is [o][c][9], else [c][o][9].
    int c_step = (int)(t->forward ? 1 : t->grid.o) * TAPS;
    int o_step = (int)(t->forward ? t->grid.c : 1) * TAPS;
    const __m256i lanes =
        _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(o_step));
    const float *from = (const float *)weights + (row * c_step + column * o_step) * CPU_LANES;
    for (int c = 0; c < CPU_LANES; c++, from += c_step)
        for (int k = 0; k < TAPS; k++)
            _mm256_storeu_ps(taps + ((t->forward ? k : TAPS - 1 - k) * CPU_LANES + c) * CPU_LANES,
                             _mm256_i32gather_ps(from + k, lanes, sizeof(float)));
}
#endif

// Transforms the taps of blocks of weights [begin, end) to u.
static CPU_LANES_TARGET void weight_range(void *context, int64_t begin, int64_t end, int thread) {
    const winograd_job *job = context;
    const winograd_state *t = job->state;
    int64_t columns = t->grid.o / CPU_LANES;
    float taps[WEIGHT_FLOATS] __attribute__((aligned(64)));
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / columns, column = i % columns, channel = column * CPU_LANES;
        order_taps(t, job->weight, row, column, taps);
        float *to = job->u + channel % CHUNK +
                    (channel / CHUNK * WINOGRAD_POSITIONS * t->grid.c + row * CPU_LANES) * CHUNK;
        for (int c = 0; c < CPU_LANES; c++, to += CHUNK) {
            cpu_lanes g[WINOGRAD_TAPS][WINOGRAD_TAPS], half[WINOGRAD_TAPS][WINOGRAD_IN];
            for (int k = 0; k < TAPS; k++)
                g[k / WINOGRAD_TAPS][k % WINOGRAD_TAPS] =
                    CPU_OP(loadu_ps)(taps + (k * CPU_LANES + c) * CPU_LANES);
            for (int k = 0; k < WINOGRAD_TAPS; k++) winograd_taps(g[0] + k, WINOGRAD_TAPS, half[k]);
            for (int k = 0; k < WINOGRAD_IN; k++) {
                cpu_lanes u[WINOGRAD_IN];
                winograd_taps(half[0] + k, WINOGRAD_IN, u);
                for (int j = 0; j < WINOGRAD_IN; j++)
                    CPU_OP(storeu_ps)(to + (k * WINOGRAD_IN + j) * t->grid.c * CHUNK, u[j]);
            }
        }
    }
}

// Computes m for `vectors` vectors of channels: m[position][tile][CHUNK] = the sum over c of
// v[position][c / lanes][tile][c % lanes] · u[position][c][CHUNK]. Always computes BLOCK tiles, so
// that the loops have constant lengths. The last block may have fewer; nobody reads what is
// computed for the missing tiles.
CPU_LANES_INLINE void multiply(const winograd_state *t, const float *v, const float *u, float *m,
                               int vectors) {
    for (int position = 0; position < WINOGRAD_POSITIONS; position++, u += t->grid.c * CHUNK)
        for (int tile = 0; tile < BLOCK; tile += ROWS) {
            cpu_lanes sum[ROWS][2];
            const float *a = v + position * t->v_step + tile * CPU_LANES, *row = u;
#pragma GCC unroll 12
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < vectors; j++) sum[i][j] = CPU_OP(setzero_ps)();
            for (int64_t block = 0; block < t->grid.c; block += CPU_LANES) {
                for (int c = 0; c < CPU_LANES; c++, row += CHUNK, a++) {
                    cpu_lanes column[2];
                    for (int j = 0; j < vectors; j++) {
                        column[j] = CPU_OP(loadu_ps)(row + CPU_LANES * j);
                        _mm_prefetch(row + U_AHEAD + CPU_LANES * j, _MM_HINT_T0);
                    }
#pragma GCC unroll 12
                    for (int i = 0; i < ROWS; i++) {
                        cpu_lanes x = CPU_OP(set1_ps)(a[i * CPU_LANES]);
                        for (int j = 0; j < vectors; j++)
                            sum[i][j] = CPU_OP(fmadd_ps)(x, column[j], sum[i][j]);
                    }
                }
                a += (BLOCK - 1) * CPU_LANES;
            }
            float *to = m + position * M_STEP + tile * CHUNK;
#pragma GCC unroll 12
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < vectors; j++)
                    CPU_OP(storeu_ps)(to + i * CHUNK + CPU_LANES * j, sum[i][j]);
        }
}

static CPU_LANES_TARGET void multiply_one(const winograd_state *t, const float *v, const float *u,
                                          float *m) {
    multiply(t, v, u, m, 1);
}
static CPU_LANES_TARGET void multiply_two(const winograd_state *t, const float *v, const float *u,
                                          float *m) {
    multiply(t, v, u, m, 2);
}

#if CPU_LANES == 16
// Stores the first `columns` pixels, which lie in the image, of one row of a tile's results, from
// element `at` of y on.
CPU_LANES_INLINE void store_row(cpu_lanes out[WINOGRAD_OUT], void *y, bool bf16, int64_t at,
                                int64_t plane, int64_t columns) {
    for (int j = 0; j < WINOGRAD_OUT; j++)
        if (j < columns) winograd_store(y, bf16, at + j * CPU_BLOCK, out[j]);
}
CPU_LANES_INLINE cpu_lanes load_bias(const void *bias, bool bf16, int64_t channel) {
    return winograd_load(bias, bf16, channel);
}
#else
CPU_LANES_INLINE void store_row(cpu_lanes out[WINOGRAD_OUT], void *y, bool bf16, int64_t at,
                                int64_t plane, int64_t columns) {
    cpu_store_pixels4((float *)y + at, plane, out, columns);
}
CPU_LANES_INLINE cpu_lanes load_bias(const void *bias, bool bf16, int64_t channel) {
    return CPU_OP(loadu_ps)((const float *)bias + channel);
}
#endif

// Transforms a tile of m to 4×4 results of the CPU_LANES channels from `channel` on, of which
// `rows` × `columns` lie in the image, and writes them from element `at` of y on.
CPU_LANES_INLINE void write_results(const winograd_job *job, const float *m, int64_t channel,
                                    int64_t at, bool bf16, int64_t rows, int64_t columns) {
    const winograd_grid *grid = &job->state->grid;
    const void *bias = job->bias;
    cpu_lanes added = bias ? load_bias(bias, bf16, channel) : CPU_OP(setzero_ps)();
    int64_t width = grid->out[1], plane = grid->out[0] * width;
    cpu_lanes half[WINOGRAD_IN][WINOGRAD_OUT];
#pragma GCC unroll 6
    for (int j = 0; j < WINOGRAD_IN; j++) {
        cpu_lanes x[WINOGRAD_IN];
        for (int i = 0; i < WINOGRAD_IN; i++)
            x[i] = CPU_OP(loadu_ps)(m + (i * WINOGRAD_IN + j) * M_STEP);
        winograd_results(x, 1, half[j]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < WINOGRAD_OUT; i++) {
        cpu_lanes out[WINOGRAD_OUT];
        winograd_results(half[0] + i, WINOGRAD_OUT, out);
        for (int j = 0; j < WINOGRAD_OUT && bias; j++) out[j] = CPU_OP(add_ps)(out[j], added);
        if (i < rows) store_row(out, job->y, bf16, at + i * width * WINOGRAD_PIXEL, plane, columns);
    }
}

// Transforms m of `count` tiles to results and writes those of output channels [channel, channel +
// CPU_LANES) to y.
CPU_LANES_INLINE void write_typed(const winograd_job *job, const winograd_tile *tiles,
                                  int64_t count, const float *m, int64_t channel, bool bf16) {
    const winograd_grid *grid = &job->state->grid;
    for (int64_t i = 0; i < count; i++, m += CHUNK) {
        int64_t rows = grid->out[0] - tiles[i].row, columns = grid->out[1] - tiles[i].column;
        int64_t at = (tiles[i].image * grid->o + channel) * grid->out[0] * grid->out[1] +
                     (tiles[i].row * grid->out[1] + tiles[i].column) * WINOGRAD_PIXEL;
        if (rows >= WINOGRAD_OUT && columns >= WINOGRAD_OUT)
            write_results(job, m, channel, at, bf16, WINOGRAD_OUT, WINOGRAD_OUT);
        else
            write_results(job, m, channel, at, bf16, rows, columns);
    }
}

static CPU_LANES_TARGET void write_tiles(const winograd_job *job, const winograd_tile *tiles,
                                         int64_t count, const float *m, int64_t channel) {
    if (job->state->grid.bf16)
        write_typed(job, tiles, count, m, channel, true);
    else
        write_typed(job, tiles, count, m, channel, false);
}

// Finishes what the tiles have made of output channels [channel, channel + CPU_LANES). Tiles side
// by side are finished together.
static void finish_tiles(const winograd_job *job, const winograd_tile *tiles, int64_t count,
                         int64_t channel) {
    const winograd_grid *grid = &job->state->grid;
    int64_t width = grid->out[1], plane = grid->out[0] * width;
    for (int64_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count && tiles[next].column > 0;) next++;
        int64_t rows = grid->out[0] - tiles[i].row, columns = width - tiles[i].column;
        if (rows > WINOGRAD_OUT) rows = WINOGRAD_OUT;
        if (columns > (next - i) * WINOGRAD_OUT) columns = (next - i) * WINOGRAD_OUT;
        int64_t at = (tiles[i].image * grid->o + channel) * plane +
                     (tiles[i].row * width + tiles[i].column) * WINOGRAD_PIXEL;
        for (int c = 0; c < CPU_LANES; c += WINOGRAD_PIXEL, at += plane)
            cpu_finish_rows(job->finish, at, width * WINOGRAD_PIXEL, rows,
                            columns * WINOGRAD_PIXEL);
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
        CPU_FOR_LANES(winograd_read_tiles)(&t->grid, job->x, tiles, count, v, BLOCK, t->v_step);
        for (int64_t channel = 0; channel < t->grid.o; channel += CHUNK) {
            const float *u = job->u + channel * WINOGRAD_POSITIONS * t->grid.c;
            bool two = channel + CPU_LANES < t->grid.o;
            (two ? multiply_two : multiply_one)(t, v, u, m);
            write_tiles(job, tiles, count, m, channel);
            if (two) write_tiles(job, tiles, count, m + CPU_LANES, channel + CPU_LANES);
            for (int k = 0; job->finish && k <= two; k++)
                finish_tiles(job, tiles, count, channel + k * CPU_LANES);
        }
    }
}

static bool winograd_supports(const tri_device_description *device, const tri_graph *graph,
                              const tri_node *node) {
    conv_shape s = conv_shape_of_node(graph, node);
    return winograd_computes(device, &s);
}

static void winograd_layouts(const tri_device_description *device, const tri_graph *graph,
                             const tri_node *node, tri_layout *in, tri_layout *out) {
    conv_set_layouts(node, WINOGRAD_FORMATS, in, out);
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

tri_status CPU_FOR_LANES(cpu_winograd_compute)(const tri_kernel *kernel,
                                               const tri_kernel_args *args,
                                               const cpu_finish *finish) {
    const winograd_state *t = kernel->state;
    winograd_job job = {.state = t,
                        .bias = t->bias ? args->in[2] : NULL,
                        .finish = finish,
                        .x = args->in[0],
                        .weight = args->in[1],
                        .y = args->out[0],
                        .u = args->workspace};
    job.blocks = job.u + (t->grid.o + CHUNK - 1) / CHUNK * WINOGRAD_POSITIONS * t->grid.c * CHUNK;
    cpu_parallel(t->device, t->grid.c / CPU_LANES * (t->grid.o / CPU_LANES), WEIGHT_GRAIN,
                 weight_range, &job);
    cpu_parallel(t->device, (t->grid.count + BLOCK - 1) / BLOCK, 1, block_range, &job);
    return TRI_OK;
}

static tri_status winograd_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    return CPU_FOR_LANES(cpu_winograd_compute)(kernel, args, NULL);
}

static void winograd_release(tri_kernel *kernel) { free(kernel->state); }

#define WINOGRAD_KERNEL(opname)                                                                    \
    const tri_kernel_def CPU_FOR_LANES(cpu_##opname##_winograd) = {                                \
        .op = &tri_op_##opname,                                                                    \
        .name = "winograd",                                                                        \
        .supports = winograd_supports,                                                             \
        .layouts = winograd_layouts,                                                               \
        .workspace = winograd_workspace,                                                           \
        .prepare = winograd_prepare,                                                               \
        .run = winograd_run,                                                                       \
        .is_winograd = conv_node_is_winograd,                                                      \
        .release = winograd_release,                                                               \
    };
WINOGRAD_KERNEL(conv2d)
WINOGRAD_KERNEL(conv2d_grad_input)
