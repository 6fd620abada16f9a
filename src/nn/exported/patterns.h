// Groups of operations that one operation computes, found in an exported graph by a table of
// patterns (patterns.c). Equal networks, written with the function or without it, then train at the
// same speed.
#ifndef TRIREME_NN_EXPORTED_PATTERNS_H
#define TRIREME_NN_EXPORTED_PATTERNS_H

#include "nn/exported/build.h"

// Replaces what the table finds. It comes before blocks are found, and before anything is known to
// be live.
void exported_find_patterns(nn_exported *network);

#endif
