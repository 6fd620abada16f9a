// Computes offsets in blocked layouts, and copies between such layouts and row-major order
// ("plain"). A blocked layout cuts some axes into blocks of fixed size, which lie innermost in
// memory; layout.h describes it.
#include "tensor/layout.h"

#include <stdio.h>
#include <string.h>

bool tri_layout_is_plain(const tri_layout *layout) {
    if (layout->block_count) return false;
    bool all_zero = true, ascending = true;
    for (int i = 0; i < TRI_MAX_RANK; i++) {
        all_zero = all_zero && layout->order[i] == 0;
        ascending = ascending && (layout->order[i] == i || layout->order[i] == 0);
    }
    return all_zero || ascending;
}

bool tri_layout_equal(const tri_layout *a, const tri_layout *b) {
    if (tri_layout_is_plain(a) && tri_layout_is_plain(b)) return true;
    if (a->block_count != b->block_count) return false;
    for (int i = 0; i < a->block_count; i++)
        if (a->block_axis[i] != b->block_axis[i] || a->block_size[i] != b->block_size[i])
            return false;
    return !memcmp(a->order, b->order, sizeof a->order);
}

tri_layout tri_layout_transposed(const tri_layout *layout) {
    tri_layout out = *layout;
    bool row_major = layout->order[0] == layout->order[1];
    out.order[0] = row_major ? 1 : 1 - layout->order[0];
    out.order[1] = 1 - out.order[0];
    for (int i = 0; i < out.block_count; i++) out.block_axis[i] = 1 - out.block_axis[i];
    return out;
}

// The strides of a layout, in elements. For example, for [N, C, H, W] in nChw16c, `outer` of axis 1
// is H · W · 16, the distance from one block of channels to the next, `block` of axis 1 is 16, and
// `inner` of its only block is 1, the distance from channel to channel inside the block.
typedef struct layout_strides {
    // Stride from one block of the axis to the next; of an axis without blocks, from one index to
    // the next.
    int64_t outer[TRI_MAX_RANK];
    int64_t block[TRI_MAX_RANK];   // product of the axis's block sizes; 1: the axis has no blocks
    int64_t inner[TRI_MAX_BLOCKS]; // stride of each inner block
    int64_t elements;
} layout_strides;

static layout_strides strides_of(const tri_layout *layout, const tri_shape *shape) {
    layout_strides s = {.elements = 1};
    for (int i = 0; i < shape->rank; i++) s.block[i] = 1;
    for (int i = layout->block_count - 1; i >= 0; i--) {
        s.inner[i] = s.elements;
        s.elements *= layout->block_size[i];
        s.block[layout->block_axis[i]] *= layout->block_size[i];
    }
    bool row_major = true;
    for (int i = 0; i < shape->rank; i++) row_major = row_major && layout->order[i] == 0;
    for (int i = shape->rank - 1; i >= 0; i--) {
        int axis = row_major ? i : layout->order[i];
        s.outer[axis] = s.elements;
        s.elements *= (shape->dims[axis] + s.block[axis] - 1) / s.block[axis];
    }
    return s;
}

int64_t tri_layout_elements(const tri_layout *layout, const tri_shape *shape) {
    return strides_of(layout, shape).elements;
}

// Computes what an axis adds to the offset of an element that has this index along the axis. The
// element's offset is the sum over all axes. If an axis is cut into blocks more than once, the
// index is split from the innermost block outwards, as a number into its digits.
static int64_t axis_offset(const tri_layout *layout, const layout_strides *s, int axis,
                           int64_t index) {
    int64_t offset = index / s->block[axis] * s->outer[axis], rest = index % s->block[axis];
    for (int i = layout->block_count - 1; i >= 0; i--) {
        if (layout->block_axis[i] != axis) continue;
        offset += rest % layout->block_size[i] * s->inner[i];
        rest /= layout->block_size[i];
    }
    return offset;
}

int64_t tri_layout_offset(const tri_layout *layout, const tri_shape *shape, const int64_t *index) {
    layout_strides s = strides_of(layout, shape);
    int64_t offset = 0;
    for (int i = 0; i < shape->rank; i++) offset += axis_offset(layout, &s, i, index[i]);
    return offset;
}

char *tri_layout_text(const tri_layout *layout, const tri_shape *shape, char *out, size_t size) {
    if (tri_layout_is_plain(layout)) {
        snprintf(out, size, "plain");
        return out;
    }
    bool blocked[TRI_MAX_RANK] = {false}, row_major = true;
    for (int i = 0; i < layout->block_count; i++) blocked[layout->block_axis[i]] = true;
    for (int i = 0; i < shape->rank; i++) row_major = row_major && layout->order[i] == 0;
    size_t used = 0;
    for (int i = 0; i < shape->rank && used + 1 < size; i++) {
        int axis = row_major ? i : layout->order[i];
        out[used++] = (char)((blocked[axis] ? 'A' : 'a') + axis);
    }
    out[used] = 0;
    for (int i = 0; i < layout->block_count && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%d%c", layout->block_size[i],
                                 'a' + layout->block_axis[i]);
    return out;
}

// The offsets of elements along the last axis, computed once so that copies need no divisions.
// offsets[i] is the offset of index i, for i below `period`. From there on the pattern repeats: the
// offset of index i + period is the offset of index i, plus `step`.
enum { KNOWN_OFFSETS = 1024 };
typedef struct last_axis {
    int64_t period, step;
    int64_t offsets[KNOWN_OFFSETS];
} last_axis;

// Computes them as far as indices below `end` need them.
static void know_last_axis(const tri_layout *layout, const tri_shape *shape,
                           const layout_strides *s, int64_t end, last_axis *out) {
    int last = shape->rank - 1;
    int64_t block = s->block[last];
    TRI_ASSERT(block <= KNOWN_OFFSETS);
    out->period = KNOWN_OFFSETS / block * block;
    out->step = axis_offset(layout, s, last, out->period);
    for (int64_t i = 0; i < out->period && i < shape->dims[last] && i < end; i++)
        out->offsets[i] = axis_offset(layout, s, last, i);
}

// Copies `count` elements between `plain`, where they lie one after the other, and `memory`, where
// element i lies at offsets[i].
static void copy_run(char *memory, char *plain, const int64_t *offsets, int64_t count, size_t bytes,
                     bool to_plain) {
    for (int64_t i = 0; i < count; i++) {
        char *at = memory + offsets[i] * (int64_t)bytes, *element = plain + i * (int64_t)bytes;
        if (bytes == 4) // a constant size, for which the compiler makes one move
            memcpy(to_plain ? element : at, to_plain ? at : element, 4);
        else
            memcpy(to_plain ? element : at, to_plain ? at : element, bytes);
    }
}

// Copies `rows` whole rows of a matrix of 4-byte elements whose columns lie one after the other in
// `memory`, `height` elements apart. A few rows at a time, because whole lines of memory are read
// and written then.
static void copy_rows(char *memory, char *plain, int64_t rows, int64_t columns, int64_t height,
                      bool to_plain) {
    enum { AT_ONCE = 16 };
    for (int64_t row = 0, some; row < rows; row += some) {
        some = rows - row < AT_ONCE ? rows - row : AT_ONCE;
        for (int64_t j = 0; j < columns; j++)
            for (int64_t i = row; i < row + some; i++) {
                char *at = memory + (j * height + i) * 4, *element = plain + (i * columns + j) * 4;
                memcpy(to_plain ? element : at, to_plain ? at : element, 4);
            }
    }
}

static bool lies_by_columns(const tri_layout *layout, const tri_shape *shape) {
    return shape->rank == 2 && layout->block_count == 0 && layout->order[0] == 1;
}

static void copy_elements(const tri_layout *layout, const tri_shape *shape, size_t bytes,
                          char *memory, char *plain, int64_t first, int64_t count, bool to_plain) {
    if (tri_layout_is_plain(layout)) {
        char *at = memory + (size_t)first * bytes;
        memcpy(to_plain ? plain : at, to_plain ? at : plain, (size_t)count * bytes);
        return;
    }
    layout_strides s = strides_of(layout, shape);
    last_axis known;
    int last = shape->rank - 1;
    know_last_axis(layout, shape, &s, first % shape->dims[last] + count, &known);
    int64_t index[TRI_MAX_RANK] = {0}, at[TRI_MAX_RANK] = {0}, rest = first;
    for (int i = last; i >= 0; i--) {
        index[i] = rest % shape->dims[i];
        rest /= shape->dims[i];
        at[i] = axis_offset(layout, &s, i, index[i]);
    }
    while (count > 0) {
        if (index[last] == 0 && bytes == 4 && lies_by_columns(layout, shape)) {
            int64_t columns = shape->dims[1], rows = count / columns;
            copy_rows(memory + at[0] * 4, plain, rows, columns, shape->dims[0], to_plain);
            plain += rows * columns * 4;
            count -= rows * columns;
            index[0] += rows;
            at[0] = index[0];
            if (count == 0) return;
        }
        int64_t from = index[last] % known.period, some = known.period - from;
        if (some > shape->dims[last] - index[last]) some = shape->dims[last] - index[last];
        if (some > count) some = count;
        int64_t base = index[last] / known.period * known.step;
        for (int i = 0; i < last; i++) base += at[i];
        copy_run(memory + base * (int64_t)bytes, plain, known.offsets + from, some, bytes,
                 to_plain);
        plain += some * (int64_t)bytes;
        count -= some;
        index[last] += some;
        for (int i = last; i > 0 && index[i] == shape->dims[i]; i--) {
            index[i] = 0;
            index[i - 1]++;
            at[i] = 0;
            at[i - 1] = axis_offset(layout, &s, i - 1, index[i - 1]);
        }
    }
}

void tri_layout_to_plain(const tri_layout *layout, const tri_shape *shape, size_t element_bytes,
                         const void *from, void *plain, int64_t first, int64_t count) {
    copy_elements(layout, shape, element_bytes, (char *)from, plain, first, count, true);
}

void tri_layout_from_plain(const tri_layout *layout, const tri_shape *shape, size_t element_bytes,
                           const void *plain, void *to, int64_t first, int64_t count) {
    copy_elements(layout, shape, element_bytes, to, (char *)plain, first, count, false);
}
