// Sends arbitrary bytes over TCP connections that have not proved that they know the job's token, a
// secret; such connections are called strangers. The input consists of parts (run_part): each says
// on which connection bytes arrive, whether a new one opens, and how much time passes. The sockets
// are simulated in memory.
#include "rendezvous/store_strangers.h"

#include "base/os.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FIRST_FD = 1000, OPEN_MAX_FDS = 4096 };

static struct {
    bool is_open;
    const uint8_t *sent; // what the peer has sent and the tested code has not read yet
    size_t size;
} sockets[OPEN_MAX_FDS];
static int opened;

static int close_socket(int fd) {
    if (!sockets[fd - FIRST_FD].is_open) abort(); // closed twice
    sockets[fd - FIRST_FD].is_open = false;
    return 0;
}

static ssize_t receive(int fd, void *data, size_t size, int flags) {
    (void)flags;
    size_t count = sockets[fd - FIRST_FD].size < size ? sockets[fd - FIRST_FD].size : size;
    if (!sockets[fd - FIRST_FD].is_open) abort();
    if (count == 0) {
        errno = EAGAIN;
        return -1;
    }
    memcpy(data, sockets[fd - FIRST_FD].sent, count);
    sockets[fd - FIRST_FD].sent += count;
    sockets[fd - FIRST_FD].size -= count;
    return (ssize_t)count;
}

static ssize_t send_all(int fd, const void *data, size_t size, int flags) {
    (void)data;
    (void)flags;
    if (!sockets[fd - FIRST_FD].is_open) abort();
    return (ssize_t)size;
}

// Runs one part of the fuzzer's input: the index of a connection, a number of time steps (if odd, a
// new connection opens), how many bytes arrive, and these bytes. Returns the part's length.
static size_t run_part(store_strangers *s, const uint8_t *data, size_t size, int64_t *now_ns) {
    int index = data[0] % TRI_MAX_STORE_STRANGERS;
    size_t count = data[2] < size - 3 ? data[2] : size - 3;
    *now_ns += data[1] * INT64_C(10000000);
    if (data[1] & 1 && opened < OPEN_MAX_FDS && store_strangers_have_room(s, *now_ns)) {
        sockets[opened].is_open = true;
        sockets[opened].size = 0;
        store_strangers_take(s, FIRST_FD + opened++, *now_ns);
    }
    if (s->fds[index].fd >= 0) {
        sockets[s->fds[index].fd - FIRST_FD].sent = data + 3;
        sockets[s->fds[index].fd - FIRST_FD].size = count;
        // No bytes may be accepted: without the token nobody can compute the MAC (keyed hash) that
        // a proof has to contain.
        if (store_strangers_read(s, index) >= 0) abort();
    }
    if (store_strangers_expire(s, *now_ns) <= *now_ns) abort();
    return 3 + count;
}

// Changes bytes of a proof, by which a rank shows that it has the token; the input tells which
// bytes. The server has to refuse the proof unless no byte has changed. If the server accepts it,
// bytes of the server's verdict are changed, and the rank checks that verdict.
static void check_changed_proof(const store_gate *gate, const uint8_t *data, size_t size) {
    tri_identity me = {.rank = 1, .generation = 3};
    store_challenge challenge;
    store_proof proof, changed;
    store_verdict verdict;
    if (store_challenge_make(&challenge) != TRI_OK) abort();
    if (store_proof_make(&gate->token, &me, &challenge, &proof) != TRI_OK) abort();
    changed = proof;
    for (size_t i = 0; i < size; i++) ((uint8_t *)&changed)[i % sizeof changed] ^= data[i];
    bool is_same = !memcmp(&proof, &changed, sizeof proof);
    if (store_proof_check(gate, &challenge, &changed, &verdict) != is_same) abort();
    for (size_t i = 0; is_same && i < size; i++)
        ((uint8_t *)&verdict)[i % sizeof verdict] ^= data[size - 1 - i];
    if (is_same) (void)store_verdict_check(&gate->token, &challenge, &proof, &verdict);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pollfd fds[TRI_MAX_STORE_STRANGERS];
    store_strangers *s = calloc(1, sizeof *s);
    int64_t now_ns = 0;
    if (!s) abort();
    tri_os.close = close_socket;
    tri_os.recv = receive;
    tri_os.send = send_all;
    for (int i = 0; i < TRI_MAX_STORE_STRANGERS; i++) fds[i] = (struct pollfd){.fd = -1};
    s->fds = fds;
    s->gate = (store_gate){.token = {"a key"}, .generation = 3};
    opened = 0;
    check_changed_proof(&s->gate, data, size);
    while (size >= 3) {
        size_t used = run_part(s, data, size, &now_ns);
        data += used;
        size -= used;
    }
    store_strangers_close(s);
    for (int i = 0; i < opened; i++)
        if (sockets[i].is_open) abort(); // a descriptor leaked
    free(s);
    return 0;
}
