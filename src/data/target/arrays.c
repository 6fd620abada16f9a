// Targets of arrays whose first axis is the sample: npy, tensors and hdf5. The files have their
// whole size from the beginning, and each sample is written to its place in them.
#include "base/module.h"
#include "base/os.h"
#include "data/target/target.h"
#include "format/hdf5/hdf5.h"
#include "format/safetensors.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NPY_HEADER_BYTES = 128 };

// By field: its file, and where in it the first sample lies.
typedef struct array_state {
    char partial[TRI_MAX_DATA_FIELDS][PATH_MAX], paths[TRI_MAX_DATA_FIELDS][PATH_MAX];
    int fds[TRI_MAX_DATA_FIELDS];
    int64_t offsets[TRI_MAX_DATA_FIELDS];
    int file_count; // 1: all fields lie in one file
} array_state;

static tri_status check_any(const tri_target *target) { return TRI_OK; }

static tri_shape shape_of(const tri_target *target, int field) {
    const tri_shape *sample = &target->fields[field].shape;
    tri_shape shape = {.rank = sample->rank + 1, .dims = {target->samples}};
    for (int i = 0; i < sample->rank; i++) shape.dims[i + 1] = sample->dims[i];
    return shape;
}

// Names the files, which have another name until they are complete, and opens those that exist.
static tri_status begin(tri_target *target, bool is_one, const char *suffix) {
    array_state *state = TRI_NEW(target->arena, array_state);
    target->state = state;
    state->file_count = is_one ? 1 : target->field_count;
    for (int i = 0; i < TRI_MAX_DATA_FIELDS; i++) state->fds[i] = -1;
    for (int i = 0; i < state->file_count; i++) {
        snprintf(state->paths[i], PATH_MAX, "%s/%s%s%s.%s", target->folder, target->split,
                 is_one ? "" : "-", is_one ? "" : target->fields[i].name, suffix);
        snprintf(state->partial[i], PATH_MAX, "%.*s.part", PATH_MAX - 8, state->paths[i]);
    }
    return TRI_OK;
}

static tri_status open_files(tri_target *target) {
    array_state *state = target->state;
    for (int i = 0; i < state->file_count; i++) {
        state->fds[i] = tri_os_open_or_create(state->partial[i], O_RDWR | O_CLOEXEC, 0666);
        if (state->fds[i] < 0) return tri_os_fail("open", state->partial[i]);
    }
    return TRI_OK;
}

static tri_status set_size(const array_state *state, int file, int64_t bytes) {
    if (tri_os.ftruncate(state->fds[file], bytes) == 0) return TRI_OK;
    return tri_os_fail("write", state->partial[file]);
}

// NumPy's name of a type; NULL: it has none.
static const char *npy_type(tri_dtype dtype) {
    switch (dtype) {
    case TRI_BOOL:
        return "|b1";
    case TRI_U8:
        return "|u1";
    case TRI_I8:
        return "|i1";
    case TRI_U16:
        return "<u2";
    case TRI_I16:
        return "<i2";
    case TRI_U32:
        return "<u4";
    case TRI_I32:
        return "<i4";
    case TRI_U64:
        return "<u8";
    case TRI_I64:
        return "<i8";
    case TRI_F16:
        return "<f2";
    case TRI_F32:
        return "<f4";
    case TRI_F64:
        return "<f8";
    default:
        return NULL;
    }
}

static tri_status check_npy(const tri_target *target) {
    for (int i = 0; i < target->field_count; i++)
        if (!npy_type(target->fields[i].dtype))
            return TRI_FAIL(TRI_BAD_INPUT, "--to npy: NumPy has no type %s",
                            tri_dtype_name(target->fields[i].dtype));
    return TRI_OK;
}

static tri_status begin_npy(tri_target *target, const tri_target_mark *mark) {
    TRI_TRY(begin(target, false, "npy"));
    array_state *state = target->state;
    TRI_TRY(open_files(target));
    for (int i = 0; i < target->field_count; i++) {
        tri_shape shape = shape_of(target, i);
        char header[NPY_HEADER_BYTES + 1], *text = header + 10;
        memset(header, ' ', sizeof header);
        memcpy(header, "\x93NUMPY\1\0\x76\0", 10); // version 1, and 118 bytes follow
        int at = snprintf(text, NPY_HEADER_BYTES - 10,
                          "{'descr': '%s', 'fortran_order': False, 'shape': (",
                          npy_type(target->fields[i].dtype));
        for (int k = 0; k < shape.rank; k++)
            at += snprintf(text + at, (size_t)(NPY_HEADER_BYTES - 10 - at), "%lld,%s",
                           (long long)shape.dims[k], k + 1 < shape.rank ? " " : "");
        at += snprintf(text + at, (size_t)(NPY_HEADER_BYTES - 10 - at), "), }");
        text[at] = ' '; // in place of the NUL
        header[NPY_HEADER_BYTES - 1] = '\n';
        state->offsets[i] = NPY_HEADER_BYTES;
        TRI_TRY(tri_os_pwrite_all(state->fds[i], header, NPY_HEADER_BYTES, 0, state->partial[i]));
        TRI_TRY(set_size(state, i,
                         NPY_HEADER_BYTES + target->samples * (int64_t)target->fields[i].bytes));
    }
    return TRI_OK;
}

static tri_status begin_tensors(tri_target *target, const tri_target_mark *mark) {
    tri_safetensors_spec specs[TRI_MAX_DATA_FIELDS];
    tri_safetensors_layout layout;
    TRI_TRY(begin(target, true, "safetensors"));
    array_state *state = target->state;
    for (int i = 0; i < target->field_count; i++)
        specs[i] = (tri_safetensors_spec){target->fields[i].name, target->fields[i].dtype,
                                          shape_of(target, i)};
    TRI_TRY(tri_safetensors_lay_out(target->arena, specs, target->field_count, NULL, 0, &layout));
    TRI_TRY(open_files(target));
    TRI_TRY(tri_os_pwrite_all(state->fds[0], layout.header, (size_t)layout.header_bytes, 0,
                              state->partial[0]));
    for (int i = 0; i < target->field_count; i++) state->offsets[i] = layout.entries[i].offset;
    return set_size(state, 0, layout.file_bytes);
}

static tri_status begin_hdf5(tri_target *target, const tri_target_mark *mark) {
    const char *names[TRI_MAX_DATA_FIELDS];
    tri_hdf5_info infos[TRI_MAX_DATA_FIELDS];
    const void *table;
    char why[TRI_HDF5_WHY_BYTES];
    TRI_TRY(begin(target, true, "h5"));
    array_state *state = target->state;
    for (int i = 0; i < target->field_count; i++) {
        names[i] = target->fields[i].name;
        infos[i] = (tri_hdf5_info){target->fields[i].dtype, shape_of(target, i), -1};
    }
    TRI_TRY(tri_module_load("hdf5", TRI_HDF5_INTERFACE, TRI_HDF5_ABI, &table));
    const tri_hdf5 *module = table;
    tri_status status = module->create(state->partial[0], mark->samples == 0, names, infos,
                                       target->field_count, why);
    if (status != TRI_OK) return TRI_FAIL(status, "%s: %s", state->partial[0], why);
    for (int i = 0; i < target->field_count; i++) state->offsets[i] = infos[i].offset;
    return open_files(target);
}

static tri_status put(tri_target *target, int64_t sample, const tri_target_value *values) {
    const array_state *state = target->state;
    for (int i = 0; i < target->field_count; i++) {
        int file = state->file_count == 1 ? 0 : i;
        size_t bytes = target->fields[i].bytes;
        TRI_TRY(tri_os_pwrite_all(state->fds[file], values[i].data, bytes,
                                  state->offsets[i] + sample * (int64_t)bytes,
                                  state->partial[file]));
    }
    return TRI_OK;
}

static tri_status sync_arrays(tri_target *target, int64_t samples, tri_target_mark *mark) {
    mark->samples = samples;
    return TRI_OK;
}

static tri_status end(tri_target *target) {
    const array_state *state = target->state;
    for (int i = 0; i < state->file_count; i++) {
        if (tri_os.fsync(state->fds[i]) < 0 ||
            tri_os.rename(state->partial[i], state->paths[i]) < 0)
            return tri_os_fail("write", state->paths[i]);
    }
    return TRI_OK;
}

static void close_arrays(tri_target *target) {
    const array_state *state = target->state;
    for (int i = 0; state && i < state->file_count; i++)
        if (state->fds[i] >= 0) tri_os.close(state->fds[i]);
}

static const char *npy_value(const tri_target *target) {
    char *text = tri_arena_strdup(target->arena, "{");
    for (int i = 0; i < target->field_count; i++)
        text = tri_arena_printf(target->arena, "%s%s%s: %s-%s.npy", text, i ? ", " : "",
                                target->fields[i].name, target->split, target->fields[i].name);
    return tri_arena_printf(target->arena, "%s}", text);
}

static const char *tensors_value(const tri_target *target) {
    return tri_arena_printf(target->arena, "%s.safetensors", target->split);
}

static const char *hdf5_value(const tri_target *target) {
    return tri_arena_printf(target->arena, "%s.h5", target->split);
}

#define ARRAYS                                                                                     \
    .marks_at = tri_target_marks_at_times, .put = put, .sync = sync_arrays, .end = end,            \
    .close = close_arrays
const tri_target_kind tri_target_npy = {
    .name = "npy", .check = check_npy, .begin = begin_npy, .value = npy_value, ARRAYS};
const tri_target_kind tri_target_tensors = {
    .name = "tensors", .check = check_any, .begin = begin_tensors, .value = tensors_value, ARRAYS};
const tri_target_kind tri_target_hdf5 = {
    .name = "hdf5", .check = check_any, .begin = begin_hdf5, .value = hdf5_value, ARRAYS};
