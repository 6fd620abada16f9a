// Queues of devices whose work is done when a call returns, and functions for any queue. See
// queue.h.
#include "device/queue.h"

#include "base/os.h"

#include <stdlib.h>

tri_status tri_queue_open_immediate(tri_device *device, tri_queue **out) {
    *out = malloc(sizeof **out);
    if (!*out) return TRI_FAIL(TRI_NO_MEMORY, "device %s: no memory", device->backend->name);
    **out = (tri_queue){device};
    return TRI_OK;
}

void tri_queue_close_immediate(tri_queue *queue) { free(queue); }

tri_status tri_queue_record_nothing(tri_queue *queue, tri_ticket *out) {
    (void)queue;
    *out = (tri_ticket){0};
    return TRI_OK;
}

tri_status tri_queue_wait_here(tri_queue *queue, const tri_ticket *ticket) {
    (void)queue;
    return tri_ticket_wait(ticket);
}

tri_status tri_queue_open(tri_device *device, tri_queue **out) {
    return device->backend->open_queue(device, out);
}

void tri_queue_close(tri_queue *queue) {
    if (queue) queue->device->backend->close_queue(queue);
}

tri_status tri_queue_finish(tri_queue *queue) {
    tri_ticket ticket;
    TRI_TRY(queue->device->backend->record(queue, &ticket));
    return tri_ticket_wait(&ticket);
}

tri_status tri_queue_time(tri_queue *queue, int64_t *ns) {
    if (queue->device->backend->time) return queue->device->backend->time(queue, ns);
    *ns = tri_os.monotonic_ns();
    return TRI_OK;
}

tri_status tri_queue_write(tri_queue *queue, void *to, const void *from_host, size_t size_bytes) {
    TRI_TRY(queue->device->backend->copy_in(queue, to, from_host, size_bytes));
    return tri_queue_finish(queue);
}

tri_status tri_queue_read(tri_queue *queue, void *to_host, const void *from, size_t size_bytes) {
    TRI_TRY(queue->device->backend->copy_out(queue, to_host, from, size_bytes));
    return tri_queue_finish(queue);
}
