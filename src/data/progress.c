// The progress line of `trireme data`.
#include "data/progress.h"

#include "base/os.h"
#include "base/quantity.h"

#include <stdio.h>
#include <unistd.h>

enum { REDRAW_MS = 200, LINE_MS = 10000, NS_PER_MS = 1000000 };

tri_data_progress tri_data_progress_begin(const char *split, int64_t samples, bool is_quiet) {
    return (tri_data_progress){.split = split,
                               .samples = samples,
                               .is_quiet = is_quiet,
                               .shown_ns = tri_os.monotonic_ns(),
                               .is_terminal = isatty(STDERR_FILENO)};
}

void tri_data_progress_show(tri_data_progress *p, int64_t done) {
    bool is_last = done == p->samples;
    int64_t now = tri_os.monotonic_ns();
    int64_t wait = (int64_t)(p->is_terminal ? REDRAW_MS : LINE_MS) * NS_PER_MS;
    bool is_due = is_last ? !p->is_quiet || p->is_shown : now - p->shown_ns >= wait;
    if (!is_due) return;
    p->shown_ns = now;
    p->is_shown = true;
    fprintf(stderr, "%s%s: %s of %s%s", p->is_terminal ? "\r" : "", p->split,
            tri_grouped((double)done), tri_counted(p->samples, "sample"),
            p->is_terminal && !is_last ? "" : "\n");
}
