// data.shapes: the shapes of one stored sample as the recipe declares them, for commands that do
// not open the data. Opening the data checks them.
#ifndef TRIREME_DATA_SHAPES_H
#define TRIREME_DATA_SHAPES_H

#include "base/limits.h"
#include "base/tree.h"

#include <trireme/tensor.h>

typedef struct tri_shapes {
    int count;
    const char *names[TRI_MAX_DATA_FIELDS];
    tri_shape shapes[TRI_MAX_DATA_FIELDS];
} tri_shapes;

// Reads {images: [3, 32, 32], labels: []}. TRI_BAD_INPUT with file and line. Names are borrowed
// from `tree` and not checked.
tri_status tri_shapes_read(const tri_tree *tree, tri_shapes *out);
// Formats the shapes as a recipe writes them.
const char *tri_shapes_text(tri_arena *arena, const tri_shapes *shapes);
// True if both have the same names and shapes, in any order.
bool tri_shapes_equal(const tri_shapes *a, const tri_shapes *b);

#endif
