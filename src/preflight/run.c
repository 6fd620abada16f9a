// Runs the checks of a preflight one after the other. Read next: preflight/meeting.c, the first
// check, which finds out whether all ranks connect.
#include "preflight/state.h"

#include "base/os.h"
#include "comm/op.h"

#include <stdlib.h>

static const preflight_check *const checks[] = {
    &preflight_meeting, &preflight_devices,    &preflight_memory,     &preflight_binding,
    &preflight_clocks,  &preflight_run_folder, &preflight_same_files, &preflight_links,
    &preflight_sums,    &preflight_compute,
};

enum { CHECKS = sizeof checks / sizeof *checks };

const char *preflight_verdict_name(preflight_verdict verdict) {
    static const char *const names[] = {[PREFLIGHT_UNREACHED] = "unknown",
                                        [PREFLIGHT_SKIPPED] = "skipped",
                                        [PREFLIGHT_GO] = "go",
                                        [PREFLIGHT_NO_GO] = "no-go"};
    return names[verdict];
}

static tri_status run_check(preflight *p, const preflight_check *check, preflight_row *row) {
    const char *why = check->skips ? check->skips(p) : NULL;
    if (why) {
        *row = (preflight_row){check->name, PREFLIGHT_SKIPPED, why, NULL, NULL};
        return TRI_OK;
    }
    for (int attempt = 0; attempt < check->attempts; attempt++) {
        tri_status status = check->measure(p);
        *row = (preflight_row){.name = check->name, .verdict = PREFLIGHT_GO, .summary = ""};
        if (status != TRI_OK) {
            row->verdict = PREFLIGHT_NO_GO;
            row->failure = tri_arena_strdup(p->arena, tri_error_message());
            row->summary = p->comm ? "the ranks lost each other" : "not connected";
            return status;
        }
        check->judge(p, row);
        if (row->verdict != PREFLIGHT_NO_GO) break;
    }
    return TRI_OK;
}

static tri_status run_checks(preflight *p, preflight_report *report) {
    tri_status status = TRI_OK;
    for (int i = 0; i < CHECKS; i++) {
        preflight_row *row = &report->rows[i];
        *row = (preflight_row){.name = checks[i]->name, .summary = ""};
        if (status != TRI_OK) continue;
        status = run_check(p, checks[i], row);
        // A failure after which this rank cannot continue ends the measurements of all ranks,
        // because they would wait for it.
        if (status != TRI_OK && p->comm) p->comm->backend->abort(p->comm, row->failure);
        report->failed += row->verdict == PREFLIGHT_NO_GO;
    }
    return status;
}

tri_status preflight_run(tri_arena *arena, const preflight_request *request,
                         preflight_report *report, preflight **session) {
    preflight *p = TRI_NEW(arena, preflight);
    *p = (preflight){.arena = arena, .request = request};
    *report = (preflight_report){.rows = TRI_NEW_ARRAY(arena, preflight_row, CHECKS),
                                 .row_count = CHECKS};
    TRI_TRY(tri_identity_read((const char *(*)(const char *))getenv, &p->identity));
    *session = p;
    report->status = run_checks(p, report);
    report->launcher = tri_launcher_text(&p->identity);
    report->rank = p->identity.rank;
    report->ranks = p->identity.size;
    report->host = p->identity.host;
    report->is_first = !p->identity.given.local_rank || p->identity.local_rank == 0;
    report->has_met = p->has_met || p->comm;
    report->hosts = p->host_count;
    report->host_names = p->host_names;
    report->backend = p->comm ? p->comm->backend->name : "";
    return TRI_OK;
}

void preflight_end(preflight *p) {
    if (!p) return;
    if (p->comm && p->comm->backend->failed(p->comm) == TRI_OK)
        (void)tri_comm_barrier(p->comm, "end of preflight");
    if (p->device) p->device->backend->close(p->device);
    // Comes before tri_comm_close, which frees the memory from which p->health reads this rank's
    // actions.
    tri_health_drop_ring(p->health);
    if (p->comm) tri_comm_close(p->comm);
    tri_health_stop(p->health);
}
