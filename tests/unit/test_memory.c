// Tests the placement of buffers in memory: buffers that are in use at the same time never overlap.
#include "base/philox.h"
#include "plan/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static uint32_t draw(uint64_t stream, uint32_t *at, uint32_t below) {
    return tri_philox_at(20, stream, 0, (*at)++) % below;
}

static void test_memory(void **state) {
    (void)state;
    enum { MOST = 120 };
    for (uint64_t round = 0; round < 400; round++) {
        int64_t alignment = round % 2 ? 64 : 256;
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
        int64_t size = tri_memory_pack(arena, items, count, alignment), all = 0;
        for (int i = 0; i < count; i++) {
            const tri_interval *a = &items[i];
            all += (a->size_bytes + alignment - 1) / alignment * alignment;
            assert_true(a->offset >= 0 && a->offset + a->size_bytes <= size);
            assert_int_equal(a->offset % alignment, 0);
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

// Places the buffers of a step with `rounds` micro-batches: for each micro-batch, each block has
// two buffers, in use from the block's forward pass to its backward pass. Returns how many bytes
// are needed. *most: the bytes of one micro-batch's buffers.
static int64_t place_rounds(int rounds, int blocks, int64_t *most) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_interval *items = TRI_NEW_ARRAY(arena, tri_interval, 2 * rounds * blocks);
    int count = 0;
    *most = 0;
    for (int b = 0; b < blocks; b++) *most += 64 * (b % 5 + 1) * 3;
    for (int r = 0; r < rounds; r++)
        for (int b = 0; b < blocks; b++)
            for (int k = 1; k <= 2; k++)
                items[count++] = (tri_interval){.size_bytes = 64 * k * (b % 5 + 1),
                                                .first = 2 * r * blocks + b,
                                                .last = 2 * (r + 1) * blocks - 1 - b};
    int64_t size = tri_memory_pack(arena, items, count, 64);
    tri_arena_destroy(arena);
    return size;
}

// Even with many micro-batches, buffers are placed quickly, and need only the bytes of one
// micro-batch.
static void test_many_rounds(void **state) {
    (void)state;
    int64_t most, one = place_rounds(1, 64, &most);
    assert_int_equal(one, most);
    clock_t start = clock();
    assert_int_equal(place_rounds(1024, 64, &most), one);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_many_rounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
