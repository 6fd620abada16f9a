// Checks the gradients of a linear layer's weight and bias on a GPU. cuBLASLt sums the bias'
// gradient while it computes the product, so that dy is read once; where it has no such algorithm,
// our own kernel sums it afterwards. In both cases the gradients must be those of a plain loop, and
// the gradient of the weight is added to an earlier one on request.
#include "base/module.h"
#include "device/cuda/runtime.h"
#include "support/test_gpu.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 37, IN = 24, OUT = 16, WORKSPACE_BYTES = 1 << 20 };

static const cuda_runtime *runtime;
static cuda_context *context;
static cuda_stream *stream;
static char why[CUDA_WHY_BYTES];

static void check(tri_status status) {
    if (status != TRI_OK) fail_msg("%s", why);
}

static void *memory(size_t size_bytes) {
    void *out;
    check(runtime->alloc(context, size_bytes, &out, why));
    return out;
}

// How many calls have given work to streams of the emulated GPU; -1: the GPU is a real one.
static int64_t issued(void) {
    int64_t (*count)(void);
    *(void **)&count = dlsym(RTLD_DEFAULT, "emulated_issued");
    return *(void **)&count ? count() : -1;
}

static float dy[ROWS][OUT], x[ROWS][IN], dweight[OUT][IN], dbias[OUT];

static void copy(void *to, const void *from, size_t size_bytes) {
    check(runtime->copy(stream, to, from, size_bytes, why));
}

static void expect(float got, double wanted, const char *what, int i) {
    if (fabs(got - wanted) > 1e-4) fail_msg("%s %d: %g, not %g", what, i, (double)got, wanted);
}

// Checks the gradients after the product was computed `times` times. That of the weight was added
// each time; that of the bias was overwritten.
static void check_sums(int times) {
    for (int o = 0; o < OUT; o++) {
        double sum = 0;
        for (int r = 0; r < ROWS; r++) sum += dy[r][o];
        expect(dbias[o], sum, "gradient of the bias", o);
        for (int i = 0; i < IN; i++) {
            sum = 0;
            for (int r = 0; r < ROWS; r++) sum += dy[r][o] * x[r][i];
            expect(dweight[o][i], times * sum, "gradient of the weight", o * IN + i);
        }
    }
}

// Computes the gradients of a linear layer's weight and bias. dy lies `shift` bytes behind an
// aligned address, and the product may use workspace_bytes. Unless `shift` is 0 and the workspace
// has WORKSPACE_BYTES, the emulated cuBLASLt has no algorithm for it, and our own kernels compute.
// Returns how many calls to the GPU this took.
static int64_t compute(size_t shift, int64_t workspace_bytes) {
    cuda_product p = {.m = OUT, .n = IN, .k = ROWS, .transpose_a = true};
    p.in_type = p.out_type = TRI_F32;
    p.workspace = memory(WORKSPACE_BYTES);
    p.workspace_bytes = workspace_bytes;
    char *a = memory(sizeof dy + shift);
    void *b = memory(sizeof x), *c = memory(sizeof dweight), *sums = memory(sizeof dbias);
    copy(a + shift, dy, sizeof dy);
    copy(b, x, sizeof x);
    p.a = a + shift;
    p.b = b;
    p.c = c;
    p.bias_grad = (cuda_column_sums){
        .rows = ROWS, .columns = OUT, .slices = 1, .type = TRI_F32, .x = p.a, .sums = sums};
    int64_t before = issued();
    check(runtime->product(stream, &p, why));
    int64_t calls = issued() - before;
    for (int times = 1; times <= 2; times++) {
        memset(dweight, 0, sizeof dweight);
        memset(dbias, 0, sizeof dbias);
        copy(dweight, c, sizeof dweight); // waits, because the memory is not pinned
        copy(dbias, sums, sizeof dbias);
        check_sums(times);
        p.adds = true;
        if (times == 1) check(runtime->product(stream, &p, why));
    }
    runtime->free(context, a);
    runtime->free(context, b);
    runtime->free(context, c);
    runtime->free(context, sums);
    runtime->free(context, p.workspace);
    return calls;
}

static void test_gradients(void **state) {
    (void)state;
    const void *table;
    cuda_properties properties;
    int count;
    if (tri_module_load("cuda", CUDA_RUNTIME_INTERFACE, CUDA_RUNTIME_ABI, &table) != TRI_OK)
        fail_msg("%s", tri_error_message());
    runtime = table;
    check(runtime->count(&count, why));
    check(runtime->open(0, &properties, &context, why));
    check(runtime->open_stream(context, false, &stream, why));
    for (int r = 0; r < ROWS; r++) {
        for (int o = 0; o < OUT; o++) dy[r][o] = (float)((r * 7 + o * 3) % 11 - 5) / 8;
        for (int i = 0; i < IN; i++) x[r][i] = (float)((r * 5 + i) % 13 - 6) / 8;
    }
    int64_t fused = compute(0, WORKSPACE_BYTES), apart = compute(sizeof(float), WORKSPACE_BYTES);
    // The same product again, with too little workspace for the algorithm that was chosen before.
    int64_t small = compute(0, 16);
    if (issued() >= 0 && properties.has_products) assert_int_equal(fused, 1);
    if (issued() >= 0) assert_int_equal(apart, 2);
    if (issued() >= 0) assert_int_equal(small, 2);
    runtime->close_stream(stream);
    runtime->close(context);
}

int main(void) {
    test_gpu_choose();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
