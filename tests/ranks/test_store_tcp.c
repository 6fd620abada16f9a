// Checks the store over TCP: how ranks find rank 0 among other programs that listen, tokens and
// their files, and runs that are started again (each start is a generation).
#include "support/store_ranks.h"

#include "base/limits.h"
#include "rendezvous/store_tcp.h"
#include "rendezvous/token.h"
#include "support/message.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/stat.h>

// Makes a socket that listens at 127.0.0.1. If *port is 0, the system chooses a free port, which is
// stored in *port.
static int listen_locally(int *port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)*port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static int free_port(void) {
    int port = 0;
    close(listen_locally(&port));
    return port;
}

static void four_ranks_over_tcp(void **state) {
    pid_t pids[4];
    tri_identity zero = make_tcp_identity(0, 4, free_port());
    start_ranks(zero, 1, 3, exchange, pids);
    exchange(zero);
    end_ranks(1, 3, pids);
}

// Ranks find rank 0 at a later port if the first one is another program's, which accepts
// connections and sends nothing, as torchrun's store does.
static void another_program_has_the_first_port(void **state) {
    pid_t pids[3];
    int port = 0, other = listen_locally(&port);
    tri_identity zero = make_tcp_identity(0, 3, port);
    zero.address.ports = 4;
    start_ranks(zero, 1, 2, exchange, pids);
    exchange(zero);
    end_ranks(1, 2, pids);
    close(other);
}

static void fails_with(tri_identity identity, tri_status status, const char *text) {
    tri_store *store;
    // On a busy machine the first time limit may be too short to learn what is wrong.
    for (int limit_ms = 700; limit_ms < 20000; limit_ms *= 20) {
        assert_int_equal(tri_store_open(&identity, limit_ms, &store), status);
        if (message_has(tri_error_message(), text)) return;
    }
    message_check(tri_error_message(), text);
}

static void waits_for_others(tri_identity identity) {
    tri_store *store;
    (void)tri_store_open(&identity, WAIT_MS, &store);
}

// A rank that has the token, but belongs to another run or to another start of this run (another
// generation), is not admitted and learns why.
static void other_runs_and_generations(void **state) {
    tri_identity zero = make_tcp_identity(0, 2, free_port());
    snprintf(zero.run, sizeof zero.run, "a run");
    zero.generation = 5;
    pid_t pid = start_rank(zero, waits_for_others);
    tri_identity one = zero;
    one.rank = 1;
    one.generation = 4;
    int tries = 0, fd; // rank 1 tries again until rank 0 listens
    store_token token;
    assert_int_equal(store_token_find((const char *(*)(const char *))getenv, &token), TRI_OK);
    while (store_tcp_connect(&one, &token, 100, &fd) == TRI_NOT_FOUND && tries++ < 3000)
        usleep(20000);
    fails_with(one, TRI_MISMATCH, "generation 4|generation 5");
    one.generation = 6;
    fails_with(one, TRI_TIMEOUT, "earlier generation");
    one.generation = 5;
    snprintf(one.run, sizeof one.run, "another run");
    fails_with(one, TRI_TIMEOUT, "serves another job");
    setenv("TRIREME_TOKEN", "another token, also long", 1);
    fails_with(one, TRI_TIMEOUT, "another token|TRIREME_TOKEN_FILE");
    setenv("TRIREME_TOKEN", "a token for the tests", 1);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void lower_limit(rlim_t usual, rlim_t most) {
    REQUIRE(setrlimit(RLIMIT_NOFILE, &(struct rlimit){usual, most}) == 0);
}

static void has_few_descriptors(tri_identity me) {
    lower_limit(40, 4096); // fewer descriptors than the server needs, but it may raise the limit
    exchange(me);
}

static void has_too_few_descriptors(tri_identity me) {
    tri_store *store;
    lower_limit(64, 64);
    REQUIRE(tri_store_open(&me, WAIT_MS, &store) == TRI_BAD_INPUT);
    REQUIRE(strstr(tri_error_message(), "may open 64 files (ulimit -n)"));
}

static void limit_on_descriptors(void **state) {
    pid_t pids[3];
    tri_identity zero = make_tcp_identity(0, 3, free_port());
    start_ranks(zero, 0, 0, has_few_descriptors, pids);
    start_ranks(zero, 1, 2, exchange, pids);
    end_ranks(0, 2, pids);
    pid_t pid = start_rank(make_tcp_identity(0, 2, free_port()), has_too_few_descriptors);
    end_ranks(0, 0, &pid);
}

// The environment in which the tests below look for the token: names and values in turn.
static const char *variables[4];

static const char *get(const char *name) {
    for (int i = 0; i < 4; i += 2)
        if (variables[i] && !strcmp(variables[i], name)) return variables[i + 1];
    return NULL;
}

static void set_variable(const char *name, const char *value) {
    memset(variables, 0, sizeof variables);
    variables[0] = name;
    variables[1] = value;
}

static void refuses_token(const char *text) {
    store_token token;
    assert_int_equal(store_token_find(get, &token), TRI_BAD_INPUT);
    if (!strstr(tri_error_message(), text))
        fail_msg("'%s' does not say '%s'", tri_error_message(), text);
}

static void write_file(const char *path, const char *text, mode_t mode) {
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, mode);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void token_files(void **state) {
    char path[128];
    store_token a, b;
    snprintf(path, sizeof path, "%s/file", store_folder);
    set_variable("TRIREME_TOKEN_FILE", path);
    write_file(path, "0123456789abcdef\n", 0600);
    assert_int_equal(store_token_find(get, &a), TRI_OK);
    write_file(path, "0123456789abcdef", 0400);
    assert_int_equal(store_token_find(get, &b), TRI_OK);
    assert_memory_equal(&a, &b, sizeof a);
    set_variable("TRIREME_TOKEN", "0123456789abcdef");
    assert_int_equal(store_token_find(get, &b), TRI_OK);
    assert_memory_equal(&a, &b, sizeof a);
    set_variable("TRIREME_TOKEN", "0123456789abcdeg");
    assert_int_equal(store_token_find(get, &b), TRI_OK);
    assert_memory_not_equal(&a, &b, sizeof a);

    set_variable("TRIREME_TOKEN", "short");
    refuses_token("TRIREME_TOKEN: the token has 5 bytes");
    set_variable("TRIREME_TOKEN_FILE", path);
    static const mode_t open_modes[] = {0604, 0640, 0620, 0666};
    for (size_t i = 0; i < sizeof open_modes / sizeof *open_modes; i++) {
        write_file(path, "0123456789abcdef\n", open_modes[i]);
        refuses_token("other users");
    }
    write_file(path, "0123\n", 0600);
    refuses_token("the token has 4 bytes");
    char long_text[TRI_MAX_TOKEN_BYTES + 100];
    memset(long_text, 'a', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    write_file(path, long_text, 0600);
    refuses_token("are allowed");
    set_variable("TRIREME_TOKEN_FILE", store_folder);
    refuses_token("is not a file");
    set_variable("TRIREME_TOKEN_FILE", "missing/file");
    assert_int_equal(store_token_find(get, &a), TRI_NOT_FOUND);
    assert_non_null(strstr(tri_error_message(), "TRIREME_TOKEN_FILE: missing/file"));
    if (geteuid() != 0) return;
    set_variable("TRIREME_TOKEN_FILE", path);
    write_file(path, "0123456789abcdef\n", 0600);
    assert_int_equal(chown(path, 65534, 65534), 0);
    refuses_token("belongs to user 65534");
}

// Where the default file cannot be made, the message says how to give a token without one, and a
// home folder that does not exist is not made.
static void no_default_token(void **state) {
    char home[128], file[160];
    snprintf(home, sizeof home, "%s/nonexistent", store_folder);
    set_variable("HOME", home);
    refuses_token("set TRIREME_TOKEN to ");
    refuses_token(home);
    assert_int_equal(access(home, F_OK), -1);
    assert_int_equal(mkdir(home, 0700), 0);
    snprintf(file, sizeof file, "%s/.config", home); // nobody can make a folder there
    write_file(file, "", 0600);
    refuses_token("set TRIREME_TOKEN to ");
    refuses_token(file);
}

static void make_default(tri_identity identity) {
    store_token token;
    REQUIRE(store_token_find(get, &token) == TRI_OK);
    char path[128];
    snprintf(path, sizeof path, "%s/key-%d", store_folder, identity.rank);
    REQUIRE(tri_os_replace_file(path, &token, sizeof token) == TRI_OK);
}

// Several ranks that find no token make one, and all have the same.
static void default_token_is_made_once(void **state) {
    enum { MAKERS = 8 };
    pid_t pids[MAKERS];
    char path[128], *first = NULL, *other;
    size_t size;
    set_variable("HOME", store_folder);
    start_ranks(make_identity(0, MAKERS), 0, MAKERS - 1, make_default, pids);
    end_ranks(0, MAKERS - 1, pids);
    for (int i = 0; i < MAKERS; i++) {
        snprintf(path, sizeof path, "%s/key-%d", store_folder, i);
        assert_int_equal(tri_os_read_file(path, 100, &other, &size), TRI_OK);
        assert_int_equal(size, sizeof(store_token));
        if (first) assert_memory_equal(first, other, size);
        if (first) free(other);
        if (!first) first = other;
    }
    free(first);
    struct stat info;
    snprintf(path, sizeof path, "%s/.config/trireme/token", store_folder);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    assert_int_equal(info.st_nlink, 1); // 2 would mean that its temporary name is left
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_ranks_over_tcp),
        cmocka_unit_test(another_program_has_the_first_port),
        cmocka_unit_test(other_runs_and_generations),
        cmocka_unit_test(limit_on_descriptors),
        cmocka_unit_test(token_files),
        cmocka_unit_test(no_default_token),
        cmocka_unit_test(default_token_is_made_once),
    };
    return cmocka_run_group_tests(tests, store_set_up, store_tear_down);
}
