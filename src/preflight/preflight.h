// `trireme preflight`: whether the hosts of a job are fit for a run, found out in seconds by small
// measurements between all ranks.
#ifndef TRIREME_PREFLIGHT_PREFLIGHT_H
#define TRIREME_PREFLIGHT_PREFLIGHT_H

#include "base/tree.h"
#include "comm/comm.h"
#include "comm/options.h"
#include "device/device.h"
#include "preflight/limits.h"
#include "rendezvous/health.h"
#include "rendezvous/rendezvous.h"

// Connects the ranks as tri_backends.open_comm does. `met`, if the ranks are on several hosts, is
// called when all have met at the store and none is connected, so that what would keep them from
// connecting is found first; its failure is the result.
typedef tri_status preflight_connect(const tri_identity *identity, const tri_comm_options *options,
                                     tri_status (*met)(void *context, tri_store *store),
                                     void *context, tri_comm **out, tri_health **health);

typedef struct preflight_request {
    const tri_device_backend *const *devices; // NULL ends them
    preflight_connect *connect;
    const char *device;  // as tri_device_open takes it
    const char *run_dir; // it may be missing: then the nearest folder above it that exists is used
    double timeout_s;    // for ranks that do not arrive or do not answer
    preflight_limits limits;
} preflight_request;

typedef enum preflight_verdict {
    PREFLIGHT_UNREACHED, // a check before it ended the measurements
    PREFLIGHT_SKIPPED,   // it does not apply to these ranks
    PREFLIGHT_GO,
    PREFLIGHT_NO_GO,
} preflight_verdict;

const char *preflight_verdict_name(preflight_verdict verdict); // "go", "no-go", …

// The result of one check.
typedef struct preflight_row {
    const char *name;
    preflight_verdict verdict;
    const char *summary; // what was measured, in a few words; "" if nothing
    const char *failure; // of no-go: one line that names hosts or ranks
    tri_tree *values;    // for JSON; NULL: none
} preflight_row;

typedef struct preflight_report {
    const char *launcher, *backend; // backend "": the ranks are not connected
    int rank, ranks;
    const char *host; // of this rank
    bool is_first;    // of its host's ranks, as far as the launcher says
    bool has_met;     // the store was reached, so that rank 0 knows of failures of this rank
    int hosts;        // 0: not known
    const char **host_names;
    preflight_row *rows;
    int row_count, failed;
    tri_status status; // of what ended the measurements; TRI_OK: nothing did
} preflight_report;

// Runs all checks. Collective. All ranks get the same verdicts, unless they cannot reach each
// other. *session stays connected, so that no rank ends before rank 0 has reported; preflight_end
// ends it.
typedef struct preflight preflight;
tri_status preflight_run(tri_arena *arena, const preflight_request *request,
                         preflight_report *report, preflight **session);
void preflight_end(preflight *session);

#endif
