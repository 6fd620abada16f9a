// Lists the samples of one tar archive: files that follow each other and share a key, the path up
// to the first dot of the file's name. The rest of the name, in any case, is the field: jpg, jpeg,
// png, webp, bmp, ppm and pgm hold the image, cls the class as a number; other fields are not read.
// (https://github.com/webdataset/webdataset, "The WebDataset Format")
#ifndef TRIREME_DATA_WEB_LIST_H
#define TRIREME_DATA_WEB_LIST_H

#include "base/arena.h"
#include "format/tar_index.h"

// What one archive has. The memory is that of `arena`.
typedef struct web_list {
    tri_arena *arena;
    const char *path; // of the archive, for messages
    tri_tar_sample *samples;
    int count, capacity;
    const char *first_key; // of its first sample
    bool has_labels;
    int64_t classes;
    int64_t others; // files that belong to no sample
    const char *first_other;
} web_list;

// Lists the archive `fd` of `bytes` bytes. The caller has set `arena` and `path`; all else is zero.
// TRI_BAD_INPUT: a sample has no image, two of them, or no class where others have one.
tri_status web_list_archive(web_list *list, int fd, int64_t bytes);
// Fails because a sample has a class and those before it have none, or the reverse.
tri_status web_list_fail_label(const char *path, const char *key, bool has_label);

#endif
