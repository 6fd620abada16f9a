// Checks that the null device runs any graph without arithmetic: values keep their content, and a
// loss, which is a pair of a sum and a count, is (0, count).
#include "device/null/null.h"
#include "pass/pass.h"
#include "support/op_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/nn.h>

#include <cmocka.h>

static void test_network(void **state) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(3, 4));
    tri_value target = tri_input(g, "targets", TRI_F32, tri_shape_of(3, 2));
    tri_value y = tri_relu(g, tri_linear(g, "fc", x, 2));
    tri_value loss = tri_mse_loss(g, y, target), relative = tri_relative_l2_loss(g, y, target);
    tri_loss(g, loss);
    tri_metric(g, "relative", relative);
    assert_int_equal(tri_pass_autodiff(g), TRI_OK);
    tri_device *device = op_device_open(&tri_device_null, 1);
    op_session *session = op_session_open(g, device, false);
    op_fill(session, x, 1, -1, 1);
    op_run_ok(session);
    assert_true(op_get(session, loss, 0) == 0 && op_get(session, loss, 1) == 6);
    assert_true(op_get(session, relative, 0) == 0 && op_get(session, relative, 1) == 3);
    // `y` still holds NaN, with which the memory was filled before the run.
    assert_true(op_get(session, y, 0) != op_get(session, y, 0));
    op_session_close(session);
    device->backend->close(device);
    op_graph_close(g);
}

static void test_memory(void **state) {
    tri_device *device = op_device_open(&tri_device_null, 1);
    static const size_t sizes[] = {0, 1, 63, 64, 65, (size_t)1 << 28};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *memory = NULL;
        assert_int_equal(device->backend->alloc(device, sizes[i], &memory), TRI_OK);
        assert_int_equal((uintptr_t)memory % 64, 0);
        device->backend->free(device, memory);
    }
    device->backend->free(device, NULL);
    device->backend->close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_network),
                                       cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
