// Encodes and decodes as sentencepiece does (src/normalizer.cc, src/sentencepiece_processor.cc).
#include "format/tokenizer/sentencepiece.h"

#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" // U+FFFD

// What the next characters become, and how many bytes of the text they are.
static size_t normalize_next(const tokenizer_sentencepiece *s, const char *text, size_t size,
                             tokenizer_string *to) {
    int32_t id;
    uint32_t code;
    size_t length = tokenizer_trie_longest(&s->symbols, text, size, &id);
    if (length == 0 && s->charsmap.units) {
        length = tokenizer_charsmap_find(&s->charsmap, text, size, true, to);
        if (length > 0) return length;
    }
    if (length == 0) {
        int valid = tokenizer_decode(text, text + size, &code);
        if (valid < 0) {
            *to = (tokenizer_string){REPLACEMENT, 3};
            return 1;
        }
        length = (size_t)valid;
    }
    *to = (tokenizer_string){text, length};
    return length;
}

static void put_space(const tokenizer_sentencepiece *s, tokenizer_text *out) {
    if (s->escapes_spaces)
        tokenizer_text_append(out, TOKENIZER_SPACE_MARK, TOKENIZER_MARK_BYTES);
    else
        tokenizer_text_append(out, " ", 1);
}

static void put_normalized(const tokenizer_sentencepiece *s, tokenizer_string text,
                           tokenizer_text *out) {
    while (text.size > 0) {
        const char *space = memchr(text.data, ' ', text.size);
        size_t until = space ? (size_t)(space - text.data) : text.size;
        tokenizer_text_append(out, text.data, until);
        if (space) put_space(s, out);
        until += space != NULL;
        text.data += until;
        text.size -= until;
    }
}

static void normalize(const tokenizer_sentencepiece *s, const char *text, size_t size,
                      tokenizer_text *out) {
    tokenizer_string to;
    size_t at = 0;
    out->size = 0;
    while (s->removes_spaces && at < size) {
        size_t length = normalize_next(s, text + at, size - at, &to);
        if (to.size != 1 || to.data[0] != ' ') break;
        at += length;
    }
    if (at == size) return;
    if (s->adds_prefix) put_space(s, out);
    bool was_space = s->removes_spaces;
    while (at < size) {
        at += normalize_next(s, text + at, size - at, &to);
        while (was_space && to.size > 0 && to.data[0] == ' ') to.data++, to.size--;
        if (to.size > 0) {
            put_normalized(s, to, out);
            was_space = to.data[to.size - 1] == ' ';
        }
        was_space &= s->removes_spaces;
    }
    const char *space = s->escapes_spaces ? TOKENIZER_SPACE_MARK : " ";
    size_t length = strlen(space);
    while (s->removes_spaces && out->size >= length &&
           !memcmp(out->data + out->size - length, space, length))
        out->size -= length;
}

void tokenizer_sentencepiece_unknown(tri_token_encoder *encoder, const char *text, size_t size) {
    const tri_tokenizer *t = encoder->tokenizer;
    if (!t->has_byte_fallback) tokenizer_emit(encoder, t->unknown);
    for (size_t i = 0; i < size && t->has_byte_fallback; i++)
        tokenizer_emit(encoder, t->byte_ids[(unsigned char)text[i]]);
}

static void push_words(const tri_tokenizer *t, const char *text, size_t start, size_t end,
                       tokenizer_spans *out) {
    if (start == end) return;
    if (t->cuts_at_space)
        tokenizer_cut(text, (tokenizer_span){start, end - start}, out);
    else
        tokenizer_spans_push(out, start, end - start);
}

// BPE: symbols that the user has defined stay whole, and nothing is merged across them.
static tri_status encode_bpe(tri_token_encoder *encoder, const char *text, size_t size) {
    const tri_tokenizer *t = encoder->tokenizer;
    tokenizer_spans *words = &encoder->strings.spans;
    size_t start = 0;
    words->count = 0;
    for (size_t at = 0; at < size;) {
        int32_t id;
        size_t length =
            tokenizer_trie_longest(&t->sentencepiece->symbols, text + at, size - at, &id);
        if (length == 0) {
            at += (size_t)tokenizer_length(text[at]);
            continue;
        }
        push_words(t, text, start, at, words);
        TRI_TRY(tokenizer_encode_words(encoder, text, words));
        words->count = 0;
        tokenizer_emit(encoder, id);
        at += length;
        start = at;
    }
    push_words(t, text, start, size, words);
    return tokenizer_encode_words(encoder, text, words);
}

tri_status tokenizer_sentencepiece_encode(tri_token_encoder *encoder, const char *text,
                                          size_t size) {
    const tri_tokenizer *t = encoder->tokenizer;
    tri_token_ids *out = encoder->out;
    tokenizer_text *normalized = &encoder->normalized;
    size_t first = out->count, kept = first;
    normalize(t->sentencepiece, text, size, normalized);
    if (normalized->size == 0) return TRI_OK;
    TRI_TRY(t->sentencepiece->is_bpe
                ? encode_bpe(encoder, normalized->data, normalized->size)
                : t->model->encode(encoder, normalized->data, normalized->size));
    // Neighbours that are unknown become one.
    for (size_t i = first; i < out->count; i++) {
        bool repeats = i > first && out->ids[i] == t->unknown && out->ids[i - 1] == t->unknown;
        if (!repeats) out->ids[kept++] = out->ids[i];
    }
    out->count = kept;
    return TRI_OK;
}

// The text of a run of byte tokens, in which each byte that is not UTF-8 becomes U+FFFD.
static void put_bytes(tokenizer_text *bytes, tokenizer_text *out) {
    for (size_t at = 0; at < bytes->size;) {
        uint32_t code;
        int length = tokenizer_decode(bytes->data + at, bytes->data + bytes->size, &code);
        if (length > 0)
            tokenizer_text_append(out, bytes->data + at, (size_t)length);
        else
            tokenizer_text_append(out, REPLACEMENT, 3);
        at += length > 0 ? (size_t)length : 1;
    }
    bytes->size = 0;
}

static void put_piece(tokenizer_string piece, tokenizer_text *out) {
    while (piece.size > 0) {
        const char *mark =
            memmem(piece.data, piece.size, TOKENIZER_SPACE_MARK, TOKENIZER_MARK_BYTES);
        size_t until = mark ? (size_t)(mark - piece.data) : piece.size;
        tokenizer_text_append(out, piece.data, until);
        if (mark) tokenizer_text_append(out, " ", 1);
        until += mark ? TOKENIZER_MARK_BYTES : 0;
        piece.data += until;
        piece.size -= until;
    }
}

// Puts a token that is no byte. Returns whether it gave up the mark with which it began.
static bool put_token(const tri_tokenizer *t, uint32_t id, bool is_beginning, tokenizer_text *out) {
    const tokenizer_sentencepiece *s = t->sentencepiece;
    tokenizer_string piece = t->tokens[id];
    if (s->types[id] == TOKENIZER_CONTROL) return false;
    if (s->types[id] == TOKENIZER_UNKNOWN) {
        tokenizer_text_append(out, s->unknown_surface.data, s->unknown_surface.size);
        return false;
    }
    bool begins = piece.size >= TOKENIZER_MARK_BYTES &&
                  !memcmp(piece.data, TOKENIZER_SPACE_MARK, TOKENIZER_MARK_BYTES);
    bool drops = begins && is_beginning && (s->adds_prefix || s->removes_spaces);
    if (drops) {
        piece.data += TOKENIZER_MARK_BYTES;
        piece.size -= TOKENIZER_MARK_BYTES;
    }
    put_piece(piece, out);
    return drops && !s->removes_spaces; // if spaces are removed, those of later tokens are too
}

tri_status tokenizer_sentencepiece_decode(tri_token_encoder *encoder, const uint32_t *ids,
                                          size_t count, const char **text, size_t *size) {
    const tri_tokenizer *t = encoder->tokenizer;
    tokenizer_text *out = &encoder->repaired, *bytes = &encoder->scratch;
    bool is_beginning = true, has_dropped = false;
    out->size = bytes->size = 0;
    for (size_t i = 0; i < count; i++) {
        if (t->sentencepiece->types[ids[i]] == TOKENIZER_BYTE) {
            tokenizer_string name = t->tokens[ids[i]];
            char byte = (char)strtol(name.size == 6 ? name.data + 3 : "0", NULL, 16);
            tokenizer_text_append(bytes, &byte, 1);
            continue;
        }
        put_bytes(bytes, out);
        is_beginning &= !has_dropped && out->size == 0;
        has_dropped = put_token(t, ids[i], is_beginning, out);
    }
    put_bytes(bytes, out);
    *text = out->data ? out->data : "";
    *size = out->size;
    return TRI_OK;
}
