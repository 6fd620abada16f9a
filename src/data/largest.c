// Keeps the largest token of a file beside it: see largest.h.
#include "data/largest.h"

#include "base/log.h"
#include "base/os.h"
#include "base/tree.h"
#include "data/cache.h"

#include <string.h>

typedef struct job {
    tri_arena *arena;
    const tri_tokens *tokens;
    const char *path; // of the file that has the number
    bool is_known;
    uint32_t largest;
} job;

static tri_status find(void *context, bool *found) {
    job *j = context;
    tri_tree *info;
    int64_t number;
    tri_status status = tri_json_read_file(j->arena, j->path, &info);
    *found = false;
    if (status == TRI_NO_MEMORY) return status;
    if (status != TRI_OK) return TRI_OK;
    const tri_tree *largest = tri_tree_get(info, "largest");
    *found = largest && tri_tree_to_int(largest, &number) && number >= 0 && number <= UINT32_MAX;
    if (*found) j->largest = (uint32_t)number;
    j->is_known = *found;
    return TRI_OK;
}

static tri_status make(void *context) {
    job *j = context;
    TRI_TRY(tri_tokens_largest(j->tokens, 0, j->tokens->count, &j->largest));
    j->is_known = true;
    tri_tree *info = tri_tree_map(j->arena);
    tri_tree_put_int(j->arena, info, "largest", j->largest);
    const char *text = tri_json_emit(j->arena, info);
    return tri_os_replace_fleeting(j->path, text, strlen(text));
}

tri_status tri_largest_token(tri_arena *arena, const char *cache, const tri_tokens *tokens,
                             int64_t *out) {
    job j = {.arena = arena, .tokens = tokens};
    tri_file_state state;
    tri_cache place;
    const char *path = tokens->path;
    *out = -1;
    TRI_TRY(tri_file_state_of_open(tokens->fd, path, &state));
    if (state.size < TRI_LARGEST_KEPT_BYTES) return TRI_OK;
    TRI_TRY(tri_cache_name(
        arena,
        &(tri_cache_request){.folder = cache,
                             .settings = tri_arena_printf(arena, "largest token 1 %s %lld",
                                                          tri_dtype_name(tokens->dtype),
                                                          (long long)tokens->offset),
                             .suffix = ".json",
                             .paths = &path,
                             .states = &state,
                             .count = 1},
        &place));
    j.path = place.path;
    if (tri_cache_once(&place, &(tri_cache_maker){find, make, &j}) != TRI_OK)
        tri_log_line(TRI_LOG_DEBUG, "%s: the largest token is not kept", tri_error_message());
    if (j.is_known) *out = j.largest;
    return TRI_OK;
}
