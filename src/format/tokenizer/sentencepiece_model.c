// The models of sentencepiece. BPE merges the neighbours whose token has the highest score; here
// that becomes a table of merges, as tokenizer.json has it. Unigram is that of unigram.c.
#include "format/tokenizer/sentencepiece.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum { UNKNOWN_PENALTY = 10 };
#define NO_PIECE UINT32_MAX // what a character is that occurs in no token

typedef struct scored {
    float score;
    int64_t id;
} scored;

static int compare(const void *a, const void *b) {
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool is_merged(const tokenizer_sentencepiece *s, int64_t id) {
    return s->types[id] == TOKENIZER_NORMAL || s->types[id] == TOKENIZER_USER_DEFINED;
}

// Numbers the tokens and their characters. Returns how many pairs of pieces make tokens, at most.
static size_t number_pieces(const tokenizer_reader *reader) {
    tri_tokenizer *t = reader->tokenizer;
    tokenizer_sentencepiece *s = t->sentencepiece;
    size_t pairs = 0;
    int next = (int)t->size;
    for (int64_t id = 0; id < t->size; id++)
        if (is_merged(s, id))
            tri_index_put(reader->arena, &s->pieces, t->tokens[id].data, t->tokens[id].size,
                          (int)id);
    for (int64_t id = 0; id < t->size; id++) {
        tokenizer_string piece = t->tokens[id];
        for (size_t at = 0; is_merged(s, id) && at < piece.size; pairs++) {
            size_t length = (size_t)tokenizer_length(piece.data[at]);
            if (tri_index_find(&s->pieces, piece.data + at, length) < 0)
                tri_index_put(reader->arena, &s->pieces, piece.data + at, length, next++);
            at += length;
        }
    }
    return pairs;
}

static void add_merges(tri_tokenizer *t, int64_t id, uint32_t rank) {
    tokenizer_string piece = t->tokens[id];
    const tri_index *pieces = &t->sentencepiece->pieces;
    for (size_t at = 0;;) {
        at += (size_t)tokenizer_length(piece.data[at]);
        if (at >= piece.size) break;
        int left = tri_index_find(pieces, piece.data, at);
        int right = tri_index_find(pieces, piece.data + at, piece.size - at);
        if (left >= 0 && right >= 0)
            tokenizer_merges_put(
                &t->merges, (tokenizer_merge){(uint32_t)left, (uint32_t)right, rank, (uint32_t)id});
    }
}

tri_status tokenizer_sentencepiece_bpe_init(const tokenizer_reader *reader) {
    tri_tokenizer *t = reader->tokenizer;
    tokenizer_sentencepiece *s = t->sentencepiece;
    tri_arena *arena = tri_arena_create(NULL, "scores");
    scored *order = TRI_NEW_ARRAY(arena, scored, t->size);
    size_t count = 0;
    for (int64_t id = 0; id < t->size; id++)
        if (is_merged(s, id)) order[count++] = (scored){s->scores[id], id};
    qsort(order, count, sizeof *order, compare);
    tokenizer_merges_init(reader->arena, &t->merges, number_pieces(reader));
    uint32_t rank = 0;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && order[i].score != order[i - 1].score) rank++;
        add_merges(t, order[i].id, rank);
    }
    tri_arena_destroy(arena);
    t->model = &tokenizer_sentencepiece_bpe;
    t->cuts_at_space = tokenizer_can_cut(t);
    for (int64_t id = 0; id < t->size; id++)
        if (s->types[id] == TOKENIZER_UNUSED)
            return TOKENIZER_FAIL(reader, TRI_UNSUPPORTED, "its unused token '%s' is not supported",
                                  t->tokens[id].data);
    return TRI_OK;
}

static tri_status encode_bpe(tri_token_encoder *encoder, const char *word, size_t size) {
    const tri_tokenizer *t = encoder->tokenizer;
    tri_token_ids *pieces = &encoder->symbols;
    pieces->count = 0;
    if (!tokenizer_ids_reserve(pieces, size))
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a word of %zu bytes", size);
    for (size_t at = 0; at < size;) {
        size_t length = (size_t)tokenizer_length(word[at]);
        int piece = tri_index_find(&t->sentencepiece->pieces, word + at, length);
        pieces->ids[pieces->count++] = piece >= 0 ? (uint32_t)piece : NO_PIECE;
        at += length;
    }
    TRI_TRY(
        tokenizer_merges_apply(&t->merges, &encoder->merge_memory, pieces->ids, &pieces->count));
    size_t at = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        bool is_token = pieces->ids[i] < (uint64_t)t->size;
        size_t length =
            is_token ? t->tokens[pieces->ids[i]].size : (size_t)tokenizer_length(word[at]);
        int64_t id = is_token ? (int64_t)pieces->ids[i] : tokenizer_find(t, word + at, length);
        if (id >= 0 && id != t->unknown)
            tokenizer_emit(encoder, id);
        else
            tokenizer_sentencepiece_unknown(encoder, word + at, length);
        at += length;
    }
    return TRI_OK;
}

const tokenizer_model tokenizer_sentencepiece_bpe = {"BPE", NULL, encode_bpe};

tri_status tokenizer_sentencepiece_unigram_init(const tokenizer_reader *reader) {
    tri_tokenizer *t = reader->tokenizer;
    const tokenizer_sentencepiece *s = t->sentencepiece;
    tri_arena *arena = tri_arena_create(NULL, "keys");
    tokenizer_key *keys = TRI_NEW_ARRAY(arena, tokenizer_key, t->size);
    int count = 0;
    float least = FLT_MAX;
    t->scores = TRI_NEW_ARRAY(reader->arena, double, t->size);
    for (int64_t id = 0; id < t->size; id++) {
        t->scores[id] = s->scores[id];
        if (s->types[id] == TOKENIZER_NORMAL && s->scores[id] < least) least = s->scores[id];
        // So that it is always taken, and the longest of several: as sentencepiece 0.2.3 does it.
        if (s->types[id] == TOKENIZER_USER_DEFINED)
            t->scores[id] = (float)(0.1 * (double)(t->tokens[id].size - 1));
        if (is_merged(s, id)) keys[count++] = (tokenizer_key){t->tokens[id], (int32_t)id};
    }
    t->unknown_score = least - (float)UNKNOWN_PENALTY;
    t->model = &tokenizer_unigram;
    tri_status status = tokenizer_trie_build(reader->arena, keys, count, &t->trie);
    tri_arena_destroy(arena);
    return status;
}
