// Checks the rendezvous of ranks on two hosts, which are two network namespaces that this test
// makes: ranks find rank 0 by a launcher's environment variables, over the network interface that
// the user has named, and learn which ranks share a host. They meet at the store, a key-value
// service of rank 0.
#include "support/store_ranks.h"

#include "base/limits.h"
#include "rendezvous/health.h"
#include "support/message.h"
#include "support/two_hosts.h"

#include <stdatomic.h>
#include <sys/mman.h>

enum { SKIPPED = 77, RANKS = 4 };

static two_hosts hosts;

typedef struct start {
    int host, rank;
    const char *hosts_file;
    const char *variables[6]; // the rank's environment variables: "NAME=value"
} start;

static void set_variables(const start *s, int size) {
    char text[32];
    bool is_named = false;
    for (int i = 0; s->variables[i]; i++) {
        putenv((char *)s->variables[i]);
        is_named |= !strncmp(s->variables[i], "SLURM_PROCID", 12);
    }
    if (is_named) return;
    snprintf(text, sizeof text, "%d", s->rank);
    setenv("RANK", text, 1);
    snprintf(text, sizeof text, "%d", size);
    setenv("WORLD_SIZE", text, 1);
}

// What the process of a rank runs. It reads its number and rank 0's address from environment
// variables, as under a launcher.
static void open_and_close(const start *s, int size, int host_count) {
    tri_identity me;
    tri_store *store;
    REQUIRE(two_hosts_enter(&hosts, s->host, s->hosts_file));
    set_variables(s, size);
    REQUIRE(tri_identity_read((const char *(*)(const char *))getenv, &me) == TRI_OK);
    REQUIRE(me.rank == s->rank && me.size == size);
    exchange(me);
    // From here on, this process acts as a rank of the run's next start, under another job.
    me.generation++;
    snprintf(me.job, sizeof me.job, "second");
    REQUIRE(tri_store_open(&me, WAIT_MS, &store) == TRI_OK);
    REQUIRE(tri_store_host_count(store) == host_count);
    REQUIRE(tri_store_host_of(store, me.rank) == (host_count == 1 ? 0 : s->host));
    tri_store_close(store);
}

static pid_t start_on_host(const start *s, int size, int host_count) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_and_close(s, size, host_count);
    _exit(0);
}

static void run_ranks(const start *starts, int count, int host_count) {
    pid_t pids[RANKS];
    for (int i = 0; i < count; i++) pids[i] = start_on_host(&starts[i], count, host_count);
    end_ranks(0, count - 1, pids);
}

#define ADDRESS "MASTER_ADDR=10.73.0.1", "MASTER_PORT=29400"

static void two_ranks_meet(void **state) {
    run_ranks((const start[]){{0, 0, NULL, {ADDRESS}}, {1, 1, NULL, {ADDRESS}}}, 2, 2);
}

static void four_ranks_learn_their_hosts(void **state) {
    run_ranks((const start[]){{0, 0, NULL, {ADDRESS, "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2"}},
                              {0, 1, NULL, {ADDRESS, "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"}},
                              {1, 2, NULL, {ADDRESS, "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2"}},
                              {1, 3, NULL, {ADDRESS, "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"}}},
              4, 2);
}

static void explicit_store(void **state) {
    run_ranks((const start[]){{0, 0, NULL, {"TRIREME_STORE=10.74.0.1:4711"}},
                              {1, 1, NULL, {"TRIREME_STORE=10.74.0.1:4711"}}},
              2, 2);
}

static const char *hosts_file(const char *name, const char *text) {
    static char paths[2][128];
    static int turn;
    char *path = paths[turn++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s", store_folder, name);
    assert_int_equal(tri_os_replace_file(path, text, strlen(text)), TRI_OK);
    return path;
}

// /etc/hosts of rank 0's host gives the host's own name a loopback address, as on Debian. On the
// other host this name has several addresses, of which only the last one is right.
static void names_with_odd_addresses(void **state) {
    const char *own = hosts_file("alpha", "127.0.0.1 localhost\n127.0.1.1 alpha\n");
    const char *other =
        hosts_file("beta", "127.0.0.1 localhost\n10.73.0.99 alpha\n10.99.0.1 alpha\n"
                           "10.73.0.1 alpha\n");
    run_ranks(
        (const start[]){{0, 0, own, {"MASTER_ADDR=alpha"}}, {1, 1, other, {"MASTER_ADDR=alpha"}}},
        2, 2);
}

#define STEP "SLURM_NTASKS=2", "SLURM_STEP_ID=0", "SLURM_JOB_ID=7", "SLURM_STEP_NODELIST=alpha,beta"

static void slurm_step(void **state) {
    const char *file = hosts_file("both", "10.73.0.1 alpha\n10.73.0.2 beta\n");
    run_ranks((const start[]){{0, 0, file, {STEP, "SLURM_PROCID=0"}},
                              {1, 1, file, {STEP, "SLURM_PROCID=1"}}},
              2, 2);
}

// ---- interfaces

static void listens_for_ever(tri_identity identity) {
    tri_store *store;
    (void)tri_store_open(&identity, WAIT_MS, &store);
}

static tri_identity identity_of_rank_0(void) {
    tri_identity zero = make_identity(0, 2);
    zero.local_size = 0;
    zero.address = (tri_store_address){.host = "10.73.0.1",
                                       .port = 29400,
                                       .ports = 8,
                                       .source = "MASTER_ADDR",
                                       .port_source = "MASTER_PORT"};
    return zero;
}

// Lists all TCP sockets that listen in the network namespace of process `pid`, by address and port
// in hexadecimal, as the kernel prints them: "0100490A:72D8 ".
static void list_listening(pid_t pid, char *out, size_t size) {
    static const char *const tables[] = {"tcp", "tcp6"};
    size_t used = 0;
    *out = 0;
    for (int t = 0; t < 2; t++) {
        char path[64], line[512], local[64], state[8];
        snprintf(path, sizeof path, "/proc/%ld/net/%s", (long)pid, tables[t]);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        while (fgets(line, sizeof line, file))
            if (sscanf(line, "%*s %63s %*s %7s", local, state) == 2 && !strcmp(state, "0A"))
                used += (size_t)snprintf(out + used, size - used, "%s ", local);
        fclose(file);
    }
}

// Rank 0 listens at 10.73.0.1 and nowhere else, whether the user has given this address or the name
// of its network interface.
static void only_the_named_interface_is_bound(void **state) {
    for (int is_named = 0; is_named < 2; is_named++) {
        char all[512] = "";
        tri_identity zero = identity_of_rank_0();
        if (is_named) snprintf(zero.interface, sizeof zero.interface, "eth0");
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            REQUIRE(two_hosts_enter(&hosts, 0, NULL));
            listens_for_ever(zero);
            _exit(1);
        }
        for (int tries = 0; tries < 3000 && !*all; tries++) {
            usleep(20000);
            list_listening(pid, all, sizeof all);
        }
        assert_string_equal(all, "0100490A:72D8 "); // 10.73.0.1 port 29400
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

// Checks that opening the store fails with a message that contains `text`. To be called in a
// process on host 0.
static void check_refusal(tri_identity identity, const char *text) {
    tri_store *store;
    REQUIRE(tri_store_open(&identity, 500, &store) == TRI_BAD_INPUT);
    REQUIRE(message_has(tri_error_message(), text));
}

static void wrong_interfaces_are_refused(void **state) {
    pid_t pid = fork();
    if (pid == 0) {
        tri_identity zero = identity_of_rank_0();
        zero.local_size = 1;
        REQUIRE(two_hosts_enter(&hosts, 0, NULL));
        snprintf(zero.interface, sizeof zero.interface, "ib0");
        check_refusal(zero, "ib0|lo|eth0|eth1");
        snprintf(zero.interface, sizeof zero.interface, "eth1");
        check_refusal(zero, "MASTER_ADDR|10.74.0.1");
        _exit(0);
    }
    end_ranks(0, 0, &pid);
}

// ---- cables that are cut

enum { SILENCE_S = 4 };

typedef struct board {
    _Atomic int arrived, may_ask, asked, may_end;
    _Atomic int losses[2];
    char text[2][512];
} board;

static board *shared;

static void on_loss(void *context, int rank, const char *text) {
    const tri_identity *me = context;
    if (atomic_load(&shared->losses[me->rank])) return;
    snprintf(shared->text[me->rank], sizeof shared->text[0], "rank %d: %s", rank, text);
    atomic_store(&shared->losses[me->rank], 1);
}

static void lives_on_host(tri_identity me, bool is_lost) {
    tri_store *store;
    tri_health *health;
    tri_ledger *ledger;
    REQUIRE(two_hosts_enter(&hosts, me.rank, NULL));
    REQUIRE(tri_ledger_open(NULL, &ledger) == TRI_OK);
    REQUIRE(tri_store_open(&me, WAIT_MS, &store) == TRI_OK);
    tri_health_config config = {.silence_s = SILENCE_S,
                                .ring = tri_ledger_ring_of(ledger),
                                .on_loss = on_loss,
                                .context = &me};
    REQUIRE(tri_health_start(store, &config, &health) == TRI_OK);
    REQUIRE(tri_health_admit(health) == TRI_OK);
    tri_ledger_step(ledger, 7);
    if (me.rank == 0) hear_of_step(health, 1, 7);
    atomic_fetch_add(&shared->arrived, 1);
    wait_for_count(&shared->may_ask, 1);
    tri_ledger_step(ledger, 8);
    if (!is_lost) hear_of_step(health, 1 - me.rank, 8); // its silence is over
    REQUIRE(tri_health_admit(health) == (is_lost ? TRI_PEER_LOST : TRI_OK));
    REQUIRE(!is_lost || strstr(tri_error_message(), "rank 1 was lost"));
    atomic_fetch_add(&shared->asked, 1);
    wait_for_count(&shared->may_end, 1);
    tri_health_stop(health);
    tri_ledger_close(ledger);
}

static void set_cable(const char *way) {
    char command[64];
    snprintf(command, sizeof command, "ip link set eth0 %s", way);
    assert_int_equal(two_hosts_run(&hosts, 0, command), 0);
}

static void start_two(pid_t *pids, bool is_lost) {
    static board *made;
    if (!made)
        made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(made != MAP_FAILED);
    shared = made;
    memset(shared, 0, sizeof *shared);
    tri_identity zero = identity_of_rank_0();
    for (int r = 0; r < 2; r++) {
        pids[r] = fork();
        if (pids[r]) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        zero.rank = r;
        lives_on_host(zero, is_lost);
        _exit(0);
    }
    wait_for_count(&shared->arrived, 2);
}

// Both ranks notice that the cable is cut. After it is mended neither may commit a checkpoint: rank
// 0 has given up rank 1. So rank 0 has lost a rank, and rank 1 belongs to the run no longer.
static void cut_cable_is_noticed(void **state) {
    pid_t pids[2];
    double begun = tri_os_seconds();
    start_two(pids, true);
    set_cable("down");
    for (int r = 0; r < 2; r++) wait_for_count(&shared->losses[r], 1);
    assert_true(tri_os_seconds() - begun >= SILENCE_S); // a beat of rank 1 came after `begun`
    assert_non_null(strstr(shared->text[0], "rank 1: rank 1 (host beta, pid "));
    assert_non_null(strstr(shared->text[0], "has been silent for 4 s"));
    assert_non_null(strstr(shared->text[1], "rank 0: rank 0 (host 10.73.0.1) has been silent"));
    set_cable("up");
    atomic_store(&shared->may_ask, 1);
    // Rank 0 serves the store: it must not end before rank 1 has asked.
    wait_for_count(&shared->asked, 2);
    atomic_store(&shared->may_end, 1);
    end_ranks(0, 1, pids);
}

static void short_cut_is_survived(void **state) {
    pid_t pids[2];
    start_two(pids, false);
    set_cable("down");
    usleep((TRI_BEAT_MS + 500) * 1000); // a beat at least is late, by the ranks' clocks
    set_cable("up");
    atomic_store(&shared->may_ask, 1);
    wait_for_count(&shared->asked, 2);
    for (int r = 0; r < 2; r++)
        if (atomic_load(&shared->losses[r])) fail_msg("%s", shared->text[r]);
    atomic_store(&shared->may_end, 1);
    end_ranks(0, 1, pids);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_meet),
        cmocka_unit_test(four_ranks_learn_their_hosts),
        cmocka_unit_test(explicit_store),
        cmocka_unit_test(names_with_odd_addresses),
        cmocka_unit_test(slurm_step),
        cmocka_unit_test(only_the_named_interface_is_bound),
        cmocka_unit_test(wrong_interfaces_are_refused),
        cmocka_unit_test(cut_cable_is_noticed),
        cmocka_unit_test(short_cut_is_survived),
    };
    const char *why;
    if (!two_hosts_make(&hosts, &why)) {
        printf("skipped: %s\n", why);
        return SKIPPED;
    }
    int failed = cmocka_run_group_tests(tests, store_set_up, store_tear_down);
    two_hosts_end(&hosts);
    return failed;
}
