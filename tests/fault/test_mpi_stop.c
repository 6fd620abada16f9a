// A process has opened the transport `mpi` twice, and stops the first of the two while MPI has not
// finished a send of this first one. Afterwards MPI must not read the memory of this send any more,
// although the process goes on calling the second one. The test starts itself under mpirun, as two
// ranks that are connected over TCP, because over TCP the sender itself has to write all its data.
#include "base/module.h"
#include "base/os.h"
#include "comm/message/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 64 << 20, TAG = 5, NOTE_TAG = 6, LISTEN_MS = 1500, SKIP = 77 };

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);          \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static const tri_transport *mpi;

static tri_transport_end *open_end(int rank) {
    char why[TRI_TRANSPORT_WHY_BYTES] = "";
    tri_transport_end *end;
    tri_status status = mpi->open(&(tri_transport_job){.rank = rank, .size = 2}, &end, why);
    if (status != TRI_OK) fprintf(stderr, "%s\n", why);
    REQUIRE(status == TRI_OK);
    return end;
}

static void progress_for(tri_transport_end *end, int ms, const tri_transport_request *request) {
    int64_t until = tri_os.monotonic_ns() + ms * (int64_t)1000000;
    while (tri_os.monotonic_ns() < until && request->state == TRI_REQUEST_PENDING)
        mpi->progress(end);
}

static void send_and_stop(tri_transport_end *first, tri_transport_end *second) {
    char *data = calloc(1, BYTES), note;
    tri_transport_request sending, hearing, later;
    REQUIRE(data);
    mpi->recv(second, 1, NOTE_TAG, &note, 1, &hearing);
    mpi->send(first, 1, TAG, data, BYTES, &sending);
    REQUIRE(sending.state == TRI_REQUEST_PENDING);
    mpi->stop(first);
    REQUIRE(sending.state == TRI_REQUEST_ENDED);
    // If `progress` called MPI, MPI would go on with the send that was stopped.
    progress_for(second, 2 * LISTEN_MS, &hearing);
    // Since that stop, this process never calls MPI, so the second transport's sends fail at once.
    mpi->send(second, 1, NOTE_TAG, data, 1, &later);
    REQUIRE(later.state == TRI_REQUEST_LOST && mpi->loss(second, 1));
    mpi->stop(second);
    REQUIRE(hearing.state == TRI_REQUEST_ENDED);
}

static void listen_to_it(tri_transport_end *first) {
    char *data = calloc(1, BYTES);
    tri_transport_request receiving;
    REQUIRE(data);
    mpi->recv(first, 0, TAG, data, BYTES, &receiving);
    progress_for(first, LISTEN_MS, &receiving);
    REQUIRE(receiving.state == TRI_REQUEST_PENDING);
}

// Each rank whose checks all held writes a file here, whose name is the rank's number. mpirun's
// exit code tells nothing, because the ranks end without MPI_Finalize, which would wait for the
// send.
static char folder[] = "/tmp/trireme-mpi-stop-XXXXXX";

static bool has_succeeded(int rank) {
    char path[64];
    snprintf(path, sizeof path, "%s/%d", folder, rank);
    return access(path, F_OK) == 0;
}

static void succeed(int rank) {
    char path[64];
    snprintf(path, sizeof path, "%s/%d", folder, rank);
    REQUIRE(tri_os_replace_file(path, "", 0) == TRI_OK);
    // Waits for the other rank, because mpirun kills it once this rank has ended.
    for (int ms = 0; ms < 20000 && !has_succeeded(1 - rank); ms++) tri_os.sleep_ns(1000000);
    _exit(0);
}

// Returns why ranks cannot be started here; NULL: they can. The test uses options of mpirun that
// only Open MPI's mpirun has.
static const char *why_not(void) {
    char said[256] = "";
    FILE *version = popen("mpirun --version 2>/dev/null", "r");
    REQUIRE(version);
    size_t length = fread(said, 1, sizeof said - 1, version);
    pclose(version);
    said[length] = 0;
    if (!length) return "mpirun is not installed";
    return strstr(said, "Open MPI") ? NULL : "mpirun is not Open MPI's";
}

static int start_ranks(const char *program) {
    const char *why = why_not();
    if (why) {
        printf("skip: %s\n", why);
        return SKIP;
    }
    REQUIRE(mkdtemp(folder));
    setenv("TEST_FOLDER", folder, 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    char *words[] = {
        "mpirun", "--oversubscribe",          "--bind-to", "none",  "--mca", "btl", "tcp,self",
        "--mca",  "btl_tcp_if_include",       "lo",        "--mca", "pml",   "ob1", "-n",
        "2",      (char *)(uintptr_t)program, NULL};
    pid_t child = fork();
    if (child == 0) {
        REQUIRE(freopen("/dev/null", "w", stdout)); // hides mpirun's text about the ranks' ends
        execvp(*words, words);
        _exit(1);
    }
    int status;
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    bool both = has_succeeded(0) && has_succeeded(1);
    REQUIRE(tri_os_remove_tree(folder) == TRI_OK);
    return both ? 0 : 1;
}

int main(int argc, char **argv) {
    const void *table;
    if (tri_module_load("mpi", TRI_TRANSPORT_INTERFACE, TRI_TRANSPORT_ABI, &table) != TRI_OK) {
        printf("skip: %s\n", tri_error_message());
        return SKIP;
    }
    mpi = table;
    const char *number = getenv("OMPI_COMM_WORLD_RANK"), *shared = getenv("TEST_FOLDER");
    if (!shared) return start_ranks(argv[0]);
    REQUIRE(number);
    snprintf(folder, sizeof folder, "%s", shared);
    int rank = atoi(number);
    tri_transport_end *first = open_end(rank), *second = open_end(rank);
    if (rank == 0)
        send_and_stop(first, second);
    else
        listen_to_it(first);
    succeed(rank);
}
