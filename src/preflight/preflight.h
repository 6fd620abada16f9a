// `trireme preflight`: finds out, in seconds and by small measurements between all ranks, whether
// the hosts of a job are fit for a run.
#ifndef TRIREME_PREFLIGHT_PREFLIGHT_H
#define TRIREME_PREFLIGHT_PREFLIGHT_H

#include "base/tree.h"
#include "comm/comm.h"
#include "comm/options.h"
#include "device/device.h"
#include "preflight/limits.h"
#include "rendezvous/health.h"
#include "rendezvous/rendezvous.h"

// Connects the ranks, that is, opens a communicator over all of them (cli/connect.h). If the ranks
// are on several hosts, it first calls `met`. By then all ranks have met at the store (the
// key-value service of the rendezvous), and none is connected to another. So `met` can find and
// report what would keep them from connecting. If `met` fails, this call fails too.
typedef tri_status preflight_connect(const tri_identity *identity, const tri_comm_options *options,
                                     tri_status (*met)(void *context, tri_store *store),
                                     void *context, tri_comm **out, tri_health **health);

typedef struct preflight_request {
    const tri_device_backend *const *devices; // ends with NULL
    preflight_connect *connect;
    const char *device; // the device's name, as tri_device_open expects it
    // The run folder; while it does not exist, the nearest existing folder above it is measured.
    const char *run_dir;
    double timeout_s; // how long to wait for ranks that do not arrive or do not answer
    preflight_limits limits;
} preflight_request;

typedef enum preflight_verdict {
    PREFLIGHT_UNREACHED, // not measured, because an earlier check ended the measurements
    PREFLIGHT_SKIPPED,   // does not apply to these ranks
    PREFLIGHT_GO,
    PREFLIGHT_NO_GO,
} preflight_verdict;

// Returns "go", "no-go", ….
const char *preflight_verdict_name(preflight_verdict verdict);

// The result of one check.
typedef struct preflight_row {
    const char *name;
    preflight_verdict verdict;
    const char *summary; // what was measured, in a few words; "": nothing
    const char *failure; // for a no-go: one line that names hosts or ranks
    tri_tree *values;    // measured values for the JSON report; NULL: none
} preflight_row;

typedef struct preflight_report {
    const char *launcher, *backend; // backend: what connects the ranks ("shm", …); "": nothing
    int rank, ranks;
    const char *host; // the host of this rank
    // This rank is the first of its host, by the local ranks that the launcher gave. Without these,
    // every rank counts as the first.
    bool is_first;
    bool has_met; // all ranks have met at the store; else no failure of this rank reaches rank 0
    int hosts;    // how many hosts the job has; 0: not known
    const char **host_names;
    preflight_row *rows;
    int row_count, failed;
    tri_status status; // status of the failure that ended the measurements; TRI_OK: none did
} preflight_report;

// Runs all checks. Collective. All ranks get the same verdicts, unless they cannot reach each
// other. *session keeps the ranks connected until preflight_end, which is collective too: so rank 0
// can report before any rank ends.
typedef struct preflight preflight;
tri_status preflight_run(tri_arena *arena, const preflight_request *request,
                         preflight_report *report, preflight **session);
void preflight_end(preflight *session);

#endif
