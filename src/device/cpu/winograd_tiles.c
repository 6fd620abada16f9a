// Cuts images into the tiles of Winograd's convolutions, and transforms the pixels that they read.
#include "device/cpu/winograd_tiles.h"

#include "device/cpu/winograd_transform.h"

enum { ALL = (1 << WINOGRAD_IN) - 1 }; // of the six rows or columns that a tile reads: all

winograd_grid winograd_grid_of(const conv_shape *s, bool grad_input) {
    winograd_grid t = {.n = s->n, .c = grad_input ? s->o : s->c, .o = grad_input ? s->c : s->o};
    for (int i = 0; i < 2; i++) {
        t.in[i] = grad_input ? s->out[i] : s->in[i];
        t.out[i] = grad_input ? s->in[i] : s->out[i];
        t.padding[i] = grad_input ? WINOGRAD_TAPS - 1 - s->padding[i] : s->padding[i];
        t.tiles[i] = (t.out[i] + WINOGRAD_OUT - 1) / WINOGRAD_OUT;
    }
    t.count = t.n * t.tiles[0] * t.tiles[1];
    return t;
}

// Transforms 6×6 pixels of 16 channels, in rows of `width` pixels: v[position · step]. `edge`: only
// the rows and columns of two masks exist, the others count as zeros.
CPU_INLINE void transform_pixels(const float *pixels, int64_t width, bool edge, unsigned rows,
                                 unsigned columns, float *v, int64_t step) {
    __m512 half[WINOGRAD_IN][WINOGRAD_IN];
#pragma GCC unroll 6
    for (int j = 0; j < WINOGRAD_IN; j++) {
        __m512 x[WINOGRAD_IN];
        for (int i = 0; i < WINOGRAD_IN; i++) {
            const float *at = pixels + (i * width + j) * CPU_BLOCK;
            if (edge && !(rows >> i & columns >> j & 1))
                x[i] = _mm512_setzero_ps();
            else
                x[i] = _mm512_loadu_ps(at);
        }
        winograd_pixels(x, 1, half[j]);
    }
#pragma GCC unroll 6
    for (int i = 0; i < WINOGRAD_IN; i++) {
        __m512 y[WINOGRAD_IN];
        winograd_pixels(half[0] + i, WINOGRAD_IN, y);
        for (int j = 0; j < WINOGRAD_IN; j++)
            _mm512_storeu_ps(v + (i * WINOGRAD_IN + j) * step, y[j]);
    }
}

// Which of the six rows or columns from `first` on lie inside of an image: a bit for each.
static unsigned inside_of(int64_t first, int64_t size) {
    unsigned inside = 0;
    for (int i = 0; i < WINOGRAD_IN; i++)
        if (first + i >= 0 && first + i < size) inside |= 1u << i;
    return inside;
}

void winograd_find_tiles(const winograd_grid *t, int64_t first, int64_t count,
                         winograd_tile *tiles) {
    int64_t each = t->tiles[0] * t->tiles[1], image = first / each, inside = first % each;
    int64_t row = inside / t->tiles[1], column = inside % t->tiles[1];
    for (int64_t i = 0; i < count; i++) {
        winograd_tile tile = {image, row * WINOGRAD_OUT, column * WINOGRAD_OUT, 0, 0};
        tile.rows = inside_of(tile.row - t->padding[0], t->in[0]);
        tile.columns = inside_of(tile.column - t->padding[1], t->in[1]);
        tiles[i] = tile;
        if (++column < t->tiles[1]) continue;
        column = 0;
        if (++row < t->tiles[0]) continue;
        row = 0;
        image++;
    }
}

// Two functions, so that the first has registers for all its addresses.
static CPU_AVX512 __attribute__((noinline)) void
transform_inside(const float *pixels, int64_t width, float *v, int64_t step) {
    transform_pixels(pixels, width, false, ALL, ALL, v, step);
}
static CPU_AVX512 __attribute__((noinline)) void transform_edge(const float *pixels, int64_t width,
                                                                const winograd_tile *tile, float *v,
                                                                int64_t step) {
    transform_pixels(pixels, width, true, tile->rows, tile->columns, v, step);
}

CPU_AVX512 void winograd_read_tiles(const winograd_grid *t, const float *x,
                                    const winograd_tile *tiles, int64_t count, float *v,
                                    int64_t room, int64_t step) {
    int64_t plane_floats = t->in[0] * t->in[1] * CPU_BLOCK, blocks = t->c / CPU_BLOCK;
    for (int64_t block = 0; block < blocks; block++)
        for (int64_t i = 0; i < count; i++) {
            int64_t row = tiles[i].row - t->padding[0], width = t->in[1];
            int64_t column = tiles[i].column - t->padding[1];
            const float *plane = x + (tiles[i].image * blocks + block) * plane_floats;
            const float *pixels = plane + (row * width + column) * CPU_BLOCK;
            float *to = v + (block * room + i) * CPU_BLOCK;
            if (tiles[i].rows == ALL && tiles[i].columns == ALL)
                transform_inside(pixels, width, to, step);
            else
                transform_edge(pixels, width, &tiles[i], to, step);
        }
}
