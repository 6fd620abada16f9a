// Lays out and writes safetensors files. safetensors.h describes the format.
#include "base/limits.h"
#include "base/os.h"
#include "format/safetensors.h"

#include <endian.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT_BYTES = 8, ALIGN_BYTES = 8 };

typedef struct ordered {
    const tri_safetensors_spec *spec;
    int index;
} ordered;

static int compare_order(const void *a, const void *b) {
    const tri_safetensors_spec *x = ((const ordered *)a)->spec, *y = ((const ordered *)b)->spec;
    size_t x_bytes = tri_dtype_bytes(x->dtype), y_bytes = tri_dtype_bytes(y->dtype);
    if (x_bytes != y_bytes) return x_bytes > y_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_pairs(const void *a, const void *b) {
    return strcmp(((const tri_safetensors_pair *)a)->key, ((const tri_safetensors_pair *)b)->key);
}

static tri_status add_metadata(json_t *root, const tri_safetensors_pair *pairs, int count) {
    if (count == 0) return TRI_OK;
    json_t *object = json_object();
    json_object_set_new(root, "__metadata__", object);
    tri_safetensors_pair *sorted = malloc((size_t)count * sizeof *sorted);
    if (!sorted)
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for the metadata of a safetensors header");
    memcpy(sorted, pairs, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_pairs);
    tri_status status = TRI_OK;
    for (int i = 0; i < count && status == TRI_OK; i++) {
        if (json_object_get(object, sorted[i].key))
            status = TRI_FAIL(TRI_BAD_INPUT, "metadata '%s' is given twice", sorted[i].key);
        else if (json_object_set_new(object, sorted[i].key, json_string(sorted[i].value)) < 0)
            status = TRI_FAIL(TRI_BAD_INPUT, "metadata '%s' is not UTF-8", sorted[i].key);
    }
    free(sorted);
    return status;
}

static tri_status add_tensor(json_t *root, const tri_safetensors_spec *spec, int64_t *end_offset,
                             tri_safetensors_entry *entry) {
    int64_t bytes = tri_shape_count(&spec->shape), end;
    if (bytes < 0 || __builtin_mul_overflow(bytes, (int64_t)tri_dtype_bytes(spec->dtype), &bytes) ||
        __builtin_add_overflow(*end_offset, bytes, &end))
        return TRI_FAIL(TRI_BAD_INPUT, "tensor '%s' is too large for a file", spec->name);
    if (strcmp(spec->name, "__metadata__") == 0 || json_object_get(root, spec->name))
        return TRI_FAIL(TRI_BAD_INPUT, "the tensor name '%s' is taken", spec->name);
    json_t *shape = json_array();
    for (int i = 0; i < spec->shape.rank; i++)
        json_array_append_new(shape, json_integer(spec->shape.dims[i]));
    json_t *info = json_pack("{s:s, s:o, s:[I, I]}", "dtype", tri_dtype_name(spec->dtype), "shape",
                             shape, "data_offsets", (json_int_t)*end_offset, (json_int_t)end);
    if (json_object_set_new(root, spec->name, info) < 0)
        return TRI_FAIL(TRI_BAD_INPUT, "the tensor name '%s' is not UTF-8", spec->name);
    entry->dtype = spec->dtype;
    entry->shape = spec->shape;
    entry->offset = *end_offset;
    entry->size_bytes = bytes;
    *end_offset = end;
    return TRI_OK;
}

static tri_status write_header(tri_arena *arena, json_t *root, tri_safetensors_layout *out) {
    size_t text_bytes = json_dumpb(root, NULL, 0, JSON_COMPACT);
    size_t padded = (text_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    if (text_bytes == 0 || padded > TRI_MAX_SAFETENSORS_HEADER)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "the header of %d tensors is too large for the safetensors format",
                        out->count);
    out->header_bytes = COUNT_BYTES + (int64_t)padded;
    out->header = tri_arena_alloc(arena, (size_t)out->header_bytes);
    uint64_t count = htole64(padded);
    memcpy(out->header, &count, COUNT_BYTES);
    memset(out->header + COUNT_BYTES, ' ', padded);
    json_dumpb(root, out->header + COUNT_BYTES, text_bytes, JSON_COMPACT);
    return TRI_OK;
}

static tri_status lay_out(tri_arena *arena, json_t *root, const tri_safetensors_spec *specs,
                          int64_t *end_offset, tri_safetensors_layout *out) {
    ordered *sorted = TRI_NEW_ARRAY(arena, ordered, out->count);
    for (int i = 0; i < out->count; i++) sorted[i] = (ordered){&specs[i], i};
    qsort(sorted, (size_t)out->count, sizeof *sorted, compare_order);
    for (int i = 0; i < out->count; i++) {
        tri_safetensors_entry *entry = &out->entries[sorted[i].index];
        TRI_TRY(add_tensor(root, sorted[i].spec, end_offset, entry));
        entry->name = tri_arena_strdup(arena, sorted[i].spec->name);
        out->order[i] = sorted[i].index;
    }
    return write_header(arena, root, out);
}

tri_status tri_safetensors_lay_out(tri_arena *arena, const tri_safetensors_spec *specs, int count,
                                   const tri_safetensors_pair *metadata, int metadata_count,
                                   tri_safetensors_layout *out) {
    *out = (tri_safetensors_layout){.count = count};
    out->entries = TRI_NEW_ARRAY(arena, tri_safetensors_entry, count);
    out->order = TRI_NEW_ARRAY(arena, int, count);
    json_t *root = json_object();
    if (!root) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a safetensors header");
    int64_t end_offset = 0;
    tri_status status = add_metadata(root, metadata, metadata_count);
    if (status == TRI_OK) status = lay_out(arena, root, specs, &end_offset, out);
    json_decref(root);
    TRI_TRY(status);
    for (int i = 0; i < count; i++) out->entries[i].offset += out->header_bytes;
    out->file_bytes = out->header_bytes + end_offset;
    return TRI_OK;
}

static tri_status write_all(int fd, const char *path, const tri_safetensors_layout *layout,
                            const void *const *data) {
    TRI_TRY(tri_os_write_all(fd, layout->header, (size_t)layout->header_bytes, path));
    for (int i = 0; i < layout->count; i++) {
        int index = layout->order[i];
        TRI_TRY(tri_os_write_all(fd, data[index], (size_t)layout->entries[index].size_bytes, path));
    }
    return TRI_OK;
}

static tri_status replace_file(const char *path, const tri_safetensors_layout *layout,
                               const void *const *data) {
    tri_os_replacement file;
    TRI_TRY(tri_os_replacement_begin(path, &file));
    return tri_os_replacement_end(&file, write_all(file.fd, path, layout, data));
}

tri_status tri_safetensors_write(const char *path, const tri_safetensors_spec *specs,
                                 const void *const *data, int count,
                                 const tri_safetensors_pair *metadata, int metadata_count) {
    tri_arena *arena = tri_arena_create(NULL, "safetensors file");
    tri_safetensors_layout layout;
    tri_status status =
        tri_safetensors_lay_out(arena, specs, count, metadata, metadata_count, &layout);
    if (status == TRI_OK) status = replace_file(path, &layout, data);
    tri_arena_destroy(arena);
    return status;
}
