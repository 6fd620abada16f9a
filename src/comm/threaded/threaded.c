// The thread of a communicator whose operations wait for a device, and the queue of operation
// groups that it advances. An operation group is operations of one call of `start` that are
// advanced together.
#include "comm/threaded/threaded.h"

#include "base/cores.h"
#include "base/os.h"
#include "base/thread.h"
#include "comm/op.h"
#include "comm/progress/spin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

enum {
    // After a group has advanced, the thread looks again and again for so long, and does not sleep:
    // often the next step is done soon.
    SPIN_NS = 50000,
    // How long the thread then sleeps between two looks: at first FIRST_PAUSE_NS, and twice as long
    // each time, up to LAST_PAUSE_NS.
    FIRST_PAUSE_NS = 30000,
    LAST_PAUSE_NS = 90000,
};

static tri_status outcome(const threaded_comm *c) {
    return c->status == TRI_OK ? TRI_OK : TRI_FAIL(c->status, "%s", c->message);
}

// ---- the thread

// Records the failure if it is the communicator's first. The caller holds the lock.
static void fail(threaded_comm *c, tri_status status) {
    if (c->status != TRI_OK) return;
    if (c->kind->give_up) status = c->kind->give_up(c, status);
    c->status = status;
    snprintf(c->message, sizeof c->message, "%s", tri_error_message());
    pthread_cond_broadcast(&c->group_done);
}

static void free_one(threaded_group *group, void (*free_group)(threaded_group *group)) {
    free(group->after);
    free_group(group);
}

static void drop_done(threaded_comm *c) {
    threaded_group **link = &c->first, *last = NULL;
    bool dropped = false;
    while (*link) {
        threaded_group *group = *link;
        if (!group->done) {
            last = group;
            link = &group->next;
            continue;
        }
        *link = group->next;
        free_one(group, c->kind->free_group);
        dropped = true;
    }
    c->last = last;
    if (dropped) pthread_cond_broadcast(&c->group_done);
}

// Advances all groups once, and returns whether one of them has advanced. The caller holds the
// lock. This function releases it in between, so that other threads can add groups at the end.
static bool advance_all(threaded_comm *c) {
    bool moved = false;
    if (c->kind->begin) c->kind->begin(c);
    for (threaded_group *g = c->first; g && c->status == TRI_OK && !c->stops; g = g->next) {
        pthread_mutex_unlock(&c->lock);
        tri_status status = c->kind->advance(c, g, &moved);
        pthread_mutex_lock(&c->lock);
        if (status != TRI_OK) fail(c, status);
    }
    drop_done(c);
    return moved;
}

// Waits before the thread looks again, because no group has advanced: spins for a moment, or
// sleeps. *pause_ns is how long it sleeps; 0: it has not slept since a group has advanced.
static void wait_to_look(const threaded_comm *c, int64_t *pause_ns) {
    if (tri_os.monotonic_ns() < c->spins_until_ns) {
        progress_pause();
        return;
    }
    *pause_ns = *pause_ns ? 2 * *pause_ns : FIRST_PAUSE_NS;
    if (*pause_ns > LAST_PAUSE_NS) *pause_ns = LAST_PAUSE_NS;
    tri_os.sleep_ns(*pause_ns);
}

static void *work(void *context) {
    threaded_comm *c = context;
    int64_t pause_ns = 0;
    // Without this the system lets a thread sleep up to 50 µs longer than it asked for.
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    pthread_mutex_lock(&c->lock);
    while (!c->stops) {
        if (!c->first || c->status != TRI_OK) {
            pthread_cond_wait(&c->group_added, &c->lock);
        } else if (advance_all(c)) {
            pause_ns = 0;
            threaded_spin(c, SPIN_NS);
        } else {
            pthread_mutex_unlock(&c->lock);
            wait_to_look(c, &pause_ns);
            pthread_mutex_lock(&c->lock);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

void threaded_spin(threaded_comm *c, int64_t duration_ns) {
    if (!c->can_spin) return;
    int64_t until_ns = tri_os.monotonic_ns() + duration_ns;
    if (until_ns > c->spins_until_ns) c->spins_until_ns = until_ns;
}

bool threaded_comes_after(const threaded_group *group) {
    for (int i = 0; i < group->after_count; i++)
        if (!tri_ticket_is_done(&group->after[i])) return false;
    return true;
}

// ---- making and ending a communicator

void threaded_init(threaded_comm *c, const threaded_kind *kind, const tri_comm_backend *slots,
                   tri_comm *inner, tri_device *device) {
    c->head = *inner;
    c->head.backend = slots;
    c->kind = kind;
    c->inner = inner;
    c->device = device;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->group_added, NULL);
    pthread_cond_init(&c->group_done, NULL);
}

tri_status threaded_run(threaded_comm *c) {
    const progress_family *family = threaded_family(&c->head);
    // The caller's thread computes or waits at the same time, so one core would not be enough.
    c->can_spin = family && family->can_spin && tri_cores() > 1;
    TRI_TRY(tri_thread_demand(&c->thread, work, c, "a communicator"));
    c->has_thread = true;
    return TRI_OK;
}

bool threaded_stop(threaded_comm *c) {
    pthread_mutex_lock(&c->lock);
    c->stops = true;
    bool under_way = c->first != NULL;
    if (c->status == TRI_OK) {
        c->status = TRI_PEER_LOST;
        snprintf(c->message, sizeof c->message, "the communicator was closed");
    }
    pthread_cond_broadcast(&c->group_done);
    pthread_cond_broadcast(&c->group_added);
    pthread_mutex_unlock(&c->lock);
    if (c->has_thread) pthread_join(c->thread, NULL);
    c->has_thread = false;
    return under_way;
}

void threaded_free_groups(threaded_group *first, void (*free_group)(threaded_group *group)) {
    while (first) {
        threaded_group *next = first->next;
        free_one(first, free_group);
        first = next;
    }
}

void threaded_end(threaded_comm *c) {
    threaded_free_groups(c->first, c->kind->free_group);
    pthread_cond_destroy(&c->group_added);
    pthread_cond_destroy(&c->group_done);
    pthread_mutex_destroy(&c->lock);
}

// ---- functions of tri_comm_backend

tri_status threaded_split(tri_comm *comm, int colour, int key, tri_comm **out) {
    *out = NULL;
    return TRI_FAIL(TRI_UNSUPPORTED,
                    "a communicator '%s' is not split: split the control communicator",
                    comm->backend->name);
}

tri_status threaded_alloc(tri_comm *comm, size_t size_bytes, void **out) {
    tri_device *device = threaded_of(comm)->device;
    return device->backend->alloc(device, size_bytes, out);
}

void threaded_free(tri_comm *comm, void *memory) {
    tri_device *device = threaded_of(comm)->device;
    device->backend->free(device, memory);
}

tri_status threaded_after(tri_comm *comm, const tri_ticket *ticket) {
    threaded_comm *c = threaded_of(comm);
    if (tri_ticket_is_done(ticket) || c->after_count == THREADED_MOST_AFTER)
        return tri_ticket_wait(ticket);
    c->after[c->after_count++] = *ticket;
    return TRI_OK;
}

// Gives each of the new groups (the list from `first` on) a copy of the tickets that threaded_after
// has collected, because none of these groups may begin before the work of all these tickets is
// done.
static tri_status take_after(threaded_comm *c, threaded_group *first) {
    int count = c->after_count;
    c->after_count = 0;
    for (threaded_group *g = first; g && count; g = g->next) {
        g->after = malloc((size_t)count * sizeof *g->after);
        if (!g->after) return TRI_FAIL(TRI_NO_MEMORY, "no memory for %d tickets", count);
        memcpy(g->after, c->after, (size_t)count * sizeof *g->after);
        g->after_count = count;
    }
    return TRI_OK;
}

// Adds groups at the end of the list. The caller holds the lock.
static tri_status add(threaded_comm *c, threaded_group *first) {
    TRI_TRY(outcome(c));
    c->started++;
    for (threaded_group *g = first; g; g = g->next) {
        g->number = c->started;
        if (g == first) *(c->last ? &c->last->next : &c->first) = g;
        c->last = g;
    }
    pthread_cond_signal(&c->group_added);
    return TRI_OK;
}

tri_status threaded_start(tri_comm *comm, const tri_comm_op *ops, int count, tri_comm_ticket *out) {
    threaded_comm *c = threaded_of(comm);
    threaded_group *first;
    for (int i = 0; i < count; i++) TRI_TRY(tri_comm_op_check(comm, &ops[i]));
    TRI_TRY(c->kind->make(c, ops, count, &first));
    tri_status status = take_after(c, first);
    pthread_mutex_lock(&c->lock);
    if (status == TRI_OK) status = add(c, first);
    *out = (tri_comm_ticket){c->started};
    pthread_mutex_unlock(&c->lock);
    if (status != TRI_OK) threaded_free_groups(first, c->kind->free_group);
    return status;
}

// Whether a group of the call of `start` with this number is not done yet; calls are numbered from
// 1. After a failure no group counts as pending. The caller holds the lock.
static bool is_pending(const threaded_comm *c, uint64_t number) {
    if (c->status != TRI_OK) return false;
    for (const threaded_group *g = c->first; g; g = g->next)
        if (g->number == number) return true;
    return false;
}

bool threaded_test(tri_comm *comm, tri_comm_ticket ticket) {
    threaded_comm *c = threaded_of(comm);
    pthread_mutex_lock(&c->lock);
    bool pending = is_pending(c, ticket.value);
    pthread_mutex_unlock(&c->lock);
    return !pending;
}

tri_status threaded_wait(tri_comm *comm, tri_comm_ticket ticket) {
    threaded_comm *c = threaded_of(comm);
    pthread_mutex_lock(&c->lock);
    while (is_pending(c, ticket.value)) pthread_cond_wait(&c->group_done, &c->lock);
    tri_status status = outcome(c);
    pthread_mutex_unlock(&c->lock);
    return status;
}

void threaded_abort(tri_comm *comm, const char *why) {
    tri_comm *inner = threaded_of(comm)->inner;
    inner->backend->abort(inner, why);
}

tri_status threaded_failed(tri_comm *comm) {
    threaded_comm *c = threaded_of(comm);
    pthread_mutex_lock(&c->lock);
    tri_status status = outcome(c);
    pthread_mutex_unlock(&c->lock);
    return status == TRI_OK ? c->inner->backend->failed(c->inner) : status;
}

// Returns the family (all communicators split from one) of the inner communicator. This
// communicator has no family of its own, because it fails together with the inner one, whose family
// tells the other ranks of failures.
struct progress_family *threaded_family(tri_comm *comm) {
    tri_comm *inner = threaded_of(comm)->inner;
    return inner->backend->family ? inner->backend->family(inner) : NULL;
}

const tri_ledger_ring *threaded_ledger_of(tri_comm *comm, int rank) {
    return tri_comm_ledger_of(threaded_of(comm)->inner, rank);
}
