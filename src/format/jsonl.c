// Scans lines of JSON.
#include "format/jsonl.h"

#include <ctype.h>
#include <string.h>

enum { MAX_DEPTH = 512 };

typedef struct scanner {
    const char *at, *end;
    const char *wrong; // NULL: nothing yet
} scanner;

static bool fail(scanner *s, const char *wrong) {
    if (!s->wrong) s->wrong = wrong;
    return false;
}

static void skip_space(scanner *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n'))
        s->at++;
}

static bool take(scanner *s, char c) {
    skip_space(s);
    if (s->at == s->end || *s->at != c) return false;
    s->at++;
    return true;
}

static bool take_unit(scanner *s, uint32_t *unit) {
    *unit = 0;
    if (s->end - s->at < 4) return fail(s, "a string without an end");
    for (int i = 0; i < 4; i++) {
        char c = *s->at++;
        if (!isxdigit((unsigned char)c)) return fail(s, "an escape \\u without four digits");
        *unit = *unit << 4 | (uint32_t)(isdigit((unsigned char)c) ? c - '0' : (c | 32) - 'a' + 10);
    }
    return true;
}

static bool take_unicode(scanner *s, tokenizer_text *out) {
    uint32_t unit, low;
    if (!take_unit(s, &unit)) return false;
    if (unit >= 0xd800 && unit < 0xe000) {
        bool has_low = unit < 0xdc00 && s->end - s->at >= 6 && s->at[0] == '\\' && s->at[1] == 'u';
        if (!has_low) return fail(s, "half of a surrogate pair");
        s->at += 2;
        if (!take_unit(s, &low)) return false;
        if (low < 0xdc00 || low >= 0xe000) return fail(s, "half of a surrogate pair");
        unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
    }
    if (out) tokenizer_text_put(out, unit);
    return true;
}

static bool take_escape(scanner *s, tokenizer_text *out) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (s->at == s->end) return fail(s, "a string without an end");
    char c = *s->at++;
    if (c == 'u') return take_unicode(s, out);
    const char *name = c ? strchr(names, c) : NULL;
    if (!name) return fail(s, "an escape that JSON does not have");
    if (out) tokenizer_text_append(out, &values[name - names], 1);
    return true;
}

// Goes on to the next byte that is a quote, a backslash or a control character.
static void skip_plain(scanner *s) {
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    while (s->end - s->at >= 8) {
        uint64_t eight;
        memcpy(&eight, s->at, sizeof eight);
        uint64_t quote = eight ^ ones * '"', slash = eight ^ ones * '\\';
        uint64_t found = ((quote - ones) & ~quote) | ((slash - ones) & ~slash) |
                         ((eight - ones * 0x20) & ~eight);
        if (found & tops) break;
        s->at += 8;
    }
    while (s->at < s->end && *s->at != '"' && *s->at != '\\' && (unsigned char)*s->at >= 0x20)
        s->at++;
}

// Reads a string. `out` NULL: it is only checked.
static bool take_string(scanner *s, tokenizer_text *memory, tokenizer_string *out) {
    if (!take(s, '"')) return fail(s, "no string where one has to be");
    const char *start = s->at;
    bool has_escapes = false;
    for (;;) {
        const char *plain = s->at;
        skip_plain(s);
        if (has_escapes && out) tokenizer_text_append(memory, plain, (size_t)(s->at - plain));
        if (s->at == s->end) return fail(s, "a string without an end");
        if (*s->at == '"') break;
        if (*s->at != '\\') return fail(s, "a control character in a string");
        if (!has_escapes && out) {
            memory->size = 0;
            tokenizer_text_append(memory, start, (size_t)(s->at - start));
        }
        has_escapes = true;
        s->at++;
        if (!take_escape(s, out ? memory : NULL)) return false;
    }
    if (out && has_escapes) *out = (tokenizer_string){memory->data, memory->size};
    if (out && !has_escapes) *out = (tokenizer_string){start, (size_t)(s->at - start)};
    s->at++;
    return true;
}

static size_t skip_digits(scanner *s) {
    const char *start = s->at;
    while (s->at < s->end && isdigit((unsigned char)*s->at)) s->at++;
    return (size_t)(s->at - start);
}

static bool skip_number(scanner *s) {
    if (s->at < s->end && *s->at == '-') s->at++;
    bool is_zero = s->at < s->end && *s->at == '0';
    size_t digits = skip_digits(s);
    if (digits == 0 || (is_zero && digits > 1)) return fail(s, "a value that JSON does not have");
    if (s->at < s->end && *s->at == '.') {
        s->at++;
        if (skip_digits(s) == 0) return fail(s, "a number that ends with its point");
    }
    if (s->at < s->end && (*s->at | 32) == 'e') {
        s->at++;
        if (s->at < s->end && (*s->at == '+' || *s->at == '-')) s->at++;
        if (skip_digits(s) == 0) return fail(s, "a number without its exponent");
    }
    return true;
}

static bool skip_word(scanner *s) {
    // Python's json writes the last three.
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i]);
        if ((size_t)(s->end - s->at) < length || memcmp(s->at, words[i], length) != 0) continue;
        s->at += length;
        return true;
    }
    return skip_number(s);
}

// Skips a value, of which lists and objects may be inside of each other. `open` has one bit for
// each that is open: whether it is an object.
static bool skip_value(scanner *s) {
    uint8_t is_object[MAX_DEPTH];
    int depth = 0;
    bool is_key = false; // a key and a colon come before the next value
    for (;;) {
        if (is_key) {
            if (!take_string(s, NULL, NULL)) return false;
            if (!take(s, ':')) return fail(s, "no colon behind a key");
        }
        skip_space(s);
        char c = s->at < s->end ? *s->at : 0;
        if (c == '{' || c == '[') {
            if (depth == MAX_DEPTH) return fail(s, "nested too deeply");
            is_object[depth++] = c == '{';
            s->at++;
            is_key = c == '{';
            if (!take(s, c == '{' ? '}' : ']')) continue;
            depth--;
        } else if (c == '"' ? !take_string(s, NULL, NULL) : !skip_word(s)) {
            return false;
        }
        while (depth > 0 && !take(s, ',')) {
            if (!take(s, is_object[depth - 1] ? '}' : ']'))
                return fail(s, "no comma between two values, or no end of a list or an object");
            depth--;
        }
        if (depth == 0) return true;
        is_key = is_object[depth - 1];
    }
}

static const char *check_text(tokenizer_string line) {
    return tokenizer_valid_bytes(line.data, line.size) == line.size ? NULL
                                                                    : "bytes that are not UTF-8";
}

// What is wrong, if not all of the line was read.
static const char *ended(scanner *s) {
    skip_space(s);
    if (!s->wrong && s->at < s->end) fail(s, "something behind its value");
    return s->wrong;
}

const char *tri_jsonl_field(tokenizer_string line, tokenizer_string key, tokenizer_text *memory,
                            tokenizer_string *out) {
    scanner s = {.at = line.data, .end = line.data + line.size, .wrong = check_text(line)};
    bool found = false;
    tokenizer_text name_memory = {0};
    tokenizer_string name;
    if (s.wrong) return s.wrong;
    if (!take(&s, '{')) return "no object";
    bool more = !take(&s, '}');
    while (more && take_string(&s, &name_memory, &name)) {
        if (!take(&s, ':')) fail(&s, "no colon behind a key");
        bool is_field = name.size == key.size && !memcmp(name.data, key.data, key.size);
        if (is_field && found) fail(&s, "the field of data.field twice");
        skip_space(&s);
        if (is_field && (s.at == s.end || *s.at != '"'))
            fail(&s, "the field of data.field, but it is no text");
        if (s.wrong || (is_field ? !take_string(&s, memory, out) : !skip_value(&s))) break;
        found |= is_field;
        more = take(&s, ',');
        if (!more && !take(&s, '}')) fail(&s, "no comma between two values, or no end");
    }
    tokenizer_text_free(&name_memory);
    if (!ended(&s) && !found) return "no field as data.field names it";
    return s.wrong;
}

const char *tri_jsonl_string(tokenizer_string line, tokenizer_text *memory, tokenizer_string *out) {
    scanner s = {.at = line.data, .end = line.data + line.size, .wrong = check_text(line)};
    if (!s.wrong) take_string(&s, memory, out);
    return ended(&s);
}

const char *tri_jsonl_numbers(tokenizer_string line, void (*taken)(void *context, uint32_t number),
                              void *context) {
    scanner s = {.at = line.data, .end = line.data + line.size};
    if (!take(&s, '[')) return "no list of token numbers";
    bool more = !take(&s, ']');
    while (more) {
        uint64_t number = 0;
        skip_space(&s);
        const char *start = s.at;
        while (s.at < s.end && isdigit((unsigned char)*s.at) && number <= UINT32_MAX)
            number = 10 * number + (uint64_t)(*s.at++ - '0');
        if (s.at == start || number > UINT32_MAX || (*start == '0' && s.at - start > 1))
            return "something that is no token number";
        taken(context, (uint32_t)number);
        more = take(&s, ',');
        if (!more && !take(&s, ']')) return "something that is no token number";
    }
    return ended(&s);
}

void tri_jsonl_put_string(tokenizer_text *out, tokenizer_string text) {
    static const char digits[] = "0123456789abcdef";
    static const char names[] = "\"\\bfnrt", values[] = "\"\\\b\f\n\r\t";
    tokenizer_text repaired = {0};
    tokenizer_repair(&repaired, text.data, text.size);
    tokenizer_text_append(out, "\"", 1);
    for (size_t i = 0; i < repaired.size; i++) {
        char c = repaired.data[i];
        const char *special = c ? strchr(values, c) : NULL;
        const char escape[] = {'\\', special ? names[special - values] : 'u', '0',
                               '0',  digits[(unsigned char)c >> 4],           digits[c & 15]};
        if (special)
            tokenizer_text_append(out, escape, 2);
        else if ((unsigned char)c < 0x20)
            tokenizer_text_append(out, escape, sizeof escape);
        else
            tokenizer_text_append(out, &c, 1);
    }
    tokenizer_text_append(out, "\"", 1);
    out->failed |= repaired.failed;
    tokenizer_text_free(&repaired);
}

bool tri_jsonl_is_blank(tokenizer_string line) {
    scanner s = {.at = line.data, .end = line.data + line.size};
    skip_space(&s);
    return s.at == s.end;
}
