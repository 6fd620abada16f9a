// The recipe's section `comm`: how ranks communicate, and how long a rank may make others wait.
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
    double timeout_s; // how long ranks wait for one that does not move or does not join
    double silence_s; // after which a rank of another host that gives no sign of life is lost
} tri_comm_options;

extern const tri_option_table tri_comm_table;

const char *tri_comm_choice_name(tri_comm_choice choice); // "auto", …
// What connects the ranks before NCCL can, and tells them of failures.
tri_comm_choice tri_comm_control_choice(tri_comm_choice choice);
int tri_comm_timeout_ms(const tri_comm_options *options); // NULL: the default
// In a communicator of `ranks` ranks: how many bytes of the backend's own memory one rank touches,
// for plans. AUTO: as the backend that would be chosen. `is_private`: operations use memory that
// the backend's alloc did not give.
int64_t tri_comm_scratch_bytes(tri_comm_choice backend, int ranks, bool is_private);
// Checks that the backend can serve so many ranks; else TRI_BAD_INPUT.
tri_status tri_comm_check_ranks(const tri_comm_options *options, int ranks);

#endif
