// Caches (caches.c): values that live from call to call. A row is what a cache keeps of a sequence.
#ifndef TRIREME_ENGINE_CACHES_H
#define TRIREME_ENGINE_CACHES_H

#include "engine/engine_internal.h"

// Where in memory.caches the rows of a micro-batch begin.
int64_t engine_cache_row(const tri_engine *engine, const tri_program *program, int cache,
                         int round);
// Checks the numbers of an input that are the spans of caches. TRI_BAD_INPUT: a sequence is longer
// than a cache; the message names it.
tri_status engine_check_spans(const tri_program *program, int input, const int64_t *spans,
                              const tri_step_round *round);

#endif
