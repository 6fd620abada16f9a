// Checks that every wait in a schedule is needed. A schedule is the list of a rank's actions in a
// step (FORWARD of a block, GATHER of parameters, …). A wait says that one action, the waiter,
// begins only after another one, its dependency, is done. First, random training runs on a device
// that works asynchronously have to give the same bits as on one that does not, however actions are
// delayed. Then one wait at a time is left out (a removal), and its dependency is held up until
// everything is done that does not depend on it. Now the bits have to differ, unless other waits
// order the two actions too.
//
// usage: test_waits [SEED]    all seeds, or one of them with a line for each wait
//
// WAITS=all: of each kind of wait (by the kinds of its two actions) as many are left out as there
// is room for, and not only ENOUGH.
#include "device/cpu/cpu.h"
#include "support/comm_ranks.h"
#include "support/held_run.h"
#include "support/long_pauses.h"
#include "support/order_graph.h"

#include "base/philox.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#ifdef __SANITIZE_THREAD__
enum { REMOVALS = 0 }; // a removed wait is a data race, which the sanitizer would report
#else
enum { REMOVALS = 8 };
#endif
enum {
    SCHEDULES = 200,      // how many random runs (seeds) are planned
    ENOUGH = 8,           // how many waits of each kind are left out
    IMPLIED_REMOVALS = 1, // in each run: how many waits are left out that other waits imply
    MOST_REMOVALS = REMOVALS + IMPLIED_REMOVALS,
    LIMIT_US = 20000000,       // after this time an action that is held up goes on in any case
    WAITER_LIMIT_US = 2000000, // as LIMIT_US, for an action held up until the waiter is done
    // How much longer the held action is delayed if the waiter (the action whose wait is left out)
    // can begin meanwhile, but can end only after the held action. In this time the waiter accesses
    // the memory that both of them use.
    MORE_US = 4000,
    // The time limit in place of LIMIT_US, if the waiter cannot be done before the held action.
    UNREACHABLE_LIMIT_US = 2000,
    DELAY_US = 150 // the longest random delay of an action
};

typedef struct removal {
    order_wait wait; // the wait that is left out
    int held_action; // the action that is held up, so that the waiter overtakes it; -1: none can
    // is_implied: other waits order the two actions too. only_begins: while the action is held up,
    // the waiter can begin, but not end. delays_results: of a held collective only the results are
    // delayed, not the begin.
    bool is_implied, only_begins, delays_results;
    // independent: by action, whether it can be done before the held one. only_waiter: by action,
    // whether it is the waiter.
    bool independent[HELD_RUN_ACTIONS], only_waiter[HELD_RUN_ACTIONS];
} removal;

// What a rank's process tells the test about a run, in memory that all processes share. expired:
// the held action went on because its time limit was reached. orders_nothing: the waiter or its
// dependency has started no work.
typedef struct outcome {
    bool bits_differ, memory_differs, failed, expired, orders_nothing;
} outcome;

// By action of one rank: which memory the action reads and writes.
typedef device_notes all_notes[HELD_RUN_ACTIONS];

typedef struct test_case {
    random_run run;
    tri_arena *arena;
    order_graph *graph;
    all_notes *notes; // by rank, in memory that all processes share
    removal removals[MOST_REMOVALS];
    int removal_count;
    outcome (*outcomes)[RANDOM_RUN_RANKS]; // by removal and rank
} test_case;

// What the test has found about waits, counted for each pair of kinds (`table`): the kind of the
// action that waits, and of the one for which it waits. Of the `total` waits:
// - implied: other waits order the two actions too;
// - padding: the wait protects only padding, which holds no parameter;
// - ordered: other ranks order the two actions, so that a run without the wait shows nothing;
// - left_out: the test has run without the wait. Of these:
//   - caught: the results or the training state were wrong, or the run failed;
//   - memory: only bytes differed on which no result depends;
//   - disjoint: the two actions have no byte in common;
//   - same_bytes: the two actions leave the same bytes in either order;
//   - missed: none of these, so the wait seems not to be needed.
typedef struct counts {
    int total, implied, padding, ordered, left_out, caught, memory, disjoint, same_bytes, missed;
} counts;

static counts table[TRI_ACTION_KIND_COUNT][TRI_ACTION_KIND_COUNT];
static int expired, shows_all;

static const tri_schedule *schedule_of(const random_run *run, int rank) {
    return &run->async_plans[rank]->steps[run->shape].schedule;
}

static counts *counts_of(const random_run *run, const order_wait *w) {
    const tri_action *actions = schedule_of(run, w->rank)->actions;
    return &table[actions[w->waiter].kind][actions[w->dependency].kind];
}

// Finds the action to hold up, so that the dependency is late, but the waiter, without its wait,
// still reaches `event` (it begins, or it is done). An action that is held up holds up all actions
// behind it in its lane (a queue of actions). So it may be any earlier action of the dependency's
// lane, and the earliest that lets the waiter reach `event` is chosen. In the lanes of messages,
// where an action does not hold up those behind it, it is the dependency itself. -1: there is none.
static int find_held(const test_case *c, const order_wait *w, order_event event) {
    const tri_schedule *s = schedule_of(&c->run, w->rank);
    tri_lane lane = tri_action_lane(s->actions[w->dependency].kind);
    bool in_order = lane != TRI_LANE_ALONG && lane != TRI_LANE_BACK;
    int held = -1;
    for (int i = w->dependency; i >= 0; i--) {
        if (tri_action_lane(s->actions[i].kind) != lane) continue;
        if (order_graph_follows(c->graph, w, i, ORDER_BEGUN, w->waiter, event)) break;
        held = i;
        if (!in_order) break;
    }
    return held;
}

static bool is_collective(tri_action_kind kind) {
    return kind == TRI_ACTION_GATHER || kind == TRI_ACTION_SCATTER || kind == TRI_ACTION_REDUCE ||
           kind == TRI_ACTION_TIE;
}

// Chooses an action to hold up, so that the waiting action overtakes its dependency. If possible,
// the waiting action is done while that action is held up. Sometimes it cannot be, because it needs
// other ranks that would be held up too. Then only the results of the dependency (a collective) are
// held up, or the waiting action need only begin. For a RECV it is not enough to begin, because it
// writes only when it ends.
static void find_what_is_held(const test_case *c, removal *r) {
    const tri_action *actions = schedule_of(&c->run, r->wait.rank)->actions;
    r->held_action = find_held(c, &r->wait, ORDER_DONE);
    if (r->held_action >= 0) return;
    int dependency = r->wait.dependency, waiter = r->wait.waiter;
    r->delays_results =
        is_collective(actions[dependency].kind) &&
        !order_graph_follows(c->graph, &r->wait, dependency, ORDER_DONE, waiter, ORDER_DONE);
    if (r->delays_results) {
        r->held_action = dependency;
        return;
    }
    tri_action_kind kind = actions[waiter].kind;
    if (kind == TRI_ACTION_RECV_ALONG || kind == TRI_ACTION_RECV_BACK) return;
    r->held_action = find_held(c, &r->wait, ORDER_BEGUN);
    r->only_begins = true;
}

static void add_removal(test_case *c, const order_wait *w, bool is_implied) {
    removal *r = &c->removals[c->removal_count];
    *r = (removal){.wait = *w, .is_implied = is_implied, .held_action = w->dependency};
    if (!is_implied) find_what_is_held(c, r);
    if (r->held_action < 0) {
        counts_of(&c->run, w)->ordered++;
        return;
    }
    order_graph_find_independent(c->graph, w, r->held_action,
                                 r->delays_results ? ORDER_DONE : ORDER_BEGUN, r->independent);
    r->only_waiter[w->waiter] = true;
    c->removal_count++;
}

static int enough = ENOUGH;

// Chooses waits of the kinds that were left out least often so far, until each kind was often
// enough.
static void choose_removals(test_case *c, order_wait *waits, int count) {
    while (c->removal_count < REMOVALS && count > 0) {
        int best = 0;
        for (int i = 1; i < count; i++)
            if (counts_of(&c->run, &waits[i])->left_out <
                counts_of(&c->run, &waits[best])->left_out)
                best = i;
        if (counts_of(&c->run, &waits[best])->left_out >= enough) return;
        counts_of(&c->run, &waits[best])->left_out++;
        int before = c->removal_count;
        add_removal(c, &waits[best], false);
        if (c->removal_count == before) counts_of(&c->run, &waits[best])->left_out--;
        waits[best] = waits[--count];
    }
}

static void shuffle(order_wait *waits, int count, uint64_t seed) {
    for (int i = count - 1; i > 0; i--) {
        int k = (int)(tri_philox_at(seed, 1, 0, (uint64_t)i) % (uint32_t)(i + 1));
        order_wait other = waits[i];
        waits[i] = waits[k];
        waits[k] = other;
    }
}

static bool is_of_own_range(tri_action_kind kind) {
    return kind == TRI_ACTION_REDUCE || kind == TRI_ACTION_TIE || kind == TRI_ACTION_FETCH ||
           kind == TRI_ACTION_LOAD || kind == TRI_ACTION_STEP || kind == TRI_ACTION_PREPARE ||
           kind == TRI_ACTION_EVICT || kind == TRI_ACTION_NORM || kind == TRI_ACTION_DOWNLOAD ||
           kind == TRI_ACTION_HOST_STEP || kind == TRI_ACTION_UPLOAD;
}

// Whether a rank's range of a unit (parameters that are reduced together) is all padding: units are
// padded so that every rank's range has the same length, so in a small unit some ranks' ranges hold
// no parameter.
static bool is_padding(const tri_plan *plan, int unit) {
    for (int i = 0; i < plan->flat.parameter_count; i++) {
        const tri_flat_parameter *p = &plan->flat.parameters[i];
        if (p->unit != unit) continue;
        int64_t own = plan->flat.units[unit].buckets[p->bucket].own;
        int64_t start = own * plan->sharing.shard;
        if (p->offset < start + own && p->offset + p->elements > start) return false;
    }
    return true;
}

// Whether the two actions share only this rank's range of a unit, and this range is all padding.
// Then the wait between the two actions protects no data.
static bool is_of_padding(const test_case *c, const order_wait *w) {
    const tri_schedule *s = schedule_of(&c->run, w->rank);
    const tri_action *waiter = &s->actions[w->waiter], *other = &s->actions[w->dependency];
    // NORM belongs to no unit: it computes numbers that the updates of all units read, such as the
    // factor of the gradients. So `other` becomes the action that belongs to a unit.
    if (other->kind == TRI_ACTION_NORM) {
        other = waiter;
        waiter = &s->actions[w->dependency];
    }
    bool is_own = (is_of_own_range(waiter->kind) || is_of_own_range(other->kind)) &&
                  tri_action_subject(other->kind) == TRI_SUBJECT_UNIT &&
                  (waiter->kind == TRI_ACTION_NORM || waiter->subject == other->subject);
    return is_own && is_padding(c->run.async_plans[w->rank], other->subject);
}

// Finds which waits are implied by other waits, and chooses the waits that the runs leave out.
static void plan_removals(test_case *c) {
    tri_arena *arena = c->arena;
    c->graph = order_graph_make(arena, c->run.async_plans, c->run.shape);
    order_wait *needed = NULL, *implied = NULL;
    int needed_count = 0, implied_count = 0, needed_capacity = 0, implied_capacity = 0;
    for (int rank = 0; rank < c->run.mesh.ranks; rank++) {
        const tri_schedule *s = schedule_of(&c->run, rank);
        assert_true(s->count <= HELD_RUN_ACTIONS);
        for (int i = 0; i < s->count; i++)
            for (int d = 0; d < s->actions[i].dependency_count; d++) {
                int other = s->dependencies[s->actions[i].first_dependency + d];
                order_wait w = {rank, i, other};
                bool is_implied =
                    order_graph_follows(c->graph, &w, other, ORDER_DONE, i, ORDER_BEGUN);
                counts_of(&c->run, &w)->total++;
                counts_of(&c->run, &w)->implied += is_implied;
                counts_of(&c->run, &w)->padding += !is_implied && is_of_padding(c, &w);
                if (!is_implied && is_of_padding(c, &w)) continue;
                if (is_implied)
                    TRI_PUSH(arena, implied, implied_count, implied_capacity) = w;
                else
                    TRI_PUSH(arena, needed, needed_count, needed_capacity) = w;
            }
    }
    shuffle(needed, needed_count, c->run.seed);
    shuffle(implied, implied_count, c->run.seed);
    choose_removals(c, needed, needed_count);
    for (int i = 0; i < IMPLIED_REMOVALS && i < implied_count && REMOVALS; i++)
        add_removal(c, &implied[i], true);
}

static held_run_result run_once(held_run *r, const held_run_plan *plan) {
    held_run_result result;
    CHECK_OK(held_run_steps(r, plan, &result));
    return result;
}

static const held_run_plan undisturbed = {
    .held_action = -1, .last_before_dependency = -1, .waiter = -1, .dependency = -1};

static void check_same(const test_case *c, const held_run_result *got, uint64_t bits,
                       const char *what) {
    if (got->status == TRI_OK && got->bits == bits) return;
    fprintf(stderr, "%s: %s: other bits than on a device without queues (%s)\n",
            random_run_text(&c->run), what, got->status == TRI_OK ? "" : tri_error_message());
    _exit(1);
}

static uint64_t reference_bits(const test_case *c, tri_comm *comm) {
    held_run near;
    CHECK_OK(held_run_open(&c->run, c->run.sync_plans[comm->rank], &tri_device_cpu, comm, &near));
    held_run_result result = run_once(&near, &undisturbed);
    CHECK_OK(result.status);
    held_run_close(&near);
    return result.bits;
}

static bool differs(const test_case *c, int number) {
    bool any = false;
    for (int rank = 0; rank < c->run.mesh.ranks; rank++)
        any |= c->outcomes[number][rank].bits_differ || c->outcomes[number][rank].failed;
    return any;
}

// Runs the steps without the removed wait. So that the waiter overtakes its dependency, an action
// is held up: the dependency, or an earlier action of its lane, behind which the dependency has to
// wait (find_held). The held action goes on when all actions that do not depend on it are done.
// `until_waiter`: this is a second attempt, because the first changed nothing. The held action then
// goes on as soon as the waiter is done, and actions behind the waiter in the schedule begin only
// after the dependency is done.
static void run_without(const test_case *c, held_run *far, int number, bool until_waiter,
                        uint64_t bits, uint64_t memory) {
    const removal *r = &c->removals[number];
    held_run_plan plan = undisturbed;
    int64_t limit_us = until_waiter ? WAITER_LIMIT_US : LIMIT_US;
    if (r->is_implied || (until_waiter && r->only_begins)) limit_us = UNREACHABLE_LIMIT_US;
    if (r->wait.rank == far->rank)
        plan = (held_run_plan){.held_action = r->held_action,
                               .delays_results = r->delays_results,
                               .awaited = until_waiter ? r->only_waiter : r->independent,
                               .last_before_dependency = until_waiter ? r->wait.waiter : -1,
                               .waiter = r->wait.waiter,
                               .dependency = r->wait.dependency,
                               .more_us = r->only_begins ? MORE_US : 0,
                               .limit_us = limit_us};
    held_run_result result = run_once(far, &plan);
    outcome *o = &c->outcomes[number][far->rank];
    o->bits_differ |= result.bits != bits;
    o->memory_differs |= result.memory != memory;
    o->failed |= result.status != TRI_OK;
    o->expired |= result.expired && !until_waiter;
    o->orders_nothing |= result.orders_nothing;
}

static void body(tri_comm *comm, ranks_table *notes, void *argument) {
    const test_case *c = argument;
    held_run far;
    uint64_t bits = reference_bits(c, comm);
    CHECK_OK(held_run_open(&c->run, c->run.async_plans[comm->rank], &held_run_device, comm, &far));
    held_run_plan plan = undisturbed;
    plan.notes = c->notes[comm->rank];
    held_run_result whole = run_once(&far, &plan);
    check_same(c, &whole, bits, "without delays");
    plan.notes = NULL;
    plan.most_delay_us = DELAY_US;
    plan.seed = c->run.seed * RANDOM_RUN_RANKS + (uint64_t)comm->rank;
    held_run_result delayed = run_once(&far, &plan);
    check_same(c, &delayed, bits, "with delays");
    for (int i = 0; i < c->removal_count; i++) {
        run_without(c, &far, i, false, bits, whole.memory);
        CHECK_OK(tri_comm_barrier(comm, "removal"));
        if (!differs(c, i) && !c->removals[i].is_implied)
            run_without(c, &far, i, true, bits, whole.memory);
        CHECK_OK(tri_comm_barrier(comm, "removal"));
    }
    held_run_result last = run_once(&far, &undisturbed);
    check_same(c, &last, bits, "after all others");
    held_run_close(&far);
}

static void print_wait(const test_case *c, const removal *r, const char *what) {
    const tri_schedule *s = schedule_of(&c->run, r->wait.rank);
    char text[3][80];
    const int actions[] = {r->wait.waiter, r->wait.dependency, r->held_action};
    for (int i = 0; i < 3; i++) {
        const tri_action *a = &s->actions[actions[i]];
        snprintf(text[i], sizeof text[i], "%d (%s %d, round %d)", actions[i],
                 tri_action_name(a->kind), a->subject, a->round);
    }
    print_message("seed %llu, rank %d: %s does not wait for %s, %s held up: %s\n",
                  (unsigned long long)c->run.seed, r->wait.rank, text[0], text[1], text[2], what);
}

// Whether the waiter and its dependency are of kinds that may leave the same bytes in either order,
// because one of them may write what is there already. That may be: zeros where a rank has no
// micro-batch, also those that LOAD brings as states of a range without parameters; what a block
// made before; parameters that were gathered or fetched before, or of which only padding comes from
// elsewhere; a sum to which the other ranks add nothing, or of which NORM reads only padding.
static bool may_leave_the_same(const random_run *run, const order_wait *w) {
    static const tri_action_kind pairs[][2] = {
        {TRI_ACTION_CLEAR, TRI_ACTION_SCATTER},        {TRI_ACTION_SCATTER, TRI_ACTION_CLEAR},
        {TRI_ACTION_RECOMPUTE, TRI_ACTION_SEND_ALONG}, {TRI_ACTION_FORWARD, TRI_ACTION_GATHER},
        {TRI_ACTION_BACKWARD, TRI_ACTION_GATHER},      {TRI_ACTION_GATHER, TRI_ACTION_FETCH},
        {TRI_ACTION_FETCH, TRI_ACTION_GATHER},         {TRI_ACTION_REDUCE, TRI_ACTION_SCATTER},
        {TRI_ACTION_NORM, TRI_ACTION_REDUCE}};
    const tri_action *actions = schedule_of(run, w->rank)->actions;
    const tri_action *waiter = &actions[w->waiter];
    if (waiter->kind == TRI_ACTION_LOAD && actions[w->dependency].kind == TRI_ACTION_SCATTER)
        return is_padding(run->async_plans[w->rank], waiter->subject);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (waiter->kind == pairs[i][0] && actions[w->dependency].kind == pairs[i][1]) return true;
    return false;
}

typedef struct notes_of_rank {
    const device_notes *notes; // by action
} notes_of_rank;

static bool conflict(const void *context, int first, int second) {
    const notes_of_rank *of = context;
    return device_notes_conflict(&of->notes[first], &of->notes[second]);
}

static void judge(const test_case *c, int number) {
    const removal *r = &c->removals[number];
    counts *n = counts_of(&c->run, &r->wait);
    outcome all = {0};
    for (int rank = 0; rank < c->run.mesh.ranks; rank++) {
        const outcome *o = &c->outcomes[number][rank];
        all.bits_differ |= o->bits_differ;
        all.memory_differs |= o->memory_differs;
        all.failed |= o->failed;
        all.expired |= o->expired;
        all.orders_nothing |= o->orders_nothing;
    }
    bool needed =
        order_graph_loses(c->graph, &r->wait, conflict, &(notes_of_rank){c->notes[r->wait.rank]});
    bool caught = all.bits_differ || all.failed;
    if (caught && !needed && !r->is_implied) {
        print_wait(c, r, "caught");
        fail_msg("the actions touch no byte that they have in common");
    }
    // True if the waiter was done before the held action went on: then the two actions have run in
    // the wrong order.
    bool is_reversed = r->independent[r->wait.waiter] && !all.expired;
    bool is_same = is_reversed && !all.memory_differs && may_leave_the_same(&c->run, &r->wait);
    const char *what = caught                              ? "caught"
                       : !needed                           ? "no common bytes"
                       : is_reversed && all.memory_differs ? "only padding differs"
                       : all.orders_nothing || is_same     ? "the same bytes in either order"
                                                           : "missed";
    if (shows_all || (!strcmp(what, "missed") && !r->is_implied)) print_wait(c, r, what);
    if (r->is_implied) {
        if (caught) fail_msg("%s: a wait that others imply is needed", random_run_text(&c->run));
        return;
    }
    expired += all.expired;
    n->caught += caught;
    n->memory += !strcmp(what, "only padding differs");
    n->disjoint += !strcmp(what, "no common bytes");
    n->same_bytes += !strcmp(what, "the same bytes in either order");
    n->missed += !strcmp(what, "missed");
}

static void *share(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

// Whether a run only repeats what others show: each kind of wait in it was left out often enough.
static bool is_repetition(const test_case *c) {
    for (int i = 0; i < c->removal_count; i++)
        if (!c->removals[i].is_implied) return false;
    return REMOVALS && !shows_all;
}

static void run_case(test_case *c) {
    size_t bytes = MOST_REMOVALS * sizeof *c->outcomes,
           notes_bytes = RANDOM_RUN_RANKS * sizeof *c->notes;
    c->outcomes = share(bytes);
    c->notes = share(notes_bytes);
    if (ranks_run(c->run.mesh.ranks, NULL, body, c) != 0)
        fail_msg("%s failed", random_run_text(&c->run));
    for (int i = 0; i < c->removal_count; i++) judge(c, i);
    munmap(c->outcomes, bytes);
    munmap(c->notes, notes_bytes);
}

static void check_seed(uint64_t seed) {
    static test_case c;
    tri_device_description near, far;
    assert_int_equal(tri_device_cpu.describe(&(tri_device_config){.threads = 1}, &near), TRI_OK);
    assert_int_equal(held_run_device.describe(&(tri_device_config){.threads = 1}, &far), TRI_OK);
    c = (test_case){.arena = tri_arena_create(NULL, "waits")};
    random_run_make(seed, &near, &far, &c.run);
    plan_removals(&c);
    // Of the runs in which only the bits are compared, every third.
    if (!is_repetition(&c) || seed % 3 == 0) run_case(&c);
    tri_arena_destroy(c.arena);
    random_run_destroy(&c.run);
}

static const char *text_of(int kind) {
    static const char *const directions[TRI_ACTION_KIND_COUNT] = {
        [TRI_ACTION_SEND_ALONG] = "SEND along",
        [TRI_ACTION_RECV_ALONG] = "RECV along",
        [TRI_ACTION_SEND_BACK] = "SEND back",
        [TRI_ACTION_RECV_BACK] = "RECV back"};
    return directions[kind] ? directions[kind] : tri_action_name((tri_action_kind)kind);
}

static void print_counts(const char *waiter, const char *dependency, const counts *n) {
    print_message("%-15s %-15s %6d %8d %8d %7d %9d %7d %7d %8d %6d %7d\n", waiter, dependency,
                  n->total, n->implied, n->padding, n->ordered, n->left_out, n->caught, n->memory,
                  n->disjoint, n->same_bytes, n->missed);
}

static void print_table(void) {
    counts sum = {0};
    print_message("%-15s %-15s %6s %8s %8s %7s %9s %7s %7s %8s %6s %7s\n", "waiter", "dependency",
                  "waits", "implied", "padding", "ordered", "left out", "caught", "memory",
                  "disjoint", "same", "missed");
    for (int w = 0; w < TRI_ACTION_KIND_COUNT; w++)
        for (int d = 0; d < TRI_ACTION_KIND_COUNT; d++) {
            const counts *n = &table[w][d];
            if (n->total == 0) continue;
            print_counts(text_of(w), text_of(d), n);
            for (size_t i = 0; i < sizeof sum / sizeof(int); i++)
                ((int *)&sum)[i] += ((const int *)n)[i];
        }
    print_counts("all", "", &sum);
    print_message("implied: others order the two; padding: of a range without parameters; ordered: "
                  "other ranks\norder them; memory: only bytes differ that nothing depends on; "
                  "disjoint: they touch no byte in common; same: the same "
                  "bytes in either order\n%d runs in which time ran out\n",
                  expired);
}

// Checks the test itself. For each of these pairs of kinds (the action that waits, and the action
// for which it waits), removing the wait must have given a wrong result in at least one run.
static void check_kinds(void) {
    static const tri_action_kind pairs[][2] = {
        {TRI_ACTION_TAKE, TRI_ACTION_FORWARD},       {TRI_ACTION_TAKE, TRI_ACTION_BACKWARD},
        {TRI_ACTION_FORWARD, TRI_ACTION_TAKE},       {TRI_ACTION_FORWARD, TRI_ACTION_GATHER},
        {TRI_ACTION_FORWARD, TRI_ACTION_SCATTER},    {TRI_ACTION_FORWARD, TRI_ACTION_RECV_ALONG},
        {TRI_ACTION_FORWARD, TRI_ACTION_SEND_ALONG}, {TRI_ACTION_GATHER, TRI_ACTION_FORWARD},
        {TRI_ACTION_GATHER, TRI_ACTION_BACKWARD},    {TRI_ACTION_GATHER, TRI_ACTION_FETCH},
        {TRI_ACTION_BACKWARD, TRI_ACTION_GATHER},    {TRI_ACTION_BACKWARD, TRI_ACTION_SCATTER},
        {TRI_ACTION_BACKWARD, TRI_ACTION_RECV_BACK}, {TRI_ACTION_SEND_ALONG, TRI_ACTION_FORWARD},
        {TRI_ACTION_SEND_BACK, TRI_ACTION_BACKWARD}, {TRI_ACTION_RECV_ALONG, TRI_ACTION_FORWARD},
        {TRI_ACTION_RECV_BACK, TRI_ACTION_BACKWARD}, {TRI_ACTION_CLEAR, TRI_ACTION_SCATTER},
        {TRI_ACTION_SCATTER, TRI_ACTION_CLEAR},      {TRI_ACTION_SCATTER, TRI_ACTION_BACKWARD},
        {TRI_ACTION_REDUCE, TRI_ACTION_BACKWARD},    {TRI_ACTION_REDUCE, TRI_ACTION_SCATTER},
        {TRI_ACTION_TIE, TRI_ACTION_SCATTER},        {TRI_ACTION_NORM, TRI_ACTION_SCATTER},
        {TRI_ACTION_NORM, TRI_ACTION_REDUCE},        {TRI_ACTION_NORM, TRI_ACTION_TIE},
        {TRI_ACTION_LOAD, TRI_ACTION_BACKWARD},      {TRI_ACTION_LOAD, TRI_ACTION_SCATTER},
        {TRI_ACTION_STEP, TRI_ACTION_LOAD},          {TRI_ACTION_EVICT, TRI_ACTION_STEP},
        {TRI_ACTION_DOWNLOAD, TRI_ACTION_BACKWARD},  {TRI_ACTION_DOWNLOAD, TRI_ACTION_SCATTER},
        {TRI_ACTION_DOWNLOAD, TRI_ACTION_REDUCE},    {TRI_ACTION_HOST_STEP, TRI_ACTION_DOWNLOAD},
        {TRI_ACTION_HOST_STEP, TRI_ACTION_NORM},     {TRI_ACTION_UPLOAD, TRI_ACTION_HOST_STEP}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (table[pairs[i][0]][pairs[i][1]].caught == 0)
            fail_msg("no missing wait of %s for %s was caught", text_of(pairs[i][0]),
                     text_of(pairs[i][1]));
}

static uint64_t only_seed;

static void test_waits(void **state) {
    (void)state;
    const char *all = getenv("WAITS");
    if (shows_all || (all && !strcmp(all, "all"))) enough = INT_MAX;
    held_run_make_device();
    long_pauses_begin();
    for (uint64_t seed = 0; seed < SCHEDULES; seed++)
        if (!shows_all || seed == only_seed) check_seed(seed);
    print_table();
    for (int w = 0; w < TRI_ACTION_KIND_COUNT; w++)
        for (int d = 0; d < TRI_ACTION_KIND_COUNT; d++) {
            const counts *n = &table[w][d];
            assert_int_equal(n->missed, 0);
            bool is_needed = n->left_out > n->disjoint + n->same_bytes + n->memory;
            if (is_needed && n->caught == 0)
                fail_msg("no missing wait of %s for %s was caught", text_of(w), text_of(d));
        }
    if (!shows_all && REMOVALS) check_kinds();
}

int main(int argc, char **argv) {
    setenv("OMP_NUM_THREADS", "1", 1);
    shows_all = argc > 1;
    if (shows_all) only_seed = strtoull(argv[1], NULL, 10);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_waits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
