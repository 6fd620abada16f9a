// Profiles of supercomputers: what a job script has to say at each site, as data. A profile is a
// YAML file in sites/ or of the user's own; the table in site.c says what its keys mean.
#ifndef TRIREME_LAUNCH_SITE_H
#define TRIREME_LAUNCH_SITE_H

#include "base/option.h"

// A partition or a quality of service (QOS) with the limits of a job in it; 0: not known here, the
// batch system checks it.
typedef struct tri_site_queue {
    const char *name;
    int64_t nodes, gpus;
    double time;        // seconds
    bool whole_nodes;   // a job gets all GPUs of a node
    tri_strings sbatch; // more options of its jobs
} tri_site_queue;

typedef struct tri_site_queues {
    const tri_site_queue *items;
    int count;
} tri_site_queues;

typedef struct tri_site_node {
    int64_t sockets, cores, usable_cores, threads_per_core, gpus; // 0: not known, or none
    const char *gpu, *memory;
} tri_site_node;

typedef struct tri_site_account {
    bool required;
    const char *suffix, *example;
} tri_site_account;

// How a container's image is run: options of sbatch, options of srun, and the words before the
// command that runs inside. Sites have different runtimes, so these are data.
typedef struct tri_site_container {
    const char *name;
    tri_strings sbatch, srun, command;
} tri_site_container;

typedef struct tri_site {
    const char *name, *title;
    const char *closed;                            // when it was shut down; NULL: it is in use
    int partition_flag;                            // an index of tri_site_partition_flags
    const tri_tree *partitions, *qos, *containers; // as read
    tri_site_queues partition_list, qos_list;      // read from them; the first is the default
    const tri_site_container *container_list;
    int container_count;
    bool qos_required, more_qos;
    tri_site_node node;
    int64_t cpus_per_rank; // as Slurm counts CPUs; 0: the node's usable ones divided
    const char *memory_per_rank;
    tri_site_account account;
    tri_strings sbatch, srun, setup;
    tri_strings binding;         // the CPUs of each local rank, for jobs that use all GPUs
    const tri_tree *environment; // maps of variables
    const tri_tree *environment_between_nodes;
    const char *host_suffix; // of the name under which a node is reached by the fast network
} tri_site;

extern const char *const tri_site_partition_flags[]; // NULL ends it

// Reads a profile; `file` is its name in errors. TRI_BAD_INPUT names file, line and key.
tri_status tri_site_parse(tri_arena *arena, const char *text, size_t size, const char *file,
                          tri_site *out);
// Finds the profile `name`, or reads the file if `name` is a path (it has a slash or ends in
// .yaml).
tri_status tri_site_find(tri_arena *arena, const char *name, tri_site *out);
// Lists all profiles of the folder of sites, by name.
tri_status tri_site_list(tri_arena *arena, tri_site **out, int *count);

// The values that placeholders of a profile's options stand for; 0 or NULL: the profile does not
// say.
typedef struct tri_site_values {
    int64_t tasks, cpus, gpus, gpus_per_task; // of a node, a task, a node, a task
    const char *memory, *image, *folder;
} tri_site_values;
// Replaces {tasks}, {cpus}, {gpus}, {gpus_per_task}, {memory}, {image} and {folder}. NULL: the text
// has one for which there is no value, so the option has to be left out.
const char *tri_site_expand(tri_arena *arena, const char *text, const tri_site_values *values);
enum { TRI_SITE_MAX_CPUS = 1024 };
// Reads an amount of memory in Slurm's units, "60G" or "494000M", as mebibytes. 0: it is none.
int64_t tri_site_read_memory(const char *text);

#endif
