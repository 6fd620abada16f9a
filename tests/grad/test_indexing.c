// Compares functions that work along an axis by the numbers of its elements with PyTorch
// (index_tables.h), and their gradients with finite differences; and checks what they refuse.
#include "device/cpu/cpu.h"
#include "support/message.h"
#include "support/torch_check.h"

#include "grad/index_tables.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

// An index of numbers below `limit`, which torch_check fills as make_index_tables.py does.
static tri_value numbers(tri_graph *g, int limit, tri_shape shape) {
    return tri_input(g, tri_name(g, "index below %d", limit), TRI_I64, shape);
}

static tri_value source(tri_graph *g, tri_shape shape) {
    return tri_parameter(g, "source", shape, (tri_init){0});
}

// x plus a vector of numbers 0, 1, 2, …: the scan of ones. An index counts beside the values where
// the wave by which torch_check multiplies is read in its order, so it is gathered from these.
static tri_value with_numbers(tri_graph *g, tri_value values, tri_value index, tri_value x,
                              int axis) {
    tri_value ones = tri_map(g, "x == x", x);
    tri_value numbers_of = tri_add_scalar(g, tri_cumsum(g, ones, axis), -1);
    return tri_add(g, values, tri_gather(g, numbers_of, axis, index));
}

static tri_value sorted(tri_graph *g, tri_value x, int axis, bool descending) {
    tri_value index, values = tri_sort(g, x, axis, descending, &index);
    return with_numbers(g, values, index, x, axis);
}

static tri_value top(tri_graph *g, tri_value x, int64_t count, int axis, bool largest) {
    tri_value index, values = tri_topk(g, x, count, axis, largest, &index);
    return with_numbers(g, values, index, x, axis);
}

static tri_value extreme(tri_graph *g, tri_value x, int axis, bool largest) {
    tri_value index, values = (largest ? tri_cummax : tri_cummin)(g, x, axis, &index);
    return with_numbers(g, values, index, x, axis);
}

// x with zeros where make_index_tables.py has them.
static tri_value with_zeros(tri_graph *g, tri_value x) {
    return tri_mul(g, x, tri_input(g, "holes", tri_value_get(g, x)->dtype, tri_shape_of(3, 4)));
}

static tri_value triangle(tri_graph *g, int64_t size) {
    tri_value t = tri_arange(g, size);
    return tri_cast(g, tri_map(g, "i, j -> j <= i", tri_unsqueeze(g, t, 1), t), TRI_F32);
}

// What each row of torch_indexings is here: the function of x.
static tri_value indexed(tri_graph *g, const char *name, tri_value x) {
#define CASE(text, value)                                                                          \
    if (!strcmp(name, text)) return value;
    CASE("gather", tri_gather(g, x, 1, numbers(g, 4, tri_shape_of(2, 6, 3))))
    CASE("gather of the last axis", tri_gather(g, x, -1, numbers(g, 5, tri_shape_of(3, 2))))
    CASE("gather with a smaller index", tri_gather(g, x, 1, numbers(g, 4, tri_shape_of(2, 3, 2))))
    CASE("take_along for all", tri_take_along(g, x, 1, numbers(g, 4, tri_shape_of(1, 3, 1))))
    CASE("take_along of rows", tri_take_along(g, x, 1, numbers(g, 4, tri_shape_of(2, 3, 1))))
    CASE("take_along of an expanded x",
         tri_take_along(g, x, 1, numbers(g, 4, tri_shape_of(3, 3, 2))))
    CASE("take_along of a partly shared index",
         tri_take_along(g, x, 2, numbers(g, 2, tri_shape_of(1, 3, 3, 1))))
    CASE("index_select", tri_index_select(g, x, 0, numbers(g, 5, tri_shape_of(7))))
    CASE("index_select in the middle", tri_index_select(g, x, -2, numbers(g, 4, tri_shape_of(3))))
    CASE("scatter", tri_scatter(g, x, 1, tri_input(g, "distinct", TRI_I64, tri_shape_of(3, 2)),
                                source(g, tri_shape_of(3, 2))))
    CASE("scatter_add", tri_scatter_add(g, x, 1, numbers(g, 4, tri_shape_of(2, 6, 3)),
                                        source(g, tri_shape_of(2, 6, 3))))
    CASE("scatter_add with a smaller index",
         tri_scatter_add(g, x, 0, numbers(g, 4, tri_shape_of(3, 3)), source(g, tri_shape_of(5, 3))))
    CASE("scatter_amax", tri_scatter_amax(g, x, 1, numbers(g, 4, tri_shape_of(2, 6)),
                                          source(g, tri_shape_of(2, 6))))
    CASE("scatter_amax of equal ones",
         tri_scatter_amax(g, tri_mul_scalar(g, x, 0), 0, numbers(g, 3, tri_shape_of(6)),
                          tri_clamp(g, source(g, tri_shape_of(6)), 0, 9)))
    CASE("index_add",
         tri_index_add(g, x, 0, numbers(g, 4, tri_shape_of(6)), source(g, tri_shape_of(6, 3))))
    CASE("unfold", tri_unfold(g, x, 1, 3, 2))
    CASE("unfold of the last axis", tri_unfold(g, x, -1, 4, 1))
    CASE("triangle", tri_mul(g, x, triangle(g, 4)))
    CASE("prod", tri_prod(g, x, (int[]){1}, 1, false))
    CASE("prod of all", tri_prod(g, x, NULL, 0, false))
    CASE("prod with zeros", tri_prod(g, with_zeros(g, x), (int[]){1}, 1, true))
    CASE("any", tri_add(g, x, tri_any(g, tri_map(g, "x > 0.9", x), (int[]){1}, 1, true)))
    CASE("all", tri_add(g, x, tri_all(g, tri_map(g, "x > -0.9", x), (int[]){0}, 1, true)))
    CASE("sort", sorted(g, x, 1, false))
    CASE("sort of equal ones", tri_add(g, x, sorted(g, tri_round(g, x), -1, false)))
    CASE("sort down", sorted(g, x, 0, true))
    CASE("sort down of equal ones", tri_add(g, x, sorted(g, tri_round(g, x), -1, true)))
    CASE("topk", top(g, x, 3, 1, true))
    CASE("topk of a long axis", top(g, x, 5, -1, true))
    CASE("topk smallest", top(g, x, 2, 0, false))
    CASE("cumsum", tri_cumsum(g, x, 1))
    CASE("cumprod", tri_cumprod(g, x, -1))
    CASE("cumprod with zeros", tri_cumprod(g, with_zeros(g, x), 1))
    CASE("cummax", extreme(g, x, 1, true))
    CASE("cummax of equal ones", extreme(g, tri_map(g, "max(x, 0)", x), 0, true))
    CASE("cummin", extreme(g, x, -1, false))
    CASE("logcumsumexp", tri_logcumsumexp(g, tri_mul_scalar(g, x, 3), 1))
#undef CASE
    fail_msg("there is no case for %s", name);
    return x;
}

static void test_torch(void **state) {
    for (size_t i = 0; i < COUNT(torch_indexings); i++) {
        torch_check(&torch_indexings[i], indexed, &tri_device_ref, TRI_F64, 1e-10);
        torch_check(&torch_indexings[i], indexed, &tri_device_cpu, TRI_F32, 1e-5);
    }
}

// The index "ids" has equal numbers, of which the last one wins in `scatter`.
static void test_differences(void **state) {
    for (int axis = 0; axis < 3; axis++)
        for (int kind = -1; kind <= TRI_SCATTER_MAX; kind++) {
            subject s = begin();
            tri_shape shape = tri_shape_of(2, 3, 2), other = shape;
            shape.dims[axis] = 5;
            other.dims[axis] = 7;
            tri_value ids = tri_input(s.graph, "ids", TRI_I64, other);
            tri_value x = trained(&s, "x", shape);
            tri_scatter_attr attr = {.kind = kind, .axis = axis, .shape = shape};
            tri_value in[] = {ids, kind < 0 ? x : trained(&s, "source", other), x};
            check(&s, distance(&s, kind < 0
                                       ? tri_gather(s.graph, x, axis, ids)
                                       : tri_node_add(s.graph, &tri_op_scatter, in, 3, &attr, "")));
        }
}

static void test_order_and_scans(void **state) {
    for (int axis = 0; axis < 3; axis++) {
        for (int64_t count = 1; count <= 3; count += 2)
            for (int down = 0; down < 2; down++) {
                subject s = begin();
                tri_shape shape = tri_shape_of(2, 3, 2);
                shape.dims[axis] = 4;
                tri_value x = trained(&s, "x", shape);
                check(&s, distance(&s, tri_topk(s.graph, x, count, axis, down, NULL)));
            }
        for (int kind = TRI_SCAN_SUM; kind <= TRI_SCAN_LOGSUMEXP; kind++)
            for (int reverse = 0; reverse < (kind == TRI_SCAN_SUM ? 2 : 1); reverse++) {
                subject s = begin();
                tri_scan_attr attr = {kind, axis, reverse};
                tri_value x = trained(&s, "x", tri_shape_of(3, 4, 2));
                check(&s, distance(&s, tri_node_add(s.graph, &tri_op_scan, &x, 1, &attr, "")));
            }
    }
}

// A product, running or over axes, with zeros: its gradient is that of one factor alone.
static void test_zeros(void **state) {
    static const double held[][4] = {{0, 2, 3, -1}, {2, 0, 0, 3}, {2, -3, 0, 4}, {2, 1, 3, 0}};
    static const double sums[][4] = {{-6, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, -24, 0}, {0, 0, 0, 6}};
    // With dy = 1: the sum over all running products of the product of the other factors.
    static const double scans[][4] = {
        {1 + 2 + 6 - 6, 0, 0, 0}, {1, 2, 0, 0}, {1 - 3, 2, -6 - 24, 0}, {1 + 1 + 3, 2 + 6, 2, 6}};
    for (int row = 0; row < 4; row++) {
        tri_graph *g = op_graph_open(TRI_F64);
        tri_value x = tri_parameter(g, "x", tri_shape_of(4), (tri_init){0});
        tri_value in = tri_prod(g, x, (int[]){0}, 1, true), run = tri_cumprod(g, x, 0);
        tri_value out[TRI_MAX_OUTPUTS] = {tri_input(g, "dy", TRI_F64, tri_shape_of(4))},
                  of_run[TRI_MAX_INPUTS] = {{0}}, of_all[TRI_MAX_INPUTS] = {{0}};
        tri_node node = *tri_value_node(g, run);
        node.op->gradient(g, &node, out, (bool[]){true}, of_run);
        node = *tri_value_node(g, in);
        out[0] = tri_input(g, "one", TRI_F64, tri_shape_of(1));
        node.op->gradient(g, &node, out, (bool[]){true}, of_all);
        tri_device *device = op_device_open(&tri_device_ref, 1);
        op_session *session = op_session_open(g, device, false);
        for (int i = 0; i < g->input_count; i++)
            for (int64_t k = 0; k < op_count(session, g->inputs[i].value); k++)
                op_set(session, g->inputs[i].value, k, 1);
        for (int k = 0; k < 4; k++) op_set(session, x, k, held[row][k]);
        op_run_ok(session);
        for (int k = 0; k < 4; k++) {
            assert_true(op_get(session, of_all[0], k) == sums[row][k]);
            assert_true(op_get(session, of_run[0], k) == scans[row][k]);
        }
        op_session_close(session);
        device->backend->close(device);
        op_graph_close(g);
    }
}

// Where NaN, infinities and equal numbers are found, as PyTorch finds them.
static void check_places(const tri_device_backend *backend) {
    static const float held[][6] = {{1, 3, 3, -2, -2, 0},
                                    {1, NAN, 3, -2, NAN, 0},
                                    {INFINITY, 1, -INFINITY, INFINITY, -0.0F, 0}};
    static const int64_t largest[] = {1, 1, 0}, smallest[] = {3, 1, 2};
    static const int64_t up[][6] = {{3, 4, 5, 0, 1, 2}, {3, 5, 0, 2, 1, 4}, {2, 4, 5, 1, 0, 3}};
    static const int64_t down[][6] = {{1, 2, 0, 5, 3, 4}, {1, 4, 2, 0, 5, 3}, {0, 3, 1, 4, 5, 2}};
    static const int64_t running[][6] = {
        {0, 1, 2, 2, 2, 2}, {0, 1, 1, 1, 4, 4}, {0, 0, 0, 3, 3, 3}};
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(3, 6)), sorted_up, sorted_down, run;
    tri_value most = tri_argmax(g, x, 1, false), least = tri_argmin(g, x, -1, true);
    tri_sort(g, x, 1, false, &sorted_up);
    tri_sort(g, x, 1, true, &sorted_down);
    tri_cummax(g, x, 1, &run);
    tri_device *device = op_device_open(backend, 1);
    op_session *session = op_session_open(g, device, false);
    memcpy(op_host(session, x), held, sizeof held);
    op_run_ok(session);
    assert_memory_equal(op_host(session, most), largest, sizeof largest);
    assert_memory_equal(op_host(session, least), smallest, sizeof smallest);
    assert_memory_equal(op_host(session, sorted_up), up, sizeof up);
    assert_memory_equal(op_host(session, sorted_down), down, sizeof down);
    assert_memory_equal(op_host(session, run), running, sizeof running);
    assert_int_equal(tri_value_shape(g, most).rank, 1);
    assert_int_equal(tri_value_shape(g, least).rank, 2);
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(g);
}

static void test_places(void **state) {
    check_places(&tri_device_ref);
    check_places(&tri_device_cpu);
}

static void refused(tri_graph *g, const char *parts) {
    const char *message = "";
    assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
    message_check(message, parts);
    op_graph_close(g);
}

static tri_value input(tri_graph *g, tri_dtype dtype, tri_shape shape) {
    return tri_input(g, tri_name(g, "in%d", g->input_count), dtype, shape);
}

static void test_refusals(void **state) {
    tri_shape shape = tri_shape_of(2, 4, 3);
    tri_graph *g = op_graph_open(TRI_F32);
    tri_gather(g, input(g, TRI_F32, shape), 3, input(g, TRI_I64, shape));
    refused(g, "gather|axis 3|3 axes");
    g = op_graph_open(TRI_F32);
    tri_gather(g, input(g, TRI_F32, shape), 1, input(g, TRI_F32, shape));
    refused(g, "gather|index|I64|F32");
    g = op_graph_open(TRI_F32);
    tri_gather(g, input(g, TRI_F32, shape), 1, input(g, TRI_I64, tri_shape_of(2, 4, 4)));
    refused(g, "gather|[2, 4, 4]|[2, 4, 3]|axis 1");
    g = op_graph_open(TRI_F32);
    tri_gather(g, input(g, TRI_F32, shape), 1, input(g, TRI_I64, tri_shape_of(2, 4)));
    refused(g, "gather|[2, 4]|[2, 4, 3]|axis 1");
    g = op_graph_open(TRI_F32);
    tri_index_select(g, input(g, TRI_F32, shape), 1, input(g, TRI_I64, shape));
    refused(g, "index_select|one axis|3");
    g = op_graph_open(TRI_F32);
    tri_scatter_add(g, input(g, TRI_F32, shape), 1, input(g, TRI_I64, shape),
                    input(g, TRI_F32, tri_shape_of(2, 3, 3)));
    refused(g, "scatter|source|[2, 4, 3]|[2, 3, 3]");
    g = op_graph_open(TRI_F32);
    tri_scatter(g, input(g, TRI_F32, shape), 1, input(g, TRI_I64, shape), input(g, TRI_F64, shape));
    refused(g, "scatter|input 2|F64|F32");
    g = op_graph_open(TRI_F32);
    tri_scatter_attr attr = {.kind = TRI_SCATTER_MAX, .axis = 1, .shape = shape};
    tri_value in[] = {input(g, TRI_I64, shape), input(g, TRI_F32, shape)};
    tri_node_add(g, &tri_op_scatter, in, 2, &attr, "");
    refused(g, "scatter|maximum|base");
    g = op_graph_open(TRI_F32);
    tri_unfold(g, input(g, TRI_F32, shape), 1, 5, 1);
    refused(g, "unfold|axis 1|4 elements|5");
    g = op_graph_open(TRI_F32);
    tri_arange(g, 0);
    refused(g, "arange|1|0");
    g = op_graph_open(TRI_F32);
    tri_argmax(g, input(g, TRI_F32, tri_shape_of(2, 0)), 1, false);
    refused(g, "argmax|axis 1|empty");
    g = op_graph_open(TRI_F32);
    tri_argmin(g, input(g, TRI_F32, shape), -4, false);
    refused(g, "argmin|axis -4|3 axes");
    g = op_graph_open(TRI_F32);
    tri_topk(g, input(g, TRI_F32, shape), 4, -1, true, NULL);
    refused(g, "sort|4|3 elements|axis 2");
    g = op_graph_open(TRI_F32);
    tri_topk(g, input(g, TRI_F32, shape), -1, -1, true, NULL);
    refused(g, "topk|-1");
    g = op_graph_open(TRI_F32);
    tri_sort(g, input(g, TRI_I16, shape), 1, true, NULL);
    refused(g, "sort|x|F32|I64|I16");
    g = op_graph_open(TRI_F32);
    tri_logcumsumexp(g, input(g, TRI_I64, shape), 1);
    refused(g, "scan|x|F32|I64");
    g = op_graph_open(TRI_F32);
    tri_value x = input(g, TRI_F32, shape);
    tri_node_add(g, &tri_op_scan, &x, 1, &(tri_scan_attr){TRI_SCAN_PROD, 1, true}, "");
    refused(g, "scan|sum|end");
    g = op_graph_open(TRI_F32);
    attr.kind = 3;
    tri_value again[] = {input(g, TRI_I64, shape), input(g, TRI_F32, shape)};
    tri_node_add(g, &tri_op_scatter, again, 2, &attr, "");
    refused(g, "scatter|kind 3");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch),           cmocka_unit_test(test_differences),
        cmocka_unit_test(test_order_and_scans), cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_places),          cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
