// Calls the transport from one thread at a time (the one that has the family's turn), because few
// transports allow more. A family is all communicators split from one. Of the threads that sleep,
// one waits for the transport's descriptor and the others for a bell, a word of memory that wakes
// them. When a message arrives, the thread at the descriptor wakes the others, because the message
// may be for any of them. A notice is a message that belongs to no operation: it tells of a
// failure, or that a rank leaves.
#include "comm/message/turn.h"

#include "base/os.h"
#include "comm/progress/failure.h"
#include "comm/progress/thread.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    NAP_LEAST_US = 10, // the shortest sleep between two polls of a transport
    NAP_MOST_US = 300, // the longest such sleep, if the transport has no descriptor to sleep on
    // How long message_stop waits for the other ranks to answer that they know of a failure, before
    // it stops the transport.
    TELL_MS = 1000,
    // A rank that can no longer be reached counts as lost only after this time, because another
    // rank may send a notice that explains why it ended.
    GRACE_MS = 250,
};

static message_family *of(progress_family *family) { return (message_family *)family; }

static int64_t after_ms(int ms) { return tri_os.monotonic_ns() + ms * (int64_t)1000000; }

static void send_notice(message_family *family, const message_notice *notice, const int *ranks,
                        int count) {
    message_sending *sending =
        calloc(1, sizeof *sending + (size_t)count * sizeof *sending->requests);
    if (!sending) return; // no memory: the others notice when this process ends
    sending->notice = *notice;
    sending->count = count;
    sending->next = family->sending;
    family->sending = sending;
    size_t bytes = offsetof(message_notice, text) + strlen(notice->text) + 1;
    for (int i = 0; i < count; i++)
        family->transport->send(family->end, ranks[i], MESSAGE_NOTICE, &sending->notice, bytes,
                                &sending->requests[i]);
}

static bool is_sent(const message_sending *sending) {
    for (int i = 0; i < sending->count; i++)
        if (sending->requests[i].state == TRI_REQUEST_PENDING) return false;
    return true;
}

static void drop_sent(message_family *family) {
    for (message_sending **link = &family->sending; *link;) {
        message_sending *sending = *link;
        if (!is_sent(sending)) {
            link = &sending->next;
            continue;
        }
        *link = sending->next;
        free(sending);
    }
}

// Tells all other ranks of a failure, unless another rank has told this rank of it. The caller has
// the turn.
static void tell_failure(message_family *family) {
    const progress_failure *failure = family->base.failure;
    atomic_store(&family->must_tell, false);
    if (family->has_told || family->stopped || atomic_load(&family->was_told)) return;
    if (atomic_load(&failure->state) != PROGRESS_FAILURE_WRITTEN) return;
    family->has_told = true;
    message_notice notice = {
        .kind = MESSAGE_FAILED, .rank = family->rank, .status = failure->status};
    snprintf(notice.text, sizeof notice.text, "%s", failure->text);
    int *ranks = calloc((size_t)family->base.size, sizeof *ranks), count = 0;
    for (int r = 0; ranks && r < family->base.size; r++) {
        if (r == family->rank || family->transport->loss(family->end, r)) continue;
        family->members[r].must_answer = true;
        ranks[count++] = r;
    }
    if (count) send_notice(family, &notice, ranks, count);
    free(ranks);
}

void message_tell_left(message_comm *comm) {
    message_family *family = message_family_of(comm);
    message_notice notice = {.kind = MESSAGE_LEFT, .rank = family->rank, .number = comm->number};
    int *ranks = calloc((size_t)message_size(comm), sizeof *ranks), count = 0;
    for (int r = 0; ranks && r < message_size(comm); r++) {
        int member = comm->member[r];
        if (member == family->rank || family->transport->loss(family->end, member)) continue;
        // Tells only ranks to which this rank has a connection, because making one could block. A
        // rank that waits for this rank has most likely received something from it before, and then
        // there is a connection.
        if (family->transport->reaches(family->end, member)) ranks[count++] = member;
    }
    if (count) send_notice(family, &notice, ranks, count);
    free(ranks);
}

static void note_departure(message_family *family, const message_notice *notice) {
    if (family->departure_count == family->departure_capacity) {
        int capacity = family->departure_capacity ? 2 * family->departure_capacity : 16;
        void *grown = realloc(family->departures, (size_t)capacity * sizeof *family->departures);
        if (!grown) return;
        family->departures = grown;
        family->departure_capacity = capacity;
    }
    family->departures[family->departure_count++] =
        (message_departure){notice->number, notice->rank};
}

void message_listen(message_family *family) {
    family->transport->recv_any(family->end, MESSAGE_NOTICE, &family->heard, sizeof family->heard,
                                &family->hearing);
}

static bool hear(message_family *family) {
    if (family->hearing.state != TRI_REQUEST_DONE) return false;
    message_notice *notice = &family->heard;
    notice->text[sizeof notice->text - 1] = 0;
    TRI_ASSERT(notice->rank >= 0 && notice->rank < family->base.size);
    if (notice->kind == MESSAGE_LEFT) {
        note_departure(family, notice);
    } else if (notice->kind == MESSAGE_KNOWN) {
        family->members[notice->rank].must_answer = false;
    } else if ((unsigned)notice->status < TRI_STATUS_COUNT && notice->status != TRI_OK) {
        message_notice answer = {.kind = MESSAGE_KNOWN, .rank = family->rank};
        send_notice(family, &answer, &notice->rank, 1);
        family->members[notice->rank].must_answer = false;
        atomic_store(&family->was_told, true);
        progress_take_failure(&family->base, (tri_status)notice->status, notice->text);
    }
    message_listen(family);
    return true;
}

const char *message_loss(progress_comm *base, int r) {
    message_comm *comm = (message_comm *)base;
    message_family *family = message_family_of(comm);
    message_member *member = &family->members[comm->member[r]];
    int64_t now = tri_os.monotonic_ns();
    message_turn_begin(family);
    if (!family->stopped && family->transport->watch)
        family->transport->watch(family->end, comm->member[r]);
    const char *what = family->transport->loss(family->end, comm->member[r]);
    // The rank may have ended because of a failure of which another rank is about to send a notice.
    // So its loss is reported only after a moment.
    if (what && !member->lost_ns) member->lost_ns = now;
    if (what && now - member->lost_ns < GRACE_MS * (int64_t)1000000) what = NULL;
    for (int i = 0; i < family->departure_count && !what; i++)
        if (family->departures[i].number == comm->number &&
            family->departures[i].rank == comm->member[r])
            what = "left the communicator";
    message_turn_end(family);
    return what ? what : tri_health_loss(atomic_load(&base->family->health), member->job_rank);
}

void message_turn_begin(message_family *family) { pthread_mutex_lock(&family->turn); }

void message_turn_end(message_family *family) {
    do {
        if (atomic_load(&family->must_tell)) tell_failure(family);
        pthread_mutex_unlock(&family->turn);
        // Another thread may meanwhile have recorded a failure. If it could not lock the turn,
        // because this thread had it, this thread has to tell the other ranks of the failure.
    } while (atomic_load(&family->must_tell) && pthread_mutex_trylock(&family->turn) == 0);
}

bool message_progress(message_family *family) {
    if (family->stopped) return false;
    bool moved = family->transport->progress(family->end);
    while (hear(family)) moved = true;
    if (family->sending) drop_sent(family);
    if (!moved) return false;
    atomic_store_explicit(&family->idle_polls, 0, memory_order_relaxed);
    message_wake(&family->base);
    return true;
}

bool message_await(const tri_transport *transport, tri_transport_end *end,
                   const tri_transport_request *requests, int count, int64_t until_ns) {
    for (;;) {
        bool pending = false, failed = false;
        for (int i = 0; i < count; i++) {
            pending |= requests[i].state == TRI_REQUEST_PENDING;
            failed |= requests[i].state > TRI_REQUEST_DONE;
        }
        if (failed || !pending) return !failed;
        if (transport->progress(end)) continue;
        if (tri_os.monotonic_ns() > until_ns) return false;
        tri_os.sleep_ns(NAP_LEAST_US * 1000);
    }
}

// Whether a rank that was told of a failure has not answered yet. Ranks that cannot be reached do
// not count, since they never answer.
static bool waits_for_answers(const message_family *family) {
    for (int r = 0; r < family->base.size; r++)
        if (family->members[r].must_answer && !family->transport->loss(family->end, r)) return true;
    return false;
}

void message_stop(message_family *family) {
    int64_t until = after_ms(TELL_MS);
    message_turn_begin(family);
    // Another thread of this process may be writing the failure at this moment. Waits for it,
    // because tell_failure sends only a failure that is completely written.
    while (atomic_load(&family->base.failure->state) == PROGRESS_FAILURE_BEING_WRITTEN &&
           tri_os.monotonic_ns() < until)
        tri_os.sleep_ns(NAP_LEAST_US * 1000);
    tell_failure(family);
    while (!family->stopped && (family->sending || waits_for_answers(family)) &&
           tri_os.monotonic_ns() < until)
        if (!message_progress(family)) tri_os.sleep_ns(NAP_LEAST_US * 1000);
    if (!family->stopped) family->transport->stop(family->end);
    family->stopped = true;
    drop_sent(family);
    message_turn_end(family);
}

bool message_say_goodbye(message_family *family) {
    int size = family->base.size;
    char sent = 1, received;
    int64_t until = after_ms(TRI_MAX_SHUTDOWN_MS);
    bool whole = true;
    message_turn_begin(family);
    for (int distance = 1; distance < size && whole; distance *= 2) {
        tri_transport_request requests[2] = {{0}};
        int to = (family->rank + distance) % size, from = (family->rank + size - distance) % size;
        family->transport->recv(family->end, from, MESSAGE_GOODBYE, &received, 1, &requests[0]);
        family->transport->send(family->end, to, MESSAGE_GOODBYE, &sent, 1, &requests[1]);
        whole = message_await(family->transport, family->end, requests, 2, until);
        // Stops the transport, so that it no longer uses the requests, which lie on this function's
        // stack.
        if (!whole) family->transport->stop(family->end);
    }
    if (!whole) family->stopped = true;
    while (whole && family->sending && tri_os.monotonic_ns() < until) {
        family->transport->progress(family->end);
        drop_sent(family);
    }
    pthread_mutex_unlock(&family->turn);
    return whole;
}

tri_status message_turn_init(message_family *family) {
    pthread_mutex_init(&family->turn, NULL);
    pthread_mutex_init(&family->waiting, NULL);
    family->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (family->wake_fd >= 0) return TRI_OK;
    return TRI_FAIL(TRI_IO, "cannot make an eventfd: %s", strerror(errno));
}

void message_turn_destroy(message_family *family) {
    if (family->wake_fd >= 0) tri_os.close(family->wake_fd);
    pthread_mutex_destroy(&family->turn);
    pthread_mutex_destroy(&family->waiting);
    while (family->sending) {
        message_sending *next = family->sending->next;
        free(family->sending);
        family->sending = next;
    }
    free(family->departures);
}

uint32_t message_sleep_begin(progress_family *family) {
    return progress_bell_begin(&of(family)->bell);
}

void message_sleep_end(progress_family *family) { progress_bell_end(&of(family)->bell); }

static void wait_for_descriptors(message_family *family, int fd, int64_t timeout_ns) {
    struct pollfd ready[2] = {{.fd = family->wake_fd, .events = POLLIN},
                              {.fd = fd, .events = POLLIN}};
    struct timespec timeout = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    (void)ppoll(ready, fd >= 0 ? 2 : 1, &timeout, NULL);
    uint64_t rings;
    if (ready[0].revents) (void)!read(family->wake_fd, &rings, sizeof rings);
}

// How long the thread sleeps before it calls the transport again, if the transport has no
// descriptor on which to sleep. At first it does not sleep but only yields its core, because MPI
// moves large messages bit by bit, in calls that end no request. Then it sleeps longer each time,
// so that an idle rank takes little of its core's time.
static int64_t nap_ns(message_family *family) {
    int idle_polls = atomic_fetch_add(&family->idle_polls, 1);
    int most = family->base.can_spin ? 2000 : 50;
    if (idle_polls < most) return 0;
    int64_t nap_us = NAP_LEAST_US + (idle_polls - most) / 4;
    return (nap_us < NAP_MOST_US ? nap_us : NAP_MOST_US) * 1000;
}

// Waits until the transport has something to do, or another thread wakes this one (message_wake).
// Only the thread that has locked family->waiting calls this. All other threads sleep on
// family->bell, a futex: it is enough if one waits for the transport's descriptor, because it then
// wakes the others.
static void wait_for_transport(message_family *family, uint32_t seen, int timeout_ms) {
    int fd = family->transport->event_fd(family->end);
    int64_t timeout_ns = timeout_ms * (int64_t)1000000;
    if (fd >= 0 && family->transport->arm) {
        message_turn_begin(family);
        bool armed = family->stopped || family->transport->arm(family->end);
        message_turn_end(family);
        if (!armed) return;
    }
    if (fd < 0) {
        timeout_ns = nap_ns(family);
        if (timeout_ns == 0) {
            sched_yield();
            return;
        }
    }
    // A thread that wakes this one (rings the bell) first raises `rings` and then reads `waits`;
    // this thread writes `waits` and then reads `rings`. So at least one of the two notices the
    // other.
    atomic_store(&family->waits, true);
    if (atomic_load(&family->bell.rings) == seen) wait_for_descriptors(family, fd, timeout_ns);
    atomic_store(&family->waits, false);
}

void message_sleep(progress_family *base, uint32_t seen, int timeout_ms) {
    message_family *family = of(base);
    if (pthread_mutex_trylock(&family->waiting)) {
        progress_bell_sleep(&family->bell, seen, timeout_ms);
        return;
    }
    wait_for_transport(family, seen, timeout_ms);
    pthread_mutex_unlock(&family->waiting);
    // Wakes the other sleepers, because one of them has to wait for the transport from now on, and
    // each of them may have to advance its own operation.
    if (atomic_load(&family->bell.sleepers) > 1) message_wake(base);
}

void message_wake(progress_family *base) {
    message_family *family = of(base);
    uint64_t one = 1;
    progress_bell_ring(&family->bell);
    if (atomic_load(&family->waits)) (void)!write(family->wake_fd, &one, sizeof one);
}

void message_wake_all(progress_family *base) {
    message_family *family = of(base);
    if (!atomic_load(&family->was_told)) atomic_store(&family->must_tell, true);
    message_wake(base);
    progress_thread_wake(base);
    // The thread that has the turn (the right to call the transport) tells the other ranks of the
    // failure before it gives the turn back. If no thread has it, this one takes it.
    if (pthread_mutex_trylock(&family->turn) == 0) message_turn_end(family);
}

void message_beat(progress_family *base) {
    message_family *family = of(base);
    message_turn_begin(family);
    message_progress(family);
    message_turn_end(family);
}
