// Binary search in sorted lists.
#ifndef TRIREME_BASE_SEARCH_H
#define TRIREME_BASE_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

// Finds the first index from 0 to count - 1 for which `is_below` is false; `count`: there is none.
// `is_below` has to be true for all indices before it and false from there on.
int tri_lower_bound(int count, bool (*is_below)(const void *context, int index, int64_t key),
                    const void *context, int64_t key);

#endif
