// The normalizers of tokenizer.json, which change a text before it is split.
#include "format/tokenizer/parts.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

tokenizer_text *tokenizer_strings_other(tokenizer_strings *strings) {
    tokenizer_text *out = &strings->texts[strings->data == strings->texts[0].data];
    out->size = 0;
    return out;
}

void tokenizer_strings_swap(tokenizer_strings *strings, const tokenizer_text *text) {
    strings->data = text->data ? text->data : "";
}

tri_status tokenizer_map(tokenizer_mapper mapper, const tokenizer_part *part,
                         tri_token_encoder *encoder, tokenizer_strings *strings) {
    tokenizer_text *out = tokenizer_strings_other(strings);
    for (size_t i = 0; i < strings->spans.count; i++) {
        tokenizer_span *span = &strings->spans.items[i];
        size_t start = out->size;
        tokenizer_string text = {strings->data + span->start, span->size};
        TRI_TRY(mapper(part, encoder, text, i, out));
        *span = (tokenizer_span){start, out->size - start};
    }
    tokenizer_strings_swap(strings, out);
    return TRI_OK;
}

#define MAPPED(name)                                                                               \
    static tri_status apply_##name(const tokenizer_part *part, tri_token_encoder *encoder,         \
                                   tokenizer_strings *strings) {                                   \
        return tokenizer_map(name, part, encoder, strings);                                        \
    }

static bool is_ascii(tokenizer_string text) {
    for (size_t i = 0; i < text.size; i++)
        if ((unsigned char)text.data[i] >= 0x80) return false;
    return true;
}

static tri_status put_mapped(tokenizer_string text, int options, tokenizer_text *out) {
    utf8proc_uint8_t *result = NULL;
    utf8proc_ssize_t size =
        utf8proc_map((const utf8proc_uint8_t *)text.data, (utf8proc_ssize_t)text.size, &result,
                     (utf8proc_option_t)(UTF8PROC_STABLE | options));
    if (size < 0)
        return TRI_FAIL(TRI_NO_MEMORY, "a text cannot be normalized: %s", utf8proc_errmsg(size));
    tokenizer_text_append(out, (const char *)result, (size_t)size);
    free(result);
    return TRI_OK;
}

// Characters that utf8proc decomposes, but Hugging Face's library, which knows older ones, does
// not: they stay as they are. None composes with what is beside it.
static bool is_kept(uint32_t code, int options) {
    enum { FIRST = 0x32ff };
    static const struct {
        uint32_t first, last;
    } compatible[] = {{FIRST, FIRST},     {0xa7f2, 0xa7f4},   {0xab69, 0xab69},
                      {0x10781, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba},
                      {0x1e030, 0x1e06d}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9}};
    if (code < FIRST) return false;
    if (code == 0x11938) return !(options & UTF8PROC_COMPOSE);
    for (size_t i = 0; options & UTF8PROC_COMPAT && i < sizeof compatible / sizeof *compatible; i++)
        if (code >= compatible[i].first && code <= compatible[i].last) return true;
    return false;
}

static tri_status put_normal_form(tokenizer_string text, int options, tokenizer_text *out) {
    // U+11A7 composes with nothing, but utf8proc (2.8) drops it behind a syllable of Hangul.
    enum { ODD = 0x11a7 };
    size_t start = 0, length;
    if (is_ascii(text)) {
        tokenizer_text_append(out, text.data, text.size);
        return TRI_OK;
    }
    for (size_t at = 0; at < text.size; at += length) {
        uint32_t code;
        length = (size_t)tokenizer_next(text.data + at, &code);
        bool kept = is_kept(code, options);
        if (!kept && code != ODD) continue;
        if (at > start)
            TRI_TRY(put_mapped((tokenizer_string){text.data + start, at - start}, options, out));
        if (kept) tokenizer_text_append(out, text.data + at, length);
        start = kept ? at + length : at;
    }
    if (start == text.size) return TRI_OK;
    return put_mapped((tokenizer_string){text.data + start, text.size - start}, options, out);
}

static tri_status normal_form(const tokenizer_part *part, tri_token_encoder *encoder,
                              tokenizer_string text, size_t index, tokenizer_text *out) {
    return put_normal_form(text, part->row->option, out);
}
MAPPED(normal_form)

static void put_lower(uint32_t code, tokenizer_text *out) {
    enum { I_WITH_DOT = 0x130, DOT = 0x307 };
    if (code == I_WITH_DOT) {
        tokenizer_text_put(out, 'i');
        tokenizer_text_put(out, DOT);
    } else {
        tokenizer_text_put(out, tokenizer_lower(code));
    }
}

static tri_status lowercase(const tokenizer_part *part, tri_token_encoder *encoder,
                            tokenizer_string text, size_t index, tokenizer_text *out) {
    uint32_t code;
    for (size_t at = 0; at < text.size;) {
        at += (size_t)tokenizer_next(text.data + at, &code);
        put_lower(code, out);
    }
    return TRI_OK;
}
MAPPED(lowercase)

static tri_status strip_accents(const tokenizer_part *part, tri_token_encoder *encoder,
                                tokenizer_string text, size_t index, tokenizer_text *out) {
    uint32_t code;
    for (size_t at = 0; at < text.size;) {
        at += (size_t)tokenizer_next(text.data + at, &code);
        if (!tokenizer_is_mark(code)) tokenizer_text_put(out, code);
    }
    return TRI_OK;
}
MAPPED(strip_accents)

enum { STRIP_LEFT, STRIP_RIGHT };

static tri_status parse_strip(tokenizer_reader *reader, const json_t *json, tokenizer_part *out) {
    TRI_TRY(tokenizer_read_bool(reader, json, "strip_left", true, &out->flags[STRIP_LEFT]));
    return tokenizer_read_bool(reader, json, "strip_right", true, &out->flags[STRIP_RIGHT]);
}

static tri_status strip(const tokenizer_part *part, tri_token_encoder *encoder,
                        tokenizer_string text, size_t index, tokenizer_text *out) {
    size_t first = 0, end = 0;
    bool is_leading = part->flags[STRIP_LEFT];
    uint32_t code;
    for (size_t at = 0; at < text.size;) {
        size_t next = at + (size_t)tokenizer_next(text.data + at, &code);
        bool is_space = tokenizer_is_space(code);
        if (is_leading && is_space) first = next;
        is_leading &= is_space;
        if (!is_space || !part->flags[STRIP_RIGHT]) end = next;
        at = next;
    }
    if (end > first) tokenizer_text_append(out, text.data + first, end - first);
    return TRI_OK;
}
MAPPED(strip)

// The rules of nmt, of Google's neural machine translation: control characters are removed, and
// many characters become spaces.
static tri_status nmt(const tokenizer_part *part, tri_token_encoder *encoder, tokenizer_string text,
                      size_t index, tokenizer_text *out) {
    uint32_t c;
    for (size_t at = 0; at < text.size;) {
        at += (size_t)tokenizer_next(text.data + at, &c);
        if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
            c == 0x9f)
            continue;
        bool is_space = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                        (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                        c == 0xfeff || c == 0xfffd;
        tokenizer_text_put(out, is_space ? ' ' : c);
    }
    return TRI_OK;
}
MAPPED(nmt)

enum { BERT_CLEAN, BERT_CHINESE, BERT_STRIP_ACCENTS, BERT_LOWERCASE };

static tri_status parse_bert(tokenizer_reader *reader, const json_t *json, tokenizer_part *out) {
    bool *flags = out->flags;
    TRI_TRY(tokenizer_read_bool(reader, json, "clean_text", true, &flags[BERT_CLEAN]));
    TRI_TRY(tokenizer_read_bool(reader, json, "handle_chinese_chars", true, &flags[BERT_CHINESE]));
    TRI_TRY(tokenizer_read_bool(reader, json, "lowercase", true, &flags[BERT_LOWERCASE]));
    return tokenizer_read_bool(reader, json, "strip_accents", flags[BERT_LOWERCASE],
                               &flags[BERT_STRIP_ACCENTS]);
}

static bool is_chinese(uint32_t c) {
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

// Control characters, formats and private use.
static bool is_other(uint32_t code) {
    enum {
        OTHER = 1 << UTF8PROC_CATEGORY_CC | 1 << UTF8PROC_CATEGORY_CF | 1 << UTF8PROC_CATEGORY_CO
    };
    if (code < 0x80) return code < 0x20 || code == 0x7f;
    return OTHER >> tokenizer_old_category(code) & 1;
}

static void clean(const bool *flags, uint32_t code, tokenizer_text *out) {
    bool is_blank = code == '\t' || code == '\n' || code == '\r';
    if (flags[BERT_CLEAN] && !is_blank && (code == 0xfffd || is_other(code))) return;
    if (flags[BERT_CLEAN] && tokenizer_is_space(code)) code = ' ';
    if (flags[BERT_CHINESE] && is_chinese(code)) {
        tokenizer_text_put(out, ' ');
        tokenizer_text_put(out, code);
        tokenizer_text_put(out, ' ');
    } else {
        tokenizer_text_put(out, code);
    }
}

static tri_status bert(const tokenizer_part *part, tri_token_encoder *encoder,
                       tokenizer_string text, size_t index, tokenizer_text *out) {
    tokenizer_text *scratch = &encoder->scratch;
    uint32_t code;
    size_t start = out->size;
    for (size_t at = 0; at < text.size;) {
        at += (size_t)tokenizer_next(text.data + at, &code);
        clean(part->flags, code, out);
    }
    if (part->flags[BERT_STRIP_ACCENTS]) {
        scratch->size = 0;
        tokenizer_text_append(scratch, out->data + start, out->size - start);
        out->size = start;
        TRI_TRY(put_normal_form((tokenizer_string){scratch->data, scratch->size},
                                UTF8PROC_DECOMPOSE, out));
    }
    if (!part->flags[BERT_STRIP_ACCENTS] && !part->flags[BERT_LOWERCASE]) return TRI_OK;
    scratch->size = 0;
    tokenizer_text_append(scratch, out->data + start, out->size - start);
    out->size = start;
    for (size_t at = 0; at < scratch->size;) {
        at += (size_t)tokenizer_next(scratch->data + at, &code);
        if (part->flags[BERT_STRIP_ACCENTS] && code >= 0x80 &&
            tokenizer_old_category(code) == UTF8PROC_CATEGORY_MN)
            continue;
        if (part->flags[BERT_LOWERCASE])
            put_lower(code, out);
        else
            tokenizer_text_put(out, code);
    }
    return TRI_OK;
}
MAPPED(bert)

static tri_status parse_prepend(tokenizer_reader *reader, const json_t *json, tokenizer_part *out) {
    return tokenizer_read_string(reader, json, "prepend", &out->text);
}

static tri_status prepend(const tokenizer_part *part, tri_token_encoder *encoder,
                          tokenizer_string text, size_t index, tokenizer_text *out) {
    if (text.size) tokenizer_text_append(out, part->text.data, part->text.size);
    tokenizer_text_append(out, text.data, text.size);
    return TRI_OK;
}
MAPPED(prepend)

tri_status tokenizer_parse_replace(tokenizer_reader *reader, const json_t *json,
                                   tokenizer_part *out) {
    TRI_TRY(tokenizer_read_pattern(reader, json, &out->pattern));
    TRI_TRY(tokenizer_read_string(reader, json, "content", &out->text));
    return TRI_OK;
}

tri_status tokenizer_replace(const tokenizer_part *part, tri_token_encoder *encoder,
                             tokenizer_string text, size_t index, tokenizer_text *out) {
    size_t from = 0, done = 0;
    bool found = true;
    tokenizer_span match;
    while (found && done < text.size) {
        TRI_TRY(
            tokenizer_match(&part->pattern, encoder, text.data, text.size, &from, &match, &found));
        size_t until = found ? match.start : text.size;
        tokenizer_text_append(out, text.data + done, until - done);
        if (!found) break;
        tokenizer_text_append(out, part->text.data, part->text.size);
        done = match.start + match.size;
    }
    return TRI_OK;
}
static tri_status apply_replace(const tokenizer_part *part, tri_token_encoder *encoder,
                                tokenizer_strings *strings) {
    return tokenizer_map(tokenizer_replace, part, encoder, strings);
}

void tokenizer_map_bytes(tokenizer_string text, tokenizer_text *out) {
    for (size_t i = 0; i < text.size; i++)
        tokenizer_text_put(out, tokenizer_byte_character((unsigned char)text.data[i]));
}

static tri_status byte_level(const tokenizer_part *part, tri_token_encoder *encoder,
                             tokenizer_string text, size_t index, tokenizer_text *out) {
    tokenizer_map_bytes(text, out);
    return TRI_OK;
}
MAPPED(byte_level)

static tri_status parse_precompiled(tokenizer_reader *reader, const json_t *json,
                                    tokenizer_part *out) {
    tokenizer_string text;
    TRI_TRY(tokenizer_read_string(reader, json, "precompiled_charsmap", &text));
    tokenizer_charsmap *map = TRI_NEW(reader->arena, tokenizer_charsmap);
    size_t size;
    void *data = tokenizer_base64(reader->arena, text, &size);
    if (!data || !tokenizer_charsmap_read(reader->arena, data, size, map))
        return TOKENIZER_FAIL(reader, TRI_BAD_INPUT, "its precompiled_charsmap is not valid");
    out->charsmap = map;
    return TRI_OK;
}

// The end of the grapheme that begins at `at`.
static size_t grapheme_end(tokenizer_string text, size_t at) {
    uint32_t code, next;
    utf8proc_int32_t state = 0;
    size_t end = at + (size_t)tokenizer_next(text.data + at, &code);
    while (end < text.size) {
        int length = tokenizer_next(text.data + end, &next);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)code, (utf8proc_int32_t)next,
                                             &state))
            break;
        end += (size_t)length;
        code = next;
    }
    return end;
}

// Hugging Face's library applies the rules to graphemes of up to 5 bytes, whose shortest beginning
// that has a rule then decides alone, and to single characters of all others.
static tri_status precompiled(const tokenizer_part *part, tri_token_encoder *encoder,
                              tokenizer_string text, size_t index, tokenizer_text *out) {
    enum { MOST_BYTES = 5 };
    tokenizer_string to;
    for (size_t at = 0; at < text.size;) {
        size_t end = grapheme_end(text, at);
        if (end - at <= MOST_BYTES &&
            tokenizer_charsmap_find(part->charsmap, text.data + at, end - at, false, &to)) {
            tokenizer_text_append(out, to.data, to.size);
            at = end;
        }
        while (at < end) {
            size_t length = (size_t)tokenizer_length(text.data[at]);
            if (!tokenizer_charsmap_find(part->charsmap, text.data + at, length, false, &to))
                to = (tokenizer_string){text.data + at, length};
            tokenizer_text_append(out, to.data, to.size);
            at += length;
        }
    }
    return TRI_OK;
}
MAPPED(precompiled)

static const tokenizer_row rows[] = {
    {TOKENIZER_NORMALIZER, "NFC", NULL, apply_normal_form, UTF8PROC_COMPOSE},
    {TOKENIZER_NORMALIZER, "NFD", NULL, apply_normal_form, UTF8PROC_DECOMPOSE},
    {TOKENIZER_NORMALIZER, "NFKC", NULL, apply_normal_form, UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
    {TOKENIZER_NORMALIZER, "NFKD", NULL, apply_normal_form, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
    {TOKENIZER_NORMALIZER, "Lowercase", NULL, apply_lowercase, 0},
    {TOKENIZER_NORMALIZER, "StripAccents", NULL, apply_strip_accents, 0},
    {TOKENIZER_NORMALIZER, "Strip", parse_strip, apply_strip, 0},
    {TOKENIZER_NORMALIZER, "Nmt", NULL, apply_nmt, 0},
    {TOKENIZER_NORMALIZER, "BertNormalizer", parse_bert, apply_bert, 0},
    {TOKENIZER_NORMALIZER, "Prepend", parse_prepend, apply_prepend, 0},
    {TOKENIZER_NORMALIZER, "Replace", tokenizer_parse_replace, apply_replace, 0},
    {TOKENIZER_NORMALIZER, "ByteLevel", NULL, apply_byte_level, 0},
    {TOKENIZER_NORMALIZER, "Precompiled", parse_precompiled, apply_precompiled, 0},
};
const tokenizer_rows tokenizer_normalizers = {rows, sizeof rows / sizeof *rows};
