// Finds which ranks are alive, by their processes and heartbeats, and reads what they write about
// themselves into shared memory. A heartbeat is a counter that a living rank raises.
#include "comm/shm/watch.h"

#include "base/os.h"
#include "base/process.h"
#include "base/quantity.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    // If this process last read the heartbeats longer ago than this, a heartbeat that has not
    // changed is no sign that its rank is lost: all processes may have been stopped meanwhile.
    WATCH_LATE_MS = 1000,
};

tri_status shm_watch_begin(shm_family *family) {
    family->watched = calloc((size_t)family->base.size, sizeof *family->watched);
    if (!family->watched) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    snprintf(family->silence, sizeof family->silence, "does not move: no heartbeat for %s; it is",
             tri_seconds_text(TRI_DEAD_AFTER_MS * 1e-3));
    int64_t now = tri_os.monotonic_ns();
    for (int r = 0; r < family->base.size; r++)
        family->watched[r] =
            (shm_watched){.by = SHM_WATCHED_BY_NOTHING, .changed_ns = now, .read_ns = now};
    return TRI_OK;
}

void shm_watch_end(shm_family *family) {
    for (int r = 0; family->watched && r < family->base.size; r++)
        if (family->watched[r].by == SHM_WATCHED_BY_PIDFD) tri_os.close(family->watched[r].pidfd);
    free(family->watched);
    family->watched = NULL;
}

// Decides how to watch a member that has joined: by a pidfd if possible, because it tells at once
// that a process has ended; else by its pid; if its process cannot be seen from here, by its
// heartbeat. The pidfd may belong to a later process with the same pid, so this function opens it
// first and then checks that the member is still alive.
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

void shm_observe(progress_family *base) {
    shm_family *family = (shm_family *)base;
    int64_t now = tri_os.monotonic_ns();
    pthread_mutex_lock(&family->watched_lock);
    for (int r = 0; r < family->base.size; r++) {
        shm_watched *seen = &family->watched[r];
        uint64_t beat = atomic_load(&family->control->members[r].heartbeat);
        // If this process has not looked for a long time (it was stopped, or the host slept), the
        // old heartbeat says nothing about the other rank.
        bool late = beat == 0 || now - seen->read_ns > WATCH_LATE_MS * (int64_t)1000000;
        if (beat != seen->heartbeat || late) seen->changed_ns = now;
        seen->heartbeat = beat;
        seen->read_ns = now;
    }
    pthread_mutex_unlock(&family->watched_lock);
}

static int64_t member_silent_ns(shm_family *family, int r) {
    pthread_mutex_lock(&family->watched_lock);
    int64_t silent = family->watched[r].read_ns - family->watched[r].changed_ns;
    pthread_mutex_unlock(&family->watched_lock);
    return silent;
}

void shm_beat(progress_family *family) {
    atomic_fetch_add(&shm_own_member((shm_family *)family)->heartbeat, 1);
    shm_observe(family);
}

const char *shm_loss(progress_comm *base, int r) {
    shm_comm *comm = (shm_comm *)base;
    shm_family *family = shm_family_of(comm);
    if (member_died(family, comm->member[r])) return "died";
    if (atomic_load(&comm->board->seats[r].closed)) return "left the communicator";
    if (member_silent_ns(family, comm->member[r]) > TRI_DEAD_AFTER_MS * (int64_t)1000000)
        return family->silence;
    return NULL;
}

static shm_member *member_of(const progress_family *base, int job_rank) {
    const shm_family *family = (const shm_family *)base;
    for (int m = 0; m < base->size; m++)
        if (family->job_rank[m] == job_rank) return &family->control->members[m];
    return NULL;
}

const tri_ledger_ring *shm_ring_of(const progress_family *family, int job_rank) {
    const shm_member *member = member_of(family, job_rank);
    return member ? &member->ledger : NULL;
}

const tri_ledger_ring *shm_ledger_of(tri_comm *head, int rank) {
    const shm_comm *comm = shm_of(head);
    return &shm_family_of(comm)->control->members[comm->member[rank]].ledger;
}

void shm_set_awaited(progress_family *family, int job_rank) {
    atomic_store(&shm_own_member((shm_family *)family)->awaited_plus_1, job_rank + 1);
}

int shm_awaited(const progress_family *family, int job_rank) {
    const shm_member *member = member_of(family, job_rank);
    return member ? atomic_load(&member->awaited_plus_1) - 1 : PROGRESS_NOBODY;
}
