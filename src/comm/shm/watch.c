// Who lives, what they are doing, and how a communicator fails.
#include "comm/op.h"
#include "comm/shm/internal.h"

#include "base/os.h"
#include "base/process.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    WATCH_LATE_MS = 1000,
    WATCH_NO_PIDFD = -1,
    WATCH_UNKNOWN = -2,
    WATCH_STRANGER = -3,
    WATCH_ACTION_BYTES = 224,
};

const tri_ledger_ring *shm_ledger_of(tri_comm *head, int rank) {
    const shm_comm *comm = shm_of(head);
    return &comm->family->control->members[comm->world[rank]].ledger;
}

// ---- who lives

tri_status shm_watch_begin(shm_family *family) {
    family->watched = calloc((size_t)family->size, sizeof *family->watched);
    if (!family->watched) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    int64_t now = tri_os.monotonic_ns();
    for (int r = 0; r < family->size; r++)
        family->watched[r] =
            (shm_watched){.pidfd = WATCH_STRANGER, .changed_ns = now, .looked_ns = now};
    return TRI_OK;
}

void shm_watch_end(shm_family *family) {
    for (int r = 0; family->watched && r < family->size; r++)
        if (family->watched[r].pidfd >= 0) tri_os.close(family->watched[r].pidfd);
    free(family->watched);
    family->watched = NULL;
}

// How a member is watched, once it has introduced itself. Its pid may be another process's by now,
// so that what was opened under it is looked at again.
static int watch_member(const shm_member *member) {
    if (!atomic_load(&member->joined)) return WATCH_STRANGER;
    int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)member->process.pid, 0);
    tri_life life = tri_process_life(&member->process);
    if (life == TRI_LIFE_ALIVE && pidfd >= 0) return pidfd;
    if (pidfd >= 0) tri_os.close(pidfd);
    // Where its pid may mean another process here, only its heartbeat tells.
    return life == TRI_LIFE_UNKNOWN ? WATCH_UNKNOWN : WATCH_NO_PIDFD;
}

static bool member_died(shm_family *family, int r) {
    const shm_member *member = &family->control->members[r];
    pthread_mutex_lock(&family->watched_lock);
    shm_watched *seen = &family->watched[r];
    if (seen->pidfd == WATCH_STRANGER) seen->pidfd = watch_member(member);
    int pidfd = seen->pidfd;
    pthread_mutex_unlock(&family->watched_lock);
    if (pidfd == WATCH_UNKNOWN || pidfd == WATCH_STRANGER) return false;
    if (pidfd == WATCH_NO_PIDFD) return tri_process_life(&member->process) == TRI_LIFE_GONE;
    struct pollfd ready = {.fd = pidfd, .events = POLLIN};
    return poll(&ready, 1, 0) == 1;
}

void shm_observe(shm_family *family) {
    int64_t now = tri_os.monotonic_ns();
    pthread_mutex_lock(&family->watched_lock);
    for (int r = 0; r < family->size; r++) {
        shm_watched *seen = &family->watched[r];
        uint64_t beat = atomic_load(&family->control->members[r].heartbeat);
        // If we did not look for long (we were stopped too, or the machine slept) we know nothing.
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

// ---- failure

void shm_fail(shm_comm *comm, tri_status status, const char *format, ...) {
    shm_family *family = comm->family;
    shm_failure *failure = &family->control->failure;
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&failure->state, &none, 1)) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure->text, sizeof failure->text, format, arguments);
    va_end(arguments);
    failure->status = (int32_t)status;
    atomic_store(&failure->state, 2);
    for (int r = 0; r < family->size; r++) shm_ring(family, r);
}

tri_status shm_failure_status(shm_comm *comm) {
    const shm_failure *failure = &comm->family->control->failure;
    // Its writer may have been killed in the middle.
    for (int tries = 0; tries < 1000 && atomic_load(&failure->state) != 2; tries++)
        tri_os.sleep_ns(1000000);
    if (atomic_load(&failure->state) != 2)
        return TRI_FAIL(TRI_PEER_LOST, "a rank was lost while it reported a failure");
    return TRI_FAIL((tri_status)failure->status, "%s", failure->text);
}

tri_status shm_failed_status(tri_comm *head) {
    return shm_failed(shm_of(head)) ? shm_failure_status(shm_of(head)) : TRI_OK;
}

void shm_abort(tri_comm *head, const char *why) {
    shm_fail(shm_of(head), TRI_PEER_LOST, "%s", why ? why : "aborted");
}

// ---- looking around while blocked

static shm_member *member_of(const shm_comm *comm, int r) {
    return &comm->family->control->members[comm->world[r]];
}

static void describe(const shm_member *member, int number, char *out, size_t size) {
    snprintf(out, size, "rank %d (host %s, pid %d)", number, member->ledger.host,
             (int)member->process.pid);
}

// The lock keeps `start` from moving the queue.
static bool awaits(shm_comm *comm, int r) {
    pthread_mutex_lock(&comm->lock);
    bool result =
        comm->current.pairs ? shm_pairs_waiting(comm, r) != NULL : shm_collective_awaits(comm, r);
    pthread_mutex_unlock(&comm->lock);
    return result;
}

typedef enum loss { LOSS_NONE, LOSS_DEAD, LOSS_LEFT, LOSS_SILENT } loss;

static loss look_at(shm_comm *comm, int r) {
    if (member_died(comm->family, comm->world[r])) return LOSS_DEAD;
    if (atomic_load(&comm->board->seats[r].left)) return LOSS_LEFT;
    if (member_silent_ns(comm->family, comm->world[r]) > TRI_DEAD_AFTER_MS * (int64_t)1000000)
        return LOSS_SILENT;
    return LOSS_NONE;
}

// What the others of the communicator do meanwhile: "; rank 0 waits in …, rank 2 is in …".
static void describe_others(shm_comm *comm, const shm_member *culprit, char *out, size_t size) {
    enum { OTHERS = 3 };
    int said = 0;
    size_t used = 0;
    *out = 0;
    for (int i = 0; i < comm->head.size && said < OTHERS && used < size; i++) {
        int r = (comm->head.rank + i) % comm->head.size; // ourselves first
        char action[WATCH_ACTION_BYTES];
        if (member_of(comm, r) == culprit) continue;
        tri_ledger_text(&member_of(comm, r)->ledger, action, sizeof action);
        int step = snprintf(out + used, size - used, "%s rank %d %s %s", said++ ? "," : ";",
                            comm->world[r], r == comm->head.rank ? "waits" : "is", action);
        used += step > 0 ? (size_t)step : 0;
    }
}

static void report_loss(shm_comm *comm, int r, loss what) {
    char who[128], action[WATCH_ACTION_BYTES], others[512];
    describe(member_of(comm, r), comm->world[r], who, sizeof who);
    describe_others(comm, member_of(comm, r), others, sizeof others);
    tri_ledger_text(&member_of(comm, r)->ledger, action, sizeof action);
    const char *const verbs[] = {[LOSS_DEAD] = "died",
                                 [LOSS_LEFT] = "left the communicator",
                                 [LOSS_SILENT] = "does not move: no heartbeat for 4 s; it is"};
    shm_fail(comm, TRI_PEER_LOST, "%s %s %s%s", who, verbs[what], action, others);
}

// A send or receive whose peer waits for us in a collective can never end.
static void report_edge_value(shm_comm *comm, int peer) {
    if (peer == comm->head.rank || comm->current.pairs == 0 || !awaits(comm, peer)) return;
    if (!shm_reached(comm, peer, comm->step + 1)) return;
    // What it did before it went on is visible by now.
    if (shm_advance(comm) != SHM_BLOCKED) return;
    pthread_mutex_lock(&comm->lock);
    const shm_pending *item = shm_pairs_waiting(comm, peer);
    tri_comm_op op = item ? item->op : (tri_comm_op){.kind = TRI_COMM_BARRIER};
    pthread_mutex_unlock(&comm->lock);
    if (!item) return;
    const shm_entry *entry = &comm->board->seats[peer].entries[(comm->step + 1) & 1];
    shm_fail(comm, TRI_MISMATCH,
             "ranks disagree: rank %d calls %s '%s' with rank %d, rank %d calls %s '%s'",
             comm->world[comm->head.rank], tri_comm_kind_name(op.kind), op.label ? op.label : "",
             comm->world[peer], comm->world[peer], tri_comm_kind_name((tri_comm_kind)entry->kind),
             entry->label);
}

// Who keeps `member` waiting, itself or by keeping another one waiting; -1 where that leads to us
// or goes round in a circle.
static int find_culprit(const shm_family *family, int member) {
    for (int steps = 0; steps < family->size && member != family->rank; steps++) {
        int next = atomic_load(&family->control->members[member].awaits) - 1;
        if (next < 0) return member;
        member = next;
    }
    return -1;
}

// Of the ranks that we wait for, one that does not itself wait for us; -1: there is none at all.
static int choose_awaited(shm_comm *comm, int *culprit) {
    int chosen = -1;
    for (int r = 0; r < comm->head.size; r++) {
        if (r == comm->head.rank || !awaits(comm, r)) continue;
        *culprit = find_culprit(comm->family, comm->world[r]);
        if (chosen < 0 || *culprit >= 0) chosen = r;
        if (*culprit >= 0) return r;
    }
    if (chosen >= 0) *culprit = comm->world[chosen];
    return chosen;
}

static void report_timeout(shm_comm *comm, int culprit) {
    char who[128], action[WATCH_ACTION_BYTES], others[512];
    const shm_member *member = culprit < 0 ? NULL : &comm->family->control->members[culprit];
    describe_others(comm, member, others, sizeof others);
    if (!member) { // a send to ourselves that we never receive
        shm_fail(comm, TRI_TIMEOUT, "nothing moved in %g s (comm.timeout_s)%s",
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
    if (comm->moves != comm->watched_moves) {
        comm->watched_moves = comm->moves;
        comm->moved_ns = now;
        comm->watched_ns = 0;
    }
    if (now - comm->watched_ns < TRI_SHM_CHECK_MS * (int64_t)500000) return;
    comm->watched_ns = now;
    shm_observe(comm->family);
    for (int r = 0; r < comm->head.size; r++) {
        if (r == comm->head.rank || !awaits(comm, r)) continue;
        loss what = look_at(comm, r);
        if (what == LOSS_NONE) continue;
        // What it did before it was lost may be all that we need.
        if (shm_advance(comm) != SHM_BLOCKED) return;
        if (awaits(comm, r)) {
            report_loss(comm, r, what);
            return;
        }
    }
    for (int r = 0; r < comm->head.size; r++) report_edge_value(comm, r);
    int culprit = -1, awaited = choose_awaited(comm, &culprit);
    if (awaited >= 0 && atomic_load(&comm->waiters) > 0)
        atomic_store(&shm_me(comm->family)->awaits, comm->world[awaited] + 1);
    int64_t asked = atomic_load(&comm->asked_ns);
    int64_t since = asked > comm->moved_ns ? asked : comm->moved_ns;
    if (now - since > comm->family->timeout_ms * (int64_t)1000000) report_timeout(comm, culprit);
}
