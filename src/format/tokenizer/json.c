// Reads a tokenizer.json, and runs its parts one after the other.
#include "format/tokenizer/parts.h"

#include <stdlib.h>
#include <string.h>

typedef struct stage_rows {
    tokenizer_stage stage;
    const char *key, *list; // in the file, and in its Sequence
    const tokenizer_rows *rows;
} stage_rows;

static const stage_rows stages[] = {
    {TOKENIZER_NORMALIZER, "normalizer", "normalizers", &tokenizer_normalizers},
    {TOKENIZER_PRE_TOKENIZER, "pre_tokenizer", "pretokenizers", &tokenizer_pre_tokenizers},
    {TOKENIZER_DECODER, "decoder", "decoders", &tokenizer_decoders},
};

static const tokenizer_model *const models[] = {&tokenizer_bpe, &tokenizer_wordpiece,
                                                &tokenizer_unigram, &tokenizer_wordlevel};

static tri_status refuse(const tokenizer_reader *reader, const char *key, const char *type) {
    return TOKENIZER_FAIL(reader, TRI_UNSUPPORTED, "its %s '%s' is not supported", key, type);
}

static tri_status read_part(tokenizer_reader *reader, const stage_rows *stage, const json_t *json) {
    tri_tokenizer *t = reader->tokenizer;
    const char *type = json_string_value(json_object_get(json, "type"));
    if (!type) return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "its %s has no type", stage->key);
    if (!strcmp(type, "Sequence")) {
        const json_t *list = json_object_get(json, stage->list);
        if (!json_is_array(list))
            return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "its %s has no list '%s'", stage->key,
                                  stage->list);
        for (size_t i = 0; i < json_array_size(list); i++)
            TRI_TRY(read_part(reader, stage, json_array_get(list, i)));
        return TRI_OK;
    }
    for (int i = 0; i < stage->rows->count; i++) {
        const tokenizer_row *row = &stage->rows->rows[i];
        if (strcmp(row->type, type) != 0) continue;
        if (t->part_count[stage->stage] == TOKENIZER_MAX_PARTS)
            return TOKENIZER_FAIL(reader, TRI_UNSUPPORTED, "its %s has more than %d parts",
                                  stage->key, TOKENIZER_MAX_PARTS);
        tokenizer_part *part = &t->parts[stage->stage][t->part_count[stage->stage]++];
        part->row = row;
        return row->parse ? row->parse(reader, json, part) : TRI_OK;
    }
    return refuse(reader, stage->key, type);
}

static tri_status read_model(tokenizer_reader *reader, const json_t *json) {
    const char *type = json_string_value(json_object_get(json, "type"));
    // Older files do not name the type of their model.
    if (!type && json_object_get(json, "merges")) type = "BPE";
    if (!type && json_object_get(json, "unk_id")) type = "Unigram";
    if (!type && json_object_get(json, "max_input_chars_per_word")) type = "WordPiece";
    if (!type) return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "its model has no type");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (strcmp(models[i]->type, type) != 0) continue;
        reader->tokenizer->model = models[i];
        return models[i]->parse(reader, json);
    }
    return refuse(reader, "model", type);
}

static tri_status read_root(tokenizer_reader *reader, const json_t *root) {
    tri_tokenizer *t = reader->tokenizer;
    if (!json_is_object(json_object_get(root, "model")))
        return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "is not a tokenizer.json: it has no model");
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        const json_t *part = json_object_get(root, stages[i].key);
        if (part && !json_is_null(part)) TRI_TRY(read_part(reader, &stages[i], part));
    }
    TRI_TRY(tokenizer_frame_read(reader, json_object_get(root, "post_processor")));
    TRI_TRY(read_model(reader, json_object_get(root, "model")));
    TRI_TRY(tokenizer_by_byte(reader));
    t->cuts_at_space &= !t->is_by_byte;
    TRI_TRY(tokenizer_added_read(reader, json_object_get(root, "added_tokens")));
    return tokenizer_added_index(reader);
}

tri_status tokenizer_json_read(tri_tokenizer *tokenizer, const char *text, size_t size) {
    tokenizer_reader reader = {tokenizer, tokenizer->arena, tokenizer->path};
    json_error_t error;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!root)
        return TOKENIZER_FAIL(&reader, TRI_BAD_INPUT,
                              "is neither a tokenizer.json nor a tokenizer.model: line %d: %s",
                              error.line, error.text);
    tri_status status = read_root(&reader, root);
    json_decref(root);
    return status;
}

tri_status tokenizer_apply(tri_token_encoder *encoder, tokenizer_stage stage,
                           tokenizer_strings *strings) {
    const tri_tokenizer *t = encoder->tokenizer;
    for (int i = 0; i < t->part_count[stage]; i++) {
        const tokenizer_part *part = &t->parts[stage][i];
        TRI_TRY(part->row->apply(part, encoder, strings));
    }
    return TRI_OK;
}

// Encodes text in which there are no added tokens.
static tri_status encode_plain(tri_token_encoder *encoder, const char *text, tokenizer_span span,
                               bool is_first) {
    tokenizer_strings *strings = &encoder->strings;
    if (span.size == 0) return TRI_OK;
    strings->data = text;
    strings->is_first = is_first && span.start == 0;
    strings->spans.count = 0;
    tokenizer_spans_push(&strings->spans, span.start, span.size);
    TRI_TRY(tokenizer_apply(encoder, TOKENIZER_PRE_TOKENIZER, strings));
    if (!encoder->tokenizer->cuts_at_space)
        return tokenizer_encode_words(encoder, strings->data, &strings->spans);
    strings->spare.count = 0;
    for (size_t i = 0; i < strings->spans.count; i++)
        tokenizer_cut(strings->data, strings->spans.items[i], &strings->spare);
    return tokenizer_encode_words(encoder, strings->data, &strings->spare);
}

// Encodes normalized text: added tokens that are searched there, and what lies between them.
static tri_status encode_normalized(tri_token_encoder *encoder, const char *text, size_t size,
                                    bool is_first) {
    size_t from = 0, done = 0;
    tokenizer_span found;
    uint32_t id;
    while (tokenizer_added_search(encoder->tokenizer, true, text, size, &from, done, &found, &id)) {
        TRI_TRY(encode_plain(encoder, text, (tokenizer_span){done, found.start - done}, is_first));
        tokenizer_emit(encoder, id);
        done = found.start + found.size;
    }
    return encode_plain(encoder, text, (tokenizer_span){done, size - done}, is_first);
}

// Normalizes a text and encodes it.
static tri_status encode_section(tri_token_encoder *encoder, const char *text, size_t size,
                                 bool is_first) {
    tokenizer_strings *strings = &encoder->strings;
    tokenizer_text *normalized = &encoder->normalized;
    if (size == 0) return TRI_OK;
    if (encoder->tokenizer->part_count[TOKENIZER_NORMALIZER] == 0)
        return encode_normalized(encoder, text, size, is_first);
    strings->data = text;
    strings->spans.count = 0;
    tokenizer_spans_push(&strings->spans, 0, size);
    TRI_TRY(tokenizer_apply(encoder, TOKENIZER_NORMALIZER, strings));
    // What follows needs the buffers of the strings.
    normalized->size = 0;
    tokenizer_text_append(normalized, strings->data + strings->spans.items[0].start,
                          strings->spans.items[0].size);
    return encode_normalized(encoder, normalized->data, normalized->size, is_first);
}

tri_status tokenizer_json_encode(tri_token_encoder *encoder, const char *text, size_t size) {
    size_t from = 0, done = 0;
    tokenizer_span found;
    uint32_t id;
    if (tokenizer_valid_bytes(text, size) < size) {
        encoder->repaired.size = 0;
        tokenizer_repair(&encoder->repaired, text, size);
        text = encoder->repaired.data;
        size = encoder->repaired.size;
    }
    while (
        tokenizer_added_search(encoder->tokenizer, false, text, size, &from, done, &found, &id)) {
        TRI_TRY(encode_section(encoder, text + done, found.start - done, done == 0));
        tokenizer_emit(encoder, id);
        done = found.start + found.size;
    }
    return encode_section(encoder, text + done, size - done, done == 0);
}

tri_status tokenizer_json_decode(tri_token_encoder *encoder, const uint32_t *ids, size_t count,
                                 const char **text, size_t *size) {
    const tri_tokenizer *t = encoder->tokenizer;
    tokenizer_strings *strings = &encoder->strings;
    tokenizer_text *tokens = &strings->texts[0];
    bool has_decoder = t->part_count[TOKENIZER_DECODER] > 0;
    tokens->size = 0;
    strings->spans.count = 0;
    for (size_t i = 0; i < count; i++) {
        const tokenizer_string *token = &t->tokens[ids[i]];
        size_t start = tokens->size;
        if (!has_decoder && i > 0) tokenizer_text_append(tokens, " ", 1);
        tokenizer_text_append(tokens, token->data, token->size);
        tokenizer_spans_push(&strings->spans, start, tokens->size - start);
    }
    tokenizer_strings_swap(strings, tokens);
    TRI_TRY(tokenizer_apply(encoder, TOKENIZER_DECODER, strings));
    tokenizer_text *out = &encoder->repaired;
    out->size = 0;
    for (size_t i = 0; i < strings->spans.count; i++)
        tokenizer_text_append(out, strings->data + strings->spans.items[i].start,
                              strings->spans.items[i].size);
    *text = out->data ? out->data : "";
    *size = out->size;
    return TRI_OK;
}
