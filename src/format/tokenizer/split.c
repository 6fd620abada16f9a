// Searches patterns, and splits strings where they match.
#include "format/tokenizer/regex.h"
#include "format/tokenizer/scan.h"

#include <stdlib.h>
#include <string.h>

void tokenizer_spans_push(tokenizer_spans *spans, size_t start, size_t size) {
    if (spans->count == spans->capacity) {
        size_t capacity = spans->capacity ? 2 * spans->capacity : 64;
        tokenizer_span *grown = realloc(spans->items, capacity * sizeof *grown);
        if (!grown) {
            spans->failed = true;
            return;
        }
        spans->items = grown;
        spans->capacity = capacity;
    }
    spans->items[spans->count++] = (tokenizer_span){start, size};
}

static bool match_literal(tokenizer_string literal, const char *text, size_t size, size_t from,
                          tokenizer_span *match) {
    if (literal.size == 0) return false;
    const char *found = memmem(text + from, size - from, literal.data, literal.size);
    if (found) *match = (tokenizer_span){(size_t)(found - text), literal.size};
    return found;
}

static bool match_class(bool (*class)(uint32_t), const char *text, size_t size, size_t from,
                        tokenizer_span *match) {
    uint32_t code;
    for (size_t at = from; at < size;) {
        int length = tokenizer_next(text + at, &code);
        if (class(code)) {
            *match = (tokenizer_span){at, (size_t)length};
            return true;
        }
        at += (size_t)length;
    }
    return false;
}

tri_status tokenizer_match(const tokenizer_pattern *pattern, tri_token_encoder *encoder,
                           const char *text, size_t size, size_t *from, tokenizer_span *match,
                           bool *found) {
    if (pattern->regex)
        TRI_TRY(tokenizer_regex_search(pattern->regex, &encoder->regex_memory, text, size, *from,
                                       match, found));
    else if (pattern->class)
        *found = match_class(pattern->class, text, size, *from, match);
    else
        *found = match_literal(pattern->literal, text, size, *from, match);
    *from = *found ? match->start + match->size : size;
    return TRI_OK;
}

// The strings that a split makes, one segment (a match, or what lies between two) after the other.
typedef struct splitter {
    tokenizer_spans *out;
    tokenizer_behavior behavior;
    bool is_inverted;
    size_t first;   // position in `out` of the first string that this one gives
    bool was_match; // whether the segment before was one
} splitter;

static void add(splitter *s, size_t start, size_t size, bool is_match) {
    bool extends = false, has_before = s->out->count > s->first;
    is_match ^= s->is_inverted;
    if (s->behavior == TOKENIZER_REMOVED && is_match) return;
    if (s->behavior == TOKENIZER_MERGED_WITH_PREVIOUS) extends = is_match && !s->was_match;
    if (s->behavior == TOKENIZER_MERGED_WITH_NEXT) extends = !is_match && s->was_match;
    if (s->behavior == TOKENIZER_CONTIGUOUS) extends = is_match == s->was_match;
    s->was_match = is_match;
    if (extends && has_before)
        s->out->items[s->out->count - 1].size += size;
    else
        tokenizer_spans_push(s->out, start, size);
}

static tri_status split_one(const tokenizer_pattern *pattern, splitter *s,
                            tri_token_encoder *encoder, const char *data, tokenizer_span string) {
    const char *text = data + string.start;
    size_t from = 0, done = 0;
    tokenizer_span match;
    s->first = s->out->count;
    s->was_match = false;
    while (done < string.size) {
        bool found;
        TRI_TRY(tokenizer_match(pattern, encoder, text, string.size, &from, &match, &found));
        size_t until = found ? match.start : string.size;
        if (done < until) add(s, string.start + done, until - done, false);
        if (found) add(s, string.start + match.start, match.size, true);
        done = found ? match.start + match.size : string.size;
    }
    return TRI_OK;
}

tri_status tokenizer_split(const tokenizer_pattern *pattern, tokenizer_behavior behavior,
                           bool inverted, tri_token_encoder *encoder, tokenizer_strings *strings) {
    splitter s = {.out = &strings->spare, .behavior = behavior, .is_inverted = inverted};
    bool scans = pattern->scanner && behavior == TOKENIZER_ISOLATED;
    strings->spare.count = 0;
    for (size_t i = 0; i < strings->spans.count && scans; i++)
        tokenizer_scan(pattern->scanner, strings->data, strings->spans.items[i], s.out);
    for (size_t i = 0; i < strings->spans.count && !scans; i++)
        TRI_TRY(split_one(pattern, &s, encoder, strings->data, strings->spans.items[i]));
    tokenizer_spans split = strings->spare;
    strings->spare = strings->spans;
    strings->spans = split;
    return TRI_OK;
}
