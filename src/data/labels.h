// Checks all labels and token numbers when data are opened: the model uses them as array indices,
// so that a wrong one would read or write anywhere.
#ifndef TRIREME_DATA_LABELS_H
#define TRIREME_DATA_LABELS_H

#include "data/kind.h"

typedef struct tri_labels_source {
    const char *path; // of the file, for messages
    tri_dtype dtype;
    int64_t count;      // elements of all samples
    int64_t per_sample; // elements of one sample
    // Copies elements first … first + count - 1 to `out`, of type `dtype`.
    tri_status (*read)(const void *context, int64_t first, int64_t count, void *out);
    const void *context;
} tri_labels_source;

// Raises field->classes to one more than the largest number, and notes whether some are -100.
// TRI_BAD_INPUT if a number is no class or token; the message names its sample.
tri_status tri_labels_scan(tri_stored_field *field, const tri_labels_source *source);

#endif
