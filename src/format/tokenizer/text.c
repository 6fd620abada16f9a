// Text that grows, UTF-8, and classes of characters.
#include "format/tokenizer/text.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { LEAST_CAPACITY = 256 };

bool tokenizer_text_reserve(tokenizer_text *text, size_t more) {
    if (text->capacity - text->size >= more) return true;
    size_t capacity = text->capacity ? text->capacity : LEAST_CAPACITY;
    while (capacity - text->size < more) capacity *= 2;
    char *grown = realloc(text->data, capacity);
    if (!grown) {
        text->failed = true;
        return false;
    }
    text->data = grown;
    text->capacity = capacity;
    return true;
}

void tokenizer_text_append(tokenizer_text *text, const char *data, size_t size) {
    if (size == 0 || !tokenizer_text_reserve(text, size)) return;
    memcpy(text->data + text->size, data, size);
    text->size += size;
}

void tokenizer_text_put(tokenizer_text *text, uint32_t code) {
    if (!tokenizer_text_reserve(text, 4)) return;
    utf8proc_uint8_t *at = (utf8proc_uint8_t *)text->data + text->size;
    text->size += (size_t)utf8proc_encode_char((utf8proc_int32_t)code, at);
}

void tokenizer_text_free(tokenizer_text *text) {
    free(text->data);
    *text = (tokenizer_text){0};
}

int tokenizer_decode(const char *at, const char *end, uint32_t *code) {
    const unsigned char *b = (const unsigned char *)at;
    if (b[0] < 0x80) {
        *code = b[0];
        return 1;
    }
    int length = b[0] >= 0xc2 && b[0] < 0xe0   ? 2
                 : b[0] >= 0xe0 && b[0] < 0xf0 ? 3
                 : b[0] >= 0xf0 && b[0] < 0xf5 ? 4
                                               : 0;
    if (length == 0) return -1;
    // The range of the second byte excludes what is too long, surrogates, and what is too large.
    unsigned char least = b[0] == 0xe0 ? 0xa0 : b[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char most = b[0] == 0xed ? 0x9f : b[0] == 0xf4 ? 0x8f : 0xbf;
    for (int i = 1; i < length; i++) {
        if (at + i >= end || b[i] < least || b[i] > most) return -i;
        least = 0x80;
        most = 0xbf;
    }
    tokenizer_next(at, code);
    return length;
}

size_t tokenizer_valid_bytes(const char *data, size_t size) {
    const char *at = data, *end = data + size;
    uint32_t code;
    while (at < end) {
        uint64_t eight;
        if (end - at >= 8) {
            memcpy(&eight, at, sizeof eight);
            if (!(eight & 0x8080808080808080u)) {
                at += 8;
                continue;
            }
        }
        int length = tokenizer_decode(at, end, &code);
        if (length < 0) break;
        at += length;
    }
    return (size_t)(at - data);
}

void tokenizer_repair(tokenizer_text *out, const char *data, size_t size) {
    enum { REPLACEMENT = 0xfffd };
    for (size_t done = 0; done < size;) {
        size_t valid = tokenizer_valid_bytes(data + done, size - done);
        uint32_t code;
        tokenizer_text_append(out, data + done, valid);
        done += valid;
        if (done == size) return;
        done += (size_t)-tokenizer_decode(data + done, data + size, &code);
        tokenizer_text_put(out, REPLACEMENT);
    }
}

bool tokenizer_is_space(uint32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static bool is_category(uint32_t code, unsigned categories) {
    return categories >> tokenizer_category(code) & 1;
}

bool tokenizer_is_punctuation(uint32_t code) {
    enum {
        PUNCTUATION = 1 << UTF8PROC_CATEGORY_PC | 1 << UTF8PROC_CATEGORY_PD |
                      1 << UTF8PROC_CATEGORY_PS | 1 << UTF8PROC_CATEGORY_PE |
                      1 << UTF8PROC_CATEGORY_PI | 1 << UTF8PROC_CATEGORY_PF |
                      1 << UTF8PROC_CATEGORY_PO
    };
    if (code < 0x80)
        return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') ||
               (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
    return PUNCTUATION >> tokenizer_old_category(code) & 1;
}

bool tokenizer_is_number(uint32_t code) {
    enum {
        NUMBER = 1 << UTF8PROC_CATEGORY_ND | 1 << UTF8PROC_CATEGORY_NL | 1 << UTF8PROC_CATEGORY_NO
    };
    if (code < 0x80) return code >= '0' && code <= '9';
    return is_category(code, NUMBER);
}

bool tokenizer_is_word(uint32_t code) {
    enum {
        WORD = 1 << UTF8PROC_CATEGORY_LU | 1 << UTF8PROC_CATEGORY_LL | 1 << UTF8PROC_CATEGORY_LT |
               1 << UTF8PROC_CATEGORY_LM | 1 << UTF8PROC_CATEGORY_LO | 1 << UTF8PROC_CATEGORY_MN |
               1 << UTF8PROC_CATEGORY_MC | 1 << UTF8PROC_CATEGORY_ME | 1 << UTF8PROC_CATEGORY_ND |
               1 << UTF8PROC_CATEGORY_NL | 1 << UTF8PROC_CATEGORY_PC
    };
    if (is_category(code, WORD)) return true;
    // Two characters that join others, and letters in circles and squares, which are alphabetic.
    return code == 0x200c || code == 0x200d || (code >= 0x24b6 && code <= 0x24e9) ||
           (code >= 0x1f130 && code <= 0x1f149) || (code >= 0x1f150 && code <= 0x1f169) ||
           (code >= 0x1f170 && code <= 0x1f189);
}
