// Checks from time to time, while this rank is blocked, which ranks are lost, and for how long
// nothing has advanced. If something is wrong, makes the communicator fail with a message that
// names the rank at fault (the culprit) and tells what the others do. Ranks tell each other for
// which rank they wait, so a rank can follow the chain of waiting ranks to its end.
#include "comm/progress/watch.h"

#include "base/limits.h"
#include "base/os.h"
#include "base/quantity.h"
#include "comm/progress/describe.h"
#include "comm/progress/failure.h"
#include "comm/progress/queue.h"

#include <stdio.h>

// How many ranks of a chain of waiting ranks are followed at most.
enum { MOST_LINKS = 1024 };

static const progress_item *message_with(const progress_comm *comm, int r) {
    for (int i = 0; i < comm->messages; i++) {
        const progress_item *item = progress_message(comm, i);
        if (!item->done && item->op.peer == r) return item;
    }
    return NULL;
}

// True if the operations at the head of the queue wait for rank r. Takes the lock, because `start`
// may reallocate the queue.
static bool awaits(progress_comm *comm, int r) {
    pthread_mutex_lock(&comm->lock);
    uint64_t head = atomic_load(&comm->completed);
    bool result = false;
    if (comm->messages)
        result = message_with(comm, r) != NULL;
    else if (head < atomic_load(&comm->started))
        result = comm->family->backend->awaits(comm, progress_at(comm, head), r);
    pthread_mutex_unlock(&comm->lock);
    return result;
}

// Writes what up to three ranks other than the culprit do, for the message, so that the user sees
// which ranks wait for it: "; rank 0 waits in …, rank 2 is in …". `culprit`: its number in the job.
static void describe_others(const progress_comm *comm, int culprit, char *out, size_t size) {
    enum { OTHERS = 3 };
    int described = 0;
    size_t used = 0;
    *out = 0;
    for (int i = 0; i < comm->head.size && described < OTHERS && used < size; i++) {
        int r = (comm->head.rank + i) % comm->head.size; // beginning with this rank
        char action[PROGRESS_ACTION_BYTES];
        if (comm->job_rank[r] == culprit) continue;
        progress_describe_action(comm->family, comm->job_rank[r],
                                 r == comm->head.rank ? "waits " : "is ", action);
        if (!*action) continue;
        int length = snprintf(out + used, size - used, "%s rank %d%s", described++ ? "," : ";",
                              comm->job_rank[r], action);
        used += length > 0 ? (size_t)length : 0;
    }
}

static void report_loss(progress_comm *comm, int r, const char *what) {
    char who[128], action[PROGRESS_ACTION_BYTES], others[512];
    int culprit = comm->job_rank[r];
    progress_describe(comm->family, culprit, who, sizeof who);
    describe_others(comm, culprit, others, sizeof others);
    progress_describe_action(comm->family, culprit, "", action);
    progress_fail(comm, TRI_PEER_LOST, "%s %s%s%s", who, what, action, others);
}

// Fails the communicator if a send or receive can never end, because the rank at its other end
// waits for this rank in a collective. Without this check both ranks would wait until the time
// limit.
static void report_message_against_collective(progress_comm *comm, int peer) {
    char theirs[PROGRESS_ACTION_BYTES];
    if (!comm->family->backend->collective_of || peer == comm->head.rank || comm->messages == 0)
        return;
    if (!awaits(comm, peer)) return;
    if (!comm->family->backend->collective_of(comm, peer, theirs, sizeof theirs)) return;
    // The rank `peer` may have sent or received this message before it entered the collective. If
    // so, this rank sees that by now and can complete its own operation, so it tries once more.
    if (progress_advance(comm) != PROGRESS_BLOCKED) return;
    pthread_mutex_lock(&comm->lock);
    const progress_item *item = message_with(comm, peer);
    tri_comm_op op = item ? item->op : (tri_comm_op){.kind = TRI_COMM_BARRIER};
    pthread_mutex_unlock(&comm->lock);
    if (!item) return;
    char ours[PROGRESS_ACTION_BYTES];
    snprintf(ours, sizeof ours, "%s '%s' with rank %d", tri_comm_kind_name(op.kind),
             op.label ? op.label : "", comm->job_rank[peer]);
    progress_disagree(comm, 0, (progress_caller){.rank = comm->head.rank, .text = ours},
                      (progress_caller){.rank = peer, .text = theirs});
}

// Follows the chain of ranks each of which waits for the next, from the rank job_rank on, and
// returns the rank at its end, which waits for none. PROGRESS_NOBODY: the chain leads back to this
// rank, or is a circle. `asks`: see choose_awaited.
static int find_culprit(const progress_family *family, int job_rank, bool asks) {
    for (int links = 0; links < MOST_LINKS && job_rank != family->job_rank; links++) {
        int next = progress_awaited(family, job_rank, asks);
        if (next < 0) return job_rank;
        job_rank = next;
    }
    return PROGRESS_NOBODY;
}

// Chooses one of the ranks for which this rank waits, preferably one whose chain of waiting ranks
// does not lead back here. *culprit becomes the number in the job of the rank at the end of that
// chain, which the message names. PROGRESS_NOBODY: this rank waits for no other. `asks`: the job's
// store may be asked for which ranks the ranks of other hosts wait.
static int choose_awaited(progress_comm *comm, bool asks, int *culprit) {
    int chosen = PROGRESS_NOBODY;
    for (int r = 0; r < comm->head.size; r++) {
        if (r == comm->head.rank || !awaits(comm, r)) continue;
        *culprit = find_culprit(comm->family, comm->job_rank[r], asks);
        if (chosen < 0 || *culprit >= 0) chosen = r;
        if (*culprit >= 0) return r;
    }
    if (chosen >= 0) *culprit = comm->job_rank[chosen];
    return chosen;
}

static void report_timeout(progress_comm *comm, int culprit) {
    char who[128], action[PROGRESS_ACTION_BYTES], others[512];
    const char *limit = tri_seconds_text(comm->family->timeout_ms * 1e-3);
    describe_others(comm, culprit, others, sizeof others);
    if (culprit < 0) { // this happens, for example, if this rank sends to itself and never receives
        progress_fail(comm, TRI_TIMEOUT, "nothing advanced in %s (comm.timeout_s)%s", limit,
                      others);
        return;
    }
    progress_describe(comm->family, culprit, who, sizeof who);
    progress_describe_action(comm->family, culprit, "is ", action);
    progress_fail(comm, TRI_TIMEOUT, "%s did not join in %s (comm.timeout_s)%s%s%s", who, limit,
                  *action ? "; it" : "", action, others);
}

// Fails the communicator if a rank for which it waits is lost. True: the operation has advanced or
// failed, so the caller need not look further.
static bool find_loss(progress_comm *comm) {
    const progress_backend *backend = comm->family->backend;
    for (int r = 0; backend->loss && r < comm->head.size; r++) {
        if (r == comm->head.rank || !awaits(comm, r)) continue;
        const char *what = backend->loss(comm, r);
        if (!what) continue;
        // What the lost rank wrote before it was lost may be enough for the operation to advance.
        if (progress_advance(comm) != PROGRESS_BLOCKED) return true;
        if (awaits(comm, r)) {
            report_loss(comm, r, what);
            return true;
        }
    }
    return false;
}

void progress_watch(progress_comm *comm) {
    progress_family *family = comm->family;
    int64_t now = tri_os.monotonic_ns();
    if (comm->advances != comm->advances_seen) {
        comm->advances_seen = comm->advances;
        comm->advanced_ns = now;
        comm->checked_ns = 0;
    }
    if (now - comm->checked_ns < TRI_COMM_CHECK_MS * (int64_t)500000) return;
    comm->checked_ns = now;
    if (family->backend->observe) family->backend->observe(family);
    if (find_loss(comm)) return;
    for (int r = 0; r < comm->head.size; r++) report_message_against_collective(comm, r);
    int64_t busy_since = atomic_load(&comm->busy_since_ns);
    int64_t since = busy_since > comm->advanced_ns ? busy_since : comm->advanced_ns;
    bool is_late = family->timeout_ms > 0 && now - since > family->timeout_ms * (int64_t)1000000;
    int culprit = PROGRESS_NOBODY, awaited = choose_awaited(comm, is_late, &culprit);
    bool waits =
        atomic_load(&comm->waiters) > 0 || atomic_load(&comm->armed) == PROGRESS_ARMED_WAITS;
    if (awaited >= 0 && waits) progress_tell_awaited(family, comm->job_rank[awaited]);
    if (is_late) report_timeout(comm, culprit);
}
