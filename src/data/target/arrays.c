// Targets of arrays whose first axis is the sample: npy, npz, tensors and hdf5.
#include "base/module.h"
#include "base/os.h"
#include "data/target/places.h"
#include "format/hdf5/hdf5.h"
#include "format/safetensors.h"
#include "format/zip_write.h"

#include <stdio.h>
#include <string.h>

enum { NPY_HEADER_BYTES = 128 };

static tri_status check_any(const tri_target *target) { return TRI_OK; }

static tri_status check_hdf5(const tri_target *target) {
    for (int i = 0; i < target->field_count; i++) {
        tri_dtype dtype = target->fields[i].dtype;
        if (dtype == TRI_F16 || dtype == TRI_BF16)
            return TRI_FAIL(TRI_BAD_INPUT, "--to hdf5: has no %s, as which '%s' is stored",
                            tri_dtype_name(dtype), target->fields[i].name);
    }
    return TRI_OK;
}

static tri_shape shape_of(const tri_target *target, int field) {
    const tri_shape *sample = &target->fields[field].shape;
    tri_shape shape = {.rank = sample->rank + 1, .dims = {target->samples}};
    for (int i = 0; i < sample->rank; i++) shape.dims[i + 1] = sample->dims[i];
    return shape;
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

static int64_t array_bytes(const tri_target *target, int field) {
    return NPY_HEADER_BYTES + target->samples * (int64_t)target->fields[field].bytes;
}

// Writes the header of a field's array at `offset` of a file, and places the samples behind it.
static tri_status begin_array(tri_target *target, int field, int file, int64_t offset) {
    target_places *places = target->state;
    tri_shape shape = shape_of(target, field);
    char header[NPY_HEADER_BYTES + 1], *text = header + 10;
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\1\0\x76\0", 10); // version 1, and 118 bytes follow
    int at =
        snprintf(text, NPY_HEADER_BYTES - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                 npy_type(target->fields[field].dtype));
    for (int k = 0; k < shape.rank; k++)
        at += snprintf(text + at, (size_t)(NPY_HEADER_BYTES - 10 - at), "%lld,%s",
                       (long long)shape.dims[k], k + 1 < shape.rank ? " " : "");
    at += snprintf(text + at, (size_t)(NPY_HEADER_BYTES - 10 - at), "), }");
    text[at] = ' '; // in place of the NUL
    header[NPY_HEADER_BYTES - 1] = '\n';
    target_places_put(target, field, file, offset + NPY_HEADER_BYTES);
    return tri_os_pwrite_all(places->fds[file], header, NPY_HEADER_BYTES, offset,
                             places->partial[file]);
}

static tri_status begin_npy(tri_target *target, tri_target_mark *mark) {
    target_places *places = target_places_begin(target);
    for (int i = 0; i < target->field_count; i++)
        target_places_name(target, "-%s.npy", target->fields[i].name);
    TRI_TRY(target_places_open(target, mark));
    for (int i = 0; i < target->field_count; i++) {
        TRI_TRY(begin_array(target, i, i, 0));
        TRI_TRY(target_places_size(places, i, array_bytes(target, i)));
    }
    return TRI_OK;
}

// The members of the archive, one for each field.
static void npz_entries(const tri_target *target, tri_zip_entry *entries) {
    int64_t offset = 0;
    for (int i = 0; i < target->field_count; i++) {
        const char *name = tri_arena_printf(target->arena, "%s.npy", target->fields[i].name);
        entries[i] =
            (tri_zip_entry){.name = name, .offset = offset, .size_bytes = array_bytes(target, i)};
        offset += tri_zip_header_bytes(name) + entries[i].size_bytes;
    }
}

static tri_status begin_npz(tri_target *target, tri_target_mark *mark) {
    tri_zip_entry entries[TRI_MAX_DATA_FIELDS];
    target_places *places = target_places_begin(target);
    target_places_name(target, ".npz");
    TRI_TRY(target_places_open(target, mark));
    npz_entries(target, entries);
    for (int i = 0; i < target->field_count; i++)
        TRI_TRY(
            begin_array(target, i, 0, entries[i].offset + tri_zip_header_bytes(entries[i].name)));
    const tri_zip_entry *last = &entries[target->field_count - 1];
    return target_places_size(places, 0,
                              last->offset + tri_zip_header_bytes(last->name) + last->size_bytes);
}

// Checksums are known once all samples are written.
static tri_status end_npz(tri_target *target) {
    tri_zip_entry entries[TRI_MAX_DATA_FIELDS];
    const target_places *places = target->state;
    npz_entries(target, entries);
    for (int i = 0; i < target->field_count; i++)
        TRI_TRY(tri_zip_complete_entry(places->fds[0], places->partial[0], &entries[i]));
    TRI_TRY(
        tri_zip_write_directory(places->fds[0], places->partial[0], entries, target->field_count));
    return target_places_end(target);
}

static tri_status begin_tensors(tri_target *target, tri_target_mark *mark) {
    tri_safetensors_spec specs[TRI_MAX_DATA_FIELDS];
    tri_safetensors_layout layout;
    target_places *places = target_places_begin(target);
    target_places_name(target, ".safetensors");
    for (int i = 0; i < target->field_count; i++)
        specs[i] = (tri_safetensors_spec){target->fields[i].name, target->fields[i].dtype,
                                          shape_of(target, i)};
    TRI_TRY(tri_safetensors_lay_out(target->arena, specs, target->field_count, NULL, 0, &layout));
    TRI_TRY(target_places_open(target, mark));
    TRI_TRY(tri_os_pwrite_all(places->fds[0], layout.header, (size_t)layout.header_bytes, 0,
                              places->partial[0]));
    for (int i = 0; i < target->field_count; i++)
        target_places_put(target, i, 0, layout.entries[i].offset);
    return target_places_size(places, 0, layout.file_bytes);
}

static tri_status begin_hdf5(tri_target *target, tri_target_mark *mark) {
    const char *names[TRI_MAX_DATA_FIELDS];
    tri_hdf5_info infos[TRI_MAX_DATA_FIELDS];
    const void *table;
    char why[TRI_HDF5_WHY_BYTES];
    target_places *places = target_places_begin(target);
    target_places_name(target, ".h5");
    for (int i = 0; i < target->field_count; i++) {
        names[i] = target->fields[i].name;
        infos[i] = (tri_hdf5_info){target->fields[i].dtype, shape_of(target, i), -1};
    }
    TRI_TRY(tri_module_load("hdf5", TRI_HDF5_INTERFACE, TRI_HDF5_ABI, &table));
    tri_target_check_part(places->partial[0], mark);
    const tri_hdf5 *module = table;
    tri_status status = module->create(places->partial[0], mark->samples == 0, names, infos,
                                       target->field_count, why);
    if (status != TRI_OK) return TRI_FAIL(status, "%s: %s", places->partial[0], why);
    for (int i = 0; i < target->field_count; i++) target_places_put(target, i, 0, infos[i].offset);
    return target_places_open(target, mark);
}

static const char *npy_value(const tri_target *target) {
    char *text = tri_arena_strdup(target->arena, "{");
    for (int i = 0; i < target->field_count; i++)
        text = tri_arena_printf(target->arena, "%s%s%s: %s-%s.npy", text, i ? ", " : "",
                                target->fields[i].name, target->split, target->fields[i].name);
    return tri_arena_printf(target->arena, "%s}", text);
}

static const char *npz_value(const tri_target *target) {
    return tri_arena_printf(target->arena, "%s.npz", target->split);
}

static const char *tensors_value(const tri_target *target) {
    return tri_arena_printf(target->arena, "%s.safetensors", target->split);
}

static const char *hdf5_value(const tri_target *target) {
    return tri_arena_printf(target->arena, "%s.h5", target->split);
}

const tri_target_kind tri_target_npy = {.name = "npy",
                                        .check = check_npy,
                                        .begin = begin_npy,
                                        .end = target_places_end,
                                        .value = npy_value,
                                        TARGET_PLACES};
const tri_target_kind tri_target_npz = {.name = "npz",
                                        .reads_as = "npy",
                                        .check = check_npy,
                                        .begin = begin_npz,
                                        .end = end_npz,
                                        .value = npz_value,
                                        TARGET_PLACES};
const tri_target_kind tri_target_tensors = {.name = "tensors",
                                            .check = check_any,
                                            .begin = begin_tensors,
                                            .end = target_places_end,
                                            .value = tensors_value,
                                            TARGET_PLACES};
const tri_target_kind tri_target_hdf5 = {.name = "hdf5",
                                         .check = check_hdf5,
                                         .begin = begin_hdf5,
                                         .end = target_places_end,
                                         .value = hdf5_value,
                                         .keys = tri_target_fields,
                                         TARGET_PLACES};
