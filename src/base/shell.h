// Words of command lines that are printed so that people can paste them.
#ifndef TRIREME_BASE_SHELL_H
#define TRIREME_BASE_SHELL_H

#include "base/arena.h"

// Writes the word so that sh reads it back: unchanged if nothing in it is special for a shell, else
// in single quotes. The text lies in `arena`.
const char *tri_shell_word(tri_arena *arena, const char *word);

#endif
