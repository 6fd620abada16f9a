// Opens tokenizers of both formats, and holds what one thread needs to use them.
#include "format/tokenizer/tokenizer.h"

#include "base/os.h"
#include "format/tokenizer/cache.h"
#include "format/tokenizer/regex.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 256 << 20 };

static tri_status read_content(tri_tokenizer *t, const char *text, size_t size) {
    size_t at = 0;
    while (at < size && strchr(" \t\r\n", text[at])) at++;
    if (size == 0) return TRI_FAIL(TRI_BAD_INPUT, "%s: is empty", t->path);
    // A protocol buffer cannot begin with a brace: that would be the tag of a group.
    return at < size && text[at] == '{' ? tokenizer_json_read(t, text, size)
                                        : tokenizer_sentencepiece_read(t, text, size);
}

tri_status tri_tokenizer_open(const char *path, tri_tokenizer **out) {
    char *text;
    size_t size;
    *out = NULL;
    TRI_TRY(tri_os_read_file(path, MAX_FILE_BYTES, &text, &size));
    tri_arena *arena = tri_arena_create(NULL, "tokenizer");
    tri_tokenizer *t = TRI_NEW(arena, tri_tokenizer);
    t->arena = arena;
    t->path = tri_arena_strdup(arena, path);
    t->unknown = t->end = TOKENIZER_NO_ID;
    for (int i = 0; i < 256; i++) t->byte_ids[i] = TOKENIZER_NO_ID;
    tri_status status = read_content(t, text, size);
    free(text);
    if (status == TRI_OK)
        *out = t;
    else
        tri_tokenizer_close(t);
    return status;
}

void tri_tokenizer_close(tri_tokenizer *tokenizer) {
    if (!tokenizer) return;
    for (int i = 0; i < tokenizer->regex_count; i++) tokenizer_regex_free(tokenizer->regexes[i]);
    free(tokenizer->tokens);
    free(tokenizer->before.ids);
    free(tokenizer->after.ids);
    tri_arena_destroy(tokenizer->arena);
}

int64_t tri_tokenizer_size(const tri_tokenizer *tokenizer) { return tokenizer->size; }

bool tri_tokenizer_find(const tri_tokenizer *t, const char *text, uint32_t *id) {
    size_t size = strlen(text);
    int64_t found = tokenizer_find(t, text, size);
    *id = (uint32_t)found;
    for (int i = 0; i < t->added_count && found < 0; i++) {
        tokenizer_string added = t->added[i].text;
        if (added.size != size || memcmp(added.data, text, size) != 0) continue;
        *id = t->added[i].id;
        return true;
    }
    return found >= 0;
}

tri_status tri_token_encoder_create(const tri_tokenizer *tokenizer, tri_token_encoder **out) {
    *out = calloc(1, sizeof **out);
    if (!*out) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a tokenizer");
    (*out)->tokenizer = tokenizer;
    (*out)->cache = tokenizer_cache_create();
    tri_status status = (*out)->cache ? TRI_OK : TRI_FAIL(TRI_NO_MEMORY, "no memory for words");
    if (status == TRI_OK && tokenizer->regex_count > 0)
        status = tokenizer_regex_memory_create(&(*out)->regex_memory);
    if (status == TRI_OK) return TRI_OK;
    tri_token_encoder_destroy(*out);
    *out = NULL;
    return status;
}

void tri_token_encoder_destroy(tri_token_encoder *encoder) {
    if (!encoder) return;
    tokenizer_text *const texts[] = {&encoder->strings.texts[0],
                                     &encoder->strings.texts[1],
                                     &encoder->repaired,
                                     &encoder->normalized,
                                     &encoder->word,
                                     &encoder->scratch};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) tokenizer_text_free(texts[i]);
    tokenizer_regex_memory_free(&encoder->regex_memory);
    tokenizer_merge_memory_free(&encoder->merge_memory);
    tokenizer_cache_destroy(encoder->cache);
    free(encoder->strings.spans.items);
    free(encoder->strings.spare.items);
    free(encoder->symbols.ids);
    free(encoder->best);
    free(encoder);
}

bool tokenizer_ids_reserve(tri_token_ids *ids, size_t more) {
    if (ids->capacity - ids->count >= more) return true;
    size_t capacity = ids->capacity ? ids->capacity : 256;
    while (capacity - ids->count < more) capacity *= 2;
    uint32_t *grown = realloc(ids->ids, capacity * sizeof *grown);
    if (!grown) return false;
    ids->ids = grown;
    ids->capacity = capacity;
    return true;
}

void tokenizer_emit(tri_token_encoder *encoder, int64_t id) {
    tri_token_ids *out = encoder->out;
    if (out->count == out->capacity && !tokenizer_ids_reserve(out, 1)) {
        encoder->failed = true;
        return;
    }
    out->ids[out->count++] = (uint32_t)id;
}

// Whether there was no memory for some of what a call made.
static tri_status check_memory(const tri_token_encoder *e) {
    const tokenizer_text *const texts[] = {
        &e->strings.texts[0], &e->strings.texts[1], &e->repaired, &e->normalized, &e->word,
        &e->scratch};
    bool failed = e->failed || e->strings.spans.failed || e->strings.spare.failed;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) failed |= texts[i]->failed;
    return failed ? TRI_FAIL(TRI_NO_MEMORY, "no memory to encode a text") : TRI_OK;
}

tri_status tri_token_encode(tri_token_encoder *encoder, const char *text, size_t size,
                            tri_token_ids *out) {
    encoder->out = out;
    TRI_TRY(encoder->tokenizer->sentencepiece ? tokenizer_sentencepiece_encode(encoder, text, size)
                                              : tokenizer_json_encode(encoder, text, size));
    return check_memory(encoder);
}

bool tri_tokenizer_has(const tri_tokenizer *t, int64_t id) {
    return id >= 0 && id < t->size && t->tokens[id].data;
}

tri_status tri_token_decode(tri_token_encoder *encoder, const uint32_t *ids, size_t count,
                            const char **text, size_t *size) {
    const tri_tokenizer *t = encoder->tokenizer;
    for (size_t i = 0; i < count; i++)
        if (!tri_tokenizer_has(t, ids[i]))
            return TRI_FAIL(TRI_BAD_INPUT, "%u is no token of %s", ids[i], t->path);
    TRI_TRY(t->sentencepiece ? tokenizer_sentencepiece_decode(encoder, ids, count, text, size)
                             : tokenizer_json_decode(encoder, ids, count, text, size));
    return check_memory(encoder);
}
