// Targets of one record a sample: LMDB databases of Caffe's Datum, and tables as text.
#include "base/module.h"
#include "base/os.h"
#include "data/convert.h"
#include "data/target/target.h"
#include "format/datum.h"
#include "format/lmdb_write/lmdb_write.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 256, BATCH_BYTES = 16 << 20, KEY_BYTES = 24 };

// The entries that are put at a time.
typedef struct lmdb_state {
    const tri_lmdb_write *module;
    tri_lmdb_writer *writer;
    char path[PATH_MAX];
    int count;
    size_t bytes;
    char keys[BATCH][KEY_BYTES];
    tri_lmdb_bytes key[BATCH], value[BATCH]; // values are malloc'ed
} lmdb_state;

static tri_status check_lmdb(const tri_target *target) {
    return tri_target_check_images(target, "lmdb");
}

static tri_status begin_lmdb(tri_target *target, tri_target_mark *mark) {
    lmdb_state *state = TRI_NEW(target->arena, lmdb_state);
    const void *table;
    char why[TRI_LMDB_WRITE_WHY_BYTES], folder[PATH_MAX];
    target->state = state;
    TRI_TRY(tri_module_load("lmdb", TRI_LMDB_WRITE_INTERFACE, TRI_LMDB_WRITE_ABI, &table));
    state->module = table;
    snprintf(folder, sizeof folder, "%s/%s", target->folder, target->split);
    TRI_TRY(tri_os_make_folders(folder));
    snprintf(state->path, sizeof state->path, "%s/%s/data.mdb", target->folder, target->split);
    tri_status status = state->module->open(state->path, &state->writer, why);
    return status == TRI_OK ? TRI_OK : TRI_FAIL(status, "%s: %s", state->path, why);
}

static tri_status put_batch(lmdb_state *state) {
    char why[TRI_LMDB_WRITE_WHY_BYTES];
    tri_status status = state->count == 0 ? TRI_OK
                                          : state->module->put(state->writer, state->key,
                                                               state->value, state->count, why);
    for (int i = 0; i < state->count; i++) free((void *)(uintptr_t)state->value[i].data);
    state->count = 0;
    state->bytes = 0;
    return status == TRI_OK ? TRI_OK : TRI_FAIL(status, "%s: %s", state->path, why);
}

static tri_status put_lmdb(tri_target *target, int64_t sample, const tri_target_value *values) {
    lmdb_state *state = target->state;
    int images = tri_target_find(target, "images");
    const tri_target_field *field = &target->fields[images];
    const tri_target_value *image = &values[images];
    int64_t label = tri_target_label(target, values);
    bool is_encoded = image->encoded != NULL;
    tri_datum datum = {.size = (int64_t)(is_encoded ? image->encoded_bytes : field->bytes),
                       .label = label,
                       .has_label = tri_target_find(target, "labels") != TRI_NO_FIELD,
                       .is_encoded = is_encoded};
    if (datum.has_label && label < 0)
        return TRI_FAIL(TRI_BAD_INPUT, "--to lmdb: sample %lld has no class", (long long)sample);
    if (!is_encoded) {
        datum.channels = field->shape.dims[0];
        datum.height = field->shape.dims[1];
        datum.width = field->shape.dims[2];
    }
    uint8_t head[TRI_DATUM_HEAD_BYTES];
    size_t head_bytes = (size_t)tri_datum_head(&datum, head);
    char *value = malloc(head_bytes + (size_t)datum.size);
    if (!value) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a sample");
    memcpy(value, head, head_bytes);
    memcpy(value + head_bytes, is_encoded ? image->encoded : image->data, (size_t)datum.size);
    int at = state->count++;
    int length = snprintf(state->keys[at], KEY_BYTES, "%09lld", (long long)sample);
    state->key[at] = (tri_lmdb_bytes){state->keys[at], (size_t)length};
    state->value[at] = (tri_lmdb_bytes){value, head_bytes + (size_t)datum.size};
    state->bytes += state->value[at].size;
    return state->count == BATCH || state->bytes > BATCH_BYTES ? put_batch(state) : TRI_OK;
}

static tri_status sync_lmdb(tri_target *target, int64_t samples, tri_target_mark *mark) {
    TRI_TRY(put_batch(target->state));
    mark->samples = samples;
    return TRI_OK;
}

static tri_status end_lmdb(tri_target *target) {
    lmdb_state *state = target->state;
    char why[TRI_LMDB_WRITE_WHY_BYTES];
    TRI_TRY(put_batch(state));
    tri_status status = state->module->sync(state->writer, why);
    return status == TRI_OK ? TRI_OK : TRI_FAIL(status, "%s: %s", state->path, why);
}

static void close_lmdb(tri_target *target) {
    lmdb_state *state = target->state;
    for (int i = 0; state && i < state->count; i++) free((void *)(uintptr_t)state->value[i].data);
    if (state && state->writer) state->module->close(state->writer);
}

static const char *lmdb_value(const tri_target *target) { return target->split; }

const tri_target_kind tri_target_lmdb = {.name = "lmdb",
                                         .keeps_encoded = true,
                                         .may_leave_out = true,
                                         .marks_at = tri_target_marks_at_times,
                                         .check = check_lmdb,
                                         .begin = begin_lmdb,
                                         .put = put_lmdb,
                                         .sync = sync_lmdb,
                                         .end = end_lmdb,
                                         .close = close_lmdb,
                                         .value = lmdb_value};

typedef struct table_state {
    FILE *file;
    char partial[PATH_MAX];
} table_state;

static bool is_number(const tri_target_field *field) {
    return tri_convert_supported(field->dtype, TRI_F32);
}

// A table read by the default of data.fields has one label, or one target, and inputs.
static tri_status check_csv(const tri_target *target) {
    bool has_inputs = false;
    for (int i = 0; i < target->field_count; i++) {
        const tri_target_field *field = &target->fields[i];
        int64_t count = tri_shape_count(&field->shape);
        bool is_inputs = !strcmp(field->name, "inputs") && field->shape.rank == 1;
        bool is_one =
            count == 1 && (!strcmp(field->name, "labels") || !strcmp(field->name, "targets"));
        has_inputs |= is_inputs;
        if ((!is_inputs && !is_one) || field->is_encoded || !is_number(field))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "--to csv: has inputs that are a list of numbers, and one label or "
                            "target: not '%s'",
                            field->name);
    }
    if (has_inputs) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "--to csv: has inputs, and the data have none");
}

static void write_header(const tri_target *target, FILE *file) {
    for (int i = 0; i < target->field_count; i++) {
        const tri_target_field *field = &target->fields[i];
        int64_t count = tri_shape_count(&field->shape);
        bool is_inputs = !strcmp(field->name, "inputs");
        for (int64_t k = 0; k < count; k++) {
            if (i > 0 || k > 0) fputc(',', file);
            if (is_inputs)
                fprintf(file, "x%lld", (long long)k);
            else
                fputs(!strcmp(field->name, "labels") ? "label" : "target", file);
        }
    }
    fputc('\n', file);
}

static tri_status begin_csv(tri_target *target, tri_target_mark *mark) {
    table_state *state = TRI_NEW(target->arena, table_state);
    target->state = state;
    snprintf(state->partial, PATH_MAX, "%s/%s.csv" TRI_TARGET_PART, target->folder, target->split);
    tri_target_check_part(state->partial, mark);
    int fd = tri_os_open_or_create(state->partial, O_RDWR | O_CLOEXEC, 0666);
    if (fd < 0) return tri_os_fail("open", state->partial);
    state->file = fdopen(fd, "wb");
    if (!state->file || tri_os.ftruncate(fd, mark->bytes) < 0 ||
        fseek(state->file, (long)mark->bytes, SEEK_SET) < 0)
        return tri_os_fail("write", state->partial);
    if (mark->bytes == 0) write_header(target, state->file);
    return TRI_OK;
}

static void write_number(FILE *file, tri_dtype dtype, const char *at) {
    float single;
    int64_t whole;
    if (dtype == TRI_F64) {
        double number;
        memcpy(&number, at, sizeof number);
        fprintf(file, "%.17g", number);
    } else if (tri_convert_supported(dtype, TRI_I64)) {
        tri_convert(dtype, at, TRI_I64, &whole, 1);
        fprintf(file, "%lld", (long long)whole);
    } else {
        tri_convert(dtype, at, TRI_F32, &single, 1);
        fprintf(file, "%.9g", (double)single);
    }
}

static tri_status put_csv(tri_target *target, int64_t sample, const tri_target_value *values) {
    const table_state *state = target->state;
    for (int i = 0; i < target->field_count; i++) {
        const tri_target_field *field = &target->fields[i];
        int64_t width = (int64_t)tri_dtype_bytes(field->dtype);
        for (int64_t k = 0; k < tri_shape_count(&field->shape); k++) {
            if (i > 0 || k > 0) fputc(',', state->file);
            write_number(state->file, field->dtype, (const char *)values[i].data + k * width);
        }
    }
    fputc('\n', state->file);
    return ferror(state->file) ? tri_os_fail("write", state->partial) : TRI_OK;
}

static tri_status sync_csv(tri_target *target, int64_t samples, tri_target_mark *mark) {
    const table_state *state = target->state;
    if (fflush(state->file) != 0) return tri_os_fail("write", state->partial);
    mark->samples = samples;
    mark->bytes = ftell(state->file);
    return TRI_OK;
}

static tri_status end_csv(tri_target *target) {
    const table_state *state = target->state;
    if (fflush(state->file) != 0 || tri_os.fsync(fileno(state->file)) < 0)
        return tri_os_fail("write", state->partial);
    return TRI_OK;
}

static void close_csv(tri_target *target) {
    const table_state *state = target->state;
    if (state && state->file) fclose(state->file);
}

static const char *csv_value(const tri_target *target) {
    return tri_arena_printf(target->arena, "%s.csv", target->split);
}

const tri_target_kind tri_target_csv = {.name = "csv",
                                        .may_leave_out = true,
                                        .marks_at = tri_target_marks_at_times,
                                        .check = check_csv,
                                        .begin = begin_csv,
                                        .put = put_csv,
                                        .sync = sync_csv,
                                        .end = end_csv,
                                        .close = close_csv,
                                        .value = csv_value};
