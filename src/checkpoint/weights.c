// Opens weights from any source (a checkpoint, a safetensors file), and loads initial weights into
// a model.
#include "checkpoint/weights.h"

#include "base/hash.h"
#include "base/index.h"
#include "base/limits.h"
#include "base/os.h"
#include "checkpoint/convert.h"
#include "checkpoint/find.h"
#include "checkpoint/verify.h"
#include "format/pt2.h"
#include "tensor/half.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

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

// The parameters and buffers of an exported network; a tied one under its first name.
static tri_status open_network(tri_arena *arena, const char *path, checkpoint_weights *out) {
    tri_pt2 network;
    tri_safetensors *file;
    int capacity = 0;
    *out = (checkpoint_weights){.path = tri_arena_strdup(arena, path), .is_network = true};
    TRI_TRY(tri_pt2_open(arena, path, &network));
    TRI_TRY(tri_pt2_open_weights(&network, &file));
    TRI_PUSH(arena, out->open, out->open_count, capacity) = file;
    return merge(arena, out);
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static bool wants_nothing(void *context, int64_t offset, int64_t first, int64_t count) {
    return false;
}

// Opens a checkpoint's weights, of which the header is verified here, and all if `whole`.
static tri_status open_step(tri_arena *arena, const char *folder, bool evaluated, bool whole,
                            checkpoint_weights *out) {
    checkpoint_manifest *manifest = TRI_NEW(arena, checkpoint_manifest);
    TRI_TRY(checkpoint_manifest_read(arena, folder, manifest));
    const checkpoint_file *file = checkpoint_manifest_file(manifest, CHECKPOINT_AVERAGE_FILE);
    const tri_tree *average = tri_tree_get(manifest->info.training, TRI_CHECKPOINT_AVERAGE);
    bool evaluates = false;
    tri_tree_to_bool(tri_tree_get(average, "evaluates"), &evaluates);
    bool is_averaged = evaluated && evaluates && file;
    if (!is_averaged) file = &manifest->files[0];
    TRI_TRY(checkpoint_verify_file(folder, manifest, file, whole ? NULL : wants_nothing, NULL));
    const char *path = tri_arena_printf(arena, "%s/%s", folder, file->name);
    TRI_TRY(checkpoint_weights_open_file(arena, path, out));
    out->is_averaged = is_averaged;
    out->folder = folder;
    out->manifest = manifest;
    out->file = file;
    return TRI_OK;
}

// A folder may have weights as torch.save writes them, in one file or several.
static tri_status refuse_empty(tri_arena *arena, const char *path, const char *folder) {
    static const char *const names[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};
    bool is_there = false;
    for (int i = 0; i < 2 && !is_there; i++)
        TRI_TRY(checkpoint_has(arena, folder, names[i], &is_there));
    if (!is_there)
        return TRI_FAIL(TRI_NOT_FOUND, "%s: holds no checkpoint, no %s and no %s", path,
                        CHECKPOINT_MODEL_FILE, CHECKPOINT_INDEX_FILE);
    return TRI_FAIL(TRI_NOT_FOUND,
                    "%s: holds weights as torch.save writes, and no %s; this line makes "
                    "one: " TRI_SAFETENSORS_OF_TORCH,
                    path, CHECKPOINT_MODEL_FILE,
                    tri_arena_printf(arena, "%s/pytorch_model*.bin", folder),
                    tri_arena_printf(arena, "%s/%s", folder, CHECKPOINT_MODEL_FILE));
}

static tri_status open_any(tri_arena *arena, const char *path, bool evaluated, bool whole,
                           checkpoint_weights *out) {
    checkpoint_kind kind;
    const char *real;
    *out = (checkpoint_weights){.path = path};
    TRI_TRY(checkpoint_resolve(arena, path, &kind, &real));
    if (kind == CHECKPOINT_IS_FILE && !tri_safetensors_probe(real)) {
        if (ends_with(real, ".json")) return open_index(arena, real, out);
        if (tri_pt2_probe(real)) return open_network(arena, real, out);
    }
    if (kind == CHECKPOINT_IS_FILE) return checkpoint_weights_open_file(arena, real, out);
    if (kind == CHECKPOINT_IS_STEP) return open_step(arena, real, evaluated, whole, out);
    const char *model = tri_arena_printf(arena, "%s/%s", real, CHECKPOINT_MODEL_FILE);
    bool is_there;
    bool has_index;
    TRI_TRY(checkpoint_has(arena, real, CHECKPOINT_INDEX_FILE, &has_index));
    TRI_TRY(checkpoint_has(arena, real, CHECKPOINT_MODEL_FILE, &is_there));
    if (has_index && is_there)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: holds two sets of weights, %s and %s: name the one that is meant, "
                        "or remove the other",
                        path, CHECKPOINT_MODEL_FILE, CHECKPOINT_INDEX_FILE);
    if (has_index)
        return open_index(arena, tri_arena_printf(arena, "%s/%s", real, CHECKPOINT_INDEX_FILE),
                          out);
    if (is_there) return checkpoint_weights_open_file(arena, model, out);
    return refuse_empty(arena, path, real);
}

tri_status checkpoint_weights_open(tri_arena *arena, const char *path, bool evaluated,
                                   checkpoint_weights *out) {
    return open_any(arena, path, evaluated, true, out);
}

static tri_status hash_weights(tri_arena *arena, const char *path, checkpoint_weights *w,
                               uint64_t *hash) {
    checkpoint_kind kind;
    const char *real;
    TRI_TRY(checkpoint_resolve(arena, path, &kind, &real));
    if (kind == CHECKPOINT_IS_STEP) {
        checkpoint_manifest manifest;
        TRI_TRY(checkpoint_manifest_read(arena, real, &manifest));
        // Of the files, the averages may be what is read.
        static const char *const names[] = {CHECKPOINT_MODEL_FILE, CHECKPOINT_AVERAGE_FILE};
        for (int i = 0; i < 2; i++) {
            const checkpoint_file *file = checkpoint_manifest_file(&manifest, names[i]);
            if (file)
                *hash = tri_hash_bytes(*hash, file->hashes,
                                       (size_t)file->chunk_count * sizeof *file->hashes);
        }
        return TRI_OK;
    }
    TRI_TRY(checkpoint_weights_open(arena, path, false, w));
    const char **paths = TRI_NEW_ARRAY(arena, const char *, w->open_count);
    for (int i = 0; i < w->open_count; i++) paths[i] = tri_safetensors_path(w->open[i]);
    return tri_hash_files(paths, w->open_count, hash);
}

tri_status tri_checkpoint_hash_weights(const char *path, uint64_t *hash) {
    tri_arena *arena = tri_arena_create(NULL, "hash of weights");
    checkpoint_weights weights = {.open_count = 0};
    tri_status status = hash_weights(arena, path, &weights, hash);
    checkpoint_weights_close(&weights);
    tri_arena_destroy(arena);
    return status;
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

// Whether a tensor may be in the file although the model does not have it: older Llama files
// contain the frequencies of rotary embeddings, and those of GPT-2 the masks of its attention,
// [1, 1, T, T] and [], which this program computes.
static bool is_unneeded(const tri_state_sink *model, const tri_safetensors_entry *entry,
                        bool is_network) {
    int axes = entry->shape.rank;
    for (int i = 0; i < model->count; i++)
        if (!strcmp(model->tensors[i].name, entry->name)) return false;
    if (is_network) return true;
    return ends_with(entry->name, "rotary_emb.inv_freq") ||
           (ends_with(entry->name, ".attn.bias") && axes == 4) ||
           (ends_with(entry->name, ".attn.masked_bias") && axes == 0);
}

enum { ELEMENTS_AT_ONCE = TRI_CHECKPOINT_CHUNK_BYTES / sizeof(double) };

// Reads elements of a tensor in the dtype `wanted`. `buffer` has room for two chunks: the first
// holds elements in the file's dtype, the second in `wanted`. *out points into it.
static tri_status read_as(const checkpoint_weights *w, int index, tri_dtype wanted, int64_t first,
                          int64_t count, char *buffer, char **out) {
    tri_dtype dtype = w->entries[index].dtype;
    *out = dtype == wanted ? buffer : buffer + TRI_CHECKPOINT_CHUNK_BYTES;
    TRI_TRY(checkpoint_weights_read(w, index, first, count, buffer));
    if (dtype == wanted) return TRI_OK;
    if (tri_dtype_is_half(dtype) && wanted == TRI_F32)
        tri_half_widen(dtype, buffer, (float *)*out, count);
    else
        checkpoint_convert(dtype, buffer, wanted, *out, count);
    return TRI_OK;
}

// Finds the next elements to read at once, from element `at` on: wanted ones, and those between
// them where skipping them would make more reads of a few bytes than it saves. *count 0: there are
// none.
static int64_t next_window(const tri_state_sink *sink, int target, int64_t at, int64_t total,
                           int64_t *count) {
    enum { SMALL_GAP = 1 << 15 }; // elements
    int64_t some = total - at, first = at, end = total;
    if (sink->next_wanted) {
        first = sink->next_wanted(sink->context, target, at, &some);
        end = first + some;
    }
    while (sink->next_wanted && some > 0 && end < total && end - first < ELEMENTS_AT_ONCE) {
        int64_t next = sink->next_wanted(sink->context, target, end, &some);
        if (some > 0 && next - end > SMALL_GAP) break;
        if (some > 0) end = next + some;
    }
    *count = end - first < ELEMENTS_AT_ONCE ? end - first : ELEMENTS_AT_ONCE;
    return first;
}

static bool is_wanted(const tri_state_sink *sink, int target) {
    int64_t count = 1;
    if (sink->next_wanted) sink->next_wanted(sink->context, target, 0, &count);
    return count > 0;
}

static tri_status load_tensor(const checkpoint_weights *w, int index, const tri_state_sink *sink,
                              int target, char *buffer) {
    int64_t total = tri_shape_count(&w->entries[index].shape);
    tri_dtype taken = checkpoint_taken_dtype(&sink->tensors[target]);
    bool is_mapped = false;
    if (!is_wanted(sink, target)) return TRI_OK;
    if (sink->map && w->entries[index].dtype == taken)
        TRI_TRY(sink->map(sink->context, target, tri_safetensors_fd(w->files[index]),
                          w->entries[index].offset, &is_mapped));
    for (int64_t at = 0, count; at < total && !is_mapped; at += count) {
        char *values;
        at = next_window(sink, target, at, total, &count);
        if (count == 0) break;
        TRI_TRY(read_as(w, index, taken, at, count, buffer, &values));
        TRI_TRY(sink->write(sink->context, target, at, count, values));
    }
    return TRI_OK;
}

// Fails unless the two tensors have the same values in the dtype `wanted`.
static tri_status check_same(const checkpoint_weights *w, int a, int b, tri_dtype wanted,
                             char *buffer) {
    const tri_safetensors_entry *x = &w->entries[a], *y = &w->entries[b];
    int64_t total = tri_shape_count(&x->shape);
    bool is_same = tri_shape_equal(&x->shape, &y->shape);
    for (int64_t done = 0; is_same && done < total; done += ELEMENTS_AT_ONCE) {
        int64_t count = total - done < ELEMENTS_AT_ONCE ? total - done : ELEMENTS_AT_ONCE;
        char *of_x, *of_y;
        TRI_TRY(read_as(w, a, wanted, done, count, buffer, &of_x));
        TRI_TRY(read_as(w, b, wanted, done, count, buffer + 2 * (size_t)TRI_CHECKPOINT_CHUNK_BYTES,
                        &of_y));
        is_same = memcmp(of_x, of_y, (size_t)count * tri_dtype_bytes(wanted)) == 0;
    }
    if (is_same) return TRI_OK;
    return TRI_FAIL(
        TRI_BAD_INPUT,
        "%s: tensors '%s' and '%s' differ, but the model has one weight for both; untie "
        "them in the model, or take one out of the file",
        w->path, x->name, y->name);
}

// Whether `name` is what Hugging Face's file of a model without its head calls the tensor: its name
// without the first part, as "wte.weight" for "transformer.wte.weight".
static bool is_without_base(const char *whole, const char *name) {
    static const char *const bases[] = {"transformer.", "model."};
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
        if (!strncmp(whole, bases[i], strlen(bases[i])) && !strcmp(whole + strlen(bases[i]), name))
            return true;
    return false;
}

// Finds the tensor of the model that files may have under this other name, and that the model does
// not also have under it.
static int target_of_alias(const tri_state_sink *model, const char *name) {
    int found = CHECKPOINT_NO_ENTRY;
    for (int i = 0; i < model->count; i++) {
        const tri_state_tensor *tensor = &model->tensors[i];
        if ((tensor->alias && !strcmp(tensor->alias, name)) || is_without_base(tensor->name, name))
            found = i;
    }
    for (int i = 0; found != CHECKPOINT_NO_ENTRY && i < model->count; i++)
        if (!strcmp(model->tensors[i].name, name)) return CHECKPOINT_NO_ENTRY;
    return found;
}

// Handles a tensor that the file has under another name of the model's tensor `target`: leaves it
// out if the file has the tensor under its own name or an earlier one too, with the same values,
// else gives it that name.
static tri_status settle_alias(const checkpoint_weights *w, int index, const tri_state_sink *model,
                               int target, char *buffer, bool *is_double) {
    const tri_state_tensor *tensor = &model->tensors[target];
    int own = checkpoint_weights_find(w, tensor->name);
    for (int i = 0; own == CHECKPOINT_NO_ENTRY && i < index; i++)
        if (target_of_alias(model, w->entries[i].name) == target) own = i;
    *is_double = own != CHECKPOINT_NO_ENTRY;
    if (!*is_double || !is_wanted(model, target)) return TRI_OK;
    TRI_TRY(check_dtype(w, own, tensor->dtype));
    TRI_TRY(check_dtype(w, index, tensor->dtype));
    return check_same(w, own, index, tensor->dtype, buffer);
}

static bool matches(const tri_strings *patterns, const char *name) {
    for (int i = 0; i < patterns->count; i++)
        if (fnmatch(patterns->items[i], name, 0) == 0) return true;
    return false;
}

// Refuses a pattern that matches nothing: it is misspelt.
static tri_status check_patterns(const tri_strings *ignore, const tri_state_sink *model,
                                 const checkpoint_weights *w) {
    for (int i = 0; i < ignore->count; i++) {
        const tri_strings one = {&ignore->items[i], 1};
        bool is_used = false;
        for (int k = 0; k < model->count; k++) is_used |= matches(&one, model->tensors[k].name);
        for (int k = 0; k < w->count; k++) is_used |= matches(&one, w->entries[k].name);
        if (!is_used)
            return TRI_FAIL(TRI_BAD_INPUT, "ignore: '%s' matches no tensor of the model or of %s",
                            ignore->items[i], w->path);
    }
    return TRI_OK;
}

// Leaves out what the model does not need, or is ignored, and settles aliases.
static tri_status choose(tri_arena *arena, const tri_state_sink *model, const tri_strings *ignore,
                         checkpoint_weights *w, char *buffer) {
    checkpoint_weights chosen = *w;
    chosen.count = 0;
    chosen.entries = TRI_NEW_ARRAY(arena, tri_safetensors_entry, w->count);
    chosen.files = TRI_NEW_ARRAY(arena, const tri_safetensors *, w->count);
    for (int i = 0; i < w->count; i++) {
        const char *name = w->entries[i].name;
        int target = target_of_alias(model, name);
        bool is_double = false, is_left = target != CHECKPOINT_NO_ENTRY &&
                                          matches(ignore, model->tensors[target].name);
        if (is_unneeded(model, &w->entries[i], w->is_network) || matches(ignore, name) || is_left)
            continue;
        if (target != CHECKPOINT_NO_ENTRY)
            TRI_TRY(settle_alias(w, i, model, target, buffer, &is_double));
        if (is_double) continue;
        chosen.files[chosen.count] = w->files[i];
        chosen.entries[chosen.count] = w->entries[i];
        if (target != CHECKPOINT_NO_ENTRY)
            chosen.entries[chosen.count].name = model->tensors[target].name;
        chosen.count++;
    }
    *w = chosen;
    return TRI_OK;
}

// Finds the tensor of the model for each one that is chosen.
static tri_status match(tri_arena *arena, const tri_state_sink *model, const tri_strings *ignore,
                        const checkpoint_weights *w, int **targets) {
    bool *may_lack = TRI_NEW_ARRAY(arena, bool, model->count);
    for (int i = 0; i < model->count; i++)
        may_lack[i] =
            model->tensors[i].may_lack || (ignore && matches(ignore, model->tensors[i].name));
    tri_status status =
        checkpoint_match(arena, w->path, w->entries, w->count, model, may_lack, targets);
    if (status == TRI_OK || !ignore) return status;
    return TRI_FAIL(status, "%s; init.ignore=[PATTERN, ...] leaves tensors as they are without it",
                    tri_arena_strdup(arena, tri_error_message()));
}

static tri_status find_dtype(tri_arena *arena, const char *path, checkpoint_weights *w,
                             tri_dtype *dtype) {
    bool is_known = false;
    checkpoint_kind kind;
    const char *real;
    TRI_TRY(checkpoint_resolve(arena, path, &kind, &real));
    if (kind == CHECKPOINT_IS_STEP) return TRI_OK; // a run saves F32
    TRI_TRY(checkpoint_weights_open(arena, path, true, w));
    for (int i = 0; i < w->count; i++) {
        const tri_safetensors_entry *entry = &w->entries[i];
        if (entry->shape.rank < 2 || !tri_dtype_is_float(entry->dtype)) continue;
        *dtype = is_known && *dtype != entry->dtype ? TRI_F32 : entry->dtype;
        is_known = true;
        if (!tri_dtype_is_half(*dtype)) break;
    }
    if (!tri_dtype_is_half(*dtype)) *dtype = TRI_F32;
    return TRI_OK;
}

tri_status tri_checkpoint_weights_dtype(const char *path, tri_dtype *dtype) {
    tri_arena *arena = tri_arena_create(NULL, "types of weights");
    checkpoint_weights weights = {.open_count = 0};
    *dtype = TRI_F32;
    tri_status status = find_dtype(arena, path, &weights, dtype);
    checkpoint_weights_close(&weights);
    tri_arena_destroy(arena);
    return status;
}

// Which parts of a checkpoint's file a load reads.
typedef struct reads {
    const tri_state_sink *model;
    const int *targets; // of the weights' entries
    tri_index entries;  // by where their data begin in the file
} reads;

static bool wants_part(void *context, int64_t offset, int64_t first, int64_t count) {
    const reads *r = context;
    int64_t some = count;
    int entry = tri_index_find(&r->entries, (const char *)&offset, sizeof offset);
    if (entry == TRI_NOT_IN_INDEX || !r->model->next_wanted) return entry != TRI_NOT_IN_INDEX;
    int64_t found = r->model->next_wanted(r->model->context, r->targets[entry], first, &some);
    return some > 0 && found < first + count;
}

// Verifies what will be read of a checkpoint. Each rank does so itself, because its host may have
// another copy.
static tri_status verify_parts(tri_arena *arena, const tri_state_sink *model, const int *targets,
                               const checkpoint_weights *w) {
    reads r = {.model = model, .targets = targets};
    if (!w->file) return TRI_OK;
    for (int i = 0; i < w->count; i++)
        tri_index_put(arena, &r.entries, (const char *)&w->entries[i].offset,
                      sizeof w->entries[i].offset, i);
    return checkpoint_verify_file(w->folder, w->manifest, w->file, wants_part, &r);
}

static tri_status load_opened(tri_arena *arena, const tri_strings *ignore,
                              const tri_state_sink *model, checkpoint_weights *w, char *buffer) {
    static const tri_strings none = {NULL, 0};
    int *targets;
    if (ignore) TRI_TRY(check_patterns(ignore, model, w));
    TRI_TRY(choose(arena, model, ignore ? ignore : &none, w, buffer));
    if (ignore && ignore->count > 0 && w->count == 0)
        return TRI_FAIL(TRI_BAD_INPUT, "ignore: the patterns leave nothing of %s to take", w->path);
    TRI_TRY(match(arena, model, ignore, w, &targets));
    for (int i = 0; i < w->count; i++) TRI_TRY(check_dtype(w, i, model->tensors[targets[i]].dtype));
    TRI_TRY(verify_parts(arena, model, targets, w));
    for (int i = 0; i < w->count; i++) TRI_TRY(load_tensor(w, i, model, targets[i], buffer));
    return TRI_OK;
}

static tri_status load_weights(const char *path, bool evaluated, const tri_strings *ignore,
                               const tri_state_sink *model, bool *averaged) {
    char *buffer = malloc(4 * (size_t)TRI_CHECKPOINT_CHUNK_BYTES);
    if (!buffer) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for a chunk of it", path);
    tri_arena *arena = tri_arena_create(NULL, "weights");
    checkpoint_weights weights;
    tri_status status = open_any(arena, path, evaluated, false, &weights);
    if (status == TRI_OK) status = load_opened(arena, ignore, model, &weights, buffer);
    *averaged = weights.is_averaged;
    checkpoint_weights_close(&weights);
    tri_arena_destroy(arena);
    free(buffer);
    return status;
}

tri_status tri_checkpoint_load_weights(const char *path, const tri_strings *ignore,
                                       const tri_state_sink *model) {
    bool unused;
    return load_weights(path, false, ignore, model, &unused);
}

tri_status tri_checkpoint_load_evaluated(const char *path, const tri_state_sink *model,
                                         bool *averaged) {
    return load_weights(path, true, NULL, model, averaged);
}
