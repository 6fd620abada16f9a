// Queues of the device cuda are CUDA streams, and their tickets are CUDA events. (A ticket stands
// for work that was issued and that somebody may wait for; base/ticket.h.) A queue that waits for a
// queue of the same device waits on the GPU, by an event. Any other ticket (of a communicator or of
// storage) is awaited by a thread of the queue. This thread then raises a number in pinned memory,
// for which the stream waits. So the host's thread that issues work does not block, unless it is
// far ahead of the GPU (cuda_stream_of).
#include "device/cuda/internal.h"

#include "base/thread.h"
#include "device/queue.h"
#include "device/ref/node.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    // How many events a queue has, for its newest tickets. The work of all older tickets is done,
    // because cuda_record waits for it before it uses an event again.
    EVENTS = 256,
    // How many tickets that do not belong to this device, such as those of a communicator, a queue
    // can wait for at one time.
    AWAITED = 64,
    // How many copies of at most TRI_SMALL_COPY_BYTES can be under way. The queue keeps their data,
    // so that the caller may change its own memory as soon as the call has returned.
    SMALL_ROOM = 64,
    // How many calls may be issued to a stream while it waits for a ticket that does not belong to
    // this device. The driver holds about 1,024 calls of all streams together, and blocks all
    // threads that issue more (see wait_for_answers).
    MOST_BEHIND = 320
};

typedef struct cuda_queue {
    tri_queue head;
    cuda_stream *stream;
    pthread_mutex_t lock;
    pthread_cond_t changed; // signalled when `asked`, `answered` or `stops` has changed

    bool captures; // work that is issued now is captured into a CUDA graph

    cuda_event *events[EVENTS]; // the event of ticket n is events[n mod EVENTS]
    uint64_t recorded;          // number of the newest ticket

    pthread_t thread; // the thread that waits for `awaited`
    bool has_thread, stops;
    // Tickets of other devices, of communicators or of storage, for which the stream waits. They
    // are numbered from 1; the one with number n is awaited[n mod AWAITED].
    tri_ticket awaited[AWAITED];
    // asked: the number of the newest ticket in `awaited`. answered: that of the newest one whose
    // work is done.
    uint64_t asked, answered;
    int behind;     // how many calls were issued while the stream was waiting for one of `awaited`
    uint32_t *word; // the low bits of `answered` in pinned memory: the stream waits for its value

    char *small;         // pinned memory for small copies: SMALL_ROOM rows of TRI_SMALL_COPY_BYTES
    uint64_t small_used; // how many small copies were issued since the start
    // The half of `small` that is not in use now may be used again once this ticket is done,
    // because all copies from that half are done then.
    tri_ticket small_done;

    tri_status status; // TRI_OK, or the failure of the first ticket of `awaited` that failed
    char message[TRI_MESSAGE_MAX_BYTES];
} cuda_queue;

static cuda_queue *queue_of(const tri_queue *queue) { return (cuda_queue *)(uintptr_t)queue; }
static cuda_device *device_of(const cuda_queue *q) { return cuda_of(q->head.device); }

// Waits until all tickets are done for which the stream waits. While a stream waits for something
// of the host, the calls that are issued to it pile up in the driver. Once the driver is full,
// calls for any stream block, in all threads. This would also block the thread for which the stream
// waits, and nothing would ever continue. So cuda_stream_of calls this function before the driver
// is full.
static void wait_for_answers(cuda_queue *q) {
    pthread_mutex_lock(&q->lock);
    while (q->answered != q->asked) pthread_cond_wait(&q->changed, &q->lock);
    pthread_mutex_unlock(&q->lock);
}

cuda_stream *cuda_stream_of(const tri_queue *queue) {
    cuda_queue *q = queue_of(queue);
    if (!q->has_thread) return q->stream;
    bool is_awaited = __atomic_load_n(&q->answered, __ATOMIC_ACQUIRE) != q->asked;
    q->behind = is_awaited ? q->behind + 1 : 0;
    if (q->behind < MOST_BEHIND) return q->stream;
    wait_for_answers(q);
    q->behind = 0;
    return q->stream;
}
void cuda_set_captures(tri_queue *queue, bool captures) { queue_of(queue)->captures = captures; }

// Fails if work of the queue is being captured, because `call` cannot be part of a CUDA graph. CUDA
// itself would give up the whole graph, or accept a call that would not mean the same in each
// repetition.
static tri_status check_capture(const cuda_queue *q, const char *call) {
    if (!q->captures) return TRI_OK;
    return TRI_FAIL(TRI_INTERNAL, "device cuda: a graph cannot contain %s", call);
}

// Turns the fault that a kernel has recorded into a failure with the message that the reference
// device `ref` has for such input. A kernel cannot return an error, so it writes into a cuda_fault
// what is wrong with its input. It sets `kind` last, so that the other fields are set once `kind`
// is seen.
static tri_status fault_of(const cuda_device *device) {
    const cuda_fault *fault = device->runtime->fault(device->context);
    switch (__atomic_load_n(&fault->kind, __ATOMIC_ACQUIRE)) {
    case CUDA_FAULT_LABEL:
        return TRI_FAIL(TRI_BAD_INPUT,
                        "label %" PRId64 " of sample %" PRId64
                        " of the micro-batch is no class: classes are 0 to %" PRId64
                        ", or -100 for none",
                        fault->value, fault->index, fault->limit - 1);
    case CUDA_FAULT_TOKEN:
        return TRI_FAIL(TRI_BAD_INPUT,
                        "token %" PRId64 " at position %" PRId64
                        " of the micro-batch is not in the vocabulary: tokens are 0 to %" PRId64,
                        fault->value, fault->index, fault->limit - 1);
    case CUDA_FAULT_INDEX:
        return ref_refuse_index(fault->value, fault->index, fault->limit);
    default:
        return TRI_OK;
    }
}

// Returns the first failure of the queue, or TRI_OK. Once a queue has failed, each later call
// returns that failure. The caller holds the lock.
static tri_status outcome(const cuda_queue *q) {
    return q->status == TRI_OK ? TRI_OK : TRI_FAIL(q->status, "%s", q->message);
}

static tri_status outcome_now(cuda_queue *q) {
    pthread_mutex_lock(&q->lock);
    tri_status status = outcome(q);
    pthread_mutex_unlock(&q->lock);
    return status;
}

// The queue's thread. It waits on the host for each ticket (work of another kind of queue, such as
// a communicator's operation) that the stream waits for, and then lets the stream go on, even if
// that work failed: otherwise the GPU would wait for ever. Later calls return the failure.
static void *answer_tickets(void *context) {
    cuda_queue *q = context;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (q->answered == q->asked && !q->stops) pthread_cond_wait(&q->changed, &q->lock);
        if (q->answered == q->asked) break;
        tri_ticket ticket = q->awaited[(q->answered + 1) % AWAITED];
        pthread_mutex_unlock(&q->lock);
        tri_status status = tri_ticket_wait(&ticket);
        pthread_mutex_lock(&q->lock);
        if (status != TRI_OK && q->status == TRI_OK) {
            q->status = status;
            snprintf(q->message, sizeof q->message, "%s", tri_error_message());
        }
        __atomic_store_n(&q->answered, q->answered + 1, __ATOMIC_RELEASE);
        __atomic_store_n(q->word, (uint32_t)q->answered, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static tri_status open_parts(cuda_queue *q, bool has_priority) {
    cuda_device *d = device_of(q);
    char why[CUDA_WHY_BYTES] = "";
    TRI_TRY(cuda_check(d->runtime->open_stream(d->context, has_priority, &q->stream, why),
                       "no stream", why));
    for (int i = 0; i < EVENTS; i++)
        TRI_TRY(
            cuda_check(d->runtime->open_event(d->context, &q->events[i], why), "no event", why));
    void *word, *small;
    TRI_TRY(cuda_check(d->runtime->alloc_host(d->context, sizeof *q->word, &word, why),
                       "no pinned memory", why));
    q->word = word;
    *q->word = 0;
    TRI_TRY(cuda_check(
        d->runtime->alloc_host(d->context, SMALL_ROOM * TRI_SMALL_COPY_BYTES, &small, why),
        "no pinned memory", why));
    q->small = small;
    return TRI_OK;
}

static tri_status open_queue(tri_device *device, bool has_priority, tri_queue **out) {
    cuda_queue *q = calloc(1, sizeof *q);
    *out = NULL;
    if (!q) return TRI_FAIL(TRI_NO_MEMORY, "device cuda: no memory");
    q->head.device = device;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    tri_status status = open_parts(q, has_priority);
    if (status != TRI_OK) {
        cuda_close_queue(&q->head);
        return status;
    }
    *out = &q->head;
    return TRI_OK;
}

tri_status cuda_open_queue(tri_device *device, tri_queue **out) {
    return open_queue(device, false, out);
}

tri_status cuda_open_priority_queue(tri_device *device, tri_queue **out) {
    return open_queue(device, true, out);
}

void cuda_close_queue(tri_queue *head) {
    if (!head) return;
    cuda_queue *q = queue_of(head);
    cuda_device *d = device_of(q);
    if (q->stream) d->runtime->close_stream(q->stream);
    pthread_mutex_lock(&q->lock);
    q->stops = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    if (q->has_thread) pthread_join(q->thread, NULL);
    for (int i = 0; i < EVENTS; i++)
        if (q->events[i]) d->runtime->close_event(q->events[i]);
    if (q->word) d->runtime->free_host(d->context, q->word);
    if (q->small) d->runtime->free_host(d->context, q->small);
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

// Returns the event of the ticket with this number. NULL: a newer ticket has taken over the event.
// Then the work of the older ticket is done, because cuda_record waits for it before it uses the
// event again.
static cuda_event *event_of(cuda_queue *q, uint64_t number) {
    uint64_t recorded = __atomic_load_n(&q->recorded, __ATOMIC_ACQUIRE);
    return recorded - number < EVENTS ? q->events[number % EVENTS] : NULL;
}

static tri_status wait_for(void *source, uint64_t number) {
    cuda_queue *q = source;
    char why[CUDA_WHY_BYTES] = "";
    cuda_event *event = event_of(q, number);
    tri_status status = event ? device_of(q)->runtime->finish(event, why) : TRI_OK;
    TRI_TRY(cuda_check(status, "cannot wait", why));
    TRI_TRY(fault_of(device_of(q)));
    return outcome_now(q);
}

static bool is_done(void *source, uint64_t number) {
    cuda_queue *q = source;
    cuda_event *event = event_of(q, number);
    return !event || device_of(q)->runtime->query(event) != CUDA_EVENT_PENDING;
}

static const tri_ticket_kind cuda_ticket = {.wait = wait_for, .is_done = is_done};

tri_status cuda_record(tri_queue *head, tri_ticket *out) {
    cuda_queue *q = queue_of(head);
    char why[CUDA_WHY_BYTES] = "";
    cuda_event *event = q->events[(q->recorded + 1) % EVENTS];
    TRI_TRY(check_capture(q, "a ticket"));
    // Tickets n - EVENTS and n use the same event. Before ticket n takes it over, the work of the
    // older ticket has to be done, because from then on event_of takes that ticket for done.
    tri_status status = device_of(q)->runtime->finish(event, why);
    TRI_TRY(cuda_check(status, "cannot wait", why));
    __atomic_store_n(&q->recorded, q->recorded + 1, __ATOMIC_RELEASE);
    TRI_TRY(cuda_check(device_of(q)->runtime->record(cuda_stream_of(head), event, why), "no ticket",
                       why));
    *out = (tri_ticket){&cuda_ticket, q, q->recorded};
    TRI_TRY(fault_of(device_of(q)));
    return outcome_now(q);
}

static tri_status start_thread(cuda_queue *q) {
    if (q->has_thread) return TRI_OK;
    TRI_TRY(tri_thread_demand(&q->thread, answer_tickets, q, "a queue of the device cuda"));
    q->has_thread = true;
    return TRI_OK;
}

static tri_status wait_foreign(cuda_queue *q, const tri_ticket *ticket) {
    char why[CUDA_WHY_BYTES] = "";
    TRI_TRY(start_thread(q));
    pthread_mutex_lock(&q->lock);
    while (q->asked - q->answered == AWAITED) pthread_cond_wait(&q->changed, &q->lock);
    q->asked++;
    q->awaited[q->asked % AWAITED] = *ticket;
    uint32_t number = (uint32_t)q->asked;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    return cuda_check(device_of(q)->runtime->wait_value(q->stream, q->word, number, why),
                      "cannot wait", why);
}

tri_status cuda_wait(tri_queue *head, const tri_ticket *ticket) {
    cuda_queue *q = queue_of(head), *other = ticket->source;
    char why[CUDA_WHY_BYTES] = "";
    TRI_TRY(outcome_now(q));
    if (!ticket->kind || other == q) return TRI_OK;
    TRI_TRY(check_capture(q, "a wait for another queue"));
    if (ticket->kind != &cuda_ticket || other->head.device != head->device)
        return tri_ticket_is_done(ticket) ? tri_ticket_wait(ticket) : wait_foreign(q, ticket);
    cuda_event *event = event_of(other, ticket->number);
    if (!event) return TRI_OK;
    return cuda_check(device_of(q)->runtime->wait(cuda_stream_of(head), event, why), "cannot wait",
                      why);
}

tri_status cuda_time(tri_queue *head, int64_t *ns) {
    const cuda_device *d = cuda_of(head->device);
    cuda_clock p = {.ns = ns, .offset_ns = d->runtime->clock_offset_ns(d->context)};
    CUDA_LAUNCH(head, clock, p);
    return TRI_OK;
}

static tri_status copy(cuda_queue *q, void *to, const void *from, size_t size_bytes) {
    char why[CUDA_WHY_BYTES] = "";
    return cuda_check(
        device_of(q)->runtime->copy(cuda_stream_of(&q->head), to, from, size_bytes, why),
        "cannot copy", why);
}

// Finds room for a copy of a small source, so that the caller can change its memory at once. The
// rows of `small` are used in turn. Before one half of them is used again, all copies from that
// half have to be done.
static tri_status next_small(cuda_queue *q, char **out) {
    uint64_t row = q->small_used++ % SMALL_ROOM;
    if (row % (SMALL_ROOM / 2) == 0) {
        tri_ticket done = q->small_done;
        TRI_TRY(cuda_record(&q->head, &q->small_done));
        TRI_TRY(tri_ticket_wait(&done));
    }
    *out = q->small + row * TRI_SMALL_COPY_BYTES;
    return TRI_OK;
}

tri_status cuda_copy_in(tri_queue *head, void *to, const void *from, size_t size_bytes) {
    cuda_queue *q = queue_of(head);
    TRI_TRY(outcome_now(q));
    TRI_TRY(check_capture(q, "a copy from the host"));
    if (size_bytes == 0) return TRI_OK;
    if (size_bytes <= TRI_SMALL_COPY_BYTES) {
        char *row;
        TRI_TRY(next_small(q, &row));
        memcpy(row, from, size_bytes);
        from = row;
    }
    return copy(q, to, from, size_bytes);
}

tri_status cuda_copy_in_later(tri_queue *head, void *to, const void *from, size_t size_bytes) {
    cuda_queue *q = queue_of(head);
    TRI_TRY(outcome_now(q));
    TRI_TRY(check_capture(q, "a copy from the host"));
    return size_bytes ? copy(q, to, from, size_bytes) : TRI_OK;
}

tri_status cuda_copy_out(tri_queue *head, void *to, const void *from, size_t size_bytes) {
    cuda_queue *q = queue_of(head);
    TRI_TRY(outcome_now(q));
    TRI_TRY(check_capture(q, "a copy to the host"));
    return size_bytes ? copy(q, to, from, size_bytes) : TRI_OK;
}

tri_status cuda_copy_within(tri_queue *head, void *to, const void *from, size_t size_bytes) {
    cuda_queue *q = queue_of(head);
    TRI_TRY(outcome_now(q));
    return size_bytes ? copy(q, to, from, size_bytes) : TRI_OK;
}

tri_status cuda_zero(tri_queue *head, void *memory, size_t size_bytes) {
    cuda_queue *q = queue_of(head);
    char why[CUDA_WHY_BYTES] = "";
    TRI_TRY(outcome_now(q));
    if (size_bytes == 0) return TRI_OK;
    return cuda_check(device_of(q)->runtime->zero(cuda_stream_of(head), memory, size_bytes, why),
                      "cannot zero", why);
}

tri_status cuda_add(tri_queue *head, float *to, const float *from, int64_t count) {
    TRI_TRY(outcome_now(queue_of(head)));
    cuda_pointwise p = {.function = CUDA_ADD,
                        .a_type = TRI_F32,
                        .b_type = TRI_F32,
                        .out_type = TRI_F32,
                        .a = to,
                        .b = from,
                        .out = to,
                        .count = count};
    CUDA_LAUNCH(head, pointwise, p);
    return TRI_OK;
}
