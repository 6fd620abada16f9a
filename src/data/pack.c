// Finds packed text, or packs it.
#include "data/pack.h"

#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "base/tree.h"
#include "data/pack_lines.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_MS = 50 };

typedef struct pack_job {
    tri_arena *arena;
    const tri_data_options *options;
    const char *const *paths;
    int count;
    tri_tokenizer *tokenizer;
    uint32_t end;
    const char *info; // the path of the file that describes the packed text
} pack_job;

static const char *hash_of(tri_arena *arena, const void *data, size_t size, int digits) {
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    const char *text = "";
    EVP_Digest(data, size, hash, &length, EVP_sha256(), NULL);
    for (int i = 0; 2 * i < digits && i < (int)length; i++)
        text = tri_arena_printf(arena, "%s%02x", text, hash[i]);
    return text;
}

// Everything on which the packed text depends.
static tri_status describe(pack_job *job, const char **out) {
    enum { TOKENIZER_BYTES = 256 << 20, HASH_DIGITS = 64, VERSION = 2 };
    char *tokenizer;
    size_t size;
    TRI_TRY(tri_os_read_file(job->options->tokenizer, TOKENIZER_BYTES, &tokenizer, &size));
    const char *key = tri_arena_printf(job->arena, "%d %s %u %d %s", VERSION,
                                       hash_of(job->arena, tokenizer, size, HASH_DIGITS), job->end,
                                       job->options->on_error, job->options->field);
    free(tokenizer);
    for (int i = 0; i < job->count; i++) {
        struct stat info;
        TRI_TRY(tri_os_check_file(job->paths[i]));
        if (stat(job->paths[i], &info) < 0) return tri_os_fail("look at", job->paths[i]);
        key = tri_arena_printf(job->arena, "%s %lld %lld.%09ld", key, (long long)info.st_size,
                               (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    }
    *out = key;
    return TRI_OK;
}

// The folder of packed text: data.cache or that of the data; if nobody may write there, the user's
// own folder for what can be made again.
static const char *folder_of(const pack_job *job) {
    const char *slash = strrchr(job->paths[0], '/');
    int length = slash ? (int)(slash - job->paths[0]) : 0;
    if (slash && length == 0) length = 1; // the root
    const char *beside = slash ? tri_arena_printf(job->arena, "%.*s", length, job->paths[0]) : ".";
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (job->options->cache) return job->options->cache;
    if (access(beside, W_OK) == 0) return beside;
    if (cache && *cache == '/') return tri_arena_printf(job->arena, "%s/trireme", cache);
    return home ? tri_arena_printf(job->arena, "%s/.cache/trireme", home) : beside;
}

static bool read_lengths(const tri_tree *list, tri_data_lengths *out) {
    return list && list->kind == TRI_TREE_LIST && list->count == 4 &&
           tri_tree_to_int(list->items[0], &out->count) &&
           tri_tree_to_int(list->items[1], &out->least) &&
           tri_tree_to_int(list->items[2], &out->most) &&
           tri_tree_to_int(list->items[3], &out->sum);
}

static tri_tree *lengths_tree(tri_arena *arena, const tri_data_lengths *lengths) {
    const int64_t numbers[] = {lengths->count, lengths->least, lengths->most, lengths->sum};
    tri_tree *list = tri_tree_list(arena);
    for (int i = 0; i < 4; i++) tri_tree_append(arena, list, tri_tree_int(arena, numbers[i]));
    return list;
}

// Reads what an earlier run has packed. *found is false if there is nothing, or not all of it.
static tri_status read_info(pack_job *job, const char *key, tri_pack *out, bool *found) {
    tri_tree *info;
    int64_t bytes = out->type == TRI_TOKENS_U16 ? 2 : 4;
    struct stat file;
    tri_status status = tri_json_read_file(job->arena, job->info, &info);
    *found = false;
    if (status == TRI_NOT_FOUND || status == TRI_BAD_INPUT) return TRI_OK;
    TRI_TRY(status);
    const tri_tree *same = tri_tree_get(info, "key");
    *found = same && same->kind == TRI_TREE_SCALAR && !strcmp(same->text, key) &&
             read_lengths(tri_tree_get(info, "documents"), &out->documents) &&
             tri_tree_get(info, "tokens") && tri_tree_get(info, "left_out") &&
             tri_tree_to_int(tri_tree_get(info, "tokens"), &out->tokens) &&
             tri_tree_to_int(tri_tree_get(info, "left_out"), &out->left_out) &&
             stat(out->path, &file) == 0 && file.st_size == out->tokens * bytes;
    return TRI_OK;
}

static tri_status make(pack_job *job, const char *key, tri_pack *out) {
    tri_os_replacement file;
    TRI_TRY(tri_os_replacement_begin(out->path, &file));
    pack_lines lines = {.options = job->options,
                        .tokenizer = job->tokenizer,
                        .end = job->end,
                        .is_short = out->type == TRI_TOKENS_U16,
                        .out = file.fd,
                        .out_path = out->path};
    tri_status status = pack_lines_begin(&lines);
    for (int i = 0; i < job->count && status == TRI_OK; i++)
        status = pack_lines_file(&lines, job->paths[i]);
    out->tokens = lines.tokens;
    out->documents = lines.documents;
    out->left_out = lines.left_out;
    pack_lines_end(&lines);
    TRI_TRY(tri_os_replacement_end(&file, status));
    tri_tree *info = tri_tree_map(job->arena);
    tri_tree_put_string(job->arena, info, "key", key);
    tri_tree_put_int(job->arena, info, "tokens", out->tokens);
    tri_tree_put(job->arena, info, "documents", lengths_tree(job->arena, &out->documents));
    tri_tree_put_int(job->arena, info, "left_out", out->left_out);
    const char *text = tri_json_emit(job->arena, info);
    return tri_os_replace_file(job->info, text, strlen(text));
}

// Packs the text, or waits for another process that does.
static tri_status make_once(pack_job *job, const char *key, tri_pack *out) {
    const char *path = tri_arena_printf(job->arena, "%s.lock", job->info);
    int fd = tri_os_open_or_create(path, O_RDWR | O_CLOEXEC, 0666);
    if (fd < 0) {
        tri_status status = tri_os_fail("create", path);
        return tri_status_context(status, "packed text needs a folder (data.cache)");
    }
    bool found = false;
    tri_status status = TRI_OK;
    bool told = false;
    while (tri_os.lock(fd) != 0) {
        if (!told) tri_log(TRI_LOG_DEBUG, "waiting for the process that packs %s", job->paths[0]);
        told = true;
        tri_os.sleep_ns((int64_t)WAIT_MS * 1000000);
    }
    status = read_info(job, key, out, &found);
    if (status == TRI_OK && !found) status = make(job, key, out);
    tri_os.close(fd);
    // Processes that still wait for the lock have this file open. They find the packed text.
    tri_os.unlink(path);
    return status;
}

static tri_status open_with(pack_job *job, tri_pack *out) {
    const char *key = NULL, *folder = folder_of(job);
    bool found;
    TRI_TRY(tri_tokenizer_end(job->tokenizer, &job->end));
    TRI_TRY(describe(job, &key));
    TRI_TRY(tri_os_make_folders(folder));
    bool is_short = tri_tokenizer_size(job->tokenizer) <= UINT16_MAX + 1;
    const char *slash = strrchr(job->paths[0], '/');
    const char *stem =
        tri_arena_printf(job->arena, "%s/.%s.%s", folder, slash ? slash + 1 : job->paths[0],
                         hash_of(job->arena, key, strlen(key), 16));
    out->type = is_short ? TRI_TOKENS_U16 : TRI_TOKENS_U32;
    out->path = tri_arena_printf(job->arena, "%s.%s", stem, is_short ? "u16" : "u32");
    job->info = tri_arena_printf(job->arena, "%s.json", stem);
    TRI_TRY(read_info(job, key, out, &found));
    return found ? TRI_OK : make_once(job, key, out);
}

tri_status tri_pack_open(tri_arena *arena, const tri_data_options *options,
                         const char *const *paths, int count, tri_pack *out) {
    pack_job job = {.arena = arena, .options = options, .paths = paths, .count = count};
    *out = (tri_pack){0};
    if (!options->tokenizer)
        return TRI_FAIL(TRI_BAD_INPUT, "data.tokenizer is not set: a tokenizer.json or "
                                       "tokenizer.model");
    TRI_TRY(tri_tokenizer_open(options->tokenizer, &job.tokenizer));
    tri_status status = open_with(&job, out);
    tri_tokenizer_close(job.tokenizer);
    return status;
}
