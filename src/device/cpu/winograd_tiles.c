// Cuts images into the tiles of Winograd's convolutions.
#include "device/cpu/winograd_tiles.h"

#include "device/cpu/winograd_transform.h"

winograd_grid winograd_grid_of(const conv_shape *s, bool grad_input) {
    winograd_grid t = {.n = s->n, .c = grad_input ? s->o : s->c, .o = grad_input ? s->c : s->o};
    t.bf16 = s->dtype == TRI_BF16;
    for (int i = 0; i < 2; i++) {
        t.in[i] = grad_input ? s->out[i] : s->in[i];
        t.out[i] = grad_input ? s->in[i] : s->out[i];
        t.padding[i] = grad_input ? WINOGRAD_TAPS - 1 - s->padding[i] : s->padding[i];
        t.tiles[i] = (t.out[i] + WINOGRAD_OUT - 1) / WINOGRAD_OUT;
    }
    t.count = t.n * t.tiles[0] * t.tiles[1];
    return t;
}

// Which of the six rows (or columns) from number `first` on lie inside an image of `size` rows: a
// bit for each.
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
