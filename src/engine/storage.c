// Offloaded training state, in a file or in memory of the host, and the thread that reads and
// writes it while the device computes. The thread has a queue. An item of the queue is a transfer,
// a function to call (the optimizer, where the host's CPU runs it), or a ticket to wait for, which
// stands for work of a device or a communicator.
#include "engine/storage.h"

#include "base/log.h"
#include "base/os.h"
#include "base/thread.h"
#include "device/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

enum { QUEUE = 64, BUFFER_BYTES = 4 << 20 };

typedef struct item {
    tri_storage_op op;
    const char *label;
    tri_ticket after;      // if set, the item has no op: the thread waits for this ticket
    tri_storage_work work; // if set, the item has no op: the thread runs this function
} item;

struct tri_storage {
    int fd, rank, lane;
    char path[PATH_MAX]; // path of the file
    tri_device *device;
    char *memory; // memory of the host that holds the state; NULL: the file holds it
    tri_ledger *ledger;
    pthread_t thread;
    bool has_thread;
    // The thread has its own queue for copies to and from device memory that the host cannot use,
    // so that these copies do not wait for kernels that the device has to run.
    tri_queue *copies;
    char *buffer;

    pthread_mutex_t lock;
    pthread_cond_t more, less; // signalled when an item was added, and when an item is done
    item queue[QUEUE];         // item n is queue[n mod QUEUE]
    uint64_t added, done;      // how many items were added so far, and how many of them are done
    bool stops;
    tri_status status; // TRI_OK, or the first failure
    char message[TRI_MESSAGE_MAX_BYTES];
};

static tri_status named(const tri_storage *s, tri_status status) {
    return tri_status_context(status, "rank %d: strategy.offload", s->rank);
}

static tri_status open_file(tri_storage *s, const char *folder) {
    int length = snprintf(s->path, sizeof s->path, "%s/trireme-offload-%d-%ld-%llx", folder,
                          s->rank, (long)getpid(), (unsigned long long)tri_os.monotonic_ns());
    if (length >= (int)sizeof s->path)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: the path is too long", folder);
    s->fd = tri_os.open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (s->fd < 0) return tri_os_fail("create", s->path);
    if (tri_os.unlink(s->path) < 0) return tri_os_fail("remove the name of", s->path);
    return TRI_OK;
}

// Reserves the space on the disk in advance, so that it cannot run out in the middle of a run. If
// the file system cannot do that, the file gets its length without space, and a later write may
// fail.
static tri_status take_space(const tri_storage *s, int64_t size_bytes) {
    int result;
    do result = tri_os.fallocate(s->fd, 0, 0, size_bytes);
    while (result < 0 && errno == EINTR);
    if (result < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
        result = tri_os.ftruncate(s->fd, size_bytes);
    if (result == 0) return TRI_OK;
    bool is_too_large = errno == EFBIG;
    tri_status status = tri_os_fail("take its space", s->path);
    if (is_too_large) status = TRI_NO_SPACE;
    return tri_status_context(status, "%.1f MiB for strategy.offload_path",
                              (double)size_bytes / (1 << 20));
}

static void warn_of_memory(const tri_storage *s, const char *folder) {
    struct statfs info;
    if (s->rank == 0 && fstatfs(s->fd, &info) == 0 && info.f_type == TMPFS_MAGIC)
        tri_log_line(
            TRI_LOG_WARNING,
            "strategy.offload_path: %s is memory (tmpfs); a folder on a disk would save some",
            folder);
}

static tri_status transfer(const tri_storage *s, const tri_storage_op *op) {
    size_t size = (size_t)op->size_bytes;
    if (s->memory) {
        char *held = s->memory + op->offset;
        memcpy(op->writes ? held : op->memory, op->writes ? op->memory : held, size);
        return TRI_OK;
    }
    return op->writes ? tri_os_pwrite_all(s->fd, op->memory, size, op->offset, s->path)
                      : tri_os_pread_all(s->fd, op->memory, size, op->offset, s->path);
}

static tri_status transfer_by_buffer(const tri_storage *s, const tri_storage_op *op) {
    for (int64_t at = 0; at < op->size_bytes; at += BUFFER_BYTES) {
        int64_t left = op->size_bytes - at;
        tri_storage_op part = {.writes = op->writes,
                               .memory = s->buffer,
                               .offset = op->offset + at,
                               .size_bytes = left < BUFFER_BYTES ? left : BUFFER_BYTES};
        char *memory = (char *)op->memory + at;
        size_t size = (size_t)part.size_bytes;
        if (op->writes) TRI_TRY(tri_queue_read(s->copies, s->buffer, memory, size));
        TRI_TRY(transfer(s, &part));
        if (!op->writes) TRI_TRY(tri_queue_write(s->copies, memory, s->buffer, size));
    }
    return TRI_OK;
}

// Copies directly between `op->memory`, which is the device's, and the host's memory that holds the
// state, without the buffer.
static tri_status transfer_by_queue(const tri_storage *s, const tri_storage_op *op) {
    char *held = s->memory + op->offset;
    size_t size = (size_t)op->size_bytes;
    return op->writes ? tri_queue_read(s->copies, held, op->memory, size)
                      : tri_queue_write(s->copies, op->memory, held, size);
}

static tri_status transfer_on_device(const tri_storage *s, const tri_storage_op *op) {
    return s->memory ? transfer_by_queue(s, op) : transfer_by_buffer(s, op);
}

static tri_status do_op(tri_storage *s, const item *it) {
    tri_ledger_mark mark =
        tri_ledger_begin(s->ledger, &(tri_ledger_action){.kind = it->op.writes ? "write" : "read",
                                                         .label = it->label,
                                                         .lane = s->lane,
                                                         .subject = -1,
                                                         .round = -1,
                                                         .bytes = it->op.size_bytes});
    tri_status status = it->op.on_device ? transfer_on_device(s, &it->op) : transfer(s, &it->op);
    tri_ledger_end(s->ledger, mark);
    return status;
}

static tri_status do_work(tri_storage *s, const tri_storage_work *work) {
    tri_ledger_mark mark =
        tri_ledger_begin(s->ledger, &(tri_ledger_action){.kind = work->kind,
                                                         .label = work->label,
                                                         .lane = s->lane,
                                                         .subject = work->subject,
                                                         .round = -1});
    tri_status status = work->run(work->context, work->subject);
    tri_ledger_end(s->ledger, mark);
    return status;
}

static tri_status carry_out(tri_storage *s, const item *it) {
    if (it->after.kind) return tri_ticket_wait(&it->after);
    return it->work.run ? do_work(s, &it->work) : do_op(s, it);
}

static void do_item(tri_storage *s, const item *it) {
    tri_status status = carry_out(s, it);
    if (status == TRI_OK) return;
    // TRI_CORRUPT: the file ended before all bytes were read. It was made with its full length, so
    // this is a failure of the disk.
    if (status == TRI_CORRUPT) status = TRI_IO;
    if (!it->after.kind) named(s, status);
    pthread_mutex_lock(&s->lock);
    s->status = status;
    snprintf(s->message, sizeof s->message, "%s", tri_error_message());
    pthread_mutex_unlock(&s->lock);
}

static void *work(void *context) {
    tri_storage *s = context;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->done == s->added && !s->stops) pthread_cond_wait(&s->more, &s->lock);
        if (s->done == s->added) break;
        item it = s->queue[s->done % QUEUE];
        bool failed = s->status != TRI_OK;
        pthread_mutex_unlock(&s->lock);
        if (!failed) do_item(s, &it);
        pthread_mutex_lock(&s->lock);
        s->done++;
        pthread_cond_broadcast(&s->less);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static tri_status start_thread(tri_storage *s) {
    TRI_TRY(tri_thread_demand(&s->thread, work, s, "the storage"));
    s->has_thread = true;
    return TRI_OK;
}

static tri_status take_memory(tri_storage *s, int64_t size_bytes) {
    void *memory = NULL;
    tri_status status = s->device->backend->alloc_host(s->device, (size_t)size_bytes, &memory);
    s->memory = memory;
    if (status != TRI_OK)
        tri_status_context(status, "give strategy.offload_path, the folder of a disk");
    return status;
}

// Makes the file, and reserves its space. The file's name is removed at once, so that the system
// frees the space when the process ends.
static tri_status take_file(tri_storage *s, const tri_storage_config *config) {
    const char *folder = config->folder && *config->folder ? config->folder : NULL;
    if (folder) TRI_TRY(tri_os_make_folders(folder));
    bool is_chosen = folder;
    // If the folder TMPDIR does not exist, it is not created: it may belong to a disk that is not
    // mounted, and then the file would lie on another disk than the user meant.
    if (!folder) folder = getenv("TMPDIR");
    if (!folder || !*folder) folder = "/tmp";
    tri_status status = open_file(s, folder);
    if (status != TRI_OK) return is_chosen ? status : tri_status_context(status, "TMPDIR");
    warn_of_memory(s, folder);
    return take_space(s, config->size_bytes);
}

static tri_status open_storage(tri_storage *s, const tri_storage_config *config) {
    TRI_TRY(config->in_host_memory ? take_memory(s, config->size_bytes) : take_file(s, config));
    if (s->device && !s->device->backend->host_memory) {
        TRI_TRY(tri_queue_open(s->device, &s->copies));
        // If the state lies in the host's memory, copies to and from it need no buffer in between.
        if (!s->memory) s->buffer = malloc(BUFFER_BYTES);
        if (!s->memory && !s->buffer) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a buffer");
    }
    return start_thread(s);
}

tri_status tri_storage_open(const tri_storage_config *config, tri_storage **out) {
    tri_storage *s = calloc(1, sizeof *s);
    if (!s) return TRI_FAIL(TRI_NO_MEMORY, "no memory for strategy.offload");
    s->fd = -1;
    s->rank = config->rank;
    s->device = config->device;
    s->ledger = config->ledger;
    s->lane = config->ledger ? tri_ledger_lane(config->ledger, "store") : 0;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->more, NULL);
    pthread_cond_init(&s->less, NULL);
    tri_status status = open_storage(s, config);
    if (status != TRI_OK) {
        named(s, status);
        tri_storage_close(s);
        return status;
    }
    *out = s;
    return TRI_OK;
}

void tri_storage_close(tri_storage *s) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->stops = true;
    pthread_cond_broadcast(&s->more);
    pthread_mutex_unlock(&s->lock);
    if (s->has_thread) pthread_join(s->thread, NULL);
    tri_queue_close(s->copies);
    free(s->buffer);
    if (s->memory) s->device->backend->free_host(s->device, s->memory);
    if (s->fd >= 0) tri_os.close(s->fd);
    pthread_cond_destroy(&s->more);
    pthread_cond_destroy(&s->less);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

// Returns the first failure, or TRI_OK. After a failure every call returns it, because the contents
// of the file are not known any more. The caller holds the lock.
static tri_status outcome(const tri_storage *s) {
    return s->status == TRI_OK ? TRI_OK : TRI_FAIL(s->status, "%s", s->message);
}

// Adds an item to the queue; waits while the queue is full. The caller holds the lock.
static void push(tri_storage *s, item it) {
    while (s->added - s->done == QUEUE) pthread_cond_wait(&s->less, &s->lock);
    s->queue[s->added++ % QUEUE] = it;
    pthread_cond_signal(&s->more);
}

tri_status tri_storage_after(tri_storage *s, const tri_ticket *ticket) {
    if (tri_ticket_is_done(ticket)) return tri_ticket_wait(ticket);
    pthread_mutex_lock(&s->lock);
    push(s, (item){.after = *ticket});
    tri_status status = outcome(s);
    pthread_mutex_unlock(&s->lock);
    return status;
}

tri_status tri_storage_start(tri_storage *s, const tri_storage_op *ops, int count,
                             const char *label, uint64_t *ticket) {
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < count; i++) push(s, (item){.op = ops[i], .label = label});
    *ticket = s->added;
    tri_status status = outcome(s);
    pthread_mutex_unlock(&s->lock);
    return status;
}

tri_status tri_storage_call(tri_storage *s, const tri_storage_work *work, uint64_t *ticket) {
    pthread_mutex_lock(&s->lock);
    push(s, (item){.work = *work});
    *ticket = s->added;
    tri_status status = outcome(s);
    pthread_mutex_unlock(&s->lock);
    return status;
}

char *tri_storage_memory(const tri_storage *s) { return s->memory; }

// Records the wait in the ledger (the rank's record of its actions) if the calling thread is the
// one that runs the steps. Threads of queues wait for the storage too; they record nothing, because
// only the thread that runs the steps may write to the ledger's compute lane.
static tri_ledger_mark record_wait(tri_storage *s) {
    if (!tri_ledger_is_compute_thread(s->ledger)) return (tri_ledger_mark){0};
    return tri_ledger_begin(
        s->ledger, &(tri_ledger_action){
                       .kind = "STORAGE", .lane = TRI_LANE_OF_COMPUTE, .subject = -1, .round = -1});
}

tri_status tri_storage_wait(tri_storage *s, uint64_t ticket) {
    pthread_mutex_lock(&s->lock);
    if (s->done < ticket) {
        tri_ledger_mark mark = record_wait(s);
        while (s->done < ticket) pthread_cond_wait(&s->less, &s->lock);
        tri_ledger_end(s->ledger, mark);
    }
    tri_status status = outcome(s);
    pthread_mutex_unlock(&s->lock);
    return status;
}

bool tri_storage_is_done(tri_storage *s, uint64_t ticket) {
    pthread_mutex_lock(&s->lock);
    bool is_done = s->done >= ticket;
    pthread_mutex_unlock(&s->lock);
    return is_done;
}

tri_status tri_storage_run(tri_storage *s, const tri_storage_op *op, const char *label) {
    uint64_t ticket;
    TRI_TRY(tri_storage_start(s, op, 1, label, &ticket));
    return tri_storage_wait(s, ticket);
}
