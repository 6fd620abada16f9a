// Tests how a process learns which rank it is: every launcher's variables, their precedence, and
// what a real Slurm 22.05 with Open MPI 4.1 sets.
#include "rendezvous/rendezvous.h"
#include "support/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *environment; // the variables that get() finds: "A=1 B=2"
static char found[16][512];     // the latest values that get() returned, which have to stay valid

static const char *get(const char *name) {
    size_t length = strlen(name);
    for (const char *at = environment; at && *at;) {
        size_t word = strcspn(at, " ");
        if (word > length && at[length] == '=' && !strncmp(at, name, length)) {
            static int turn;
            char *value = found[turn++ % 16];
            memcpy(value, at + length + 1, word - length - 1);
            value[word - length - 1] = 0;
            return value;
        }
        at += word + (at[word] == ' ');
    }
    return NULL;
}

static tri_identity read_ok(const char *text) {
    tri_identity identity;
    environment = text;
    if (tri_identity_read(get, &identity) != TRI_OK) fail_msg("%s: %s", text, tri_error_message());
    return identity;
}

static void refused(const char *text, const char *first, const char *second) {
    tri_identity identity;
    environment = text;
    assert_int_equal(tri_identity_read(get, &identity), TRI_BAD_INPUT);
    if (!strstr(tri_error_message(), first) || !strstr(tri_error_message(), second))
        fail_msg("%s: '%s' names not both %s and %s", text, tri_error_message(), first, second);
}

static const struct {
    const char *environment, *launcher;
    int rank, size, local_rank, local_size;
} rows[] = {
    {"", "none", 0, 1, 0, 1},
    {"RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", "torchrun", 3, 8, 1, 2},
    {"RANK=1 WORLD_SIZE=2", "torchrun", 1, 2, 1, 0},
    {"RANK=0 WORLD_SIZE=1", "torchrun", 0, 1, 0, 1},
    {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
     "OMPI_COMM_WORLD_LOCAL_SIZE=2",
     "open-mpi", 3, 4, 1, 2},
    {"SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_NTASKS_PER_NODE=2 SLURM_NODEID=1 "
     "SLURM_STEP_ID=0",
     "slurm", 3, 4, 1, 2},
    {"SLURM_PROCID=3 SLURM_NPROCS=4 SLURM_LOCALID=1 SLURM_STEP_ID=0", "slurm", 3, 4, 1, 0},
    {"PMIX_RANK=1 SLURM_NTASKS=2 SLURM_LOCALID=1", "slurm-pmix", 1, 2, 1, 0},
    {"PMI_RANK=1 PMI_SIZE=2 SLURM_LOCALID=1", "slurm-pmi2", 1, 2, 1, 0},
    {"PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2", "hydra", 2, 4, 0, 2},
    {"PALS_RANKID=5 PMI_SIZE=8 PALS_LOCAL_RANKID=1 PALS_LOCAL_SIZE=4", "pals", 5, 8, 1, 4},
    {"MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_LOCAL_RANK=1 "
     "MV2_COMM_WORLD_LOCAL_SIZE=2",
     "mvapich2", 1, 4, 1, 2},
    {"FLUX_TASK_RANK=3 FLUX_JOB_SIZE=4 FLUX_TASK_LOCAL_ID=1", "flux", 3, 4, 1, 0},
    // The next three rows are what srun set on a real cluster for rank 3 of 4 on 2 nodes: with
    // pmix, with pmi2, and with neither.
    {"SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_ID=0 PMIX_RANK=3",
     "slurm", 3, 4, 1, 0},
    {"SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_ID=0 PMI_RANK=3 "
     "PMI_SIZE=4",
     "slurm", 3, 4, 1, 0},
    {"SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_ID=0", "slurm", 3, 4,
     1, 0},
    // mpirun inside an allocation: Slurm's variables describe mpirun's daemon.
    {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_STEP_ID=0 PMIX_RANK=3 "
     "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
     "OMPI_COMM_WORLD_LOCAL_SIZE=2",
     "open-mpi", 3, 4, 1, 2},
    {"PMIX_RANK=1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 "
     "OMPI_COMM_WORLD_LOCAL_SIZE=2",
     "open-mpi", 1, 2, 1, 2},
    // mpiexec.hydra inside an allocation of 4 tasks: Slurm's variables describe hydra's daemon.
    {"SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_STEP_ID=0 PMI_RANK=3 "
     "PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2",
     "hydra", 3, 4, 1, 2},
    // A batch script is a single process. It counts as a rank if its job has only one task; else
    // TRIREME_LAUNCHER=none is needed.
    {"SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=1 SLURM_JOB_ID=7", "slurm-batch", 0, 1, 0, 1},
    {"TRIREME_LAUNCHER=none SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=4 SLURM_JOB_ID=7", "none",
     0, 1, 0, 1},
    // To the shell that salloc starts, Slurm gives no rank. Without a job, SLURM_NTASKS is only an
    // option for srun.
    {"SLURM_NTASKS=1 SLURM_NNODES=1 SLURM_JOB_ID=7", "none", 0, 1, 0, 1},
    {"SLURM_JOB_ID=7", "none", 0, 1, 0, 1},
    {"SLURM_NTASKS=4", "none", 0, 1, 0, 1},
    {"TRIREME_LAUNCHER=none SLURM_NTASKS=4 SLURM_JOB_ID=7", "none", 0, 1, 0, 1},
    // `salloc -N2 -n4 srun --preserve-env -n1`: the job's numbers are in the environment too. The
    // step's count.
    {"SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_NNODES=2 SLURM_NTASKS_PER_NODE=2 "
     "SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 "
     "SLURM_STEP_NUM_NODES=1 SLURM_STEP_TASKS_PER_NODE=1",
     "slurm", 0, 1, 0, 1},
    {"SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=4 SLURM_LOCALID=0 SLURM_NODEID=1 "
     "SLURM_STEP_ID=2 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2 "
     "SLURM_STEP_TASKS_PER_NODE=1(x2) PMIX_RANK=1",
     "slurm", 1, 2, 0, 1},
    // Slurm gives the number of tasks on each node, which may differ between nodes.
    {"SLURM_PROCID=4 SLURM_NTASKS=5 SLURM_LOCALID=0 SLURM_NODEID=2 SLURM_STEP_ID=1 "
     "SLURM_NTASKS_PER_NODE=2 SLURM_STEP_TASKS_PER_NODE=2(x2),1",
     "slurm", 4, 5, 0, 1},
    {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1 SLURM_STEP_ID=1 SLURM_STEP_NUM_NODES=1",
     "slurm", 1, 2, 1, 2},
    // srun started one torchrun on each node. torchrun's variables describe its workers, and count.
    {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_STEP_ID=0 RANK=5 WORLD_SIZE=8 "
     "LOCAL_RANK=1 "
     "LOCAL_WORLD_SIZE=4 TORCHELASTIC_RUN_ID=x",
     "torchrun", 5, 8, 1, 4},
    // RANK and WORLD_SIZE, set by hand in a Slurm step, agree with Slurm's variables.
    {"RANK=1 WORLD_SIZE=2 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1 SLURM_STEP_ID=0 "
     "SLURM_NTASKS_PER_NODE=2",
     "torchrun", 1, 2, 1, 2},
    {"RANK=1 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1 SLURM_STEP_ID=0", "torchrun", 1, 2, 1,
     0},
    // If the variables of several launchers are set, TRIREME_LAUNCHER chooses one of them.
    {"TRIREME_LAUNCHER=hydra SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 PMI_RANK=3 PMI_SIZE=4 "
     "MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2",
     "hydra", 3, 4, 1, 2},
    {"TRIREME_LAUNCHER=none RANK=3 WORLD_SIZE=4", "none", 0, 1, 0, 1},
};

static void each_launcher(void **state) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_identity got = read_ok(rows[i].environment);
        if (strcmp(got.launcher, rows[i].launcher) != 0 || got.rank != rows[i].rank ||
            got.size != rows[i].size || got.local_rank != rows[i].local_rank ||
            got.local_size != rows[i].local_size)
            fail_msg("'%s': %s %d of %d, local %d of %d", rows[i].environment, got.launcher,
                     got.rank, got.size, got.local_rank, got.local_size);
        assert_true(got.host[0] && got.job[0]);
    }
}

static void disagreement_names_both(void **state) {
    refused("RANK=0 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", "RANK=0",
            "OMPI_COMM_WORLD_RANK=1");
    refused("RANK=0 WORLD_SIZE=2 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_ID=0", "WORLD_SIZE=2",
            "SLURM_NTASKS=4");
    refused("SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_STEP_ID=0 PMIX_RANK=2", "SLURM_PROCID=3",
            "PMIX_RANK=2");
    refused(
        "SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_STEP_ID=0 MV2_COMM_WORLD_RANK=3 MV2_COMM_WORLD_SIZE=8",
        "SLURM_NTASKS=4", "MV2_COMM_WORLD_SIZE=8");
    refused("PMI_RANK=1 PMI_SIZE=2 FLUX_TASK_RANK=0 FLUX_JOB_SIZE=2", "PMI_RANK=1",
            "FLUX_TASK_RANK=0");
}

static void numbers_that_are_no_ranks(void **state) {
    refused("RANK=2 WORLD_SIZE=2", "RANK=2", "WORLD_SIZE=2");
    refused("RANK=-1 WORLD_SIZE=2", "RANK=-1", "number");
    refused("RANK=0x1 WORLD_SIZE=2", "RANK=0x1", "number");
    refused("RANK=99999999999999999999 WORLD_SIZE=2", "RANK=9999", "number");
    refused("RANK=0 WORLD_SIZE=0", "WORLD_SIZE=0", "number");
    refused("RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "LOCAL_RANK=2", "2");
    refused("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3", "3", "2");
    refused("RANK=0 WORLD_SIZE=2 MASTER_PORT=70000", "MASTER_PORT=70000", "65535");
    refused("RANK=1", "RANK=1", "WORLD_SIZE");
    refused("WORLD_SIZE=4", "WORLD_SIZE=4", "RANK");
    refused("PMIX_RANK=1", "PMIX_RANK=1", "SLURM_STEP_NUM_TASKS");
    refused("TRIREME_LAUNCHER=bsub", "bsub", "torchrun");
    refused("TRIREME_LAUNCHER=slurm", "slurm", "not set");
}

// A batch script runs as one process, however many tasks the job has. As a rank it would wait for
// other ranks for ever, so it is refused.
static void job_without_srun(void **state) {
    static const char *const steps[] = {"SLURM_JOB_ID=7", "SLURM_STEP_ID=batch",
                                        "SLURM_STEP_ID=4294967291"};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        char text[256];
        snprintf(text, sizeof text, "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=4 %s", steps[i]);
        refused(text, "4 tasks", "`srun ");
    }
    // The shell that salloc starts is such a process too.
    refused("SLURM_NTASKS=4 SLURM_JOB_ID=7", "4 tasks", "`srun ");
    refused("SLURM_NPROCS=4 SLURM_JOB_ID=7", "4 tasks", "`srun ");
    refused("SLURM_NNODES=2 SLURM_JOB_ID=7", "2 nodes", "`srun ");
    refused("SLURM_NNODES=2 SLURM_PROCID=0 SLURM_JOB_ID=7", "2 nodes", "`srun ");
}

static void addresses(void **state) {
    static const struct {
        const char *environment, *host;
        int port, ports;
    } cases[] = {
        {"RANK=1 WORLD_SIZE=2", "", 0, 0},
        {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=n1", "n1", 29500, 8},
        {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=4000", "n1", 4000, 8},
        {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=65534", "n1", 65534, 2},
        {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=n1 TRIREME_STORE=n2:70", "n2", 70, 1},
        {"RANK=1 WORLD_SIZE=2 TRIREME_STORE=[fe80::1]:70", "fe80::1", 70, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_store_address got = read_ok(cases[i].environment).address;
        if (strcmp(got.host, cases[i].host) != 0 || got.port != cases[i].port ||
            got.ports != cases[i].ports)
            fail_msg("'%s': %s %d, %d ports", cases[i].environment, got.host, got.port, got.ports);
    }
    refused("RANK=1 WORLD_SIZE=2 TRIREME_STORE=n1", "TRIREME_STORE=n1", "HOST:PORT");
    refused("RANK=1 WORLD_SIZE=2 TRIREME_STORE=:70", "TRIREME_STORE=:70", "HOST:PORT");
    refused("RANK=1 WORLD_SIZE=2 TRIREME_STORE=fe80::1:70", "TRIREME_STORE=fe80", "[ADDRESS]");
    refused("RANK=1 WORLD_SIZE=2 TRIREME_STORE=n1:70000", "TRIREME_STORE=n1:70000", "HOST:PORT");
    // All ranks of a Slurm step look for rank 0 at the same ports; the ranks of another step look
    // at other ports.
    const char *step = "SLURM_PROCID=%d SLURM_NTASKS=2 SLURM_STEP_ID=%d SLURM_JOB_ID=7 "
                       "SLURM_STEP_NODELIST=nid[08-09,12],login";
    char text[3][256];
    snprintf(text[0], 256, step, 0, 3);
    snprintf(text[1], 256, step, 1, 3);
    snprintf(text[2], 256, step, 1, 4);
    tri_identity a = read_ok(text[0]), b = read_ok(text[1]), c = read_ok(text[2]);
    assert_string_equal(a.address.host, "nid08");
    assert_true(a.address.port >= 20000 && a.address.port + a.address.ports <= 32000);
    assert_int_equal(a.address.port, b.address.port);
    assert_int_not_equal(b.address.port, c.address.port);
    // Ranks numbered by hand in a step are on the step's hosts, not on all of the job's.
    a = read_ok("RANK=1 WORLD_SIZE=2 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=1 SLURM_JOB_ID=7 "
                "SLURM_STEP_NODELIST=n[2-3] SLURM_JOB_NODELIST=n[1-3]");
    assert_string_equal(a.address.host, "n2");
    // The Slurm step that runs mpirun's daemons lacks the host on which mpirun itself and rank 0
    // run, so the job's list of hosts counts.
    a = read_ok("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 SLURM_PROCID=0 SLURM_NTASKS=1 "
                "SLURM_STEP_NODELIST=n2 SLURM_JOB_NODELIST=n[1-2]");
    assert_string_equal(a.address.host, "n1");
    refused("SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=3 SLURM_STEP_NODELIST=n[1-", "n[1-",
            "SLURM_STEP_NODELIST");
}

// Batch systems name the first host in a variable, or in a file that a variable names.
static void hosts_of_batch_systems(void **state) {
    static const struct {
        // `launcher`: the launcher's variables, where %d stands for the rank. `variable`: the
        // variable that names a file with the contents `text`; if `text` is NULL, a variable with
        // its value. `host`: the host that is found.
        const char *launcher, *variable, *text, *host;
    } cases[] = {
        {"PALS_RANKID=%d PMI_SIZE=4 PALS_LOCAL_RANKID=0 PALS_LOCAL_SIZE=2 PALS_APID=a",
         "PBS_NODEFILE", "x1000c0s0b0n0.site.edu\nx1000c0s1b0n0.site.edu\n",
         "x1000c0s0b0n0.site.edu"},
        {"MV2_COMM_WORLD_RANK=%d MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_LOCAL_SIZE=2 PBS_JOBID=7",
         "PBS_NODEFILE", "\n# of job 7\nn1\nn1\nn2\n", "n1"},
        {"MV2_COMM_WORLD_RANK=%d MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_LOCAL_SIZE=2 SLURM_JOB_ID=7",
         "SLURM_JOB_NODELIST=n[3-4]", NULL, "n3"},
        {"PMI_RANK=%d PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 JOB_ID=7", "PE_HOSTFILE",
         "n1 2 all.q@n1 UNDEFINED\nn2 2 all.q@n2 UNDEFINED\n", "n1"},
        {"PMI_RANK=%d PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 LSB_JOBID=7", "LSB_HOSTS=c05",
         NULL, "c05"},
        {"PMI_RANK=%d PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2", "COBALT_NODEFILE",
         "nid1:4\nnid2:4", "nid1"},
        // No host is taken from the variables if all ranks are on this host, if the file cannot be
        // read, or if it lists no valid host.
        {"PMI_RANK=%d PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=4", "PBS_NODEFILE", "n1\n", ""},
        {"PMI_RANK=%d PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2", "PBS_NODEFILE=/none", NULL,
         ""},
        {"PMI_RANK=%d PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2", "PBS_NODEFILE", "# none\n",
         ""},
        {"PMI_RANK=%d PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2", "PBS_NODEFILE", "n$(1)\n",
         ""},
        {"FLUX_TASK_RANK=%d FLUX_JOB_SIZE=4 FLUX_JOB_NNODES=2 FLUX_JOB_ID=f1", "PATH=/", NULL, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[] = "/tmp/trireme-hosts-XXXXXX", text[2][512];
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        if (cases[i].text)
            assert_int_equal(write(fd, cases[i].text, strlen(cases[i].text)),
                             strlen(cases[i].text));
        close(fd);
        for (int r = 0; r < 2; r++) {
            int used = snprintf(text[r], sizeof text[r], cases[i].launcher, r);
            snprintf(text[r] + used, sizeof text[r] - (size_t)used, " %s%s%s", cases[i].variable,
                     cases[i].text ? "=" : "", cases[i].text ? path : "");
        }
        tri_identity a = read_ok(text[0]), b = read_ok(text[1]);
        unlink(path);
        if (strcmp(a.address.host, cases[i].host) != 0) fail_msg("case %zu: %s", i, a.address.host);
        assert_string_equal(a.job, b.job);
        assert_true(a.address.port == b.address.port && (a.address.port > 0) == !!*a.address.host);
    }
    // Flux tells only how many ranks and nodes there are, so the local size is computed from them.
    assert_int_equal(
        read_ok("FLUX_TASK_RANK=1 FLUX_JOB_SIZE=5 FLUX_JOB_NNODES=2 FLUX_JOB_ID=f").local_size, 3);
    assert_int_equal(
        read_ok("FLUX_TASK_RANK=1 FLUX_JOB_SIZE=5 FLUX_JOB_NNODES=1 FLUX_JOB_ID=f").local_size, 5);
}

// If the environment does not name rank 0's host, the error message has the command line that names
// it, and the rank does not wait first.
static void line_to_use(void **state) {
    static const struct {
        const char *environment, *line;
    } cases[] = {
        {"FLUX_TASK_RANK=1 FLUX_JOB_SIZE=4 FLUX_JOB_NNODES=2 FLUX_JOB_ID=f1",
         "`flux run --env=TRIREME_STORE=$(flux hostlist -n 0 instance):29500"},
        {"PALS_RANKID=1 PMI_SIZE=4 PALS_LOCAL_RANKID=1 PALS_LOCAL_SIZE=2",
         "`mpiexec --env TRIREME_STORE=$(head -n 1 $PBS_NODEFILE):29500"},
        {"MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_LOCAL_SIZE=2",
         "`mpirun_rsh -np N -hostfile FILE TRIREME_STORE=HOST:29500"},
        {"PMI_RANK=1 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2",
         "`mpiexec -genv TRIREME_STORE HOST:29500"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_identity me = read_ok(cases[i].environment);
        tri_store *store;
        assert_int_equal(tri_store_open(&me, 100, &store), TRI_BAD_INPUT);
        if (!strstr(tri_error_message(), cases[i].line)) fail_msg("%s", tri_error_message());
    }
}

// If a run is started again, the identity's `run` stays the same, but `job`, which names one start
// of the run, changes, and `generation` counts the starts.
static void generations(void **state) {
    static const struct {
        const char *first, *second;
        int64_t generation;
    } cases[] = {
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=n1 TORCHELASTIC_RESTART_COUNT=0 TRIREME_NONCE=1",
         "RANK=1 WORLD_SIZE=2 MASTER_ADDR=n1 TORCHELASTIC_RESTART_COUNT=1 TRIREME_NONCE=2", 1},
        {"SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_JOB_ID=7",
         "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_JOB_ID=7 SLURM_RESTART_COUNT=3", 3},
        {"RANK=0 WORLD_SIZE=2 TRIREME_JOB=a MASTER_PORT=1",
         "RANK=0 WORLD_SIZE=3 TRIREME_JOB=a MASTER_PORT=2 TRIREME_GENERATION=4", 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_identity first = read_ok(cases[i].first), second = read_ok(cases[i].second);
        assert_string_equal(first.run, second.run);
        assert_string_not_equal(first.job, second.job);
        assert_int_equal(first.generation, 0);
        assert_int_equal(second.generation, cases[i].generation);
    }
    refused("RANK=0 WORLD_SIZE=2 TRIREME_GENERATION=-1", "TRIREME_GENERATION is '-1'", "number");
}

static void job_names(void **state) {
    const char *common =
        "WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500 TORCHELASTIC_RUN_ID=a";
    char text[3][256];
    snprintf(text[0], 256, "RANK=0 TORCHELASTIC_RESTART_COUNT=0 %s", common);
    snprintf(text[1], 256, "RANK=1 TORCHELASTIC_RESTART_COUNT=0 %s", common);
    snprintf(text[2], 256, "RANK=1 TORCHELASTIC_RESTART_COUNT=1 %s", common);
    tri_identity a = read_ok(text[0]), b = read_ok(text[1]), c = read_ok(text[2]);
    assert_string_equal(a.job, b.job);
    assert_string_not_equal(a.job, c.job);
    assert_string_equal(a.master_host, "localhost");
    assert_int_equal(a.master_port, 29500);
    // TRIREME_NONCE is a random number that only `trireme run` and its workers have. Jobs with
    // different numbers have different names.
    char secret[2][512];
    for (int i = 0; i < 2; i++)
        snprintf(secret[i], sizeof secret[i], "TRIREME_NONCE=5e%d %s", i, text[i]);
    b = read_ok(secret[0]);
    c = read_ok(secret[1]);
    assert_string_not_equal(a.job, b.job);
    assert_string_not_equal(b.job, c.job);
    a = read_ok("SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=3 SLURM_JOB_ID=7");
    b = read_ok("SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=3 SLURM_JOB_ID=7");
    c = read_ok("SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=4 SLURM_JOB_ID=7");
    assert_string_equal(a.job, b.job);
    assert_string_not_equal(a.job, c.job);
    // Processes without a launcher are separate jobs.
    a = read_ok("");
    b = read_ok("");
    assert_string_not_equal(a.job, b.job);
    // mpirun of MPICH sets no job name; its process on this host identifies the job.
    a = read_ok("PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2");
    b = read_ok("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2");
    assert_string_equal(a.job, b.job);
}

enum { HOST_RANKS = 5 };

// Calls tri_identity_settle on rank `rank` of five: ranks 0, 2 and 4 are on host a, ranks 1 and 3
// on host b. said[i]: the local rank and local size that the launcher gave rank i; -1: it gave
// none.
static tri_status settle(const int said[HOST_RANKS][2], int rank, tri_identity *out) {
    tri_host_claim claims[HOST_RANKS];
    memset(claims, 0, sizeof claims);
    for (int i = 0; i < HOST_RANKS; i++) {
        snprintf(claims[i].host, sizeof claims[i].host, "%s", i % 2 ? "b" : "a");
        snprintf(claims[i].boot, sizeof claims[i].boot, "same");
        claims[i].local_rank = said[i][0];
        claims[i].local_size = said[i][1];
    }
    *out = (tri_identity){.launcher = "torchrun", .rank = rank, .size = HOST_RANKS};
    return tri_identity_settle(claims, HOST_RANKS, out);
}

static void check_settled(const int said[HOST_RANKS][2], const int *local_ranks) {
    for (int rank = 0; rank < HOST_RANKS; rank++) {
        tri_identity got;
        assert_int_equal(settle(said, rank, &got), TRI_OK);
        assert_int_equal(got.local_rank, local_ranks[rank]);
        assert_int_equal(got.local_size, rank % 2 ? 2 : 3);
    }
}

// Checks that all ranks reject the local ranks and local sizes that the launcher gave (`said`),
// each with a message that contains `text`.
static void check_unsettled(const int said[HOST_RANKS][2], const char *text) {
    for (int rank = 0; rank < HOST_RANKS; rank++) {
        tri_identity got;
        assert_int_equal(settle(said, rank, &got), TRI_BAD_INPUT);
        message_check(tri_error_message(), text);
    }
}

static void hosts(void **state) {
    (void)state;
    const int in_order[] = {0, 0, 1, 1, 2}, permuted[] = {2, 1, 0, 0, 1};
    check_settled((const int[HOST_RANKS][2]){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}},
                  in_order);
    check_settled((const int[HOST_RANKS][2]){{0, 3}, {0, 2}, {1, 3}, {1, 2}, {2, 3}}, in_order);
    check_settled((const int[HOST_RANKS][2]){{-1, 3}, {0, -1}, {1, -1}, {-1, 2}, {2, -1}},
                  in_order);
    check_settled((const int[HOST_RANKS][2]){{2, 3}, {1, 2}, {0, 3}, {0, 2}, {1, 3}}, permuted);
    check_unsettled((const int[HOST_RANKS][2]){{0, 3}, {0, 2}, {1, 3}, {1, 2}, {2, 5}},
                    "rank 4 on a|torchrun|5|3");
    check_unsettled((const int[HOST_RANKS][2]){{0, -1}, {0, -1}, {0, -1}, {1, -1}, {0, -1}},
                    "rank 2 on a|torchrun|local rank 0|3|1");
    check_unsettled((const int[HOST_RANKS][2]){{-1, -1}, {2, -1}, {-1, -1}, {-1, -1}, {-1, -1}},
                    "rank 1 on b|torchrun|local rank 2");
    // Several launchers on one host have each numbered their ranks, which are numbered together. A
    // part that lacks a rank, or has one of another host, is refused.
    tri_host_claim parts[HOST_RANKS];
    memset(parts, 0, sizeof parts);
    for (int i = 0; i < HOST_RANKS; i++) {
        snprintf(parts[i].host, sizeof parts[i].host, "a");
        parts[i].local_rank = i < 2 ? i : i - 2;
        parts[i].local_size = i < 2 ? 2 : 3;
    }
    for (int i = 0; i < HOST_RANKS; i++) {
        tri_identity me = {.launcher = "torchrun", .rank = i, .size = HOST_RANKS};
        assert_int_equal(tri_identity_settle(parts, HOST_RANKS, &me), TRI_OK);
        assert_int_equal(me.local_rank, i);
        assert_int_equal(me.local_size, HOST_RANKS);
    }
    tri_identity me = {.launcher = "torchrun", .size = HOST_RANKS};
    assert_int_equal(tri_identity_settle(parts, HOST_RANKS - 1, &me), TRI_BAD_INPUT);
    snprintf(parts[1].host, sizeof parts[1].host, "b");
    assert_int_equal(tri_identity_settle(parts, HOST_RANKS, &me), TRI_BAD_INPUT);
    // Two machines that are clones have the same host name, but different boot ids. So they count
    // as two hosts.
    tri_host_claim clones[2];
    memset(clones, 0, sizeof clones);
    for (int i = 0; i < 2; i++) {
        clones[i] = (tri_host_claim){.host = "node", .local_rank = -1, .local_size = -1};
        snprintf(clones[i].boot, sizeof clones[i].boot, "boot %d", i);
    }
    tri_identity second = {.launcher = "mpi", .rank = 1, .size = 2};
    assert_int_equal(tri_identity_settle(clones, 2, &second), TRI_OK);
    assert_true(second.local_rank == 0 && second.local_size == 1);
}

// Checks which of local rank and local size count as given by the environment. A number that is not
// given is only guessed, until the ranks have exchanged the names of their hosts.
static void given(void **state) {
    (void)state;
    static const struct {
        const char *environment;
        bool local_rank, local_size;
    } cases[] = {
        {"RANK=1 WORLD_SIZE=2", false, false},
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", true, true},
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2", true, true},
        // torchrun --virtual-local-rank: every rank sees one GPU and has local rank 0.
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 CUDA_VISIBLE_DEVICES=1", false, true},
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 CUDA_VISIBLE_DEVICES=0,1", true,
         true},
        // Slurm gives the local rank, but the local size is only computed from other numbers.
        {"SLURM_PROCID=3 SLURM_STEP_ID=0 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_NTASKS_PER_NODE=2",
         true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_identity got;
        tri_host_claim claim;
        environment = cases[i].environment;
        assert_int_equal(tri_identity_read(get, &got), TRI_OK);
        assert_int_equal(got.given.local_rank, cases[i].local_rank);
        assert_int_equal(got.given.local_size, cases[i].local_size);
        tri_host_claim_make(&got, &claim);
        assert_string_equal(claim.host, got.host);
        assert_int_equal(claim.local_rank >= 0, cases[i].local_rank);
        assert_int_equal(claim.local_size >= 0, cases[i].local_size);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_launcher),
        cmocka_unit_test(disagreement_names_both),
        cmocka_unit_test(numbers_that_are_no_ranks),
        cmocka_unit_test(job_without_srun),
        cmocka_unit_test(addresses),
        cmocka_unit_test(hosts_of_batch_systems),
        cmocka_unit_test(line_to_use),
        cmocka_unit_test(generations),
        cmocka_unit_test(job_names),
        cmocka_unit_test(hosts),
        cmocka_unit_test(given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
