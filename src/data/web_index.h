// Finds the samples of all archives of a data set: from an index that an earlier start has kept, or
// by listing the archives, after which the index is kept. Compressed archives are unpacked, once,
// into files that are kept beside the index.
#ifndef TRIREME_DATA_WEB_INDEX_H
#define TRIREME_DATA_WEB_INDEX_H

#include "data/cache.h"
#include "format/tar_index.h"

// Where the samples of an archive are read.
typedef struct web_archive {
    const char *path; // of the archive, or of its unpacked copy
    // Of the archive; NULL: it is a copy, which another process may have made again, as it was.
    const tri_file_state *state;
    int64_t archive_bytes; // how many bytes of it are the archive
} web_archive;

typedef struct web_index {
    tri_tar_index samples;
    web_archive *archives;
} web_index;

// `cache` is data.cache. The index and the copies are made by one process, whose threads list
// several archives at a time; others wait. Where no index can be kept, each process lists the
// archives, and holds the index in memory. *out is to be closed even if this fails.
// TRI_CORRUPT, TRI_BAD_INPUT: an archive is damaged, or has no samples as they have to be.
tri_status web_index_open(tri_arena *arena, const char *cache, const char *const *paths, int count,
                          web_index *out);

#endif
