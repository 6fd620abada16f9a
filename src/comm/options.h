// The recipe's section `comm`: how ranks communicate, and how long ranks wait for a rank that does
// not answer.
#ifndef TRIREME_COMM_OPTIONS_H
#define TRIREME_COMM_OPTIONS_H

#include "base/option.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum tri_comm_choice {
    TRI_COMM_AUTO,
    TRI_COMM_SELF,
    TRI_COMM_SHM,
    TRI_COMM_MPI,
    TRI_COMM_UCX,
    TRI_COMM_NCCL
} tri_comm_choice;

typedef struct tri_comm_options {
    tri_comm_choice backend;
    double timeout_s; // how long ranks wait for a rank that makes no progress or does not join
    double silence_s; // a rank of another host that shows no sign of life for so long is lost
} tri_comm_options;

extern const tri_option_table tri_comm_table;

// The choice as recipes spell it: "auto", ….
const char *tri_comm_choice_name(tri_comm_choice choice);
// Returns the backend of the control communicator, which connects all ranks of a run, if the recipe
// makes this choice. It is the backend that was chosen, except that AUTO stands in for NCCL: the
// ranks need the control communicator before NCCL connects them, and to learn of failures.
tri_comm_choice tri_comm_control_choice(tri_comm_choice choice);
// The time limit timeout_s, in ms. `options` NULL: the default limit.
int tri_comm_timeout_ms(const tri_comm_options *options);
// How many bytes of the backend's own memory one rank uses in a communicator of `ranks` ranks, for
// plans. AUTO and NCCL count as SHM. `is_private`: operations also work on memory that the
// backend's `alloc` did not allocate.
int64_t tri_comm_scratch_bytes(tri_comm_choice backend, int ranks, bool is_private);
// Checks that the backend can serve this number of ranks. TRI_BAD_INPUT: it cannot.
tri_status tri_comm_check_ranks(const tri_comm_options *options, int ranks);

#endif
