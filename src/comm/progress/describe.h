// Writes what messages about failures tell about a rank: its host, its process and its action, so
// that a user knows where to look.
#ifndef TRIREME_COMM_PROGRESS_DESCRIBE_H
#define TRIREME_COMM_PROGRESS_DESCRIBE_H

#include "comm/op.h"
#include "comm/progress/state.h"

enum { PROGRESS_ACTION_BYTES = 224 };

// The next three functions take a rank's number in the job. What ranks of other hosts do may be
// known only to the store, the job's key-value service; then these functions wait up to
// TRI_BEAT_ANSWER_MS for its answer.

// Writes "rank 1 (host b, pid 7)", without the parts that are not known.
void progress_describe(const progress_family *family, int job_rank, char *out, size_t size);
// Writes a space, the verb and what the rank does, for example " is in FORWARD 'conv2' of step 17,
// after …"; `verb` is "is ", "waits " or empty. Writes nothing if this process does not know what
// the rank does.
void progress_describe_action(const progress_family *family, int job_rank, const char *verb,
                              char out[PROGRESS_ACTION_BYTES]);
// Returns the rank for which the given rank waits; PROGRESS_NOBODY: it waits for none, or this is
// not known. `asks`: the store may be asked too.
int progress_awaited(const progress_family *family, int job_rank, bool asks);

// One of two ranks that disagree, and its call; if `call` is NULL, `text` says what it calls.
typedef struct progress_caller {
    int rank; // its number in the communicator
    const tri_comm_call *call;
    const char *text;
} progress_caller;

// Writes "ranks disagree at operation 7: rank 0 (host a) calls …, rank 1 (host b) calls …". With
// `sequence` 0 it writes no number.
void progress_disagreement(progress_comm *comm, uint64_t sequence, progress_caller first,
                           progress_caller second, char *out, size_t size);
// Makes the communicator fail with the text of progress_disagreement.
void progress_disagree(progress_comm *comm, uint64_t sequence, progress_caller first,
                       progress_caller second);

#endif
