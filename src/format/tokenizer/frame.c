// The tokens around a text that a model is given, such as a begin mark: the post-processor of a
// tokenizer.json, of which only the form for one text matters.
#include "format/tokenizer/parts.h"

#include <stdlib.h>
#include <string.h>

static tri_status push(const tokenizer_reader *reader, tri_token_ids *ids, const json_t *id) {
    int64_t number = json_is_integer(id) ? (int64_t)json_integer_value(id) : -1;
    if (number < 0 || number > INT32_MAX)
        return TOKENIZER_FAIL(reader, TRI_BAD_INPUT,
                              "a token of its post_processor is no token's number");
    if (!tokenizer_ids_reserve(ids, 1))
        return TOKENIZER_FAIL(reader, TRI_NO_MEMORY, "no memory for its post_processor");
    ids->ids[ids->count++] = (uint32_t)number;
    return TRI_OK;
}

// "single" is a list of {"SpecialToken": {"id": NAME}}, and {"Sequence": …} for the text.
static tri_status read_template(const tokenizer_reader *reader, const json_t *json,
                                tri_token_ids *before, tri_token_ids *after) {
    const json_t *single = json_object_get(json, "single");
    int texts = 0;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        const json_t *special = json_object_get(item, "SpecialToken");
        const char *name = json_string_value(json_object_get(special, "id"));
        const json_t *known = json_object_get(json, "special_tokens");
        const json_t *ids = name ? json_object_get(json_object_get(known, name), "ids") : NULL;
        texts += json_object_get(item, "Sequence") != NULL;
        if (special && !json_is_array(ids))
            return TOKENIZER_FAIL(reader, TRI_BAD_INPUT,
                                  "its post_processor has a special token without ids");
        for (size_t k = 0; k < json_array_size(ids); k++)
            TRI_TRY(push(reader, texts ? after : before, json_array_get(ids, k)));
    }
    if (texts == 1) return TRI_OK;
    return TOKENIZER_FAIL(reader, TRI_UNSUPPORTED,
                          "its post_processor has %d places for a text, and not one", texts);
}

// "cls" and "sep" are [TEXT, NUMBER].
static tri_status read_pair(const tokenizer_reader *reader, const json_t *json,
                            tri_token_ids *before, tri_token_ids *after) {
    TRI_TRY(push(reader, before, json_array_get(json_object_get(json, "cls"), 1)));
    return push(reader, after, json_array_get(json_object_get(json, "sep"), 1));
}

static tri_status read_nothing(const tokenizer_reader *reader, const json_t *json,
                               tri_token_ids *before, tri_token_ids *after) {
    return TRI_OK;
}

static const struct {
    const char *type;
    tri_status (*read)(const tokenizer_reader *reader, const json_t *json, tri_token_ids *before,
                       tri_token_ids *after);
} rows[] = {{"TemplateProcessing", read_template},
            {"ByteLevel", read_nothing}, // moves the places of tokens in the text
            {"BertProcessing", read_pair},
            {"RobertaProcessing", read_pair}};

// Puts `before` in front of what is there, and `after` behind it.
static bool surround(tri_token_ids *ids, const tri_token_ids *before, const tri_token_ids *after) {
    if (!tokenizer_ids_reserve(ids, before->count + after->count)) return false;
    if (ids->count) memmove(ids->ids + before->count, ids->ids, ids->count * sizeof *ids->ids);
    if (before->count) memcpy(ids->ids, before->ids, before->count * sizeof *ids->ids);
    if (after->count)
        memcpy(ids->ids + before->count + ids->count, after->ids, after->count * sizeof *ids->ids);
    ids->count += before->count + after->count;
    return true;
}

static tri_status read_one(tokenizer_reader *reader, const json_t *json, const char *type) {
    static const tri_token_ids none;
    tri_tokenizer *t = reader->tokenizer;
    tri_token_ids before = {0}, after = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].type, type) != 0) continue;
        tri_status status = rows[i].read(reader, json, &before, &after);
        // Of several, the later ones are outside.
        if (status == TRI_OK &&
            (!surround(&t->before, &before, &none) || !surround(&t->after, &none, &after)))
            status = TOKENIZER_FAIL(reader, TRI_NO_MEMORY, "no memory for its post_processor");
        free(before.ids);
        free(after.ids);
        return status;
    }
    return TOKENIZER_FAIL(reader, TRI_UNSUPPORTED, "its post_processor '%s' is not supported",
                          type);
}

tri_status tokenizer_frame_read(tokenizer_reader *reader, const json_t *json) {
    const char *type = json_string_value(json_object_get(json, "type"));
    if (!json || json_is_null(json)) return TRI_OK;
    if (!type) return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "its post_processor has no type");
    if (strcmp(type, "Sequence") != 0) return read_one(reader, json, type);
    const json_t *list = json_object_get(json, "processors");
    for (size_t i = 0; i < json_array_size(list); i++)
        TRI_TRY(tokenizer_frame_read(reader, json_array_get(list, i)));
    return TRI_OK;
}

// Hugging Face's tokenizers by sentencepiece put the begin mark in front, unless
// tokenizer_config.json says that they must not.
tri_status tokenizer_begin_with(tri_tokenizer *t, uint32_t id) {
    tri_arena *arena = tri_arena_create(NULL, "configuration");
    tri_tree *config;
    bool adds = true;
    tri_status status = tokenizer_read_beside(t, arena, "tokenizer_config.json", &config);
    const tri_tree *key = status == TRI_OK ? tri_tree_get(config, "add_bos_token") : NULL;
    if (!tri_tree_is_null(key) && !tri_tree_to_bool(key, &adds))
        status = tri_tree_fail(key, "its add_bos_token must be true or false");
    if (status == TRI_OK && adds) {
        if (tokenizer_ids_reserve(&t->before, 1))
            t->before.ids[t->before.count++] = id;
        else
            status = TRI_FAIL(TRI_NO_MEMORY, "no memory for a tokenizer");
    }
    tri_arena_destroy(arena);
    return status;
}

tri_status tri_token_frame(const tri_tokenizer *tokenizer, tri_token_ids *ids) {
    if (surround(ids, &tokenizer->before, &tokenizer->after)) return TRI_OK;
    return TRI_FAIL(TRI_NO_MEMORY, "no memory for the tokens of a text");
}
