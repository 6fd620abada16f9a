// Recognises the format of a data file by its content, so that the message about a wrong file says
// what the file is.
#ifndef TRIREME_DATA_CONTENT_H
#define TRIREME_DATA_CONTENT_H

#include "base/status.h"

// TRI_BAD_INPUT if `path` is a folder, or a file of a known format that data sets of `kind`
// (data.name) do not read; the message says what the file is and what to do. TRI_OK for all others,
// also if the file cannot be read: the kind's own reader reports that.
tri_status tri_content_check(const char *path, const char *kind);

#endif
