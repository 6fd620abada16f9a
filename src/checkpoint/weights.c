// Opens weights from any source (a checkpoint, a safetensors file), and loads initial weights into
// a model.
#include "checkpoint/weights.h"

#include "base/limits.h"
#include "base/os.h"
#include "checkpoint/convert.h"
#include "checkpoint/find.h"
#include "checkpoint/verify.h"
#include "tensor/half.h"

#include <stdlib.h>
#include <string.h>

static const char INDEX[] = "model.safetensors.index.json";

void checkpoint_weights_close(checkpoint_weights *weights) {
    for (int i = 0; i < weights->open_count; i++) tri_safetensors_close(weights->open[i]);
    weights->open_count = 0;
}

static int compare_entries(const void *a, const void *b) {
    return strcmp(((const tri_safetensors_entry *)a)->name,
                  ((const tri_safetensors_entry *)b)->name);
}

int checkpoint_weights_find(const checkpoint_weights *weights, const char *name) {
    tri_safetensors_entry key = {.name = name};
    if (weights->count == 0) return CHECKPOINT_NO_ENTRY;
    const tri_safetensors_entry *found =
        bsearch(&key, weights->entries, (size_t)weights->count, sizeof key, compare_entries);
    return found ? (int)(found - weights->entries) : CHECKPOINT_NO_ENTRY;
}

// Makes one list, sorted by name, of the tensors of all open files, so that a tensor is found
// whichever file it is in.
static tri_status merge(tri_arena *arena, checkpoint_weights *w) {
    typedef struct owned {
        tri_safetensors_entry entry; // first, because compare_entries compares by it
        const tri_safetensors *file;
    } owned;
    for (int f = 0; f < w->open_count; f++) w->count += tri_safetensors_count(w->open[f]);
    owned *all = TRI_NEW_ARRAY(arena, owned, w->count);
    int next = 0;
    for (int f = 0; f < w->open_count; f++)
        for (int i = 0; i < tri_safetensors_count(w->open[f]); i++)
            all[next++] = (owned){*tri_safetensors_at(w->open[f], i), w->open[f]};
    qsort(all, (size_t)w->count, sizeof *all, compare_entries);
    w->entries = TRI_NEW_ARRAY(arena, tri_safetensors_entry, w->count);
    w->files = TRI_NEW_ARRAY(arena, const tri_safetensors *, w->count);
    for (int i = 0; i < w->count; i++) {
        w->entries[i] = all[i].entry;
        w->files[i] = all[i].file;
        if (i && strcmp(all[i].entry.name, all[i - 1].entry.name) == 0)
            return TRI_FAIL(TRI_CORRUPT, "%s: tensor '%s' is in two of its files", w->path,
                            all[i].entry.name);
    }
    return TRI_OK;
}

static tri_status open_shard(tri_arena *arena, checkpoint_weights *w, const char *name,
                             int *capacity) {
    const char *slash = strrchr(w->path, '/');
    int folder = slash ? (int)(slash - w->path + 1) : 0;
    const char *path = tri_arena_printf(arena, "%.*s%s", folder, w->path, name);
    for (int i = 0; i < w->open_count; i++)
        if (strcmp(tri_safetensors_path(w->open[i]), path) == 0) return TRI_OK;
    if (!*name || strchr(name, '/') || name[0] == '.')
        return TRI_FAIL(TRI_CORRUPT, "%s: '%s' is not the name of a file beside it", w->path, name);
    if (w->open_count == TRI_MAX_SHARDS)
        return TRI_FAIL(TRI_UNSUPPORTED, "%s: more than %d files", w->path, TRI_MAX_SHARDS);
    tri_safetensors *file;
    TRI_TRY(tri_safetensors_open(path, &file));
    TRI_PUSH(arena, w->open, w->open_count, *capacity) = file;
    return TRI_OK;
}

static tri_status open_shards(tri_arena *arena, const tri_tree *map, checkpoint_weights *w) {
    int capacity = 0;
    if (!map || map->kind != TRI_TREE_MAP || map->count == 0)
        return TRI_FAIL(TRI_CORRUPT, "%s: has no 'weight_map'", w->path);
    for (int i = 0; i < map->count; i++) {
        if (map->items[i]->kind != TRI_TREE_SCALAR)
            return TRI_FAIL(TRI_CORRUPT, "%s: the entry of '%s' is not a file name", w->path,
                            map->items[i]->key);
        TRI_TRY(open_shard(arena, w, map->items[i]->text, &capacity));
    }
    TRI_TRY(merge(arena, w));
    for (int i = 0; i < map->count; i++) {
        int found = checkpoint_weights_find(w, map->items[i]->key);
        if (found == CHECKPOINT_NO_ENTRY ||
            strcmp(checkpoint_base_name(tri_safetensors_path(w->files[found])),
                   map->items[i]->text) != 0)
            return TRI_FAIL(TRI_CORRUPT, "%s: tensor '%s' is not in %s", w->path,
                            map->items[i]->key, map->items[i]->text);
    }
    return TRI_OK;
}

static tri_status open_index(tri_arena *arena, const char *path, checkpoint_weights *out) {
    char *text;
    size_t size;
    tri_tree *root;
    *out = (checkpoint_weights){.path = tri_arena_strdup(arena, path)};
    TRI_TRY(tri_os_read_file(path, TRI_MAX_CHECKPOINT_STATE, &text, &size));
    tri_status status = tri_json_parse(arena, text, size, path, &root);
    free(text);
    TRI_TRY(status);
    return open_shards(arena, tri_tree_get(root, "weight_map"), out);
}

tri_status checkpoint_weights_open_file(tri_arena *arena, const char *path,
                                        checkpoint_weights *out) {
    *out = (checkpoint_weights){.path = tri_arena_strdup(arena, path)};
    tri_safetensors *file;
    int capacity = 0;
    TRI_TRY(tri_safetensors_open(path, &file));
    TRI_PUSH(arena, out->open, out->open_count, capacity) = file;
    return merge(arena, out);
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

tri_status checkpoint_weights_open(tri_arena *arena, const char *path, checkpoint_weights *out) {
    checkpoint_kind kind;
    const char *real;
    *out = (checkpoint_weights){.path = path};
    TRI_TRY(checkpoint_resolve(arena, path, &kind, &real));
    if (kind == CHECKPOINT_IS_FILE)
        return ends_with(real, ".json") && !tri_safetensors_probe(real)
                   ? open_index(arena, real, out)
                   : checkpoint_weights_open_file(arena, real, out);
    const char *model = tri_arena_printf(arena, "%s/%s", real, CHECKPOINT_MODEL_FILE);
    if (kind == CHECKPOINT_IS_STEP) {
        checkpoint_manifest manifest;
        TRI_TRY(checkpoint_manifest_read(arena, real, &manifest));
        TRI_TRY(checkpoint_read_file(real, &manifest, &manifest.files[0], NULL));
        return checkpoint_weights_open_file(arena, model, out);
    }
    bool is_there;
    TRI_TRY(checkpoint_has(arena, real, INDEX, &is_there));
    if (is_there) return open_index(arena, tri_arena_printf(arena, "%s/%s", real, INDEX), out);
    TRI_TRY(checkpoint_has(arena, real, CHECKPOINT_MODEL_FILE, &is_there));
    if (is_there) return checkpoint_weights_open_file(arena, model, out);
    return TRI_FAIL(TRI_NOT_FOUND, "%s: holds no checkpoint, no %s and no %s", path,
                    CHECKPOINT_MODEL_FILE, INDEX);
}

tri_status checkpoint_weights_read(const checkpoint_weights *weights, int index, int64_t first,
                                   int64_t count, void *to) {
    const tri_safetensors_entry *entry = &weights->entries[index];
    int64_t element = (int64_t)tri_dtype_bytes(entry->dtype);
    return tri_safetensors_read(weights->files[index], entry, first * element, count * element, to);
}

static tri_status check_dtype(const checkpoint_weights *w, int index, tri_dtype wanted) {
    tri_dtype file_dtype = w->entries[index].dtype;
    if (file_dtype == wanted || (tri_dtype_is_float(file_dtype) && wanted == TRI_F32))
        return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s: tensor '%s' is %s there, but %s in the model",
                    tri_safetensors_path(w->files[index]), w->entries[index].name,
                    tri_dtype_name(file_dtype), tri_dtype_name(wanted));
}

// Loads one tensor chunk by chunk. `buffer` has room for two chunks: the first holds elements in
// the file's dtype, the second in the sink's.
static tri_status load_tensor(const checkpoint_weights *w, int index, const tri_state_sink *sink,
                              int target, char *buffer) {
    const tri_safetensors_entry *entry = &w->entries[index];
    tri_dtype wanted = sink->tensors[target].dtype;
    int64_t total = tri_shape_count(&entry->shape);
    if (sink->is_wanted && !sink->is_wanted(sink->context, target)) return TRI_OK;
    int64_t limit = TRI_CHECKPOINT_CHUNK_BYTES / (int64_t)sizeof(double);
    for (int64_t done = 0; done < total; done += limit) {
        int64_t count = total - done < limit ? total - done : limit;
        TRI_TRY(checkpoint_weights_read(w, index, done, count, buffer));
        char *converted = buffer;
        if (entry->dtype != wanted) {
            converted = buffer + TRI_CHECKPOINT_CHUNK_BYTES;
            checkpoint_convert(entry->dtype, buffer, wanted, converted, count);
        }
        TRI_TRY(sink->write(sink->context, target, done, count, converted));
    }
    return TRI_OK;
}

// Whether a tensor may be in the file although the model does not have it: older Llama files
// contain the frequencies of rotary embeddings, which this program computes.
static bool is_ignored(const char *name) { return ends_with(name, "rotary_emb.inv_freq"); }

static tri_status load_weights(tri_arena *arena, const char *path, const tri_state_sink *model,
                               checkpoint_weights *w, char *buffer) {
    TRI_TRY(checkpoint_weights_open(arena, path, w));
    int used = 0, *targets;
    for (int i = 0; i < w->count; i++) {
        if (is_ignored(w->entries[i].name)) continue;
        w->files[used] = w->files[i];
        w->entries[used++] = w->entries[i];
    }
    w->count = used;
    TRI_TRY(checkpoint_match(arena, w->path, w->entries, w->count, model, true, &targets));
    for (int i = 0; i < w->count; i++) TRI_TRY(check_dtype(w, i, model->tensors[targets[i]].dtype));
    for (int i = 0; i < w->count; i++) TRI_TRY(load_tensor(w, i, model, targets[i], buffer));
    return TRI_OK;
}

tri_status tri_checkpoint_load_weights(const char *path, const tri_state_sink *model) {
    char *buffer = malloc(2 * (size_t)TRI_CHECKPOINT_CHUNK_BYTES);
    if (!buffer) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for a chunk of it", path);
    tri_arena *arena = tri_arena_create(NULL, "weights");
    checkpoint_weights weights;
    tri_status status = load_weights(arena, path, model, &weights, buffer);
    checkpoint_weights_close(&weights);
    tri_arena_destroy(arena);
    free(buffer);
    return status;
}
