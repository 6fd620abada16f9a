// Opens a communicator over shared memory for ranks that have no memory in common yet. Rank 0
// creates the memory and announces it through the functions of a tri_comm_meeting, by which ranks
// that are not connected exchange values. The other ranks map the memory, and a barrier follows.
#include "comm/shm/shm.h"

#include "base/cores.h"
#include "comm/progress/communicator.h"
#include "comm/progress/thread.h"
#include "comm/shm/communicator.h"
#include "comm/shm/watch.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct open_offer { // what rank 0 offers to the other ranks of the host
    int32_t status, unused;
    shm_handle control, board;
} open_offer;

// The arguments of tri_comm_shm_open_at, and the prefix of the keys under which the ranks exchange
// what they need to connect.
typedef struct open_call {
    int rank, size, timeout_ms;
    bool by_socket;
    const tri_comm_meeting *meeting;
    const int *job_ranks;
    tri_comm *control_comm;
    char prefix[64];
} open_call;

static int job_rank(const open_call *call, int rank) {
    return call->job_ranks ? call->job_ranks[rank] : rank;
}

static tri_status open_set(const open_call *call, const char *name, int rank, const void *value,
                           size_t size) {
    char key[96];
    snprintf(key, sizeof key, "%s/%s/%d", call->prefix, name, rank);
    return call->meeting->set(call->meeting->context, key, value, size);
}

static tri_status open_get(const open_call *call, const char *name, int rank, void *value,
                           size_t size) {
    char key[96];
    snprintf(key, sizeof key, "%s/%s/%d", call->prefix, name, rank);
    size_t got = 0;
    tri_status status =
        call->meeting->get(call->meeting->context, key, call->timeout_ms, value, size, &got);
    if (status != TRI_OK)
        return tri_status_context(status, "rank %d did not join over shared memory",
                                  job_rank(call, rank));
    if (got != size)
        return TRI_FAIL(TRI_MISMATCH, "rank %d runs another version of this program",
                        job_rank(call, rank));
    return TRI_OK;
}

static size_t control_bytes(int size) {
    return sizeof(shm_control) + (size_t)size * sizeof(shm_member);
}

// Rank 0's part: creates the memory, announces it, and passes it through a socket to the ranks that
// cannot open it.
static tri_status open_make(const open_call *call, shm_segment *control, shm_segment *board) {
    open_offer offer = {0};
    tri_status status = shm_segment_create(control_bytes(call->size), control, &offer.control);
    if (status == TRI_OK) {
        ((shm_control *)control->base)->size = call->size;
        status = shm_segment_create(shm_board_bytes(call->size), board, &offer.board);
    }
    offer.status = (int32_t)status;
    TRI_TRY(open_set(call, "offer", 0, &offer, sizeof offer));
    TRI_TRY(status);
    int wanting = 0;
    for (int r = 1; r < call->size; r++) {
        int32_t wants = 0;
        TRI_TRY(open_get(call, "opened", r, &wants, sizeof wants));
        wanting += wants;
    }
    if (wanting == 0) return TRI_OK;
    TRI_TRY(shm_segment_serve(control, &offer.control, wanting, call->timeout_ms));
    return shm_segment_serve(board, &offer.board, wanting, call->timeout_ms);
}

// The other ranks' part: map the memory that rank 0 has announced.
static tri_status open_take(const open_call *call, shm_segment *control, shm_segment *board) {
    open_offer offer;
    TRI_TRY(open_get(call, "offer", 0, &offer, sizeof offer));
    if (offer.status != TRI_OK)
        return TRI_FAIL((tri_status)offer.status,
                        "rank %d has no shared memory for the ranks of this host",
                        job_rank(call, 0));
    tri_status status = TRI_NOT_FOUND;
    if (!call->by_socket) status = shm_segment_open(&offer.control, control);
    if (status == TRI_OK) status = shm_segment_open(&offer.board, board);
    int32_t wants = status == TRI_NOT_FOUND;
    TRI_TRY(open_set(call, "opened", call->rank, &wants, sizeof wants));
    if (!wants) return status;
    shm_segment_unmap(control);
    TRI_TRY(shm_segment_fetch(&offer.control, call->timeout_ms, control));
    return shm_segment_fetch(&offer.board, call->timeout_ms, board);
}

static void open_join(shm_family *family) {
    shm_member *me = shm_own_member(family);
    tri_process_self(&me->process);
    CPU_ZERO(&me->cpus);
    (void)sched_getaffinity(0, sizeof me->cpus, &me->cpus);
    atomic_store(&me->heartbeat, 1);
    atomic_store(&me->joined, 1);
}

// A rank may spin while it waits only if every rank has a core to itself: else it would take the
// core from the rank for which it waits.
static bool open_can_spin(const shm_family *family) {
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int r = 0; r < family->base.size; r++)
        CPU_OR(&all, &all, &family->control->members[r].cpus);
    return CPU_COUNT(&all) >= family->base.size && tri_cores_quota() >= family->base.size;
}

static void open_release(shm_family *family) {
    if (family) free(family->job_rank);
    free(family);
}

static tri_status open_family(const open_call *call, const shm_segment *control, shm_family **out) {
    shm_family *family = calloc(1, sizeof *family);
    if (family) family->job_rank = calloc((size_t)call->size, sizeof *family->job_rank);
    if (!family || !family->job_rank) {
        open_release(family);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for a communicator");
    }
    family->control = control->base;
    tri_ledger *ledger = NULL;
    tri_status status = TRI_OK;
    if (call->control_comm)
        ledger = tri_ledger_retain(call->control_comm->ledger);
    else
        status = tri_ledger_open(&family->control->members[call->rank].ledger, &ledger);
    if (status != TRI_OK) {
        open_release(family);
        return status;
    }
    for (int r = 0; r < call->size; r++)
        family->job_rank[r] = call->job_ranks ? call->job_ranks[r] : r;
    progress_family_init(&family->base, &shm_progress, ledger, &family->control->failure);
    family->base.size = call->size;
    family->base.job_rank = family->job_rank[call->rank];
    family->base.timeout_ms = call->timeout_ms;
    family->base.control = call->control_comm;
    family->segment = *control;
    family->rank = call->rank;
    family->by_socket = call->by_socket;
    pthread_mutex_init(&family->regions_lock, NULL);
    pthread_mutex_init(&family->watched_lock, NULL);
    open_join(family);
    *out = family;
    return TRI_OK;
}

static tri_status open_world(const open_call *call, shm_family *family, const shm_segment *board,
                             tri_comm **out) {
    int member[TRI_MAX_LOCAL_RANKS];
    for (int r = 0; r < call->size; r++) member[r] = r;
    shm_comm *comm;
    tri_status status = shm_comm_create(family, board, member, call->rank, call->size, &comm);
    if (status != TRI_OK) {
        progress_family_end(&family->base);
        return status;
    }
    status = shm_watch_begin(family);
    if (status == TRI_OK) status = progress_thread_start(&family->base);
    // After the barrier all ranks have joined, so that it is known on which CPUs they may run.
    if (status == TRI_OK) status = tri_comm_barrier(&comm->base.head, "join");
    if (status == TRI_OK) {
        family->base.can_spin = open_can_spin(family);
        family->base.yields_early = true;
        *out = &comm->base.head;
    } else {
        progress_close(&comm->base.head);
    }
    return status;
}

tri_status tri_comm_shm_open_at(int rank, int size, const tri_comm_meeting *meeting,
                                const tri_shm_config *config, tri_comm **out) {
    // Counts the calls of this function, so that each communicator has keys of its own in the
    // meeting. All ranks open communicators in the same order, so their counts agree.
    static _Atomic int opened;
    *out = NULL;
    if (size < 1 || size > TRI_MAX_LOCAL_RANKS || rank < 0 || rank >= size)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "rank %d of %d: shared memory serves 1 to %d ranks of a host", rank, size,
                        TRI_MAX_LOCAL_RANKS);
    open_call call = {
        .rank = rank, .size = size, .timeout_ms = TRI_DEFAULT_TIMEOUT_MS, .meeting = meeting};
    if (config && config->timeout_ms > 0) call.timeout_ms = config->timeout_ms;
    if (config) call.by_socket = config->pass_by_socket;
    if (config) call.job_ranks = config->job_ranks;
    if (config) call.control_comm = config->control;
    if (config && config->group)
        snprintf(call.prefix, sizeof call.prefix, "shm/%s", config->group);
    else
        snprintf(call.prefix, sizeof call.prefix, "shm/%d", atomic_fetch_add(&opened, 1));
    shm_segment control = {.fd = -1}, board = {.fd = -1};
    tri_status status =
        rank == 0 ? open_make(&call, &control, &board) : open_take(&call, &control, &board);
    shm_segment_close_fd(&control);
    shm_segment_close_fd(&board);
    shm_family *family = NULL;
    if (status == TRI_OK) status = open_family(&call, &control, &family);
    if (status != TRI_OK) {
        shm_segment_unmap(&control);
        shm_segment_unmap(&board);
        return status;
    }
    return open_world(&call, family, &board, out);
}

tri_status tri_comm_shm_open(int rank, int size, tri_store *store, const tri_shm_config *config,
                             tri_comm **out) {
    tri_comm_meeting meeting = tri_comm_meeting_of(store);
    return tri_comm_shm_open_at(rank, size, &meeting, config, out);
}
