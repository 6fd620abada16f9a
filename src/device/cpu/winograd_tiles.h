// The tiles into which Winograd's convolutions cut images, and the transform of their pixels.
#ifndef TRIREME_DEVICE_CPU_WINOGRAD_TILES_H
#define TRIREME_DEVICE_CPU_WINOGRAD_TILES_H

#include "device/cpu/conv.h"

// A correlation that makes y [n, o, out] of x [n, c, in], and the tiles of 4×4 pixels into which it
// cuts y. Tiles are numbered over all images. Arrays hold the height's value and the width's.
typedef struct winograd_grid {
    bool bf16; // x and y are BF16, else F32
    int64_t n, c, o, in[2], out[2], padding[2];
    int64_t tiles[2]; // how many tiles one image has, along its height and its width
    int64_t count;    // how many tiles all images have
} winograd_grid;

// The correlation of a convolution or, if `grad_input`, of the gradient of its input: x is then dy,
// padded by 2 − padding, and y is dx.
winograd_grid winograd_grid_of(const conv_shape *s, bool grad_input);

// Where a tile lies: its image, row and column of its first pixel of y, and which of the six rows
// and columns of x that it reads lie in the image (a bit for each).
typedef struct winograd_tile {
    int64_t image, row, column;
    unsigned rows, columns;
} winograd_tile;

// Finds where `count` tiles lie, from the tile with number `first` on.
void winograd_find_tiles(const winograd_grid *grid, int64_t first, int64_t count,
                         winograd_tile *tiles);

// Transforms the 6×6 pixels d that each of `count` tiles reads: Bᵀ d B (winograd_transform.h), 36
// numbers (positions) for each tile and channel. With L lanes (CPU_LANES), writes those of tile i
// and channel c to v[position · step + (c / L · room + i) · L + c % L]. `room`: for how many tiles
// v has memory.
void winograd_read_tiles_avx512(const winograd_grid *grid, const void *x,
                                const winograd_tile *tiles, int64_t count, float *v, int64_t room,
                                int64_t step);
void winograd_read_tiles_avx2(const winograd_grid *grid, const void *x, const winograd_tile *tiles,
                              int64_t count, float *v, int64_t room, int64_t step);

// The distance in floats from one position to the next, for `room` tiles of `channels` channels. A
// distance that is a multiple of 4096 bytes would put all 36 positions of a tile into the same set
// of the L1 cache, which holds fewer; so CPU_BLOCK floats are added.
static inline int64_t winograd_step(int64_t room, int64_t channels) {
    return room * channels + CPU_BLOCK;
}

#endif
