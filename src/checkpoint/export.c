// Writes weights to one safetensors file, which other programs can read: for the command `trireme
// checkpoint export`, and for `trireme checkpoint init`, which writes initial weights.
#include "base/limits.h"
#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "checkpoint/adapters.h"
#include "checkpoint/chunk.h"
#include "checkpoint/convert.h"
#include "checkpoint/weights.h"
#include "tensor/half.h"

#include <stdlib.h>
#include <string.h>

static tri_status write_image(const checkpoint_image *image, int fd, const char *path) {
    void *buffer = malloc((size_t)image->largest_bytes);
    if (!buffer) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for a chunk of it", path);
    tri_status status = TRI_OK;
    for (int i = 0; i < image->chunks.count && status == TRI_OK; i++) {
        const checkpoint_chunk *chunk = &image->chunks.items[i];
        status = checkpoint_image_read(image, chunk, buffer);
        if (status == TRI_OK)
            status = tri_os_write_all(fd, buffer, (size_t)chunk->size_bytes, path);
    }
    free(buffer);
    return status;
}

static tri_status plan_image(tri_arena *arena, const tri_state_source *model,
                             checkpoint_image *image) {
    static const tri_safetensors_pair metadata = {"format", "pt"};
    int64_t chunk = TRI_CHECKPOINT_CHUNK_BYTES;
    for (;; chunk *= 2) {
        tri_status status = checkpoint_image_plan(arena, model, &metadata, 1, chunk, image);
        if (status != TRI_UNSUPPORTED || chunk >= TRI_MAX_CHECKPOINT_CHUNK_BYTES) return status;
    }
}

static tri_status write_weights(tri_arena *arena, const char *path, const tri_state_source *model) {
    checkpoint_image image;
    TRI_TRY(plan_image(arena, model, &image));
    tri_os_replacement file;
    TRI_TRY(tri_os_replacement_begin(path, &file));
    return tri_os_replacement_end(&file, write_image(&image, file.fd, path));
}

tri_status tri_checkpoint_write_weights(const char *path, const tri_state_source *model) {
    tri_arena *arena = tri_arena_create(NULL, "weights");
    tri_status status = write_weights(arena, path, model);
    tri_arena_destroy(arena);
    return status;
}

typedef struct exported {
    const char *path; // of the written file
    checkpoint_weights weights;
    int count;
    const tri_state_tensor *tensors; // the tensors, with the dtypes to be written
    const int *entries;              // tensors[i] is made of entries[entries[i]] of the weights
    checkpoint_adapters adapters;    // those that are merged, or none
    char *buffer;                    // one chunk as it was read, in the dtype of its file
    double *sums;                    // a chunk's elements with what their adapter adds
    int64_t overflows;               // finite values that became infinite
    int overflowed;                  // the first tensor that had one
} exported;

enum { ELEMENTS_AT_ONCE = TRI_CHECKPOINT_CHUNK_BYTES / sizeof(double) };

// Reads elements of a tensor in the dtype `wanted`. Returns how many became infinite in *overflows.
static tri_status read_some(exported *e, int entry, tri_dtype wanted, int64_t first, int64_t count,
                            void *to, int64_t *overflows) {
    tri_dtype file_dtype = e->weights.entries[entry].dtype;
    TRI_TRY(checkpoint_weights_read(&e->weights, entry, first, count, e->buffer));
    if (!checkpoint_adapters_has(&e->adapters, entry)) {
        *overflows = checkpoint_convert(file_dtype, e->buffer, wanted, to, count);
        return TRI_OK;
    }
    checkpoint_to_f64(file_dtype, e->buffer, count, e->sums);
    TRI_TRY(checkpoint_adapters_add(&e->adapters, &e->weights, entry, first, count, e->sums));
    *overflows = checkpoint_convert(TRI_F64, e->sums, wanted, to, count);
    return TRI_OK;
}

static tri_status read_converted(void *context, int tensor, int64_t first, int64_t count,
                                 void *to) {
    exported *e = context;
    int entry = e->entries[tensor];
    tri_dtype wanted = e->tensors[tensor].dtype;
    if (e->weights.entries[entry].dtype == wanted && !checkpoint_adapters_has(&e->adapters, entry))
        return checkpoint_weights_read(&e->weights, entry, first, count, to);
    for (int64_t done = 0; done < count; done += ELEMENTS_AT_ONCE) {
        int64_t size = count - done < ELEMENTS_AT_ONCE ? count - done : ELEMENTS_AT_ONCE;
        int64_t overflows;
        TRI_TRY(read_some(e, entry, wanted, first + done, size,
                          (char *)to + (size_t)done * tri_dtype_bytes(wanted), &overflows));
        if (e->overflows == 0 && overflows > 0) e->overflowed = tensor;
        e->overflows += overflows;
    }
    return TRI_OK;
}

// Chooses the tensors to write, their names and types.
static tri_status choose(tri_arena *arena, const char *path, tri_export_kind kind,
                         const char *dtype, exported *e) {
    tri_dtype wanted = TRI_F32;
    if (dtype && (!tri_dtype_from_name(dtype, &wanted) || !tri_dtype_is_float(wanted)))
        return TRI_FAIL(TRI_BAD_INPUT, "'%s' is not a type to export to: use F32, F16, BF16 or F64",
                        dtype);
    tri_state_tensor *tensors = TRI_NEW_ARRAY(arena, tri_state_tensor, e->weights.count);
    int *entries = TRI_NEW_ARRAY(arena, int, e->weights.count);
    for (int i = 0; i < e->weights.count; i++) {
        const tri_safetensors_entry *entry = &e->weights.entries[i];
        bool is_adapter = checkpoint_is_adapter(entry->name);
        if (kind != TRI_EXPORT_ALL && is_adapter != (kind == TRI_EXPORT_ADAPTERS)) continue;
        tri_state_tensor *tensor = &tensors[e->count];
        *tensor =
            (tri_state_tensor){.name = entry->name, .dtype = entry->dtype, .shape = entry->shape};
        if (kind == TRI_EXPORT_ADAPTERS)
            tensor->name = tri_arena_printf(arena, "base_model.model.%s", entry->name);
        if (dtype && !checkpoint_has_f64(entry->dtype))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: tensor '%s' is %s, which is not converted: without --dtype it is "
                            "copied",
                            path, entry->name, tri_dtype_name(entry->dtype));
        if (dtype && tri_dtype_is_float(entry->dtype)) tensor->dtype = wanted;
        entries[e->count++] = i;
    }
    e->tensors = tensors;
    e->entries = entries;
    return TRI_OK;
}

static tri_status export_weights(tri_arena *arena, const char *path, tri_export_kind kind,
                                 const char *out_path, const char *dtype, exported *e) {
    checkpoint_adapters adapters;
    TRI_TRY(checkpoint_weights_open(arena, path, true, &e->weights));
    if (kind != TRI_EXPORT_ALL)
        TRI_TRY(checkpoint_adapters_find(arena, path, &e->weights, &adapters));
    if (kind == TRI_EXPORT_MERGED) e->adapters = adapters;
    TRI_TRY(choose(arena, path, kind, dtype, e));
    if (kind == TRI_EXPORT_ADAPTERS)
        TRI_TRY(
            checkpoint_adapters_write_config(arena, out_path, &adapters, &e->weights, &out_path));
    TRI_TRY(write_weights(
        arena, out_path,
        &(tri_state_source){
            .tensors = e->tensors, .count = e->count, .context = e, .read = read_converted}));
    e->path = out_path;
    return TRI_OK;
}

static void print_exported(const exported *e, FILE *out) {
    double bytes = 0;
    for (int i = 0; i < e->count; i++)
        bytes += (double)tri_shape_count(&e->tensors[i].shape) *
                 (double)tri_dtype_bytes(e->tensors[i].dtype);
    fprintf(out, "%s: %s, %s, from %s\n", e->path, tri_counted(e->count, "tensor"),
            tri_bytes_text(bytes), e->weights.path);
}

static void warn_of_overflows(const exported *e) {
    if (e->overflows == 0) return;
    const tri_state_tensor *first = &e->tensors[e->overflowed];
    tri_log_line(TRI_LOG_WARNING,
                 "%s: %s became infinite, too large for %s, the first in tensor '%s'; export it in "
                 "another type",
                 e->path, tri_counted(e->overflows, "value"), tri_dtype_name(first->dtype),
                 first->name);
}

tri_status tri_checkpoint_export(const char *path, tri_export_kind kind, const char *out_path,
                                 const char *dtype, FILE *out) {
    exported e = {.buffer = malloc(2 * (size_t)TRI_CHECKPOINT_CHUNK_BYTES)};
    if (!e.buffer) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for a chunk of it", path);
    e.sums = (double *)(e.buffer + TRI_CHECKPOINT_CHUNK_BYTES);
    tri_arena *arena = tri_arena_create(NULL, "checkpoint export");
    tri_status status = export_weights(arena, path, kind, out_path, dtype, &e);
    if (status == TRI_OK) warn_of_overflows(&e);
    if (status == TRI_OK && out) print_exported(&e, out);
    checkpoint_weights_close(&e.weights);
    tri_arena_destroy(arena);
    free(e.buffer);
    return status;
}
