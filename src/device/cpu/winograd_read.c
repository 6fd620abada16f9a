// Transforms the 6×6 pixels that each tile of Winograd's convolutions reads (winograd_tiles.h) to
// 36 numbers, called positions. A vector holds CPU_LANES channels of one pixel. With AVX-512 images
// are nChw16c, so one load reads such a vector. With AVX2 they are plain, so four pixels of eight
// channels are loaded and transposed.
#include "device/cpu/winograd_tiles.h"
#include "device/cpu/winograd_transform.h"

// A mask of all six rows, or columns, that a tile reads: all of them lie in the image.
enum { ALL = (1 << WINOGRAD_IN) - 1 };

// The 6×6 pixels that a tile reads, of CPU_LANES channels from element `at` of x on. `edge`: some
// of them lie outside the image and count as 0; bit i of `rows` and of `columns` is set if row i or
// column i lies in the image.
typedef struct source {
    const void *x;
    bool bf16; // the type of x, else F32
    int64_t at;
    int64_t width, plane; // pixels of a row, and of a channel
    bool edge;
    unsigned rows, columns;
} source;

#if CPU_LANES == 16
enum { LINES_ARE_ROWS = 0 };

// Loads column k of the 6×6 pixels.
CPU_LANES_INLINE void load_line(const source *s, int k, cpu_lanes x[WINOGRAD_IN]) {
    for (int i = 0; i < WINOGRAD_IN; i++) {
        if (s->edge && !(s->rows >> i & s->columns >> k & 1))
            x[i] = CPU_OP(setzero_ps)();
        else
            x[i] = winograd_load(s->x, s->bf16, s->at + (i * s->width + k) * CPU_LANES);
    }
}
#else
enum { LINES_ARE_ROWS = 1 };

// Loads row k of the 6×6 pixels: its first four pixels and its last four, two of which are in both.
CPU_LANES_INLINE void load_line(const source *s, int k, cpu_lanes x[WINOGRAD_IN]) {
    const float *at = (const float *)s->x + s->at + k * s->width;
    cpu_lanes last[4];
    if (s->edge && !(s->rows >> k & 1)) {
        for (int j = 0; j < WINOGRAD_IN; j++) x[j] = CPU_OP(setzero_ps)();
        return;
    }
    cpu_load_pixels4(at, s->plane, s->edge, s->columns, x);
    cpu_load_pixels4(at + 2, s->plane, s->edge, s->columns >> 2, last);
    x[4] = last[2];
    x[5] = last[3];
}
#endif

// Transforms a tile's pixels, and stores the number of each position in v[position · step].
CPU_LANES_INLINE void transform_pixels(const source *s, float *v, int64_t step) {
    cpu_lanes half[WINOGRAD_IN][WINOGRAD_IN];
#pragma GCC unroll 6
    for (int k = 0; k < WINOGRAD_IN; k++) {
        cpu_lanes x[WINOGRAD_IN];
        load_line(s, k, x);
        winograd_pixels(x, 1, half[k]);
    }
#pragma GCC unroll 6
    for (int i = 0; i < WINOGRAD_IN; i++) {
        cpu_lanes y[WINOGRAD_IN];
        winograd_pixels(half[0] + i, WINOGRAD_IN, y);
        for (int j = 0; j < WINOGRAD_IN; j++) {
            int position = LINES_ARE_ROWS ? j * WINOGRAD_IN + i : i * WINOGRAD_IN + j;
            CPU_OP(storeu_ps)(v + position * step, y[j]);
        }
    }
}

// Tiles inside the image and tiles at its edge have a function each. The one for tiles inside needs
// no masks of rows and columns, and so has registers for all its addresses.
#define TRANSFORM(name, is_bf16, is_edge)                                                          \
    static CPU_LANES_TARGET __attribute__((noinline)) void name(                                   \
        const winograd_grid *t, const void *x, int64_t at, const winograd_tile *tile, float *v,    \
        int64_t step) {                                                                            \
        transform_pixels(&(source){x, is_bf16, at, t->in[1], t->in[0] * t->in[1], is_edge,         \
                                   is_edge ? tile->rows : ALL, is_edge ? tile->columns : ALL},     \
                         v, step);                                                                 \
    }
TRANSFORM(inside_f32, false, false)
TRANSFORM(edge_f32, false, true)
#if CPU_LANES == 16
TRANSFORM(inside_bf16, true, false)
TRANSFORM(edge_bf16, true, true)
#else
#define inside_bf16 inside_f32 // never called
#define edge_bf16 edge_f32
#endif

CPU_LANES_TARGET void CPU_FOR_LANES(winograd_read_tiles)(const winograd_grid *t, const void *x,
                                                         const winograd_tile *tiles, int64_t count,
                                                         float *v, int64_t room, int64_t step) {
    int64_t width = t->in[1], plane = t->in[0] * width;
    for (int64_t channel = 0; channel < t->c; channel += CPU_LANES)
        for (int64_t i = 0; i < count; i++) {
            const winograd_tile *tile = &tiles[i];
            int64_t row = tile->row - t->padding[0], column = tile->column - t->padding[1];
            int64_t at =
                (tile->image * t->c + channel) * plane + (row * width + column) * WINOGRAD_PIXEL;
            float *to = v + channel * room + i * CPU_LANES;
            if (tile->rows == ALL && tile->columns == ALL)
                (t->bf16 ? inside_bf16 : inside_f32)(t, x, at, tile, to, step);
            else
                (t->bf16 ? edge_bf16 : edge_f32)(t, x, at, tile, to, step);
        }
}
