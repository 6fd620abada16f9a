// Keeps the names of classes and columns with a checkpoint, and compares them: see numbering.h.
#include "train/numbering.h"

#include "base/limits.h"
#include "base/log.h"

#include <string.h>

static const char CLASSES[] = "classes", COLUMNS[] = "columns", TOKENIZER[] = "tokenizer",
                  END_MARK[] = "end_mark", STORED[] = "stored", SHAPE[] = "shape",
                  DTYPE[] = "dtype";

static const char *text_of(const tri_tree *node) {
    return node && node->kind == TRI_TREE_SCALAR ? node->text : NULL;
}

// Adds a list of names to a map. Returns how many bytes they have.
static size_t put_names(tri_arena *arena, tri_tree *map, const char *key,
                        const tri_strings *names) {
    size_t bytes = 0;
    bool is_kept = names->count > 0;
    // A checkpoint holds only UTF-8, and would give back other bytes.
    for (int i = 0; is_kept && i < names->count; i++) is_kept = tri_json_is_text(names->items[i]);
    if (!is_kept) return 0;
    tri_tree *list = tri_tree_list(arena);
    for (int i = 0; i < names->count; i++) {
        tri_tree_append(arena, list, tri_tree_string(arena, names->items[i]));
        bytes += strlen(names->items[i]);
    }
    tri_tree_put(arena, map, key, list);
    return bytes;
}

static void put_shape(tri_arena *arena, tri_tree *map, const tri_data_field *field) {
    tri_tree *list = tri_tree_list(arena);
    for (int i = 0; i < field->shape.rank; i++)
        tri_tree_append(arena, list, tri_tree_int(arena, field->shape.dims[i]));
    tri_tree_put(arena, map, SHAPE, list);
    tri_tree_put_string(arena, map, DTYPE, tri_dtype_name(field->dtype));
}

static tri_tree *make_tree(tri_arena *arena, const tri_dataset *data, bool with_names,
                           size_t *bytes) {
    tri_tree *map = tri_tree_map(arena);
    for (int i = 0; i < tri_dataset_field_count(data); i++) {
        const tri_number_names *names = tri_dataset_names(data, i);
        tri_tree *entry = tri_tree_map(arena);
        put_shape(arena, entry, tri_dataset_field(data, i));
        if (with_names) {
            *bytes += put_names(arena, entry, CLASSES, &names->classes);
            *bytes += put_names(arena, entry, COLUMNS, &names->columns);
        }
        if (names->tokenizer) tri_tree_put_string(arena, entry, TOKENIZER, names->tokenizer);
        if (names->end_mark) tri_tree_put_string(arena, entry, END_MARK, names->end_mark);
        if (!strcmp(tri_dataset_field(data, i)->name, "images"))
            tri_tree_put_string(arena, entry, STORED, tri_dtype_name(tri_dataset_stored(data, i)));
        tri_tree_put(arena, map, tri_dataset_field(data, i)->name, entry);
    }
    return map;
}

tri_tree *train_numbering_tree(tri_arena *arena, const tri_dataset *data) {
    size_t bytes = 0;
    tri_tree *map = make_tree(arena, data, true, &bytes);
    return bytes <= TRI_MAX_CHECKPOINT_NAMES ? map : make_tree(arena, data, false, &bytes);
}

int train_numbering_fields(const tri_tree *kept, tri_field *fields, int most) {
    int count = 0;
    for (int i = 0; kept && i < kept->count && count < most; i++) {
        const tri_tree *shape = tri_tree_get(kept->items[i], SHAPE),
                       *dtype = tri_tree_get(kept->items[i], DTYPE);
        tri_field field = {.name = kept->items[i]->key};
        bool is_known = shape && shape->kind == TRI_TREE_LIST && shape->count < TRI_MAX_RANK &&
                        text_of(dtype) && tri_dtype_from_name(text_of(dtype), &field.dtype);
        for (int k = 0; is_known && k < shape->count; k++)
            is_known = tri_tree_to_int(shape->items[k], &field.shape.dims[field.shape.rank++]) &&
                       field.shape.dims[k] > 0;
        if (is_known) fields[count++] = field;
    }
    return count;
}

static tri_strings read_names(tri_arena *arena, const tri_tree *list) {
    int count = list && list->kind == TRI_TREE_LIST ? list->count : 0;
    const char **names = TRI_NEW_ARRAY(arena, const char *, count);
    for (int i = 0; i < count; i++)
        names[i] = list->items[i]->kind == TRI_TREE_SCALAR ? list->items[i]->text : "";
    return (tri_strings){names, count};
}

// What the checkpoint keeps of a field; all empty: nothing.
static tri_number_names kept_of(tri_arena *arena, const tri_tree *kept, const char *field) {
    const tri_tree *entry = tri_tree_get(kept, field);
    return (tri_number_names){.classes = read_names(arena, tri_tree_get(entry, CLASSES)),
                              .columns = read_names(arena, tri_tree_get(entry, COLUMNS)),
                              .tokenizer = text_of(tri_tree_get(entry, TOKENIZER)),
                              .end_mark = text_of(tri_tree_get(entry, END_MARK))};
}

tri_status train_numbering_compare(tri_arena *arena, const tri_tree *kept, const char *path,
                                   const tri_dataset *data, const char *data_name) {
    for (int i = 0; kept && i < tri_dataset_field_count(data); i++) {
        const char *field = tri_dataset_field(data, i)->name;
        if (!tri_tree_get(kept, field)) continue;
        tri_number_names now = *tri_dataset_names(data, i), then = kept_of(arena, kept, field);
        int both = now.classes.count < then.classes.count ? now.classes.count : then.classes.count;
        if (both > 0) now.classes.count = then.classes.count = both;
        TRI_TRY(tri_number_names_compare(field, path, &then, data_name, &now));
    }
    return TRI_OK;
}

static const char *joined(tri_arena *arena, const tri_strings *names) {
    enum { MOST = 8 };
    const char *text = names->items[0];
    for (int i = 1; i < names->count && i < MOST; i++)
        text = tri_arena_printf(arena, "%s, %s", text, names->items[i]);
    return names->count > MOST ? tri_arena_printf(arena, "%s, ...", text) : text;
}

static void warn_of_names(tri_arena *arena, const tri_tree *kept, const char *path,
                          const tri_dataset *data, const char *data_name) {
    for (int i = 0; kept && i < tri_dataset_field_count(data); i++) {
        const char *field = tri_dataset_field(data, i)->name;
        const tri_number_names *now = tri_dataset_names(data, i),
                               then = kept_of(arena, kept, field);
        const char *doubt = tri_number_names_doubt(arena, path, &then, data_name, now);
        if (doubt) tri_log_line(TRI_LOG_WARNING, "%s", doubt);
        if (now->columns_are_chosen && tri_number_names_differ(&then, now))
            tri_log_line(
                TRI_LOG_WARNING,
                "data.fields chooses the columns %s for '%s', but %s was trained on %s: is "
                "this meant?",
                joined(arena, &now->columns), field, path, joined(arena, &then.columns));
    }
}

void train_numbering_warn(tri_arena *arena, const tri_tree *kept, const char *path,
                          const tri_dataset *data, const char *data_name) {
    warn_of_names(arena, kept, path, data, data_name);
    int images = tri_dataset_find(data, "images");
    const tri_tree *then = tri_tree_get(tri_tree_get(kept, "images"), STORED);
    if (images == TRI_NO_FIELD || !then || then->kind != TRI_TREE_SCALAR) return;
    tri_dtype now = tri_dataset_stored(data, images);
    if (!strcmp(then->text, tri_dtype_name(TRI_U8)) == (now == TRI_U8)) return;
    tri_log_line(TRI_LOG_WARNING,
                 "data: the images of %s are %s, those that %s was trained on %s: bytes (U8) are "
                 "divided by 255, other numbers are not",
                 data_name, tri_dtype_name(now), path, then->text);
}
