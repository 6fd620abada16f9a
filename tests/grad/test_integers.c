// Values of integers: formulas and functions of shapes on them, which are exact above 2^53, casts,
// and what they refuse.
#include "device/cpu/cpu.h"
#include "support/gradient_check.h"
#include "support/message.h"

#include <trireme/functions.h>

static const tri_device_backend *const backends[] = {&tri_device_ref, &tri_device_cpu};
static const int64_t large = ((int64_t)1 << 53) + 1; // what F64 has no number for

static void test_exact(void **state) {
    for (int b = 0; b < 2; b++) {
        tri_graph *g = op_graph_open(TRI_F32);
        tri_value x = tri_input(g, "x", TRI_I64, tri_shape_of(5)),
                  y = tri_input(g, "y", TRI_I64, tri_shape_of(5));
        tri_value is_equal = tri_equal(g, x, y), is_less = tri_less(g, y, x);
        tri_value sum = tri_map(g, "x, y -> max(x, y) * 2 - (x > 0 ? 1 : -x)", x, y);
        tri_value both = tri_map(g, "x, y -> x >= 0 && !(y < 4)", x, y), added = tri_add(g, x, y);
        tri_value number = tri_cast(g, is_equal, TRI_F32), back = tri_cast(g, number, TRI_I64);
        tri_value any = tri_any(g, is_equal, NULL, 0, false), every = tri_all(g, x, NULL, 0, false);
        tri_device *device = op_device_open(backends[b], 1);
        op_session *session = op_session_open(g, device, false);
        const int64_t xs[] = {large, 3, -4, 0, large - 1}, ys[] = {large - 1, 3, 5, 0, large};
        memcpy(op_host(session, x), xs, sizeof xs);
        memcpy(op_host(session, y), ys, sizeof ys);
        op_run_ok(session);
        const int64_t equal[] = {0, 1, 0, 1, 0}, less[] = {1, 0, 0, 0, 0};
        const int64_t sums[] = {2 * large - 1, 5, 10 - 4, 0, 2 * large - 1};
        const int64_t all[] = {1, 0, 0, 0, 1}, adds[] = {2 * large - 1, 6, 1, 0, 2 * large - 1};
        assert_memory_equal(op_host(session, is_equal), equal, sizeof equal);
        assert_memory_equal(op_host(session, is_less), less, sizeof less);
        assert_memory_equal(op_host(session, sum), sums, sizeof sums);
        assert_memory_equal(op_host(session, added), adds, sizeof adds);
        assert_memory_equal(op_host(session, both), all, sizeof all);
        assert_memory_equal(op_host(session, back), equal, sizeof equal);
        for (int i = 0; i < 5; i++) assert_true(op_get(session, number, i) == (double)equal[i]);
        assert_true(op_get(session, any, 0) == 1 && op_get(session, every, 0) == 0);
        op_session_close(session);
        device->backend->close(device);
        op_graph_close(g);
    }
}

// Division with remainder, bits and shifts, as PyTorch computes them; what is divided by 0 is 0.
static void test_division_and_bits(void **state) {
    enum { MOST = 6 };
    static const int64_t xs[MOST] = {7, -7, INT64_MIN, -1, (3LL << 53) + 5, 0},
                         ys[MOST] = {3, 3, -1, 70, -4, 0};
    static const struct {
        const char *expression;
        int64_t want[MOST];
    } cases[] = {
        {"x, y -> x // y", {2, -3, INT64_MIN, -1, -(3LL << 51) - 2, 0}},
        {"x, y -> x % y", {1, 2, 0, 69, -3, 0}},
        {"x, y -> fmod(x, y)", {1, -1, 0, -1, 1, 0}},
        {"x, y -> x & y", {3, 1, INT64_MIN, 70, (3LL << 53) + 4, 0}},
        {"x, y -> x | y", {7, -5, -1, -1, -3, 0}},
        {"x, y -> bit_xor(x, y)", {4, -6, INT64_MAX, -71, -(3LL << 53) - 7, 0}},
        {"x, y -> ~x + 0 * y", {-8, 6, INT64_MAX, 0, -(3LL << 53) - 6, -1}},
        {"x, y -> x << y", {56, -56, 0, 0, 0, 0}},
        {"x, y -> x >> y", {0, -1, -1, -1, 0, 0}},
        // From the outside in: comparisons, |, &, shifts, sums.
        {"x, y -> 1 | x & 6 << 1 + 0 * y == 5", {1, 0, 0, 0, 1, 0}},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    for (int b = 0; b < 2; b++) {
        tri_graph *g = op_graph_open(TRI_F32);
        tri_value x = tri_input(g, "x", TRI_I64, tri_shape_of(MOST)),
                  y = tri_input(g, "y", TRI_I64, tri_shape_of(MOST)), made[CASES];
        for (int i = 0; i < CASES; i++) made[i] = tri_map(g, cases[i].expression, x, y);
        tri_value byte = tri_cast(g, x, TRI_U8);
        tri_value turned = tri_map(g, "b -> ~b", byte);
        tri_device *device = op_device_open(backends[b], 1);
        op_session *session = op_session_open(g, device, false);
        memcpy(op_host(session, x), xs, sizeof xs);
        memcpy(op_host(session, y), ys, sizeof ys);
        op_run_ok(session);
        for (int i = 0; i < CASES; i++) {
            const int64_t *got = op_host(session, made[i]);
            for (int k = 0; k < MOST; k++)
                if (got[k] != cases[i].want[k])
                    fail_msg("%s of %lld and %lld: %lld, not %lld", cases[i].expression,
                             (long long)xs[k], (long long)ys[k], (long long)got[k],
                             (long long)cases[i].want[k]);
        }
        const uint8_t bytes[] = {248, 6, 255, 0, 250, 255};
        assert_memory_equal(op_host(session, turned), bytes, sizeof bytes);
        op_session_close(session);
        device->backend->close(device);
        op_graph_close(g);
    }
}

// A number becomes the integer next to 0, and one without room the nearest; an integer wraps.
static void test_casts(void **state) {
    for (int b = 0; b < 2; b++) {
        tri_graph *g = op_graph_open(TRI_F32);
        tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(6));
        tri_value whole = tri_cast(g, x, TRI_I64), byte = tri_cast(g, whole, TRI_U8);
        tri_value half = tri_cast(g, tri_cast(g, byte, TRI_I32), TRI_F32);
        tri_value narrow = tri_cast(g, x, TRI_I32), narrowest = tri_cast(g, x, TRI_U8);
        tri_value number = tri_input(g, "number", TRI_I64, tri_shape_of(1)),
                  once = tri_cast(g, number, TRI_F32);
        assert_int_equal(tri_cast(g, whole, TRI_I64).id, whole.id);
        tri_device *device = op_device_open(backends[b], 1);
        op_session *session = op_session_open(g, device, false);
        const float xs[] = {2.75F, -2.75F, 300, 1e30F, -INFINITY, NAN};
        memcpy(op_host(session, x), xs, sizeof xs);
        *(int64_t *)op_host(session, number) = (1LL << 54) + (1 << 30) + 1;
        op_run_ok(session);
        const int32_t narrows[] = {2, -2, 300, INT32_MAX, INT32_MIN, 0};
        const uint8_t narrowests[] = {2, 0, 255, 255, 0, 0};
        assert_memory_equal(op_host(session, narrow), narrows, sizeof narrows);
        assert_memory_equal(op_host(session, narrowest), narrowests, sizeof narrowests);
        assert_true(op_get(session, once, 0) == 0x1p54 + 0x1p31);
        const int64_t wholes[] = {2, -2, 300, INT64_MAX, INT64_MIN, 0};
        const uint8_t bytes[] = {2, 254, 44, 255, 0, 0};
        assert_memory_equal(op_host(session, whole), wholes, sizeof wholes);
        assert_memory_equal(op_host(session, byte), bytes, sizeof bytes);
        for (int i = 0; i < 6; i++) assert_true(op_get(session, half, i) == bytes[i]);
        op_session_close(session);
        device->backend->close(device);
        op_graph_close(g);
    }
}

// Functions of shapes, and uses: one-hot vectors and masks of what is not padding.
static void test_shapes(void **state) {
    for (int b = 0; b < 2; b++) {
        tri_graph *g = op_graph_open(TRI_F32);
        tri_value ids = tri_input(g, "ids", TRI_I64, tri_shape_of(2, 3)),
                  classes = tri_input(g, "classes", TRI_I64, tri_shape_of(4));
        tri_value moved = tri_transpose(g, tri_pad(g, tri_flip(g, ids, 1), 1, 1, 0), 0, 1);
        tri_value hot = tri_cast(g, tri_equal(g, tri_unsqueeze(g, ids, -1), classes), TRI_F32);
        tri_value mask = tri_map(g, "id -> id != 0", tri_slice(g, ids, 1, 1, 0, 1));
        tri_value rolled = tri_roll(g, ids, 1, 1), pair[] = {mask, mask};
        tri_value joined = tri_stack(g, pair, 2, 2);
        tri_device *device = op_device_open(backends[b], 1);
        op_session *session = op_session_open(g, device, false);
        const int64_t id[] = {3, 1, 0, 2, 0, 3}, numbers[] = {0, 1, 2, 3};
        memcpy(op_host(session, ids), id, sizeof id);
        memcpy(op_host(session, classes), numbers, sizeof numbers);
        op_run_ok(session);
        const int64_t want[] = {0, 0, 0, 3, 1, 0, 3, 2}, masks[] = {1, 0, 0, 1};
        const int64_t rolls[] = {0, 3, 1, 3, 2, 0}, joins[] = {1, 1, 0, 0, 0, 0, 1, 1};
        assert_memory_equal(op_host(session, moved), want, sizeof want);
        assert_memory_equal(op_host(session, mask), masks, sizeof masks);
        assert_memory_equal(op_host(session, rolled), rolls, sizeof rolls);
        assert_memory_equal(op_host(session, joined), joins, sizeof joins);
        for (int i = 0; i < 24; i++) assert_true(op_get(session, hot, i) == (id[i / 4] == i % 4));
        op_session_close(session);
        device->backend->close(device);
        op_graph_close(g);
    }
}

// An integer that depends on a parameter, such as where its largest elements are, has no gradient,
// whatever is computed with it.
static void test_no_gradient(void **state) {
    subject s = begin();
    tri_value x = trained(&s, "x", tri_shape_of(2, 5)), index, y;
    y = tri_topk(s.graph, x, 3, 1, true, &index);
    index = tri_map(s.graph, "i -> max(i, 1) - 1", index);
    y = tri_map(s.graph, "y, i -> y * (i + 1)", y, tri_cast(s.graph, index, TRI_F32));
    y = tri_add(s.graph, y, tri_gather(s.graph, x, 1, index));
    check(&s, distance(&s, y));
}

// Masks are U8, whatever is compared, and stand among floating numbers as 1 and 0.
static void test_masks(void **state) {
    for (int b = 0; b < 2; b++) {
        tri_graph *g = op_graph_open(TRI_F32);
        tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(2, 3)),
                  i = tri_input(g, "i", TRI_I64, tri_shape_of(3));
        tri_value above = tri_mask(g, "x > 0", x), odd = tri_mask(g, "i & 1", i);
        tri_value both = tri_mask(g, "a, b -> a && !b", above, odd);
        tri_value chosen = tri_where(g, both, x, tri_mul_scalar(g, x, -10));
        tri_value kept = tri_map(g, "x, m -> x * m", x, tri_flip(g, above, 1));
        tri_value count = tri_sum(g, above, (int[]){1}, 1, false);
        tri_value picked = tri_where(g, odd, i, tri_mul_scalar(g, i, 100));
        assert_int_equal(tri_value_get(g, above)->dtype, TRI_U8);
        assert_int_equal(tri_value_get(g, both)->dtype, TRI_U8);
        assert_int_equal(tri_value_get(g, chosen)->dtype, TRI_F32);
        assert_int_equal(tri_value_get(g, count)->dtype, TRI_I64);
        tri_device *device = op_device_open(backends[b], 1);
        op_session *session = op_session_open(g, device, false);
        const float xs[] = {1, -2, NAN, 4, 0.25F, -0.5F};
        const int64_t is[] = {2, large, 4};
        memcpy(op_host(session, x), xs, sizeof xs);
        memcpy(op_host(session, i), is, sizeof is);
        op_run_ok(session);
        const uint8_t aboves[] = {1, 0, 0, 1, 1, 0}, odds[] = {0, 1, 0},
                      boths[] = {1, 0, 0, 1, 0, 0};
        const int64_t counts[] = {1, 2}, picks[] = {200, large, 400};
        const double choices[] = {1, 20, NAN, 4, -2.5, 5}, keeps[] = {0, 0, NAN, 0, 0.25, -0.5};
        assert_memory_equal(op_host(session, above), aboves, sizeof aboves);
        assert_memory_equal(op_host(session, odd), odds, sizeof odds);
        assert_memory_equal(op_host(session, both), boths, sizeof boths);
        assert_memory_equal(op_host(session, count), counts, sizeof counts);
        assert_memory_equal(op_host(session, picked), picks, sizeof picks);
        for (int k = 0; k < 6; k++) {
            assert_true(isnan(choices[k]) || op_get(session, chosen, k) == choices[k]);
            assert_true(isnan(keeps[k]) || op_get(session, kept, k) == keeps[k]);
        }
        op_session_close(session);
        device->backend->close(device);
        op_graph_close(g);
    }
}

// A mask has no gradient, and what it chooses has one.
static void test_mask_gradient(void **state) {
    subject s = begin();
    tri_value x = trained(&s, "x", tri_shape_of(3, 5)), y = trained(&s, "y", tri_shape_of(5));
    tri_value mask = tri_mask(s.graph, "x, y -> x > y", x, y);
    tri_value chosen = tri_where(s.graph, mask, tri_square(s.graph, x), y);
    check(&s, distance(&s, tri_map(s.graph, "v, m -> v * (m + 1)", chosen, mask)));
}

// Sums, products, extremes, order and running sums of integers, as PyTorch computes them: sums and
// products are I64 and wrap, the others keep the type.
static void test_along_axes(void **state) {
    const int64_t xs[] = {large, -3, INT64_MAX, large - 1, 5, 1};
    const uint8_t bytes[] = {200, 3, 100, 7, 0, 255};
    for (int b = 0; b < 2; b++) {
        tri_graph *g = op_graph_open(TRI_F32);
        tri_value x = tri_input(g, "x", TRI_I64, tri_shape_of(2, 3)), index, rank, last;
        tri_value byte = tri_input(g, "bytes", TRI_U8, tri_shape_of(2, 3));
        int axis = 1, other = 0;
        tri_value sum = tri_sum(g, x, &axis, 1, false), most = tri_amax(g, x, &axis, 1, false),
                  least = tri_amin(g, x, &other, 1, false),
                  product = tri_prod(g, x, &axis, 1, false),
                  bytes_sum = tri_sum(g, byte, NULL, 0, false),
                  bytes_most = tri_amax(g, byte, &other, 1, false);
        tri_value sorted = tri_sort(g, x, 1, false, &index),
                  top = tri_topk(g, byte, 2, 1, true, &rank);
        tri_value running = tri_cumsum(g, x, 1), products = tri_cumprod(g, byte, 1),
                  largest = tri_cummax(g, byte, 1, &last);
        tri_value where = tri_argmax(g, x, 1, false), lowest = tri_argmin(g, byte, 0, false);
        tri_value any = tri_any(g, x, &axis, 1, false);
        tri_device *device = op_device_open(backends[b], 1);
        op_session *session = op_session_open(g, device, false);
        memcpy(op_host(session, x), xs, sizeof xs);
        memcpy(op_host(session, byte), bytes, sizeof bytes);
        op_run_ok(session);
#define SAME(value, type, ...)                                                                     \
    assert_memory_equal(op_host(session, value), ((const type[]){__VA_ARGS__}),                    \
                        sizeof((const type[]){__VA_ARGS__}))
        SAME(sum, int64_t, -9214364837600034819, 9007199254740998);
        SAME(most, int64_t, INT64_MAX, 9007199254740992);
        SAME(least, int64_t, large - 1, -3, 1);
        SAME(product, int64_t, -9196350439090552829, 45035996273704960);
        SAME(bytes_sum, int64_t, 565);
        SAME(bytes_most, uint8_t, 200, 3, 255);
        SAME(sorted, int64_t, -3, large, INT64_MAX, 1, 5, large - 1);
        SAME(index, int64_t, 1, 0, 2, 2, 1, 0);
        SAME(top, uint8_t, 200, 100, 255, 7);
        SAME(rank, int64_t, 0, 2, 2, 0);
        SAME(running, int64_t, large, 9007199254740990, -9214364837600034819, large - 1,
             9007199254740997, 9007199254740998);
        SAME(products, int64_t, 200, 600, 60000, 7, 0, 0);
        SAME(largest, uint8_t, 200, 200, 200, 7, 7, 255);
        SAME(last, int64_t, 0, 0, 0, 0, 0, 2);
        SAME(where, int64_t, 2, 0);
        SAME(lowest, int64_t, 1, 1, 0);
        assert_true(op_get(session, any, 0) == 1 && op_get(session, any, 1) == 1);
        op_session_close(session);
        device->backend->close(device);
        op_graph_close(g);
    }
}

static void refused(tri_graph *g, const char *parts) {
    const char *message = "";
    assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
    message_check(message, parts);
    op_graph_close(g);
}

static void test_refusals(void **state) {
    static const struct {
        const char *expression, *parts;
    } cases[] = {
        {"x, y -> x / y", "map|div|integers|tri_cast"},
        {"x, y -> x + exp(y)", "map|exp|integers"},
        {"x, y -> x + 0.5 * y", "map|0.5|integer|I64"},
        {"x, y -> x + 1e30 * y", "map|1e+30|integer|I64"},
        {"x, y -> x == 9007199254740993 ? x : y", "map|9007199254740992|integer|2^53|I64"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_graph *g = op_graph_open(TRI_F32);
        tri_value x = tri_input(g, "x", TRI_I64, tri_shape_of(3));
        tri_map(g, cases[i].expression, x, tri_input(g, "y", TRI_I64, tri_shape_of(3)));
        refused(g, cases[i].parts);
    }
    tri_graph *bits = op_graph_open(TRI_F32);
    tri_map(bits, "x & 3", tri_input(bits, "x", TRI_F32, tri_shape_of(3)));
    refused(bits, "map|bit_and|integers|tri_cast");
    static const tri_dtype mixed[][2] = {
        {TRI_I64, TRI_F32}, {TRI_F32, TRI_I64}, {TRI_I32, TRI_I64}};
    for (int i = 0; i < 3; i++) {
        tri_graph *g = op_graph_open(TRI_F32);
        char parts[64];
        tri_value x = tri_input(g, "x", mixed[i][0], tri_shape_of(3));
        tri_mul(g, x, tri_input(g, "y", mixed[i][1], tri_shape_of(3)));
        snprintf(parts, sizeof parts, "map|input 1|%s|%s", tri_dtype_name(mixed[i][0]),
                 tri_dtype_name(mixed[i][1]));
        refused(g, parts);
    }
    tri_graph *g = op_graph_open(TRI_F32);
    tri_cast(g, tri_input(g, "x", TRI_F32, tri_shape_of(3)), TRI_BF16);
    refused(g, "cast|F32|I64|BF16");
    g = op_graph_open(TRI_F32);
    tri_cast(g, tri_input(g, "x", TRI_BOOL, tri_shape_of(3)), TRI_F32);
    refused(g, "cast|x|U8|BOOL");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),         cmocka_unit_test(test_division_and_bits),
        cmocka_unit_test(test_casts),         cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_no_gradient),   cmocka_unit_test(test_masks),
        cmocka_unit_test(test_mask_gradient), cmocka_unit_test(test_along_axes),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
