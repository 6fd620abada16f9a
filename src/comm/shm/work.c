// The work of a collective: between the ranks' own buffers where all of them lie in shared memory,
// else piece by piece through staging memory.
#include "comm/op.h"
#include "comm/reduce.h"
#include "comm/shm/internal.h"

#include <stdlib.h>
#include <string.h>

enum { REDUCE_GRAIN = 256 }; // elements: slices begin on cache lines where the buffer does

static size_t width_of(const tri_comm_op *op) { return tri_dtype_bytes(op->dtype); }
static const shm_entry *entry_now(const shm_comm *comm, int rank) {
    return &comm->board->seats[rank].entries[comm->step & 1];
}

// ---- small operations: the data lies beside the announcement

void shm_eager_send(shm_comm *comm, const tri_comm_op *op, shm_entry *entry) {
    if (op->kind == TRI_COMM_BROADCAST && op->root != comm->head.rank) return;
    size_t bytes = (size_t)tri_comm_send_count(op, comm->head.size) * width_of(op);
    if (bytes > 0) memcpy(entry->payload, op->send, bytes);
}

void shm_eager_apply(shm_comm *comm, const tri_comm_op *op) {
    int size = comm->head.size, rank = comm->head.rank;
    size_t part = op->kind == TRI_COMM_BARRIER ? 0 : (size_t)op->count * width_of(op);
    if (part == 0) return;
    const void *with_own[TRI_MAX_LOCAL_RANKS + 1] = {op->recv}, **in = with_own + 1;
    for (int r = 0; r < size; r++) {
        bool parted = op->kind == TRI_COMM_REDUCE_SCATTER || op->kind == TRI_COMM_ALL_TO_ALL;
        in[r] = entry_now(comm, r)->payload + (parted ? (size_t)rank * part : 0);
    }
    if (tri_comm_kind_reduces(op->kind)) {
        void *out[] = {op->recv};
        comm_reduce(op, size + op->accumulate, in - op->accumulate, 1, out, (size_t)op->count,
                    false);
    } else if (op->kind == TRI_COMM_BROADCAST) {
        memcpy(op->recv, in[op->root], part);
    } else {
        for (int r = 0; r < size; r++) memcpy((char *)op->recv + (size_t)r * part, in[r], part);
    }
}

// ---- where the data lies

bool shm_places_known(shm_comm *comm) {
    const shm_entry *mine = entry_now(comm, comm->head.rank);
    bool all_reduce = mine->kind == TRI_COMM_ALL_REDUCE;
    for (int r = 0; r < comm->head.size; r++) {
        const shm_entry *entry = entry_now(comm, r);
        comm->current.from[r] = NULL;
        comm->current.to[r] = NULL;
        if (mine->kind == TRI_COMM_BROADCAST && r != mine->root) continue;
        if (!entry->send.region || (all_reduce && !entry->recv.region)) return false;
        comm->current.from[r] = shm_place_find(comm->family, entry->send);
        if (all_reduce) comm->current.to[r] = shm_place_find(comm->family, entry->recv);
    }
    return true;
}

int64_t shm_stage_capacity(const shm_comm *comm, const tri_comm_op *op) {
    bool parted = op->kind == TRI_COMM_REDUCE_SCATTER || op->kind == TRI_COMM_ALL_TO_ALL;
    int64_t elements = TRI_SHM_STAGE_BYTES / (int64_t)width_of(op);
    return parted ? elements / comm->head.size : elements;
}

void shm_stage_use(shm_comm *comm, const tri_comm_op *op) {
    for (int r = 0; r < comm->head.size; r++) {
        comm->current.from[r] = comm->stage + (size_t)r * TRI_SHM_STAGE_BYTES;
        comm->current.to[r] = comm->stage + (size_t)r * TRI_SHM_STAGE_BYTES;
    }
}

void shm_stage_fill(shm_comm *comm, const tri_comm_op *op) {
    const shm_current *now = &comm->current;
    size_t width = width_of(op), piece = (size_t)now->count * width;
    const char *send = (const char *)op->send + (size_t)now->begin * width;
    char *to = comm->stage + (size_t)comm->head.rank * TRI_SHM_STAGE_BYTES;
    if (op->kind == TRI_COMM_BROADCAST && op->root != comm->head.rank) return;
    bool parted = op->kind == TRI_COMM_REDUCE_SCATTER || op->kind == TRI_COMM_ALL_TO_ALL;
    int parts = parted ? comm->head.size : 1;
    for (int p = 0; p < parts; p++)
        memcpy(to + (size_t)p * piece, send + (size_t)p * (size_t)op->count * width, piece);
}

void shm_stage_drain(shm_comm *comm, const tri_comm_op *op) {
    const shm_current *now = &comm->current;
    size_t width = width_of(op);
    memcpy((char *)op->recv + (size_t)now->begin * width, comm->current.to[comm->head.rank],
           (size_t)now->count * width);
}

static bool in_place(const shm_comm *comm, const tri_comm_op *op) {
    if (op->kind == TRI_COMM_ALL_REDUCE) return op->send == op->recv;
    size_t own = (size_t)comm->head.rank * (size_t)op->count * width_of(op);
    return op->kind == TRI_COMM_REDUCE_SCATTER && op->recv == (const char *)op->send + own;
}

// Past the caches goes what is too much for them and was not just read: writing in place finds its
// lines in the cache, and throwing them out would only cost.
static bool streams(const shm_comm *comm, const tri_comm_op *op) {
    if (comm->current.staged || op->accumulate || in_place(comm, op)) return false;
    int64_t touched =
        tri_comm_recv_count(op, comm->head.size) * (int64_t)width_of(op) * comm->head.size;
    return touched > SHM_STREAM_BYTES;
}

// ---- all-reduce: every rank has a slice whose chunks it takes first, then it helps the others

static int64_t slice_elements(const shm_comm *comm) {
    int64_t even = (comm->current.count + comm->head.size - 1) / comm->head.size;
    return (even + REDUCE_GRAIN - 1) / REDUCE_GRAIN * REDUCE_GRAIN;
}

static int64_t chunk_elements(const tri_comm_op *op) {
    return TRI_SHM_CHUNK_BYTES / (int64_t)width_of(op);
}

// Elements of slice `s`, and how many chunks they make.
static int64_t slice_range(const shm_comm *comm, int s, int64_t *begin) {
    int64_t slice = slice_elements(comm), count = comm->current.count;
    *begin = s * slice < count ? s * slice : count;
    int64_t end = *begin + slice < count ? *begin + slice : count;
    return end - *begin;
}

static uint64_t chunks_of(int64_t elements, const tri_comm_op *op) {
    int64_t chunk = chunk_elements(op);
    return (uint64_t)((elements + chunk - 1) / chunk);
}

// Counters carry the step they belong to, so that nobody has to reset them. A counter of a later
// step means that ours is over.
static bool counter_raise(_Atomic uint64_t *counter, uint64_t step, uint64_t limit,
                          uint64_t *before) {
    uint64_t tag = step << 32, seen = atomic_load(counter);
    for (;;) {
        int32_t ahead = (int32_t)((uint32_t)(seen >> 32) - (uint32_t)step);
        uint64_t value = ahead == 0 ? (uint32_t)seen : ahead > 0 ? limit : 0;
        if (value >= limit) return false;
        if (atomic_compare_exchange_weak(counter, &seen, tag | (value + 1))) {
            *before = value;
            return true;
        }
    }
}

static uint64_t counter_value(_Atomic uint64_t *counter, uint64_t step, uint64_t limit) {
    uint64_t seen = atomic_load(counter);
    int32_t ahead = (int32_t)((uint32_t)(seen >> 32) - (uint32_t)step);
    return ahead == 0 ? (uint32_t)seen : ahead > 0 ? limit : 0;
}

static void reduce_chunk(shm_comm *comm, const tri_comm_op *op, int64_t begin, int64_t count) {
    const void *in[TRI_MAX_LOCAL_RANKS];
    void *out[TRI_MAX_LOCAL_RANKS];
    size_t offset = (size_t)begin * width_of(op);
    for (int r = 0; r < comm->head.size; r++) {
        in[r] = comm->current.from[r] + offset;
        out[r] = comm->current.to[r] + offset;
    }
    comm_reduce(op, comm->head.size, in, comm->head.size, out, (size_t)count, streams(comm, op));
}

shm_progress shm_reduce_advance(shm_comm *comm, const tri_comm_op *op) {
    int size = comm->head.size;
    for (; comm->current.unit < size; comm->current.unit++) {
        int slice = (comm->head.rank + (int)comm->current.unit) % size;
        shm_seat *seat = &comm->board->seats[slice];
        int64_t begin, elements = slice_range(comm, slice, &begin), chunk = chunk_elements(op);
        uint64_t chunks = chunks_of(elements, op), taken, done;
        if (!counter_raise(&seat->taken, comm->step, chunks, &taken)) continue;
        int64_t first = (int64_t)taken * chunk;
        reduce_chunk(comm, op, begin + first, elements - first < chunk ? elements - first : chunk);
        if (counter_raise(&seat->done, comm->step, chunks, &done) && done + 1 == chunks)
            shm_ring_all(comm);
        return SHM_MOVED;
    }
    return SHM_IDLE;
}

bool shm_reduce_finished(shm_comm *comm, const tri_comm_op *op) {
    for (int s = 0; s < comm->head.size; s++) {
        int64_t begin;
        uint64_t chunks = chunks_of(slice_range(comm, s, &begin), op);
        if (counter_value(&comm->board->seats[s].done, comm->step, chunks) < chunks) return false;
    }
    return true;
}

// ---- the others: every rank fetches what it wants, in units of one chunk of one source

static void pull_reduce(shm_comm *comm, const tri_comm_op *op, int64_t first, int64_t count) {
    const shm_current *now = &comm->current;
    size_t width = width_of(op), rank = (size_t)comm->head.rank;
    size_t part = (size_t)(now->staged ? now->count : op->count) * width;
    void *out[] = {(char *)op->recv + (size_t)(now->begin + first) * width};
    const void *with_own[TRI_MAX_LOCAL_RANKS + 1] = {out[0]}, **in = with_own + 1;
    for (int r = 0; r < comm->head.size; r++)
        in[r] = now->from[r] + rank * part + (size_t)first * width;
    comm_reduce(op, comm->head.size + op->accumulate, in - op->accumulate, 1, out, (size_t)count,
                streams(comm, op));
}

static void pull_copy(shm_comm *comm, const tri_comm_op *op, int source, int64_t first,
                      int64_t count) {
    const shm_current *now = &comm->current;
    size_t width = width_of(op), from = (size_t)first * width;
    size_t to = (size_t)(now->begin + first) * width;
    if (op->kind == TRI_COMM_ALL_TO_ALL)
        from += (size_t)comm->head.rank * (size_t)(now->staged ? now->count : op->count) * width;
    if (op->kind != TRI_COMM_BROADCAST) to += (size_t)source * (size_t)op->count * width;
    comm_copy((char *)op->recv + to, now->from[source] + from, (size_t)count * width,
              streams(comm, op));
}

shm_progress shm_pull_advance(shm_comm *comm, const tri_comm_op *op) {
    shm_current *now = &comm->current;
    int64_t chunk = chunk_elements(op), chunks = (now->count + chunk - 1) / chunk;
    bool all_sources = op->kind == TRI_COMM_ALL_GATHER || op->kind == TRI_COMM_ALL_TO_ALL;
    int64_t sources = all_sources ? comm->head.size : 1;
    if (now->unit >= chunks * sources) return SHM_IDLE;
    int64_t first = now->unit % chunks * chunk;
    int64_t count = now->count - first < chunk ? now->count - first : chunk;
    if (op->kind == TRI_COMM_REDUCE_SCATTER) {
        pull_reduce(comm, op, first, count);
    } else {
        // Each rank begins with another source, its own part first.
        int turn = comm->head.rank + (int)(now->unit / chunks);
        pull_copy(comm, op, all_sources ? turn % comm->head.size : op->root, first, count);
    }
    now->unit++;
    return SHM_MOVED;
}
