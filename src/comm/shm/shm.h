// Opens communicators between processes of one host over memory that they share. The memory has no
// name in a file system, so that the kernel frees it with the last process, however that process
// ended.
#ifndef TRIREME_COMM_SHM_SHM_H
#define TRIREME_COMM_SHM_SHM_H

#include "comm/comm.h"
#include "comm/meeting.h"

typedef struct tri_shm_config {
    int timeout_ms; // time limit of an operation that makes no progress; 0: TRI_DEFAULT_TIMEOUT_MS
    // For tests: passes memory as on hosts where /proc/PID/fd is not accessible to other processes.
    bool pass_by_socket;
    // If only some ranks of the job open the communicator: job_ranks[r] is the number in the job of
    // rank r, which messages name, and `group` is a name of these ranks that no other group of the
    // job has. NULL: all ranks of the job open it, in order.
    const int *job_ranks;
    const char *group;
    // A communicator over all ranks of the job, which must outlive the opened one. Its ledger (the
    // record of a rank's latest actions) records the operations, so that messages about failures
    // can tell what each rank does. NULL: the opened communicator has a ledger of its own.
    tri_comm *control;
} tri_shm_config;

// Opens the communicator. Collective over ranks 0 … size-1, all processes of one host and one user.
// `config` may be NULL. TRI_BAD_INPUT: more than TRI_MAX_LOCAL_RANKS. TRI_TIMEOUT, TRI_NETWORK: a
// rank did not join.
tri_status tri_comm_shm_open(int rank, int size, tri_store *store, const tri_shm_config *config,
                             tri_comm **out);
// As tri_comm_shm_open, but the ranks exchange what they need to connect through the functions in
// `meeting` and not through a store. These functions are called only during this call.
tri_status tri_comm_shm_open_at(int rank, int size, const tri_comm_meeting *meeting,
                                const tri_shm_config *config, tri_comm **out);

#endif
