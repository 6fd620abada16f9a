// What a blocked rank checks now and then: which ranks are alive, and how long nothing advanced. It
// fails the communicator with a message that names the rank at fault and what the others do.
#include "comm/shm/watch.h"

#include "base/os.h"
#include "base/process.h"
#include "comm/op.h"
#include "comm/shm/bell.h"
#include "comm/shm/collective.h"
#include "comm/shm/failure.h"
#include "comm/shm/pair.h"
#include "comm/shm/queue.h"
#include "comm/shm/work.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    WATCH_LATE_MS = 1000, // without a look at the heartbeats: what was seen before is too old
    WATCH_NOBODY = -1,    // instead of a rank
    WATCH_ACTION_BYTES = 224,
};

const tri_ledger_ring *shm_ledger_of(tri_comm *head, int rank) {
    const shm_comm *comm = shm_of(head);
    return &comm->family->control->members[comm->world_rank[rank]].ledger;
}

// ---- which ranks are alive

tri_status shm_watch_begin(shm_family *family) {
    family->watched = calloc((size_t)family->size, sizeof *family->watched);
    if (!family->watched) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    int64_t now = tri_os.monotonic_ns();
    for (int r = 0; r < family->size; r++)
        family->watched[r] =
            (shm_watched){.by = SHM_WATCHED_BY_NOTHING, .changed_ns = now, .looked_ns = now};
    return TRI_OK;
}

void shm_watch_end(shm_family *family) {
    for (int r = 0; family->watched && r < family->size; r++)
        if (family->watched[r].by == SHM_WATCHED_BY_PIDFD) tri_os.close(family->watched[r].pidfd);
    free(family->watched);
    family->watched = NULL;
}

// Decides how a member is watched, once it has joined. The pidfd may be of a later process with the
// same pid, so the member's life is checked again after it was opened.
static shm_watched_by watch_member(const shm_member *member, int *pidfd) {
    if (!atomic_load(&member->joined)) return SHM_WATCHED_BY_NOTHING;
    *pidfd = (int)syscall(SYS_pidfd_open, (pid_t)member->process.pid, 0);
    tri_life life = tri_process_life(&member->process);
    if (life == TRI_LIFE_ALIVE && *pidfd >= 0) return SHM_WATCHED_BY_PIDFD;
    if (*pidfd >= 0) tri_os.close(*pidfd);
    return life == TRI_LIFE_UNKNOWN ? SHM_WATCHED_BY_HEARTBEAT : SHM_WATCHED_BY_PID;
}

static bool member_died(shm_family *family, int r) {
    const shm_member *member = &family->control->members[r];
    pthread_mutex_lock(&family->watched_lock);
    shm_watched *seen = &family->watched[r];
    if (seen->by == SHM_WATCHED_BY_NOTHING) seen->by = watch_member(member, &seen->pidfd);
    shm_watched copy = *seen;
    pthread_mutex_unlock(&family->watched_lock);
    if (copy.by == SHM_WATCHED_BY_PID) return tri_process_life(&member->process) == TRI_LIFE_GONE;
    if (copy.by != SHM_WATCHED_BY_PIDFD) return false;
    struct pollfd ready = {.fd = copy.pidfd, .events = POLLIN};
    return poll(&ready, 1, 0) == 1;
}

void shm_observe(shm_family *family) {
    int64_t now = tri_os.monotonic_ns();
    pthread_mutex_lock(&family->watched_lock);
    for (int r = 0; r < family->size; r++) {
        shm_watched *seen = &family->watched[r];
        uint64_t beat = atomic_load(&family->control->members[r].heartbeat);
        // After a long time without a look (this process was stopped, or the machine slept) the old
        // heartbeat says nothing.
        bool late = beat == 0 || now - seen->looked_ns > WATCH_LATE_MS * (int64_t)1000000;
        if (beat != seen->heartbeat || late) seen->changed_ns = now;
        seen->heartbeat = beat;
        seen->looked_ns = now;
    }
    pthread_mutex_unlock(&family->watched_lock);
}

static int64_t member_silent_ns(shm_family *family, int r) {
    pthread_mutex_lock(&family->watched_lock);
    int64_t silent = family->watched[r].looked_ns - family->watched[r].changed_ns;
    pthread_mutex_unlock(&family->watched_lock);
    return silent;
}

// ---- reports of a blocked rank

static shm_member *member_of(const shm_comm *comm, int r) {
    return &comm->family->control->members[comm->world_rank[r]];
}

static void describe(const shm_member *member, int number, char *out, size_t size) {
    snprintf(out, size, "rank %d (host %s, pid %d)", number, member->ledger.host,
             (int)member->process.pid);
}

// True when the operations at the head wait for rank r. The lock keeps `start` from reallocating
// the queue meanwhile.
static bool awaits(shm_comm *comm, int r) {
    pthread_mutex_lock(&comm->lock);
    bool result = comm->current.pair_count ? shm_pairs_waiting(comm, r) != NULL
                                           : shm_collective_awaits(comm, r);
    pthread_mutex_unlock(&comm->lock);
    return result;
}

typedef enum loss { LOSS_NONE, LOSS_DEAD, LOSS_LEFT, LOSS_SILENT } loss;

static loss find_loss(shm_comm *comm, int r) {
    if (member_died(comm->family, comm->world_rank[r])) return LOSS_DEAD;
    if (atomic_load(&comm->board->seats[r].closed)) return LOSS_LEFT;
    if (member_silent_ns(comm->family, comm->world_rank[r]) > TRI_DEAD_AFTER_MS * (int64_t)1000000)
        return LOSS_SILENT;
    return LOSS_NONE;
}

// What the ranks besides the culprit do: "; rank 0 waits in …, rank 2 is in …".
static void describe_others(shm_comm *comm, const shm_member *culprit, char *out, size_t size) {
    enum { OTHERS = 3 };
    int described = 0;
    size_t used = 0;
    *out = 0;
    for (int i = 0; i < comm->head.size && described < OTHERS && used < size; i++) {
        int r = (comm->head.rank + i) % comm->head.size; // ourselves first
        char action[WATCH_ACTION_BYTES];
        if (member_of(comm, r) == culprit) continue;
        tri_ledger_text(&member_of(comm, r)->ledger, action, sizeof action);
        int length = snprintf(out + used, size - used, "%s rank %d %s %s", described++ ? "," : ";",
                              comm->world_rank[r], r == comm->head.rank ? "waits" : "is", action);
        used += length > 0 ? (size_t)length : 0;
    }
}

static void report_loss(shm_comm *comm, int r, loss what) {
    char who[128], action[WATCH_ACTION_BYTES], others[512];
    describe(member_of(comm, r), comm->world_rank[r], who, sizeof who);
    describe_others(comm, member_of(comm, r), others, sizeof others);
    tri_ledger_text(&member_of(comm, r)->ledger, action, sizeof action);
    const char *const verbs[] = {[LOSS_DEAD] = "died",
                                 [LOSS_LEFT] = "left the communicator",
                                 [LOSS_SILENT] = "does not move: no heartbeat for 4 s; it is"};
    shm_fail(comm, TRI_PEER_LOST, "%s %s %s%s", who, verbs[what], action, others);
}

// A send or receive whose peer waits for us in a collective can never end.
static void report_pair_against_collective(shm_comm *comm, int peer) {
    if (peer == comm->head.rank || comm->current.pair_count == 0 || !awaits(comm, peer)) return;
    if (!shm_reached(comm, peer, comm->meetings + 1)) return;
    // The peer may have sent or received before it entered the collective; that is visible by now.
    if (shm_advance(comm) != SHM_BLOCKED) return;
    pthread_mutex_lock(&comm->lock);
    const shm_pending *item = shm_pairs_waiting(comm, peer);
    tri_comm_op op = item ? item->op : (tri_comm_op){.kind = TRI_COMM_BARRIER};
    pthread_mutex_unlock(&comm->lock);
    if (!item) return;
    const shm_entry *entry = shm_entry_of(comm, peer, comm->meetings + 1);
    shm_fail(comm, TRI_MISMATCH,
             "ranks disagree: rank %d calls %s '%s' with rank %d, rank %d calls %s '%s'",
             comm->world_rank[comm->head.rank], tri_comm_kind_name(op.kind),
             op.label ? op.label : "", comm->world_rank[peer], comm->world_rank[peer],
             tri_comm_kind_name((tri_comm_kind)entry->kind), entry->label);
}

// Follows who waits for whom, from `member` to a member that waits for none. WATCH_NOBODY: the
// chain leads back to us, or is a circle.
static int find_culprit(const shm_family *family, int member) {
    for (int links = 0; links < family->size && member != family->rank; links++) {
        int next = atomic_load(&family->control->members[member].awaited_plus_1) - 1;
        if (next < 0) return member;
        member = next;
    }
    return WATCH_NOBODY;
}

// Chooses one of the ranks that we wait for, if possible one that does not itself wait for us, and
// *culprit, the member that holds it up. WATCH_NOBODY: we wait for no other rank.
static int choose_awaited(shm_comm *comm, int *culprit) {
    int chosen = WATCH_NOBODY;
    for (int r = 0; r < comm->head.size; r++) {
        if (r == comm->head.rank || !awaits(comm, r)) continue;
        *culprit = find_culprit(comm->family, comm->world_rank[r]);
        if (chosen < 0 || *culprit >= 0) chosen = r;
        if (*culprit >= 0) return r;
    }
    if (chosen >= 0) *culprit = comm->world_rank[chosen];
    return chosen;
}

static void report_timeout(shm_comm *comm, int culprit) {
    char who[128], action[WATCH_ACTION_BYTES], others[512];
    const shm_member *member = culprit < 0 ? NULL : &comm->family->control->members[culprit];
    describe_others(comm, member, others, sizeof others);
    if (!member) { // for example a send to ourselves that is never received
        shm_fail(comm, TRI_TIMEOUT, "nothing advanced in %g s (comm.timeout_s)%s",
                 comm->family->timeout_ms * 1e-3, others);
        return;
    }
    describe(member, culprit, who, sizeof who);
    tri_ledger_text(&member->ledger, action, sizeof action);
    shm_fail(comm, TRI_TIMEOUT, "%s did not join in %g s (comm.timeout_s); it is %s%s", who,
             comm->family->timeout_ms * 1e-3, action, others);
}

void shm_watch(shm_comm *comm) {
    int64_t now = tri_os.monotonic_ns();
    if (comm->advances != comm->advances_seen) {
        comm->advances_seen = comm->advances;
        comm->advanced_ns = now;
        comm->checked_ns = 0;
    }
    if (now - comm->checked_ns < TRI_SHM_CHECK_MS * (int64_t)500000) return;
    comm->checked_ns = now;
    shm_observe(comm->family);
    for (int r = 0; r < comm->head.size; r++) {
        if (r == comm->head.rank || !awaits(comm, r)) continue;
        loss what = find_loss(comm, r);
        if (what == LOSS_NONE) continue;
        // What the rank wrote before it was lost may be all that we need.
        if (shm_advance(comm) != SHM_BLOCKED) return;
        if (awaits(comm, r)) {
            report_loss(comm, r, what);
            return;
        }
    }
    for (int r = 0; r < comm->head.size; r++) report_pair_against_collective(comm, r);
    int culprit = WATCH_NOBODY, awaited = choose_awaited(comm, &culprit);
    if (awaited >= 0 && atomic_load(&comm->waiters) > 0)
        atomic_store(&shm_own_member(comm->family)->awaited_plus_1, comm->world_rank[awaited] + 1);
    int64_t busy_since = atomic_load(&comm->busy_since_ns);
    int64_t since = busy_since > comm->advanced_ns ? busy_since : comm->advanced_ns;
    if (now - since > comm->family->timeout_ms * (int64_t)1000000) report_timeout(comm, culprit);
}

void shm_clear_awaited(shm_family *family) {
    _Atomic int32_t *awaited = &shm_own_member(family)->awaited_plus_1;
    if (atomic_load_explicit(awaited, memory_order_relaxed)) atomic_store(awaited, 0);
}
