// The decoders of tokenizer.json, which make text of tokens.
#include "format/tokenizer/parts.h"

#include <ctype.h>
#include <string.h>

static tri_status apply_replace(const tokenizer_part *part, tri_token_encoder *encoder,
                                tokenizer_strings *strings) {
    return tokenizer_map(tokenizer_replace, part, encoder, strings);
}

// Makes one string of all: `data` of all tokens, without what lies between them.
static void join(tokenizer_strings *strings, tokenizer_text *out) {
    for (size_t i = 0; i < strings->spans.count; i++)
        tokenizer_text_append(out, strings->data + strings->spans.items[i].start,
                              strings->spans.items[i].size);
}

static void become_one(tokenizer_strings *strings, const tokenizer_text *text) {
    strings->spans.count = 0;
    tokenizer_spans_push(&strings->spans, 0, text->size);
    tokenizer_strings_swap(strings, text);
}

static tri_status apply_fuse(const tokenizer_part *part, tri_token_encoder *encoder,
                             tokenizer_strings *strings) {
    tokenizer_text *out = tokenizer_strings_other(strings);
    join(strings, out);
    become_one(strings, out);
    return TRI_OK;
}

// A token whose characters all stand for bytes becomes these; another one stays as it is.
static void put_bytes(tokenizer_string token, tokenizer_text *out) {
    size_t start = out->size;
    for (size_t at = 0; at < token.size;) {
        uint32_t code;
        at += (size_t)tokenizer_next(token.data + at, &code);
        int byte = tokenizer_character_byte(code);
        if (byte < 0) {
            out->size = start;
            tokenizer_text_append(out, token.data, token.size);
            return;
        }
        char c = (char)byte;
        tokenizer_text_append(out, &c, 1);
    }
}

static tri_status apply_byte_level(const tokenizer_part *part, tri_token_encoder *encoder,
                                   tokenizer_strings *strings) {
    tokenizer_text *bytes = &encoder->scratch, *out = tokenizer_strings_other(strings);
    bytes->size = 0;
    for (size_t i = 0; i < strings->spans.count; i++) {
        tokenizer_span span = strings->spans.items[i];
        put_bytes((tokenizer_string){strings->data + span.start, span.size}, bytes);
    }
    tokenizer_repair(out, bytes->data, bytes->size);
    become_one(strings, out);
    return TRI_OK;
}

// The byte of a token such as <0x0A>; -1: it is none.
static int byte_of(tokenizer_string token) {
    if (token.size != 6 || memcmp(token.data, "<0x", 3) != 0 || token.data[5] != '>') return -1;
    int byte = 0;
    for (int i = 3; i < 5; i++) {
        char c = token.data[i];
        if (!isxdigit((unsigned char)c)) return -1;
        byte = 16 * byte + (isdigit((unsigned char)c) ? c - '0' : (c | 32) - 'a' + 10);
    }
    return byte;
}

// Bytes that follow each other become one string; if they are not UTF-8, each becomes U+FFFD.
static void put_run(tokenizer_text *bytes, tokenizer_text *out, tokenizer_spans *spans) {
    size_t start = out->size;
    if (bytes->size == 0) return;
    if (tokenizer_valid_bytes(bytes->data, bytes->size) == bytes->size)
        tokenizer_text_append(out, bytes->data, bytes->size);
    else
        for (size_t i = 0; i < bytes->size; i++) tokenizer_text_put(out, 0xfffd);
    tokenizer_spans_push(spans, start, out->size - start);
    bytes->size = 0;
}

static tri_status apply_byte_fallback(const tokenizer_part *part, tri_token_encoder *encoder,
                                      tokenizer_strings *strings) {
    tokenizer_text *bytes = &encoder->scratch, *out = tokenizer_strings_other(strings);
    tokenizer_spans *spans = &strings->spare, all;
    bytes->size = 0;
    spans->count = 0;
    for (size_t i = 0; i < strings->spans.count; i++) {
        tokenizer_string token = {strings->data + strings->spans.items[i].start,
                                  strings->spans.items[i].size};
        int byte = byte_of(token);
        if (byte >= 0) {
            char c = (char)byte;
            tokenizer_text_append(bytes, &c, 1);
            continue;
        }
        put_run(bytes, out, spans);
        size_t start = out->size;
        tokenizer_text_append(out, token.data, token.size);
        tokenizer_spans_push(spans, start, token.size);
    }
    put_run(bytes, out, spans);
    all = strings->spans;
    strings->spans = *spans;
    *spans = all;
    tokenizer_strings_swap(strings, out);
    return TRI_OK;
}

// The texts that "cleanup" replaces, one after the other.
static const struct {
    const char *from, *to;
} cleanups[] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

static void clean_up(tokenizer_text *text, size_t start) {
    for (size_t i = 0; i < sizeof cleanups / sizeof *cleanups && text->size > start; i++) {
        size_t from = strlen(cleanups[i].from), to = strlen(cleanups[i].to), size = start;
        for (size_t at = start; at < text->size;) {
            bool is_here =
                text->size - at >= from && !memcmp(text->data + at, cleanups[i].from, from);
            if (is_here)
                memcpy(text->data + size, cleanups[i].to, to);
            else
                text->data[size] = text->data[at];
            size += is_here ? to : 1;
            at += is_here ? from : 1;
        }
        text->size = size;
    }
}

enum { CLEANS_UP };

static tri_status parse_wordpiece(tokenizer_reader *reader, const json_t *json,
                                  tokenizer_part *out) {
    TRI_TRY(tokenizer_read_string(reader, json, "prefix", &out->text));
    if (!out->text.data) out->text = (tokenizer_string){"##", 2};
    return tokenizer_read_bool(reader, json, "cleanup", true, &out->flags[CLEANS_UP]);
}

static tri_status wordpiece(const tokenizer_part *part, tri_token_encoder *encoder,
                            tokenizer_string text, size_t index, tokenizer_text *out) {
    size_t start = out->size, prefix = part->text.size;
    bool continues = text.size >= prefix && !memcmp(text.data, part->text.data, prefix);
    if (index > 0 && !continues) tokenizer_text_append(out, " ", 1);
    size_t skipped = index > 0 && continues ? prefix : 0;
    tokenizer_text_append(out, text.data + skipped, text.size - skipped);
    if (part->flags[CLEANS_UP]) clean_up(out, start);
    return TRI_OK;
}

static tri_status metaspace(const tokenizer_part *part, tri_token_encoder *encoder,
                            tokenizer_string text, size_t index, tokenizer_text *out) {
    const tokenizer_string mark = part->text;
    bool drops = index == 0 && (part->flags[0] || part->flags[1]); // as it prepends
    for (size_t at = 0; at < text.size;) {
        size_t length = (size_t)tokenizer_length(text.data[at]);
        bool is_mark = length == mark.size && !memcmp(text.data + at, mark.data, length);
        if (!is_mark)
            tokenizer_text_append(out, text.data + at, length);
        else if (!drops)
            tokenizer_text_append(out, " ", 1);
        at += length;
    }
    return TRI_OK;
}

static tri_status parse_bpe(tokenizer_reader *reader, const json_t *json, tokenizer_part *out) {
    return tokenizer_read_string(reader, json, "suffix", &out->text);
}

static tri_status bpe(const tokenizer_part *part, tri_token_encoder *encoder, tokenizer_string text,
                      size_t index, tokenizer_text *out) {
    const tokenizer_string suffix = part->text;
    bool is_last = index + 1 == encoder->strings.spans.count;
    for (size_t at = 0; at < text.size;) {
        const char *found =
            suffix.size ? memmem(text.data + at, text.size - at, suffix.data, suffix.size) : NULL;
        size_t until = found ? (size_t)(found - text.data) : text.size;
        tokenizer_text_append(out, text.data + at, until - at);
        if (found && !is_last) tokenizer_text_append(out, " ", 1);
        at = until + (found ? suffix.size : 0);
    }
    return TRI_OK;
}

static tri_status parse_strip(tokenizer_reader *reader, const json_t *json, tokenizer_part *out) {
    TRI_TRY(tokenizer_read_string(reader, json, "content", &out->text));
    TRI_TRY(tokenizer_read_int(reader, json, "start", 0, &out->numbers[0]));
    return tokenizer_read_int(reader, json, "stop", 0, &out->numbers[1]);
}

static tri_status strip(const tokenizer_part *part, tri_token_encoder *encoder,
                        tokenizer_string text, size_t index, tokenizer_text *out) {
    const tokenizer_string c = part->text;
    size_t first = 0, end = text.size;
    for (int64_t i = 0; i < part->numbers[0] && c.size; i++) {
        if (end - first < c.size || memcmp(text.data + first, c.data, c.size) != 0) break;
        first += c.size;
    }
    for (int64_t i = 0; i < part->numbers[1] && c.size; i++) {
        if (end < first + c.size || memcmp(text.data + end - c.size, c.data, c.size) != 0) break;
        end -= c.size;
    }
    tokenizer_text_append(out, text.data + first, end - first);
    return TRI_OK;
}

#define MAPPED(name)                                                                               \
    static tri_status apply_##name(const tokenizer_part *part, tri_token_encoder *encoder,         \
                                   tokenizer_strings *strings) {                                   \
        return tokenizer_map(name, part, encoder, strings);                                        \
    }
MAPPED(wordpiece)
MAPPED(metaspace)
MAPPED(bpe)
MAPPED(strip)

static const tokenizer_row rows[] = {
    {TOKENIZER_DECODER, "ByteLevel", NULL, apply_byte_level, 0},
    {TOKENIZER_DECODER, "ByteFallback", NULL, apply_byte_fallback, 0},
    {TOKENIZER_DECODER, "Replace", tokenizer_parse_replace, apply_replace, 0},
    {TOKENIZER_DECODER, "Fuse", NULL, apply_fuse, 0},
    {TOKENIZER_DECODER, "Strip", parse_strip, apply_strip, 0},
    {TOKENIZER_DECODER, "WordPiece", parse_wordpiece, apply_wordpiece, 0},
    {TOKENIZER_DECODER, "Metaspace", tokenizer_parse_metaspace, apply_metaspace, 0},
    {TOKENIZER_DECODER, "BPEDecoder", parse_bpe, apply_bpe, 0},
};
const tokenizer_rows tokenizer_decoders = {rows, sizeof rows / sizeof *rows};
