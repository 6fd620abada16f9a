// What the shared-memory backend keeps in shared memory.
//
// A *family* is all communicators that were split from one. Its control block has a member for each
// rank: the rank's process, its heartbeat, its ledger of actions, and a bell (a futex) on which it
// sleeps while it waits for others. Each communicator has a *board*. On it lie a seat for each
// rank, with which the rank announces its operations; a pipe (a ring buffer) for each pair of
// ranks; and staging memory, through which data pass that lie where other ranks cannot read them.
//
// Ranks of a communicator synchronise by *meetings*, points that all of them pass; every seat
// counts them from 1. At its first meeting a collective is announced: each rank writes an entry and
// then enters the meeting. A seat has two entries, and meeting m uses entry m & 1. A rank enters a
// meeting only after it has read all that it needs of earlier entries. So once all ranks have
// entered meeting m + 1, nobody reads the entries of meeting m any more, and meeting m + 2 may use
// them again. All ranks enter the same meetings: their entries are compared before the work of an
// operation begins, and the communicator fails if they differ. Only an all-reduce also waits
// without a meeting: until the seats count all its chunks as finished.
//
// The files, each of which calls only those above it:
//   segment        memory that several processes map
//   layout, state  what lies in shared memory, and what lies in this process
//   bell           sleeping, and waking other processes
//   region         buffers in shared memory, and finding a location in them
//   work           copies and reductions of a collective
//   collective     a collective as a state machine
//   message        a send or receive
//   watch          which ranks are alive
//   alloc          mapping a segment on all ranks
//   communicator   what the progress base needs; creating and closing
//   open           how ranks that share nothing find each other
#ifndef TRIREME_COMM_SHM_LAYOUT_H
#define TRIREME_COMM_SHM_LAYOUT_H

#include "base/ledger.h"
#include "base/limits.h"
#include "base/process.h"
#include "base/status.h"
#include "comm/op.h"
#include "comm/progress/futex.h"
#include "comm/progress/state.h"
#include "comm/shm/segment.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

enum {
    SHM_CACHE_LINE = 64, // bytes; words that different ranks write lie on different cache lines
};

typedef struct shm_member {
    _Alignas(SHM_CACHE_LINE) tri_process process;
    cpu_set_t cpus;
    _Alignas(SHM_CACHE_LINE) _Atomic uint32_t joined; // 1: the rank has filled in this struct
    _Atomic uint64_t heartbeat;
    // 1 + the number in the job of the rank for which the member waits, set once the wait has
    // lasted some time; 0, as in zeroed memory: the member waits for none.
    _Atomic int32_t awaited_plus_1;
    _Alignas(SHM_CACHE_LINE) tri_ledger_ring ledger;
    _Alignas(SHM_CACHE_LINE) progress_bell bell;
} shm_member;

typedef struct shm_control {
    shm_header header;
    int32_t size;
    progress_failure failure;
    shm_member members[];
} shm_control;

// Where something lies in a region of shared memory. An address is the same for all ranks that map
// the region, while a pointer is valid in one process only.
typedef struct shm_address {
    uint64_t region; // the region's id; 0: in no region, so that other ranks cannot see it
    uint64_t offset; // bytes from the start of the region's segment
} shm_address;

// What a rank announces when it begins a collective. Ranks compare their entries, so that calls
// that disagree are found.
typedef struct shm_entry {
    _Alignas(SHM_CACHE_LINE) tri_comm_call call;
    uint64_t sequence;
    shm_address send, recv;
    _Alignas(SHM_CACHE_LINE) unsigned char payload[TRI_SHM_EAGER_BYTES];
} shm_entry;

// A rank's place on the board of a communicator, which tells the others how far the rank has got.
typedef struct shm_seat {
    // How many meetings (barriers of the communicator's ranks) the rank has entered.
    _Alignas(SHM_CACHE_LINE) _Atomic uint64_t meetings;
    _Atomic uint32_t closed; // 1: the rank has closed the communicator
    // In an all-reduce: how many chunks of the rank's share (the elements that it reduces first)
    // are begun, and how many are finished. These counts are in shared memory because a rank that
    // is done with its own share helps the others. The upper 32 bits of each word are the lower 32
    // bits of the number of the meeting (barrier) to which the count belongs: a count of an earlier
    // meeting reads as 0, so that no rank has to reset it.
    _Alignas(SHM_CACHE_LINE) _Atomic uint64_t begun_chunks;
    _Alignas(SHM_CACHE_LINE) _Atomic uint64_t finished_chunks;
    shm_entry entries[2]; // used in turn: one for even meetings (barriers), one for odd meetings
} shm_seat;

// A channel carries messages from one rank to another, one at a time.
typedef struct shm_channel {
    // How many messages were posted so far. The members up to `label` describe the latest one.
    _Alignas(SHM_CACHE_LINE) _Atomic uint64_t posted;
    uint32_t dtype;
    int64_t count;
    // Where the data lie. Data outside the shared regions are copied through the channel's pipe.
    shm_address address;
    char label[TRI_COMM_LABEL_BYTES];
    _Alignas(SHM_CACHE_LINE) _Atomic uint64_t head; // bytes ever written to the pipe
    _Alignas(SHM_CACHE_LINE) _Atomic uint64_t tail; // bytes ever read from the pipe
    _Atomic uint64_t received; // how many messages were received completely so far
} shm_channel;

typedef struct shm_board {
    shm_header header;
    shm_seat seats[]; // followed by channels[size * size], their pipes, and the staging memory
} shm_board;

#endif
