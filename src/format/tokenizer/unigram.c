// The model Unigram: of all ways to make a word of tokens, the one whose scores, logarithms of
// probabilities, have the largest sum. (T. Kudo, "Subword Regularization", 2018)
#include "format/tokenizer/sentencepiece.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNKNOWN_PENALTY = 10, MOST_FLOAT_SUM = 100000 };

// The best way to a position of a word: its last token, and where that begins.
typedef struct tokenizer_path {
    double score;
    size_t start;
    int64_t id;
} tokenizer_path;

#define NO_START SIZE_MAX

// The number as serde_json reads it, which Hugging Face's library uses: all digits as one number,
// rounded, and then divided by a power of 10. So scores can differ in their last bit from what they
// should be, and then they decide between ways of equal sums.
static double score_of(const json_t *json) {
    double value = json_number_value(json);
    char text[64];
    for (int digits = 15; digits <= 17; digits++) { // the fewest that read back as the same value
        snprintf(text, sizeof text, "%.*e", digits - 1, value);
        if (strtod(text, NULL) == value) break;
    }
    uint64_t digits = 0;
    int exponent = 0, trailing = 0;
    const char *at = text + (*text == '-');
    for (bool is_fraction = false; *at && *at != 'e'; at++) {
        if (*at == '.') {
            is_fraction = true;
            continue;
        }
        trailing = *at == '0' ? trailing + 1 : 0;
        digits = 10 * digits + (uint64_t)(*at - '0');
        exponent -= is_fraction;
    }
    for (; trailing > 0 && digits; trailing--, exponent++) digits /= 10;
    exponent += *at == 'e' ? atoi(at + 1) : 0;
    double power = 1, result = (double)digits;
    for (int i = 0; i < abs(exponent); i++) power *= 10;
    if (abs(exponent) > 22) return value; // powers of 10 up to here are exact
    result = exponent < 0 ? result / power : result * power;
    return *text == '-' ? -result : result;
}

static tri_status read_entry(tokenizer_reader *reader, const json_t *entry, size_t index,
                             double *least) {
    tri_tokenizer *t = reader->tokenizer;
    const json_t *text = json_array_get(entry, 0), *score = json_array_get(entry, 1);
    if (!json_is_string(text) || !json_is_number(score))
        return TOKENIZER_FAIL(reader, TRI_BAD_INPUT,
                              "token %zu of its vocabulary is not a text and its score", index);
    tokenizer_string copy =
        tokenizer_copy(reader->arena, json_string_value(text), json_string_length(text));
    TRI_TRY(tokenizer_vocabulary_add(reader, copy, (int64_t)index));
    t->scores[index] = score_of(score);
    if (t->scores[index] < *least) *least = t->scores[index];
    return TRI_OK;
}

static tri_status parse(tokenizer_reader *reader, const json_t *json) {
    tri_tokenizer *t = reader->tokenizer;
    const json_t *vocabulary = json_object_get(json, "vocab");
    double least = 1e300;
    size_t count = json_array_size(vocabulary);
    if (count == 0) return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "its model has no list 'vocab'");
    t->scores = TRI_NEW_ARRAY(reader->arena, double, count);
    for (size_t i = 0; i < count; i++)
        TRI_TRY(read_entry(reader, json_array_get(vocabulary, i), i, &least));
    t->unknown_score = least - UNKNOWN_PENALTY;
    TRI_TRY(tokenizer_read_int(reader, json, "unk_id", TOKENIZER_NO_ID, &t->unknown));
    if (t->unknown >= (int64_t)count)
        return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "its unk_id is no token");
    TRI_TRY(tokenizer_read_bool(reader, json, "byte_fallback", false, &t->has_byte_fallback));
    if (t->has_byte_fallback) tokenizer_find_bytes(t);
    return tokenizer_vocabulary_trie(reader);
}

// Takes the way to a position if it is the first or a better one. sentencepiece's scores are
// floats.
static void improve(tokenizer_path *path, double score, size_t start, int64_t id, bool is_float) {
    if (is_float) score = (float)score;
    if (path->start == NO_START || score > path->score) *path = (tokenizer_path){score, start, id};
}

// Sums of long texts would be rounded too much as floats. When that of a position, from which
// tokens go on, is large, it becomes 0, and those behind it, up to `end`, are counted from there.
static void restart_sums(tokenizer_path *best, size_t at, size_t end) {
    float sum = (float)best[at].score;
    if (fabsf(sum) <= MOST_FLOAT_SUM) return;
    best[at].score = 0;
    for (size_t i = at + 1; i <= end; i++)
        if (best[i].start != NO_START) best[i].score = (float)best[i].score - sum;
}

// Finds the best way to each position.
static tri_status find_paths(const tri_tokenizer *t, tokenizer_path *best, const char *word,
                             size_t size) {
    bool is_float = t->sentencepiece != NULL;
    size_t reached = 0; // the last position to which a way leads
    for (size_t i = 0; i <= size; i++) best[i] = (tokenizer_path){0, NO_START, TOKENIZER_NO_ID};
    for (size_t at = 0; at < size;) {
        size_t length = (size_t)tokenizer_length(word[at]);
        bool has_character = false;
        int node = TOKENIZER_ROOT;
        if (is_float) restart_sums(best, at, reached);
        for (size_t i = at; i < size && node != TOKENIZER_NO_NODE; i++) {
            node = tokenizer_trie_step(&t->trie, node, word[i]);
            if (node == TOKENIZER_NO_NODE || t->trie.nodes[node].value < 0) continue;
            int64_t id = t->trie.nodes[node].value;
            improve(&best[i + 1], t->scores[id] + best[at].score, at, id, is_float);
            if (i + 1 > reached) reached = i + 1;
            has_character |= i + 1 - at == length;
        }
        if (!has_character && t->unknown < 0)
            return TRI_FAIL(TRI_BAD_INPUT, "the tokenizer has no unk_id for characters that its "
                                           "vocabulary lacks");
        double unknown = t->unknown_score + best[at].score;
        if (!has_character) improve(&best[at + length], unknown, at, t->unknown, is_float);
        at += length;
        if (at > reached) reached = at;
    }
    return TRI_OK;
}

static void put(tri_token_encoder *encoder, const char *text, size_t size, bool is_unknown) {
    const tri_tokenizer *t = encoder->tokenizer;
    if (is_unknown && t->sentencepiece) {
        tokenizer_sentencepiece_unknown(encoder, text, size);
        return;
    }
    int64_t id = tokenizer_find(t, text, size);
    bool falls_back = id < 0 && t->has_byte_fallback;
    for (size_t i = 0; i < size && falls_back; i++)
        falls_back = t->byte_ids[(unsigned char)text[i]] >= 0;
    if (!falls_back) {
        tokenizer_emit(encoder, id >= 0 ? id : t->unknown);
        return;
    }
    for (size_t i = 0; i < size; i++) tokenizer_emit(encoder, t->byte_ids[(unsigned char)text[i]]);
}

static tri_status encode(tri_token_encoder *encoder, const char *word, size_t size) {
    const tri_tokenizer *t = encoder->tokenizer;
    if (size + 1 > encoder->best_capacity) {
        free(encoder->best);
        encoder->best = malloc((size + 1) * sizeof *encoder->best);
        encoder->best_capacity = encoder->best ? size + 1 : 0;
        if (!encoder->best)
            return TRI_FAIL(TRI_NO_MEMORY, "no memory for a word of %zu bytes", size);
    }
    tokenizer_path *best = encoder->best;
    TRI_TRY(find_paths(t, best, word, size));
    // Turns the way around: best[i].score becomes unused, best[i].id of a token's start its end.
    size_t next = size;
    for (size_t at = size; at > 0;) {
        size_t start = best[at].start;
        bool is_unknown = best[at].id == t->unknown;
        best[at].id = (int64_t)next; // where the token behind this one ends
        best[at].score = is_unknown;
        next = at;
        at = start;
    }
    // In tokenizer.json neighbours that are unknown become one text.
    bool fuses = !t->sentencepiece;
    for (size_t start = 0, end = next; start < size;) {
        size_t after = end == size ? size : (size_t)best[end].id;
        while (fuses && best[end].score > 0 && end < size && best[after].score > 0) {
            end = after;
            after = end == size ? size : (size_t)best[end].id;
        }
        put(encoder, word + start, end - start, best[end].score > 0);
        start = end;
        end = after;
    }
    return TRI_OK;
}

const tokenizer_model tokenizer_unigram = {"Unigram", parse, encode};
