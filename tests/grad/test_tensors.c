// Compares the functions of more_functions.h with PyTorch (tensor_tables.h, einsum_tables.h and
// tensor_edge_tables.h), value and gradients, on the devices `ref` and `cpu`; and checks what they
// refuse.
#include "device/cpu/cpu.h"
#include "support/torch_check.h"

#include <trireme/more_functions.h>

#include "grad/einsum_tables.h"
#include "grad/tensor_edge_tables.h"
#include "grad/tensor_tables.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static tri_value other_of(tri_graph *g, tri_shape shape) {
    return tri_parameter(g, "other", shape, (tri_init){0});
}
#define OTHER(...) other_of(g, tri_shape_of(__VA_ARGS__))

static tri_value split_part(tri_graph *g, tri_value x) {
    tri_value parts[3];
    tri_split_with_sizes(g, x, 1, (int64_t[]){1, 3, 2}, 3, parts);
    return parts[1];
}

static tri_value grids(tri_graph *g, tri_value x, tri_value other) {
    tri_value made[2];
    tri_meshgrid(g, (tri_value[]){x, other}, 2, made);
    return tri_stack(g, made, 2, 0);
}

// A value and its place, which is compared too.
static tri_value kth_and_place(tri_graph *g, tri_value x, int64_t k, bool keep) {
    tri_value index,
        y = k ? tri_kthvalue(g, x, k, 1, keep, &index) : tri_median(g, x, 1, keep, &index);
    return tri_add(g, y, tri_cast(g, index, TRI_F32));
}

static tri_value index_of(tri_graph *g, int64_t count) {
    return tri_input(g, "distinct", TRI_I64, tri_shape_of(count));
}

// x, a constant, with `value` as its largest element.
static tri_value with_largest(tri_graph *g, tri_value x, double value) {
    tri_value is_largest = tri_mask(g, "x, m -> x == m", x, tri_amax(g, x, NULL, 0, false));
    return tri_detach(g, tri_masked_fill(g, x, is_largest, value));
}

static tri_value with_nan(tri_graph *g, tri_value x) { return with_largest(g, x, NAN); }

// 5 for NaN, and at most 9 for infinity.
static tri_value shown(tri_graph *g, tri_value y) {
    return tri_nan_to_num(g, tri_clamp(g, y, -9, 9), 5);
}

static tri_value median_of_nan(tri_graph *g, tri_value x) {
    tri_value index, y = tri_median(g, with_nan(g, x), 1, true, &index);
    y = tri_add(g, shown(g, y), tri_cast(g, index, TRI_F32));
    return tri_add(g, x, y);
}

static tri_value found(tri_graph *g, tri_value x, tri_value values) {
    tri_value sorted = tri_sort(g, tri_slice(g, x, 1, 1, 0, 1), -1, false, NULL);
    return tri_mul(g, x, tri_cast(g, tri_searchsorted(g, sorted, values, false), TRI_F32));
}

static tri_value bucket(tri_graph *g, tri_value x, tri_value values) {
    tri_value row = tri_select(g, x, 0, 0);
    if (tri_value_shape(g, row).rank > 1) row = tri_select(g, row, 0, 0);
    tri_value sorted = tri_sort(g, row, 0, false, NULL);
    return tri_mul(g, x, tri_cast(g, tri_bucketize(g, values, sorted, true), TRI_F32));
}

// NaN among what is sorted: of the first row, or of each.
static tri_value among_nan(tri_graph *g, tri_value x, bool buckets) {
    tri_value values = with_nan(g, x), sorted = tri_sort(g, values, -1, false, NULL);
    tri_value found = buckets ? tri_bucketize(g, values, tri_select(g, sorted, 0, 0), true)
                              : tri_searchsorted(g, sorted, values, false);
    return tri_mul(g, x, tri_cast(g, found, TRI_F32));
}

// An equation is its own name; the shape of the second operand is that of a list.
static tri_value einsum(tri_graph *g, const char *name, tri_value x) {
    static const struct {
        const char *equation;
        tri_shape other;
    } pairs[] = {
#define PAIR(equation, ...)                                                                        \
    {                                                                                              \
        equation, {                                                                                \
            sizeof((int[]){__VA_ARGS__}) / sizeof(int), { __VA_ARGS__ }                            \
        }                                                                                          \
    }
        PAIR("ij,jk->ik", 4, 5),
        PAIR("bij,bjk", 2, 4, 5),
        PAIR("bqhd,bkhd->bhqk", 2, 5, 2, 4),
        PAIR("bhqk,bkhd->bqhd", 2, 5, 3, 2),
        PAIR("i,j->ij", 4),
        PAIR("i,i->", 7),
        PAIR("...ij,...jk->...ik", 3, 4, 5),
        PAIR("...d,d->...", 4),
        PAIR("b...,b...->b", 2, 3, 4),
        PAIR("...a,...b", 4, 2),
        PAIR("ij,ij->ij", 3, 1),
        PAIR("abcde,abcdf->fabc", 2, 1, 2, 3, 2),
        PAIR("aij,kj->i", 5, 4),
        PAIR("abcdef,abcdef->abcde", 2, 1, 2, 1, 2, 3),
        PAIR("B i , i o -> B o", 4, 2),
        PAIR("nteh,ehd->nted", 4, 2, 3),
        PAIR("ehd,nteh->nted", 2, 3, 4, 2),
        PAIR("neh,ehd->ned", 1, 4, 2),
        PAIR("nte,e->nte", 4),
        PAIR("dh,nth->ntd", 2, 3, 4),
        PAIR("nabf,abfcd->ndabc", 3, 2, 4, 2, 2),
        PAIR("nhe,ehd->nde", 4, 3, 2),
        PAIR("e,ne->ne", 3, 4),
    };
    for (size_t i = 0; i < COUNT(pairs); i++)
        if (!strcmp(name, pairs[i].equation))
            return tri_einsum(g, name, x, other_of(g, pairs[i].other));
    return tri_einsum(g, name, x);
}

// What each row of torch_tensors and torch_einsums is here.
static tri_value function(tri_graph *g, const char *name, tri_value x) {
#define CASE(text, value)                                                                          \
    if (!strcmp(name, text)) return value;
    CASE("ij,jk->ik of one", tri_einsum(g, "ij,jk->ik", x, OTHER(5, 2)))
    if (!strcmp(name, "three")) {
        tri_value b = OTHER(2, 3, 3);
        return tri_einsum(g, "nc,hcd,hd->nh", x, b, tri_select(g, b, 1, 0));
    }
    CASE("addmm", tri_addmm(g, tri_select(g, x, 0, 0), x, OTHER(4, 4), 0.5, -2))
    if (!strcmp(name, "baddbmm")) {
        tri_value b = OTHER(2, 3, 3);
        return tri_addmm(g, b, x, b, 1, 1);
    }
    CASE("outer", tri_outer(g, x, OTHER(5)))
    CASE("cross", tri_cross(g, x, OTHER(2, 3, 4), 1))
    CASE("cdist", tri_cdist(g, x, OTHER(2, 5, 4), 0))
    CASE("cdist of three", tri_cdist(g, x, OTHER(5, 4), 3))
    CASE("vector_norm 1", tri_vector_norm(g, x, 1, (int[]){1}, 1, false))
    CASE("vector_norm 3", tri_vector_norm(g, x, 3, (int[]){0, 2}, 2, true))
    CASE("vector_norm inf", tri_vector_norm(g, x, INFINITY, (int[]){-1}, 1, false))
    CASE("normalize 1", tri_normalize_by(g, x, 1, 1, 0))
    CASE("normalize 3", tri_normalize_by(g, x, 3, 0, 2.5))
    CASE("normalize inf", tri_normalize_by(g, x, INFINITY, -1, 0))
    CASE("movedim", tri_movedim(g, x, 1, 3))
    CASE("movedim back", tri_movedim(g, x, -1, 0))
    CASE("split", split_part(g, x))
    CASE("meshgrid", grids(g, x, OTHER(4)))
    CASE("tril", tri_tril(g, x, 1))
    CASE("tril below", tri_tril(g, x, -2))
    CASE("triu", tri_triu(g, x, 0))
    CASE("triu above", tri_triu(g, x, 2))
    CASE("diagonal", tri_diagonal(g, x, 0, 1, 2))
    CASE("diagonal above", tri_diagonal(g, x, 1, 2, 0))
    CASE("diagonal below", tri_diagonal(g, x, -2, 0, 1))
    CASE("diagonal of one", tri_diagonal(g, x, 0, 0, -1))
    CASE("diag_embed", tri_diag_embed(g, x, 0))
    CASE("diag_embed above", tri_diag_embed(g, x, 2))
    CASE("diag_embed below", tri_diag_embed(g, x, -1))
    CASE("trace", tri_trace(g, x))
    CASE("one_hot",
         tri_mul(g, x,
                 tri_one_hot(g, tri_input(g, "index below 4", TRI_I64, tri_shape_of(2, 3)), 4)))
    CASE("diff", tri_diff(g, x, 1, 1))
    CASE("diff twice", tri_diff(g, x, 2, -1))
    CASE("trapezoid", tri_trapezoid(g, x, 0.5, 1))
    CASE("trapezoid of one", tri_trapezoid(g, x, 1, -1))
    CASE("index_fill", tri_index_fill(g, x, 1, index_of(g, 6), 1.5))
    CASE("index_copy", tri_index_copy(g, x, 0, index_of(g, 4), OTHER(4, 2)))
    CASE("kthvalue", kth_and_place(g, x, 2, false))
    CASE("median", kth_and_place(g, x, 0, true))
    CASE("quantile", tri_quantile(g, x, 0.3, 1, false))
    CASE("quantile last", tri_quantile(g, x, 1, 0, true))
    CASE("searchsorted", found(g, x, x))
    CASE("bucketize", bucket(g, x, x))
#undef CASE
    return einsum(g, name, x);
}

// What each row of torch_tensor_edges is here.
static tri_value edge(tri_graph *g, const char *name, tri_value x) {
#define CASE(text, value)                                                                          \
    if (!strcmp(name, text)) return value;
    CASE("addmm without c",
         tri_addmm(g, tri_detach(g, tri_mul_scalar(g, x, NAN)), x, OTHER(4, 4), 0, -2))
    CASE("index_fill infinite", shown(g, tri_index_fill(g, x, 1, index_of(g, 6), -INFINITY)))
    CASE("median of NaN", median_of_nan(g, x))
    CASE("quantile of NaN", tri_add(g, x, shown(g, tri_quantile(g, with_nan(g, x), 0.3, 1, true))))
    CASE("quantile below infinity",
         tri_add(g, x, shown(g, tri_quantile(g, with_largest(g, x, INFINITY), 0.75, 1, true))))
    CASE("searchsorted of NaN", found(g, x, with_nan(g, x)))
    CASE("bucketize of NaN", bucket(g, x, with_nan(g, x)))
    CASE("clamp of turned ends", tri_add(g, x, tri_clamp(g, x, 0.25, -0.5)))
    CASE("hardtanh of turned ends", tri_add(g, x, tri_hardtanh(g, x, 0.25, -0.5)))
    CASE("searchsorted among NaN", among_nan(g, x, false))
    CASE("bucketize among NaN", among_nan(g, x, true))
    CASE("norm of NaN", tri_mul(g, x, shown(g, tri_norm(g, with_nan(g, x), (int[]){1}, 1, true))))
    CASE("std of NaN", tri_mul(g, x, shown(g, tri_std(g, with_nan(g, x), (int[]){1}, 1, 1, true))))
    CASE("normalize of NaN", tri_mul(g, x, shown(g, tri_normalize(g, with_nan(g, x), 1, 0))))
    CASE("vector_norm 3 of NaN",
         tri_mul(g, x, shown(g, tri_vector_norm(g, with_nan(g, x), 3, (int[]){1}, 1, true))))
    CASE("vector_norm 0.5 of zeros",
         tri_vector_norm(g, tri_map(g, "x -> x * (x > 0)", x), 0.5, (int[]){1}, 1, false))
#undef CASE
    fail_msg("there is no case for %s", name);
    return x;
}

#define CHECK(table, call)                                                                         \
    for (size_t i = 0; i < COUNT(table); i++) {                                                    \
        torch_check(&(table)[i], call, &tri_device_ref, TRI_F64, 1e-10);                           \
        torch_check(&(table)[i], call, &tri_device_cpu, TRI_F32, 2e-4);                            \
    }

static void test_torch(void **state) {
    CHECK(torch_tensors, function)
    CHECK(torch_einsums, function)
    CHECK(torch_tensor_edges, edge)
}

// Each call fails the graph with a message that begins with the function's name.
static void test_refused(void **state) {
    for (int i = 0;; i++) {
        tri_graph *g = op_graph_open(TRI_F64);
        tri_value x = tri_input(g, "x", TRI_F64, tri_shape_of(3, 4)), parts[2];
        const char *name = "einsum", *message = "";
        switch (i) {
        case 0:
            tri_einsum(g, "ij,jk->ik", x, x);
            break;
        case 1:
            tri_einsum(g, "ij,kl,mn,op->ijklmnop", x, x, x, x);
            break;
        case 2:
            tri_split_with_sizes(g, x, 1, (int64_t[]){1, 2}, 2, parts);
            name = "split";
            break;
        case 3:
            tri_meshgrid(g, &x, 1, parts);
            name = "meshgrid";
            break;
        case 4:
            tri_diagonal(g, x, 4, 0, 1);
            name = "diagonal";
            break;
        case 5:
            tri_kthvalue(g, x, 5, 1, false, NULL);
            name = "kthvalue";
            break;
        case 6:
            tri_quantile(g, x, 1.5, 1, false);
            name = "quantile";
            break;
        case 7:
            tri_vector_norm(g, x, -1, NULL, 0, false);
            name = "vector_norm";
            break;
        case 8:
            tri_cross(g, x, x, 1);
            name = "cross";
            break;
        default:
            op_graph_close(g);
            return;
        }
        assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
        if (strncmp(message, name, strlen(name)) != 0) fail_msg("%d: %s", i, message);
        op_graph_close(g);
    }
}

// The last one begins with a letter of one byte, which is none of A to Z.
static void test_refused_equations(void **state) {
    static const char *const equations[] = {"ij,jk->ik", "ij->ik", "i->i",    "ij->ii",
                                            "ii->i",     "ij-ij",  "i.j->ij", "\xe9j->\xe9"};
    for (size_t i = 0; i < COUNT(equations); i++) {
        tri_graph *g = op_graph_open(TRI_F64);
        const char *message = "";
        tri_einsum(g, equations[i], tri_input(g, "x", TRI_F64, tri_shape_of(3, 4)));
        assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
        if (strncmp(message, "einsum", 6) != 0) fail_msg("%s: %s", equations[i], message);
        op_graph_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_refused_equations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
