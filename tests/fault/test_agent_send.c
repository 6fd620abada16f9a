// A launcher of a run over several nodes is an agent; the serving agent is the one that decides for
// all nodes. If an agent cannot send its report to the serving agent, it ends the connection, so
// that neither of the two waits for ever. A sign of life that cannot be sent is only left out.
#include "base/os.h"
#include "launch/nodes.h"

#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIMIT_S = 60 };

static _Atomic uint32_t refused_kind; // sending this kind of message fails: the socket is full
static atomic_int refused;

static ssize_t refusing_send(int fd, const void *data, size_t size, int flags) {
    nodes_head head;
    if (size >= sizeof head) {
        memcpy(&head, data, sizeof head);
        if (head.kind == atomic_load(&refused_kind)) {
            atomic_fetch_add(&refused, 1);
            errno = EAGAIN;
            return -1;
        }
    }
    return tri_os_system.send(fd, data, size, flags);
}

static int free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    close(fd);
    return ntohs(address.sin_port);
}

static const char *from_environment(const char *name) { return getenv(name); }

// Opens an agent (a run's launcher on a node) that serves its own run of one node, and waits until
// the run's first attempt (round) has begun.
static launch_nodes *begin_round(launch_options *options) {
    char endpoint[32];
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", free_port());
    // clang-format off
    char *words[] = {"run", "--nnodes", "1:2", "--nproc-per-node", "1",
                     "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint,
                     "--rdzv-conf", "last_call_timeout=0.1", "true", NULL};
    // clang-format on
    int count = sizeof words / sizeof *words - 1;
    tri_status status = launch_options_parse(count, words, from_environment, options);
    if (status != TRI_OK) fail_msg("%s", tri_error_message());
    sigset_t none;
    sigemptyset(&none);
    int signal = 0, signal_fd = signalfd(-1, &none, SFD_CLOEXEC | SFD_NONBLOCK);
    assert_true(signal_fd >= 0);
    launch_nodes *nodes;
    assert_int_equal(launch_nodes_open(options, signal_fd, &signal, &nodes), TRI_OK);
    nodes_message message;
    launch_nodes_wait(nodes, &signal, &message);
    assert_int_equal(message.head.kind, NODES_ROUND);
    return nodes;
}

static void test_report_that_is_not_sent(void **state) {
    static launch_options options;
    launch_nodes *nodes = begin_round(&options);
    atomic_store(&refused_kind, NODES_REPORT);
    launch_nodes_report(nodes, &(nodes_report){.outcome = NODES_DONE});
    assert_int_equal(atomic_load(&refused), 1);
    int signal = 0;
    nodes_message message;
    launch_nodes_wait(nodes, &signal, &message);
    assert_int_equal(message.head.kind, NODES_END);
    assert_true(message.order.is_cut_off);
    launch_nodes_close(nodes);
}

// If a beat (a sign of life) cannot be sent, it is left out, because another one follows.
static void test_beat_that_is_not_sent(void **state) {
    static launch_options options;
    launch_nodes *nodes = begin_round(&options);
    atomic_store(&refused, 0);
    atomic_store(&refused_kind, NODES_BEAT);
    while (atomic_load(&refused) == 0) usleep(1000);
    atomic_store(&refused_kind, 0);
    launch_nodes_report(nodes, &(nodes_report){.outcome = NODES_DONE});
    int signal = 0;
    nodes_message message;
    launch_nodes_wait(nodes, &signal, &message);
    assert_int_equal(message.head.kind, NODES_END);
    assert_false(message.order.is_cut_off);
    assert_int_equal(message.order.code, 0);
    launch_nodes_close(nodes);
}

int main(void) {
    alarm(LIMIT_S); // ends the test, which would wait forever if the connection did not end
    setenv("TRIREME_TOKEN", "a token of this test", 1);
    tri_os.send = refusing_send;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_report_that_is_not_sent),
                                       cmocka_unit_test(test_beat_that_is_not_sent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
