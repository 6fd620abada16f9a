// Transforms the 6×6 pixels that each tile of Winograd's convolutions reads (winograd_tiles.h) to
// 36 numbers, called positions. A vector holds CPU_LANES channels of one pixel. With AVX-512 images
// are nChw16c, so one load reads such a vector. With AVX2 they are plain, so four pixels of eight
// channels are loaded and transposed.
#include "device/cpu/winograd_tiles.h"
#include "device/cpu/winograd_transform.h"

// A mask of all six rows, or columns, that a tile reads: all of them lie in the image.
enum { ALL = (1 << WINOGRAD_IN) - 1 };

// The 6×6 pixels that a tile reads, of CPU_LANES channels from `pixels` on. `edge`: some of them
// lie outside the image and count as 0; bit i of `rows` and of `columns` is set if row i or column
// i lies in the image.
typedef struct source {
    const float *pixels;
    int64_t width, plane; // pixels of a row, and of a channel
    bool edge;
    unsigned rows, columns;
} source;

#if CPU_LANES == 16
enum { LINES_ARE_ROWS = 0 };

// Loads column k of the 6×6 pixels.
CPU_LANES_INLINE void load_line(const source *s, int k, cpu_lanes x[WINOGRAD_IN]) {
    for (int i = 0; i < WINOGRAD_IN; i++) {
        const float *at = s->pixels + (i * s->width + k) * CPU_LANES;
        if (s->edge && !(s->rows >> i & s->columns >> k & 1))
            x[i] = CPU_OP(setzero_ps)();
        else
            x[i] = CPU_OP(loadu_ps)(at);
    }
}
#else
enum { LINES_ARE_ROWS = 1 };

// Loads row k of the 6×6 pixels: its first four pixels and its last four, two of which are in both.
CPU_LANES_INLINE void load_line(const source *s, int k, cpu_lanes x[WINOGRAD_IN]) {
    const float *at = s->pixels + k * s->width;
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
static CPU_LANES_TARGET __attribute__((noinline)) void
transform_inside(const float *pixels, int64_t width, int64_t plane, float *v, int64_t step) {
    transform_pixels(&(source){pixels, width, plane, false, ALL, ALL}, v, step);
}
static CPU_LANES_TARGET __attribute__((noinline)) void transform_edge(const float *pixels,
                                                                      int64_t width, int64_t plane,
                                                                      const winograd_tile *tile,
                                                                      float *v, int64_t step) {
    transform_pixels(&(source){pixels, width, plane, true, tile->rows, tile->columns}, v, step);
}

CPU_LANES_TARGET void CPU_FOR_LANES(winograd_read_tiles)(const winograd_grid *t, const float *x,
                                                         const winograd_tile *tiles, int64_t count,
                                                         float *v, int64_t room, int64_t step) {
    int64_t width = t->in[1], plane = t->in[0] * width;
    for (int64_t channel = 0; channel < t->c; channel += CPU_LANES)
        for (int64_t i = 0; i < count; i++) {
            int64_t row = tiles[i].row - t->padding[0];
            int64_t column = tiles[i].column - t->padding[1];
            const float *pixels = x + (tiles[i].image * t->c + channel) * plane +
                                  (row * width + column) * WINOGRAD_PIXEL;
            float *to = v + channel * room + i * CPU_LANES;
            if (tiles[i].rows == ALL && tiles[i].columns == ALL)
                transform_inside(pixels, width, plane, to, step);
            else
                transform_edge(pixels, width, plane, &tiles[i], to, step);
        }
}
