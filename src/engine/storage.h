// Keeps offloaded training state between its uses, so that it takes no memory of the device
// meanwhile: in a local file or, for a device with memory of its own, in memory of the host. A
// thread of the storage reads and writes the state while the engine computes; the engine starts
// these transfers in actions of the step and waits for them later. The name of the file is removed
// once the file is open, so that the space on the disk is free again when the process ends, however
// it ends.
#ifndef TRIREME_ENGINE_STORAGE_H
#define TRIREME_ENGINE_STORAGE_H

#include "base/ledger.h"
#include "device/device.h"

typedef struct tri_storage tri_storage;

typedef struct tri_storage_config {
    bool in_host_memory; // the storage is not a file but host memory from the device's alloc_host
    const char *folder;  // created if it does not exist; NULL: TMPDIR (which must exist), or /tmp
    // Size of the storage. Its disk space is reserved at once if the file system can do that; its
    // contents are zeros at first.
    int64_t size_bytes;
    int rank;           // number of this rank, for error messages
    tri_ledger *ledger; // records transfers in a lane (row of a trace) of their own
    tri_device *device; // the device of operations with `on_device`; NULL: all memory is the host's
} tri_storage_config;

// A transfer between memory and the storage.
typedef struct tri_storage_op {
    bool writes;    // true: from memory to the storage; false: from the storage to memory
    bool on_device; // `memory` belongs to the device, and the host cannot use it
    void *memory;   // must stay valid until the caller has waited for the operation
    int64_t offset, size_bytes; // where in the storage, in bytes, and how many bytes
} tri_storage_op;

// TRI_BAD_INPUT or TRI_NOT_FOUND: no file can be made in that folder. TRI_NO_SPACE: the disk has no
// room for a file of that size. TRI_NO_MEMORY: the host has too little memory.
tri_status tri_storage_open(const tri_storage_config *config, tri_storage **out);
// Closes the storage after waiting for what is under way. NULL allowed.
void tri_storage_close(tri_storage *storage);
// Starts `count` operations, which read or write. `label` names the work in traces and in messages
// about what the rank does; tri_storage_wait waits for *ticket. Operations are done one after the
// other, in the order in which they were started, so that a read finds what was written before. The
// ops are copied. Only one thread may call this; it blocks while the queue is full. After a failure
// every later call fails with the same message, because the contents of the file are not known any
// more.
tri_status tri_storage_start(tri_storage *storage, const tri_storage_op *ops, int count,
                             const char *label, uint64_t *ticket);
// The host's memory that holds the state; NULL: a file holds it.
char *tri_storage_memory(const tri_storage *storage);
// Work for the storage's thread: a function that changes the stored state where it lies. `kind` and
// `label` name the work in traces and messages. tri_storage_call starts such work as
// tri_storage_start starts transfers.
typedef struct tri_storage_work {
    tri_status (*run)(void *context, int subject);
    void *context;
    int subject;
    const char *kind, *label;
} tri_storage_work;
tri_status tri_storage_call(tri_storage *storage, const tri_storage_work *work, uint64_t *ticket);
// Makes all operations that are started from now on begin after the work for which the ticket
// stands, such as kernels that compute what is written. The host need not wait for this work.
tri_status tri_storage_after(tri_storage *storage, const tri_ticket *ticket);
// Waits until the operations of the ticket, which tri_storage_start or tri_storage_call gave, are
// done. TRI_IO, TRI_NO_SPACE: the message names rank and file.
tri_status tri_storage_wait(tri_storage *storage, uint64_t ticket);
// True if the operations of the ticket are done or have failed. Never blocks.
bool tri_storage_is_done(tri_storage *storage, uint64_t ticket);
// Starts one operation and waits for it.
tri_status tri_storage_run(tri_storage *storage, const tri_storage_op *op, const char *label);

#endif
