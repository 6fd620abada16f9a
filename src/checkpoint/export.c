// Writes weights to one safetensors file, which other programs can read: for the command `trireme
// checkpoint export`, and for `trireme checkpoint init`, which writes initial weights.
#include "base/limits.h"
#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
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
    checkpoint_weights weights;
    const tri_state_tensor *tensors; // the tensors, with the dtypes to be written
    char *buffer;                    // one chunk as it was read, in the dtype of its file
    int64_t overflows;               // finite values that became infinite
    int overflowed;                  // the first tensor that had one
} exported;

static tri_status read_converted(void *context, int tensor, int64_t first, int64_t count,
                                 void *to) {
    exported *e = context;
    tri_dtype file_dtype = e->weights.entries[tensor].dtype, wanted = e->tensors[tensor].dtype;
    if (file_dtype == wanted) return checkpoint_weights_read(&e->weights, tensor, first, count, to);
    int64_t limit = TRI_CHECKPOINT_CHUNK_BYTES / (int64_t)sizeof(double);
    for (int64_t done = 0; done < count; done += limit) {
        int64_t size = count - done < limit ? count - done : limit;
        TRI_TRY(checkpoint_weights_read(&e->weights, tensor, first + done, size, e->buffer));
        int64_t overflows =
            checkpoint_convert(file_dtype, e->buffer, wanted,
                               (char *)to + (size_t)done * tri_dtype_bytes(wanted), size);
        if (e->overflows == 0 && overflows > 0) e->overflowed = tensor;
        e->overflows += overflows;
    }
    return TRI_OK;
}

static tri_status export_weights(tri_arena *arena, const char *path, const char *out_path,
                                 const char *dtype, exported *e) {
    tri_dtype wanted = TRI_F32;
    if (dtype && (!tri_dtype_from_name(dtype, &wanted) || !tri_dtype_is_float(wanted)))
        return TRI_FAIL(TRI_BAD_INPUT, "'%s' is not a type to export to: use F32, F16, BF16 or F64",
                        dtype);
    TRI_TRY(checkpoint_weights_open(arena, path, &e->weights));
    tri_state_tensor *tensors = TRI_NEW_ARRAY(arena, tri_state_tensor, e->weights.count);
    for (int i = 0; i < e->weights.count; i++) {
        const tri_safetensors_entry *entry = &e->weights.entries[i];
        tensors[i] =
            (tri_state_tensor){.name = entry->name, .dtype = entry->dtype, .shape = entry->shape};
        if (dtype && !checkpoint_has_f64(entry->dtype))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: tensor '%s' is %s, which is not converted: without --dtype it is "
                            "copied",
                            path, entry->name, tri_dtype_name(entry->dtype));
        if (dtype && tri_dtype_is_float(entry->dtype)) tensors[i].dtype = wanted;
    }
    e->tensors = tensors;
    return write_weights(
        arena, out_path,
        &(tri_state_source){
            .tensors = tensors, .count = e->weights.count, .context = e, .read = read_converted});
}

static void print_exported(const exported *e, const char *out_path, FILE *out) {
    double bytes = 0;
    for (int i = 0; i < e->weights.count; i++)
        bytes += (double)tri_shape_count(&e->tensors[i].shape) *
                 (double)tri_dtype_bytes(e->tensors[i].dtype);
    fprintf(out, "%s: %s, %s, from %s\n", out_path, tri_counted(e->weights.count, "tensor"),
            tri_bytes_text(bytes), e->weights.path);
}

static void warn_of_overflows(const exported *e, const char *out_path) {
    if (e->overflows == 0) return;
    const tri_state_tensor *first = &e->tensors[e->overflowed];
    tri_log_line(TRI_LOG_WARNING,
                 "%s: %s became infinite, too large for %s, the first in tensor '%s'; export it in "
                 "another type",
                 out_path, tri_counted(e->overflows, "value"), tri_dtype_name(first->dtype),
                 first->name);
}

tri_status tri_checkpoint_export(const char *path, const char *out_path, const char *dtype,
                                 FILE *out) {
    exported e = {.buffer = malloc(TRI_CHECKPOINT_CHUNK_BYTES)};
    if (!e.buffer) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for a chunk of it", path);
    tri_arena *arena = tri_arena_create(NULL, "checkpoint export");
    tri_status status = export_weights(arena, path, out_path, dtype, &e);
    if (status == TRI_OK) warn_of_overflows(&e, out_path);
    if (status == TRI_OK && out) print_exported(&e, out_path, out);
    checkpoint_weights_close(&e.weights);
    tri_arena_destroy(arena);
    free(e.buffer);
    return status;
}
