// Regular expressions of tokenizer.json. Hugging Face's library uses Oniguruma with the syntax of
// Ruby; here PCRE2 searches. So a pattern is first rewritten, because some escapes mean something
// else in PCRE2: its \s has U+180E, its \w and its names of scripts have other characters. What
// cannot be translated is refused.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "format/tokenizer/regex.h"

#include <ctype.h>
#include <pcre2.h>
#include <string.h>

// The property White_Space, and everything else, as they stand between brackets.
#define SPACES                                                                                     \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define NOT_SPACES                                                                                 \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-"         \
    "\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"        \
    "\\x{3001}-\\x{10ffff}"
// In Ruby's syntax, the powers and fractions of Latin-1 are parts of words.
#define WORDS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

// What an escape becomes outside and inside of brackets; NULL: it cannot stand there. Behind that
// of words stand those characters that Unicode 15 and 16 added.
static const struct {
    char escape;
    const char *outside, *inside;
} escapes[] = {
    {'s', "[" SPACES "]", SPACES}, {'S', "[^" SPACES "]", NOT_SPACES},
    {'w', "[" WORDS, WORDS},       {'W', "[^" WORDS, NULL},
    {'d', "\\p{Nd}", "\\p{Nd}"},   {'D', "\\P{Nd}", "\\P{Nd}"},
    {'r', "\\r", "\\r"},           {'n', "\\n", "\\n"},
    {'t', "\\t", "\\t"},           {'f', "\\f", "\\f"},
};

enum { MATCH_LIMIT = 10000000, STACK_BYTES = 32 << 10, MAX_STACK_BYTES = 4 << 20 };

struct tokenizer_regex {
    pcre2_code *code;
    bool is_jit;
};

typedef struct rewriter {
    const tokenizer_reader *reader;
    tokenizer_string pattern;
    size_t at;
    bool is_inside; // of brackets
    tokenizer_text out;
} rewriter;

static void put(rewriter *r, const char *text) {
    tokenizer_text_append(&r->out, text, strlen(text));
}

static tri_status refuse(const rewriter *r, const char *what) {
    return TOKENIZER_FAIL(r->reader, TRI_UNSUPPORTED,
                          "the pattern '%.*s' has %s, which is not "
                          "supported",
                          (int)r->pattern.size, r->pattern.data, what);
}

static bool has(const rewriter *r, size_t ahead, char c) {
    return r->at + ahead < r->pattern.size && r->pattern.data[r->at + ahead] == c;
}

// \p{L}, \p{^L}, \P{Han}: names of one or two letters are general categories, others scripts. To
// categories belong characters that Unicode 15 and 16 added, which an older PCRE2 does not know; a
// negated category between brackets cannot be written with them.
static tri_status rewrite_property(rewriter *r) {
    const char *begin = r->pattern.data + r->at;
    const char *close = has(r, 2, '{') ? memchr(begin, '}', r->pattern.size - r->at) : NULL;
    if (!close) return refuse(r, "a property without braces");
    const char *name = begin + 3;
    bool is_negated = name < close && *name == '^';
    name += is_negated;
    size_t length = (size_t)(close - name);
    for (size_t i = 0; i < length; i++)
        if (!isalpha((unsigned char)name[i]) && name[i] != '_')
            return refuse(r, "a property with an odd name");
    is_negated = (begin[1] == 'P') != is_negated;
    bool has_brackets = length <= 2 && !r->is_inside;
    if (has_brackets) put(r, is_negated ? "[^" : "[");
    put(r, is_negated && !has_brackets ? "\\P{" : "\\p{");
    if (length > 2) put(r, "sc:");
    tokenizer_text_append(&r->out, name, length + 1);
    if (has_brackets || !is_negated) tokenizer_put_newer(name, length, &r->out);
    if (has_brackets) put(r, "]");
    r->at += (size_t)(close + 1 - begin);
    return TRI_OK;
}

static tri_status rewrite_hex(rewriter *r, size_t digits) {
    char code[16] = "\\x{";
    size_t length = strlen(code);
    for (size_t i = 0; i < digits; i++) {
        if (r->at + 2 + i >= r->pattern.size ||
            !isxdigit((unsigned char)r->pattern.data[r->at + 2 + i]))
            return refuse(r, "a number of a character that is not complete");
        code[length++] = r->pattern.data[r->at + 2 + i];
    }
    code[length++] = '}';
    tokenizer_text_append(&r->out, code, length);
    r->at += 2 + digits;
    return TRI_OK;
}

static void put_newer_of_words(rewriter *r) {
    static const char *const categories[] = {"L", "M", "Nd"};
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
        tokenizer_put_newer(categories[i], strlen(categories[i]), &r->out);
    if (!r->is_inside) put(r, "]");
}

static tri_status rewrite_escape(rewriter *r) {
    if (r->at + 1 >= r->pattern.size) return refuse(r, "a backslash at its end");
    char c = r->pattern.data[r->at + 1];
    if (c == 'p' || c == 'P') return rewrite_property(r);
    if (c == 'x' && !has(r, 2, '{')) return rewrite_hex(r, 2);
    if (c == 'u') return rewrite_hex(r, 4);
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        if (escapes[i].escape != c) continue;
        const char *text = r->is_inside ? escapes[i].inside : escapes[i].outside;
        if (!text) break;
        put(r, text);
        if (c == 'w' || c == 'W') put_newer_of_words(r);
        r->at += 2;
        return TRI_OK;
    }
    if (isalnum((unsigned char)c) && c != 'x') {
        char what[] = "the escape \\?";
        what[sizeof what - 2] = c;
        return refuse(r, what);
    }
    tokenizer_text_append(&r->out, r->pattern.data + r->at, 2);
    r->at += 2;
    return TRI_OK;
}

static tri_status rewrite_inside(rewriter *r, char c) {
    if (c == '&' && has(r, 1, '&')) return refuse(r, "&&");
    if (c == '[') {
        const char *begin = r->pattern.data + r->at;
        const char *close = has(r, 1, ':') ? memchr(begin, ']', r->pattern.size - r->at) : NULL;
        if (!close || close[-1] != ':') return refuse(r, "brackets inside of brackets");
        tokenizer_text_append(&r->out, begin, (size_t)(close + 1 - begin));
        r->at += (size_t)(close + 1 - begin);
        return TRI_OK;
    }
    if (c == ']') r->is_inside = false;
    tokenizer_text_append(&r->out, &c, 1);
    r->at++;
    return TRI_OK;
}

static tri_status rewrite_outside(rewriter *r, char c) {
    if (c == '(' && has(r, 1, '?'))
        for (size_t i = 2; r->at + i < r->pattern.size; i++) {
            char option = r->pattern.data[r->at + i];
            if (option == 'm' || option == 'x') return refuse(r, "an option other than i");
            if (option != 'i' && option != '-') break;
        }
    if (c == '}' && has(r, 1, '+')) return refuse(r, "{…}+");
    tokenizer_text_append(&r->out, &c, 1);
    r->at++;
    if (c != '[') return TRI_OK;
    r->is_inside = true;
    if (has(r, 0, '^')) {
        put(r, "^");
        r->at++;
    }
    if (has(r, 0, ']')) return refuse(r, "empty brackets");
    return TRI_OK;
}

static tri_status rewrite(rewriter *r) {
    while (r->at < r->pattern.size) {
        char c = r->pattern.data[r->at];
        if (c == '\\')
            TRI_TRY(rewrite_escape(r));
        else if (r->is_inside)
            TRI_TRY(rewrite_inside(r, c));
        else
            TRI_TRY(rewrite_outside(r, c));
    }
    return TRI_OK;
}

static tri_status compile(rewriter *r, pcre2_code **out) {
    int error;
    size_t at;
    uint32_t matches_empty = 0;
    char why[128];
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context || r->out.failed) {
        pcre2_compile_context_free(context);
        return TOKENIZER_FAIL(r->reader, TRI_NO_MEMORY, "no memory for a pattern");
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    *out = pcre2_compile((PCRE2_SPTR)r->out.data, r->out.size,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                         &at, context);
    pcre2_compile_context_free(context);
    if (!*out) {
        pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
        return TOKENIZER_FAIL(r->reader, TRI_UNSUPPORTED, "the pattern '%.*s' is not supported: %s",
                              (int)r->pattern.size, r->pattern.data, why);
    }
    pcre2_pattern_info(*out, PCRE2_INFO_MATCHEMPTY, &matches_empty);
    return matches_empty ? refuse(r, "a match of no characters") : TRI_OK;
}

tri_status tokenizer_regex_compile(tokenizer_reader *reader, tokenizer_string pattern,
                                   tokenizer_regex **out) {
    enum { MAX_PATTERN_BYTES = 1 << 14 };
    tri_tokenizer *t = reader->tokenizer;
    if (pattern.size > MAX_PATTERN_BYTES)
        return TOKENIZER_FAIL(reader, TRI_UNSUPPORTED, "a pattern of %zu bytes is too long",
                              pattern.size);
    *out = TRI_NEW(reader->arena, tokenizer_regex);
    TRI_PUSH(reader->arena, t->regexes, t->regex_count, t->regex_capacity) = *out;
    rewriter r = {.reader = reader, .pattern = pattern};
    tri_status status = rewrite(&r);
    if (status == TRI_OK) status = compile(&r, &(*out)->code);
    tokenizer_text_free(&r.out);
    // Without a compiler for this machine, or memory for it, patterns are interpreted.
    if (status == TRI_OK) (*out)->is_jit = pcre2_jit_compile((*out)->code, PCRE2_JIT_COMPLETE) == 0;
    return status;
}

void tokenizer_regex_free(tokenizer_regex *regex) { pcre2_code_free(regex->code); }

tri_status tokenizer_regex_memory_create(tokenizer_regex_memory *memory) {
    memory->match = pcre2_match_data_create(1, NULL);
    memory->context = pcre2_match_context_create(NULL);
    memory->stack = pcre2_jit_stack_create(STACK_BYTES, MAX_STACK_BYTES, NULL);
    if (!memory->match || !memory->context)
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for the patterns of a tokenizer");
    pcre2_set_match_limit(memory->context, MATCH_LIMIT);
    if (memory->stack) pcre2_jit_stack_assign(memory->context, NULL, memory->stack);
    return TRI_OK;
}

void tokenizer_regex_memory_free(tokenizer_regex_memory *memory) {
    pcre2_match_data_free(memory->match);
    pcre2_match_context_free(memory->context);
    pcre2_jit_stack_free(memory->stack);
}

tri_status tokenizer_regex_search(const tokenizer_regex *regex, tokenizer_regex_memory *memory,
                                  const char *text, size_t size, size_t from, tokenizer_span *match,
                                  bool *found) {
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int result = regex->is_jit ? pcre2_jit_match(regex->code, subject, size, from,
                                                 PCRE2_NO_UTF_CHECK, memory->match, memory->context)
                               : pcre2_match(regex->code, subject, size, from, PCRE2_NO_UTF_CHECK,
                                             memory->match, memory->context);
    *found = result >= 0;
    if (result == PCRE2_ERROR_NOMATCH) return TRI_OK;
    if (result < 0)
        return TRI_FAIL(TRI_BAD_INPUT, "a pattern of the tokenizer takes too long for this text");
    const size_t *ends = pcre2_get_ovector_pointer(memory->match);
    *match = (tokenizer_span){ends[0], ends[1] - ends[0]};
    return TRI_OK;
}
