// Writes weights as a folder that other programs load: one safetensors file, or several with an
// index of which tensor is where, as Hugging Face's save_pretrained names them, and other files
// beside them.
#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "checkpoint/export.h"
#include "checkpoint/manifest.h"
#include "checkpoint/new_folder.h"

#include <fcntl.h>
#include <string.h>

// One file of weights: the tensors from `first` on, in the order of their names.
typedef struct shard {
    checkpoint_exported *exported;
    int first, count;
} shard;

typedef struct shards {
    shard *items;
    int count, capacity;
    int64_t bytes; // of all tensors
} shards;

static tri_status read_of_shard(void *context, int tensor, int64_t first, int64_t count, void *to) {
    const shard *s = context;
    return checkpoint_export_read(s->exported, s->first + tensor, first, count, to);
}

// Begins another file where the tensors would be more than `most` bytes. So only a single tensor
// can be larger.
static shards divide(tri_arena *arena, checkpoint_exported *e, int64_t most) {
    shards out = {0};
    int64_t used = 0;
    for (int i = 0; i < e->count; i++) {
        int64_t bytes = checkpoint_export_bytes(e, i);
        if (i == 0 || used + bytes > most) {
            TRI_PUSH(arena, out.items, out.count, out.capacity) = (shard){e, i, 0};
            used = 0;
        }
        used += bytes;
        out.bytes += bytes;
        out.items[out.count - 1].count++;
    }
    return out;
}

static const char *name_of(tri_arena *arena, const shards *s, int index) {
    if (s->count == 1) return CHECKPOINT_MODEL_FILE;
    return tri_arena_printf(arena, "model-%05d-of-%05d.safetensors", index + 1, s->count);
}

static const char *index_text(tri_arena *arena, const shards *s, const checkpoint_exported *e) {
    tri_tree *root = tri_tree_map(arena), *metadata = tri_tree_map(arena),
             *map = tri_tree_map(arena);
    tri_tree_put_int(arena, metadata, "total_size", s->bytes);
    tri_tree_put(arena, root, "metadata", metadata);
    for (int i = 0; i < s->count; i++)
        for (int k = 0; k < s->items[i].count; k++)
            tri_tree_put_string(arena, map, e->tensors[s->items[i].first + k].name,
                                name_of(arena, s, i));
    tri_tree_put(arena, root, "weight_map", map);
    return tri_arena_printf(arena, "%s\n", tri_json_emit(arena, root));
}

static tri_status write_weights(tri_arena *arena, const char *folder, shards *s,
                                const checkpoint_exported *e) {
    for (int i = 0; i < s->count; i++) {
        const tri_state_source source = {.tensors = e->tensors + s->items[i].first,
                                         .count = s->items[i].count,
                                         .context = &s->items[i],
                                         .read = read_of_shard};
        TRI_TRY(checkpoint_export_write(
            arena, tri_arena_printf(arena, "%s/%s", folder, name_of(arena, s, i)), &source));
    }
    if (s->count == 1) return TRI_OK;
    const char *text = index_text(arena, s, e);
    return tri_os_replace_file(tri_arena_printf(arena, "%s/%s", folder, CHECKPOINT_INDEX_FILE),
                               text, strlen(text));
}

static tri_status copy_bytes(int from, const char *from_path, int to, const char *to_path,
                             char *buffer, size_t size) {
    int64_t offset = 0;
    for (ssize_t got; (got = tri_os_pread_most(from, buffer, size, offset)) != 0; offset += got) {
        if (got < 0) return tri_os_fail("read", from_path);
        TRI_TRY(tri_os_write_all(to, buffer, (size_t)got, to_path));
    }
    return TRI_OK;
}

static tri_status write_file(tri_arena *arena, const char *folder, const tri_export_file *file,
                             const checkpoint_exported *e) {
    const char *path = tri_arena_printf(arena, "%s/%s", folder, file->name);
    tri_os_replacement to;
    int from;
    if (file->text) return tri_os_replace_file(path, file->text, strlen(file->text));
    TRI_TRY(tri_os_open_input(file->from, &from));
    tri_status status = tri_os_replacement_begin(path, &to);
    if (status == TRI_OK)
        status = tri_os_replacement_end(
            &to, copy_bytes(from, file->from, to.fd, path, e->buffer, TRI_CHECKPOINT_CHUNK_BYTES));
    tri_os.close(from);
    return status;
}

static tri_status write_all(tri_arena *arena, const char *folder, const tri_export_folder *request,
                            shards *s, const checkpoint_exported *e) {
    for (int i = 0; i < request->file_count; i++)
        TRI_TRY(write_file(arena, folder, &request->files[i], e));
    return write_weights(arena, folder, s, e);
}

static void tell(const tri_export_folder *request, const shards *s, const checkpoint_exported *e,
                 FILE *out) {
    checkpoint_export_tell(e, request->path, out);
    fprintf(out, "; %s", s->count == 1 ? CHECKPOINT_MODEL_FILE : tri_counted(s->count, "file"));
    for (int i = 0; i < request->file_count; i++) fprintf(out, ", %s", request->files[i].name);
    fputc('\n', out);
}

// Opens the weights of a whole model. The models that load such folders have no adapters.
static tri_status open_complete(tri_arena *arena, const char *path,
                                const tri_export_folder *request, checkpoint_exported *e) {
    TRI_TRY(
        checkpoint_export_open(arena, path, request->kind, request->dtype, request->program, e));
    for (int i = 0; i < e->count; i++)
        if (checkpoint_is_adapter(e->tensors[i].name))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s: has low-rank adapters, which the folder's model has not: merge "
                            "them into the weights by --merged",
                            path);
    return TRI_OK;
}

tri_status tri_checkpoint_export_folder(const char *path, const tri_export_folder *request,
                                        FILE *out) {
    checkpoint_exported e = {.overflows = 0};
    checkpoint_new_folder folder;
    tri_arena *arena = tri_arena_create(NULL, "checkpoint export");
    tri_status status = open_complete(arena, path, request, &e);
    if (status == TRI_OK) status = checkpoint_new_folder_begin(arena, request->path, &folder);
    if (status == TRI_OK) {
        shards s = divide(arena, &e, request->shard_bytes);
        status = checkpoint_new_folder_end(arena, &folder,
                                           write_all(arena, folder.temporary, request, &s, &e));
        if (status == TRI_OK) checkpoint_export_warn(&e, request->path);
        if (status == TRI_OK) tell(request, &s, &e, out);
    }
    checkpoint_export_close(&e);
    tri_arena_destroy(arena);
    return status;
}
