// Does the copies and sums of a collective, one chunk in each call. A chunk is at most
// TRI_SHM_CHUNK_BYTES. The data lie in the ranks' buffers, or pass through staging memory, with as
// many elements at a time as fit there (a window).
//
// An all-reduce is divided into shares, one for each rank. A rank reduces the chunks of its own
// share and then helps the others with theirs, because ranks arrive at different times. In all
// other collectives each rank reads the memory of the other ranks: it copies what it receives, or
// adds it up in a reduce-scatter.
#include "comm/shm/work.h"

#include "comm/op.h"
#include "comm/reduce.h"
#include "comm/shm/bell.h"
#include "comm/shm/region.h"

#include <string.h>

// The share of a rank in an all-reduce is a multiple of this many elements, so that every share
// begins on a cache line if the buffer does.
enum { REDUCE_GRAIN = 256 };

static size_t width_of(const tri_comm_op *op) { return tri_dtype_bytes(op->dtype); }
static const shm_entry *entry_now(const shm_comm *comm, int rank) {
    return shm_entry_of(comm, rank, comm->meetings);
}

// The next two functions serve small operations, whose data lie in the entry (shm_entry) by which a
// rank announces them.

void shm_eager_send(shm_comm *comm, const tri_comm_op *op, shm_entry *entry) {
    if (op->kind == TRI_COMM_BROADCAST && op->root != comm->base.head.rank) return;
    size_t bytes = (size_t)tri_comm_send_count(op, comm->base.head.size) * width_of(op);
    if (bytes > 0) memcpy(entry->payload, op->send, bytes);
}

void shm_eager_apply(shm_comm *comm, const tri_comm_op *op) {
    int size = comm->base.head.size, rank = comm->base.head.rank;
    size_t bytes = op->kind == TRI_COMM_BARRIER ? 0 : (size_t)op->count * width_of(op);
    if (bytes == 0) return;
    const void *with_own[TRI_MAX_LOCAL_RANKS + 1] = {op->recv}, **in = with_own + 1;
    size_t offset = tri_comm_kind_scatters(op->kind) ? (size_t)rank * bytes : 0;
    for (int r = 0; r < size; r++) in[r] = entry_now(comm, r)->payload + offset;
    if (tri_comm_kind_reduces(op->kind)) {
        void *out[] = {op->recv};
        comm_reduce(op, size + op->accumulate, in - op->accumulate, 1, out, (size_t)op->count,
                    false);
    } else if (op->kind == TRI_COMM_BROADCAST) {
        memcpy(op->recv, in[op->root], bytes);
    } else {
        for (int r = 0; r < size; r++) memcpy((char *)op->recv + (size_t)r * bytes, in[r], bytes);
    }
}

bool shm_addresses_known(shm_comm *comm) {
    const shm_entry *mine = entry_now(comm, comm->base.head.rank);
    bool all_reduce = mine->call.op.kind == TRI_COMM_ALL_REDUCE;
    for (int r = 0; r < comm->base.head.size; r++) {
        const shm_entry *entry = entry_now(comm, r);
        comm->current.from[r] = NULL;
        comm->current.to[r] = NULL;
        if (mine->call.op.kind == TRI_COMM_BROADCAST && r != mine->call.op.root) continue;
        if (!entry->send.region || (all_reduce && !entry->recv.region)) return false;
        comm->current.from[r] = shm_address_resolve(shm_family_of(comm), entry->send);
        if (all_reduce) comm->current.to[r] = shm_address_resolve(shm_family_of(comm), entry->recv);
    }
    return true;
}

int64_t shm_staging_capacity(const shm_comm *comm, const tri_comm_op *op) {
    int64_t elements = TRI_SHM_STAGE_BYTES / (int64_t)width_of(op);
    return tri_comm_kind_scatters(op->kind) ? elements / comm->base.head.size : elements;
}

void shm_staging_use(shm_comm *comm) {
    for (int r = 0; r < comm->base.head.size; r++) {
        comm->current.from[r] = comm->staging + (size_t)r * TRI_SHM_STAGE_BYTES;
        comm->current.to[r] = comm->staging + (size_t)r * TRI_SHM_STAGE_BYTES;
    }
}

void shm_staging_fill(shm_comm *comm, const tri_comm_op *op) {
    const shm_current *current = &comm->current;
    size_t width = width_of(op), bytes = (size_t)current->count * width;
    const char *send = (const char *)op->send + (size_t)current->begin * width;
    char *to = comm->staging + (size_t)comm->base.head.rank * TRI_SHM_STAGE_BYTES;
    if (op->kind == TRI_COMM_BROADCAST && op->root != comm->base.head.rank) return;
    int receivers = tri_comm_kind_scatters(op->kind) ? comm->base.head.size : 1;
    for (int r = 0; r < receivers; r++)
        memcpy(to + (size_t)r * bytes, send + (size_t)r * (size_t)op->count * width, bytes);
}

void shm_staging_drain(shm_comm *comm, const tri_comm_op *op) {
    const shm_current *current = &comm->current;
    size_t width = width_of(op);
    memcpy((char *)op->recv + (size_t)current->begin * width,
           comm->current.to[comm->base.head.rank], (size_t)current->count * width);
}

static bool in_place(const shm_comm *comm, const tri_comm_op *op) {
    if (op->kind == TRI_COMM_ALL_REDUCE) return op->send == op->recv;
    size_t own = (size_t)comm->base.head.rank * (size_t)op->count * width_of(op);
    return op->kind == TRI_COMM_REDUCE_SCATTER && op->recv == (const char *)op->send + own;
}

// Whether results are written past the caches, because they would not fit there. Operations in
// place and those that accumulate are an exception: the cache lines to be written were just read,
// and evicting them would cost more. Data that pass through staging memory are an exception too:
// what lies there at one time fits into the caches.
static bool streams(const shm_comm *comm, const tri_comm_op *op) {
    if (comm->current.staged || op->accumulate || in_place(comm, op)) return false;
    int64_t touched = tri_comm_recv_count(op, comm->base.head.size) * (int64_t)width_of(op) *
                      comm->base.head.size;
    return touched > SHM_STREAM_BYTES;
}

static int64_t share_elements(const shm_comm *comm) {
    int64_t even = (comm->current.count + comm->base.head.size - 1) / comm->base.head.size;
    return (even + REDUCE_GRAIN - 1) / REDUCE_GRAIN * REDUCE_GRAIN;
}

static int64_t chunk_elements(const tri_comm_op *op) {
    return TRI_SHM_CHUNK_BYTES / (int64_t)width_of(op);
}

// Returns how many elements of the window rank r's share has; *begin is the first of them.
static int64_t share_range(const shm_comm *comm, int r, int64_t *begin) {
    int64_t share = share_elements(comm), count = comm->current.count;
    *begin = r * share < count ? r * share : count;
    int64_t end = *begin + share < count ? *begin + share : count;
    return end - *begin;
}

static uint64_t chunks_of(int64_t elements, const tri_comm_op *op) {
    int64_t chunk = chunk_elements(op);
    return (uint64_t)((elements + chunk - 1) / chunk);
}

// Returns how many chunks a counter counts for this rank's meeting, at most `limit`. A meeting is a
// point that all ranks pass together; the counter carries the number of the meeting to which it
// belongs, so that no rank has to reset it. If that meeting is later than this rank's, all `limit`
// chunks of this rank's meeting are finished.
static uint64_t counter_decode(uint64_t seen, uint64_t meeting, uint64_t limit) {
    int32_t ahead = (int32_t)((uint32_t)(seen >> 32) - (uint32_t)meeting);
    return ahead == 0 ? (uint32_t)seen : ahead > 0 ? limit : 0;
}

static bool counter_raise(_Atomic uint64_t *counter, uint64_t meeting, uint64_t limit,
                          uint64_t *before) {
    uint64_t tag = meeting << 32, seen = atomic_load(counter);
    for (;;) {
        uint64_t value = counter_decode(seen, meeting, limit);
        if (value >= limit) return false;
        if (atomic_compare_exchange_weak(counter, &seen, tag | (value + 1))) {
            *before = value;
            return true;
        }
    }
}

static void reduce_chunk(shm_comm *comm, const tri_comm_op *op, int64_t begin, int64_t count) {
    const void *in[TRI_MAX_LOCAL_RANKS];
    void *out[TRI_MAX_LOCAL_RANKS];
    size_t offset = (size_t)begin * width_of(op);
    for (int r = 0; r < comm->base.head.size; r++) {
        in[r] = comm->current.from[r] + offset;
        out[r] = comm->current.to[r] + offset;
    }
    comm_reduce(op, comm->base.head.size, in, comm->base.head.size, out, (size_t)count,
                streams(comm, op));
}

progress_result shm_reduce_advance(shm_comm *comm, const tri_comm_op *op) {
    int size = comm->base.head.size;
    for (; comm->current.cursor < size; comm->current.cursor++) {
        int owner = (comm->base.head.rank + (int)comm->current.cursor) % size;
        shm_seat *seat = &comm->board->seats[owner];
        int64_t begin, elements = share_range(comm, owner, &begin), chunk = chunk_elements(op);
        uint64_t chunks = chunks_of(elements, op), begun, finished;
        if (!counter_raise(&seat->begun_chunks, comm->meetings, chunks, &begun)) continue;
        int64_t first = (int64_t)begun * chunk;
        reduce_chunk(comm, op, begin + first, elements - first < chunk ? elements - first : chunk);
        if (counter_raise(&seat->finished_chunks, comm->meetings, chunks, &finished) &&
            finished + 1 == chunks)
            shm_ring_all(comm);
        return PROGRESS_ADVANCED;
    }
    return PROGRESS_IDLE;
}

bool shm_reduce_finished(const shm_comm *comm, const tri_comm_op *op) {
    for (int r = 0; r < comm->base.head.size; r++) {
        int64_t begin;
        uint64_t chunks = chunks_of(share_range(comm, r, &begin), op);
        uint64_t seen = atomic_load(&comm->board->seats[r].finished_chunks);
        if (counter_decode(seen, comm->meetings, chunks) < chunks) return false;
    }
    return true;
}

// The collectives other than all-reduce: each rank reads what it receives from the memory of the
// other ranks. One call copies one chunk of one rank or, in a reduce-scatter, adds one chunk of all
// ranks.

static void pull_reduce(shm_comm *comm, const tri_comm_op *op, int64_t first, int64_t count) {
    const shm_current *current = &comm->current;
    size_t width = width_of(op), rank = (size_t)comm->base.head.rank;
    size_t bytes_per_rank = (size_t)(current->staged ? current->count : op->count) * width;
    void *out[] = {(char *)op->recv + (size_t)(current->begin + first) * width};
    const void *with_own[TRI_MAX_LOCAL_RANKS + 1] = {out[0]}, **in = with_own + 1;
    for (int r = 0; r < comm->base.head.size; r++)
        in[r] = current->from[r] + rank * bytes_per_rank + (size_t)first * width;
    comm_reduce(op, comm->base.head.size + op->accumulate, in - op->accumulate, 1, out,
                (size_t)count, streams(comm, op));
}

static void pull_copy(shm_comm *comm, const tri_comm_op *op, int source, int64_t first,
                      int64_t count) {
    const shm_current *current = &comm->current;
    size_t width = width_of(op), from = (size_t)first * width;
    size_t to = (size_t)(current->begin + first) * width;
    if (op->kind == TRI_COMM_ALL_TO_ALL)
        from += (size_t)comm->base.head.rank *
                (size_t)(current->staged ? current->count : op->count) * width;
    if (op->kind != TRI_COMM_BROADCAST) to += (size_t)source * (size_t)op->count * width;
    comm_copy((char *)op->recv + to, current->from[source] + from, (size_t)count * width,
              streams(comm, op));
}

progress_result shm_pull_advance(shm_comm *comm, const tri_comm_op *op) {
    shm_current *current = &comm->current;
    int64_t chunk = chunk_elements(op), chunks = (current->count + chunk - 1) / chunk;
    bool all_sources = op->kind == TRI_COMM_ALL_GATHER || op->kind == TRI_COMM_ALL_TO_ALL;
    int64_t sources = all_sources ? comm->base.head.size : 1;
    if (current->cursor >= chunks * sources) return PROGRESS_IDLE;
    int64_t first = current->cursor % chunks * chunk;
    int64_t count = current->count - first < chunk ? current->count - first : chunk;
    if (op->kind == TRI_COMM_REDUCE_SCATTER) {
        pull_reduce(comm, op, first, count);
    } else {
        // Each rank begins with its own data, so that the ranks do not all read from the same rank
        // at once.
        int turn = comm->base.head.rank + (int)(current->cursor / chunks);
        pull_copy(comm, op, all_sources ? turn % comm->base.head.size : op->root, first, count);
    }
    current->cursor++;
    return PROGRESS_ADVANCED;
}
