// The options of `trireme run`: torchrun's flags, from the command line or from PET_<NAME>
// environment variables. `trireme run` starts the ranks of one node (usually a host) as processes,
// the workers; a run may have several nodes.
#ifndef TRIREME_LAUNCH_OPTIONS_H
#define TRIREME_LAUNCH_OPTIONS_H

#include "base/arena.h"
#include "base/limits.h"
#include "base/status.h"

#include <signal.h>
#include <stdbool.h>

// Output streams, as bits. The numbers are torchrun's: users write them as values of --redirects
// and --tee.
enum { LAUNCH_STDOUT = 1, LAUNCH_STDERR = 2 };

// A choice of output streams (bits LAUNCH_STDOUT and LAUNCH_STDERR) for each local rank.
typedef struct launch_stream_map {
    unsigned char of_all; // the streams of every rank, unless per_rank is set
    bool per_rank;
    unsigned char of[TRI_MAX_LOCAL_RANKS]; // by local rank: the rank's streams, if per_rank is set
} launch_stream_map;

typedef struct launch_rank_set {
    bool limited; // false: all ranks are in the set
    bool has[TRI_MAX_LOCAL_RANKS];
} launch_rank_set;

typedef enum launch_binding {
    LAUNCH_BIND_NONE,
    LAUNCH_BIND_NODE,
    LAUNCH_BIND_SOCKET,
    LAUNCH_BIND_EXCLUSIVE,
    LAUNCH_BIND_CORE_COMPLEX,
    LAUNCH_BIND_AUTO, // disjoint cores for the workers, near their GPUs
} launch_binding;

// torchrun's settings for how the nodes of a run find each other (--rdzv-conf), in seconds.
typedef struct launch_conf {
    double join_timeout_s; // how long to wait for enough nodes to join
    double last_call_s;    // how long to wait for further nodes, once there are enough
    double silence_s;      // a node without a sign of life for so long is lost
    // How long a node that was cut off tries to get back to the launcher that serves all nodes
    // (nodes.h).
    double read_timeout_s;
    // torchrun's keep_alive_interval, and its keep_alive_max_attempt: how many signs of life may be
    // missing. silence_s = interval_s * attempts.
    double interval_s, attempts;
} launch_conf;

typedef struct launch_options {
    bool help;
    int nodes_min, nodes_max;
    int workers; // workers on this node
    bool standalone;
    const char *backend, *endpoint, *run_id;
    launch_conf conf; // values of --rdzv-conf
    int max_restarts;
    double monitor_interval_s;
    double shutdown_s; // how long workers may take to end
    const char *role;
    bool module, no_python, run_path;
    const char *log_dir; // NULL: a temporary folder
    launch_stream_map redirects, tee;
    launch_rank_set shown; // ranks whose output is shown on the console
    int node_rank;
    const char *master_addr;
    int master_port;
    bool master_port_given;
    const char *local_addr;
    launch_binding binding;
    bool shows_binding;
    bool virtual_local_rank;
    sigset_t signals; // signals that are passed on to the workers, and end the run
    char **program;   // PROGRAM [ARG…]; NULL at the end
    uint64_t given;   // which flags were set: bit i for row i of the table in options.c
} launch_options;

// Reads argv and, through `get`, the environment; the texts in *out lie in argv or in the
// environment. TRI_BAD_INPUT: a value is wrong; the message names the flag (or PET variable) and
// the values that it accepts.
tri_status launch_options_parse(int argc, char **argv, const char *(*get)(const char *name),
                                launch_options *out);
// Logs one warning for each given flag that has no effect; such flags are accepted only so that
// command lines for torchrun work.
void launch_options_warn_idle(const launch_options *options);
// Prints --help on standard output, from the table of flags.
void launch_options_help(void);

// One flag, for manuals and completion, so that these are never out of date. `values` is NULL for a
// flag without a value. tri_launch_flag_at returns false if there is no flag `index`.
typedef struct tri_launch_flag {
    const char *name, *values, *help;
    char letter; // the flag's short form; 0: it has none
} tri_launch_flag;
bool tri_launch_flag_at(int index, tri_launch_flag *out);

#define TRI_LAUNCH_EXAMPLES                                                                        \
    "trireme run --standalone --nproc-per-node 2 trireme train recipes/mnist-cnn.yaml\n"           \
    "trireme run --standalone --nproc-per-node 4 --tee 3 --log-dir logs train.py --epochs 3\n"

// Reads a choice of output streams in torchrun's form (1: stdout, 2: stderr, 3: both): "3" for all
// local ranks, or "0:1,1:2" for some: of rank 0 stdout, of rank 1 stderr.
tri_status launch_stream_map_parse(const char *name, const char *text, launch_stream_map *out);
// Reads a list of local ranks: "0,2"; an empty text means all.
tri_status launch_rank_set_parse(const char *name, const char *text, launch_rank_set *out);
// Reads a number of nodes: "2", or "1:4" for at least one and at most four.
tri_status launch_nodes_parse(const char *name, const char *text, int *min, int *max);
// Reads a list of signals: "SIGTERM,SIGINT".
tri_status launch_signals_parse(const char *name, const char *text, sigset_t *out);
// Reads --rdzv-conf: "join_timeout=600,last_call_timeout=30". Keys of torchrun that values.c does
// not list are accepted and have no effect, so that command lines for torchrun work.
tri_status launch_conf_parse(const char *name, const char *text, launch_conf *out);
// Reads how many workers to start: a number, "cpu" (this process's CPUs), "gpu", or "auto" (GPUs if
// there are any, else CPUs).
tri_status launch_workers_parse(const char *name, const char *text, int *out);
// Gets the name of a signal for messages: "SIGKILL", or "signal 34" if it has no name. Static text.
const char *launch_signal_name(int number);

#endif
