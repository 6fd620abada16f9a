// Tests connections to the store's TCP port that do not come from a rank: without a token, with a
// wrong or a replayed proof, with lengths of 4 GB, slow senders, port scans. Each is turned away
// before anything is allocated for it, the job is unharmed, and the store listens at the given
// address and at no other. The store is the service at which the ranks of a job meet. The token is
// the job's secret; a rank's proof shows that it has the token.
#include "support/store_ranks.h"

#include "base/limits.h"
#include "rendezvous/greeting.h"
#include "rendezvous/store_core.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>

enum {
    CROWD = 300,
    SCANS = 500,
    RUBBISH_BYTES = 8 << 20,
    ROOM_KIB = 2048,
    SOON_MS = 60000, // far longer than the server needs; a connection that it forgets stays open
};

static int port;
static pid_t server;
static tri_identity zero;
static double connecting_s; // when this process began to connect for the last time

static int connect_raw(void) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    double end = tri_os_seconds() + 1e-3 * SOON_MS;
    while ((connecting_s = tri_os_seconds()) < end) {
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
        close(fd);
        usleep(10000);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
    fail_msg("nothing listens at port %d", port);
    return -1;
}

static void read_all(int fd, void *data, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t got = read(fd, (char *)data + done, size - done);
        if (got <= 0) fail_msg("the server closed a connection early");
        done += (size_t)got;
    }
}

// Checks that the server sends nothing more and closes the connection, and not only because the
// time for the greeting is up.
static void check_closed(int fd) {
    char byte;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, SOON_MS), 1);
    assert_true(read(fd, &byte, 1) <= 0);
    assert_true((tri_os_seconds() - connecting_s) * 1e3 < TRI_STORE_GREETING_MS);
    close(fd);
}

static int connect_greeted(store_challenge *challenge) {
    int fd = connect_raw();
    read_all(fd, challenge, sizeof *challenge);
    return fd;
}

static store_token token_of(const char *text) {
    store_token token;
    setenv("TRIREME_TOKEN", text, 1);
    assert_int_equal(store_token_find((const char *(*)(const char *))getenv, &token), TRI_OK);
    setenv("TRIREME_TOKEN", "a token for the tests", 1);
    return token;
}

static void no_token(void) {
    static const char *const texts[] = {"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "\x16\x03\x01", ""};
    store_challenge challenge;
    char rubbish[sizeof(store_proof)];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        memset(rubbish, 0, sizeof rubbish);
        memcpy(rubbish, texts[i], strlen(texts[i]));
        int fd = connect_greeted(&challenge);
        assert_int_equal(write(fd, rubbish, sizeof rubbish), sizeof rubbish);
        check_closed(fd);
    }
}

static void wrong_token(void) {
    store_token token = token_of("another token, also long");
    store_challenge challenge;
    store_proof proof;
    int fd = connect_greeted(&challenge);
    assert_int_equal(store_proof_make(&token, &zero, &challenge, &proof), TRI_OK);
    assert_int_equal(write(fd, &proof, sizeof proof), sizeof proof);
    check_closed(fd);
}

// Checks that the server rejects a proof that was recorded on another connection, where it was
// right, and a right proof in which one bit was flipped.
static void replayed_proof(void) {
    store_token token = token_of("a token for the tests");
    store_challenge challenge;
    store_proof proof;
    store_verdict verdict;
    int first = connect_greeted(&challenge);
    assert_int_equal(store_proof_make(&token, &zero, &challenge, &proof), TRI_OK);
    assert_int_equal(write(first, &proof, sizeof proof), sizeof proof);
    read_all(first, &verdict, sizeof verdict);
    assert_int_equal(verdict.admission, STORE_ADMITTED);
    int second = connect_greeted(&challenge);
    assert_int_equal(write(second, &proof, sizeof proof), sizeof proof);
    check_closed(second);
    close(first);
    for (size_t byte = 0; byte < sizeof proof; byte += 5) {
        int fd = connect_greeted(&challenge);
        assert_int_equal(store_proof_make(&token, &zero, &challenge, &proof), TRI_OK);
        ((unsigned char *)&proof)[byte] ^= 1 << byte % 8;
        assert_int_equal(write(fd, &proof, sizeof proof), sizeof proof);
        check_closed(fd);
    }
}

static long peak_kib(pid_t pid) {
    char path[64], *text;
    size_t size;
    snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
    assert_int_equal(tri_os_read_file(path, 1 << 16, &text, &size), TRI_OK);
    const char *line = strstr(text, "VmHWM:");
    assert_non_null(line);
    long kib = atol(line + 6);
    free(text);
    return kib;
}

// Sends a message whose head announces a value of 4 GB, and some of its bytes: on a connection that
// has not proved that it knows the token, and on one that has. The server must close both.
static void length_of_4_gb(void) {
    store_token token = token_of("a token for the tests");
    store_challenge challenge;
    store_proof proof;
    store_verdict verdict;
    long before_kib = peak_kib(server);
    char *rubbish = calloc(1, RUBBISH_BYTES);
    store_head head = {.kind = STORE_SET, .key_bytes = 1, .value_bytes = UINT32_MAX};
    memcpy(rubbish, &head, sizeof head);
    for (int is_admitted = 0; is_admitted < 2; is_admitted++) {
        int fd = connect_greeted(&challenge);
        if (is_admitted) {
            assert_int_equal(store_proof_make(&token, &zero, &challenge, &proof), TRI_OK);
            assert_int_equal(write(fd, &proof, sizeof proof), sizeof proof);
            read_all(fd, &verdict, sizeof verdict);
        }
        for (int i = 0; i < 4; i++)
            if (send(fd, rubbish, RUBBISH_BYTES, MSG_NOSIGNAL) < 0) break;
        check_closed(fd);
    }
    free(rubbish);
    assert_true(peak_kib(server) - before_kib < ROOM_KIB);
}

// Connects and sends one byte at a time, so slowly that the time for the greeting is up before the
// whole proof is sent. Then, and not before, the server closes the connection.
static void slow_sender(void) {
    store_challenge challenge;
    char byte;
    int fd = connect_greeted(&challenge);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    size_t sent = 0;
    while (poll(&p, 1, 200) == 0 && sent < sizeof(store_proof) - 1)
        sent += send(fd, "x", 1, MSG_NOSIGNAL) == 1;
    assert_int_equal(poll(&p, 1, SOON_MS), 1);
    assert_true(read(fd, &byte, 1) <= 0);
    assert_true((tri_os_seconds() - connecting_s) * 1e3 >= TRI_STORE_GREETING_MS);
    assert_true(sent < sizeof(store_proof) - 1);
    close(fd);
}

static void port_scan(void) {
    for (int i = 0; i < SCANS; i++) close(connect_raw());
}

// Opens far more connections than the server has room for. They send nothing, and stay open while
// rank 1 arrives.
static void crowd(int fds[CROWD]) {
    for (int i = 0; i < CROWD; i++) fds[i] = connect_raw();
}

static bool has_descriptor(pid_t pid, unsigned long inode) {
    char wanted[64], path[96], link[64];
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    for (int fd = 0; fd < 1024; fd++) {
        snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)pid, fd);
        ssize_t length = readlink(path, link, sizeof link - 1);
        if (length < 0) continue;
        link[length] = 0;
        if (!strcmp(link, wanted)) return true;
    }
    return false;
}

// Checks with the kernel's list of sockets that the server listens at 127.0.0.1 and nowhere else.
static void check_bound_addresses(void) {
    static const char *const tables[] = {"/proc/net/tcp", "/proc/net/tcp6"};
    int listening = 0;
    for (int t = 0; t < 2; t++) {
        FILE *file = fopen(tables[t], "r");
        char line[512], local[64], state[8];
        unsigned long inode;
        assert_non_null(file);
        while (fgets(line, sizeof line, file)) {
            int found =
                sscanf(line, "%*s %63s %*s %7s %*s %*s %*s %*s %*s %lu", local, state, &inode);
            if (found != 3 || strcmp(state, "0A") != 0 || !has_descriptor(server, inode)) continue;
            char expected[64];
            snprintf(expected, sizeof expected, "0100007F:%04X", port);
            assert_string_equal(local, expected);
            listening++;
        }
        fclose(file);
    }
    assert_int_equal(listening, 1);
}

static void strangers_are_turned_away(void **state) {
    static int fds[CROWD];
    no_token();
    wrong_token();
    replayed_proof();
    length_of_4_gb();
    slow_sender();
    port_scan();
    check_bound_addresses();
    crowd(fds);
    double begin = tri_os_seconds();
    tri_identity one = zero;
    one.rank = 1;
    pid_t pid = start_rank(one, exchange);
    end_ranks(0, 0, &pid);
    // Rank 0 ends with code 0 only if `exchange` found in the store exactly what the two ranks have
    // written there.
    end_ranks(0, 0, &server);
    // The crowd makes room earlier than by the end of its time, which would take four rounds.
    assert_true((tri_os_seconds() - begin) * 1e3 <
                CROWD / TRI_MAX_STORE_STRANGERS * TRI_STORE_GREETING_MS);
    for (int i = 0; i < CROWD; i++) close(fds[i]);
}

static int set_up(void **state) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        return -1;
    close(fd);
    port = ntohs(address.sin_port);
    setenv("TRIREME_TOKEN", "a token for the tests", 1);
    zero = make_tcp_identity(0, 2, port);
    server = start_rank(zero, exchange);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(strangers_are_turned_away)};
    return cmocka_run_group_tests(tests, set_up, NULL);
}
