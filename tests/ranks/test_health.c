// Tests rendezvous/health.h: when a rank or the store's server dies or hangs, all other ranks are
// told which rank it was; suspended ranks and orderly ends are no losses; and ranks can ask what
// other ranks do. Each rank is a process. It sends the server a beat (a sign of life, with what the
// rank does) every second.
#include "support/store_ranks.h"

#include "base/limits.h"
#include "rendezvous/health.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { RANKS = 3, TEXT_BYTES = 512 };

// What the processes of a test show each other.
typedef struct board {
    // Numbers of ranks: `arrived` have connected, `known` see that the server has a beat of the
    // next rank, `asked` have asked what the others do, `left` have reached the end of their test.
    // begun: how many steps all ranks together have begun, or, if the test tells them to begin one,
    // 1. may_go: 1 if the ranks may end.
    _Atomic int arrived, known, asked, left, begun, may_go;
    _Atomic int losses[RANKS];    // by rank: of how many lost ranks it has been told
    int lost[RANKS][RANKS];       // by rank: the lost ranks that it was told of
    char text[RANKS][TEXT_BYTES]; // by rank: the message of the first lost rank that it was told of
} board;

static board *shared;
static double silence_s;

static void on_loss(void *context, int rank, const char *text) {
    const tri_identity *me = context;
    int number = atomic_load(&shared->losses[me->rank]);
    if (number == 0) snprintf(shared->text[me->rank], TEXT_BYTES, "%s", text);
    if (number < RANKS) shared->lost[me->rank][number] = rank;
    atomic_store(&shared->losses[me->rank], number + 1);
}

static tri_health *begin(tri_identity *me, tri_ledger **ledger) {
    tri_store *store;
    tri_health *health;
    REQUIRE(tri_ledger_open(NULL, ledger) == TRI_OK);
    tri_ledger_step(*ledger, 7);
    tri_ledger_enter(*ledger, me->rank == 1 ? "FORWARD" : "loading data", "conv2");
    REQUIRE(tri_store_open(me, WAIT_MS, &store) == TRI_OK);
    tri_health_config config = {.silence_s = silence_s,
                                .ring = tri_ledger_ring_of(*ledger),
                                .on_loss = on_loss,
                                .context = me};
    REQUIRE(tri_health_start(store, &config, &health) == TRI_OK);
    tri_health_set_awaited(health, me->rank == 2 ? 1 : TRI_HEALTH_NOBODY);
    atomic_fetch_add(&shared->arrived, 1);
    wait_for_count(&shared->arrived, me->size);
    hear_of_step(health, (me->rank + 1) % me->size, 7); // now the server has a beat of every rank
    atomic_fetch_add(&shared->known, 1);
    wait_for_count(&shared->known, me->size);
    return health;
}

static void end(tri_health *health, tri_ledger *ledger) {
    tri_health_stop(health);
    tri_ledger_close(ledger);
}

// A rank that lives until it is told to end.
static void lives(tri_identity me) {
    tri_ledger *ledger;
    tri_health *health = begin(&me, &ledger);
    wait_for_count(&shared->may_go, 1);
    end(health, ledger);
}

// A rank that begins step 8 when it is told to, and lives on once it has a beat of that step of the
// next rank.
static void lives_and_hears(tri_identity me) {
    tri_ledger *ledger;
    tri_health *health = begin(&me, &ledger);
    wait_for_count(&shared->begun, 1);
    tri_ledger_step(ledger, 8);
    hear_of_step(health, (me.rank + 1) % me.size, 8);
    atomic_fetch_add(&shared->left, 1);
    wait_for_count(&shared->may_go, 1);
    end(health, ledger);
}

static void await_ranks(_Atomic int *counter) {
    double begun = tri_os_seconds();
    while (atomic_load(counter) < RANKS && tri_os_seconds() - begun < SOON_S) usleep(2000);
    assert_int_equal(atomic_load(counter), RANKS);
}

static void start_test(pid_t *pids, double silence, rank_body *body) {
    memset(shared, 0, sizeof *shared);
    silence_s = silence;
    start_ranks(make_identity(0, RANKS), 0, RANKS - 1, body, pids);
    await_ranks(&shared->known);
}

static void wait_for_loss(int teller) {
    double begun = tri_os_seconds();
    while (atomic_load(&shared->losses[teller]) == 0) {
        if (tri_os_seconds() - begun > SOON_S) fail_msg("rank %d learnt of no loss", teller);
        usleep(2000);
    }
}

static void check_text(int teller, const char *text) {
    if (!strstr(shared->text[teller], text))
        fail_msg("rank %d: '%s' does not say '%s'", teller, shared->text[teller], text);
}

static void end_others(const pid_t *pids, int lost) {
    atomic_store(&shared->may_go, 1);
    for (int r = 0; r < RANKS; r++)
        if (r != lost) end_ranks(r, r, pids);
}

static void dead_rank_is_named(void **state) {
    pid_t pids[RANKS];
    char who[64];
    start_test(pids, 0, lives);
    kill(pids[1], SIGKILL);
    for (int r = 0; r < RANKS; r += 2) {
        wait_for_loss(r);
        assert_int_equal(shared->lost[r][0], 1);
        snprintf(who, sizeof who, ", pid %ld) died in FORWARD 'conv2' of step 7", (long)pids[1]);
        check_text(r, "rank 1 (host ");
        check_text(r, who);
    }
    waitpid(pids[1], NULL, 0);
    end_others(pids, 1);
}

static void dead_server_is_named(void **state) {
    pid_t pids[RANKS];
    start_test(pids, 0, lives);
    kill(pids[0], SIGKILL);
    for (int r = 1; r < RANKS; r++) {
        wait_for_loss(r);
        check_text(r, "rank 0 (host ");
        check_text(r, " died");
    }
    waitpid(pids[0], NULL, 0);
    end_others(pids, 0);
}

static void silent_rank_is_named(void **state) {
    pid_t pids[RANKS];
    start_test(pids, 2, lives_and_hears);
    double begun = tri_os_seconds();
    atomic_store(&shared->begun, 1);
    await_ranks(&shared->left);
    kill(pids[1], SIGSTOP);
    wait_for_loss(0);
    assert_true(tri_os_seconds() - begun >= 2); // its last beat came after `begun`
    wait_for_loss(2);
    check_text(2, "has been silent for 2 s in FORWARD 'conv2' of step 8");
    // When the suspended rank 1 runs again, it learns that the other ranks count it as lost.
    kill(pids[1], SIGCONT);
    wait_for_loss(1);
    assert_int_equal(shared->lost[1][0], 1);
    check_text(1, "rank 1 (host ");
    end_others(pids, -1);
}

static void silent_server_is_named(void **state) {
    pid_t pids[RANKS];
    start_test(pids, 2, lives);
    kill(pids[0], SIGSTOP);
    for (int r = 1; r < RANKS; r++) {
        wait_for_loss(r);
        assert_int_equal(shared->lost[r][0], 0);
        check_text(r, "has been silent for 2 s");
    }
    kill(pids[0], SIGCONT);
    end_others(pids, -1);
}

// Checks that no rank counts as lost after all ranks were stopped together, as when the machine
// sleeps or a debugger stops them.
static void suspended_ranks_are_not_lost(void **state) {
    pid_t pids[RANKS];
    start_test(pids, 3.5, lives_and_hears);
    for (int r = 0; r < RANKS; r++) kill(pids[r], SIGSTOP);
    sleep(5); // longer than the silence for which a rank counts as lost, on the clock that it uses
    for (int r = 0; r < RANKS; r++) kill(pids[r], SIGCONT);
    atomic_store(&shared->begun, 1);
    await_ranks(&shared->left);
    atomic_store(&shared->may_go, 1);
    end_ranks(0, RANKS - 1, pids);
    for (int r = 0; r < RANKS; r++) assert_int_equal(atomic_load(&shared->losses[r]), 0);
}

// A rank that ends in its turn: rank 0, which has the server, ends first, and the others follow.
static void ends_in_turn(tri_identity me) {
    tri_ledger *ledger;
    tri_health *health = begin(&me, &ledger);
    wait_for_count(&shared->left, me.rank);
    if (me.rank == 0) atomic_fetch_add(&shared->left, 1);
    end(health, ledger);
    atomic_fetch_add(&shared->left, 1);
}

static void orderly_ends_are_no_losses(void **state) {
    pid_t pids[RANKS];
    start_test(pids, 0, ends_in_turn);
    end_ranks(0, RANKS - 1, pids);
    for (int r = 0; r < RANKS; r++) assert_int_equal(atomic_load(&shared->losses[r]), 0);
}

static void closes_its_ledger_first(tri_identity me) {
    tri_ledger *ledger;
    tri_health *health = begin(&me, &ledger);
    tri_health_drop_ring(health);
    tri_ledger_close(ledger);
    // Long enough for one beat (a sign of life), which without a ledger tells nobody anything.
    usleep((TRI_BEAT_MS + 200) * 1000);
    tri_health_stop(health);
}

static void a_ledger_may_end_before_the_beats(void **state) {
    pid_t pids[RANKS];
    start_test(pids, 0, closes_its_ledger_first);
    end_ranks(0, RANKS - 1, pids);
}

static void asks_others(tri_identity me) {
    tri_ledger *ledger;
    tri_health *health = begin(&me, &ledger);
    char text[256];
    for (int r = 0; r < me.size; r++) {
        tri_health_ask(health, r);
        const tri_ledger_ring *ring = tri_health_ring(health, r);
        REQUIRE(ring != NULL);
        tri_ledger_text(ring, text, sizeof text);
        REQUIRE(!strcmp(text, r == 1 ? "in FORWARD 'conv2' of step 7"
                                     : "in loading data 'conv2' of step 7"));
        REQUIRE(atomic_load(&ring->step) == 7 && !tri_ledger_waits(ring));
    }
    // Rank 2 has announced in `begin` that it waits for rank 1. Its next beat tells this to the
    // other ranks, within two seconds.
    double begun = tri_os_seconds();
    while (tri_health_awaited(health, 2) != 1 && tri_os_seconds() - begun < SOON_S) usleep(50000);
    REQUIRE(tri_health_awaited(health, 2) == 1);
    REQUIRE(tri_health_awaited(health, 1) == TRI_HEALTH_NOBODY);
    // Now each rank begins another action, which the other ranks see a little later. Before that
    // the ranks wait for each other, so that none still reads the first action.
    atomic_fetch_add(&shared->asked, 1);
    wait_for_count(&shared->asked, me.size);
    tri_ledger_enter(ledger, "evaluation", NULL);
    int other = (me.rank + 1) % me.size;
    begun = tri_os_seconds();
    do {
        usleep(50000);
        tri_ledger_text(tri_health_ring(health, other), text, sizeof text);
    } while (!strstr(text, "evaluation") && tri_os_seconds() - begun < SOON_S);
    REQUIRE(strstr(text, "in evaluation"));
    // For a while after this rank has asked about another, it gets the newer beats of that rank
    // without asking again.
    const tri_ledger_ring *told = tri_health_ring(health, other);
    for (int i = 1; i <= 3; i++) {
        tri_ledger_step(ledger, 100 + i);
        atomic_fetch_add(&shared->begun, 1);
        wait_for_count(&shared->begun, i * me.size);
        begun = tri_os_seconds();
        while (atomic_load(&told->step) < 100 + i && tri_os_seconds() - begun < SOON_S)
            usleep(2000);
        REQUIRE(atomic_load(&told->step) >= 100 + i);
    }
    atomic_fetch_add(&shared->left, 1);
    wait_for_count(&shared->left, me.size);
    end(health, ledger);
}

static void ranks_know_what_others_do(void **state) {
    pid_t pids[RANKS];
    start_test(pids, 0, asks_others);
    end_ranks(0, RANKS - 1, pids);
}

static void commits(tri_identity me) {
    tri_ledger *ledger;
    tri_health *health = begin(&me, &ledger);
    REQUIRE(tri_health_admit(health) == TRI_OK);
    atomic_fetch_add(&shared->left, 1);
    wait_for_count(&shared->left, me.size);
    if (me.rank == 1) raise(SIGKILL);
    wait_for_count(&shared->losses[me.rank], 1);
    REQUIRE(tri_health_admit(health) == TRI_PEER_LOST);
    REQUIRE(strstr(tri_error_message(), "rank 1 was lost (it died), "));
    REQUIRE(!strcmp(tri_health_loss(health, 1), "died") && !tri_health_loss(health, 2));
    end(health, ledger);
}

static void run_that_lost_a_rank_may_not_commit(void **state) {
    pid_t pids[RANKS];
    start_test(pids, 0, commits);
    waitpid(pids[1], NULL, 0);
    end_ranks(0, 0, pids);
    end_ranks(2, 2, pids);
    assert_int_equal(tri_health_admit(NULL), TRI_OK); // NULL: a run on one host, without health
}

static int set_up(void **state) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dead_rank_is_named),
        cmocka_unit_test(dead_server_is_named),
        cmocka_unit_test(silent_rank_is_named),
        cmocka_unit_test(silent_server_is_named),
        cmocka_unit_test(suspended_ranks_are_not_lost),
        cmocka_unit_test(orderly_ends_are_no_losses),
        cmocka_unit_test(a_ledger_may_end_before_the_beats),
        cmocka_unit_test(ranks_know_what_others_do),
        cmocka_unit_test(run_that_lost_a_rank_may_not_commit),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
