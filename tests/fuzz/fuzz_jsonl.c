// Reads arbitrary bytes as a line of JSON, once as each thing that is read from lines. What is
// accepted has to be what jansson makes of it.
#include "base/status.h"
#include "format/jsonl.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void take(void *context, uint32_t number) { *(uint64_t *)context += number; }

static void check_string(const json_t *json, tokenizer_string found) {
    TRI_ASSERT(json_is_string(json) && json_string_length(json) == found.size);
    TRI_ASSERT(found.size == 0 || !memcmp(json_string_value(json), found.data, found.size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tokenizer_string line = {(const char *)data, size}, found;
    tokenizer_text memory = {0}, again = {0};
    json_t *json = json_loadb(line.data, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!tri_jsonl_field(line, (tokenizer_string){"text", 4}, &memory, &found)) {
        // jansson refuses numbers that no double can hold, and keys with a NUL.
        if (json) check_string(json_object_get(json, "text"), found);
    }
    const char *wrong = tri_jsonl_string(line, &memory, &found);
    TRI_ASSERT(!json_is_string(json) || !wrong);
    if (!wrong) {
        check_string(json, found);
        tri_jsonl_put_string(&again, found);
        json_t *second = json_loadb(again.data, again.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        TRI_ASSERT(json_equal(json, second));
        json_decref(second);
    }
    uint64_t sum = 0;
    if (!tri_jsonl_numbers(line, take, &sum)) TRI_ASSERT(json_is_array(json));
    tokenizer_text_free(&memory);
    tokenizer_text_free(&again);
    json_decref(json);
    return 0;
}
