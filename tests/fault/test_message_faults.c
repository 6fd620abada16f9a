// Communicators that send messages: if a rank dies, comes late, leaves, gives up or calls another
// operation than the others, they notice it in time and name the rank.
#include "support/comm_fault_cases.h"

#include "support/message.h"
#include "support/socket_transport.h"

static void test_never_came(void **state) {
    ranks_table *table = ranks_share_table();
    tri_comm_meeting meeting = {.context = table, .set = ranks_set, .get = ranks_get};
    tri_message_config config = {.timeout_ms = 200};
    tri_comm *comm;
    assert_int_equal(tri_comm_message_open(&socket_transport, 0, 2, &meeting, &config, &comm),
                     TRI_TIMEOUT);
    assert_non_null(strstr(tri_error_message(), "rank 1 did not join over"));
    assert_null(comm);
    assert_int_equal(tri_comm_message_open(&socket_transport, 3, 3, &meeting, &config, &comm),
                     TRI_BAD_INPUT);
    munmap(table, sizeof *table);
}

static void recv_into_less(tri_transport_end *end, int peer, uint32_t tag, void *memory,
                           size_t size, tri_transport_request *request) {
    socket_transport.recv(end, peer, tag, memory, size - 1, request);
}

// The first message of a rank is too long, as if the rank were of another version. The rank can be
// reached, so the error must not blame the network.
static void test_other_version(void **state) {
    ranks_table *table = ranks_share_table();
    tri_comm_meeting meeting = {.context = table, .set = ranks_set, .get = ranks_get};
    tri_message_config config = {.timeout_ms = 5000};
    tri_comm *comm;
    pid_t child = fork();
    if (child == 0) {
        (void)!tri_comm_message_open(&socket_transport, 1, 2, &meeting, &config, &comm);
        _exit(0);
    }
    tri_transport less = socket_transport;
    less.recv = recv_into_less;
    assert_int_equal(tri_comm_message_open(&less, 0, 2, &meeting, &config, &comm), TRI_MISMATCH);
    message_check(tri_error_message(), "rank 1|version");
    assert_null(comm);
    assert_int_equal(waitpid(child, NULL, 0), child);
    munmap(table, sizeof *table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_came),    cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_timeout),       cmocka_unit_test(test_leaver),
        cmocka_unit_test(test_abort),         cmocka_unit_test(test_killed),
        cmocka_unit_test(test_other_version),
    };
    ranks_transport = &socket_transport;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
