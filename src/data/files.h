// Finds the files of a data set that consists of several: data.train and others are a file, a
// pattern, or a list of them.
#ifndef TRIREME_DATA_FILES_H
#define TRIREME_DATA_FILES_H

#include "data/kind.h"

typedef struct tri_data_files {
    const char **paths;
    int count, capacity;
} tri_data_files;

// Finds all files for which the patterns stand, in their order: {000..123} counts; {a,b}, *, ? and
// [ are those of a shell, sorted. A file of that very name is taken for itself, and data.path has
// no patterns beside the name of a file. Without data.train, data.path is the training file.
// `example`: what data.train may be, for messages. TRI_BAD_INPUT, TRI_NOT_FOUND: a pattern is
// malformed, or there is no such file.
tri_status tri_data_files_find(tri_dataset *dataset, const char *example, tri_data_files *out);

#endif
