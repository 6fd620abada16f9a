// Parses, prints and compares values of data.shapes, by which a recipe declares the shapes of one
// stored sample.
#include "data/shapes.h"

#include "data/transform/transform.h"

#include <string.h>

// Height and width of images, where they differ from image to image.
static bool may_vary(const tri_tree *entry, int axis, int64_t size) {
    return size == TRI_ANY_SIZE && axis > 0 && entry->count == 3 && !strcmp(entry->key, "images");
}

static tri_status read_entry(const tri_tree *entry, tri_shape *out) {
    if (entry->kind != TRI_TREE_LIST)
        return tri_tree_fail(
            entry, "'data.shapes.%s' has to be a list of sizes such as [3, 32, 32]", entry->key);
    if (entry->count > TRI_MAX_RANK - 1)
        return tri_tree_fail(entry, "'data.shapes.%s' has %d sizes; at most %d are supported",
                             entry->key, entry->count, TRI_MAX_RANK - 1);
    out->rank = entry->count;
    for (int i = 0; i < entry->count; i++)
        if (!tri_tree_to_int(entry->items[i], &out->dims[i]) ||
            (out->dims[i] < 1 && !may_vary(entry, i, out->dims[i])) ||
            out->dims[i] > TRI_MAX_SAMPLE_ELEMENTS)
            return tri_tree_fail(entry,
                                 "'data.shapes.%s' has to be a list of whole numbers from 1 "
                                 "to %d",
                                 entry->key, TRI_MAX_SAMPLE_ELEMENTS);
    return TRI_OK;
}

tri_status tri_shapes_read(const tri_tree *tree, tri_shapes *out) {
    *out = (tri_shapes){0};
    if (tri_tree_is_null(tree)) return TRI_OK;
    if (tree->kind != TRI_TREE_MAP || tree->count == 0 || tree->count > TRI_MAX_DATA_FIELDS)
        return tri_tree_fail(tree, "'data.shapes' has to be a map from fields to the sizes of one "
                                   "sample: {images: [3, 32, 32], labels: []}");
    for (int i = 0; i < tree->count; i++) {
        out->names[i] = tree->items[i]->key;
        TRI_TRY(read_entry(tree->items[i], &out->shapes[i]));
    }
    out->count = tree->count;
    return TRI_OK;
}

const char *tri_shapes_text(tri_arena *arena, const tri_shapes *shapes) {
    const char *text = "{";
    for (int i = 0; i < shapes->count; i++) {
        text = tri_arena_printf(arena, "%s%s%s: [", text, i ? ", " : "", shapes->names[i]);
        for (int axis = 0; axis < shapes->shapes[i].rank; axis++)
            text = tri_arena_printf(arena, "%s%s%lld", text, axis ? ", " : "",
                                    (long long)shapes->shapes[i].dims[axis]);
        text = tri_arena_printf(arena, "%s]", text);
    }
    return tri_arena_printf(arena, "%s}", text);
}

bool tri_shapes_equal(const tri_shapes *a, const tri_shapes *b) {
    if (a->count != b->count) return false;
    for (int i = 0; i < a->count; i++) {
        int k = 0;
        while (k < b->count && strcmp(a->names[i], b->names[k]) != 0) k++;
        if (k == b->count || !tri_shape_equal(&a->shapes[i], &b->shapes[k])) return false;
    }
    return true;
}

void tri_shapes_keep(tri_shapes *shapes, const tri_shapes *found) {
    int kept = 0;
    for (int i = 0; i < shapes->count; i++) {
        bool is_found = false;
        for (int k = 0; k < found->count; k++)
            is_found |= !strcmp(shapes->names[i], found->names[k]);
        if (!is_found) continue;
        shapes->names[kept] = shapes->names[i];
        shapes->shapes[kept++] = shapes->shapes[i];
    }
    shapes->count = kept;
}
