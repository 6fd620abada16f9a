// The model BPE: a word begins as one token for each character, or byte, and neighbours are merged
// in the order of the merges.
#include "format/tokenizer/sentencepiece.h"

#include <stdlib.h>
#include <string.h>

static tri_status fail_merge(const tokenizer_reader *reader, size_t index, const char *why) {
    return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "merge %zu of its model %s", index, why);
}

// Splits "a b" or ["a", "b"].
static bool split_merge(const json_t *merge, tokenizer_string *left, tokenizer_string *right) {
    const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
    if (json_is_array(merge)) {
        if (json_array_size(merge) != 2 || !json_is_string(a) || !json_is_string(b)) return false;
        *left = (tokenizer_string){json_string_value(a), json_string_length(a)};
        *right = (tokenizer_string){json_string_value(b), json_string_length(b)};
        return true;
    }
    const char *text = json_string_value(merge);
    size_t size = json_string_length(merge);
    const char *blank = text ? memchr(text, ' ', size) : NULL;
    if (!blank || memchr(blank + 1, ' ', size - (size_t)(blank + 1 - text))) return false;
    *left = (tokenizer_string){text, (size_t)(blank - text)};
    *right = (tokenizer_string){blank + 1, size - left->size - 1};
    return true;
}

static tri_status read_merge(tokenizer_reader *reader, const json_t *json, size_t index,
                             tokenizer_text *merged) {
    tri_tokenizer *t = reader->tokenizer;
    tokenizer_string left, right;
    if (!split_merge(json, &left, &right)) return fail_merge(reader, index, "is not two tokens");
    size_t skipped = t->prefix.size < right.size ? t->prefix.size : right.size;
    merged->size = 0;
    tokenizer_text_append(merged, left.data, left.size);
    tokenizer_text_append(merged, right.data + skipped, right.size - skipped);
    int64_t a = tokenizer_find(t, left.data, left.size);
    int64_t b = tokenizer_find(t, right.data, right.size);
    int64_t both = tokenizer_find(t, merged->data ? merged->data : "", merged->size);
    if (a < 0 || b < 0 || both < 0)
        return fail_merge(reader, index, "has tokens that the vocabulary does not have");
    tokenizer_merges_put(
        &t->merges, (tokenizer_merge){(uint32_t)a, (uint32_t)b, (uint32_t)index, (uint32_t)both});
    return TRI_OK;
}

static tri_status read_merges(tokenizer_reader *reader, const json_t *merges) {
    tokenizer_text merged = {0};
    tri_status status = TRI_OK;
    if (!json_is_array(merges))
        return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "its model has no list 'merges'");
    tokenizer_merges_init(reader->arena, &reader->tokenizer->merges, json_array_size(merges));
    for (size_t i = 0; status == TRI_OK && i < json_array_size(merges); i++)
        status = read_merge(reader, json_array_get(merges, i), i, &merged);
    tokenizer_text_free(&merged);
    return status;
}

bool tokenizer_can_cut(const tri_tokenizer *t) {
    if (tokenizer_find(t, TOKENIZER_SPACE_MARK, TOKENIZER_MARK_BYTES) < 0) return false;
    for (int64_t id = 0; id < t->size; id++) {
        tokenizer_string token = t->tokens[id];
        bool was_mark = true;
        for (size_t at = 0; at < token.size;) {
            size_t length = (size_t)tokenizer_length(token.data[at]);
            bool is_mark = length == TOKENIZER_MARK_BYTES &&
                           at + TOKENIZER_MARK_BYTES <= token.size &&
                           !memcmp(token.data + at, TOKENIZER_SPACE_MARK, TOKENIZER_MARK_BYTES);
            if (is_mark && !was_mark) return false;
            was_mark = is_mark;
            at += length;
        }
    }
    return true;
}

void tokenizer_cut(const char *data, tokenizer_span from, tokenizer_spans *out) {
    size_t end = from.start + from.size, start = from.start, at = start;
    while (at < end) {
        // Marks begin a word, so the next mark behind what is no mark begins the next word.
        while (at + TOKENIZER_MARK_BYTES <= end &&
               !memcmp(data + at, TOKENIZER_SPACE_MARK, TOKENIZER_MARK_BYTES))
            at += TOKENIZER_MARK_BYTES;
        const char *mark = memmem(data + at, end - at, TOKENIZER_SPACE_MARK, TOKENIZER_MARK_BYTES);
        at = mark ? (size_t)(mark - data) : end;
        tokenizer_spans_push(out, start, at - start);
        start = at;
    }
}

static tri_status parse(tokenizer_reader *reader, const json_t *json) {
    tri_tokenizer *t = reader->tokenizer;
    tokenizer_string unknown;
    const json_t *dropout = json_object_get(json, "dropout");
    if (json_number_value(dropout) > 0)
        return TOKENIZER_FAIL(reader, TRI_UNSUPPORTED, "the dropout of its model: set it to null");
    TRI_TRY(tokenizer_vocabulary_read(reader, json_object_get(json, "vocab")));
    TRI_TRY(tokenizer_read_string(reader, json, "continuing_subword_prefix", &t->prefix));
    TRI_TRY(tokenizer_read_string(reader, json, "end_of_word_suffix", &t->suffix));
    TRI_TRY(tokenizer_read_bool(reader, json, "fuse_unk", false, &t->fuses_unknown));
    TRI_TRY(tokenizer_read_bool(reader, json, "ignore_merges", false, &t->ignores_merges));
    TRI_TRY(tokenizer_read_bool(reader, json, "byte_fallback", false, &t->has_byte_fallback));
    TRI_TRY(tokenizer_read_string(reader, json, "unk_token", &unknown));
    if (unknown.data) t->unknown = tokenizer_find(t, unknown.data, unknown.size);
    if (unknown.data && t->unknown < 0)
        return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "its vocabulary lacks its unk_token '%s'",
                              unknown.data);
    if (t->has_byte_fallback) tokenizer_find_bytes(t);
    TRI_TRY(read_merges(reader, json_object_get(json, "merges")));
    t->cuts_at_space =
        !t->prefix.size && !t->suffix.size && !t->ignores_merges && tokenizer_can_cut(t);
    return TRI_OK;
}

// The tokens of a word before they are merged.
typedef struct symbols {
    const tri_tokenizer *t;
    tri_token_ids *out;
    bool has_unknown; // an unknown token stands before the next one
} symbols;

static void put(symbols *s, int64_t id) {
    if (s->has_unknown) s->out->ids[s->out->count++] = (uint32_t)s->t->unknown;
    s->has_unknown = false;
    s->out->ids[s->out->count++] = (uint32_t)id;
}

// Characters that no token stands for become the unknown token, which stands for all of a row if it
// is fused; without one they are left out.
static void put_unknown(symbols *s) {
    if (s->t->unknown < 0) return;
    if (s->has_unknown && !s->t->fuses_unknown)
        s->out->ids[s->out->count++] = (uint32_t)s->t->unknown;
    s->has_unknown = true;
}

static bool put_fallback(symbols *s, const char *data, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (s->t->byte_ids[(unsigned char)data[i]] < 0) return false;
    for (size_t i = 0; i < size; i++)
        s->out->ids[s->out->count++] = (uint32_t)s->t->byte_ids[(unsigned char)data[i]];
    return true;
}

static void put_character(symbols *s, tri_token_encoder *encoder, const char *word, size_t size,
                          size_t at, size_t length) {
    const tri_tokenizer *t = s->t;
    tokenizer_text *name = &encoder->word;
    bool is_first = at == 0, is_last = at + length == size;
    tokenizer_string text = {word + at, length};
    if ((!is_first && t->prefix.size) || (is_last && t->suffix.size)) {
        name->size = 0;
        if (!is_first) tokenizer_text_append(name, t->prefix.data, t->prefix.size);
        tokenizer_text_append(name, text.data, text.size);
        if (is_last) tokenizer_text_append(name, t->suffix.data, t->suffix.size);
        text = (tokenizer_string){name->data, name->size};
    }
    int64_t id = tokenizer_find(t, text.data, text.size);
    if (id >= 0)
        put(s, id);
    else if (!t->has_byte_fallback || !put_fallback(s, text.data, text.size))
        put_unknown(s);
}

static tri_status encode(tri_token_encoder *encoder, const char *word, size_t size) {
    const tri_tokenizer *t = encoder->tokenizer;
    symbols s = {.t = t, .out = &encoder->symbols};
    size_t most = size + 1;
    if (t->ignores_merges) {
        int64_t id = t->is_by_byte ? tri_index_find(&t->byte_index, word, size)
                                   : tokenizer_find(t, word, size);
        if (id >= 0) {
            tokenizer_emit(encoder, id);
            return TRI_OK;
        }
    }
    // Bytes of a fallback may be those of prefix, character and suffix.
    if (t->has_byte_fallback) most += size * (t->prefix.size + 1) + t->suffix.size;
    s.out->count = 0;
    if (!tokenizer_ids_reserve(s.out, most))
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a word of %zu bytes", size);
    for (size_t at = 0; at < size;) {
        size_t length = t->is_by_byte ? 1 : (size_t)tokenizer_length(word[at]);
        if (!t->is_by_byte)
            put_character(&s, encoder, word, size, at, length);
        else if (t->byte_ids[(unsigned char)word[at]] >= 0)
            put(&s, t->byte_ids[(unsigned char)word[at]]);
        else
            put_unknown(&s);
        at += length;
    }
    if (s.has_unknown) s.out->ids[s.out->count++] = (uint32_t)t->unknown;
    TRI_TRY(tokenizer_merges_apply(&t->merges, &encoder->merge_memory, s.out->ids, &s.out->count));
    for (size_t i = 0; i < s.out->count; i++) tokenizer_emit(encoder, s.out->ids[i]);
    return TRI_OK;
}

const tokenizer_model tokenizer_bpe = {"BPE", parse, encode};
