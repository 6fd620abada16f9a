// The communicator that goes through the host: keeps operation groups in order, and has a thread
// that moves them on while the caller computes.
#include "comm/staged/staged.h"

#include "base/thread.h"
#include "comm/op.h"
#include "comm/staged/group.h"
#include "device/queue.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_AFTER = 64, PAUSE_US = 30 };

typedef struct staged_comm {
    tri_comm head;
    staged_route route;
    tri_device *device;
    tri_ticket after[MOST_AFTER]; // of the group that is started next
    int after_count;
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock;
    pthread_cond_t more, less;  // signalled when a group was added, and when one is done
    staged_group *first, *last; // not yet done; only the thread removes them
    uint64_t started;
    bool stops;
    tri_status status; // the first failure
    char message[TRI_MESSAGE_MAX_BYTES];
} staged_comm;

static const tri_comm_backend staged_backend;

static staged_comm *staged_of(tri_comm *head) { return (staged_comm *)head; }

// Records the first failure, which every later call returns. Called under the lock.
static void fail(staged_comm *c, tri_status status, const char *message) {
    if (c->status != TRI_OK) return;
    c->status = status;
    snprintf(c->message, sizeof c->message, "%s", message);
    pthread_cond_broadcast(&c->less);
}

static tri_status outcome(const staged_comm *c) {
    return c->status == TRI_OK ? TRI_OK : TRI_FAIL(c->status, "%s", c->message);
}

static void drop_done(staged_comm *c) {
    staged_group **link = &c->first, *last = NULL;
    bool dropped = false;
    while (*link) {
        staged_group *group = *link;
        if (group->state != STAGED_DONE) {
            last = group;
            link = &group->next;
            continue;
        }
        *link = group->next;
        staged_group_free(group);
        dropped = true;
    }
    c->last = last;
    if (dropped) pthread_cond_broadcast(&c->less);
}

// Moves all groups on. A group with a collective is under way alone. Groups of sends and receives
// that follow each other are under way side by side, because a rank may wait for one before it
// starts another; the inner communicator starts them in order. Called under the lock, which it
// releases in between, so that groups may be added at the end meanwhile.
static bool advance_all(staged_comm *c) {
    bool moved = false, alone = true, only_messages = true, all_left = true;
    for (staged_group *g = c->first; g && c->status == TRI_OK && !c->stops; g = g->next) {
        pthread_mutex_unlock(&c->lock);
        tri_status status = staged_group_advance(
            g, &c->route, alone || (only_messages && g->is_messages), all_left, &moved);
        pthread_mutex_lock(&c->lock);
        if (status != TRI_OK) fail(c, status, tri_error_message());
        alone = alone && g->state == STAGED_DONE;
        only_messages = only_messages && (g->is_messages || g->state == STAGED_DONE);
        all_left = all_left && g->state >= STAGED_TRAVELS;
    }
    drop_done(c);
    return moved;
}

static void *work(void *context) {
    staged_comm *c = context;
    pthread_mutex_lock(&c->lock);
    while (!c->stops) {
        if (!c->first || c->status != TRI_OK) {
            pthread_cond_wait(&c->more, &c->lock);
        } else if (!advance_all(c)) {
            pthread_mutex_unlock(&c->lock);
            usleep(PAUSE_US);
            pthread_mutex_lock(&c->lock);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

void tri_comm_staged_stop(tri_comm *comm) {
    if (!comm || comm->backend != &staged_backend) return;
    staged_comm *c = staged_of(comm);
    pthread_mutex_lock(&c->lock);
    c->stops = true;
    fail(c, TRI_PEER_LOST, "the communicator was closed");
    pthread_cond_broadcast(&c->more);
    pthread_mutex_unlock(&c->lock);
    if (c->has_thread) pthread_join(c->thread, NULL);
    c->has_thread = false;
}

static void staged_close(tri_comm *comm) {
    staged_comm *c = staged_of(comm);
    tri_comm_staged_stop(comm);
    tri_queue_close(c->route.out);
    tri_queue_close(c->route.in);
    tri_comm_close(c->route.inner); // before the groups' memory is freed, which it may still touch
    while (c->first) {
        staged_group *next = c->first->next;
        staged_group_free(c->first);
        c->first = next;
    }
    pthread_cond_destroy(&c->more);
    pthread_cond_destroy(&c->less);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static tri_status staged_split(tri_comm *comm, int colour, int key, tri_comm **out) {
    *out = NULL;
    return TRI_FAIL(TRI_UNSUPPORTED, "a staged communicator is not split, only the inner one is");
}

static tri_status staged_alloc(tri_comm *comm, size_t size_bytes, void **out) {
    tri_device *device = staged_of(comm)->device;
    return device->backend->alloc(device, size_bytes, out);
}

static void staged_free(tri_comm *comm, void *memory) {
    tri_device *device = staged_of(comm)->device;
    device->backend->free(device, memory);
}

static tri_status staged_after(tri_comm *comm, const tri_ticket *ticket) {
    staged_comm *c = staged_of(comm);
    if (tri_ticket_is_done(ticket)) return tri_ticket_wait(ticket);
    if (c->after_count == MOST_AFTER) return tri_ticket_wait(ticket);
    c->after[c->after_count++] = *ticket;
    return TRI_OK;
}

static tri_status staged_start(tri_comm *comm, const tri_comm_op *ops, int count,
                               tri_comm_ticket *out) {
    staged_comm *c = staged_of(comm);
    staged_group *group;
    for (int i = 0; i < count; i++) TRI_TRY(tri_comm_op_check(comm, &ops[i]));
    TRI_TRY(staged_group_make(comm, ops, count, c->after, c->after_count, &group));
    c->after_count = 0;
    pthread_mutex_lock(&c->lock);
    tri_status status = outcome(c);
    if (status == TRI_OK) {
        group->number = ++c->started;
        *(c->last ? &c->last->next : &c->first) = group;
        c->last = group;
        pthread_cond_signal(&c->more);
    }
    *out = (tri_comm_ticket){c->started};
    pthread_mutex_unlock(&c->lock);
    if (status != TRI_OK) staged_group_free(group);
    return status;
}

// Whether the group of that number is not done yet. Called under the lock.
static bool is_pending(const staged_comm *c, uint64_t number) {
    if (c->status != TRI_OK) return false;
    for (const staged_group *g = c->first; g; g = g->next)
        if (g->number == number) return true;
    return false;
}

static bool staged_test(tri_comm *comm, tri_comm_ticket ticket) {
    staged_comm *c = staged_of(comm);
    pthread_mutex_lock(&c->lock);
    bool pending = is_pending(c, ticket.value);
    pthread_mutex_unlock(&c->lock);
    return !pending;
}

static tri_status staged_wait(tri_comm *comm, tri_comm_ticket ticket) {
    staged_comm *c = staged_of(comm);
    pthread_mutex_lock(&c->lock);
    while (is_pending(c, ticket.value)) pthread_cond_wait(&c->less, &c->lock);
    tri_status status = outcome(c);
    pthread_mutex_unlock(&c->lock);
    return status;
}

static void staged_abort(tri_comm *comm, const char *why) {
    tri_comm *inner = staged_of(comm)->route.inner;
    inner->backend->abort(inner, why);
}

static tri_status staged_failed(tri_comm *comm) {
    staged_comm *c = staged_of(comm);
    pthread_mutex_lock(&c->lock);
    tri_status status = outcome(c);
    pthread_mutex_unlock(&c->lock);
    return status == TRI_OK ? c->route.inner->backend->failed(c->route.inner) : status;
}

// The family of the inner communicator. It has the connections by which ranks learn of failures, so
// both fail together.
static struct progress_family *staged_family(tri_comm *comm) {
    tri_comm *inner = staged_of(comm)->route.inner;
    return inner->backend->family ? inner->backend->family(inner) : NULL;
}

static const tri_ledger_ring *staged_ledger_of(tri_comm *comm, int rank) {
    return tri_comm_ledger_of(staged_of(comm)->route.inner, rank);
}

static unsigned staged_abilities(const tri_comm *comm) {
    const tri_comm *inner = ((const staged_comm *)comm)->route.inner;
    return (inner->backend->abilities(inner) & ~(unsigned)TRI_COMM_HOST_MEMORY) |
           TRI_COMM_DEVICE_MEMORY;
}

// Each group of operations allocates its own host memory, which a plan cannot count.
static int64_t staged_scratch_bytes(int ranks, bool is_private) { return 0; }

static const tri_comm_backend staged_backend = {
    .name = "staged",
    .abilities = staged_abilities,
    .scratch_bytes = staged_scratch_bytes,
    .close = staged_close,
    .split = staged_split,
    .alloc = staged_alloc,
    .free = staged_free,
    .after = staged_after,
    .start = staged_start,
    .test = staged_test,
    .wait = staged_wait,
    .abort = staged_abort,
    .failed = staged_failed,
    .family = staged_family,
    .ledger_of = staged_ledger_of,
};

static tri_status start_thread(staged_comm *c) {
    TRI_TRY(tri_thread_demand(&c->thread, work, c, "a communicator"));
    c->has_thread = true;
    return TRI_OK;
}

tri_status tri_comm_staged_open(tri_comm *inner, tri_device *device, tri_comm **out) {
    staged_comm *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) {
        tri_comm_close(inner);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    }
    c->head = *inner;
    c->head.backend = &staged_backend;
    c->route.inner = inner;
    c->device = device;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->more, NULL);
    pthread_cond_init(&c->less, NULL);
    tri_status status = tri_queue_open(device, &c->route.out);
    if (status == TRI_OK) status = tri_queue_open(device, &c->route.in);
    if (status == TRI_OK) status = start_thread(c);
    if (status != TRI_OK) {
        staged_close(&c->head);
        return status;
    }
    *out = &c->head;
    return TRI_OK;
}
