// Tests rare events with shared memory between ranks: a rank dies while all ranks map a segment of
// shared memory; the pid that a rank has announced belongs to another process here, because the
// rank has died or is in another pid namespace; a process that fetches a segment gives up; two
// threads of a rank wait at the same time; while a long collective runs, an old entry in which a
// rank announced an earlier collective is still in shared memory, and must not be taken for the
// announcement of its next one; the heartbeats of a rank stop.
#include "support/comm_ranks.h"

#include "base/os.h"
#include "comm/shm/collective.h"
#include "comm/shm/watch.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

// ---- a rank is lost while all map a segment

static int end_process(const char *path, int flags, mode_t mode) { _exit(0); }

static void body_split_lost(tri_comm *comm, ranks_table *table, void *argument) {
    int before = ranks_shared_memory();
    tri_comm *child;
    if (comm->rank == 1) tri_os.open = end_process; // rank 1 dies when it opens rank 0's segment
    CHECK(comm->backend->split(comm, 0, comm->rank, &child) == TRI_PEER_LOST && !child);
    CHECK(ranks_shared_memory() == before);
}

static void test_split_lost(void **state) {
    assert_int_equal(ranks_run(3, NULL, body_split_lost, NULL), 0);
}

// ---- a pid that means another process

typedef struct identity_case {
    // These are added to what rank 1 has written about its process: start time, namespace and pid.
    int64_t started, pid_namespace, pid;
    bool lost; // the other ranks must then take rank 1 for lost
} identity_case;

// Makes this rank forget what it knows of the other ranks' processes, so that it looks them up
// again.
static void forget_others(shm_family *family) {
    pthread_mutex_lock(&family->watched_lock);
    shm_watch_end(family);
    CHECK_OK(shm_watch_begin(family));
    pthread_mutex_unlock(&family->watched_lock);
}

static void body_identity(tri_comm *comm, ranks_table *table, void *argument) {
    const identity_case *c = argument;
    shm_family *family = shm_family_of(shm_of(comm));
    if (comm->rank == 1) {
        tri_process *own = &family->control->members[1].process;
        own->started += c->started;
        own->pid_namespace += c->pid_namespace;
        own->pid += c->pid;
        atomic_store(&table->notes[1], 1);
        while (!atomic_load(&table->notes[0])) ranks_sleep_ms(1);
        // Meanwhile rank 0 looks again and again whether this rank lives.
        ranks_sleep_ms(c->lost ? 0 : 15 * TRI_COMM_CHECK_MS);
        CHECK(tri_comm_barrier(comm, "it lives") == (c->lost ? TRI_PEER_LOST : TRI_OK));
        return;
    }
    while (!atomic_load(&table->notes[1])) ranks_sleep_ms(1);
    forget_others(family);
    if (!c->lost) atomic_store(&table->notes[0], 1);
    CHECK(tri_comm_barrier(comm, "it lives") == (c->lost ? TRI_PEER_LOST : TRI_OK));
    if (c->lost) CHECK(strstr(tri_error_message(), " died "));
    atomic_store(&table->notes[0], 1);
}

static void test_identity(void **state) {
    // What the other rank finds under the pid that rank 1 has announced. First: a process that
    // started at another time, so rank 1 has died. Second: the pid is of another namespace, and no
    // process has it here. Third: the pid is of another namespace, and another process has it here.
    identity_case cases[] = {{.started = -1, .lost = true},
                             {.pid_namespace = 1, .pid = 1 << 20},
                             {.pid_namespace = 1, .started = -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(ranks_run(2, NULL, body_identity, &cases[i]), 0);
}

// ---- passing memory over a socket

static void *serve_one(void *context) {
    shm_segment *segment = ((void **)context)[0];
    shm_handle *handle = ((void **)context)[1];
    return (void *)(intptr_t)shm_segment_serve(segment, handle, 1, 20000);
}

// A client that gives up before it has received the descriptor does not count as served.
static void test_client_gives_up(void **state) {
    shm_segment segment, got;
    shm_handle handle;
    assert_int_equal(shm_segment_create(4096, &segment, &handle), TRI_OK);
    pthread_t server;
    void *context[] = {&segment, &handle}, *served;
    assert_int_equal(pthread_create(&server, NULL, serve_one, context), 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int used = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "trireme-shm-%016llx",
                        (unsigned long long)handle.nonce);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)used);
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    while (connect(client, (struct sockaddr *)&address, size) != 0) ranks_sleep_ms(1);
    struct pollfd sent = {.fd = client, .events = POLLIN};
    assert_int_equal(poll(&sent, 1, 20000), 1);
    close(client);
    assert_int_equal(shm_segment_fetch(&handle, 10000, &got), TRI_OK);
    pthread_join(server, &served);
    assert_int_equal((intptr_t)served, TRI_OK);
    shm_segment_unmap(&got);
    shm_segment_unmap(&segment);
}

// ---- two threads wait

static _Thread_local bool is_slow;
static _Thread_local bool slept_in_vain; // this thread's last sleep was ended by its time limit
static _Thread_local pthread_mutex_t *slow_at;
static _Atomic int slow_turns; // how often the slow thread slept in __wrap_pthread_mutex_unlock

progress_result __real_shm_collective_advance(shm_comm *comm, progress_item *item);
progress_result __wrap_shm_collective_advance(shm_comm *comm, progress_item *item);
void __real_progress_futex_wait(_Atomic uint32_t *word, uint32_t value, int timeout_ms);
void __wrap_progress_futex_wait(_Atomic uint32_t *word, uint32_t value, int timeout_ms);
static void ask_about_rank_1(shm_comm *comm);
int __real_pthread_mutex_unlock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock);

progress_result __wrap_shm_collective_advance(shm_comm *comm, progress_item *item) {
    if (is_slow) slow_at = &comm->base.lock;
    progress_result result = __real_shm_collective_advance(comm, item);
    ask_about_rank_1(comm);
    return result;
}

void __wrap_progress_futex_wait(_Atomic uint32_t *word, uint32_t value, int timeout_ms) {
    errno = 0;
    __real_progress_futex_wait(word, value, timeout_ms);
    slept_in_vain = errno == ETIMEDOUT;
}

// Lets the slow thread sleep, as if another program had taken its core, after it has advanced an
// operation and before it clears the communicator's flag `executing`. Only the thread that has set
// this flag may advance operations.
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock) {
    int failed = __real_pthread_mutex_unlock(lock);
    if (slow_at == lock) {
        slow_at = NULL;
        atomic_fetch_add(&slow_turns, 1);
        ranks_sleep_ms(5);
    }
    return failed;
}

typedef struct waiter {
    tri_comm *comm;
    tri_comm_ticket ticket;
    tri_status status;
    bool is_second, is_late; // is_late: nobody woke this thread when the operation was done
} waiter;

static void *wait_for_it(void *context) {
    waiter *w = context;
    is_slow = !w->is_second;
    while (w->is_second && atomic_load(&slow_turns) == 0) ranks_sleep_ms(1);
    slept_in_vain = false;
    w->status = w->comm->backend->wait(w->comm, w->ticket);
    w->is_late = slept_in_vain;
    return NULL;
}

// Two threads each wait for an operation. The first one, which is slow, advances the operations, so
// the second goes to sleep. When the operation of the first is done, it returns, and has to wake
// the second.
static void body_two_waiters(tri_comm *comm, ranks_table *table, void *argument) {
    enum { ROUNDS = 20 };
    int late = 0;
    for (int round = 0; round < ROUNDS; round++) {
        waiter waiters[2];
        int64_t sums[2][1000] = {{0}};
        CHECK_OK(tri_comm_barrier(comm, "round"));
        for (int i = 0; i < 2; i++) {
            tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE,
                              .dtype = TRI_I64,
                              .count = 1000,
                              .send = sums[i],
                              .recv = sums[i],
                              .waits_at_once = true};
            waiters[i] = (waiter){.comm = comm, .is_second = i};
            CHECK_OK(comm->backend->start(comm, &op, 1, &waiters[i].ticket));
        }
        if (comm->rank == 1) {
            for (int i = 0; i < 2; i++) CHECK_OK(comm->backend->wait(comm, waiters[i].ticket));
            continue;
        }
        atomic_store(&slow_turns, 0);
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            CHECK(pthread_create(&threads[i], NULL, wait_for_it, &waiters[i]) == 0);
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        for (int i = 0; i < 2; i++) CHECK_OK(waiters[i].status);
        late += waiters[0].is_late || waiters[1].is_late;
    }
    if (comm->rank == 0)
        fprintf(stderr, "%d of %d rounds slept until the next look\n", late, ROUNDS);
    CHECK(late <= ROUNDS / 2);
}

static void test_two_waiters(void **state) {
    assert_int_equal(ranks_run(2, NULL, body_two_waiters, NULL), 0);
}

// ---- what the other rank does, while a collective is under way

// The communicator on which rank 0, each time after it has advanced a collective, asks what rank 1
// has announced; NULL: it does not ask. old_entries: how often it found an announcement.
static tri_comm *asking_comm;
static _Atomic int old_entries;

static void ask_about_rank_1(shm_comm *comm) {
    char text[80];
    if (asking_comm != &comm->base.head) return;
    ranks_sleep_ms(2); // until rank 1 waits at its next barrier, and announces nothing
    if (shm_collective_text(comm, 1, text, sizeof text)) atomic_fetch_add(&old_entries, 1);
}

// Ranks announce their collectives in entries of shared memory. While a long collective is under
// way, rank 0 must not take an old entry of rank 1 for the announcement of rank 1's next
// collective. The data of the long collective do not fit into the staging memory at one time: they
// pass through it range by range, with two barriers for each range.
static void body_old_entry(tri_comm *comm, ranks_table *table, void *argument) {
    enum { COUNT = 3 * TRI_SHM_STAGE_BYTES / 8 };
    int64_t *mine = calloc(COUNT, sizeof *mine), *all = calloc(2 * COUNT, sizeof *all);
    CHECK(mine && all);
    CHECK_OK(tri_comm_barrier(comm, "long ago"));
    tri_comm_op op = {.kind = TRI_COMM_ALL_GATHER,
                      .dtype = TRI_I64,
                      .count = COUNT,
                      .send = mine,
                      .recv = all,
                      .label = "now",
                      .waits_at_once = true};
    if (comm->rank == 0) asking_comm = comm;
    CHECK_OK(tri_comm_run(comm, &op));
    asking_comm = NULL;
    CHECK(atomic_load(&old_entries) == 0);
    // Rank 0, which is in no collective now, can see which collective rank 1 has begun next.
    char text[80];
    if (comm->rank == 0)
        while (!shm_collective_text(shm_of(comm), 1, text, sizeof text)) ranks_sleep_ms(1);
    if (comm->rank == 0) CHECK(strcmp(text, "barrier 'next'") == 0);
    CHECK_OK(tri_comm_barrier(comm, "next"));
    free(mine);
    free(all);
}

static void test_old_entry(void **state) {
    assert_int_equal(ranks_run(2, NULL, body_old_entry, NULL), 0);
}

// ---- what shm_loss returns for a rank whose heartbeats have stopped

// The text that shm_loss returns names the time limit that the rank's silence has exceeded.
static void body_silence(tri_comm *comm, ranks_table *table, void *argument) {
    shm_family *family = shm_family_of(shm_of(comm));
    char want[80];
    const char *what = NULL;
    snprintf(want, sizeof want, "no heartbeat for %g s;", TRI_DEAD_AFTER_MS / 1000.0);
    CHECK_OK(tri_comm_barrier(comm, "both are there"));
    for (int tries = 0; comm->rank == 0 && !what && tries < 1000; tries++) {
        // Acts as if rank 1 had been silent for 1 ms longer than the limit.
        pthread_mutex_lock(&family->watched_lock);
        shm_watched *seen = &family->watched[1];
        seen->changed_ns = seen->read_ns - (TRI_DEAD_AFTER_MS + 1) * (int64_t)1000000;
        pthread_mutex_unlock(&family->watched_lock);
        what = shm_loss(progress_of(comm), 1);
    }
    CHECK(comm->rank == 1 || (what && strstr(what, want)));
    CHECK_OK(tri_comm_barrier(comm, "the end"));
}

static void test_silence(void **state) {
    assert_int_equal(ranks_run(2, NULL, body_silence, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_lost),      cmocka_unit_test(test_identity),
        cmocka_unit_test(test_client_gives_up), cmocka_unit_test(test_two_waiters),
        cmocka_unit_test(test_old_entry),       cmocka_unit_test(test_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
