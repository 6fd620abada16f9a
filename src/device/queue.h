// Queues of devices whose work is done when a call returns, and functions for any queue.
#ifndef TRIREME_DEVICE_QUEUE_H
#define TRIREME_DEVICE_QUEUE_H

#include "device/device.h"

// Four functions of tri_device_backend for a device whose work is done when a call returns, so that
// it needs no queues of its own. Its tickets are always done. Waiting for a ticket of another
// device blocks the caller.
tri_status tri_queue_open_immediate(tri_device *device, tri_queue **out);
void tri_queue_close_immediate(tri_queue *queue);
tri_status tri_queue_record_nothing(tri_queue *queue, tri_ticket *out);
tri_status tri_queue_wait_here(tri_queue *queue, const tri_ticket *ticket);

tri_status tri_queue_open(tri_device *device, tri_queue **out);
void tri_queue_close(tri_queue *queue); // NULL allowed
// Blocks until all work issued to the queue is done. Returns the work's failure, if any.
tri_status tri_queue_finish(tri_queue *queue);
// Sets *ns to the time at which all work issued so far is done. On a device that works
// asynchronously, the device itself writes *ns when the queue gets there, so *ns has to lie in
// memory of alloc_host, if the device has that function. On other devices *ns is set at once.
tri_status tri_queue_time(tri_queue *queue, int64_t *ns);
// Copy as copy_in and copy_out do, but wait until the copy, and all work issued before it, is done.
// They are used outside of steps, where waiting costs nothing.
tri_status tri_queue_write(tri_queue *queue, void *to, const void *from_host, size_t size_bytes);
tri_status tri_queue_read(tri_queue *queue, void *to_host, const void *from, size_t size_bytes);

#endif
