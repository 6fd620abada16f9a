// Writes weights to one safetensors file, which other programs can read: for the command `trireme
// checkpoint export`, and for `trireme checkpoint init`, which writes initial weights. Read next:
// export_folder.c, which writes a folder of several.
#include "checkpoint/export.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "checkpoint/chunk.h"
#include "checkpoint/convert.h"
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

tri_status checkpoint_export_write(tri_arena *arena, const char *path,
                                   const tri_state_source *model) {
    checkpoint_image image;
    TRI_TRY(plan_image(arena, model, &image));
    tri_os_replacement file;
    TRI_TRY(tri_os_replacement_begin(path, &file));
    return tri_os_replacement_end(&file, write_image(&image, file.fd, path));
}

tri_status tri_checkpoint_write_weights(const char *path, const tri_state_source *model) {
    tri_arena *arena = tri_arena_create(NULL, "weights");
    tri_status status = checkpoint_export_write(arena, path, model);
    tri_arena_destroy(arena);
    return status;
}

enum { ELEMENTS_AT_ONCE = TRI_CHECKPOINT_CHUNK_BYTES / sizeof(double) };

// Whether an adapter is merged into the tensor of the weights.
static bool adds(const checkpoint_exported *e, const checkpoint_place *place) {
    return e->is_merged && place->from == &e->weights &&
           checkpoint_adapters_has(&e->adapters, place->entry);
}

// Reads elements of a tensor in the dtype `wanted`. Returns how many became infinite in *overflows.
static tri_status read_some(checkpoint_exported *e, const checkpoint_place *place, tri_dtype wanted,
                            int64_t first, int64_t count, void *to, int64_t *overflows) {
    int entry = place->entry;
    tri_dtype file_dtype = place->from->entries[entry].dtype;
    TRI_TRY(checkpoint_weights_read(place->from, entry, first, count, e->buffer));
    if (!adds(e, place)) {
        *overflows = checkpoint_convert(file_dtype, e->buffer, wanted, to, count);
        return TRI_OK;
    }
    checkpoint_to_f64(file_dtype, e->buffer, count, e->sums);
    TRI_TRY(checkpoint_adapters_add(&e->adapters, &e->weights, entry, first, count, e->sums));
    *overflows = checkpoint_convert(TRI_F64, e->sums, wanted, to, count);
    return TRI_OK;
}

tri_status checkpoint_export_read(checkpoint_exported *e, int tensor, int64_t first, int64_t count,
                                  void *to) {
    const checkpoint_place *place = &e->places[tensor];
    tri_dtype wanted = e->tensors[tensor].dtype;
    if (place->from->entries[place->entry].dtype == wanted && !adds(e, place))
        return checkpoint_weights_read(place->from, place->entry, first, count, to);
    for (int64_t done = 0; done < count; done += ELEMENTS_AT_ONCE) {
        int64_t size = count - done < ELEMENTS_AT_ONCE ? count - done : ELEMENTS_AT_ONCE;
        int64_t overflows;
        TRI_TRY(read_some(e, place, wanted, first + done, size,
                          (char *)to + (size_t)done * tri_dtype_bytes(wanted), &overflows));
        if (e->overflows == 0 && overflows > 0) e->overflowed = tensor;
        e->overflows += overflows;
    }
    return TRI_OK;
}

// Chooses the tensors of the weights that are written, and their names.
static void choose(tri_arena *arena, tri_export_kind kind, checkpoint_exported *e) {
    e->tensors = TRI_NEW_ARRAY(arena, tri_state_tensor, e->weights.count);
    e->places = TRI_NEW_ARRAY(arena, checkpoint_place, e->weights.count);
    for (int i = 0; i < e->weights.count; i++) {
        const tri_safetensors_entry *entry = &e->weights.entries[i];
        bool is_adapter = checkpoint_is_adapter(entry->name);
        if (kind != TRI_EXPORT_ALL && is_adapter != (kind == TRI_EXPORT_ADAPTERS)) continue;
        e->tensors[e->count] =
            (tri_state_tensor){.name = entry->name, .dtype = entry->dtype, .shape = entry->shape};
        if (kind == TRI_EXPORT_ADAPTERS)
            e->tensors[e->count].name = tri_arena_printf(arena, "base_model.model.%s", entry->name);
        e->places[e->count++] = (checkpoint_place){&e->weights, i};
    }
}

// Gives numbers the type in which they are written.
static tri_status choose_types(const char *path, const char *dtype, checkpoint_exported *e) {
    tri_dtype wanted = TRI_F32;
    if (!dtype) return TRI_OK;
    if (!tri_dtype_from_name(dtype, &wanted) || !tri_dtype_is_float(wanted))
        return TRI_FAIL(TRI_BAD_INPUT, "'%s' is not a type to export to: use F32, F16, BF16 or F64",
                        dtype);
    for (int i = 0; i < e->count; i++) {
        tri_state_tensor *tensor = &e->tensors[i];
        if (!checkpoint_has_f64(tensor->dtype))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: tensor '%s' is %s, which is not converted: without --dtype it is "
                            "copied",
                            path, tensor->name, tri_dtype_name(tensor->dtype));
        if (tri_dtype_is_float(tensor->dtype)) tensor->dtype = wanted;
    }
    return TRI_OK;
}

tri_status checkpoint_export_open(tri_arena *arena, const char *path, tri_export_kind kind,
                                  const char *dtype, const char *program, checkpoint_exported *e) {
    TRI_TRY(checkpoint_weights_open(arena, path, true, &e->weights));
    bool has_adapters = false;
    for (int i = 0; i < e->weights.count; i++)
        has_adapters = has_adapters || checkpoint_is_adapter(e->weights.entries[i].name);
    e->is_apart = kind == TRI_EXPORT_ALL && has_adapters;
    tri_status found = TRI_OK;
    if (kind != TRI_EXPORT_ALL || has_adapters)
        found = checkpoint_adapters_find(arena, path, &e->weights, &e->adapters);
    if (kind != TRI_EXPORT_ALL) TRI_TRY(found);
    e->is_merged = kind == TRI_EXPORT_MERGED;
    e->buffer = tri_arena_alloc(arena, TRI_CHECKPOINT_CHUNK_BYTES);
    e->sums = TRI_NEW_ARRAY(arena, double, ELEMENTS_AT_ONCE);
    choose(arena, kind, e);
    if (program && kind != TRI_EXPORT_ADAPTERS)
        TRI_TRY(checkpoint_export_complete(arena, path, program, e));
    return choose_types(path, dtype, e);
}

void checkpoint_export_close(checkpoint_exported *e) {
    checkpoint_weights_close(&e->weights);
    checkpoint_weights_close(&e->program);
}

int64_t checkpoint_export_bytes(const checkpoint_exported *e, int tensor) {
    const tri_state_tensor *t = &e->tensors[tensor];
    return tri_shape_count(&t->shape) * (int64_t)tri_dtype_bytes(t->dtype);
}

void checkpoint_export_tell(const checkpoint_exported *e, const char *out_path, FILE *out) {
    double bytes = 0;
    for (int i = 0; i < e->count; i++) bytes += (double)checkpoint_export_bytes(e, i);
    fprintf(out, "%s: %s, %s, from %s", out_path, tri_counted(e->count, "tensor"),
            tri_bytes_text(bytes), e->weights.path);
}

void checkpoint_export_warn(const checkpoint_exported *e, const char *out_path) {
    if (e->is_apart && e->adapters.count > 0)
        tri_log_line(TRI_LOG_WARNING,
                     "%s: has adapters beside the weights, and does not say that their lora.alpha "
                     "is %g; --merged adds them to the weights",
                     out_path, e->adapters.alpha);
    if (e->overflows == 0) return;
    const tri_state_tensor *first = &e->tensors[e->overflowed];
    tri_log_line(TRI_LOG_WARNING,
                 "%s: %s became infinite, too large for %s, the first in tensor '%s'; export it in "
                 "another type",
                 out_path, tri_counted(e->overflows, "value"), tri_dtype_name(first->dtype),
                 first->name);
}

static tri_status read_exported(void *context, int tensor, int64_t first, int64_t count, void *to) {
    return checkpoint_export_read(context, tensor, first, count, to);
}

static tri_status export_weights(tri_arena *arena, const char *path, tri_export_kind kind,
                                 const char *out_path, const char *dtype, const char *program,
                                 FILE *out, checkpoint_exported *e) {
    TRI_TRY(checkpoint_export_open(arena, path, kind, dtype, program, e));
    if (kind == TRI_EXPORT_ADAPTERS)
        TRI_TRY(checkpoint_adapters_write_config(arena, out_path, &e->adapters, &e->weights,
                                                 &out_path));
    TRI_TRY(checkpoint_export_write(
        arena, out_path,
        &(tri_state_source){
            .tensors = e->tensors, .count = e->count, .context = e, .read = read_exported}));
    checkpoint_export_warn(e, out_path);
    if (!out) return TRI_OK;
    checkpoint_export_tell(e, out_path, out);
    fputc('\n', out);
    return TRI_OK;
}

tri_status tri_checkpoint_export(const char *path, tri_export_kind kind, const char *out_path,
                                 const char *dtype, const char *program, FILE *out) {
    checkpoint_exported e = {.overflows = 0};
    tri_arena *arena = tri_arena_create(NULL, "checkpoint export");
    tri_status status = export_weights(arena, path, kind, out_path, dtype, program, out, &e);
    checkpoint_export_close(&e);
    tri_arena_destroy(arena);
    return status;
}
