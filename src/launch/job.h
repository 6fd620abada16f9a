// A job at a site (a supercomputer): the request of `trireme submit`, checked against the site's
// profile, and the script for the batch system. So a mistake is found before the job has waited in
// a queue.
#ifndef TRIREME_LAUNCH_JOB_H
#define TRIREME_LAUNCH_JOB_H

#include "launch/site.h"

typedef enum tri_job_launcher {
    TRI_JOB_SRUN, // srun starts every rank
    TRI_JOB_RUN,  // srun starts one `trireme run` on each node, which starts the ranks
} tri_job_launcher;

// A request for a job, as the user gave it in the flags of `trireme submit`. A text that is NULL
// was not given.
typedef struct tri_job_request {
    const tri_site *site;
    const char *nodes, *ranks_per_node, *time, *account, *partition, *qos, *launcher, *container;
    const char *name;           // name of the run
    const char *program;        // path of this program
    const char *const *command; // the words after the program: "train", recipe, …
    int words;
    const char *folder; // the folder from which the job is submitted
} tri_job_request;

typedef struct tri_job {
    const tri_job_request *request;
    const tri_site *site;
    // What the site's profile says of the job's partition and of its QOS (quality of service);
    // NULL: the profile does not list it.
    const tri_site_queue *partition, *qos;
    const char *partition_name, *qos_name; // NULL: the batch system's default
    int64_t nodes, ranks_per_node;
    int64_t cpus_per_rank; // CPUs of a rank, as Slurm's --cpus-per-task counts them; 0: not known
    int64_t time_s;        // time limit of the job
    tri_job_launcher launcher;
    const tri_site_container *container;
    const char *image;
    tri_site_values values;
} tri_job;

// Checks the request and adds the profile's values. TRI_BAD_INPUT: one line that names the site,
// the flag and what is allowed.
tri_status tri_job_make(tri_arena *arena, const tri_job_request *request, tri_job *out);
// Writes the job script.
char *tri_job_script(tri_arena *arena, const tri_job *job);
// Writes a time as "2-00:00:00", or as "12:30:00" below a day.
const char *tri_job_time_text(tri_arena *arena, int64_t seconds);
// Passes the script to sbatch, which prints the job's number. TRI_NOT_FOUND: there is no sbatch.
tri_status tri_job_submit(const tri_job *job, const char *script);

#endif
