// The transport `mpi`: messages over the site's MPI, using only functions of MPI-3. It is a module:
// a shared object that the program loads when a run needs it.
//
// The ranks are those of MPI_COMM_WORLD. MPI has to allow calls from several threads in turn
// (MPI_THREAD_SERIALIZED). MPI cannot be started twice in one process, so it is ended only at the
// end of the process: by MPI_Finalize if all went well, else by MPI_Abort, which ends all ranks.
#include "base/module.h"
#include "comm/message/transport.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// How long a rank that failed waits before it calls MPI_Abort, which ends all ranks. Meanwhile the
// others can report the failure, of which they were told.
enum { ABORT_DELAY_US = 500000 };

struct tri_transport_end {
    MPI_Comm comm;
    // Requests that MPI has not finished. The handles are in one array, as MPI_Testsome demands,
    // and the requests to which they belong in another.
    MPI_Request *handles;
    tri_transport_request **pending;
    bool *is_receive;
    int *indices;
    MPI_Status *statuses;
    int pending_count, pending_capacity;
    char (*loss)[MPI_MAX_ERROR_STRING + 32]; // loss[r]: why rank r is lost; "": it is not
    int *sent_to;                            // sent_to[r]: how many messages were sent to rank r
    int received;                            // how many messages were received from all ranks
    bool moved;
};

// True once a tri_transport_end was stopped, or closed after a failure: then the process calls
// MPI_Abort when it ends, because MPI_Finalize could wait for ranks that are lost.
static bool has_failed;
// True once mpi_stop, which ends all requests after a failure, found sends that MPI had not
// finished. MPI cannot take back a send, and the caller may free its memory after mpi_stop. Any
// later call of MPI, also for another communicator of this process, could go on with that send and
// read the freed memory. So MPI is not called any more, except to end all ranks. Other ranks may
// still read the memory themselves, over RDMA or, on this host, through the kernel. That cannot
// harm this process, and they do not use what they read, because a failure of one rank makes the
// communicator fail on all ranks.
static bool is_silent;

static tri_status refuse(char *why, const char *call, int code) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(code, text, &length);
    snprintf(why, TRI_TRANSPORT_WHY_BYTES, "%s: %.300s", call, text);
    return TRI_NETWORK;
}

static void end_mpi(int status, void *argument) {
    int is_over = 0;
    MPI_Finalized(&is_over);
    if (is_over) return;
    if (!has_failed) {
        MPI_Finalize();
        return;
    }
    usleep(ABORT_DELAY_US);
    MPI_Abort(MPI_COMM_WORLD, status ? status : 1);
}

static tri_status start_mpi(char *why) {
    int is_started = 0, level = 0;
    MPI_Initialized(&is_started);
    if (!is_started) {
        int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
        if (code != MPI_SUCCESS) return refuse(why, "MPI_Init_thread", code);
        (void)on_exit(end_mpi, NULL);
    }
    MPI_Query_thread(&level);
    if (level >= MPI_THREAD_SERIALIZED) return TRI_OK;
    snprintf(why, TRI_TRANSPORT_WHY_BYTES,
             "this MPI allows calls from one thread only (thread level %d); choose another "
             "comm.backend, or an MPI with MPI_THREAD_SERIALIZED",
             level);
    return TRI_UNSUPPORTED;
}

static void free_end(tri_transport_end *end) {
    free(end->handles);
    free(end->pending);
    free(end->is_receive);
    free(end->indices);
    free(end->statuses);
    free(end->loss);
    free(end->sent_to);
    free(end);
}

static bool grow(tri_transport_end *end) {
    if (end->pending_count < end->pending_capacity) return true;
    size_t count = end->pending_capacity ? 2 * (size_t)end->pending_capacity : 64;
    void *handles = realloc(end->handles, count * sizeof *end->handles);
    if (handles) end->handles = handles;
    void *pending = realloc(end->pending, count * sizeof *end->pending);
    if (pending) end->pending = pending;
    void *is_receive = realloc(end->is_receive, count * sizeof *end->is_receive);
    if (is_receive) end->is_receive = is_receive;
    void *indices = realloc(end->indices, count * sizeof *end->indices);
    if (indices) end->indices = indices;
    void *statuses = realloc(end->statuses, count * sizeof *end->statuses);
    if (statuses) end->statuses = statuses;
    if (!handles || !pending || !is_receive || !indices || !statuses) return false;
    end->pending_capacity = (int)count;
    return true;
}

static tri_status mpi_open(const tri_transport_job *job, tri_transport_end **out, char *why) {
    int rank, size;
    *out = NULL;
    tri_status status = start_mpi(why);
    if (status != TRI_OK) return status;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank != job->rank || size != job->size) {
        snprintf(why, TRI_TRANSPORT_WHY_BYTES,
                 "for MPI this is rank %d of %d; start the ranks with an MPI launcher (mpirun, or "
                 "srun --mpi=pmix) that belongs to this MPI",
                 rank, size);
        return TRI_BAD_INPUT;
    }
    tri_transport_end *end = calloc(1, sizeof *end);
    if (end) end->loss = calloc((size_t)size, sizeof *end->loss);
    if (end) end->sent_to = calloc((size_t)size, sizeof *end->sent_to);
    if (!end || !end->loss || !end->sent_to || !grow(end)) {
        if (end) free_end(end);
        snprintf(why, TRI_TRANSPORT_WHY_BYTES, "no memory");
        return TRI_NO_MEMORY;
    }
    int code = MPI_Comm_dup(MPI_COMM_WORLD, &end->comm);
    if (code != MPI_SUCCESS) {
        free_end(end);
        return refuse(why, "MPI_Comm_dup", code);
    }
    MPI_Comm_set_errhandler(end->comm, MPI_ERRORS_RETURN);
    *out = end;
    return TRI_OK;
}

static const void *mpi_address(tri_transport_end *end, size_t *size) {
    *size = 0;
    return NULL;
}

static void lose(tri_transport_end *end, int r, int code) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (r < 0 || end->loss[r][0]) return;
    MPI_Error_string(code, text, &length);
    snprintf(end->loss[r], sizeof *end->loss, "cannot be reached any more (%s)", text);
}

static void finish(tri_transport_end *end, tri_transport_request *request, int code,
                   const MPI_Status *status) {
    int class = MPI_SUCCESS, bytes = 0;
    end->moved = true;
    if (code == MPI_SUCCESS) {
        if (status && MPI_Get_count(status, MPI_BYTE, &bytes) == MPI_SUCCESS && bytes >= 0)
            request->bytes = (size_t)bytes;
        request->state = TRI_REQUEST_DONE;
        return;
    }
    MPI_Error_class(code, &class);
    request->state = class == MPI_ERR_TRUNCATE ? TRI_REQUEST_TOO_LARGE : TRI_REQUEST_LOST;
    if (class != MPI_ERR_TRUNCATE) lose(end, request->peer, code);
}

static void add(tri_transport_end *end, tri_transport_request *request, MPI_Request handle,
                bool is_receive) {
    int at = end->pending_count++;
    end->handles[at] = handle;
    end->pending[at] = request;
    end->is_receive[at] = is_receive;
    request->state = TRI_REQUEST_PENDING;
}

static void mpi_send(tri_transport_end *end, int r, uint32_t tag, const void *data, size_t size,
                     tri_transport_request *request) {
    MPI_Request handle;
    *request =
        (tri_transport_request){.state = TRI_REQUEST_LOST, .peer = r, .bytes = size, .end = end};
    if (is_silent) return;
    // MPI must not start what cannot be recorded: nobody would know until when it reads `data`.
    if (!grow(end)) abort();
    end->sent_to[r]++;
    int code = MPI_Isend(data, (int)size, MPI_BYTE, r, (int)tag, end->comm, &handle);
    if (code == MPI_SUCCESS)
        add(end, request, handle, false);
    else
        finish(end, request, code, NULL);
}

static void receive(tri_transport_end *end, int r, uint32_t tag, void *memory, size_t size,
                    tri_transport_request *request) {
    MPI_Request handle;
    *request = (tri_transport_request){
        .state = TRI_REQUEST_LOST, .peer = r == MPI_ANY_SOURCE ? -1 : r, .end = end};
    if (is_silent) return;
    if (!grow(end)) abort();
    int code = MPI_Irecv(memory, (int)size, MPI_BYTE, r, (int)tag, end->comm, &handle);
    if (code == MPI_SUCCESS)
        add(end, request, handle, true);
    else
        finish(end, request, code, NULL);
}

static void mpi_recv(tri_transport_end *end, int r, uint32_t tag, void *memory, size_t size,
                     tri_transport_request *request) {
    receive(end, r, tag, memory, size, request);
}

static void mpi_recv_any(tri_transport_end *end, uint32_t tag, void *memory, size_t size,
                         tri_transport_request *request) {
    receive(end, MPI_ANY_SOURCE, tag, memory, size, request);
}

// Closes the gaps that finished requests leave in the arrays, so that these stay short.
static void compact(tri_transport_end *end) {
    int kept = 0;
    for (int i = 0; i < end->pending_count; i++) {
        if (end->handles[i] == MPI_REQUEST_NULL) continue;
        end->handles[kept] = end->handles[i];
        end->pending[kept] = end->pending[i];
        end->is_receive[kept] = end->is_receive[i];
        kept++;
    }
    end->pending_count = kept;
}

static bool mpi_progress(tri_transport_end *end) {
    int done = 0;
    if (is_silent) return false;
    int code = MPI_Testsome(end->pending_count, end->handles, &done, end->indices, end->statuses);
    if (done != MPI_UNDEFINED && done > 0) {
        for (int i = 0; i < done; i++) {
            const MPI_Status *status = &end->statuses[i];
            int at = end->indices[i];
            finish(end, end->pending[at], code == MPI_ERR_IN_STATUS ? status->MPI_ERROR : code,
                   end->is_receive[at] ? status : NULL);
            end->received += end->is_receive[at];
        }
        compact(end);
    }
    bool moved = end->moved;
    end->moved = false;
    return moved;
}

static int mpi_event_fd(tri_transport_end *end) { return -1; }

static const char *mpi_loss(tri_transport_end *end, int r) {
    if (is_silent) return "cannot be reached any more (MPI has stopped)";
    return end->loss[r][0] ? end->loss[r] : NULL;
}

static bool mpi_reaches(tri_transport_end *end, int r) { return true; }

static void cancel_receives(tri_transport_end *end) {
    for (int i = 0; i < end->pending_count; i++) {
        MPI_Status status;
        int is_cancelled = 1;
        if (!end->is_receive[i]) continue;
        // If MPI may not be called, the receive stays, and MPI does not write to its memory either.
        if (!is_silent && MPI_Cancel(&end->handles[i]) == MPI_SUCCESS &&
            MPI_Wait(&end->handles[i], &status) == MPI_SUCCESS)
            (void)MPI_Test_cancelled(&status, &is_cancelled);
        end->received += !is_cancelled;
        end->pending[i]->state = TRI_REQUEST_ENDED;
        end->handles[i] = MPI_REQUEST_NULL;
    }
    compact(end);
}

// Ends all requests. Receives are cancelled. If sends are left, MPI is not called any more
// (is_silent).
static void mpi_stop(tri_transport_end *end) {
    has_failed = true;
    cancel_receives(end);
    is_silent |= end->pending_count > 0;
    for (int i = 0; i < end->pending_count; i++) end->pending[i]->state = TRI_REQUEST_ENDED;
    end->pending_count = 0;
}

// Receives the messages that nobody waits for any more, such as the notices of ranks that left a
// communicator: MPI demands that every message is received before MPI_Finalize.
static void receive_rest(tri_transport_end *end) {
    int expected = 0, bytes = 0;
    if (MPI_Reduce_scatter_block(end->sent_to, &expected, 1, MPI_INT, MPI_SUM, end->comm) !=
        MPI_SUCCESS)
        return;
    for (; end->received < expected; end->received++) {
        MPI_Message message;
        MPI_Status status;
        if (MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, end->comm, &message, &status) != MPI_SUCCESS ||
            MPI_Get_count(&status, MPI_BYTE, &bytes) != MPI_SUCCESS)
            return;
        void *memory = malloc((size_t)bytes + 1);
        if (!memory) return;
        (void)MPI_Mrecv(memory, bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE);
        free(memory);
    }
}

static void mpi_close(tri_transport_end *end, bool is_whole) {
    if (is_whole && !is_silent) {
        cancel_receives(end);
        receive_rest(end);
        (void)MPI_Comm_free(&end->comm);
    } else {
        has_failed = true;
    }
    free_end(end);
}

static const tri_transport mpi_transport = {.name = "mpi",
                                            .most_bytes = 1 << 30,
                                            .open = mpi_open,
                                            .address = mpi_address,
                                            .send = mpi_send,
                                            .recv = mpi_recv,
                                            .recv_any = mpi_recv_any,
                                            .progress = mpi_progress,
                                            .event_fd = mpi_event_fd,
                                            .loss = mpi_loss,
                                            .reaches = mpi_reaches,
                                            .stop = mpi_stop,
                                            .close = mpi_close};

TRI_MODULE(TRI_TRANSPORT_INTERFACE, TRI_TRANSPORT_ABI, "mpi", &mpi_transport);
