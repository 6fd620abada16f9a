// The progress of work on all samples of a split, on standard error: a line that is drawn again on
// a terminal, and otherwise a line every ten seconds.
#ifndef TRIREME_DATA_PROGRESS_H
#define TRIREME_DATA_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tri_data_progress {
    const char *split; // "train"
    int64_t samples;   // how many there are
    bool is_quiet;     // work that was done before a line was due has no last line
    // Private.
    int64_t shown_ns;
    bool is_shown, is_terminal;
} tri_data_progress;

tri_data_progress tri_data_progress_begin(const char *split, int64_t samples, bool is_quiet);
// Shows that `done` samples are done, if a line is due or these are all.
void tri_data_progress_show(tri_data_progress *progress, int64_t done);

#endif
