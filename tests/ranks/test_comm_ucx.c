// Tests communicators over UCX: by the cases that all backends have to pass (comm_cases.h), and by
// a case of UCX alone, messages that arrive in fragments before their receive.
#include "support/comm_cases.h"

#include "base/module.h"

static tri_transport_end *open_one(int rank) {
    char why[TRI_TRANSPORT_WHY_BYTES];
    tri_transport_end *end;
    tri_transport_job job = {.rank = rank, .size = 2};
    assert_int_equal(ranks_transport->open(&job, &end, why), TRI_OK);
    return end;
}

// All fragments of a message have arrived before this rank posts the receive. UCX then completes
// the receive while it is being posted.
static void test_fragments_before_receive(void **state) {
    enum { BYTES = 256 << 10, TAG = 5, WAIT_MS = 5000 };
    char why[TRI_TRANSPORT_WHY_BYTES], *sent = malloc(BYTES), *received = calloc(1, BYTES);
    tri_transport_request sending, receiving;
    assert_true(sent && received);
    for (int i = 0; i < BYTES; i++) sent[i] = (char)(i * 7 + i / 251);
    setenv("UCX_RNDV_THRESH", "inf", 1); // every message travels in fragments at once
    tri_transport_end *ends[2] = {open_one(0), open_one(1)};
    unsetenv("UCX_RNDV_THRESH");
    for (int r = 0; r < 2; r++) {
        size_t size;
        const void *address = ranks_transport->address(ends[r], &size);
        assert_int_equal(ranks_transport->know(ends[1 - r], r, address, size, why), TRI_OK);
    }
    ranks_transport->send(ends[0], 1, TAG, sent, BYTES, &sending);
    for (int ms = 0, quiet = 0; ms < WAIT_MS && quiet < 100; ms++) {
        ranks_transport->progress(ends[0]);
        ranks_transport->progress(ends[1]);
        quiet = sending.state == TRI_REQUEST_DONE ? quiet + 1 : 0;
        ranks_sleep_ms(1);
    }
    assert_int_equal(sending.state, TRI_REQUEST_DONE);
    ranks_transport->recv(ends[1], 0, TAG, received, BYTES, &receiving);
    for (int ms = 0; ms < WAIT_MS && receiving.state == TRI_REQUEST_PENDING; ms++) {
        ranks_transport->progress(ends[1]);
        ranks_sleep_ms(1);
    }
    assert_int_equal(receiving.state, TRI_REQUEST_DONE);
    assert_int_equal(receiving.bytes, BYTES);
    assert_memory_equal(sent, received, BYTES);
    for (int r = 0; r < 2; r++) ranks_transport->close(ends[r], false);
    free(sent);
    free(received);
}

int main(void) {
    static const struct CMUnitTest own[] = {cmocka_unit_test(test_fragments_before_receive)};
    const void *table;
    if (tri_module_load("ucx", TRI_TRANSPORT_INTERFACE, TRI_TRANSPORT_ABI, &table) != TRI_OK) {
        printf("skip: %s\n", tri_error_message());
        return 77;
    }
    ranks_transport = table;
    setenv("UCX_TLS", "tcp,self", 0); // the ranks use TCP, as if they were on different hosts
    return comm_cases_main("ucx", own, 1);
}
