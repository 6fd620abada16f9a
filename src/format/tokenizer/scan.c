// Scans text for the words of well-known patterns.
#include "format/tokenizer/scan.h"

#include <pthread.h>
#include <string.h>
#include <utf8proc.h>

struct tokenizer_scanner {
    const char *pattern;
    bool is_gpt2;   // whose words take only a space with them, and whose 's has lower case
    int max_digits; // of one word; GPT-2 has no limit
};

#define LLAMA(digits)                                                                              \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits                     \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const tokenizer_scanner scanners[] = {
    {TOKENIZER_GPT2, true, INT32_MAX},
    {LLAMA("{1,3}"), false, 3},
    {LLAMA(""), false, 1},
};

const tokenizer_scanner *tokenizer_scanner_find(tokenizer_string pattern) {
    for (size_t i = 0; i < sizeof scanners / sizeof *scanners; i++)
        if (strlen(scanners[i].pattern) == pattern.size &&
            !memcmp(scanners[i].pattern, pattern.data, pattern.size))
            return &scanners[i];
    return NULL;
}

typedef enum class { OTHER, LETTER, NUMBER, SPACE, LINE_END } class;

static uint8_t classes[0x10000]; // of the characters of the basic plane
static pthread_once_t classes_once = PTHREAD_ONCE_INIT;

static class find_class(uint32_t code) {
    enum {
        LETTERS = 1 << UTF8PROC_CATEGORY_LU | 1 << UTF8PROC_CATEGORY_LL |
                  1 << UTF8PROC_CATEGORY_LT | 1 << UTF8PROC_CATEGORY_LM | 1 << UTF8PROC_CATEGORY_LO
    };
    if (code == '\r' || code == '\n') return LINE_END;
    if (tokenizer_is_space(code)) return SPACE;
    if (tokenizer_is_number(code)) return NUMBER;
    return LETTERS >> tokenizer_category(code) & 1 ? LETTER : OTHER;
}

static void find_classes(void) {
    for (uint32_t code = 0; code < 0x10000; code++) classes[code] = (uint8_t)find_class(code);
}

// The class of the character at `at`, which is before `end`, and its length in bytes.
static inline class class_at(const char *at, int *length) {
    uint32_t code;
    unsigned char byte = (unsigned char)*at;
    *length = 1;
    if (byte < 0x80) return classes[byte];
    *length = tokenizer_next(at, &code);
    return code < 0x10000 ? classes[code] : find_class(code);
}

// Skips characters of the class, at most `most` of them.
static inline const char *skip(const char *at, const char *end, class wanted, int most) {
    int length;
    while (at < end && most-- > 0 && class_at(at, &length) == wanted) at += length;
    return at;
}

// The length of 's, 't, 're, 've, 'm, 'll or 'd behind an apostrophe, which is at `at`; 0: none.
static int contraction(const char *at, const char *end, bool has_upper) {
    char a = end - at > 1 ? at[1] : 0, b = end - at > 2 ? at[2] : 0;
    // Without regard to case, the long s is an s.
    if (has_upper && a == '\xc5' && b == '\xbf') return 3;
    if (has_upper && a >= 'A' && a <= 'Z') a |= 0x20;
    if (has_upper && b >= 'A' && b <= 'Z') b |= 0x20;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

// White space: up to its last line end; else all but its last character, which is part of the next
// word; all of it at the end of the text, or if it is one character.
static const char *end_of_space(const tokenizer_scanner *s, const char *at, const char *end) {
    const char *last = at, *line_end = NULL, *next = at;
    int length;
    while (next < end) {
        class here = class_at(next, &length);
        if (here != SPACE && here != LINE_END) break;
        last = next;
        next += length;
        if (here == LINE_END) line_end = next;
    }
    if (line_end && !s->is_gpt2) return line_end;
    return next == end || last == at ? next : last;
}

static const char *end_of_word(const tokenizer_scanner *s, const char *at, const char *end) {
    int length, next_length;
    class here = class_at(at, &length);
    if (*at == '\'') {
        int bytes = contraction(at, end, !s->is_gpt2);
        if (bytes) return at + bytes;
    }
    if (here == LETTER) return skip(at, end, LETTER, INT32_MAX);
    if (here == NUMBER) return skip(at, end, NUMBER, s->max_digits);
    const char *next = at + length;
    class following = next < end ? class_at(next, &next_length) : LINE_END;
    bool takes_letters = s->is_gpt2 ? *at == ' ' : here != LINE_END;
    if (takes_letters && following == LETTER) return skip(next, end, LETTER, INT32_MAX);
    if (s->is_gpt2 && *at == ' ' && following == NUMBER) return skip(next, end, NUMBER, INT32_MAX);
    if (here != OTHER && (*at != ' ' || following != OTHER)) return end_of_space(s, at, end);
    next = skip(next, end, OTHER, INT32_MAX);
    return s->is_gpt2 ? next : skip(next, end, LINE_END, INT32_MAX);
}

void tokenizer_scan(const tokenizer_scanner *scanner, const char *text, tokenizer_span span,
                    tokenizer_spans *out) {
    const char *at = text + span.start, *end = at + span.size;
    pthread_once(&classes_once, find_classes);
    while (at < end) {
        const char *next = end_of_word(scanner, at, end);
        tokenizer_spans_push(out, (size_t)(at - text), (size_t)(next - at));
        at = next;
    }
}
