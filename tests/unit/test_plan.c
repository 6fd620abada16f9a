// Schedules as data: those of many ranks are good and alike, and what is dropped, doubled, swapped
// or no longer waited for is caught. Memory offsets never overlap.
#include "base/philox.h"
#include "data/sampler.h"
#include "plan/memory.h"
#include "plan/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_BLOCKS = 40, MOST_ROUNDS = 64 };

static uint32_t draw(uint64_t stream, uint32_t *at, uint32_t below) {
    return tri_philox_at(20, stream, 0, (*at)++) % below;
}

static void make(tri_arena *arena, const tri_schedule_request *request, tri_schedule *out) {
    const tri_strategy *strategy = tri_strategy_find(request->replicas > 1 ? "ddp" : "single");
    assert_non_null(strategy);
    if (tri_schedule_make(arena, strategy, request, out) != TRI_OK)
        fail_msg("%d blocks, %d rounds, %d replicas: %s", request->blocks, request->rounds,
                 request->replicas, tri_error_message());
}

// One step of `samples`, as all its replicas would run it.
static void check_step(int blocks, int64_t samples, int64_t micro, int replicas, bool training) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    bool has_state[MOST_BLOCKS];
    for (int b = 0; b < blocks; b++) has_state[b] = b % 5 != 3;
    tri_schedule *all = TRI_NEW_ARRAY(arena, tri_schedule, replicas);
    int rounds = (int)tri_micro_batch_rounds(samples, micro, replicas);
    for (int rank = 0; rank < replicas; rank++) {
        int64_t *sizes = TRI_NEW_ARRAY(arena, int64_t, rounds);
        for (int i = 0; i < rounds; i++)
            sizes[i] = tri_micro_batch_of(samples, micro, replicas, rank, i).size;
        tri_schedule_request request = {.blocks = blocks,
                                        .has_state = has_state,
                                        .rounds = rounds,
                                        .round_sizes = sizes,
                                        .replicas = replicas,
                                        .training = training};
        make(arena, &request, &all[rank]);
    }
    assert_int_equal(tri_schedule_verify_ranks(all, replicas), TRI_OK);
    if (replicas > 1 && training) { // a rank that reduces in another order is not one of them
        tri_schedule *last = &all[replicas - 1];
        int reduce[2], found = 0;
        for (int i = 0; i < last->count && found < 2; i++)
            if (last->actions[i].kind == TRI_ACTION_REDUCE) reduce[found++] = i;
        if (found == 2) {
            tri_action kept = last->actions[reduce[0]];
            last->actions[reduce[0]] = last->actions[reduce[1]];
            last->actions[reduce[1]] = kept;
            assert_int_not_equal(tri_schedule_verify_ranks(all, replicas), TRI_OK);
        }
        last->count--;
        while (last->count && last->actions[last->count].kind != TRI_ACTION_NORM) last->count--;
        assert_int_not_equal(tri_schedule_verify_ranks(all, replicas), TRI_OK);
    }
    tri_arena_destroy(arena);
}

static void test_many_ranks(void **state) {
    (void)state;
    static const struct {
        int64_t samples, micro;
        int replicas;
    } steps[] = {{64, 0, 1},    {64, 8, 1},     {64, 0, 3},     {5, 0, 8},  {7, 3, 4},
                 {64, 1, 7},    {1, 1, 16},     {1, 0, 1024},   {33, 8, 2}, {1024, 0, 1024},
                 {4096, 4, 64}, {5000, 2, 512}, {2047, 1, 1024}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        for (int blocks = 1; blocks <= MOST_BLOCKS; blocks += blocks < 4 ? 1 : 18)
            for (int training = 0; training < 2; training++)
                check_step(blocks, steps[i].samples, steps[i].micro, steps[i].replicas, training);
}

// What a schedule does to the training state, followed action by action and without the verifier:
// the rounds that each block's gradients and statistics are made of, and what was stepped with.
typedef struct outcome {
    uint64_t gradients[MOST_BLOCKS], statistics[MOST_BLOCKS]; // bits: rounds
    int at_round[MOST_BLOCKS]; // whose activations are there; -1: none
    bool cleared[MOST_BLOCKS], reduced[MOST_BLOCKS], stepped[MOST_BLOCKS], normed;
    int last_round;
} outcome;

static bool add_round(uint64_t *rounds, int round, bool accumulate) {
    uint64_t bit = UINT64_C(1) << round;
    if (accumulate == (*rounds == 0) || (*rounds & bit)) return false;
    *rounds |= bit;
    return true;
}

static bool follow(const tri_schedule_request *r, outcome *o, const tri_action *a) {
    int b = a->block;
    switch (a->kind) {
    case TRI_ACTION_FORWARD:
        if (r->round_sizes[a->round] == 0 || (b > 0 && o->at_round[b - 1] != a->round))
            return false;
        for (int k = b; k < r->blocks; k++)
            if (o->at_round[k] >= 0) return false;             // another round's, still needed
        if (b == 0 && a->round <= o->last_round) return false; // the loader gives them in order
        o->last_round = a->round;
        o->at_round[b] = a->round;
        return add_round(&o->statistics[b], a->round, a->accumulate);
    case TRI_ACTION_BACKWARD:
        if (o->at_round[b] != a->round || o->reduced[b]) return false;
        for (int k = b + 1; k < r->blocks; k++)
            if (o->at_round[k] >= 0) return false;
        o->at_round[b] = -1;
        return add_round(&o->gradients[b], a->round, a->accumulate);
    case TRI_ACTION_CLEAR:
        if (o->cleared[b] || o->gradients[b]) return false;
        return o->cleared[b] = true;
    case TRI_ACTION_REDUCE:
        if (o->reduced[b] || o->normed) return false;
        for (int i = 0; i < r->rounds; i++)
            if (((o->gradients[b] >> i) & 1) != (r->round_sizes[i] > 0)) return false;
        return o->reduced[b] = o->gradients[b] || o->cleared[b];
    case TRI_ACTION_NORM:
        for (int k = 0; k < r->blocks; k++)
            for (int i = 0; i < r->rounds; i++)
                if (((o->gradients[k] >> i) & 1) != (r->round_sizes[i] > 0)) return false;
        for (int k = 0; k < r->blocks && r->replicas > 1; k++)
            if (r->has_state[k] && !o->reduced[k]) return false;
        if (o->normed) return false;
        return o->normed = true;
    case TRI_ACTION_STEP:
        if (!o->normed || o->stepped[b]) return false;
        return o->stepped[b] = true;
    case TRI_ACTION_KIND_COUNT:
        break;
    }
    return false;
}

static bool is_right(const tri_schedule_request *r, const tri_schedule *s) {
    outcome o = {.last_round = -1};
    memset(o.at_round, -1, sizeof o.at_round);
    for (int i = 0; i < s->count; i++)
        if (!follow(r, &o, &s->actions[i])) return false;
    for (int b = 0; b < r->blocks; b++)
        if (o.stepped[b] != r->has_state[b]) return false;
    return o.normed;
}

static tri_status verify_changed(const tri_schedule *good, const tri_schedule_request *request,
                                 const tri_action *actions, int count, bool *right) {
    tri_arena *arena = tri_arena_create(NULL, "mutation");
    tri_schedule changed = {
        .arena = arena, .count = count, .blocks = good->blocks, .rounds = good->rounds};
    changed.actions = TRI_NEW_ARRAY(arena, tri_action, count);
    memcpy(changed.actions, actions, (size_t)count * sizeof *actions);
    tri_schedule_find_dependencies(&changed);
    tri_status status = tri_schedule_verify(&changed, request);
    *right = is_right(request, &changed);
    tri_arena_destroy(arena);
    return status;
}

// A verdict has to be that of the test's own account: wrong schedules caught, harmless ones not.
static void check_verdict(const tri_schedule *good, const tri_schedule_request *request,
                          const tri_action *actions, int count, const char *what, int i, int k,
                          int *caught) {
    bool right;
    tri_status status = verify_changed(good, request, actions, count, &right);
    *caught += status != TRI_OK;
    if (right == (status == TRI_OK)) return;
    fail_msg("%s of actions %d (%s %d,%d) and %d (%s %d,%d), %d rounds, %d replicas: %s", what, i,
             tri_action_name(good->actions[i].kind), good->actions[i].block, good->actions[i].round,
             k, tri_action_name(good->actions[k].kind), good->actions[k].block,
             good->actions[k].round, request->rounds, request->replicas,
             status == TRI_OK ? "not caught" : tri_error_message());
}

static void mutate(const tri_schedule_request *request) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_schedule good;
    make(arena, request, &good);
    assert_true(is_right(request, &good));
    int n = good.count, caught = 0;
    tri_action *actions = TRI_NEW_ARRAY(arena, tri_action, n + 1);
    for (int i = 0; i < n; i++) {
        memcpy(actions, good.actions, (size_t)n * sizeof *actions);
        memmove(actions + i, actions + i + 1, (size_t)(n - 1 - i) * sizeof *actions);
        check_verdict(&good, request, actions, n - 1, "dropping", i, i, &caught);
        assert_int_equal(caught, 3 * i + 1); // none of them is superfluous
        for (int k = 0; k < 2; k++) {        // again at once, and again at the end
            memcpy(actions, good.actions, (size_t)n * sizeof *actions);
            int at = k ? n : i + 1;
            memmove(actions + at + 1, actions + at, (size_t)(n - at) * sizeof *actions);
            actions[at] = good.actions[i];
            check_verdict(&good, request, actions, n + 1, "doubling", i, i, &caught);
        }
        assert_int_equal(caught, 3 * i + 3);
    }
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n; k++) {
            memcpy(actions, good.actions, (size_t)n * sizeof *actions);
            actions[i] = good.actions[k];
            actions[k] = good.actions[i];
            check_verdict(&good, request, actions, n, "swapping", i, k, &caught);
        }
    for (int d = 0; d < good.dependency_count; d++) { // waits for something else
        int kept = good.dependencies[d];
        good.dependencies[d] = kept ? kept - 1 : 1;
        assert_int_not_equal(tri_schedule_verify(&good, request), TRI_OK);
        good.dependencies[d] = kept;
    }
    for (int i = 0; i < n; i++) { // forgets the last thing it waited for
        if (good.actions[i].dependency_count == 0) continue;
        good.actions[i].dependency_count--;
        assert_int_not_equal(tri_schedule_verify(&good, request), TRI_OK);
        good.actions[i].dependency_count++;
    }
    assert_int_equal(tri_schedule_verify(&good, request), TRI_OK);
    tri_arena_destroy(arena);
}

static void test_mutations(void **state) {
    (void)state;
    static const int64_t rounds[][4] = {{4}, {4, 4}, {4, 4, 4, 1}, {4, 4, 4, 0}, {4, 0}, {0}};
    static const int counts[] = {1, 2, 4, 4, 2, 1};
    static const bool has_state[] = {true, false, true, true};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int replicas = 1; replicas <= 2; replicas++) {
            if (replicas == 1 && rounds[i][counts[i] - 1] == 0) continue;
            tri_schedule_request request = {.blocks = 4,
                                            .has_state = has_state,
                                            .rounds = counts[i],
                                            .round_sizes = rounds[i],
                                            .replicas = replicas,
                                            .training = true};
            mutate(&request);
        }
}

static void test_print(void **state) {
    (void)state;
    static const bool has_state[] = {true, true};
    static const int64_t sizes[] = {8, 4};
    static const char *const names[] = {"stem", "head"};
    tri_schedule_request request = {.blocks = 2,
                                    .has_state = has_state,
                                    .rounds = 2,
                                    .round_sizes = sizes,
                                    .replicas = 2,
                                    .training = true};
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_schedule schedule;
    make(arena, &request, &schedule);
    char *text;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    tri_schedule_print(&schedule, names, to);
    fclose(to);
    static const char *const wanted[] = {
        "FORWARD stem,0", "FORWARD head,0",  "BACKWARD head,0", "BACKWARD stem,0", "FORWARD stem,1",
        "FORWARD head,1", "BACKWARD head,1", "REDUCE head",     "BACKWARD stem,1", "REDUCE stem",
        "NORM",           "STEP stem",       "STEP head"};
    char *line = text;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        char *end = strchr(line, '\n');
        assert_non_null(end);
        *end = 0;
        if (!strstr(line, wanted[i])) fail_msg("line %zu is '%s', not %s", i, line, wanted[i]);
        if (!strcmp(wanted[i], "REDUCE stem")) assert_non_null(strstr(line, "BACKWARD stem,1"));
        line = end + 1;
    }
    assert_int_equal(*line, 0);
    free(text);
    tri_arena_destroy(arena);
}

static void test_memory(void **state) {
    (void)state;
    enum { MOST = 120 };
    for (uint64_t round = 0; round < 400; round++) {
        tri_arena *arena = tri_arena_create(NULL, "test");
        tri_interval items[MOST];
        uint32_t at = 0;
        int count = (int)draw(round, &at, MOST + 1), moments = 1 + (int)draw(round, &at, 60);
        int64_t busiest = 0;
        for (int i = 0; i < count; i++) {
            int first = (int)draw(round, &at, (uint32_t)moments);
            items[i] =
                (tri_interval){.size_bytes = draw(round, &at, 8) ? 1 + draw(round, &at, 5000) : 0,
                               .first = first,
                               .last = first + (int)draw(round, &at, (uint32_t)(moments - first)),
                               .offset = -1};
        }
        for (int m = 0; m < moments; m++) {
            int64_t sum = 0;
            for (int i = 0; i < count; i++)
                if (items[i].first <= m && m <= items[i].last) sum += items[i].size_bytes;
            busiest = sum > busiest ? sum : busiest;
        }
        int64_t size = tri_memory_place(arena, items, count), all = 0;
        for (int i = 0; i < count; i++) {
            const tri_interval *a = &items[i];
            all += (a->size_bytes + TRI_MEMORY_ALIGNMENT - 1) / TRI_MEMORY_ALIGNMENT *
                   TRI_MEMORY_ALIGNMENT;
            assert_true(a->offset >= 0 && a->offset + a->size_bytes <= size);
            assert_int_equal(a->offset % TRI_MEMORY_ALIGNMENT, 0);
            for (int k = 0; k < i; k++) {
                const tri_interval *b = &items[k];
                bool together = a->first <= b->last && b->first <= a->last;
                bool overlap =
                    a->offset < b->offset + b->size_bytes && b->offset < a->offset + a->size_bytes;
                if (together && overlap && a->size_bytes && b->size_bytes)
                    fail_msg("round %d: buffers %d and %d overlap", (int)round, i, k);
            }
        }
        assert_true(size >= busiest && size <= all);
        tri_arena_destroy(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many_ranks),
                                       cmocka_unit_test(test_mutations),
                                       cmocka_unit_test(test_print), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
