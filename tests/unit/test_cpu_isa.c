// Compares every op of `cpu` with the reference device `ref` at random shapes, first as on a CPU
// without AVX-512, then as on one without AVX2. oneDNN, too, is limited to AVX2.
#include "device/cpu/cpu.h"
#include "support/op_compare.h"

#include <oneapi/dnnl/dnnl.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void compare_all(const char *isa) {
    setenv("TRIREME_CPU_ISA", isa, 1);
    op_compare_all(&tri_device_cpu, 1, TRI_F32, 7000, 8);
    op_compare_all(&tri_device_cpu, 2, TRI_F32, 8000, 3);
    op_compare_all(&tri_device_cpu, 2, TRI_BF16, 9000, 4);
}

static void test_avx2(void **state) { compare_all("avx2"); }

static void test_base(void **state) { compare_all("base"); }

// Tests attention with more random shapes than other ops, so that some have several of the blocks
// of 64 queries into which the kernel divides the queries.
static void test_attention(void **state) {
    setenv("TRIREME_CPU_ISA", "avx2", 1);
    const op_family *family = op_families;
    while (family->name && strcmp(family->name, "attention") != 0) family++;
    assert_non_null(family->name);
    for (int threads = 1; threads <= 3; threads++) {
        op_compare(family, &tri_device_cpu, threads, TRI_F32, 100, 20);
        op_compare(family, &tri_device_cpu, threads, TRI_BF16, 200, 10);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attention),
                                       cmocka_unit_test(test_avx2), cmocka_unit_test(test_base)};
    if (dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2) != dnnl_success) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
