// Reads a tokenizer.model, a protocol buffer (sentencepiece, src/sentencepiece_model.proto).
#include "format/protobuf.h"
#include "format/tokenizer/sentencepiece.h"

#include <math.h>
#include <string.h>

// Numbers of fields.
enum { PIECES = 1, TRAINER = 2, NORMALIZER = 3, DENORMALIZER = 5 };
enum { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_TYPE = 3 };
enum {
    TRAINER_MODEL = 3,
    TRAINER_SUFFIX = 24,
    TRAINER_BYTES = 35,
    TRAINER_SURFACE = 44,
    TRAINER_BEGIN = 46,
    TRAINER_END = 47,
};
enum { NORMALIZER_MAP = 2, NORMALIZER_PREFIX = 3, NORMALIZER_SPACES = 4, NORMALIZER_ESCAPE = 5 };
enum { UNIGRAM = 1, BPE = 2 };

static protobuf_reader message_of(const protobuf_reader *field) {
    return (protobuf_reader){.data = field->bytes, .size = field->byte_count};
}

static tri_status fail(const tokenizer_reader *reader) {
    return TOKENIZER_FAIL(reader, TRI_BAD_INPUT,
                          "is neither a tokenizer.json nor a tokenizer.model, or is damaged");
}

static tokenizer_string text_of(const tokenizer_reader *reader, const protobuf_reader *field) {
    return tokenizer_copy(reader->arena, field->bytes ? (const char *)field->bytes : "",
                          field->byte_count);
}

static int64_t count_pieces(const char *data, size_t size, bool *failed) {
    protobuf_reader r = {.data = (const uint8_t *)data, .size = size};
    int64_t count = 0;
    while (protobuf_next(&r)) count += r.field == PIECES && r.bytes;
    *failed = r.failed;
    return count;
}

static tri_status read_piece(const tokenizer_reader *reader, const protobuf_reader *field,
                             int64_t id) {
    tri_tokenizer *t = reader->tokenizer;
    protobuf_reader r = message_of(field);
    tokenizer_string text = {"", 0};
    float score = 0;
    uint64_t type = TOKENIZER_NORMAL;
    while (protobuf_next(&r)) {
        if (r.field == PIECE_TEXT) text = text_of(reader, &r);
        if (r.field == PIECE_SCORE) score = protobuf_as_float(r.number);
        if (r.field == PIECE_TYPE) type = r.number;
    }
    if (r.failed || type < TOKENIZER_NORMAL || type > TOKENIZER_BYTE || !isfinite(score) ||
        text.size == 0 || tokenizer_valid_bytes(text.data, text.size) < text.size)
        return fail(reader);
    if (tokenizer_find(t, text.data, text.size) >= 0)
        return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "has the token '%s' twice", text.data);
    t->sentencepiece->types[id] = (uint8_t)type;
    t->sentencepiece->scores[id] = score;
    if (type == TOKENIZER_UNKNOWN) t->unknown = id;
    return tokenizer_vocabulary_add(reader, text, id);
}

static tri_status read_trainer(const tokenizer_reader *reader, const protobuf_reader *field) {
    tri_tokenizer *t = reader->tokenizer;
    tokenizer_sentencepiece *s = t->sentencepiece;
    protobuf_reader r = message_of(field);
    uint64_t model = UNIGRAM;
    while (protobuf_next(&r)) {
        if (r.field == TRAINER_MODEL) model = r.number;
        if (r.field == TRAINER_BYTES) t->has_byte_fallback = r.number;
        if (r.field == TRAINER_SURFACE) s->unknown_surface = text_of(reader, &r);
        if (r.field == TRAINER_BEGIN) s->begin_piece = text_of(reader, &r);
        if (r.field == TRAINER_END) s->end_piece = text_of(reader, &r);
        if (r.field == TRAINER_SUFFIX && r.number)
            return TOKENIZER_FAIL(reader, TRI_UNSUPPORTED,
                                  "its treat_whitespace_as_suffix is not supported");
    }
    if (r.failed) return fail(reader);
    s->is_bpe = model == BPE;
    if (model == UNIGRAM || model == BPE) return TRI_OK;
    return TOKENIZER_FAIL(reader, TRI_UNSUPPORTED,
                          "its model_type %llu is not supported: only UNIGRAM and BPE are",
                          (unsigned long long)model);
}

static tri_status read_normalizer(const tokenizer_reader *reader, const protobuf_reader *field) {
    tokenizer_sentencepiece *s = reader->tokenizer->sentencepiece;
    protobuf_reader r = message_of(field);
    while (protobuf_next(&r)) {
        if (r.field == NORMALIZER_PREFIX) s->adds_prefix = r.number;
        if (r.field == NORMALIZER_SPACES) s->removes_spaces = r.number;
        if (r.field == NORMALIZER_ESCAPE) s->escapes_spaces = r.number;
        if (r.field == NORMALIZER_MAP && r.byte_count > 0 &&
            !tokenizer_charsmap_read(reader->arena, r.bytes, r.byte_count, &s->charsmap))
            return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "its precompiled_charsmap is not valid");
    }
    return r.failed ? fail(reader) : TRI_OK;
}

static tri_status check_denormalizer(const tokenizer_reader *reader, const protobuf_reader *field) {
    protobuf_reader r = message_of(field);
    while (protobuf_next(&r))
        if (r.field == NORMALIZER_MAP && r.byte_count > 0)
            return TOKENIZER_FAIL(reader, TRI_UNSUPPORTED, "its denormalizer is not supported");
    return r.failed ? fail(reader) : TRI_OK;
}

static tri_status read_fields(const tokenizer_reader *reader, const char *data, size_t size) {
    protobuf_reader r = {.data = (const uint8_t *)data, .size = size};
    int64_t id = 0;
    while (protobuf_next(&r)) {
        if (!r.bytes) continue;
        if (r.field == PIECES) TRI_TRY(read_piece(reader, &r, id++));
        if (r.field == TRAINER) TRI_TRY(read_trainer(reader, &r));
        if (r.field == NORMALIZER) TRI_TRY(read_normalizer(reader, &r));
        if (r.field == DENORMALIZER) TRI_TRY(check_denormalizer(reader, &r));
    }
    return TRI_OK;
}

static tri_status index_symbols(const tokenizer_reader *reader) {
    tri_tokenizer *t = reader->tokenizer;
    tokenizer_sentencepiece *s = t->sentencepiece;
    tri_arena *arena = tri_arena_create(NULL, "keys");
    tokenizer_key *keys = TRI_NEW_ARRAY(arena, tokenizer_key, t->size);
    int count = 0;
    for (int64_t id = 0; id < t->size; id++)
        if (s->types[id] == TOKENIZER_USER_DEFINED)
            keys[count++] = (tokenizer_key){t->tokens[id], (int32_t)id};
    tri_status status = tokenizer_trie_build(reader->arena, keys, count, &s->symbols);
    tri_arena_destroy(arena);
    return status;
}

tri_status tokenizer_sentencepiece_read(tri_tokenizer *t, const char *data, size_t size) {
    tokenizer_reader reader = {t, t->arena, t->path};
    bool failed;
    int64_t count = count_pieces(data, size, &failed);
    if (failed || count == 0) return fail(&reader);
    tokenizer_sentencepiece *s = t->sentencepiece = TRI_NEW(t->arena, tokenizer_sentencepiece);
    s->adds_prefix = s->removes_spaces = s->escapes_spaces = true;
    s->unknown_surface = (tokenizer_string){" \xe2\x81\x87 ", 5};
    s->begin_piece = (tokenizer_string){"<s>", 3};
    s->end_piece = (tokenizer_string){"</s>", 4};
    s->types = TRI_NEW_ARRAY(t->arena, uint8_t, count);
    s->scores = TRI_NEW_ARRAY(t->arena, float, count);
    TRI_TRY(read_fields(&reader, data, size));
    if (t->unknown < 0) return TOKENIZER_FAIL(&reader, TRI_BAD_INPUT, "has no unknown token");
    if (t->has_byte_fallback) tokenizer_find_bytes(t);
    for (int i = 0; i < 256 && t->has_byte_fallback; i++)
        if (t->byte_ids[i] < 0 || s->types[t->byte_ids[i]] != TOKENIZER_BYTE)
            return TOKENIZER_FAIL(&reader, TRI_BAD_INPUT,
                                  "has no token <0x%02X>, but byte_fallback", i);
    int64_t end = tokenizer_find(t, s->end_piece.data, s->end_piece.size);
    if (end >= 0 && s->types[end] == TOKENIZER_CONTROL) t->end = end;
    TRI_TRY(index_symbols(&reader));
    int64_t begin = tokenizer_find(t, s->begin_piece.data, s->begin_piece.size);
    if (begin >= 0 && s->types[begin] == TOKENIZER_CONTROL)
        TRI_TRY(tokenizer_begin_with(t, (uint32_t)begin));
    return s->is_bpe ? tokenizer_sentencepiece_bpe_init(&reader)
                     : tokenizer_sentencepiece_unigram_init(&reader);
}
