// Finds the parts of a message one after another.
#include "support/message.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static bool is_in_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

// Whether the text at `at`, which is the part, begins or ends in the middle of a word or number.
static bool is_cut(const char *message, const char *at, const char *part, size_t length) {
    bool before = at > message && is_in_word(part[0]) && is_in_word(at[-1]);
    bool after = is_in_word(part[length - 1]) && is_in_word(at[length]);
    return before || after ||
           (after = isdigit((unsigned char)part[length - 1]) && at[length] == '.' &&
                    isdigit((unsigned char)at[length + 1]));
}

// Returns the first part that is missing, up to its '|'; NULL: all are there.
static const char *missing_part(const char *message, const char *parts) {
    const char *from = message;
    for (const char *part = parts; *part;) {
        size_t length = strcspn(part, "|");
        const char *at = from;
        for (; *at && (strncmp(at, part, length) != 0 || is_cut(message, at, part, length)); at++) {
        }
        if (!*at) return part;
        from = at + length;
        part += length + (part[length] == '|');
    }
    return NULL;
}

bool message_has(const char *message, const char *parts) { return !missing_part(message, parts); }

void message_check(const char *message, const char *parts) {
    const char *part = missing_part(message, parts);
    if (part)
        fail_msg("no '%.*s' where it should be in: %s", (int)strcspn(part, "|"), part, message);
}
