// Words of command lines that are printed for people to paste.
#ifndef TRIREME_BASE_SHELL_H
#define TRIREME_BASE_SHELL_H

#include "base/arena.h"

// The word as sh reads it back: unchanged where nothing in it means something to a shell, else in
// single quotes. Lies in `arena`.
const char *tri_shell_word(tri_arena *arena, const char *word);

#endif
