// Checks, on several ranks over shared memory, the ops of a graph that communicate (all_gather,
// reduce_scatter, all_reduce) and those that cut tensors into slices and join them: their results,
// and which op is the gradient of which.
#include "device/ref/ref.h"
#include "engine/engine_internal.h"
#include "support/comm_ranks.h"
#include "support/op_session.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

// Computes element i of the tensor of `rank`.
static double number(int rank, int64_t i) { return (double)((i * 37 + rank * 101) % 113) - 50; }

typedef struct op_rig {
    tri_graph *graph;
    tri_device *device;
    tri_value x;
    tri_comm *comm;
} op_rig;

static op_rig begin(tri_comm *comm, tri_dtype dtype, tri_shape shape) {
    op_rig rig = {.graph = op_graph_open(dtype), .comm = comm};
    rig.x = tri_input(rig.graph, "x", dtype, shape);
    return rig;
}

// Runs the graph on this rank's numbers and returns the result's elements, which the caller frees.
static double *run(op_rig *rig, tri_value y, int64_t *count) {
    const char *message = "";
    if (tri_graph_status(rig->graph, &message) != TRI_OK) fprintf(stderr, "%s\n", message);
    tri_device *device = op_device_open(&tri_device_ref, 1);
    op_session *session = op_session_open(rig->graph, device, false);
    op_session_join(session, rig->comm);
    for (int64_t i = 0; i < op_count(session, rig->x); i++)
        op_set(session, rig->x, i, number(rig->comm->rank, i));
    CHECK_OK(op_run(session));
    *count = op_count(session, y);
    double *out = malloc((size_t)*count * sizeof *out + 1);
    for (int64_t i = 0; i < *count; i++) out[i] = op_get(session, y, i);
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(rig->graph);
    return out;
}

static tri_collective_attr attr_of(tri_comm *comm, int dim) {
    return (tri_collective_attr){.slices = comm->size, .index = comm->rank, .dim = dim};
}

// Returns the index that element i of slice number `part` has in the whole tensor, which is cut
// into `parts` slices along `dim`.
static int64_t whole_index(const tri_shape *part_shape, int dim, int parts, int part, int64_t i) {
    int64_t inner = 1;
    for (int k = dim + 1; k < part_shape->rank; k++) inner *= part_shape->dims[k];
    int64_t run = part_shape->dims[dim] * inner;
    return (i / run * parts + part) * run + i % run;
}

static const tri_shape shapes[] = {{3, {2, 6, 3}}, {3, {1, 4, 5}},    {2, {5, 4}},
                                   {1, {7}},       {4, {3, 1, 2, 2}}, {3, {1, 1, 6}}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void check_gather(tri_comm *comm, tri_dtype dtype, tri_shape shape, int dim) {
    op_rig rig = begin(comm, dtype, shape);
    tri_collective_attr attr = attr_of(comm, dim);
    int64_t count, part = tri_shape_count(&shape);
    double *y = run(&rig, ops_all_gather(rig.graph, rig.x, &attr), &count);
    CHECK(count == part * comm->size);
    for (int r = 0; r < comm->size; r++)
        for (int64_t i = 0; i < part; i++)
            CHECK(y[whole_index(&shape, dim, comm->size, r, i)] == number(r, i));
    free(y);
}

static double sum_at(tri_comm *comm, int64_t i) {
    double sum = 0;
    for (int r = 0; r < comm->size; r++) sum += number(r, i);
    return sum;
}

static void check_scatter(tri_comm *comm, tri_dtype dtype, tri_shape part, int dim) {
    tri_shape shape = part;
    shape.dims[dim] *= comm->size;
    op_rig rig = begin(comm, dtype, shape);
    tri_collective_attr attr = attr_of(comm, dim);
    int64_t count;
    double *y = run(&rig, ops_reduce_scatter(rig.graph, rig.x, &attr), &count);
    CHECK(count == tri_shape_count(&part));
    for (int64_t i = 0; i < count; i++)
        CHECK(y[i] == sum_at(comm, whole_index(&part, dim, comm->size, comm->rank, i)));
    free(y);
}

static void check_split(tri_comm *comm, tri_dtype dtype, tri_shape part, int dim) {
    tri_shape shape = part;
    shape.dims[dim] *= comm->size;
    tri_collective_attr attr = attr_of(comm, dim);
    for (int back = 0; back < 2; back++) { // 1: tests split_grad, which is zero outside the slice
        op_rig rig = begin(comm, dtype, shape);
        tri_value y = tri_node_add(rig.graph, &tri_op_split, &rig.x, 1, &attr, "");
        if (back) y = tri_node_add(rig.graph, &tri_op_split_grad, &y, 1, &attr, "");
        int64_t count, whole = tri_shape_count(&shape), mine = whole / comm->size;
        double *out = run(&rig, y, &count), *want = calloc((size_t)whole + 1, sizeof *want);
        CHECK(count == (back ? whole : mine));
        for (int64_t i = 0; i < mine; i++) {
            int64_t at = whole_index(&part, dim, comm->size, comm->rank, i);
            want[back ? at : i] = number(comm->rank, at);
        }
        for (int64_t i = 0; i < count; i++) CHECK(out[i] == want[i]);
        free(out);
        free(want);
    }
}

static void check_reduce(tri_comm *comm, tri_dtype dtype, tri_shape shape, bool maximum) {
    op_rig rig = begin(comm, dtype, shape);
    tri_collective_attr attr = {.slices = comm->size, .index = comm->rank, .maximum = maximum};
    int64_t count;
    double *y =
        run(&rig, tri_node_add(rig.graph, &tri_op_all_reduce, &rig.x, 1, &attr, ""), &count);
    for (int64_t i = 0; i < count; i++) {
        double want = number(0, i);
        for (int r = 1; r < comm->size; r++)
            if (maximum)
                want = number(r, i) > want ? number(r, i) : want;
            else
                want += number(r, i);
        CHECK(y[i] == want);
    }
    free(y);
}

static void ranks_of_ops(tri_comm *comm, ranks_table *table, void *argument) {
    for (int s = 0; s < SHAPES; s++)
        for (int type = 0; type < 2; type++) {
            tri_dtype dtype = type ? TRI_F64 : TRI_F32;
            for (int dim = 0; dim < shapes[s].rank; dim++) {
                check_gather(comm, dtype, shapes[s], dim);
                check_scatter(comm, dtype, shapes[s], dim);
                check_split(comm, dtype, shapes[s], dim);
            }
            check_reduce(comm, dtype, shapes[s], false);
            check_reduce(comm, dtype, shapes[s], true);
        }
}

static void test_ops(void **state) {
    for (int size = 1; size <= 4; size++)
        assert_int_equal(ranks_run(size, NULL, ranks_of_ops, NULL), 0);
}

// Each row has an op, the value of its attribute `partial`, and the op that its gradient rule then
// adds; NULL: the rule adds no op, and passes the gradient on as it is.
static void test_pairs(void **state) {
    static const struct {
        const tri_op *op;
        bool partial;
        const tri_op *back;
    } cases[] = {{&tri_op_copy_to, false, &tri_op_all_reduce},
                 {&tri_op_all_gather, true, &tri_op_reduce_scatter},
                 {&tri_op_all_gather, false, &tri_op_split},
                 {&tri_op_reduce_scatter, false, &tri_op_all_gather},
                 {&tri_op_split, false, &tri_op_all_gather},
                 {&tri_op_split, true, &tri_op_split_grad},
                 {&tri_op_all_reduce, false, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_graph *g = op_graph_open(TRI_F32);
        tri_collective_attr attr = {.slices = 2, .index = 1, .partial = cases[i].partial};
        tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(4, 3)), in[1] = {{0}};
        tri_value y = tri_node_add(g, cases[i].op, &x, 1, &attr, "");
        tri_value dy = tri_input(g, "dy", TRI_F32, tri_value_shape(g, y));
        cases[i].op->gradient(g, tri_value_node(g, y), &dy, (bool[]){true}, in);
        const tri_node *made = tri_value_node(g, in[0]);
        assert_ptr_equal(made ? made->op : NULL, cases[i].back);
        if (made) {
            assert_int_equal(((const tri_collective_attr *)made->attr)->index, 1);
            tri_shape a = tri_value_shape(g, x), b = tri_value_shape(g, in[0]);
            assert_true(tri_shape_equal(&a, &b));
        } else {
            assert_int_equal(in[0].id, dy.id);
        }
        op_graph_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ops), cmocka_unit_test(test_pairs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
