// Finds adapters by the names of their matrices, LAYER.lora_A.weight and LAYER.lora_B.weight. By
// what they are multiplied, and which weights are transposed, state.json tells (TRI_ADAPTERS).
#include "checkpoint/adapters.h"

#include "base/os.h"
#include "checkpoint/convert.h"
#include "checkpoint/find.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char OF_A[] = ".lora_A.weight", OF_B[] = ".lora_B.weight";
static const char CONFIG[] = "adapter_config.json", TENSORS[] = "adapter_model.safetensors";

static bool ends_in(const char *name, const char *end) {
    size_t length = strlen(name), tail = strlen(end);
    return length > tail && !strcmp(name + length - tail, end);
}

bool checkpoint_is_adapter(const char *name) { return ends_in(name, OF_A) || ends_in(name, OF_B); }

static int64_t size_of(const checkpoint_weights *w, int entry, int axis) {
    return w->entries[entry].shape.dims[axis];
}

static tri_status check(const checkpoint_weights *w, const checkpoint_adapter *one, int64_t rank) {
    const int entries[] = {one->weight, one->a, one->b};
    bool fits = true;
    for (int i = 0; i < 3 && fits; i++)
        fits = entries[i] != CHECKPOINT_NO_ENTRY && w->entries[entries[i]].shape.rank == 2 &&
               checkpoint_has_f64(w->entries[entries[i]].dtype);
    int in = one->is_transposed ? 0 : 1;
    if (fits && size_of(w, one->a, 0) == rank && size_of(w, one->b, 1) == rank &&
        size_of(w, one->a, 1) == size_of(w, one->weight, in) &&
        size_of(w, one->b, 0) == size_of(w, one->weight, 1 - in))
        return TRI_OK;
    return TRI_FAIL(TRI_CORRUPT, "%s: the adapter of %s does not fit its weight, or lacks a matrix",
                    w->path, one->layer);
}

static bool has_text(const tri_tree *list, const char *text) {
    for (int i = 0; list && i < list->count; i++)
        if (list->items[i]->text && !strcmp(list->items[i]->text, text)) return true;
    return false;
}

static tri_status read_settings(tri_arena *arena, const char *path, checkpoint_adapters *out,
                                const tri_tree **transposed) {
    tri_checkpoint_info info;
    checkpoint_kind kind;
    const char *real;
    TRI_TRY(checkpoint_resolve(arena, path, &kind, &real));
    if (kind != CHECKPOINT_IS_STEP)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: weights alone do not tell by what their adapters are multiplied: name "
                        "the checkpoint, or the run's folder",
                        path);
    TRI_TRY(tri_checkpoint_read_info(arena, real, &info));
    const tri_tree *settings = tri_tree_get(info.training, TRI_ADAPTERS);
    out->recipe = info.recipe;
    *transposed = tri_tree_get(settings, "transposed");
    if (tri_tree_to_int(tri_tree_get(settings, "rank"), &out->rank) && out->rank > 0 &&
        tri_tree_to_double(tri_tree_get(settings, "alpha"), &out->alpha) &&
        tri_tree_to_double(tri_tree_get(settings, "dropout"), &out->dropout))
        return TRI_OK;
    return TRI_FAIL(TRI_CORRUPT, "%s: state.json does not describe the adapters", path);
}

tri_status checkpoint_adapters_find(tri_arena *arena, const char *path, const checkpoint_weights *w,
                                    checkpoint_adapters *out) {
    const tri_tree *transposed = NULL;
    int64_t of_a = 0, of_b = 0;
    *out = (checkpoint_adapters){.items = TRI_NEW_ARRAY(arena, checkpoint_adapter, w->count)};
    for (int i = 0; i < w->count; i++) {
        const char *name = w->entries[i].name;
        if (!ends_in(name, OF_A)) continue;
        if (out->count == 0) TRI_TRY(read_settings(arena, path, out, &transposed));
        checkpoint_adapter *one = &out->items[out->count++];
        one->layer = tri_arena_printf(arena, "%.*s", (int)(strlen(name) - strlen(OF_A)), name);
        one->a = i;
        one->b = checkpoint_weights_find(w, tri_arena_printf(arena, "%s%s", one->layer, OF_B));
        one->weight = checkpoint_weights_find(w, tri_arena_printf(arena, "%s.weight", one->layer));
        one->is_transposed = has_text(transposed, one->layer);
        TRI_TRY(check(w, one, out->rank));
        int64_t a = out->rank * size_of(w, one->a, 1), b = out->rank * size_of(w, one->b, 0);
        of_a = a > of_a ? a : of_a;
        of_b = b > of_b ? b : of_b;
    }
    if (out->count == 0)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: has no adapters: only a run with `lora` in its recipe makes them",
                        path);
    out->a = TRI_NEW_ARRAY(arena, double, of_a);
    out->b = TRI_NEW_ARRAY(arena, double, of_b);
    return TRI_OK;
}

static int find(const checkpoint_adapters *adapters, int entry) {
    for (int i = 0; i < adapters->count; i++)
        if (adapters->items[i].weight == entry) return i;
    return CHECKPOINT_NO_ENTRY;
}

bool checkpoint_adapters_has(const checkpoint_adapters *adapters, int entry) {
    return find(adapters, entry) != CHECKPOINT_NO_ENTRY;
}

static tri_status load_matrix(const checkpoint_weights *w, int entry, double *to) {
    int64_t count = tri_shape_count(&w->entries[entry].shape);
    void *buffer = malloc((size_t)count * tri_dtype_bytes(w->entries[entry].dtype));
    if (!buffer) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for an adapter of it", w->path);
    tri_status status = checkpoint_weights_read(w, entry, 0, count, buffer);
    if (status == TRI_OK) checkpoint_to_f64(w->entries[entry].dtype, buffer, count, to);
    free(buffer);
    return status;
}

tri_status checkpoint_adapters_add(checkpoint_adapters *adapters, const checkpoint_weights *w,
                                   int entry, int64_t first, int64_t count, double *values) {
    int number = find(adapters, entry);
    const checkpoint_adapter *one = &adapters->items[number];
    if (adapters->loaded != number + 1) {
        adapters->loaded = 0;
        TRI_TRY(load_matrix(w, one->a, adapters->a));
        TRI_TRY(load_matrix(w, one->b, adapters->b));
        adapters->loaded = number + 1;
    }
    int64_t columns = size_of(w, entry, 1), ins = size_of(w, one->a, 1), rank = adapters->rank;
    double scale = adapters->alpha / (double)rank;
    for (int64_t k = 0; k < count; k++) {
        int64_t row = (first + k) / columns, column = (first + k) % columns;
        int64_t out = one->is_transposed ? column : row, in = one->is_transposed ? row : column;
        double sum = 0;
        for (int64_t r = 0; r < rank; r++)
            sum += adapters->b[out * rank + r] * adapters->a[r * ins + in];
        values[k] += scale * sum;
    }
    return TRI_OK;
}

static const char *last_word(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

// Whether every layer whose name ends so has an adapter, so that the end of the name is enough.
static bool are_all(const checkpoint_adapters *adapters, const checkpoint_weights *w,
                    const char *word) {
    char end[TRI_MESSAGE_MAX_BYTES];
    int layers = 0, adapted = 0;
    snprintf(end, sizeof end, ".%s.weight", word);
    for (int i = 0; i < w->count; i++)
        layers += ends_in(w->entries[i].name, end) || !strcmp(w->entries[i].name, end + 1);
    for (int i = 0; i < adapters->count; i++)
        adapted += !strcmp(last_word(adapters->items[i].layer), word);
    return layers == adapted;
}

// peft's target_modules: ends of names where these are enough, else whole names.
static tri_tree *list_targets(tri_arena *arena, const checkpoint_adapters *adapters,
                              const checkpoint_weights *w) {
    tri_tree *list = tri_tree_list(arena);
    for (int i = 0; i < adapters->count; i++) {
        const char *layer = adapters->items[i].layer, *word = last_word(layer);
        const char *target = are_all(adapters, w, word) ? word : layer;
        if (!has_text(list, target)) tri_tree_append(arena, list, tri_tree_string(arena, target));
    }
    return list;
}

static const char *text_at(const tri_tree *recipe, const char *path) {
    const tri_tree *node = tri_tree_find(recipe, path);
    return node && node->kind == TRI_TREE_SCALAR ? node->text : NULL;
}

static tri_tree *text_or_null(tri_arena *arena, const char *text) {
    return text ? tri_tree_string(arena, text) : tri_tree_null(arena);
}

// The keys of https://huggingface.co/docs/peft/package_reference/lora, LoraConfig, that differ from
// its defaults or say what a reader wants to know.
static tri_status describe(tri_arena *arena, const checkpoint_adapters *adapters,
                           const checkpoint_weights *w, tri_tree *map) {
    tri_tree *recipe = NULL;
    bool is_transposed = false;
    if (adapters->recipe)
        TRI_TRY(
            tri_yaml_parse(arena, adapters->recipe, strlen(adapters->recipe), w->path, &recipe));
    for (int i = 0; i < adapters->count; i++) is_transposed |= adapters->items[i].is_transposed;
    const char *model = text_at(recipe, "model.name");
    bool is_decoder = model && (!strcmp(model, "llama") || !strcmp(model, "gpt2"));
    tri_tree_put_string(arena, map, "peft_type", "LORA");
    tri_tree_put(arena, map, "task_type", text_or_null(arena, is_decoder ? "CAUSAL_LM" : NULL));
    tri_tree_put(arena, map, "base_model_name_or_path",
                 text_or_null(arena, text_at(recipe, "init.path")));
    tri_tree_put(arena, map, "inference_mode", tri_tree_bool(arena, true));
    tri_tree_put_int(arena, map, "r", adapters->rank);
    tri_tree_put(arena, map, "lora_alpha", tri_tree_double(arena, adapters->alpha));
    tri_tree_put(arena, map, "lora_dropout", tri_tree_double(arena, adapters->dropout));
    tri_tree_put(arena, map, "target_modules", list_targets(arena, adapters, w));
    tri_tree_put(arena, map, "fan_in_fan_out", tri_tree_bool(arena, is_transposed));
    tri_tree_put_string(arena, map, "bias", "none");
    return TRI_OK;
}

// Refuses a folder of something else, as a checkpoint's.
static tri_status check_folder(const char *path) {
    DIR *folder = opendir(path);
    bool has_config = false, has_others = false;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        has_config |= !strcmp(entry->d_name, CONFIG);
        has_others |= strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    if (folder) closedir(folder);
    if (has_config || !has_others) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "--lora: %s has other files and no %s: name a new folder", path,
                    CONFIG);
}

tri_status checkpoint_adapters_write_config(tri_arena *arena, const char *folder,
                                            const checkpoint_adapters *adapters,
                                            const checkpoint_weights *w, const char **file) {
    tri_tree *map = tri_tree_map(arena);
    TRI_TRY(check_folder(folder));
    TRI_TRY(describe(arena, adapters, w, map));
    TRI_TRY(tri_os_make_folders(folder));
    const char *text = tri_arena_printf(arena, "%s\n", tri_json_emit(arena, map));
    *file = tri_arena_printf(arena, "%s/%s", folder, TENSORS);
    return tri_os_replace_file(tri_arena_printf(arena, "%s/%s", folder, CONFIG), text,
                               strlen(text));
}
