// The models WordPiece and WordLevel. WordPiece takes the longest beginning of the rest of a word
// that is a token, again and again. WordLevel takes each word for one token.
#include "format/tokenizer/parts.h"

#include <string.h>

static tri_status read_common(tokenizer_reader *reader, const json_t *json) {
    tri_tokenizer *t = reader->tokenizer;
    tokenizer_string unknown;
    TRI_TRY(tokenizer_vocabulary_read(reader, json_object_get(json, "vocab")));
    TRI_TRY(tokenizer_read_string(reader, json, "unk_token", &unknown));
    t->unknown = tokenizer_find(t, unknown.data ? unknown.data : "", unknown.size);
    if (t->unknown >= 0) return TRI_OK;
    return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "its vocabulary lacks its unk_token '%s'",
                          unknown.data ? unknown.data : "");
}

tri_status tokenizer_vocabulary_trie(tokenizer_reader *reader) {
    tri_tokenizer *t = reader->tokenizer;
    tri_arena *arena = tri_arena_create(NULL, "keys");
    tokenizer_key *keys = TRI_NEW_ARRAY(arena, tokenizer_key, t->size);
    int count = 0;
    for (int64_t id = 0; id < t->size; id++) {
        tokenizer_string token = t->tokens[id];
        // Of two tokens with the same text, only one is found by it.
        if (token.size && tokenizer_find(t, token.data, token.size) == id)
            keys[count++] = (tokenizer_key){token, (int32_t)id};
    }
    tri_status status = tokenizer_trie_build(reader->arena, keys, count, &t->trie);
    tri_arena_destroy(arena);
    return status;
}

static tri_status parse(tokenizer_reader *reader, const json_t *json) {
    tri_tokenizer *t = reader->tokenizer;
    TRI_TRY(read_common(reader, json));
    TRI_TRY(tokenizer_read_string(reader, json, "continuing_subword_prefix", &t->prefix));
    if (!t->prefix.data) t->prefix = (tokenizer_string){"##", 2};
    TRI_TRY(
        tokenizer_read_int(reader, json, "max_input_chars_per_word", 100, &t->max_word_characters));
    return tokenizer_vocabulary_trie(reader);
}

// The node of the trie below which the later pieces of words are; TOKENIZER_NO_NODE: there are
// none.
static int later_root(const tri_tokenizer *t) {
    int node = TOKENIZER_ROOT;
    for (size_t i = 0; i < t->prefix.size && node != TOKENIZER_NO_NODE; i++)
        node = tokenizer_trie_step(&t->trie, node, t->prefix.data[i]);
    return node;
}

static size_t longest(const tri_tokenizer *t, int node, const char *text, size_t size,
                      int64_t *id) {
    size_t length = 0;
    for (size_t i = 0; i < size && node != TOKENIZER_NO_NODE; i++) {
        node = tokenizer_trie_step(&t->trie, node, text[i]);
        if (node == TOKENIZER_NO_NODE || t->trie.nodes[node].value < 0) continue;
        *id = t->trie.nodes[node].value;
        length = i + 1;
    }
    return length;
}

static tri_status encode(tri_token_encoder *encoder, const char *word, size_t size) {
    const tri_tokenizer *t = encoder->tokenizer;
    size_t before = encoder->out->count;
    int64_t characters = 0;
    for (size_t i = 0; i < size; i++) characters += (word[i] & 0xc0) != 0x80;
    bool is_known = characters <= t->max_word_characters;
    int later = later_root(t);
    for (size_t at = 0; is_known && at < size;) {
        int64_t id = TOKENIZER_NO_ID;
        size_t length = longest(t, at ? later : TOKENIZER_ROOT, word + at, size - at, &id);
        if (length) tokenizer_emit(encoder, id);
        is_known = length > 0;
        at += length;
    }
    if (is_known) return TRI_OK;
    encoder->out->count = before;
    tokenizer_emit(encoder, t->unknown);
    return TRI_OK;
}

const tokenizer_model tokenizer_wordpiece = {"WordPiece", parse, encode};

static tri_status encode_level(tri_token_encoder *encoder, const char *word, size_t size) {
    int64_t id = tokenizer_find(encoder->tokenizer, word, size);
    tokenizer_emit(encoder, id >= 0 ? id : encoder->tokenizer->unknown);
    return TRI_OK;
}

const tokenizer_model tokenizer_wordlevel = {"WordLevel", read_common, encode_level};
