// The recipe's section `comm`: the table of its options, by which it is read and checked, and what
// follows from its choice of a backend: memory, and how many ranks are possible.
#include "comm/options.h"

#include "base/limits.h"
#include "comm/message/message.h"

static const char *const backends[] = {
    [TRI_COMM_AUTO] = "auto",  [TRI_COMM_SELF] = "self", [TRI_COMM_SHM] = "shm",
    [TRI_COMM_MPI] = "mpi",    [TRI_COMM_UCX] = "ucx",   [TRI_COMM_NCCL] = "nccl",
    [TRI_COMM_NCCL + 1] = NULL};

static const tri_option rows[] = {
    TRI_OPTION_CHOICE(
        tri_comm_options, backend, "auto", backends,
        "what connects the ranks: self for one rank, shm for the ranks of one host, ucx "
        "or mpi for those of several hosts, chosen by itself with auto and nccl; between GPUs NCCL "
        "carries the data wherever all ranks have it, and with nccl it has to"),
    TRI_OPTION_FLOAT(tri_comm_options, timeout_s, "300", 0.1, 1e6,
                     "seconds after which the run ends when a rank that others wait for does not "
                     "move"),
    TRI_OPTION_FLOAT(tri_comm_options, silence_s, "15", 1.0, 1e6,
                     "seconds after which a rank of another host that gives no sign of life is "
                     "lost"),
};

const tri_option_table tri_comm_table =
    TRI_OPTION_TABLE("comm", tri_comm_options, rows, "how ranks communicate");

const char *tri_comm_choice_name(tri_comm_choice choice) { return backends[choice]; }

tri_comm_choice tri_comm_control_choice(tri_comm_choice choice) {
    return choice == TRI_COMM_NCCL ? TRI_COMM_AUTO : choice;
}

int tri_comm_timeout_ms(const tri_comm_options *options) {
    return options ? (int)(options->timeout_s * 1e3) : TRI_DEFAULT_TIMEOUT_MS;
}

// Counts the backend's own memory that a rank uses. Over shared memory every rank has two entries,
// in which it announces an operation together with its data if these are small (comm/shm/layout.h);
// a rank uses the entries of all ranks. Operations on memory that other ranks cannot see
// (`is_private`) also use staging memory, through which the data are copied: that of this rank, and
// that of the one other rank from which it reads at a time.
int64_t tri_comm_scratch_bytes(tri_comm_choice backend, int ranks, bool is_private) {
    if (ranks < 2 || backend == TRI_COMM_SELF) return 0;
    if (backend == TRI_COMM_MPI || backend == TRI_COMM_UCX)
        return tri_comm_message_scratch_bytes(ranks);
    int64_t announced = 2 * (TRI_SHM_EAGER_BYTES + 256);
    return ranks * announced + (is_private ? 2 * (int64_t)TRI_SHM_STAGE_BYTES : 0);
}

tri_status tri_comm_check_ranks(const tri_comm_options *options, int ranks) {
    if (options->backend != TRI_COMM_SELF || ranks == 1) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "comm.backend: self serves one rank, and this run has %d; set it to auto",
                    ranks);
}
