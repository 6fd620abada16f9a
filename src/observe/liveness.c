// A thread that watches the ledgers of all ranks (the records of what they do) and reports a rank
// that is stuck, because a hung collective would otherwise report nothing.
#include "observe/liveness.h"

#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOOK_MS = 500, LATE_MS = 3000, ACTION_BYTES = 224 };

typedef struct rank_view {   // what this process has seen of one rank
    uint64_t progress_count; // the ledger's count, which grows while the rank makes progress
    int64_t progressed_ns;   // when this process last saw that count change
    bool is_reported;        // the rank was reported as stuck, and has not made progress since
} rank_view;

struct tri_liveness {
    tri_liveness_config config;
    rank_view *ranks;
    int64_t looked_ns;
    int64_t failed_ns; // when the communicator was first seen to have failed; 0: it has not
    char line[1024];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
};

static const tri_ledger_ring *ring_of(const tri_liveness *l, int rank) {
    return tri_comm_ledger_of(l->config.comm, rank);
}

tri_status tri_liveness_create(const tri_liveness_config *config, tri_liveness **out) {
    tri_comm *comm = config->comm;
    *out = NULL;
    if (comm->size == 1) return TRI_OK;
    for (int r = 0; r < comm->size; r++)
        if (!tri_comm_ledger_of(comm, r)) return TRI_OK;
    tri_liveness *l = calloc(1, sizeof *l);
    if (l) l->ranks = calloc((size_t)comm->size, sizeof *l->ranks);
    if (!l || !l->ranks) {
        free(l);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory to watch %d ranks", comm->size);
    }
    l->config = *config;
    *out = l;
    return TRI_OK;
}

void tri_liveness_destroy(tri_liveness *l) {
    if (!l) return;
    free(l->ranks);
    free(l);
}

// Updates what is known of the ranks. If the last look was more than LATE_MS ago (this process was
// suspended, or the host slept), the time since then tells nothing about the other ranks, so they
// count as having made progress now.
static void observe(tri_liveness *l, int64_t now_ns) {
    bool late = l->looked_ns == 0 || now_ns - l->looked_ns > LATE_MS * (int64_t)1000000;
    for (int r = 0; r < l->config.comm->size; r++) {
        // Only rank 0 looks at the others and reports, because looking at ranks of other hosts
        // costs messages. The other ranks look only at themselves.
        if (l->config.comm->rank != 0 && r != l->config.comm->rank) continue;
        rank_view *view = &l->ranks[r];
        uint64_t progress_count =
            atomic_load_explicit(&ring_of(l, r)->progress_count, memory_order_relaxed);
        if (progress_count == view->progress_count && !late) continue;
        if (progress_count != view->progress_count) view->is_reported = false;
        view->progress_count = progress_count;
        view->progressed_ns = now_ns;
    }
    l->looked_ns = now_ns;
}

static int64_t still_ms(const tri_liveness *l, int rank) {
    return (l->looked_ns - l->ranks[rank].progressed_ns) / 1000000;
}

static bool is_still(const tri_liveness *l, int rank) {
    return still_ms(l, rank) >= TRI_STILL_AFTER_MS;
}

// Finds the rank that has made no progress for the longest time although it waits for no other
// rank; -1: there is none. *waiting: a rank that waits and has made no progress either; -1: none.
// *all: true if no rank makes progress.
static int find_still(const tri_liveness *l, int *waiting, bool *all) {
    int found = -1;
    *waiting = -1;
    *all = true;
    for (int r = l->config.comm->size - 1; r >= 0; r--) {
        if (!is_still(l, r)) *all = false;
        if (is_still(l, r) && tri_ledger_waits(ring_of(l, r))) *waiting = r;
    }
    for (int r = 0; r < l->config.comm->size; r++) {
        const tri_ledger_ring *ring = ring_of(l, r);
        if (!is_still(l, r) || tri_ledger_waits(ring)) continue;
        // A rank that is in no action may simply have ended its run. So it counts as stuck only if
        // another rank waits.
        if (*waiting < 0 && atomic_load(&ring->depth) == 0) continue;
        if (found < 0 || l->ranks[r].progressed_ns < l->ranks[found].progressed_ns) found = r;
    }
    return found;
}

static const char *action_of(const tri_liveness *l, int rank, char action[ACTION_BYTES]) {
    return tri_ledger_text(ring_of(l, rank), action, ACTION_BYTES);
}

static const char *report(tri_liveness *l, int rank, int waiting) {
    char action[ACTION_BYTES], other[ACTION_BYTES];
    int used =
        snprintf(l->line, sizeof l->line, "rank %d (%s) does not move for %s: it is %s; ", rank,
                 ring_of(l, rank)->host, tri_seconds_text((double)(still_ms(l, rank) / 1000)),
                 action_of(l, rank, action));
    if (waiting >= 0)
        used += snprintf(l->line + used, sizeof l->line - (size_t)used, "rank %d waits %s; ",
                         waiting, action_of(l, waiting, other));
    else
        used += snprintf(l->line + used, sizeof l->line - (size_t)used, "no other rank moves; ");
    snprintf(l->line + used, sizeof l->line - (size_t)used,
             "the run ends after %s of that "
             "(comm.timeout_s)",
             tri_seconds_text(l->config.timeout_s));
    l->ranks[rank].is_reported = true;
    return l->line;
}

const char *tri_liveness_look(tri_liveness *l, int64_t now_ns) {
    int waiting;
    bool all;
    observe(l, now_ns);
    int rank = find_still(l, &waiting, &all);
    if (rank < 0 || (waiting < 0 && !all)) return NULL;
    if (all && (double)still_ms(l, rank) >= l->config.timeout_s * 1e3) {
        char action[ACTION_BYTES], why[512];
        snprintf(why, sizeof why,
                 "rank %d (host %s, pid %d) did not move for %s (comm.timeout_s), nor "
                 "did any other; it is %s",
                 rank, ring_of(l, rank)->host, ring_of(l, rank)->pid,
                 tri_seconds_text(l->config.timeout_s), action_of(l, rank, action));
        l->config.comm->backend->abort(l->config.comm, why);
    }
    return l->ranks[rank].is_reported ? NULL : report(l, rank, waiting);
}

// Ends the process if it is stuck. After the communicator has failed, its calls return, so a rank
// that waited for another one continues. But this rank may be stuck elsewhere, for example in a
// read, and would keep its job running for ever.
static void end_if_stuck(tri_liveness *l, int64_t now_ns) {
    tri_comm *comm = l->config.comm;
    tri_status status = comm->backend->failed(comm);
    if (status == TRI_OK) return;
    rank_view *own = &l->ranks[comm->rank];
    if (!l->failed_ns) l->failed_ns = now_ns;
    int64_t since = own->progressed_ns > l->failed_ns ? own->progressed_ns : l->failed_ns;
    bool stuck = now_ns - since >= TRI_STILL_AFTER_MS * (int64_t)1000000;
    if (stuck && l->config.give_up) l->config.give_up(status);
}

static void *liveness_main(void *context) {
    tri_liveness *l = context;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        struct timespec until = tri_condition_deadline(LOOK_MS);
        if (pthread_cond_timedwait(&l->wake, &l->lock, &until) != ETIMEDOUT) continue;
        int64_t now_ns = tri_os.monotonic_ns();
        if (l->config.comm->rank == 0) {
            const char *line = tri_liveness_look(l, now_ns);
            if (line) tri_log_line(TRI_LOG_WARNING, "%s", line);
        } else {
            observe(l, now_ns);
        }
        end_if_stuck(l, now_ns);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static tri_status start_thread(tri_liveness *l) {
    pthread_mutex_init(&l->lock, NULL);
    tri_condition_init(&l->wake);
    return tri_thread_demand(&l->thread, liveness_main, l, "the watch over ranks");
}

tri_status tri_liveness_start(const tri_liveness_config *config, tri_liveness **out) {
    TRI_TRY(tri_liveness_create(config, out));
    if (!*out) return TRI_OK;
    tri_status status = start_thread(*out);
    if (status == TRI_OK) return TRI_OK;
    tri_liveness_destroy(*out);
    *out = NULL;
    return status;
}

void tri_liveness_stop(tri_liveness *l) {
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->wake);
    pthread_mutex_destroy(&l->lock);
    tri_liveness_destroy(l);
}
