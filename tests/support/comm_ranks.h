// Forks the processes that are the ranks of a communicator in a test. They communicate over shared
// memory (comm/shm), or over a transport (comm/message).
#ifndef TESTS_COMM_RANKS_H
#define TESTS_COMM_RANKS_H

#include "comm/comm.h"
#include "comm/message/message.h"
#include "comm/shm/shm.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
enum { RANKS_LIMIT_S = 400 }; // how long a rank may run; a sanitizer makes code slow
#else
enum { RANKS_LIMIT_S = 50 };
#endif
enum { RANKS_KEYS = 64, RANKS_VALUE_BYTES = 8192, RANKS_MAX = 32 };

// A failed check ends the rank with code 1, which the parent sees.
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (condition) break;                                                                      \
        fprintf(stderr, "%s:%d: %s does not hold (%s)\n", __FILE__, __LINE__, #condition,          \
                tri_error_message());                                                              \
        _exit(1);                                                                                  \
    } while (0)
#define CHECK_OK(expression) CHECK((expression) == TRI_OK)

// Ends the rank with code 1 if the message of the latest failure does not contain `part`.
static inline void ranks_says(const char *part) {
    if (strstr(tri_error_message(), part)) return;
    fprintf(stderr, "'%s' is missing in '%s'\n", part, tri_error_message());
    _exit(1);
}

typedef struct ranks_key {
    _Atomic int ready;
    char name[64];
    size_t size;
    char value[RANKS_VALUE_BYTES];
} ranks_key;

typedef struct ranks_table { // in memory that all forked ranks share
    _Atomic int used;
    ranks_key keys[RANKS_KEYS];
    // Numbers by which the ranks of a test, and the parent process, signal each other.
    _Atomic int notes[RANKS_MAX];
} ranks_table;

typedef struct ranks {
    ranks_table *table;
    int size;
    pid_t pids[RANKS_MAX];
} ranks;

static inline double ranks_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline void ranks_sleep_ms(int ms) {
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static inline tri_status ranks_set(void *context, const char *key, const void *value, size_t size) {
    ranks_table *table = context;
    int at = atomic_fetch_add(&table->used, 1);
    CHECK(at < RANKS_KEYS && size <= RANKS_VALUE_BYTES);
    ranks_key *slot = &table->keys[at];
    snprintf(slot->name, sizeof slot->name, "%s", key);
    memcpy(slot->value, value, size);
    slot->size = size;
    atomic_store(&slot->ready, 1);
    return TRI_OK;
}

static inline tri_status ranks_get(void *context, const char *key, int timeout_ms, void *value,
                                   size_t capacity, size_t *size) {
    ranks_table *table = context;
    for (int waited = 0; waited <= timeout_ms; waited++) {
        for (int i = 0; i < RANKS_KEYS; i++) {
            ranks_key *slot = &table->keys[i];
            if (!atomic_load(&slot->ready) || strcmp(slot->name, key) != 0) continue;
            *size = slot->size;
            memcpy(value, slot->value, slot->size < capacity ? slot->size : capacity);
            return TRI_OK;
        }
        ranks_sleep_ms(1);
    }
    return TRI_FAIL(TRI_TIMEOUT, "nobody set %s", key);
}

// Counts the mappings and the open descriptors of shared memory that this process has.
static inline int ranks_shared_memory(void) {
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) found += strstr(line, "/memfd:trireme") != NULL;
    fclose(maps);
    DIR *descriptors = opendir("/proc/self/fd");
    CHECK(descriptors);
    for (struct dirent *entry; (entry = readdir(descriptors));) {
        ssize_t length = readlinkat(dirfd(descriptors), entry->d_name, line, sizeof line - 1);
        if (length <= 0) continue;
        line[length] = 0;
        found += strstr(line, "/memfd:trireme") != NULL;
    }
    closedir(descriptors);
    return found;
}

// A barrier over shared memory, which works even if communicators have failed; each use needs its
// own number `note`. A test calls it before an operation that is to fail. Otherwise a rank that is
// still in the previous operation could see that operation fail too, because a failure ends
// everything that is under way.
static inline void ranks_meet(ranks_table *table, int note, int size) {
    atomic_fetch_add(&table->notes[note], 1);
    while (atomic_load(&table->notes[note]) < size) ranks_sleep_ms(1);
}

typedef void ranks_body(tri_comm *comm, ranks_table *table, void *argument);

// The transport over which ranks_open connects ranks; NULL: they share memory.
__attribute__((unused)) static const tri_transport *ranks_transport;

static inline tri_comm *ranks_open(ranks_table *table, int rank, int size,
                                   const tri_shm_config *config) {
    tri_comm_meeting meeting = {.context = table, .set = ranks_set, .get = ranks_get};
    tri_comm *comm;
    if (!ranks_transport) {
        CHECK_OK(tri_comm_shm_open_at(rank, size, &meeting, config, &comm));
        return comm;
    }
    tri_message_config over = {.timeout_ms = config ? config->timeout_ms : 0};
    CHECK_OK(tri_comm_message_open(ranks_transport, rank, size, &meeting, &over, &comm));
    return comm;
}

static inline void ranks_child(ranks *all, int rank, const tri_shm_config *config, ranks_body *body,
                               void *argument) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    tri_comm *comm = ranks_open(all->table, rank, all->size, config);
    body(comm, all->table, argument);
    tri_comm_close(comm);
    CHECK(ranks_shared_memory() == 0);
    fflush(NULL);
    _exit(0);
}

// Makes an empty table in memory that processes forked from now on share. munmap frees it.
static inline ranks_table *ranks_share_table(void) {
    ranks_table *table =
        mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(table != MAP_FAILED);
    return table;
}

// Starts the ranks; each opens the communicator, runs `body` and ends with code 0.
static inline ranks ranks_start(int size, const tri_shm_config *config, ranks_body *body,
                                void *argument) {
    ranks all = {.table = ranks_share_table(), .size = size};
    fflush(NULL);
    for (int r = 0; r < size; r++) {
        all.pids[r] = fork();
        CHECK(all.pids[r] >= 0);
        if (all.pids[r] == 0) ranks_child(&all, r, config, body, argument);
    }
    return all;
}

// Waits for rank r to end and returns its exit code, or 128 + the signal that ended it. If it has
// not ended after `seconds`, kills it and returns -1.
static inline int ranks_join(ranks *all, int r, double seconds) {
    double end = ranks_seconds() + seconds;
    int status;
    while (waitpid(all->pids[r], &status, WNOHANG) == 0) {
        if (ranks_seconds() > end) {
            kill(all->pids[r], SIGKILL);
            waitpid(all->pids[r], &status, 0);
            return -1;
        }
        ranks_sleep_ms(1);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Runs the ranks; returns how many did not end with code 0.
static inline int ranks_run(int size, const tri_shm_config *config, ranks_body *body,
                            void *argument) {
    ranks all = ranks_start(size, config, body, argument);
    int bad = 0;
    for (int r = 0; r < size; r++) {
        int code = ranks_join(&all, r, RANKS_LIMIT_S);
        if (code != 0) fprintf(stderr, "rank %d of %d ended with %d\n", r, size, code);
        bad += code != 0;
    }
    munmap(all.table, sizeof *all.table);
    return bad;
}

#endif
