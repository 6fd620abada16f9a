// The vocabulary of a tokenizer, and reading values of a tokenizer.json.
#include "format/tokenizer/scan.h"

#include <stdlib.h>
#include <string.h>

tokenizer_string tokenizer_copy(tri_arena *arena, const char *data, size_t size) {
    char *copy = tri_arena_alloc(arena, size + 1);
    memcpy(copy, data, size);
    return (tokenizer_string){copy, size};
}

tri_status tokenizer_token_set(const tokenizer_reader *reader, tokenizer_string text, int64_t id) {
    // Numbers may leave gaps, but a small file cannot ask for much memory.
    enum { MOST_TOKENS = 1 << 22 };
    tri_tokenizer *t = reader->tokenizer;
    if (id < 0 || id >= MOST_TOKENS)
        return TOKENIZER_FAIL(reader, TRI_BAD_INPUT,
                              "token '%s' has the number %lld; 0 to %d are supported", text.data,
                              (long long)id, MOST_TOKENS - 1);
    if (id >= t->capacity) {
        int64_t capacity = t->capacity ? t->capacity : 1024;
        while (capacity <= id) capacity *= 2;
        tokenizer_string *grown = realloc(t->tokens, (size_t)capacity * sizeof *grown);
        if (!grown) return TOKENIZER_FAIL(reader, TRI_NO_MEMORY, "no memory for its vocabulary");
        memset(grown + t->capacity, 0, (size_t)(capacity - t->capacity) * sizeof *grown);
        t->tokens = grown;
        t->capacity = capacity;
    }
    t->tokens[id] = text;
    if (id >= t->size) t->size = id + 1;
    return TRI_OK;
}

tri_status tokenizer_vocabulary_add(const tokenizer_reader *reader, tokenizer_string text,
                                    int64_t id) {
    TRI_TRY(tokenizer_token_set(reader, text, id));
    tri_index_put(reader->arena, &reader->tokenizer->index, text.data, text.size, (int)id);
    return TRI_OK;
}

tri_status tokenizer_vocabulary_read(tokenizer_reader *reader, const json_t *vocabulary) {
    const char *key;
    json_t *value;
    if (!json_is_object(vocabulary) || json_object_size(vocabulary) == 0)
        return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "its model has no map 'vocab'");
    json_object_foreach((json_t *)vocabulary, key, value) {
        tokenizer_string text = tokenizer_copy(reader->arena, key, strlen(key));
        if (!json_is_integer(value))
            return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "token '%s' has no number", key);
        TRI_TRY(tokenizer_vocabulary_add(reader, text, json_integer_value(value)));
    }
    return TRI_OK;
}

int64_t tokenizer_find(const tri_tokenizer *tokenizer, const char *text, size_t size) {
    return tri_index_find(&tokenizer->index, text, size);
}

void tokenizer_find_bytes(tri_tokenizer *tokenizer) {
    static const char digits[] = "0123456789ABCDEF";
    for (int byte = 0; byte < 256; byte++) {
        const char name[] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
        tokenizer->byte_ids[byte] = tokenizer_find(tokenizer, name, sizeof name);
    }
}

static tri_status fail_type(const tokenizer_reader *reader, const char *key, const char *type) {
    return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "its '%s' has to be %s", key, type);
}

tri_status tokenizer_read_bool(const tokenizer_reader *reader, const json_t *json, const char *key,
                               bool otherwise, bool *out) {
    const json_t *value = json_object_get(json, key);
    bool is_given = value && !json_is_null(value);
    *out = is_given ? json_is_true(value) : otherwise;
    return is_given && !json_is_boolean(value) ? fail_type(reader, key, "true or false") : TRI_OK;
}

tri_status tokenizer_read_int(const tokenizer_reader *reader, const json_t *json, const char *key,
                              int64_t otherwise, int64_t *out) {
    const json_t *value = json_object_get(json, key);
    bool is_given = value && !json_is_null(value);
    *out = is_given ? json_integer_value(value) : otherwise;
    if (is_given && (!json_is_integer(value) || *out < 0))
        return fail_type(reader, key, "a whole number from 0");
    return TRI_OK;
}

tri_status tokenizer_read_string(const tokenizer_reader *reader, const json_t *json,
                                 const char *key, tokenizer_string *out) {
    const json_t *value = json_object_get(json, key);
    *out = (tokenizer_string){0};
    if (!value || json_is_null(value)) return TRI_OK;
    if (!json_is_string(value)) return fail_type(reader, key, "a text");
    *out = tokenizer_copy(reader->arena, json_string_value(value), json_string_length(value));
    return TRI_OK;
}

tri_status tokenizer_read_pattern(tokenizer_reader *reader, const json_t *json,
                                  tokenizer_pattern *out) {
    const json_t *pattern = json_object_get(json, "pattern");
    tokenizer_string regex;
    TRI_TRY(tokenizer_read_string(reader, pattern, "String", &out->literal));
    TRI_TRY(tokenizer_read_string(reader, pattern, "Regex", &regex));
    if (regex.data) out->scanner = tokenizer_scanner_find(regex);
    if (regex.data) return tokenizer_regex_compile(reader, regex, &out->regex);
    return out->literal.data ? TRI_OK
                             : fail_type(reader, "pattern", "{\"String\": …} or {\"Regex\": …}");
}

static int base64_digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

void *tokenizer_base64(tri_arena *arena, tokenizer_string text, size_t *size) {
    uint8_t *out = tri_arena_alloc(arena, text.size / 4 * 3 + 3);
    uint32_t bits = 0, count = 0;
    *size = 0;
    for (size_t i = 0; i < text.size && text.data[i] != '='; i++) {
        int digit = base64_digit(text.data[i]);
        if (digit < 0) return NULL;
        bits = bits << 6 | (uint32_t)digit;
        count += 6;
        if (count < 8) continue;
        count -= 8;
        out[(*size)++] = (uint8_t)(bits >> count);
    }
    return out;
}
