// The sources of the kind "mixture" (data.mix): which settings each has, and which it takes
// from the section `data`.
#ifndef TRIREME_DATA_SOURCES_H
#define TRIREME_DATA_SOURCES_H

#include "data/dataset.h"

enum { TRI_MAX_SOURCES = 64 };

typedef struct tri_data_source {
    tri_data_options options; // complete: what belongs to all sources is in them
    double weight;            // 0: in proportion to its samples
} tri_data_source;

// Reads data.mix of `options`, into `arena`. TRI_BAD_INPUT: a source has a setting that belongs
// to the section, or that has no effect in its kind, or the section one that belongs to sources.
tri_status tri_data_sources_read(tri_arena *arena, const tri_data_options *options,
                                 tri_data_source **out, int *count);

// True if `is` is true of the options of a source. False if data.mix cannot be read, which
// opening then refuses.
bool tri_data_sources_any(const tri_data_options *options,
                          bool (*is)(const tri_data_options *source, tri_data_split split),
                          tri_data_split split);

#endif
