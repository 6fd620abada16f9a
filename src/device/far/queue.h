// A queue of the test device `far`: does work in order on its own thread, so that work is done
// later than it is issued, as on a GPU.
#ifndef TRIREME_DEVICE_FAR_QUEUE_H
#define TRIREME_DEVICE_FAR_QUEUE_H

#include "device/device.h"

typedef struct far_queue far_queue;

// One item of work: the function `run`, and its arguments. Each kind of work uses only some of the
// arguments. Addresses are those of the inner device (the CPU), whose queue `run` gets as `inner`.
typedef struct far_work {
    tri_status (*run)(tri_queue *inner, struct far_work *work);
    const tri_kernel *kernel;
    void *in[TRI_MAX_INPUTS], *out[TRI_MAX_OUTPUTS];
    void *to, *workspace;
    const void *from;
    size_t size_bytes;
    int64_t count;
    tri_ticket ticket;
    // The data of a small copy_in, because the caller may change its own memory at once.
    char small[TRI_SMALL_COPY_BYTES];
} far_work;

typedef struct far_delays {
    int64_t most_us; // the longest time to sleep before the work; 0: no sleep
    uint64_t seed;
} far_delays;

tri_status far_queue_open(tri_device *device, tri_device *inner, far_delays delays,
                          tri_queue **out);
void far_queue_close(tri_queue *queue);
// Adds a copy of the work to the queue. Fails if earlier work of the queue has failed; blocks while
// the queue is full.
tri_status far_queue_push(tri_queue *queue, const far_work *work);
// Implements tri_device_backend.record.
tri_status far_queue_record(tri_queue *queue, tri_ticket *out);

#endif
