// Quotes words for the shell sh, so that a printed command can be pasted, and expands ~.
#include "base/shell.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// True if the word needs no quotes. The characters ~ and # are special only at the start of a word,
// but are quoted everywhere, which is simpler and does no harm.
static bool is_plain(const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./=,:+%@";
    return *word && strspn(word, plain) == strlen(word);
}

const char *tri_shell_word(tri_arena *arena, const char *word) {
    if (is_plain(word)) return tri_arena_strdup(arena, word);
    size_t quotes = 0;
    for (const char *c = word; *c; c++) quotes += *c == '\'';
    char *out = tri_arena_alloc(arena, strlen(word) + 3 * quotes + 3), *to = out;
    *to++ = '\'';
    for (const char *c = word; *c; c++) {
        if (*c == '\'') { // becomes '\'': ends the quotes, adds \', and begins quotes again
            memcpy(to, "'\\'", 3);
            to += 3;
        }
        *to++ = *c;
    }
    *to++ = '\'';
    *to = 0;
    return out;
}

const char *tri_shell_home(const char *path, char *out, size_t out_bytes) {
    const char *home = getenv("HOME");
    if (path[0] != '~' || (path[1] && path[1] != '/') || !home) return path;
    int length = snprintf(out, out_bytes, "%s%s", home, path + 1);
    return length >= 0 && (size_t)length < out_bytes ? out : path;
}
