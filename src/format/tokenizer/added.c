// Added tokens, which are found in a text before anything else: as they stand there, or after the
// text was normalized.
#include "format/tokenizer/parts.h"

#include <stdlib.h>
#include <string.h>

static tri_status read_one(tokenizer_reader *reader, const json_t *json, tokenizer_added *out) {
    int64_t id;
    tokenizer_string text;
    TRI_TRY(tokenizer_read_string(reader, json, "content", &text));
    TRI_TRY(tokenizer_read_int(reader, json, "id", TOKENIZER_NO_ID, &id));
    TRI_TRY(tokenizer_read_bool(reader, json, "special", false, &out->is_special));
    TRI_TRY(tokenizer_read_bool(reader, json, "normalized", !out->is_special, &out->is_normalized));
    TRI_TRY(tokenizer_read_bool(reader, json, "single_word", false, &out->is_single_word));
    TRI_TRY(tokenizer_read_bool(reader, json, "lstrip", false, &out->strips_left));
    TRI_TRY(tokenizer_read_bool(reader, json, "rstrip", false, &out->strips_right));
    if (!text.data || id < 0)
        return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "an added token without content or id");
    int64_t known = tokenizer_find(reader->tokenizer, text.data, text.size);
    if (known >= 0 && known != id)
        return TOKENIZER_FAIL(reader, TRI_BAD_INPUT,
                              "the added token '%s' is number %lld, but %lld in the vocabulary",
                              text.data, (long long)id, (long long)known);
    out->text = text;
    out->id = (uint32_t)id;
    return tokenizer_token_set(reader, text, id);
}

tri_status tokenizer_added_read(tokenizer_reader *reader, const json_t *json) {
    tri_tokenizer *t = reader->tokenizer;
    if (!json || json_is_null(json)) return TRI_OK;
    if (!json_is_array(json))
        return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "'added_tokens' is not a list");
    t->added = TRI_NEW_ARRAY(reader->arena, tokenizer_added, json_array_size(json));
    for (size_t i = 0; i < json_array_size(json); i++)
        TRI_TRY(read_one(reader, json_array_get(json, i), &t->added[t->added_count++]));
    return TRI_OK;
}

// The text by which a token is found after normalization: itself, normalized.
static tri_status normalize(tokenizer_reader *reader, tri_token_encoder *encoder,
                            tokenizer_string *text) {
    tokenizer_strings *strings = &encoder->strings;
    strings->data = text->data;
    strings->spans.count = 0;
    tokenizer_spans_push(&strings->spans, 0, text->size);
    TRI_TRY(tokenizer_apply(encoder, TOKENIZER_NORMALIZER, strings));
    const tokenizer_span *span = &strings->spans.items[0];
    *text = tokenizer_copy(reader->arena, strings->data + span->start, span->size);
    return TRI_OK;
}

tri_status tokenizer_added_index(tokenizer_reader *reader) {
    tri_tokenizer *t = reader->tokenizer;
    tri_arena *arena = tri_arena_create(NULL, "keys");
    tokenizer_key *raw = TRI_NEW_ARRAY(arena, tokenizer_key, t->added_count);
    tokenizer_key *normalized = TRI_NEW_ARRAY(arena, tokenizer_key, t->added_count);
    int raw_count = 0, normalized_count = 0;
    tri_token_encoder *encoder = NULL;
    tri_status status = tri_token_encoder_create(t, &encoder);
    for (int i = 0; i < t->added_count && status == TRI_OK; i++) {
        tokenizer_string text = t->added[i].text;
        if (t->added[i].is_normalized) {
            status = normalize(reader, encoder, &text);
            // It decodes as it was found.
            if (status == TRI_OK) status = tokenizer_token_set(reader, text, t->added[i].id);
            normalized[normalized_count++] = (tokenizer_key){text, i};
        } else {
            raw[raw_count++] = (tokenizer_key){text, i};
        }
    }
    tri_token_encoder_destroy(encoder);
    if (status == TRI_OK)
        status = tokenizer_trie_build(reader->arena, raw, raw_count, &t->added_raw);
    if (status == TRI_OK)
        status =
            tokenizer_trie_build(reader->arena, normalized, normalized_count, &t->added_normalized);
    tri_arena_destroy(arena);
    return status;
}

// The character that ends before `end`.
static size_t previous(const char *text, size_t end, uint32_t *code) {
    size_t at = end - 1;
    while (at > 0 && (text[at] & 0xc0) == 0x80) at--;
    tokenizer_next(text + at, code);
    return at;
}

static bool stands_alone(const char *text, size_t size, size_t start, size_t end) {
    uint32_t before = ' ', after = ' ';
    if (start > 0) previous(text, start, &before);
    if (end < size) tokenizer_next(text + end, &after);
    return !tokenizer_is_word(before) && !tokenizer_is_word(after);
}

bool tokenizer_added_search(const tri_tokenizer *t, bool normalized, const char *text, size_t size,
                            size_t *from, size_t least, tokenizer_span *found, uint32_t *id) {
    const tokenizer_trie *trie = normalized ? &t->added_normalized : &t->added_raw;
    size_t start, end;
    int32_t index;
    uint32_t code;
    while (tokenizer_trie_search(trie, text, size, *from, &start, &end, &index)) {
        const tokenizer_added *token = &t->added[index];
        *from = end;
        if (token->is_single_word && !stands_alone(text, size, start, end)) continue;
        while (token->strips_left && start > least) {
            size_t at = previous(text, start, &code);
            if (!tokenizer_is_space(code) || at < least) break;
            start = at;
        }
        while (token->strips_right && end < size) {
            int length = tokenizer_next(text + end, &code);
            if (!tokenizer_is_space(code)) break;
            end += (size_t)length;
        }
        if (end <= least) continue; // an earlier one has taken it
        if (start < least) start = least;
        *found = (tokenizer_span){start, end - start};
        *id = token->id;
        return true;
    }
    return false;
}
