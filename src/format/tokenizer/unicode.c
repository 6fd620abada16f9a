// General categories of characters: the library utf8proc's, and what Hugging Face's library says
// instead.
#include "base/search.h"
#include "format/tokenizer/text.h"
#include "format/tokenizer/unicode_tables.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

enum { NEWER_COUNT = sizeof newer / sizeof *newer };

static bool is_newer_below(const void *context, int index, int64_t code) {
    return ((const tokenizer_newer *)context)[index].last < code;
}

static bool is_range_below(const void *context, int index, int64_t code) {
    return ((const tokenizer_range *)context)[index].last < code;
}

int tokenizer_category(uint32_t code) {
    int category = utf8proc_category((utf8proc_int32_t)code);
    if (category != UTF8PROC_CATEGORY_CN) return category;
    int at = tri_lower_bound(NEWER_COUNT, is_newer_below, newer, code);
    return at < NEWER_COUNT && newer[at].first <= code ? newer[at].category : category;
}

static bool is_in(const tokenizer_range *ranges, size_t size, uint32_t code) {
    int count = (int)(size / sizeof *ranges);
    int at = tri_lower_bound(count, is_range_below, ranges, code);
    return at < count && ranges[at].first <= code;
}

int tokenizer_old_category(uint32_t code) {
    if (code == 0x166d || code == 0x111c9) return UTF8PROC_CATEGORY_PO; // later versions moved
    if (code == 0x1734) return UTF8PROC_CATEGORY_MN;                    // these to others
    return is_in(unknown, sizeof unknown, code) ? UTF8PROC_CATEGORY_CN : tokenizer_category(code);
}

bool tokenizer_is_mark(uint32_t code) {
    enum {
        MARK = 1 << UTF8PROC_CATEGORY_MN | 1 << UTF8PROC_CATEGORY_MC | 1 << UTF8PROC_CATEGORY_ME
    };
    return code >= 0x80 && MARK >> tokenizer_category(code) & 1 &&
           !is_in(unknown_marks, sizeof unknown_marks, code);
}

void tokenizer_put_newer(const char *category, size_t size, tokenizer_text *out) {
    for (int i = 0; i < NEWER_COUNT; i++) {
        char range[32];
        // In the order of utf8proc's numbers.
        static const char *const names[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc",
                                            "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
                                            "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So"};
        const char *name = names[newer[i].category];
        if (size == 0 || size > 2 || memcmp(name, category, size) != 0) continue;
        int length =
            snprintf(range, sizeof range, "\\x{%x}-\\x{%x}", newer[i].first, newer[i].last);
        tokenizer_text_append(out, range, (size_t)length);
    }
}

uint32_t tokenizer_lower(uint32_t code) {
    static const struct {
        uint32_t first, last, to;
    } rows[] = {
        {0x1c89, 0x1c89, 0x1c8a},    {0xa7cb, 0xa7cb, 0x264},  {0xa7cc, 0xa7cc, 0xa7cd},
        {0xa7ce, 0xa7ce, 0xa7cf},    {0xa7d2, 0xa7d2, 0xa7d3}, {0xa7d4, 0xa7d4, 0xa7d5},
        {0xa7da, 0xa7da, 0xa7db},    {0xa7dc, 0xa7dc, 0x19b},  {0x10d50, 0x10d65, 0x10d70},
        {0x16ea0, 0x16eb8, 0x16ebb},
    };
    for (size_t i = 0; code >= rows[0].first && i < sizeof rows / sizeof *rows; i++)
        if (code >= rows[i].first && code <= rows[i].last) return rows[i].to + code - rows[i].first;
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
}
