// The pre-tokenizers of tokenizer.json, which split a text into words.
#include "format/tokenizer/scan.h"

#include <string.h>

#define TEXT(literal) ((tokenizer_string){(literal), sizeof(literal) - 1})

uint32_t tokenizer_byte_character(unsigned char byte) {
    // The characters of Latin-1 that can be seen stand for themselves; others follow from 256 on.
    if ((byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad)) return byte;
    return byte <= ' ' ? 0x100u + byte : byte <= 0xa0 ? 0x100u + byte - '~' + ' ' : 0x143;
}

int tokenizer_character_byte(uint32_t code) {
    if ((code >= '!' && code <= '~') || (code >= 0xa1 && code <= 0xff && code != 0xad))
        return (int)code;
    if (code < 0x100 || code > 0x143) return -1;
    return code <= 0x120 ? (int)code - 0x100 : code < 0x143 ? (int)code - 0x100 - ' ' + '~' : 0xad;
}

static tri_status read_behavior(const tokenizer_reader *reader, const json_t *json,
                                tokenizer_behavior *out) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const json_t *value = json_object_get(json, "behavior");
    *out = TOKENIZER_ISOLATED;
    if (!value) return TRI_OK;
    const char *text = json_string_value(value);
    for (int i = 0; text && i < (int)(sizeof names / sizeof *names); i++) {
        *out = (tokenizer_behavior)i;
        if (!strcmp(text, names[i])) return TRI_OK;
    }
    return TOKENIZER_FAIL(reader, TRI_UNSUPPORTED, "the behavior '%s' of a pre-tokenizer",
                          text ? text : "that is no text");
}

enum { INVERTED };

static tri_status parse_split(tokenizer_reader *reader, const json_t *json, tokenizer_part *out) {
    TRI_TRY(tokenizer_read_pattern(reader, json, &out->pattern));
    TRI_TRY(read_behavior(reader, json, &out->behavior));
    return tokenizer_read_bool(reader, json, "invert", false, &out->flags[INVERTED]);
}

static tri_status parse_delimiter(tokenizer_reader *reader, const json_t *json,
                                  tokenizer_part *out) {
    out->behavior = TOKENIZER_REMOVED;
    return tokenizer_read_string(reader, json, "delimiter", &out->pattern.literal);
}

static tri_status parse_whitespace(tokenizer_reader *reader, const json_t *json,
                                   tokenizer_part *out) {
    out->behavior = TOKENIZER_REMOVED;
    out->flags[INVERTED] = true;
    return tokenizer_regex_compile(reader,
                                   TEXT("[\\w\\x{200c}\\x{200d}]+|"
                                        "[^\\w\\x{200c}\\x{200d}\\s]+"),
                                   &out->pattern.regex);
}

static tri_status parse_whitespace_split(tokenizer_reader *reader, const json_t *json,
                                         tokenizer_part *out) {
    out->behavior = TOKENIZER_REMOVED;
    out->pattern.class = tokenizer_is_space;
    return TRI_OK;
}

static tri_status parse_punctuation(tokenizer_reader *reader, const json_t *json,
                                    tokenizer_part *out) {
    out->pattern.class = tokenizer_is_punctuation;
    return read_behavior(reader, json, &out->behavior);
}

static tri_status parse_digits(tokenizer_reader *reader, const json_t *json, tokenizer_part *out) {
    bool is_individual;
    TRI_TRY(tokenizer_read_bool(reader, json, "individual_digits", false, &is_individual));
    out->pattern.class = tokenizer_is_number;
    out->behavior = is_individual ? TOKENIZER_ISOLATED : TOKENIZER_CONTIGUOUS;
    return TRI_OK;
}

static tri_status apply_split(const tokenizer_part *part, tri_token_encoder *encoder,
                              tokenizer_strings *strings) {
    return tokenizer_split(&part->pattern, part->behavior, part->flags[INVERTED], encoder, strings);
}

static tri_status apply_bert(const tokenizer_part *part, tri_token_encoder *encoder,
                             tokenizer_strings *strings) {
    const tokenizer_pattern spaces = {.class = tokenizer_is_space};
    const tokenizer_pattern marks = {.class = tokenizer_is_punctuation};
    TRI_TRY(tokenizer_split(&spaces, TOKENIZER_REMOVED, false, encoder, strings));
    return tokenizer_split(&marks, TOKENIZER_ISOLATED, false, encoder, strings);
}

static tri_status parse_fixed(tokenizer_reader *reader, const json_t *json, tokenizer_part *out) {
    TRI_TRY(tokenizer_read_int(reader, json, "length", 5, &out->numbers[0]));
    if (out->numbers[0] > 0) return TRI_OK;
    return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "the length of FixedLength has to be above 0");
}

static tri_status apply_fixed(const tokenizer_part *part, tri_token_encoder *encoder,
                              tokenizer_strings *strings) {
    tokenizer_spans *out = &strings->spare, all;
    out->count = 0;
    for (size_t i = 0; i < strings->spans.count; i++) {
        tokenizer_span span = strings->spans.items[i];
        size_t end = span.start + span.size, start = span.start, at = start;
        for (int64_t characters = 0; at < end;) {
            at += (size_t)tokenizer_length(strings->data[at]);
            if (++characters < part->numbers[0] && at < end) continue;
            tokenizer_spans_push(out, start, at - start);
            start = at;
            characters = 0;
        }
    }
    all = strings->spans;
    strings->spans = *out;
    *out = all;
    return TRI_OK;
}

enum { ADDS_PREFIX, USES_REGEX };

static tri_status parse_byte_level(tokenizer_reader *reader, const json_t *json,
                                   tokenizer_part *out) {
    bool *flags = out->flags;
    TRI_TRY(tokenizer_read_bool(reader, json, "add_prefix_space", true, &flags[ADDS_PREFIX]));
    TRI_TRY(tokenizer_read_bool(reader, json, "use_regex", true, &flags[USES_REGEX]));
    if (!flags[USES_REGEX]) return TRI_OK;
    out->pattern.scanner = tokenizer_scanner_find(TEXT(TOKENIZER_GPT2));
    return tokenizer_regex_compile(reader, TEXT(TOKENIZER_GPT2), &out->pattern.regex);
}

static tri_status add_space(const tokenizer_part *part, tri_token_encoder *encoder,
                            tokenizer_string text, size_t index, tokenizer_text *out) {
    if (text.size && text.data[0] != ' ') tokenizer_text_append(out, " ", 1);
    tokenizer_text_append(out, text.data, text.size);
    return TRI_OK;
}

static tri_status to_bytes(const tokenizer_part *part, tri_token_encoder *encoder,
                           tokenizer_string text, size_t index, tokenizer_text *out) {
    tokenizer_map_bytes(text, out);
    return TRI_OK;
}

static tri_status apply_byte_level(const tokenizer_part *part, tri_token_encoder *encoder,
                                   tokenizer_strings *strings) {
    if (part->flags[ADDS_PREFIX]) TRI_TRY(tokenizer_map(add_space, part, encoder, strings));
    if (part->flags[USES_REGEX])
        TRI_TRY(tokenizer_split(&part->pattern, TOKENIZER_ISOLATED, false, encoder, strings));
    // A vocabulary that was translated to bytes needs no characters for them.
    const tri_tokenizer *t = encoder->tokenizer;
    int last = t->part_count[TOKENIZER_PRE_TOKENIZER] - 1;
    if (t->is_by_byte && part == &t->parts[TOKENIZER_PRE_TOKENIZER][last]) return TRI_OK;
    return tokenizer_map(to_bytes, part, encoder, strings);
}

enum { PREPENDS_ALWAYS, PREPENDS_FIRST, SPLITS };

tri_status tokenizer_parse_metaspace(tokenizer_reader *reader, const json_t *json,
                                     tokenizer_part *out) {
    tokenizer_string scheme;
    bool adds_prefix; // as older files say it
    uint32_t code;
    TRI_TRY(tokenizer_read_bool(reader, json, "split", true, &out->flags[SPLITS]));
    TRI_TRY(tokenizer_read_bool(reader, json, "add_prefix_space", true, &adds_prefix));
    TRI_TRY(tokenizer_read_string(reader, json, "prepend_scheme", &scheme));
    TRI_TRY(tokenizer_read_string(reader, json, "replacement", &out->text));
    if (out->text.size == 0 || tokenizer_next(out->text.data, &code) != (int)out->text.size)
        return TOKENIZER_FAIL(reader, TRI_BAD_INPUT,
                              "the replacement of Metaspace is not one character");
    const char *name = scheme.data ? scheme.data : adds_prefix ? "always" : "never";
    out->flags[PREPENDS_ALWAYS] = !strcmp(name, "always");
    out->flags[PREPENDS_FIRST] = !strcmp(name, "first");
    if (out->flags[PREPENDS_ALWAYS] || out->flags[PREPENDS_FIRST] || !strcmp(name, "never"))
        return TRI_OK;
    return TOKENIZER_FAIL(reader, TRI_UNSUPPORTED, "the prepend_scheme '%s' of Metaspace", name);
}

static tri_status replace_spaces(const tokenizer_part *part, tri_token_encoder *encoder,
                                 tokenizer_string text, size_t index, tokenizer_text *out) {
    const tokenizer_string mark = part->text;
    bool begins = text.size >= mark.size && !memcmp(text.data, mark.data, mark.size);
    begins |= text.size > 0 && text.data[0] == ' ';
    bool prepends = part->flags[PREPENDS_ALWAYS] ||
                    (part->flags[PREPENDS_FIRST] && index == 0 && encoder->strings.is_first);
    if (prepends && !begins) tokenizer_text_append(out, mark.data, mark.size);
    for (size_t at = 0; at < text.size;) {
        const char *space = memchr(text.data + at, ' ', text.size - at);
        size_t until = space ? (size_t)(space - text.data) : text.size;
        tokenizer_text_append(out, text.data + at, until - at);
        if (space) tokenizer_text_append(out, mark.data, mark.size);
        at = until + (space != NULL);
    }
    return TRI_OK;
}

static tri_status apply_metaspace(const tokenizer_part *part, tri_token_encoder *encoder,
                                  tokenizer_strings *strings) {
    TRI_TRY(tokenizer_map(replace_spaces, part, encoder, strings));
    if (!part->flags[SPLITS]) return TRI_OK;
    const tokenizer_pattern mark = {.literal = part->text};
    return tokenizer_split(&mark, TOKENIZER_MERGED_WITH_NEXT, false, encoder, strings);
}

static const tokenizer_row rows[] = {
    {TOKENIZER_PRE_TOKENIZER, "ByteLevel", parse_byte_level, apply_byte_level, 0},
    {TOKENIZER_PRE_TOKENIZER, "Metaspace", tokenizer_parse_metaspace, apply_metaspace, 0},
    {TOKENIZER_PRE_TOKENIZER, "Split", parse_split, apply_split, 0},
    {TOKENIZER_PRE_TOKENIZER, "BertPreTokenizer", NULL, apply_bert, 0},
    {TOKENIZER_PRE_TOKENIZER, "Whitespace", parse_whitespace, apply_split, 0},
    {TOKENIZER_PRE_TOKENIZER, "WhitespaceSplit", parse_whitespace_split, apply_split, 0},
    {TOKENIZER_PRE_TOKENIZER, "Punctuation", parse_punctuation, apply_split, 0},
    {TOKENIZER_PRE_TOKENIZER, "Digits", parse_digits, apply_split, 0},
    {TOKENIZER_PRE_TOKENIZER, "CharDelimiterSplit", parse_delimiter, apply_split, 0},
    {TOKENIZER_PRE_TOKENIZER, "FixedLength", parse_fixed, apply_fixed, 0},
};
const tokenizer_rows tokenizer_pre_tokenizers = {rows, sizeof rows / sizeof *rows};

tri_status tokenizer_by_byte(tokenizer_reader *reader) {
    tri_tokenizer *t = reader->tokenizer;
    int count = t->part_count[TOKENIZER_PRE_TOKENIZER];
    const tokenizer_part *parts = t->parts[TOKENIZER_PRE_TOKENIZER];
    if (count == 0 || parts[count - 1].row->apply != apply_byte_level ||
        t->model != &tokenizer_bpe || t->prefix.size || t->suffix.size || t->has_byte_fallback)
        return TRI_OK;
    tri_index bytes = {0};
    for (int64_t id = 0; id < t->size; id++) {
        tokenizer_string from = t->tokens[id];
        if (!from.data) continue;
        char *to = tri_arena_alloc(reader->arena, from.size + 1);
        size_t size = 0;
        bool is_bytes = true;
        for (size_t at = 0; at < from.size && is_bytes;) {
            uint32_t code;
            at += (size_t)tokenizer_next(from.data + at, &code);
            int byte = tokenizer_character_byte(code);
            is_bytes = byte >= 0;
            to[size++] = (char)byte;
        }
        // A word has only characters of bytes, so that no other token can stand for it.
        if (!is_bytes || tokenizer_find(t, from.data, from.size) != id) continue;
        tri_index_put(reader->arena, &bytes, to, size, (int)id);
        if (size == 1) t->byte_ids[(unsigned char)to[0]] = id;
    }
    t->byte_index = bytes;
    t->is_by_byte = true;
    return TRI_OK;
}
