// Reads the documents of Parquet files: the texts of the column data.field, a row group at a time.
#include "base/option.h"
#include "base/os.h"
#include "data/pack_lines.h"
#include "data/parquet.h"

#include <string.h>

typedef struct row_source {
    const tri_parquet *module;
    tri_parquet_file *file;
    const char *path;
    int column;
} row_source;

static tri_status find_column(row_source *s, tri_arena *arena, const char *name) {
    int count = s->module->columns(s->file);
    const char **names = TRI_NEW_ARRAY(arena, const char *, count + 1);
    for (s->column = 0; s->column < count; s->column++) {
        names[s->column] = s->module->name(s->file, s->column);
        if (!strcmp(names[s->column], name)) return TRI_OK;
    }
    const char *nearest = tri_option_nearest(name, names, count);
    return TRI_FAIL(TRI_BAD_INPUT, "%s: has no column '%s' (data.field)%s%s%s", s->path, name,
                    nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

static tri_status pack_group(pack_lines *pack, const row_source *s, int group) {
    tri_parquet_cells cells;
    char why[TRI_PARQUET_WHY_BYTES];
    double done = (double)group / s->module->groups(s->file);
    tri_status status = s->module->read_text(s->file, group, s->column, &cells, why);
    if (status == TRI_UNSUPPORTED) status = TRI_BAD_INPUT; // as the recipe names another column
    if (status != TRI_OK)
        return TRI_FAIL(status, "%s: column '%s', row group %d: %s", s->path, pack->options->field,
                        group, why);
    const char *texts = cells.data;
    for (int64_t i = 0; i < cells.rows && status == TRI_OK; i++) {
        size_t size = (size_t)(cells.offsets[i + 1] - cells.offsets[i]);
        status = cells.is_missing && cells.is_missing[i]
                     ? pack_lines_add_missing(pack, s->path, done)
                     : pack_lines_add(pack, s->path, texts + cells.offsets[i], size, done);
    }
    s->module->free_cells(&cells);
    return status;
}

static tri_status pack_groups(pack_lines *pack, row_source *s) {
    tri_arena *arena = tri_arena_create(NULL, "columns");
    tri_status status = find_column(s, arena, pack->options->field);
    tri_arena_destroy(arena);
    pack_lines_begin_file(pack, 0);
    for (int i = 0; i < s->module->groups(s->file) && status == TRI_OK; i++)
        status = pack_group(pack, s, i);
    return status == TRI_OK ? pack_lines_end_file(pack, s->path) : status;
}

tri_status pack_rows_file(pack_lines *pack, const char *path) {
    row_source source = {.path = path};
    TRI_TRY(tri_data_parquet_load("data.name=parquet", &source.module));
    TRI_TRY(tri_data_parquet_open(source.module, path, &source.file));
    tri_status status = pack_groups(pack, &source);
    source.module->close(source.file);
    return status;
}
