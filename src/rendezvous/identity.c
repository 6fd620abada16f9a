// Finds out which rank this process is, from the variables of the launcher that started it. There
// is one table row for each launcher, in order of precedence. A row is present if its rank variable
// is set. The first present row names the launcher; later rows must agree with it, and supply
// numbers that it lacks (for example a local rank).
#include "rendezvous/rendezvous.h"

#include "base/hash.h"
#include "base/limits.h"
#include "base/os.h"
#include "base/quantity.h"
#include "base/variable.h"
#include "rendezvous/address.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef const char *(*get_variable)(const char *name);

enum { JOB_VARIABLES = 4, SIZE_VARIABLES = 3, UNKNOWN = -1, MAX_GENERATION = 1 << 30 };

typedef struct launcher {
    const char *name;
    const char *rank;
    const char *size[SIZE_VARIABLES]; // number of ranks; the first of these that is set counts
    const char *local_rank, *local_size;
    // Variable with the number of hosts, for launchers that do not tell the local size.
    const char *nodes;
    const char *only_with; // the row counts only if this variable is set too; NULL: always
    // The row has Slurm's variables. It is ignored if mpirun or mpiexec started the ranks, because
    // inside an allocation mpirun and mpiexec start one daemon on each host by srun, and Slurm's
    // variables then describe the daemon.
    bool from_slurm;
    // All variables of `job` may be missing. Then the address that the user gave or, without one,
    // the launcher's process distinguishes runs (hash_run).
    bool no_job_name;
    // Variables that together are the same on all ranks of a run, and different in other runs.
    const char *job[JOB_VARIABLES];
} launcher;

// Sources of the rows: the manuals of torchrun, Slurm and each MPI; the rows of Slurm and Open MPI
// were checked with Slurm 22.05 and Open MPI 4.1, that of Hydra with MPICH 4.0. A step of Slurm may
// have fewer tasks and nodes than its job, and with `srun --preserve-env` the job's numbers stay in
// the environment, so a variable of the step comes before the job's.
static const launcher launchers[] = {
    {.name = "torchrun",
     .rank = "RANK",
     .size = {"WORLD_SIZE"},
     .local_rank = "LOCAL_RANK",
     .local_size = "LOCAL_WORLD_SIZE",
     .job = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}},
    {.name = "open-mpi",
     .rank = "OMPI_COMM_WORLD_RANK",
     .size = {"OMPI_COMM_WORLD_SIZE"},
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .no_job_name = true,
     .job = {"PMIX_NAMESPACE", "OMPI_MCA_orte_precondition_transports", "OMPI_MCA_ess_base_jobid"}},
    {.name = "slurm",
     .rank = "SLURM_PROCID",
     .size = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
     .local_rank = "SLURM_LOCALID",
     .from_slurm = true,
     .job = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_CLUSTER_NAME"}},
    {.name = "slurm-pmix",
     .rank = "PMIX_RANK",
     .size = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
     .local_rank = "SLURM_LOCALID",
     .from_slurm = true,
     .job = {"PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_CLUSTER_NAME"}},
    {.name = "slurm-pmi2",
     .rank = "PMI_RANK",
     .size = {"PMI_SIZE"},
     .local_rank = "SLURM_LOCALID",
     .only_with = "SLURM_LOCALID",
     .from_slurm = true,
     .job = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_CLUSTER_NAME"}},
    {.name = "hydra",
     .rank = "PMI_RANK",
     .size = {"PMI_SIZE"},
     .local_rank = "MPI_LOCALRANKID",
     .local_size = "MPI_LOCALNRANKS",
     .no_job_name = true},
    {.name = "pals",
     .rank = "PALS_RANKID",
     .size = {"PMI_SIZE"},
     .local_rank = "PALS_LOCAL_RANKID",
     .local_size = "PALS_LOCAL_SIZE",
     .no_job_name = true,
     .job = {"PALS_APID"}},
    {.name = "mvapich2",
     .rank = "MV2_COMM_WORLD_RANK",
     .size = {"MV2_COMM_WORLD_SIZE"},
     .local_rank = "MV2_COMM_WORLD_LOCAL_RANK",
     .local_size = "MV2_COMM_WORLD_LOCAL_SIZE",
     .no_job_name = true},
    {.name = "flux",
     .rank = "FLUX_TASK_RANK",
     .size = {"FLUX_JOB_SIZE"},
     .local_rank = "FLUX_TASK_LOCAL_ID",
     .nodes = "FLUX_JOB_NNODES",
     .no_job_name = true,
     .job = {"FLUX_JOB_ID"}},
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

// The rank, sizes and local numbers that one launcher's variables give, or those of all launchers
// together; UNKNOWN: no variable gives the number.
typedef struct claim {
    const launcher *from;
    const char *size_name;
    unsigned launchers_present; // bit i: row i of `launchers` is present
    int rank, size, local_rank, local_size;
    bool is_local_size_computed; // no variable gives local_size itself: it was computed from others
} claim;

static const char *value_of(get_variable get, const char *name) {
    const char *value = name ? get(name) : NULL;
    return value && *value ? value : NULL;
}

static tri_status read_number(get_variable get, const char *name, int low, int high, int *out) {
    *out = UNKNOWN;
    const char *text = value_of(get, name);
    if (!text) return TRI_OK;
    int value = 0;
    const char *at = text;
    while (isdigit((unsigned char)*at) && value <= high) value = value * 10 + (*at++ - '0');
    if (*at || at == text || value < low || value > high)
        return TRI_FAIL(TRI_BAD_INPUT, "%s=%.40s is not a number from %d to %d", name, text, low,
                        high);
    *out = value;
    return TRI_OK;
}

// Reads Slurm's list of the numbers of tasks on a step's nodes, for example "2(x3),1": 2 tasks on
// each of three nodes, 1 on the fourth. UNKNOWN: the text has another form, or too few nodes.
static int tasks_of_node(const char *text, int node) {
    while (text && *text && node >= 0) {
        char *end;
        long tasks = strtol(text, &end, 10), nodes = 1;
        if (end == text || tasks < 1 || tasks > TRI_MAX_RANKS) return UNKNOWN;
        if (!strncmp(end, "(x", 2)) {
            const char *repeat = end + 2;
            nodes = strtol(repeat, &end, 10);
            if (end == repeat || *end++ != ')' || nodes < 1 || nodes > TRI_MAX_RANKS)
                return UNKNOWN;
        }
        if (node < nodes) return (int)tasks;
        node -= (int)nodes;
        if (*end && *end != ',') return UNKNOWN;
        text = *end ? end + 1 : end;
    }
    return UNKNOWN;
}

static tri_status read_slurm_local_size(get_variable get, claim *c) {
    int node, nodes, per_node;
    TRI_TRY(read_number(get, "SLURM_NODEID", 0, TRI_MAX_RANKS, &node));
    TRI_TRY(read_number(get, "SLURM_STEP_NUM_NODES", 1, TRI_MAX_RANKS, &nodes));
    TRI_TRY(read_number(get, "SLURM_NTASKS_PER_NODE", 1, TRI_MAX_RANKS, &per_node));
    c->is_local_size_computed = true;
    c->local_size = tasks_of_node(value_of(get, "SLURM_STEP_TASKS_PER_NODE"), node < 0 ? 0 : node);
    if (c->local_size < 0) c->local_size = nodes == 1 ? c->size : per_node;
    if (c->size > 0 && c->local_size > c->size) c->local_size = c->size;
    return TRI_OK;
}

// Guesses the local size as if all hosts had the same number of ranks.
static tri_status guess_local_size(get_variable get, const char *name, claim *c) {
    int nodes;
    TRI_TRY(read_number(get, name, 1, TRI_MAX_RANKS, &nodes));
    if (c->local_size >= 0 || c->size < 0 || nodes < 0) return TRI_OK;
    c->is_local_size_computed = true;
    c->local_size = (c->size + nodes - 1) / nodes;
    return TRI_OK;
}

// True in a process that srun started. A batch script has SLURM_PROCID=0 and the job's SLURM_NTASKS
// too, but it is a single process and must not wait for other ranks. Only a step that srun started
// has an ordinary number; other steps (the batch script's, for example) have names, or numbers from
// 0xfffffff0 on.
static bool in_slurm_step(get_variable get) {
    const char *step = value_of(get, "SLURM_STEP_ID"), *rank = value_of(get, "SLURM_PROCID");
    if (!step) step = value_of(get, "SLURM_STEPID");
    if (!step) return rank && strcmp(rank, "0") != 0;
    return isdigit((unsigned char)*step) && strtoull(step, NULL, 10) < 0xfffffff0ull;
}

// True if the ranks were numbered by Open MPI's mpirun, or by Hydra, the mpiexec of MPICH and of
// MPIs derived from it. Slurm's variables then describe the daemon that started the rank, not the
// rank.
static bool mpi_numbered_ranks(get_variable get) {
    return value_of(get, "OMPI_COMM_WORLD_RANK") ||
           (value_of(get, "PMI_RANK") && value_of(get, "MPI_LOCALRANKID"));
}

static tri_status read_claim(get_variable get, const launcher *from, claim *c) {
    *c = (claim){from,    from->size[0], 1u << (from - launchers), UNKNOWN, UNKNOWN, UNKNOWN,
                 UNKNOWN, false};
    if (from->only_with && !value_of(get, from->only_with)) return TRI_OK;
    if (from->from_slurm && mpi_numbered_ranks(get)) return TRI_OK;
    if (!strcmp(from->name, "slurm") && !in_slurm_step(get)) return TRI_OK;
    TRI_TRY(read_number(get, from->rank, 0, TRI_MAX_RANKS - 1, &c->rank));
    if (c->rank < 0) return TRI_OK;
    for (int i = 0; i < SIZE_VARIABLES && c->size < 0 && from->size[i]; i++) {
        c->size_name = from->size[i];
        TRI_TRY(read_number(get, from->size[i], 1, TRI_MAX_RANKS, &c->size));
    }
    TRI_TRY(read_number(get, from->local_rank, 0, TRI_MAX_RANKS - 1, &c->local_rank));
    TRI_TRY(read_number(get, from->local_size, 1, TRI_MAX_RANKS, &c->local_size));
    if (from->from_slurm) TRI_TRY(read_slurm_local_size(get, c));
    if (from->nodes) TRI_TRY(guess_local_size(get, from->nodes, c));
    if (c->size >= 0 && c->rank >= c->size)
        return TRI_FAIL(TRI_BAD_INPUT, "%s=%d is not a rank of %s=%d: ranks count from 0",
                        from->rank, c->rank, c->size_name, c->size);
    if (c->local_size >= 0 && c->local_rank >= c->local_size)
        return TRI_FAIL(TRI_BAD_INPUT, "%s=%d is not a local rank of %d", from->local_rank,
                        c->local_rank, c->local_size);
    if (c->size >= 0 && c->local_size > c->size)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: %d local ranks of only %s", from->name, c->local_size,
                        tri_counted(c->size, "rank"));
    return TRI_OK;
}

static bool differ(int a, int b) { return a >= 0 && b >= 0 && a != b; }

static void describe(const claim *c, char *text, size_t size) {
    int used = snprintf(text, size, "%s=%d", c->from->rank, c->rank);
    if (c->size >= 0) snprintf(text + used, size - (size_t)used, " %s=%d", c->size_name, c->size);
}

static tri_status merge(claim *all, const claim *more) {
    if (differ(all->rank, more->rank) || differ(all->size, more->size)) {
        char ours[128], theirs[128];
        describe(all, ours, sizeof ours);
        describe(more, theirs, sizeof theirs);
        return TRI_FAIL(
            TRI_BAD_INPUT,
            "two launchers disagree: %s (%s) and %s (%s); unset one's variables, or set "
            "TRIREME_LAUNCHER=%s or =%s to use that one",
            ours, all->from->name, theirs, more->from->name, all->from->name, more->from->name);
    }
    if (all->size < 0) {
        all->size = more->size;
        all->size_name = more->size_name;
    }
    all->launchers_present |= more->launchers_present;
    if (all->local_rank < 0) all->local_rank = more->local_rank;
    if (all->local_size < 0 || (all->is_local_size_computed && more->local_size >= 0)) {
        all->local_size = more->local_size;
        all->is_local_size_computed = more->is_local_size_computed;
    }
    return TRI_OK;
}

// Finds the launcher whose variables alone count; NULL: the variables of all launchers count. A
// process with TORCHELASTIC_RUN_ID is a rank of torchrun, even if it also has the variables of srun
// or mpirun, which then have only started torchrun.
static const char *chosen_launcher(get_variable get) {
    const char *named = value_of(get, "TRIREME_LAUNCHER");
    if (named) return named;
    return value_of(get, "TORCHELASTIC_RUN_ID") && value_of(get, "RANK") ? "torchrun" : NULL;
}

static tri_status read_claims(get_variable get, claim *all) {
    const char *chosen = chosen_launcher(get);
    bool known = !chosen || !strcmp(chosen, "none");
    for (int i = 0; i < LAUNCHERS; i++) {
        if (chosen && strcmp(chosen, launchers[i].name) != 0) continue;
        known = true;
        claim found;
        TRI_TRY(read_claim(get, &launchers[i], &found));
        if (found.rank < 0) continue;
        if (!all->from)
            *all = found;
        else
            TRI_TRY(merge(all, &found));
    }
    if (!known)
        return TRI_FAIL(
            TRI_BAD_INPUT,
            "TRIREME_LAUNCHER=%.40s is not a known launcher (torchrun, "
            "open-mpi, slurm, slurm-pmix, slurm-pmi2, hydra, pals, mvapich2, flux, none)",
            chosen);
    if (chosen && !all->from && strcmp(chosen, "none") != 0)
        return TRI_FAIL(TRI_BAD_INPUT, "TRIREME_LAUNCHER=%s, but its variables are not set",
                        chosen);
    return TRI_OK;
}

static uint64_t hash_text(uint64_t hash, const char *text) {
    if (text) hash = tri_hash_text(hash, text);
    // Adds a separator, so that "a" "bc" and "ab" "c" give different hashes.
    return tri_hash_bytes(hash, "\xff", 1);
}

static bool process_has_variable(long pid, const char *name) {
    char path[64], *text;
    size_t size;
    snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    if (tri_os_read_file(path, 16 << 20, &text, &size) != TRI_OK) return false;
    size_t length = strlen(name);
    bool found = false;
    for (size_t at = 0; at < size && !found; at += strlen(text + at) + 1)
        found = !strncmp(text + at, name, length) && text[at + length] == '=';
    free(text);
    return found;
}

static long parent_of(long pid) {
    char path[64], *text;
    size_t size;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    if (tri_os_read_file(path, 4096, &text, &size) != TRI_OK) return 0;
    const char *after_name = strrchr(text, ')');
    long parent = 0;
    if (!after_name || sscanf(after_name + 1, " %*c %ld", &parent) != 1) parent = 0;
    free(text);
    return parent;
}

long tri_launcher_process(const char *rank_variable) {
    long pid = getppid();
    for (int depth = 0; depth < 64 && pid > 1 && process_has_variable(pid, rank_variable); depth++)
        pid = parent_of(pid);
    return pid;
}

// Reads how often the run was started before, from the first that is set: TRIREME_GENERATION, or a
// variable in `names`. This number is the generation, which distinguishes the ranks of this start
// from those of an earlier one.
static tri_status read_generation(get_variable get, tri_identity *out) {
    static const char *const names[] = {"TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"};
    int64_t own = UNKNOWN;
    int found = UNKNOWN;
    TRI_TRY(tri_variable_whole(get, "TRIREME_GENERATION", &own));
    found = (int)own;
    for (size_t i = 0; i < sizeof names / sizeof *names && found < 0; i++)
        TRI_TRY(read_number(get, names[i], 0, MAX_GENERATION, &found));
    out->generation = found < 0 ? 0 : found;
    return TRI_OK;
}

// Names the run by a hash, so that ranks of two runs on one host never meet. The name is made of
// the first of these that is set:
// 1. TRIREME_JOB;
// 2. the variables that the launchers set differently for each run (launcher.job);
// 3. the address that the user gave and, on several hosts, the batch job's number;
// 4. the number of the launcher's process or, without a launcher, of this process.
static uint64_t hash_run(get_variable get, const claim *all) {
    uint64_t hash = TRI_HASH_OF_NOTHING;
    char own[64] = "";
    bool named = false;
    const char *given = value_of(get, "TRIREME_JOB");
    if (given) return hash_text(hash, given);
    for (int row = 0; row < LAUNCHERS; row++)
        for (int i = 0; i < JOB_VARIABLES && all->launchers_present >> row & 1; i++) {
            const char *value = value_of(get, launchers[row].job[i]);
            named |= value != NULL;
            hash = hash_text(hash, value);
        }
    if (all->from && !named && all->from->no_job_name) {
        static const char *const names[] = {"TRIREME_STORE", "MASTER_ADDR", "MASTER_PORT",
                                            "SLURM_JOB_ID",  "PBS_JOBID",   "LSB_JOBID",
                                            "COBALT_JOBID",  "JOB_ID"};
        enum { ADDRESS = 3 };
        // On one host the batch job's number is not used, because one job may start several runs
        // there. The launcher's process tells them apart.
        bool is_spread = all->local_size >= 0 && all->local_size < all->size;
        for (size_t i = 0; i < (is_spread ? sizeof names / sizeof *names : ADDRESS); i++) {
            named |= value_of(get, names[i]) != NULL;
            hash = hash_text(hash, value_of(get, names[i]));
        }
        if (!named)
            snprintf(own, sizeof own, "launcher %ld", tri_launcher_process(all->from->rank));
    } else if (!all->from) {
        snprintf(own, sizeof own, "process %ld at %lld", (long)getpid(),
                 (long long)tri_os.monotonic_ns());
    }
    return hash_text(hash, own);
}

static void name_job(get_variable get, const claim *all, tri_identity *out) {
    uint64_t hash = hash_run(get, all);
    snprintf(out->run, sizeof out->run, "u%ld-%016llx", (long)getuid(), (unsigned long long)hash);
    // `trireme run` sets a random number, so that other users cannot find out the name of the
    // ranks' socket.
    hash = hash_text(hash, value_of(get, "TRIREME_NONCE"));
    snprintf(out->job, sizeof out->job, "%s-u%ld-n%d-g%lld-%016llx", out->launcher, (long)getuid(),
             out->size, (long long)out->generation, (unsigned long long)hash);
}

// Refuses a process that is alone in a Slurm job of several tasks, or of several nodes where nobody
// said how many tasks: in a batch script, or in the shell that salloc starts.
static tri_status check_job_of_one(get_variable get) {
    static const struct {
        const char *variable, *what;
    } counts[] = {{"SLURM_NTASKS", "tasks"},
                  {"SLURM_NPROCS", "tasks"},
                  {"SLURM_JOB_NUM_NODES", "nodes"},
                  {"SLURM_NNODES", "nodes"}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const char *count = value_of(get, counts[i].variable);
        if (!count) continue;
        if (!strcmp(count, "1")) return TRI_OK;
        return TRI_FAIL(TRI_BAD_INPUT,
                        "this Slurm job has %.20s %s, but srun did not start this program, so it "
                        "would be alone: write `srun %.80s …`, or TRIREME_LAUNCHER=none %.80s … "
                        "for one rank",
                        count, counts[i].what, program_invocation_short_name,
                        program_invocation_short_name);
    }
    return TRI_OK;
}

static tri_status read_alone(get_variable get, tri_identity *out) {
    const char *world = value_of(get, "WORLD_SIZE");
    bool is_chosen = value_of(get, "TRIREME_LAUNCHER") != NULL;
    bool is_batch = value_of(get, "SLURM_PROCID") && !is_chosen;
    if (world && strcmp(world, "1") != 0 && !is_chosen)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "WORLD_SIZE=%.40s is set but RANK is not: start with `trireme run`, "
                        "torchrun, srun or mpirun, or set both",
                        world);
    if (is_batch || (value_of(get, "SLURM_JOB_ID") && !is_chosen)) TRI_TRY(check_job_of_one(get));
    snprintf(out->launcher, sizeof out->launcher, "%s", is_batch ? "slurm-batch" : "none");
    out->rank = out->local_rank = 0;
    out->size = out->local_size = 1;
    return TRI_OK;
}

// Whether torchrun's --virtual-local-rank may have been given. Then every rank has local rank 0 and
// sees only its own device, so the local rank says nothing about the host.
static bool sees_own_device_only(get_variable get, const claim *all) {
    const char *visible = value_of(get, "CUDA_VISIBLE_DEVICES");
    return all->local_rank == 0 && visible && !strchr(visible, ',');
}

const char *tri_launcher_text(const tri_identity *identity) {
    return identity->is_own_launcher ? "trireme run" : identity->launcher;
}

void tri_identity_advise(const tri_identity *identity, char *text, size_t size) {
    text[0] = 0;
    if (identity->claimed[0])
        snprintf(text, size,
                 " (%s say so; for a run of one rank, unset these variables or set "
                 "TRIREME_LAUNCHER=none)",
                 identity->claimed);
}

tri_status tri_identity_read(const char *(*get)(const char *name), tri_identity *out) {
    *out = (tri_identity){0};
    if (gethostname(out->host, sizeof out->host - 1) != 0) return tri_os_fail("read", "host name");
    claim all = {0};
    TRI_TRY(read_claims(get, &all));
    if (!all.from) {
        TRI_TRY(read_alone(get, out));
    } else {
        if (all.size < 0)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s=%d is set but nothing tells the number of ranks: set %s",
                            all.from->rank, all.rank, all.from->size[0]);
        snprintf(out->launcher, sizeof out->launcher, "%s", all.from->name);
        out->is_own_launcher =
            !strcmp(out->launcher, "torchrun") && value_of(get, "TRIREME_NONCE") != NULL;
        if (!out->is_own_launcher) describe(&all, out->claimed, sizeof out->claimed);
        out->rank = all.rank;
        out->size = all.size;
        out->local_size = all.size == 1 ? 1 : all.local_size < 0 ? 0 : all.local_size;
        // If the launcher gives no local rank, this is a guess, which tri_identity_settle replaces.
        out->local_rank = all.local_rank < 0 ? all.rank : all.local_rank;
        out->launcher_local_rank = all.local_rank;
        out->given.local_rank = all.local_rank >= 0 && !sees_own_device_only(get, &all);
        out->given.local_size = all.local_size >= 0 && !all.is_local_size_computed;
    }
    TRI_TRY(read_generation(get, out));
    name_job(get, &all, out);
    return rendezvous_read_address(get, out);
}
