// Files of lines to which one process after the other appends (metrics.jsonl, the sample log).
#ifndef TRIREME_OBSERVE_LINES_H
#define TRIREME_OBSERVE_LINES_H

#include "base/status.h"

#include <stdint.h>

// Opens the file for appending, or creates it, and removes what is left of a line that the process
// before was killed in: the next line would be joined to it. `size`: of all complete lines. If it
// fails, nothing is open.
tri_status tri_lines_open(const char *path, int *fd, int64_t *size);

#endif
