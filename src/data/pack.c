// Finds packed text, or packs it.
#include "data/pack.h"

#include "base/os.h"
#include "base/tree.h"
#include "data/cache.h"
#include "data/content.h"
#include "data/pack_lines.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

typedef struct pack_job {
    tri_arena *arena;
    const tri_data_options *options;
    const char *const *paths;
    int count;
    bool is_table;
    tri_tokenizer *tokenizer;
    uint32_t end;
    tri_cache cache;
    const char *info; // the path of the file that describes the packed text
    tri_pack *out;
} pack_job;

static tri_status hash_tokenizer(pack_job *job) {
    enum { TOKENIZER_BYTES = 256 << 20, HASH_BYTES = 32 };
    char *tokenizer;
    size_t size;
    unsigned char hash[HASH_BYTES];
    TRI_TRY(tri_os_read_file(job->options->tokenizer, TOKENIZER_BYTES, &tokenizer, &size));
    TRI_ASSERT(EVP_Digest(tokenizer, size, hash, NULL, EVP_sha256(), NULL));
    free(tokenizer);
    job->out->tokenizer = "";
    for (int i = 0; i < HASH_BYTES; i++)
        job->out->tokenizer = tri_arena_printf(job->arena, "%s%02x", job->out->tokenizer, hash[i]);
    return TRI_OK;
}

// Everything on which the packed text depends, beside its files.
static const char *settings_of(const pack_job *job) {
    enum { VERSION = 4 };
    return tri_arena_printf(job->arena, "packed text %d %u %d %s %s", VERSION, job->end,
                            job->options->on_error, job->options->field, job->out->tokenizer);
}

static tri_status name_files(pack_job *job) {
    tri_file_state *states = TRI_NEW_ARRAY(job->arena, tri_file_state, job->count);
    for (int i = 0; i < job->count; i++) TRI_TRY(tri_file_state_of(job->paths[i], &states[i]));
    TRI_TRY(hash_tokenizer(job));
    bool is_short = tri_tokenizer_size(job->tokenizer) <= UINT16_MAX + 1;
    job->out->type = is_short ? TRI_TOKENS_U16 : TRI_TOKENS_U32;
    TRI_TRY(tri_cache_name(job->arena,
                           &(tri_cache_request){.folder = job->options->cache,
                                                .settings = settings_of(job),
                                                .suffix = is_short ? ".u16" : ".u32",
                                                .paths = job->paths,
                                                .states = states,
                                                .count = job->count},
                           &job->cache));
    job->out->path = job->cache.path;
    job->info = tri_arena_printf(job->arena, "%s.json", job->cache.stem);
    return TRI_OK;
}

static bool read_number(const tri_tree *info, const char *key, int64_t *out) {
    const tri_tree *number = tri_tree_get(info, key);
    return number && tri_tree_to_int(number, out) && *out >= 0;
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
static tri_status find(void *context, bool *found) {
    pack_job *job = context;
    tri_pack *out = job->out;
    tri_tree *info;
    int64_t bytes = out->type == TRI_TOKENS_U16 ? 2 : 4;
    struct stat file;
    tri_status status = tri_json_read_file(job->arena, job->info, &info);
    *found = false;
    if (status == TRI_NOT_FOUND || status == TRI_BAD_INPUT) return TRI_OK;
    TRI_TRY(status);
    *found = read_number(info, "tokens", &out->tokens) &&
             read_lengths(tri_tree_get(info, "documents"), &out->documents) &&
             read_number(info, "left_out", &out->left_out) &&
             read_number(info, "largest", &out->largest) && out->largest <= UINT32_MAX &&
             out->tokens <= INT64_MAX / bytes && stat(out->path, &file) == 0 &&
             file.st_size == out->tokens * bytes;
    return TRI_OK;
}

static tri_status make(void *context) {
    pack_job *job = context;
    tri_pack *out = job->out;
    tri_os_replacement file;
    for (int i = 0; i < job->count && !job->is_table; i++)
        TRI_TRY(tri_content_check(job->paths[i], "jsonl"));
    TRI_TRY(tri_os_replacement_begin(out->path, &file));
    pack_lines lines = {.options = job->options,
                        .tokenizer = job->tokenizer,
                        .end = job->end,
                        .is_short = out->type == TRI_TOKENS_U16,
                        .is_plain = job->is_table,
                        .out = file.fd,
                        .out_path = out->path};
    tri_status status = pack_lines_begin(&lines);
    for (int i = 0; i < job->count && status == TRI_OK; i++)
        status = (job->is_table ? pack_rows_file : pack_lines_file)(&lines, job->paths[i]);
    out->tokens = lines.tokens;
    out->documents = lines.documents;
    out->left_out = lines.left_out;
    out->largest = lines.largest;
    pack_lines_end(&lines);
    TRI_TRY(tri_os_replacement_end(&file, status));
    tri_tree *info = tri_tree_map(job->arena);
    tri_tree_put_int(job->arena, info, "tokens", out->tokens);
    tri_tree_put(job->arena, info, "documents", lengths_tree(job->arena, &out->documents));
    tri_tree_put_int(job->arena, info, "left_out", out->left_out);
    tri_tree_put_int(job->arena, info, "largest", out->largest);
    const char *text = tri_json_emit(job->arena, info);
    return tri_os_replace_file(job->info, text, strlen(text));
}

static tri_status open_with(pack_job *job) {
    TRI_TRY(tri_tokenizer_end(job->tokenizer, &job->end));
    job->out->end_mark = tri_arena_printf(job->arena, "%u", job->end);
    TRI_TRY(name_files(job));
    return tri_cache_once(&job->cache, &(tri_cache_maker){find, make, job});
}

tri_status tri_pack_open(tri_arena *arena, const tri_data_options *options,
                         const char *const *paths, int count, bool is_table, tri_pack *out) {
    pack_job job = {.arena = arena,
                    .options = options,
                    .paths = paths,
                    .count = count,
                    .is_table = is_table,
                    .out = out};
    *out = (tri_pack){0};
    if (!options->tokenizer)
        return TRI_FAIL(TRI_BAD_INPUT, "data.tokenizer is not set: a tokenizer.json or "
                                       "tokenizer.model");
    TRI_TRY(tri_tokenizer_open(options->tokenizer, &job.tokenizer));
    tri_status status = open_with(&job);
    tri_tokenizer_close(job.tokenizer);
    return status;
}
