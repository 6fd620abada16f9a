// Sequences whose tokens come in several calls, such as those of a text that is generated: where
// the tokens of one call stand. The struct is plain, so that the host and kernels of a GPU use the
// same code.
#ifndef TRIREME_OPS_SPAN_H
#define TRIREME_OPS_SPAN_H

#include "base/kernel_inline.h"

#include <stdint.h>

typedef struct tri_span {
    int64_t first; // position of the call's first token: how many tokens earlier calls had
    int64_t count; // how many of the call's tokens are the sequence's; padding follows them
} tri_span;

// The span of sample n. The engine refuses spans that do not fit a cache of `length` tokens; what
// lies outside is left out here, so that no kernel leaves the cache whatever the numbers are.
TRI_KERNEL_INLINE tri_span tri_span_of(const int64_t *spans, int64_t n, int64_t tokens,
                                       int64_t length) {
    tri_span s = {spans[2 * n], spans[2 * n + 1]};
    s.first = s.first < 0 ? 0 : s.first > length ? length : s.first;
    s.count = s.count < 0 ? 0 : s.count > tokens ? tokens : s.count;
    s.count = s.count > length - s.first ? length - s.first : s.count;
    return s;
}

// The first key that the query at `position` sees, if it sees `window` keys; 0: all up to its own.
TRI_KERNEL_INLINE int64_t tri_span_first_key(int64_t position, int64_t window) {
    return window > 0 && position >= window ? position + 1 - window : 0;
}

#endif
