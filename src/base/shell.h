// Words of command lines: printed so that people can paste them, and read as a shell reads them.
#ifndef TRIREME_BASE_SHELL_H
#define TRIREME_BASE_SHELL_H

#include "base/arena.h"

// Writes the word so that sh reads it back: unchanged if nothing in it is special for a shell, else
// in single quotes. The text lies in `arena`.
const char *tri_shell_word(tri_arena *arena, const char *word);
// Replaces a ~ at the beginning of a path, before a slash or alone, by $HOME, which a shell does
// not do in --flag=~/x. Returns `out`; `path` itself, if it begins with no ~, HOME is not set, or
// `out` is too small.
const char *tri_shell_home(const char *path, char *out, size_t out_bytes);

#endif
