// Where the elements of a tensor lie in memory: plain (row-major) or blocked.
//
// A blocked layout cuts some axes into blocks of fixed size, pads them to whole blocks, orders the
// outer axes in any way and puts the blocks innermost. That covers the formats of oneDNN that have
// no extra data (nChw16c, OIhw16i16o, Ohwi16o, …). tri_layout follows oneDNN's "blocking desc".
#ifndef TRIREME_TENSOR_LAYOUT_H
#define TRIREME_TENSOR_LAYOUT_H

#include "base/status.h"

#include <trireme/tensor.h>

enum { TRI_MAX_BLOCKS = 3 };

typedef struct tri_layout {
    int block_count;                // 0: no inner blocks
    int block_axis[TRI_MAX_BLOCKS]; // by inner block, the outermost first: the axis that it cuts
    int block_size[TRI_MAX_BLOCKS];
    // The axes from the outermost to the innermost, blocks left out; all 0: row-major.
    int8_t order[TRI_MAX_RANK];
} tri_layout;

// The zero value is the plain layout: row-major, no padding.
static const tri_layout TRI_LAYOUT_PLAIN = {0};

bool tri_layout_is_plain(const tri_layout *layout);
bool tri_layout_equal(const tri_layout *a, const tri_layout *b);
// The layout of a matrix whose transpose lies in `layout`: the same memory with its axes exchanged.
tri_layout tri_layout_transposed(const tri_layout *layout);
// How many elements of memory a tensor takes, padding included.
int64_t tri_layout_elements(const tri_layout *layout, const tri_shape *shape);
// Computes the offset, in elements, of the element at `index` (shape->rank numbers).
int64_t tri_layout_offset(const tri_layout *layout, const tri_shape *shape, const int64_t *index);
// Writes "plain", or a text in oneDNN's style such as "aBcd16b", into `out` and returns it.
char *tri_layout_text(const tri_layout *layout, const tri_shape *shape, char *out, size_t size);

// Copy `count` elements of `element_bytes` bytes each, in row-major order from element `first`,
// between plain memory and a tensor in `layout`. Padding is not touched, so that it stays zero.
// `plain` points to element `first`, so that a large tensor can be copied in chunks through a small
// buffer.
void tri_layout_to_plain(const tri_layout *layout, const tri_shape *shape, size_t element_bytes,
                         const void *from, void *plain, int64_t first, int64_t count);
void tri_layout_from_plain(const tri_layout *layout, const tri_shape *shape, size_t element_bytes,
                           const void *plain, void *to, int64_t first, int64_t count);

#endif
