// Counts and names damaged samples: see left_out.h.
#include "data/left_out.h"

#include "base/log.h"
#include "base/quantity.h"
#include "base/status.h"

#include <stdlib.h>

enum { MOST_NAMED = 10 };

// Whether the sample is left out for the first time.
static bool is_new(tri_left_out *left_out, int64_t samples, int64_t sample) {
    _Atomic uint8_t *seen = atomic_load(&left_out->seen), *other = NULL;
    if (!seen) {
        seen = calloc((size_t)(samples + 7) / 8, 1);
        if (!seen) return true;
        if (!atomic_compare_exchange_strong(&left_out->seen, &other, seen)) {
            free(seen);
            seen = other; // another thread was first
        }
    }
    uint8_t bit = (uint8_t)(1 << sample % 8);
    return !(atomic_fetch_or(&seen[sample / 8], bit) & bit);
}

void tri_left_out_add(tri_left_out *left_out, int64_t samples, int64_t sample) {
    if (!is_new(left_out, samples, sample)) return;
    int64_t before = atomic_fetch_add(&left_out->count, 1);
    if (before < MOST_NAMED)
        tri_log_line(TRI_LOG_WARNING, "%s: left out%s", tri_error_message(),
                     before + 1 == MOST_NAMED ? "; further ones are only counted" : "");
}

bool tri_left_out_has(const tri_left_out *left_out, int64_t sample) {
    _Atomic uint8_t *seen = atomic_load(&left_out->seen);
    return seen && atomic_load(&seen[sample / 8]) >> sample % 8 & 1;
}

void tri_left_out_end(tri_left_out *left_out, const char *split) {
    int64_t count = atomic_load(&left_out->count);
    free(atomic_load(&left_out->seen));
    if (count > MOST_NAMED)
        tri_log_line(TRI_LOG_WARNING, "data: %s of the %s data left out (data.on_error)",
                     tri_counted(count, "damaged sample"), split);
}
