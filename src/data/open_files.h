// The open files of a data set that has many: the last few stay open, whatever thread has used
// them, because a parallel file system opens files slowly, and a process may have only so many
// open.
#ifndef TRIREME_DATA_OPEN_FILES_H
#define TRIREME_DATA_OPEN_FILES_H

#include "data/cache.h"

typedef struct tri_open_files tri_open_files;

// Keeps up to TRI_OPEN_FILES files open, fewer where the process may have only a few
// (RLIMIT_NOFILE). TRI_NO_MEMORY.
enum { TRI_OPEN_FILES = 64 };
tri_status tri_open_files_create(tri_open_files **out);
void tri_open_files_destroy(tri_open_files *files); // NULL allowed

// Opens file number `file` at `path`, or finds it among those that are open. No other thread closes
// *fd before tri_open_files_release. TRI_IO: the file is no longer in the state `state` (NULL: any
// will do).
tri_status tri_open_files_take(tri_open_files *files, int64_t file, const char *path,
                               const tri_file_state *state, int *fd);
void tri_open_files_release(tri_open_files *files, int fd);

#endif
