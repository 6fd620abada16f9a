// Labels and token numbers index arrays of the model: all of them are looked at when data are
// opened.
#ifndef TRIREME_DATA_LABELS_H
#define TRIREME_DATA_LABELS_H

#include "data/kind.h"

typedef struct tri_labels_source {
    const char *path, *name; // of the file and the field, for messages
    tri_dtype dtype;
    int64_t count;      // elements in all
    int64_t per_sample; // elements
    // `count` elements from `first` on, as stored.
    tri_status (*read)(const void *context, int64_t first, int64_t count, void *out);
    const void *context;
} tri_labels_source;

// Raises dataset->classes to one more than the largest. TRI_BAD_INPUT names the sample of one that
// is no class.
tri_status tri_labels_scan(tri_dataset *dataset, const tri_labels_source *source);

#endif
