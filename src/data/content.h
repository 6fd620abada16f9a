// What kind of file somebody has given, known by its content, so that a wrong one is named together
// with what to do.
#ifndef TRIREME_DATA_CONTENT_H
#define TRIREME_DATA_CONTENT_H

#include "base/status.h"

// TRI_BAD_INPUT where `path` is a folder or a file that data sets of `kind` (data.name) do not
// read: one line that says what it is and what to do with it. TRI_OK for others, and where nothing
// can be read: the kind's own reader says what is wrong with those.
tri_status tri_content_check(const char *path, const char *kind);

#endif
