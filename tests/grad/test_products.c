// Compares products of matrices with PyTorch (product_tables.h), value and gradients, on the
// devices `ref` and `cpu`, and their gradients with finite differences.
#include "device/cpu/cpu.h"
#include "support/torch_check.h"

#include "grad/product_tables.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static tri_value parameter(tri_graph *g, const char *name, tri_shape shape) {
    return tri_parameter(g, name, shape, (tri_init){0});
}

// What each row of torch_products is here: the product of x and another operand.
static tri_value product(tri_graph *g, const char *name, tri_value x) {
#define CASE(text, value, ...)                                                                     \
    if (!strcmp(name, text)) {                                                                     \
        tri_value b = parameter(g, "b", tri_shape_of(__VA_ARGS__));                                \
        return value;                                                                              \
    }
    CASE("matmul", tri_matmul(g, x, b), 5, 2)
    CASE("matmul of batches", tri_matmul(g, x, b), 2, 3, 5, 3)
    CASE("matmul with broadcasting", tri_matmul(g, x, b), 3, 5, 3)
    CASE("matmul by one matrix", tri_matmul(g, x, b), 5, 3)
    CASE("matmul of one matrix", tri_matmul(g, x, b), 2, 3, 5, 7)
    CASE("matmul of two rows", tri_matmul(g, x, b), 70)
    CASE("matmul of a row", tri_matmul(g, x, b), 2, 5, 3)
    CASE("matmul by a column", tri_matmul(g, x, b), 5)
    CASE("matmul of one element", tri_matmul(g, x, b), 1, 1)
    CASE("matmul by a transposed one",
         tri_matmul(g, x, tri_transpose(g, tri_transpose(g, b, 0, 1), -1, -2)), 5, 2, 4)
    CASE("matmul of permuted ones",
         tri_matmul(g, tri_permute(g, x, (int[]){0, 2, 1, 3}),
                    tri_permute(g, b, (int[]){0, 2, 3, 1})),
         2, 6, 3, 4)
    fail_msg("there is no case for %s", name);
    return x;
}

static void test_torch(void **state) {
    for (size_t i = 0; i < COUNT(torch_products); i++) {
        if (strncmp(torch_products[i].name, "matmul", 6) != 0) continue; // test_attention.c has it
        torch_check(&torch_products[i], product, &tri_device_ref, TRI_F64, 1e-10);
        torch_check(&torch_products[i], product, &tri_device_cpu, TRI_F32, 1e-4);
    }
}

// Adds an operand that lies in memory in another order of axes than the product takes it.
static tri_value permuted(subject *s, const char *name, const int64_t *shape, const int *order) {
    tri_shape lies = {.rank = 4};
    for (int i = 0; i < 4; i++) lies.dims[order[i]] = shape[i];
    return tri_permute(s->graph, trained(s, name, lies), order);
}

// Products of operands in any order, which share or repeat axes.
static void test_products(void **state) {
    static const int64_t left[][4] = {{2, 3, 2, 4}, {1, 3, 1, 4}, {2, 1, 3, 4}, {1, 1, 2, 4}};
    static const int64_t right[][4] = {{2, 3, 4, 3}, {1, 3, 4, 2}, {2, 1, 4, 1}, {1, 1, 4, 2}};
    static const int orders[][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {2, 1, 3, 0}, {1, 0, 3, 2}};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++)
            for (int turn = 0; turn < 2; turn++) {
                subject s = begin();
                tri_value a = permuted(&s, "a", left[i], orders[(i + turn) % 4]);
                tri_value b = permuted(&s, "b", right[k], orders[(k + i + turn) % 4]);
                check(&s, distance(&s, tri_matmul(s.graph, a, b)));
            }
}

// A transposed operand is read where it lies: no node copies it.
static void test_transposed(void **state) {
    tri_graph *g = op_graph_open(TRI_F64);
    tri_value q = tri_input(g, "q", TRI_F64, tri_shape_of(2, 5, 3, 4));
    tri_value k = tri_input(g, "k", TRI_F64, tri_shape_of(2, 6, 3, 4));
    tri_value heads = tri_permute(g, q, (int[]){0, 2, 1, 3});
    tri_value y =
        tri_matmul(g, heads, tri_transpose(g, tri_permute(g, k, (int[]){0, 2, 1, 3}), -1, -2));
    const tri_node *node = tri_value_node(g, y);
    assert_true(node->inputs[0].id == q.id && node->inputs[1].id == k.id);
    // Nor is one whose last axis in memory is a batch axis: it is copied.
    y = tri_matmul(g, tri_permute(g, q, (int[]){0, 3, 1, 2}),
                   tri_permute(g, k, (int[]){0, 3, 2, 1}));
    node = tri_value_node(g, y);
    assert_true(node->inputs[0].id != q.id && node->inputs[1].id != k.id);
    op_graph_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_transposed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
