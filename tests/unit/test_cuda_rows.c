// Compares `cuda`, on an emulated GPU, with `ref` where rows are long or many, so that kernels loop
// over them in blocks.
#include "device/cuda/cuda.h"
#include "support/op_compare.h"
#include "support/op_families.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

// Rows of 1 to 2,100 elements, of which up to 20,000 in all are norms' rows of 16 elements.
static tri_shape large_rows(op_case *c) {
    static const int64_t widths[] = {1, 16, 255, 256, 257, 1024, 2056, 2100};
    int64_t width = widths[op_draw(c, 0, 7)];
    int64_t most = width > 16 ? 40 : 17000;
    return tri_shape_of(op_draw(c, 1, most), width);
}

static void build_norm(op_case *c) {
    tri_norm_attr a = {.eps = 1e-5, .narrow = op_chance(c, 50) ? (int64_t)c->dtype : 0};
    tri_shape shape = large_rows(c), rows = shape;
    rows.rank--;
    if (c->dtype == TRI_F32) a.narrow = 0;
    tri_value x = a.narrow ? op_wide_unit(c, shape) : op_numbers(c, shape, -1, 1);
    tri_value sum = a.narrow ? op_wide_unit(c, shape) : op_numbers(c, shape, -1, 1);
    tri_value dy = op_numbers(c, shape, -1, 1);
    tri_value weight = op_wide_unit(c, tri_shape_of(shape.dims[1]));
    tri_value bias = op_wide_unit(c, tri_shape_of(shape.dims[1]));
    tri_value mean = op_wide(c, rows, -0.5, 0.5), inv = op_wide(c, rows, 0.5, 2);
    if (op_chance(c, 50)) {
        op_add(c, &tri_op_rms_norm, (tri_value[]){x, weight}, &a);
        op_add(c, &tri_op_rms_norm_grad, (tri_value[]){x, dy, weight, inv, sum}, &a);
    } else {
        op_add(c, &tri_op_layer_norm, (tri_value[]){x, weight, bias}, &a);
        op_add(c, &tri_op_layer_norm_grad, (tri_value[]){x, dy, mean, inv, weight, sum}, &a);
    }
}

static const op_family families[] = {
    {.name = "norm of large rows", .build = build_norm, .tolerance = 2e-5},
};

static void test_large_rows(void **state) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        op_compare(&families[i], &tri_device_cuda, 1, TRI_F32, 100, 8);
        op_compare(&families[i], &tri_device_cuda, 1, TRI_BF16, 200, 8);
    }
}

int main(void) {
    setenv("TRIREME_MODULES", TRIREME_BUILD_DIR "/lib/emulated", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_large_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
