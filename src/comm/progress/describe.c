// Writes what messages about failures tell about a rank. What the rank does is read from the
// control communicator (which connects all ranks of the job) if that knows it; or else from the
// backend; or else from the store, the job's key-value service.
#include "comm/progress/describe.h"

#include "comm/progress/failure.h"
#include "rendezvous/health.h"

#include <stdio.h>

static const tri_ledger_ring *ring_of(const progress_family *family, int job_rank) {
    tri_comm *control = family->control;
    const tri_ledger_ring *own =
        family->backend->ring ? family->backend->ring(family, job_rank) : NULL;
    tri_health *health = atomic_load(&family->health);
    if (!own) tri_health_ask(health, job_rank);
    const tri_ledger_ring *ring = control ? tri_comm_ledger_of(control, job_rank) : own;
    return ring ? ring : own ? own : tri_health_ring(health, job_rank);
}

void progress_describe(const progress_family *family, int job_rank, char *out, size_t size) {
    const tri_ledger_ring *ring = ring_of(family, job_rank);
    const char *host = family->backend->host ? family->backend->host(family, job_rank) : NULL;
    tri_ledger_lock_unpacked();
    bool is_told = ring && ring->host[0];
    if (is_told)
        snprintf(out, size, "rank %d (host %s, pid %d)", job_rank, ring->host, (int)ring->pid);
    tri_ledger_unlock_unpacked();
    if (is_told) return;
    if (host)
        snprintf(out, size, "rank %d (host %s)", job_rank, host);
    else
        snprintf(out, size, "rank %d", job_rank);
}

void progress_describe_action(const progress_family *family, int job_rank, const char *verb,
                              char out[PROGRESS_ACTION_BYTES]) {
    const tri_ledger_ring *ring = ring_of(family, job_rank);
    *out = 0;
    if (!ring) return;
    int used = snprintf(out, PROGRESS_ACTION_BYTES, " %s", verb);
    tri_ledger_text(ring, out + used, PROGRESS_ACTION_BYTES - (size_t)used);
}

int progress_awaited(const progress_family *family, int job_rank, bool asks) {
    const progress_backend *backend = family->backend;
    tri_health *health = atomic_load(&family->health);
    bool is_known = backend->awaited && (!backend->ring || backend->ring(family, job_rank));
    if (is_known) return backend->awaited(family, job_rank);
    return asks && health ? tri_health_awaited(health, job_rank) : PROGRESS_NOBODY;
}

// Writes "rank 0 (host a)". Calls nothing that could block, because the caller may hold locks.
static void name(progress_comm *comm, int rank, char *out, size_t size) {
    const progress_family *family = comm->family;
    int job_rank = comm->job_rank[rank];
    const char *host = family->backend->host ? family->backend->host(family, job_rank) : NULL;
    const tri_ledger_ring *ring = NULL;
    if (!host && family->control) ring = tri_comm_ledger_of(family->control, job_rank);
    if (!host && !ring) ring = tri_comm_ledger_of(&comm->head, rank);
    if (!host && ring) host = ring->host;
    if (host && *host)
        snprintf(out, size, "rank %d (host %s)", job_rank, host);
    else
        snprintf(out, size, "rank %d", job_rank);
}

void progress_disagreement(progress_comm *comm, uint64_t sequence, progress_caller first,
                           progress_caller second, char *out, size_t size) {
    progress_caller callers[] = {first, second};
    char who[2][128], what[2][192], at[48] = "";
    for (int i = 0; i < 2; i++) {
        name(comm, callers[i].rank, who[i], sizeof who[i]);
        if (callers[i].call)
            tri_comm_call_text(callers[i].call, what[i], sizeof what[i]);
        else
            snprintf(what[i], sizeof what[i], "%s", callers[i].text);
    }
    if (sequence) snprintf(at, sizeof at, " at operation %llu", (unsigned long long)sequence);
    snprintf(out, size, "ranks disagree%s: %s calls %s, %s calls %s", at, who[0], what[0], who[1],
             what[1]);
}

void progress_disagree(progress_comm *comm, uint64_t sequence, progress_caller first,
                       progress_caller second) {
    char text[TRI_MESSAGE_MAX_BYTES];
    progress_disagreement(comm, sequence, first, second, text, sizeof text);
    progress_fail(comm, TRI_MISMATCH, "%s", text);
}
