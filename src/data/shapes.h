// data.shapes: the shapes of one stored sample, which a recipe can declare for commands that do not
// open the data. When the data are opened, they are checked against it.
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

// Reads a map such as {images: [3, 32, 32], labels: []}. TRI_BAD_INPUT: the message names file and
// line. Names point into `tree` and are not checked.
tri_status tri_shapes_read(const tri_tree *tree, tri_shapes *out);
// Formats the shapes as a recipe writes them.
const char *tri_shapes_text(tri_arena *arena, const tri_shapes *shapes);
// Leaves out of `shapes` the fields that `found` does not have.
void tri_shapes_keep(tri_shapes *shapes, const tri_shapes *found);
// True if both have the same names and shapes, in any order.
bool tri_shapes_equal(const tri_shapes *a, const tri_shapes *b);

#endif
