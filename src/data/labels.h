// Checks all labels and token numbers when data are opened. The model uses them as array indices,
// so with a wrong one it would access invalid memory.
#ifndef TRIREME_DATA_LABELS_H
#define TRIREME_DATA_LABELS_H

#include "data/kind.h"

typedef struct tri_labels_source {
    const char *path; // path of the file, for messages
    tri_dtype dtype;
    int64_t count;      // number of elements of all samples
    int64_t per_sample; // number of elements of one sample
    // Copies elements first … first + count - 1, of type `dtype`, to `out`.
    tri_status (*read)(const void *context, int64_t first, int64_t count, void *out);
    const void *context;
} tri_labels_source;

// Raises field->classes to the largest number + 1, unless it is larger already. Sets
// field->has_ignored if some labels are -100. TRI_BAD_INPUT: a number is negative, or too large for
// any class or token; the message names its sample.
tri_status tri_labels_scan(tri_stored_field *field, const tri_labels_source *source);

#endif
