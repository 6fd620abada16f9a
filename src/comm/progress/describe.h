// What messages about failures tell of a rank: its host, its process, and what it does, so that a
// user finds where to look.
#ifndef TRIREME_COMM_PROGRESS_DESCRIBE_H
#define TRIREME_COMM_PROGRESS_DESCRIBE_H

#include "comm/op.h"
#include "comm/progress/state.h"

enum { PROGRESS_ACTION_BYTES = 224 };

// In these functions a rank is named by its number in the job. What ranks of other hosts do comes
// from the store, for which these functions may wait up to TRI_SAID_MS.

// Writes "rank 1 (host b, pid 7)", or less where less is known.
void progress_describe(const progress_family *family, int job_rank, char *out, size_t size);
// Writes a space, the verb, and what the rank does and did last. Writes nothing if this process
// does not know it.
void progress_describe_action(const progress_family *family, int job_rank, const char *verb,
                              char out[PROGRESS_ACTION_BYTES]);
// For which rank the given one waits; PROGRESS_NOBODY: for none. `asks`: also asks the store.
int progress_awaited(const progress_family *family, int job_rank, bool asks);

// What one of two ranks that disagree calls, as text: of `call`, or `text` where that is NULL.
typedef struct progress_caller {
    int rank;
    const tri_comm_call *call;
    const char *text;
} progress_caller;

// Writes "ranks disagree at operation 7: rank 0 (host a) calls …, rank 1 (host b) calls …".
// `sequence` 0: no number is named.
void progress_disagreement(progress_comm *comm, uint64_t sequence, progress_caller first,
                           progress_caller second, char *out, size_t size);
// Makes the communicator fail with this text.
void progress_disagree(progress_comm *comm, uint64_t sequence, progress_caller first,
                       progress_caller second);

#endif
