// Queues of the test device `far`: work is copied into a ring buffer, and the queue's own thread
// does it in order, by calls of the inner device (the CPU).
#include "device/far/queue.h"

#include "base/philox.h"
#include "base/thread.h"
#include "device/queue.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { RING = 512 };

struct far_queue {
    tri_queue head;
    tri_queue *inner; // a queue of the inner device, to which the thread issues the work
    far_delays delays;
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock;
    pthread_cond_t more, less; // more: signalled when work was added; less: when work was done
    far_work ring[RING];       // work n is ring[n mod RING]
    // Since the start: how many items were issued, and how many are done. `done` is read without
    // the lock, too, by threads that look again and again.
    uint64_t issued;
    _Atomic uint64_t done;
    uint64_t awaited;  // `less` is signalled once so many are done; UINT64_MAX: no one waits
    bool stops;        // the thread ends once all work is done
    tri_status status; // TRI_OK, or the first failure; work after a failure is not done
    char message[TRI_MESSAGE_MAX_BYTES];
};

static far_queue *queue_of(tri_queue *head) { return (far_queue *)head; }

// Sleeps before one item in four. To sleep before each would not shuffle them more, and with short
// sleeps the system would be busy with threads that go to sleep and wake up.
static void sleep_at_random(const far_queue *q, uint64_t number) {
    uint32_t word = tri_philox_at(q->delays.seed, 0, 0, number);
    if (word % 4 == 0) usleep((useconds_t)(word / 4 % (uint64_t)(q->delays.most_us + 1)));
}

static void *work_off(void *context) {
    far_queue *q = context;
    prctl(PR_SET_NAME, "far queue");
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (q->done == q->issued && !q->stops) pthread_cond_wait(&q->more, &q->lock);
        if (q->done == q->issued) break;
        far_work *work = &q->ring[q->done % RING];
        tri_status status = q->status;
        pthread_mutex_unlock(&q->lock);
        if (status == TRI_OK) {
            if (q->delays.most_us) sleep_at_random(q, q->done);
            status = work->run(q->inner, work);
        }
        pthread_mutex_lock(&q->lock);
        if (status != TRI_OK && q->status == TRI_OK) {
            q->status = status;
            snprintf(q->message, sizeof q->message, "%s", tri_error_message());
        }
        q->done++;
        if (q->done >= q->awaited) {
            q->awaited = UINT64_MAX; // those that still wait say so again
            pthread_cond_broadcast(&q->less);
        }
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

// Waits until so many items are done. The caller holds the lock.
static void await(far_queue *q, uint64_t number) {
    while (q->done < number) {
        if (number < q->awaited) q->awaited = number;
        pthread_cond_wait(&q->less, &q->lock);
    }
}

// Returns the first failure of the queue's work, or TRI_OK. After a failure every call returns it,
// because later work would use the results of the failed work. The caller holds the lock.
static tri_status outcome(const far_queue *q) {
    return q->status == TRI_OK ? TRI_OK : TRI_FAIL(q->status, "%s", q->message);
}

tri_status far_queue_open(tri_device *device, tri_device *inner, far_delays delays,
                          tri_queue **out) {
    far_queue *q = calloc(1, sizeof *q);
    *out = NULL;
    if (!q) return TRI_FAIL(TRI_NO_MEMORY, "device far: no memory");
    q->head.device = device;
    q->delays = delays;
    q->awaited = UINT64_MAX;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->more, NULL);
    pthread_cond_init(&q->less, NULL);
    tri_status status = tri_queue_open(inner, &q->inner);
    if (status == TRI_OK)
        status = tri_thread_demand(&q->thread, work_off, q, "a queue of the device far");
    q->has_thread = status == TRI_OK;
    if (status != TRI_OK) {
        far_queue_close(&q->head);
        return status;
    }
    *out = &q->head;
    return TRI_OK;
}

void far_queue_close(tri_queue *head) {
    far_queue *q = queue_of(head);
    pthread_mutex_lock(&q->lock);
    q->stops = true;
    pthread_cond_broadcast(&q->more);
    pthread_mutex_unlock(&q->lock);
    if (q->has_thread) pthread_join(q->thread, NULL);
    tri_queue_close(q->inner);
    pthread_cond_destroy(&q->more);
    pthread_cond_destroy(&q->less);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

tri_status far_queue_push(tri_queue *head, const far_work *work) {
    far_queue *q = queue_of(head);
    pthread_mutex_lock(&q->lock);
    if (q->issued >= RING) await(q, q->issued - RING + 1);
    q->ring[q->issued++ % RING] = *work;
    tri_status status = outcome(q);
    pthread_mutex_unlock(&q->lock);
    pthread_cond_signal(&q->more);
    return status;
}

static tri_status wait_for(void *source, uint64_t number) {
    far_queue *q = source;
    pthread_mutex_lock(&q->lock);
    await(q, number);
    tri_status status = outcome(q);
    pthread_mutex_unlock(&q->lock);
    return status;
}

static bool is_done(void *source, uint64_t number) {
    const far_queue *q = source;
    return q->done >= number;
}

static const tri_ticket_kind far_ticket = {.wait = wait_for, .is_done = is_done};

tri_status far_queue_record(tri_queue *head, tri_ticket *out) {
    far_queue *q = queue_of(head);
    pthread_mutex_lock(&q->lock);
    *out = (tri_ticket){&far_ticket, q, q->issued};
    tri_status status = outcome(q);
    pthread_mutex_unlock(&q->lock);
    return status;
}
