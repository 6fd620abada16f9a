// Writes and parses state.json: progress, files, hashes, recipe. Read next: folder.c, which commits
// a checkpoint.
#include "checkpoint/manifest.h"

#include "base/limits.h"
#include "base/os.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The text before state.json's own hash. After it come the 64 hexadecimal digits of the hash and
// the characters "}, which end the file.
static const char SEAL[] = ",\"sha256\":\"";
enum { SEAL_BYTES = sizeof SEAL - 1 + 2 * CHECKPOINT_HASH_BYTES + 2 };

static void to_hex(const unsigned char hash[CHECKPOINT_HASH_BYTES], char *out) {
    for (int i = 0; i < CHECKPOINT_HASH_BYTES; i++) {
        *out++ = "0123456789abcdef"[hash[i] >> 4];
        *out++ = "0123456789abcdef"[hash[i] & 15];
    }
    *out = 0;
}

static bool from_hex(const char *text, unsigned char hash[CHECKPOINT_HASH_BYTES]) {
    static const char digits[] = "0123456789abcdef";
    if (strlen(text) != 2 * CHECKPOINT_HASH_BYTES) return false;
    for (int i = 0; i < CHECKPOINT_HASH_BYTES; i++) {
        const char *high = strchr(digits, text[2 * i]), *low = strchr(digits, text[2 * i + 1]);
        if (!high || !low) return false;
        hash[i] = (unsigned char)((high - digits) << 4 | (low - digits));
    }
    return true;
}

static tri_tree *file_tree(tri_arena *arena, const checkpoint_file *file) {
    tri_tree *tree = tri_tree_map(arena), *hashes = tri_tree_list(arena);
    tri_tree_put(arena, tree, "name", tri_tree_string(arena, file->name));
    tri_tree_put(arena, tree, "bytes", tri_tree_int(arena, file->size_bytes));
    for (int i = 0; i < file->chunk_count; i++) {
        char text[2 * CHECKPOINT_HASH_BYTES + 1];
        to_hex(file->hashes[i], text);
        tri_tree_append(arena, hashes, tri_tree_string(arena, text));
    }
    tri_tree_put(arena, tree, "sha256", hashes);
    return tree;
}

static tri_tree *monitor_tree(tri_arena *arena, const tri_checkpoint_monitor *monitor) {
    tri_tree *tree = tri_tree_map(arena);
    tri_tree_put(arena, tree, "name", tri_tree_string(arena, monitor->name));
    tri_tree_put(arena, tree, "mode",
                 tri_tree_string(arena, monitor->larger_is_better ? "max" : "min"));
    if (monitor->samples)
        tri_tree_put(arena, tree, "samples", tri_tree_string(arena, monitor->samples));
    bool known = monitor->is_known && isfinite(monitor->value);
    tri_tree_put(arena, tree, "value",
                 known ? tri_tree_double(arena, monitor->value) : tri_tree_null(arena));
    return tree;
}

tri_status checkpoint_manifest_text(tri_arena *arena, const checkpoint_manifest *manifest,
                                    char **out, size_t *size) {
    const tri_checkpoint_info *info = &manifest->info;
    tri_tree *root = tri_tree_map(arena), *files = tri_tree_list(arena);
    tri_tree_put(arena, root, "format", tri_tree_int(arena, CHECKPOINT_FORMAT));
    tri_tree_put(arena, root, "step", tri_tree_int(arena, info->step));
    tri_tree_put(arena, root, "commit", tri_tree_int(arena, info->commit));
    tri_tree_put(arena, root, "saved_unix_s", tri_tree_int(arena, info->saved_unix_s));
    tri_tree_put(arena, root, "program", tri_tree_string(arena, info->program));
    if (info->monitor.name)
        tri_tree_put(arena, root, "monitor", monitor_tree(arena, &info->monitor));
    if (info->training) tri_tree_put(arena, root, "training", tri_tree_copy(arena, info->training));
    if (info->recipe) tri_tree_put(arena, root, "recipe", tri_tree_string(arena, info->recipe));
    tri_tree_put(arena, root, "chunk_bytes", tri_tree_int(arena, manifest->chunk_bytes));
    for (int i = 0; i < manifest->file_count; i++)
        tri_tree_append(arena, files, file_tree(arena, &manifest->files[i]));
    tri_tree_put(arena, root, "files", files);

    char *text = tri_json_emit(arena, root);
    size_t sealed = strlen(text) - 1; // the hash is of these bytes: all but the closing brace
    unsigned char hash[CHECKPOINT_HASH_BYTES];
    char hex[2 * CHECKPOINT_HASH_BYTES + 1];
    TRI_TRY(checkpoint_hash(text, (int64_t)sealed, hash));
    to_hex(hash, hex);
    *out = tri_arena_printf(arena, "%.*s%s%s\"}", (int)sealed, text, SEAL, hex);
    *size = strlen(*out);
    if (*size > TRI_MAX_CHECKPOINT_STATE)
        return TRI_FAIL(TRI_UNSUPPORTED, "state.json would have %zu bytes; at most %d are read",
                        *size, TRI_MAX_CHECKPOINT_STATE);
    return TRI_OK;
}

static tri_status check_seal(const char *path, const char *text, size_t size) {
    unsigned char hash[CHECKPOINT_HASH_BYTES];
    char hex[2 * CHECKPOINT_HASH_BYTES + 1];
    const char *seal = size < SEAL_BYTES ? NULL : text + size - SEAL_BYTES;
    if (!seal || memcmp(seal, SEAL, sizeof SEAL - 1) != 0 || memcmp(text + size - 2, "\"}", 2) != 0)
        return TRI_FAIL(TRI_CORRUPT, "%s: is damaged: it does not end in its own hash", path);
    TRI_TRY(checkpoint_hash(text, (int64_t)(size - SEAL_BYTES), hash));
    to_hex(hash, hex);
    if (memcmp(seal + sizeof SEAL - 1, hex, sizeof hex - 1) != 0)
        return TRI_FAIL(TRI_CORRUPT, "%s: is damaged: its bytes do not have its SHA-256", path);
    return TRI_OK;
}

static tri_status get_int(const tri_tree *map, const char *path, const char *key, int64_t least,
                          int64_t most, int64_t *out) {
    if (!tri_tree_to_int(tri_tree_get(map, key), out) || *out < least || *out > most)
        return TRI_FAIL(TRI_CORRUPT, "%s: '%s' is missing or impossible", path, key);
    return TRI_OK;
}

static const char *get_text(const tri_tree *map, const char *key) {
    const tri_tree *node = tri_tree_get(map, key);
    return node && node->kind == TRI_TREE_SCALAR ? node->text : NULL;
}

const checkpoint_file *checkpoint_manifest_file(const checkpoint_manifest *manifest,
                                                const char *name) {
    for (int i = 0; i < manifest->file_count; i++)
        if (!strcmp(manifest->files[i].name, name)) return &manifest->files[i];
    return NULL;
}

static tri_status parse_file(tri_arena *arena, const char *path, const tri_tree *tree,
                             checkpoint_file *out) {
    const char *name = get_text(tree, "name");
    const tri_tree *hashes = tri_tree_get(tree, "sha256");
    if (!name || (strcmp(name, CHECKPOINT_MODEL_FILE) && strcmp(name, CHECKPOINT_OPTIMIZER_FILE) &&
                  strcmp(name, CHECKPOINT_AVERAGE_FILE)))
        return TRI_FAIL(TRI_CORRUPT, "%s: names a file that no checkpoint has", path);
    if (!hashes || hashes->kind != TRI_TREE_LIST)
        return TRI_FAIL(TRI_CORRUPT, "%s: has no hashes of %s", path, name);
    out->name = name;
    TRI_TRY(get_int(tree, path, "bytes", 0, INT64_MAX, &out->size_bytes));
    out->chunk_count = hashes->count;
    out->hashes = tri_arena_alloc(arena, (size_t)hashes->count * CHECKPOINT_HASH_BYTES);
    for (int i = 0; i < hashes->count; i++) {
        const tri_tree *hash = hashes->items[i];
        if (hash->kind != TRI_TREE_SCALAR || !from_hex(hash->text, out->hashes[i]))
            return TRI_FAIL(TRI_CORRUPT, "%s: hash %d of %s is not a SHA-256 hash", path, i, name);
    }
    return TRI_OK;
}

static tri_status parse_files(tri_arena *arena, const char *path, const tri_tree *list,
                              checkpoint_manifest *out) {
    if (!list || list->kind != TRI_TREE_LIST || list->count < 1 ||
        list->count > CHECKPOINT_MAX_FILES)
        return TRI_FAIL(TRI_CORRUPT, "%s: 'files' is missing or impossible", path);
    bool is_twice = false;
    for (int i = 0; i < list->count; i++) {
        TRI_TRY(parse_file(arena, path, list->items[i], &out->files[i]));
        is_twice = is_twice || checkpoint_manifest_file(out, out->files[i].name);
        out->file_count++;
    }
    if (is_twice || strcmp(out->files[0].name, CHECKPOINT_MODEL_FILE))
        return TRI_FAIL(TRI_CORRUPT, "%s: names the same file twice, or no model", path);
    return TRI_OK;
}

static void parse_monitor(const tri_tree *tree, tri_checkpoint_monitor *out) {
    const char *mode = get_text(tree, "mode");
    out->name = get_text(tree, "name");
    out->samples = get_text(tree, "samples");
    out->larger_is_better = mode && !strcmp(mode, "max");
    out->is_known = out->name && tri_tree_to_double(tri_tree_get(tree, "value"), &out->value);
}

static tri_status parse(tri_arena *arena, const char *path, const tri_tree *root,
                        checkpoint_manifest *out) {
    int64_t format;
    TRI_TRY(get_int(root, path, "format", 1, INT64_MAX, &format));
    if (format != CHECKPOINT_FORMAT)
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "%s: format %lld is of a later Trireme; this version reads %d", path,
                        (long long)format, CHECKPOINT_FORMAT);
    tri_checkpoint_info *info = &out->info;
    TRI_TRY(get_int(root, path, "step", 0, INT64_MAX, &info->step));
    TRI_TRY(get_int(root, path, "commit", 1, INT64_MAX - 1, &info->commit));
    TRI_TRY(get_int(root, path, "saved_unix_s", INT64_MIN, INT64_MAX, &info->saved_unix_s));
    TRI_TRY(
        get_int(root, path, "chunk_bytes", 8, TRI_MAX_CHECKPOINT_CHUNK_BYTES, &out->chunk_bytes));
    if (out->chunk_bytes % 8)
        return TRI_FAIL(TRI_CORRUPT, "%s: 'chunk_bytes' is missing or impossible", path);
    info->program = get_text(root, "program");
    if (!info->program) return TRI_FAIL(TRI_CORRUPT, "%s: 'program' is missing", path);
    info->recipe = get_text(root, "recipe");
    info->training = tri_tree_get(root, "training");
    parse_monitor(tri_tree_get(root, "monitor"), &info->monitor);
    return parse_files(arena, path, tri_tree_get(root, "files"), out);
}

tri_status checkpoint_manifest_read(tri_arena *arena, const char *folder,
                                    checkpoint_manifest *out) {
    *out = (checkpoint_manifest){0};
    const char *path = tri_arena_printf(arena, "%s/%s", folder, CHECKPOINT_STATE_FILE);
    char *text;
    size_t size;
    tri_status status = tri_os_check_file(path);
    if (status == TRI_OK) status = tri_os_read_file(path, TRI_MAX_CHECKPOINT_STATE, &text, &size);
    struct stat info;
    if (status == TRI_NOT_FOUND && stat(folder, &info) < 0) return tri_os_fail("open", folder);
    if (status == TRI_NOT_FOUND)
        return TRI_FAIL(TRI_CORRUPT, "%s: is missing: the checkpoint is not whole", path);
    if (status == TRI_BAD_INPUT) status = TRI_CORRUPT; // the file is larger than any state.json
    TRI_TRY(status);
    tri_tree *root = NULL;
    status = check_seal(path, text, size);
    if (status == TRI_OK) status = tri_json_parse(arena, text, size, path, &root);
    free(text);
    if (status == TRI_BAD_INPUT) status = TRI_CORRUPT;
    TRI_TRY(status);
    return parse(arena, path, root, out);
}

int64_t checkpoint_manifest_bytes(const checkpoint_manifest *manifest) {
    int64_t bytes = 0;
    for (int i = 0; i < manifest->file_count; i++) bytes += manifest->files[i].size_bytes;
    return bytes;
}
