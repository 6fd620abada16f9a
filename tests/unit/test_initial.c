// Tests initial values (engine/initial.h) against PyTorch's initialisers: what they draw from, how
// the numbers are distributed, and orthogonal matrices. Any range of elements has the same numbers
// as the whole.
#include "base/philox.h"
#include "engine/initial.h"
#include "grad/init_tables.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/nn.h>

#include <cmocka.h>

#include "support/arena_fixture.h"
#include "support/message.h"

enum { CASES = sizeof init_cases / sizeof *init_cases };

static void test_torch(void **state) {
    for (int i = 0; i < CASES; i++) {
        tri_init got;
        assert_int_equal(tri_init_resolve(&init_cases[i].init, &init_cases[i].shape, &got), TRI_OK);
        bool uniform = got.kind == TRI_INIT_UNIFORM;
        double first = uniform ? got.low : got.mean, second = uniform ? got.high : got.std;
        if (!uniform) assert_int_equal(got.kind, TRI_INIT_NORMAL);
        if (fabs(first - init_cases[i].drawn[0]) > 1e-12 ||
            fabs(second - init_cases[i].drawn[1]) > 1e-12)
            fail_msg("case %d: %g, %g", i, first, second);
    }
    assert_true(fabs(tri_init_gain(TRI_NONLINEARITY_LEAKY_RELU, 0.01) - 1.4141428569978354) <
                1e-15);
}

// Makes all values of a parameter, in ranges of different lengths.
static float *values_of(tri_init init, tri_shape shape, int64_t *count) {
    tri_parameter_info p = {.name = "p", .shape = shape, .init = init};
    engine_initial initial;
    assert_int_equal(engine_initial_begin(&p, 7, &initial), TRI_OK);
    *count = tri_shape_count(&shape);
    float *all = malloc((size_t)*count * sizeof *all), *some = malloc((size_t)*count * sizeof *all);
    engine_initial_make(&initial, 0, *count, all);
    for (int64_t at = 0, length = 1; at < *count; at += length, length = length * 2 + 1)
        engine_initial_make(&initial, at, length < *count - at ? length : *count - at, some + at);
    assert_memory_equal(all, some, (size_t)*count * sizeof *all);
    engine_initial_end(&initial);
    free(some);
    return all;
}

static double normal_below(double x) { return erfc(-x / sqrt(2)) / 2; }

// The fraction of a distribution's numbers that lie below x.
static double wanted_below(const tri_init *r, double x) {
    if (r->kind == TRI_INIT_UNIFORM) return (x - r->low) / (r->high - r->low);
    double z = normal_below((x - r->mean) / r->std);
    if (r->kind == TRI_INIT_NORMAL) return z;
    double first = normal_below((r->low - r->mean) / r->std);
    return (z - first) / (normal_below((r->high - r->mean) / r->std) - first);
}

static int compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

// The distance of Kolmogorov and Smirnov: 2 / √n is exceeded once in 1500 draws, and these are
// always the same.
static void test_distributions(void **state) {
    const tri_init kinds[] = {
        {.kind = TRI_INIT_UNIFORM},
        {.kind = TRI_INIT_UNIFORM, .low = -3, .high = -1},
        {.kind = TRI_INIT_NORMAL},
        {.kind = TRI_INIT_NORMAL, .mean = 2, .std = 0.02},
        {.kind = TRI_INIT_TRUNC_NORMAL},
        {.kind = TRI_INIT_TRUNC_NORMAL, .mean = 0.5, .std = 0.5, .low = 0.25, .high = 4},
        {.kind = TRI_INIT_TRUNC_NORMAL, .std = 0.02, .low = -2, .high = 2},
        {.kind = TRI_INIT_KAIMING_UNIFORM, .nonlinearity = TRI_NONLINEARITY_RELU},
        {.kind = TRI_INIT_XAVIER_NORMAL, .gain = 2},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        tri_shape shape = tri_shape_of(100, 100);
        tri_init r;
        int64_t count;
        assert_int_equal(tri_init_resolve(&kinds[k], &shape, &r), TRI_OK);
        float *values = values_of(kinds[k], shape, &count);
        qsort(values, (size_t)count, sizeof *values, compare);
        if (r.kind != TRI_INIT_NORMAL)
            assert_true(values[0] >= (float)r.low && values[count - 1] <= (float)r.high);
        double most = 0;
        for (int64_t i = 0; i < count; i++)
            most = fmax(most, fabs(wanted_below(&r, values[i]) - (double)i / (double)count));
        if (most > 2 / sqrt((double)count)) fail_msg("kind %zu: distance %g", k, most);
        free(values);
    }
}

// Q has orthogonal rows or columns of the length `gain`, and R of Q·R, the normal numbers, is a
// triangle with a positive diagonal, as in PyTorch.
static void check_orthogonal(int64_t rows, int64_t columns, double gain) {
    int64_t count;
    tri_init init = {.kind = TRI_INIT_ORTHOGONAL, .gain = gain};
    float *q = values_of(init, tri_shape_of(rows, columns), &count);
    uint64_t key = tri_philox_key(7, "p");
    bool by_rows = rows < columns;
    int64_t vectors = by_rows ? rows : columns, length = by_rows ? columns : rows;
    int64_t next = by_rows ? columns : 1, inside = by_rows ? 1 : columns;
    if (gain == 0) gain = 1;
    for (int64_t i = 0; i < vectors; i++)
        for (int64_t j = 0; j < vectors; j++) {
            double product = 0, r = 0;
            for (int64_t k = 0; k < length; k++) {
                int64_t e = j * next + k * inside;
                product += (double)q[i * next + k * inside] * q[e];
                r += (double)q[i * next + k * inside] *
                     (double)tri_philox_init_normal(key, (uint64_t)e, 0, 1);
            }
            assert_true(fabs(product - (i == j ? gain * gain : 0)) < 1e-6 * gain * gain);
            assert_true(j < i ? fabs(r) < 1e-5 * gain : j > i || r > 0);
        }
    free(q);
}

static void test_orthogonal(void **state) {
    check_orthogonal(30, 20, 0);
    check_orthogonal(5, 33, 0.5);
    check_orthogonal(17, 17, sqrt(2));
    check_orthogonal(1, 4, 0);
}

static void test_exact(void **state) {
    static const float given[] = {3, 1, 4, 1, 5, 9};
    const tri_init kinds[] = {
        {0},
        {.kind = TRI_INIT_ZEROS},
        {.kind = TRI_INIT_ONES},
        {.kind = TRI_INIT_CONSTANT, .value = -2.5},
        {.kind = TRI_INIT_IDENTITY},
        {.kind = TRI_INIT_VALUES, .values = given},
    };
    static const float wanted[][6] = {{0},
                                      {0},
                                      {1, 1, 1, 1, 1, 1},
                                      {-2.5, -2.5, -2.5, -2.5, -2.5, -2.5},
                                      {1, 0, 0, 0, 1, 0},
                                      {3, 1, 4, 1, 5, 9}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int64_t count;
        float *values = values_of(kinds[k], tri_shape_of(2, 3), &count);
        assert_memory_equal(values, wanted[k], sizeof wanted[k]);
        free(values);
    }
}

static void test_dirac(void **state) {
    for (size_t k = 0; k < sizeof dirac_cases / sizeof *dirac_cases; k++) {
        tri_init init = {.kind = TRI_INIT_DIRAC, .groups = dirac_cases[k].groups};
        int64_t count, next = 0;
        float *values = values_of(init, dirac_cases[k].shape, &count);
        for (int64_t i = 0; i < count; i++) {
            bool is_one = next < dirac_cases[k].count && i == dirac_cases[k].ones[next];
            assert_true(values[i] == (float)is_one);
            next += is_one;
        }
        assert_int_equal(next, dirac_cases[k].count);
        free(values);
    }
}

// Each column has its zeros at places of its own; the others are normal numbers.
static void test_sparse(void **state) {
    enum { COLUMNS = 200 };
    for (size_t k = 0; k < sizeof sparse_cases / sizeof *sparse_cases; k++) {
        int64_t rows = sparse_cases[k].rows, zeros = sparse_cases[k].zeros, count, first = 0;
        tri_init init = {.kind = TRI_INIT_SPARSE, .sparsity = sparse_cases[k].sparsity};
        float *values = values_of(init, tri_shape_of(rows, COLUMNS), &count);
        double squares = 0;
        for (int64_t c = 0; c < COLUMNS; c++) {
            int64_t found = 0;
            for (int64_t r = 0; r < rows; r++) found += values[r * COLUMNS + c] == 0;
            assert_int_equal(found, zeros);
            first += values[c] == 0;
        }
        for (int64_t i = 0; i < count; i++) squares += (double)values[i] * values[i];
        double share = (double)zeros / (double)rows, kept = (double)((rows - zeros) * COLUMNS);
        assert_true(fabs((double)first / COLUMNS - share) < 0.1);
        if (kept > 0) assert_true(fabs(sqrt(squares / kept) / 0.01 - 1) < 0.15);
        free(values);
    }
}

// A weight norm begins as the weight that it divides: its lengths are those of the directions,
// along the first axis, the second, or all. A vector of a spectral norm has the length 1.
static void test_norms(void **state) {
    for (int axis = -1; axis < 3; axis++) {
        tri_graph *g = tri_graph_create(arena, &(tri_graph_options){.training = true});
        tri_shape shape = tri_shape_of(5, 70, 30);
        tri_weight_norm(g, "l", shape, axis, (tri_init){.kind = TRI_INIT_NORMAL});
        const tri_parameter_info *v = &g->parameters[0], *length = &g->parameters[1];
        int64_t count = axis < 0 ? 1 : shape.dims[axis], all;
        assert_int_equal(tri_shape_count(&length->shape), count);
        assert_int_equal(length->shape.rank, axis < 0 ? 0 : 3);
        engine_initial initial;
        float got[70];
        double squares[70] = {0};
        assert_int_equal(engine_initial_begin(length, 7, &initial), TRI_OK);
        engine_initial_make(&initial, 0, 1, got);
        engine_initial_make(&initial, 1, count - 1, got + 1);
        engine_initial_end(&initial);
        all = tri_shape_count(&shape);
        float *values = malloc((size_t)all * sizeof *values);
        assert_int_equal(engine_initial_begin(v, 7, &initial), TRI_OK);
        engine_initial_make(&initial, 0, all, values);
        engine_initial_end(&initial);
        for (int64_t i = 0; i < all; i++) {
            int64_t at[] = {i / 2100, i / 30 % 70, i % 30};
            squares[axis < 0 ? 0 : at[axis]] += (double)values[i] * values[i];
        }
        for (int64_t i = 0; i < count; i++) assert_true(fabs(got[i] / sqrt(squares[i]) - 1) < 1e-6);
        free(values);
        tri_graph_destroy(g);
    }
    int64_t count;
    double square = 0;
    float *unit = values_of((tri_init){.kind = TRI_INIT_ORTHOGONAL}, tri_shape_of(9), &count);
    for (int64_t i = 0; i < count; i++) square += (double)unit[i] * unit[i];
    assert_true(fabs(square - 1) < 1e-6);
    free(unit);
}

static void check_refused(const char *parts, tri_shape shape, tri_init init) {
    tri_graph *g = tri_graph_create(arena, &(tri_graph_options){.training = true});
    const char *message;
    tri_parameter(g, "own.scale", shape, init);
    assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
    message_check(message, "own.scale");
    message_check(message, parts);
    tri_graph_destroy(g);
}

static void test_refused(void **state) {
    check_refused("xavier_normal|2|1", tri_shape_of(3), (tri_init){.kind = TRI_INIT_XAVIER_NORMAL});
    check_refused("identity|2|3", tri_shape_of(3, 3, 3), (tri_init){.kind = TRI_INIT_IDENTITY});
    check_refused("uniform|1|0.5", tri_shape_of(3),
                  (tri_init){.kind = TRI_INIT_UNIFORM, .low = 1, .high = 0.5});
    check_refused("normal|-1", tri_shape_of(3), (tri_init){.kind = TRI_INIT_NORMAL, .std = -1});
    check_refused("normal|nan", tri_shape_of(3), (tri_init){.kind = TRI_INIT_NORMAL, .mean = NAN});
    check_refused("dirac|3 axes|2", tri_shape_of(3, 3), (tri_init){.kind = TRI_INIT_DIRAC});
    check_refused("dirac|3 rows|2", tri_shape_of(3, 2, 3),
                  (tri_init){.kind = TRI_INIT_DIRAC, .groups = 2});
    check_refused("sparse|1.5", tri_shape_of(3, 3),
                  (tri_init){.kind = TRI_INIT_SPARSE, .sparsity = 1.5});
    check_refused("values", tri_shape_of(3), (tri_init){.kind = TRI_INIT_VALUES});
    check_refused("99", tri_shape_of(3), (tri_init){.kind = (tri_init_kind)99});
    check_refused("no elements", tri_shape_of(3, 0), (tri_init){.kind = TRI_INIT_ZEROS});
}

// A name stands for one tensor: the same one when it is declared again, and no other.
static void test_again(void **state) {
    static const float one[] = {1, 2}, other[] = {1, 3};
    tri_shape shape = tri_shape_of(2);
    for (int k = 0; k < 3; k++) {
        tri_graph *g = tri_graph_create(arena, &(tri_graph_options){.training = true});
        const char *message;
        tri_block(g, "block");
        tri_value first = tri_constant(g, "mask", shape, one);
        if (k == 0) assert_int_equal(tri_constant(g, "mask", shape, one).id, first.id);
        if (k == 1) tri_constant(g, "mask", shape, other);
        if (k == 2) tri_parameter(g, "mask", shape, (tri_init){.kind = TRI_INIT_ONES});
        assert_int_equal(tri_graph_status(g, &message), k == 0 ? TRI_OK : TRI_BAD_INPUT);
        if (k > 0) message_check(message, k == 1 ? "mask|values" : "mask|roles");
        tri_graph_destroy(g);
    }
}

// A layer's options come before its defaults; the bias keeps its own.
static void test_layers(void **state) {
    tri_graph *g = tri_graph_create(arena, &(tri_graph_options){.training = true});
    tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(2, 4, 6, 6));
    tri_init init = {.kind = TRI_INIT_KAIMING_NORMAL}, ones = {.kind = TRI_INIT_ONES};
    x = tri_conv2d(g, "a", x, (tri_conv_options){.channels = 4, .kernel = 3, .weight_init = init});
    x = tri_batch_norm(g, "b", x,
                       (tri_batch_norm_options){.weight_init = {.kind = TRI_INIT_ZEROS}});
    x = tri_group_norm(g, "c", x, (tri_group_norm_options){.groups = 2, .bias_init = ones});
    x = tri_layer_norm(g, "d", x, (tri_layer_norm_options){.axes = 2, .weight_init = init});
    tri_linear_with(g, "e", x, (tri_linear_options){.features = 3, .std = 1, .bias_init = ones});
    const char *message;
    if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s", message);
    static const struct {
        const char *name;
        tri_init_kind kind;
    } wanted[] = {
        {"a.weight", TRI_INIT_KAIMING_NORMAL},
        {"a.bias", TRI_INIT_UNIFORM},
        {"b.weight", TRI_INIT_ZEROS},
        {"b.bias", TRI_INIT_ZEROS},
        {"c.weight", TRI_INIT_ONES},
        {"c.bias", TRI_INIT_ONES},
        {"d.weight", TRI_INIT_KAIMING_NORMAL},
        {"e.weight", TRI_INIT_NORMAL},
        {"e.bias", TRI_INIT_ONES},
    };
    for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++)
        for (int i = 0; i < g->parameter_count; i++)
            if (!strcmp(g->parameters[i].name, wanted[k].name))
                assert_int_equal(g->parameters[i].init.kind, wanted[k].kind);
    tri_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch),      cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_orthogonal), cmocka_unit_test(test_exact),
        cmocka_unit_test(test_dirac),      cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_norms),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_layers),     cmocka_unit_test(test_again),
    };
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}
