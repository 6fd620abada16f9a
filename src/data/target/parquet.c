// The target parquet: files of 10,000 rows, a column for each field. Image files are stored as
// Hugging Face's data sets have them, all else as numbers or lists of numbers.
#include "data/parquet.h"

#include "base/os.h"
#include "data/target/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP_ROWS = 4096, GROUP_BYTES = 16 << 20 };

typedef struct parquet_state {
    const tri_parquet *module;
    tri_parquet_column columns[TRI_MAX_DATA_FIELDS];
    // The file that is being written. It has its name once it is complete.
    tri_parquet_writer *writer; // NULL: there is none
    tri_os_replacement replacement;
    char path[PATH_MAX];
    // The rows of the next group, by column: numbers, or bytes and where they begin.
    tri_parquet_cells cells[TRI_MAX_DATA_FIELDS];
    int64_t used[TRI_MAX_DATA_FIELDS], room[TRI_MAX_DATA_FIELDS];
    int64_t rows, bytes; // bytes: of all columns
} parquet_state;

static tri_status fail(const parquet_state *state, tri_status status, const char *why) {
    return TRI_FAIL(status, "%s: %s", state->path, why);
}

static tri_status check_parquet(const tri_target *target) {
    const tri_parquet *module;
    for (int i = 0; i < target->field_count; i++)
        if (target->fields[i].dtype == TRI_BF16)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "--to parquet: the format has no BF16, as which '%s' is "
                            "stored",
                            target->fields[i].name);
    return tri_data_parquet_load("--to parquet", &module);
}

static tri_status begin_parquet(tri_target *target, tri_target_mark *mark) {
    parquet_state *state = TRI_NEW(target->arena, parquet_state);
    target->state = state;
    for (int i = 0; i < target->field_count; i++) {
        const tri_target_field *field = &target->fields[i];
        state->columns[i] = (tri_parquet_column){.name = field->name,
                                                 .type = field->is_encoded ? TRI_PARQUET_IMAGE
                                                                           : TRI_PARQUET_NUMBERS,
                                                 .dtype = field->dtype,
                                                 .shape = field->shape};
        if (field->is_encoded)
            state->cells[i].offsets = TRI_NEW_ARRAY(target->arena, int64_t, GROUP_ROWS + 1);
    }
    return tri_data_parquet_load("--to parquet", &state->module);
}

static tri_status write_group(parquet_state *state, int columns) {
    char why[TRI_PARQUET_WHY_BYTES];
    if (state->rows == 0) return TRI_OK;
    for (int i = 0; i < columns; i++) {
        state->cells[i].rows = state->rows;
        if (state->cells[i].offsets) state->cells[i].offsets[state->rows] = state->used[i];
    }
    tri_status status = state->module->write(state->writer, state->cells, why);
    state->rows = state->bytes = 0;
    memset(state->used, 0, sizeof state->used);
    return status == TRI_OK ? TRI_OK : fail(state, status, why);
}

static tri_status begin_file(tri_target *target, int64_t sample) {
    parquet_state *state = target->state;
    char why[TRI_PARQUET_WHY_BYTES];
    tri_target_shard(target, sample, "parquet", state->path);
    TRI_TRY(tri_os_replacement_begin(state->path, &state->replacement));
    tri_status status = state->module->create(state->replacement.fd, state->columns,
                                              target->field_count, &state->writer, why);
    if (status == TRI_OK) return TRI_OK;
    return tri_os_replacement_end(&state->replacement, fail(state, status, why));
}

static tri_status end_file(tri_target *target, tri_status status) {
    parquet_state *state = target->state;
    char why[TRI_PARQUET_WHY_BYTES];
    if (!state->writer) return status;
    if (status == TRI_OK) status = write_group(state, target->field_count);
    if (status == TRI_OK) {
        status = state->module->finish(state->writer, why);
        if (status != TRI_OK) status = fail(state, status, why);
    }
    state->module->release(state->writer);
    state->writer = NULL;
    return tri_os_replacement_end(&state->replacement, status);
}

static tri_status append(parquet_state *state, int column, const void *data, size_t size) {
    int64_t needed = state->used[column] + (int64_t)size;
    if (needed > state->room[column]) {
        int64_t room = needed > 2 * state->room[column] ? needed : 2 * state->room[column];
        void *grown = realloc(state->cells[column].data, (size_t)room);
        if (!grown) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a row group");
        state->cells[column].data = grown;
        state->room[column] = room;
    }
    if (state->cells[column].offsets)
        state->cells[column].offsets[state->rows] = state->used[column];
    if (size > 0) memcpy((char *)state->cells[column].data + state->used[column], data, size);
    state->used[column] = needed;
    state->bytes += (int64_t)size;
    return TRI_OK;
}

static tri_status put_parquet(tri_target *target, int64_t sample, const tri_target_value *values) {
    parquet_state *state = target->state;
    if (!state->writer) TRI_TRY(begin_file(target, sample));
    for (int i = 0; i < target->field_count; i++) {
        bool is_file = state->cells[i].offsets != NULL;
        TRI_TRY(append(state, i, is_file ? values[i].encoded : values[i].data,
                       is_file ? values[i].encoded_bytes : target->fields[i].bytes));
    }
    state->rows++;
    bool is_full = state->rows == GROUP_ROWS || state->bytes >= GROUP_BYTES;
    return is_full ? write_group(state, target->field_count) : TRI_OK;
}

// Only whole files stay after a kill.
static tri_status sync_parquet(tri_target *target, int64_t samples, tri_target_mark *mark) {
    if (!tri_target_is_shard_end(samples)) return TRI_OK;
    TRI_TRY(end_file(target, TRI_OK));
    mark->samples = samples;
    return TRI_OK;
}

static tri_status end_parquet(tri_target *target) { return end_file(target, TRI_OK); }

static void close_parquet(tri_target *target) {
    parquet_state *state = target->state;
    (void)end_file(target, TRI_IO); // what is not complete is removed
    for (int i = 0; i < TRI_MAX_DATA_FIELDS; i++) free(state->cells[i].data);
}

static const char *parquet_value(const tri_target *target) {
    return tri_target_shards(target, "parquet");
}

const tri_target_kind tri_target_parquet = {.name = "parquet",
                                            .keeps_encoded = true,
                                            .may_leave_out = true,
                                            .marks_at = tri_target_is_shard_end,
                                            .check = check_parquet,
                                            .begin = begin_parquet,
                                            .put = put_parquet,
                                            .sync = sync_parquet,
                                            .end = end_parquet,
                                            .close = close_parquet,
                                            .value = parquet_value,
                                            .keys = tri_target_fields};
