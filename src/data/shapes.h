// data.shapes: what one stored sample looks like, said in the recipe, for commands that do not open
// the data. Opening them checks that it is true.
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

// {images: [3, 32, 32], labels: []}. TRI_BAD_INPUT with file and line. Names are borrowed and not
// checked.
tri_status tri_shapes_read(const tri_tree *tree, tri_shapes *out);
// As it is written in a recipe.
const char *tri_shapes_text(tri_arena *arena, const tri_shapes *shapes);
bool tri_shapes_equal(const tri_shapes *a, const tri_shapes *b); // in any order of names

#endif
