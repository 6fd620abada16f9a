// Binary search in sorted lists.
#ifndef TRIREME_BASE_SEARCH_H
#define TRIREME_BASE_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

// Finds the first of the indices 0 to count - 1 whose element is not below `key`, so that
// is_below(context, index, key) is false; `count`: there is none. The elements must be sorted:
// is_below is true for all indices before the result, and false from there on.
int tri_lower_bound(int count, bool (*is_below)(const void *context, int index, int64_t key),
                    const void *context, int64_t key);

#endif
