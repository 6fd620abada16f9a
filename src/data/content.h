// Recognises the format of a data file by its content, so that the message about a wrong file tells
// what the file is.
#ifndef TRIREME_DATA_CONTENT_H
#define TRIREME_DATA_CONTENT_H

#include "base/status.h"

// Checks that data sets of `kind` (data.name) can read a file. TRI_BAD_INPUT: `path` is a folder or
// a file of another known format; the message tells what the file is and what to do. TRI_OK for all
// other files, also if the file cannot be read, because the kind's own reader reports that.
tri_status tri_content_check(const char *path, const char *kind);

#endif
