// Files of lines to which one process after another appends: metrics.jsonl, and the logs of the
// samples that each step takes.
#ifndef TRIREME_OBSERVE_LINES_H
#define TRIREME_OBSERVE_LINES_H

#include "base/status.h"

#include <stdint.h>

// Opens the file for appending, or creates it. If the previous process was killed while it wrote a
// line, removes that incomplete line, because the next line would be joined to it. Sets *size to
// the number of bytes of all complete lines. If it fails, nothing is open.
tri_status tri_lines_open(const char *path, int *fd, int64_t *size);

#endif
