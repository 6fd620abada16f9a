// Communicators over UCX: the cases of all backends.
#include "comm_cases.h"

#include "base/module.h"

int main(void) {
    const void *table;
    if (tri_module_load("ucx", TRI_TRANSPORT_INTERFACE, TRI_TRANSPORT_ABI, &table) != TRI_OK) {
        printf("skip: %s\n", tri_error_message());
        return 77;
    }
    ranks_transport = table;
    setenv("UCX_TLS", "tcp,self", 0); // as between hosts
    return comm_cases_main("ucx", NULL, 0);
}
