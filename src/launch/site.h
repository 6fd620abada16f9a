// Profiles of supercomputers: what a job script needs at each site, as data. A profile is a YAML
// file in sites/ or one that the user wrote; the table in site.c explains its keys.
#ifndef TRIREME_LAUNCH_SITE_H
#define TRIREME_LAUNCH_SITE_H

#include "base/option.h"

// A partition or a quality of service (QOS), with the limits of a job in it. 0: the limit is not
// known here, so only the batch system checks it.
typedef struct tri_site_queue {
    const char *name;
    int64_t nodes, gpus; // the most that a job may have
    double time;         // the longest time that a job may run, in seconds
    bool whole_nodes;    // a job always gets all GPUs of a node
    tri_strings sbatch;  // additional options of sbatch for its jobs
} tri_site_queue;

typedef struct tri_site_queues {
    const tri_site_queue *items;
    int count;
} tri_site_queues;

typedef struct tri_site_node {
    // Values for each node; 0: not known, or none.
    int64_t sockets, cores, usable_cores, threads_per_core, gpus;
    const char *gpu, *memory;
    // What all network adapters together send in one direction while they receive as much, in
    // Gbit/s by their data sheets; 0: not known.
    int64_t network_gbit;
} tri_site_node;

typedef struct tri_site_account {
    bool required;
    const char *suffix, *example;
} tri_site_account;

// How a container's image is run: options of sbatch, options of srun, and the words before the
// command that runs inside the container. The profile has these, because sites have different
// container runtimes.
typedef struct tri_site_container {
    const char *name;
    tri_strings sbatch, srun, command;
} tri_site_container;

typedef struct tri_site {
    const char *name, *title;
    const char *closed; // when the site was shut down; NULL: it is in use
    int partition_flag; // index into tri_site_partition_flags
    // Parts of the profile as they are written there; the lists below are made from them.
    const tri_tree *partitions, *qos, *containers;
    // The first partition is the default. For QOS there is no default: a job without --qos gets no
    // option --qos.
    tri_site_queues partition_list, qos_list;
    const tri_site_container *container_list;
    int container_count;
    // qos_required: jobs need --qos. more_qos: the site has QOS that `qos` does not list.
    bool qos_required, more_qos;
    tri_site_node node;
    // How many CPUs each rank gets, as Slurm counts them: a core has node.threads_per_core of them.
    // 0: the node's usable CPUs are divided by its ranks.
    int64_t cpus_per_rank;
    const char *memory_per_rank;
    tri_site_account account;
    tri_strings sbatch, srun, setup;
    tri_strings binding; // by local rank: the rank's CPUs, for jobs that use all GPUs of a node
    const tri_tree *environment; // maps from environment variables to their values
    const tri_tree *environment_between_nodes;
    const char *host_suffix; // suffix of a node's name on the fast network
} tri_site;

// The options of sbatch with which a site lets users choose a partition; NULL at the end.
extern const char *const tri_site_partition_flags[];

// Reads a profile; `file` is its name for messages. TRI_BAD_INPUT: the message names file, line and
// key.
tri_status tri_site_parse(tri_arena *arena, const char *text, size_t size, const char *file,
                          tri_site *out);
// Finds the profile `name`. If `name` is a path (it has a slash or ends in .yaml), reads that file.
tri_status tri_site_find(tri_arena *arena, const char *name, tri_site *out);
// Lists all profiles in the folder with the sites' profiles, sorted by name.
tri_status tri_site_list(tri_arena *arena, tri_site **out, int *count);

// The values that a job gives to the placeholders in a profile's options; 0 or NULL: it has no such
// value.
typedef struct tri_site_values {
    // `tasks` and `gpus` count those of a node; `cpus` and `gpus_per_task` count those of a task.
    int64_t tasks, cpus, gpus, gpus_per_task;
    const char *memory, *image, *folder;
} tri_site_values;
// Replaces {tasks}, {cpus}, {gpus}, {gpus_per_task}, {memory}, {image} and {folder} by their
// values. NULL: the text has a placeholder without a value, so the option has to be left out.
const char *tri_site_expand(tri_arena *arena, const char *text, const tri_site_values *values);
enum { TRI_SITE_MAX_CPUS = 1024 };
// Reads an amount of memory in Slurm's units, such as "60G" or "494000M". Returns mebibytes; 0: the
// text has another form.
int64_t tri_site_read_memory(const char *text);

#endif
