// Communicator of processes of one host over memory that they share. The memory has no name in a
// file system, so that the kernel frees it with the last process, however that process ended.
#ifndef TRIREME_COMM_SHM_SHM_H
#define TRIREME_COMM_SHM_SHM_H

#include "comm/comm.h"
#include "comm/meeting.h"

typedef struct tri_shm_config {
    int timeout_ms;      // of an operation that does not advance; 0: TRI_DEFAULT_TIMEOUT_MS
    bool pass_by_socket; // tests: pass memory as on hosts where /proc/PID/fd is closed to others
    // If only some of the job's ranks open the communicator: `job_ranks` is each one's number in
    // the job, by which messages name it, and `group` a name that no other group of the job has.
    // NULL: all ranks open it, in order.
    const int *job_ranks;
    const char *group;
    // A communicator over all ranks of the job, which must outlive the opened one. Its ledger
    // records the operations, and messages tell from it what the ranks do. NULL: the family has a
    // ledger of its own.
    tri_comm *control;
} tri_shm_config;

// Opens the communicator. Collective over ranks 0 … size-1, all processes of one host and one user.
// `config` may be NULL. TRI_BAD_INPUT: more than TRI_MAX_LOCAL_RANKS. TRI_TIMEOUT, TRI_NETWORK: a
// rank did not join.
tri_status tri_comm_shm_open(int rank, int size, tri_store *store, const tri_shm_config *config,
                             tri_comm **out);
// Opens the communicator as tri_comm_shm_open does, with another meeting than a store. It is used
// only during the call.
tri_status tri_comm_shm_open_at(int rank, int size, const tri_comm_meeting *meeting,
                                const tri_shm_config *config, tri_comm **out);

#endif
