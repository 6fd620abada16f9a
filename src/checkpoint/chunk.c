// Cuts a checkpoint's files into chunks and computes hashes of chunks. For a file that is yet to be
// written, supplies the bytes of each chunk: from its header, or from the tensors.
// Read next: engine/state.c, which supplies the bytes of the tensors.
#include "checkpoint/chunk.h"

#include "base/limits.h"

#include <openssl/evp.h>
#include <string.h>

static tri_status cut_range(tri_arena *arena, int64_t offset, int64_t size_bytes, int tensor,
                            int64_t chunk_bytes, int *capacity, checkpoint_chunks *out) {
    for (int64_t done = 0; done < size_bytes; done += chunk_bytes) {
        // Every tensor with elements needs at least one chunk, because no chunk holds several
        // tensors. So a tensor's first chunk is always allowed. The limit holds only for its
        // further chunks, which larger chunks would avoid.
        if (done > 0 && out->count >= TRI_MAX_CHECKPOINT_CHUNKS)
            return TRI_FAIL(TRI_UNSUPPORTED, "more than %d chunks of %lld bytes",
                            TRI_MAX_CHECKPOINT_CHUNKS, (long long)chunk_bytes);
        int64_t left = size_bytes - done;
        TRI_PUSH(arena, out->items, out->count, *capacity) = (checkpoint_chunk){
            .offset = offset + done,
            .size_bytes = left < chunk_bytes ? left : chunk_bytes,
            .tensor = tensor,
        };
    }
    return TRI_OK;
}

tri_status checkpoint_cut(tri_arena *arena, int64_t header_bytes,
                          const tri_safetensors_entry *entries, const int *order, int count,
                          int64_t chunk_bytes, checkpoint_chunks *out) {
    *out = (checkpoint_chunks){0};
    int capacity = 0;
    TRI_TRY(cut_range(arena, 0, header_bytes, CHECKPOINT_HEADER, chunk_bytes, &capacity, out));
    for (int k = 0; k < count; k++) {
        int i = order ? order[k] : k;
        TRI_TRY(cut_range(arena, entries[i].offset, entries[i].size_bytes, i, chunk_bytes,
                          &capacity, out));
    }
    return TRI_OK;
}

tri_status checkpoint_cut_file(tri_arena *arena, const tri_safetensors *file, int64_t chunk_bytes,
                               const tri_safetensors_entry **entries, checkpoint_chunks *out) {
    int count = tri_safetensors_count(file);
    tri_safetensors_entry *copy = TRI_NEW_ARRAY(arena, tri_safetensors_entry, count);
    for (int i = 0; i < count; i++) copy[i] = *tri_safetensors_at(file, i);
    // The first tensor begins where the header ends, so the header's length need not be read.
    int64_t header_bytes = count ? copy[0].offset : tri_safetensors_size_bytes(file);
    *entries = copy;
    tri_status status = checkpoint_cut(arena, header_bytes, copy, NULL, count, chunk_bytes, out);
    return status == TRI_OK ? TRI_OK : tri_status_context(status, "%s", tri_safetensors_path(file));
}

tri_status checkpoint_hash(const void *data, int64_t size_bytes,
                           unsigned char out[CHECKPOINT_HASH_BYTES]) {
    if (!EVP_Digest(data, (size_t)size_bytes, out, NULL, EVP_sha256(), NULL))
        return TRI_FAIL(TRI_NO_MEMORY, "no memory to compute a SHA-256 (libcrypto)");
    return TRI_OK;
}

static tri_status cut_layout(tri_arena *arena, int64_t chunk_bytes, checkpoint_image *image) {
    const tri_safetensors_layout *layout = &image->layout;
    return checkpoint_cut(arena, layout->header_bytes, layout->entries, layout->order,
                          layout->count, chunk_bytes, &image->chunks);
}

tri_status checkpoint_image_plan(tri_arena *arena, const tri_state_source *source,
                                 const tri_safetensors_pair *metadata, int metadata_count,
                                 int64_t chunk_bytes, checkpoint_image *out) {
    *out = (checkpoint_image){.source = source};
    tri_safetensors_spec *specs = TRI_NEW_ARRAY(arena, tri_safetensors_spec, source->count);
    for (int i = 0; i < source->count; i++) {
        const tri_state_tensor *tensor = &source->tensors[i];
        specs[i] = (tri_safetensors_spec){tensor->name, tensor->dtype, tensor->shape};
    }
    TRI_TRY(tri_safetensors_lay_out(arena, specs, source->count, metadata, metadata_count,
                                    &out->layout));
    TRI_TRY(cut_layout(arena, chunk_bytes, out));
    for (int i = 0; i < out->chunks.count; i++)
        if (out->chunks.items[i].size_bytes > out->largest_bytes)
            out->largest_bytes = out->chunks.items[i].size_bytes;
    return TRI_OK;
}

tri_status checkpoint_image_read(const checkpoint_image *image, const checkpoint_chunk *chunk,
                                 void *buffer) {
    if (chunk->tensor == CHECKPOINT_HEADER) {
        memcpy(buffer, image->layout.header + chunk->offset, (size_t)chunk->size_bytes);
        return TRI_OK;
    }
    const tri_safetensors_entry *entry = &image->layout.entries[chunk->tensor];
    int64_t element = (int64_t)tri_dtype_bytes(entry->dtype);
    return image->source->read(image->source->context, chunk->tensor,
                               (chunk->offset - entry->offset) / element,
                               chunk->size_bytes / element, buffer);
}
