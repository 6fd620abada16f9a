// Checks how communication over UCX ends if a rank dies, is late, leaves, gives up or calls another
// operation than the others.
#include "support/comm_fault_cases.h"

#include "base/module.h"

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mismatch), cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_leaver),   cmocka_unit_test(test_abort),
        cmocka_unit_test(test_killed),
    };
    const void *table;
    if (tri_module_load("ucx", TRI_TRANSPORT_INTERFACE, TRI_TRANSPORT_ABI, &table) != TRI_OK) {
        printf("skip: %s\n", tri_error_message());
        return 77;
    }
    ranks_transport = table;
    setenv("UCX_TLS", "tcp,self", 0); // TCP as between hosts, instead of shared memory
    return cmocka_run_group_tests(tests, NULL, NULL);
}
