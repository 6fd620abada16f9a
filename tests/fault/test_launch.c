// `trireme run` with workers that fail, hang or are killed, and with a launcher that is killed.
// Each case starts its own launcher, which is this program with the argument "run".
#include "base/os.h"
#include "launch/launch.h"
#include "rendezvous/rendezvous.h"
#include "support/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64]; // the test case's folder, removed after the case
static char out_path[128], err_path[128];

static char *text_of(const char *path) {
    char *text = NULL;
    size_t size;
    if (tri_os_read_file(path, 64 << 20, &text, &size) != TRI_OK)
        fail_msg("%s", tri_error_message());
    return text;
}

static pid_t start(const char *const *arguments) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char *argv[64] = {"trireme", "run"};
    for (int i = 0; arguments[i]; i++) argv[2 + i] = arguments[i];
    int in = open("/dev/null", O_RDONLY);
    int out = open(out_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int err = open(err_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(in, 0);
    dup2(out, 1);
    dup2(err, 2);
    execv("/proc/self/exe", (char **)argv);
    _exit(99);
}

static int wait_code(pid_t pid) {
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

#define START(...) start((const char *const[]){__VA_ARGS__, NULL})
#define RUN(...) wait_code(START(__VA_ARGS__))
#define WORKERS(n) "--standalone", "--nproc-per-node", #n
#define UNTIL "until test "
#define DO "; do sleep 0.01; done; "

// Checks that `words` are in the file at `path` (the launcher's output), or not: `expected`.
static void check_text(const char *path, const char *words, bool expected, int line) {
    char *text = text_of(path);
    if ((strstr(text, words) != NULL) != expected)
        fail_msg("line %d: '%s' should%s be in:\n%s", line, words, expected ? "" : " not", text);
    free(text);
}
#define HAS(path, words) check_text(path, words, true, __LINE__)
#define HAS_NOT(path, words) check_text(path, words, false, __LINE__)

static int count_of(const char *path, const char *words) {
    char *text = text_of(path);
    int count = 0;
    for (char *at = text; (at = strstr(at, words)); at++) count++;
    free(text);
    return count;
}

static void every_variable(void **state) {
    setenv("PET_ROLE", "oars", 1);
    int code = RUN("--standalone", "--nproc_per_node=2", "--max_restarts", "4", "--rdzv-id=ignored",
                   "sh", "-c",
                   "sleep 0.$RANK; echo $RANK.$LOCAL_RANK.$GROUP_RANK.$ROLE_RANK of "
                   "$WORLD_SIZE.$LOCAL_WORLD_SIZE.$GROUP_WORLD_SIZE.$ROLE_WORLD_SIZE $ROLE_NAME "
                   "at $MASTER_ADDR:${MASTER_PORT:+port} try $TORCHELASTIC_RESTART_COUNT of "
                   "$TORCHELASTIC_MAX_RESTARTS omp $OMP_NUM_THREADS id ${#TORCHELASTIC_RUN_ID} "
                   "store $TORCHELASTIC_USE_AGENT_STORE error ${TORCHELASTIC_ERROR_FILE##*/}");
    unsetenv("PET_ROLE");
    assert_int_equal(code, 0);
    HAS(out_path, "0.0.0.0 of 2.2.1.2 oars at 127.0.0.1:port try 0 of 4 omp 1 id 32 store False "
                  "error error.json\n");
    HAS(out_path, "1.1.0.1 of 2.2.1.2 oars at 127.0.0.1:port try 0 of 4 omp 1 id 32 store False "
                  "error error.json\n");
    // TRIREME_NONCE is the same for all ranks of an attempt, differs between runs, and is too long
    // for other users to guess.
    char *nonces[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(RUN("--nproc-per-node=2", "--master-port=31234", "sh", "-c",
                             "echo ${#TRIREME_NONCE} $TRIREME_NONCE"),
                         0);
        nonces[i] = text_of(out_path);
        assert_int_equal(strlen(nonces[i]), 2 * (3 + 32 + 1));
        assert_memory_equal(nonces[i], nonces[i] + 36, 36);
        assert_memory_equal(nonces[i], "32 ", 3);
    }
    assert_string_not_equal(nonces[0], nonces[1]);
    for (int i = 0; i < 2; i++) free(nonces[i]);
    // A single worker gets no OMP_NUM_THREADS; a static rendezvous keeps the given address.
    assert_int_equal(
        RUN("--master-addr=localhost", "--master-port=31234", "--rdzv-id", "seven", "sh", "-c",
            "echo $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID omp${OMP_NUM_THREADS-unset}"),
        0);
    HAS(out_path, "localhost:31234 seven ompunset\n");
    setenv("OMP_NUM_THREADS", "3", 1);
    assert_int_equal(RUN(WORKERS(2), "sh", "-c", "echo omp $OMP_NUM_THREADS"), 0);
    unsetenv("OMP_NUM_THREADS");
    HAS(out_path, "omp 3\nomp 3\n");
}

static void how_programs_are_run(void **state) {
    char script[128];
    snprintf(script, sizeof script, "%s/it.py", folder);
    close(open(script, O_CREAT | O_WRONLY, 0600));
    setenv("PYTHON_EXEC", "/bin/echo", 1);
    assert_int_equal(RUN(script, "--epochs", "3"), 0);
    HAS(out_path, "-u /tmp/");
    HAS(out_path, "it.py --epochs 3\n");
    assert_int_equal(RUN("-m", "pkg.train", "--local=${local_rank}"), 0);
    HAS(out_path, "-u -m pkg.train --local=0\n");
    assert_int_equal(RUN("--run-path", script), 0);
    HAS(out_path, "runpy.run_path");
    unsetenv("PYTHON_EXEC");
    assert_int_equal(RUN("--no-python", "echo", "--", "a b"), 0);
    HAS(out_path, "-- a b\n");
    // The command `trireme` means the launcher's own program, which need not be on PATH.
    assert_int_equal(RUN("trireme", "hello"), 0);
    HAS(out_path, "hello from the program itself\n");
}

static void restarts_until_it_works(void **state) {
    char script[256];
    snprintf(script, sizeof script,
             "echo $RANK >>%s/tries; test $RANK = 0 || test $TORCHELASTIC_RESTART_COUNT = 2",
             folder);
    assert_int_equal(RUN(WORKERS(2), "--max-restarts", "3", "sh", "-c", script), 0);
    char tries[128];
    snprintf(tries, sizeof tries, "%s/tries", folder);
    assert_int_equal(count_of(tries, "1\n"), 3);
    HAS(err_path, "restart 2 of 3");
    HAS_NOT(err_path, "root cause");
}

static void always_crashing(void **state) {
    char script[256], tries[128];
    snprintf(tries, sizeof tries, "%s/tries", folder);
    snprintf(script, sizeof script, "test $RANK = 1 || exec sleep 600; echo $$ >>%s; exit 7",
             tries);
    assert_int_equal(RUN(WORKERS(3), "--max-restarts=2", "sh", "-c", script), 1);
    assert_int_equal(count_of(tries, "\n"), 3);
    HAS(err_path, "attempt 3 of 3");
    HAS(err_path, ":\n  rank 1 (local rank 1) on ");
    HAS(err_path, "exit code 7");
    HAS_NOT(err_path, "rank 0 ("); // the launcher stopped rank 0, so that is no failure
}

// A restart cannot mend bad usage, a bad recipe or bad input.
static void bad_input_is_not_retried(void **state) {
    char script[256], tries[128];
    snprintf(tries, sizeof tries, "%s/tries", folder);
    snprintf(script, sizeof script, "test $RANK = 1 || exec sleep 600; echo $$ >>%s; exit 2",
             tries);
    assert_int_equal(RUN(WORKERS(2), "--max-restarts=5", "sh", "-c", script), 2);
    assert_int_equal(count_of(tries, "\n"), 1);
    HAS(err_path, "attempt 1 of 6");
    HAS_NOT(err_path, "restart 1");
}

static int folders_of_runs(const char *where) {
    int count = 0;
    DIR *dir = opendir(where);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) count += !strncmp(e->d_name, "trireme-run-", 12);
    closedir(dir);
    return count;
}

// The next launcher removes the temporary folder of a launcher that was killed, and nothing else.
static void folder_of_a_dead_launcher_is_removed(void **state) {
    char where[96], kept[160], link_path[160], precious[160];
    snprintf(where, sizeof where, "%s/tmp", folder);
    snprintf(kept, sizeof kept, "%s/trireme-run-unknown_abcdef", where);
    snprintf(link_path, sizeof link_path, "%s/trireme-run-link_abcdef", where);
    snprintf(precious, sizeof precious, "%s/precious", folder);
    assert_int_equal(mkdir(where, 0777), 0);
    assert_int_equal(mkdir(kept, 0777), 0); // without the file .owner, so no launcher's folder
    assert_int_equal(mkdir(precious, 0777), 0);
    assert_int_equal(symlink(precious, link_path), 0);
    setenv("TMPDIR", where, 1);
    long pid_of_worker;
    pid_t dead = START("sh", "-c", "echo $$ >>$0/pids; exec sleep 600", folder);
    processes_read_pids(folder, &pid_of_worker, 1);
    assert_int_equal(folders_of_runs(where), 3);
    char owned[512], beside[512];
    snprintf(owned, sizeof owned, "cp %s/trireme-run-none_*/.owner %s", where, precious);
    assert_int_equal(system(owned), 0);
    kill(dead, SIGKILL);
    assert_int_equal(wait_code(dead), 1000 + SIGKILL);
    assert_int_equal(folders_of_runs(where), 3);
    snprintf(beside, sizeof beside, "test $(ls -d %s/trireme-run-none_* | wc -l) = 1", where);
    assert_int_equal(RUN("sh", "-c", beside),
                     0); // the run's own folder is there, the dead launcher's is not
    assert_int_equal(folders_of_runs(where), 2);
    assert_int_equal(access(kept, F_OK), 0);
    assert_int_equal(access(precious, F_OK), 0);
    unsetenv("TMPDIR");
}

static void idle_flags_are_named(void **state) {
    assert_int_equal(RUN("--standalone", "--monitor-interval", "1", "--rdzv-backend=c10d",
                         "--rdzv-endpoint", "localhost:0", "--start-method=fork", "true"),
                     0);
    HAS(err_path, "--monitor-interval has no effect: ");
    HAS(err_path, "--rdzv-backend has no effect: ");
    HAS(err_path, "--rdzv-endpoint has no effect: ");
    HAS(err_path, "--start-method has no effect: ");
    assert_int_equal(count_of(err_path, "\n"), 4);
    assert_int_equal(RUN("--rdzv-backend=c10d", "--max-restarts=1", "true"), 0);
    assert_int_equal(count_of(err_path, "\n"), 0);
}

static void error_files_tell_the_cause(void **state) {
    // Both workers fail; rank 1 ends later, but with the earlier time stamp, so it is the cause.
    assert_int_equal(
        RUN(WORKERS(2), "sh", "-c",
            "trap '' TERM; if test $RANK = 0; then " UNTIL "-e $0/ready" DO "echo $$ >$0/pid; "
            "stamp=2000; else touch $0/ready; " UNTIL "-s $0/pid" DO
            "while grep -q ') [^ZX]' /proc/$(cat $0/pid)/stat; do sleep 0.01; done; stamp=1000; "
            "fi; "
            "printf %s "
            "'{\"message\": {\"message\": \"RuntimeError: of '$RANK'\\nsecond line\", "
            "\"extraInfo\": "
            "{\"timestamp\": \"'$stamp'\"}, \"errorCode\": 5}}' >$TORCHELASTIC_ERROR_FILE; exit 1",
            folder),
        1);
    HAS(err_path, "2 of 2 workers");
    char *text = text_of(err_path), *cause = strstr(text, "root cause"),
         *later = strstr(text, "later failures");
    assert_true(later && cause && later < cause);
    assert_non_null(strstr(cause, "rank 1"));
    assert_non_null(strstr(cause, "      RuntimeError: of 1\n      second line\n"));
    assert_null(strstr(cause, "of 0"));
    free(text);
    assert_int_equal(RUN("sh", "-c",
                         "printf %s '{\"message\": \"plain \\u001b[31mtext\"}' "
                         ">$TORCHELASTIC_ERROR_FILE; exit 4"),
                     1);
    HAS(err_path, "plain ?[31mtext");
    assert_int_equal(RUN("sh", "-c", "echo '{{{' >$TORCHELASTIC_ERROR_FILE; exit 4"), 1);
    HAS(err_path, "exit code 4");
}

static void ends_by_signal_and_exit_codes(void **state) {
    assert_int_equal(RUN(WORKERS(2), "sh", "-c", "test $RANK = 0 && exec sleep 600; kill -SEGV $$"),
                     1);
    HAS(err_path, "ended by SIGSEGV");
    assert_int_equal(RUN(WORKERS(2), "sh", "-c", "exit 2"), 2); // the workers had bad input
    // The code is 2 also if a rank that is still running has written an error file before.
    assert_int_equal(
        RUN(WORKERS(2), "sh", "-c",
            "test $RANK = 0 && { " UNTIL "-e $0/told" DO
            "exit 2; }; printf %s '{\"message\": {\"message\": "
            "\"bad\", \"extraInfo\": {\"timestamp\": \"1000\"}}}' >$TORCHELASTIC_ERROR_FILE; "
            "touch $0/told; exec sleep 600",
            folder),
        2);
    // Exit code 75, stopped with a checkpoint, is passed on, and is not a failure.
    char script[256], tries[128];
    snprintf(tries, sizeof tries, "%s/tries", folder);
    snprintf(script, sizeof script, "echo x >>%s; exit 75", tries);
    assert_int_equal(RUN(WORKERS(2), "--max-restarts=3", "sh", "-c", script), 75);
    assert_int_equal(count_of(tries, "x"), 2);
    HAS_NOT(err_path, "fail");
    assert_int_equal(RUN(WORKERS(2), "sh", "-c", "exit $((75 - 74 * RANK))"),
                     1); // rank 0 ends with 75 and rank 1 with 1: the failure decides
}

#define WAIT_LOOP "echo $$ >>$0/pids; while :; do sleep 0.05; done"

static void signals_are_passed_on(void **state) {
    long pids[2];
    char path[128];
    snprintf(path, sizeof path, "%s/pids", folder);
    const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        pid_t pid = START(WORKERS(2), "sh", "-c",
                          "trap 'exit 75' TERM INT HUP USR1 USR2 XCPU; " WAIT_LOOP, folder);
        processes_read_pids(folder, pids, 2);
        kill(pid, numbers[i]);
        assert_int_equal(wait_code(pid), 75);
        unlink(path);
    }
    pid_t pid = START(WORKERS(2), "sh", "-c", WAIT_LOOP, folder);
    processes_read_pids(folder, pids, 2);
    kill(pid, SIGTERM);
    assert_int_equal(wait_code(pid), 128 + SIGTERM);
    HAS_NOT(err_path, "root cause");
    unlink(path);
    // A worker that ignores the signal is killed after the time limit.
    pid =
        START(WORKERS(2), "--shutdown-timeout=0.5", "sh", "-c", "trap '' TERM; " WAIT_LOOP, folder);
    processes_read_pids(folder, pids, 2);
    double begin = tri_os_seconds();
    kill(pid, SIGTERM);
    assert_int_equal(wait_code(pid), 128 + SIGTERM);
    assert_true(tri_os_seconds() - begin >= 0.5);
    processes_end(pids, 2);
    unlink(path);
    // A suspended worker is continued, so that it gets the signal.
    pid = START(WORKERS(2), "sh", "-c", "trap 'exit 75' TERM; " WAIT_LOOP, folder);
    processes_read_pids(folder, pids, 2);
    kill((pid_t)pids[0], SIGSTOP);
    kill(pid, SIGTERM);
    assert_int_equal(wait_code(pid), 75);
}

static void killed_launcher_takes_all_with_it(void **state) {
    long pids[4];
    // Each worker also has a child, and waits for it.
    pid_t pid = START(WORKERS(2), "sh", "-c",
                      "sleep 600 & echo $$ >>$0/pids; echo $! >>$0/pids; wait", folder);
    processes_read_pids(folder, pids, 4);
    for (int i = 0; i < 4; i++) assert_true(processes_live(pids[i]));
    kill(pid, SIGKILL);
    assert_int_equal(wait_code(pid), 1000 + SIGKILL);
    processes_end(pids, 4);
}

static void killed_worker_ends_all(void **state) {
    long pids[4];
    pid_t pid = START(WORKERS(2), "sh", "-c",
                      "sleep 600 & echo $$ >>$0/pids; echo $! >>$0/pids; wait", folder);
    processes_read_pids(folder, pids, 4);
    kill((pid_t)pids[0], SIGKILL);
    assert_int_equal(wait_code(pid), 1);
    processes_end(pids, 4); // pids of the workers and of their children
    HAS(err_path, "ended by SIGKILL");
    HAS(err_path, "killed from outside");
}

static void leftover_children_end_with_the_run(void **state) {
    long pids[1];
    assert_int_equal(RUN("--tee=3", "sh", "-c", "sleep 600 & echo $! >>$0/pids", folder), 0);
    processes_read_pids(folder, pids, 1);
    processes_end(pids, 1);
}

static char *worker_file(const char *name) {
    static char text[512];
    char command[512];
    snprintf(command, sizeof command, "cat %s/logs/*/attempt_0/%s 2>/dev/null", folder, name);
    FILE *pipe = popen(command, "r");
    size_t size = fread(text, 1, sizeof text - 1, pipe);
    text[size] = 0;
    pclose(pipe);
    return text;
}

static void tee_and_redirect(void **state) {
    char logs[128];
    snprintf(logs, sizeof logs, "%s/logs", folder);
    const char *script = "echo out $RANK; echo err $RANK >&2; printf unended";
    assert_int_equal(
        RUN(WORKERS(2), "--log-dir", logs, "-t", "0:1", "-r", "1:3", "sh", "-c", script), 0);
    HAS(out_path, "[default0]:out 0\n[default0]:unended\n");
    HAS_NOT(out_path, "out 1");
    HAS(err_path, "err 0\n"); // rank 0's standard error is not redirected: it has no prefix
    HAS_NOT(err_path, "[default0]");
    HAS_NOT(err_path, "err 1");
    assert_string_equal(worker_file("0/stdout.log"), "out 0\nunended");
    assert_string_equal(worker_file("0/stderr.log"), "");
    assert_string_equal(worker_file("1/stdout.log"), "out 1\nunended");
    assert_string_equal(worker_file("1/stderr.log"), "err 1\n");
    tri_os_remove_tree(logs);
    assert_int_equal(RUN(WORKERS(2), "--log-dir", logs, "-t3", "--local-ranks-filter=1", "--role",
                         "oar", "sh", "-c", script),
                     0);
    HAS(out_path, "[oar1]:out 1\n");
    HAS(err_path, "[oar1]:err 1\n");
    HAS_NOT(out_path, "out 0");
    HAS_NOT(err_path, "err 0");
    assert_string_equal(worker_file("0/stderr.log"), "err 0\n");
    assert_int_equal(RUN(WORKERS(2), "--local-ranks-filter=1", "sh", "-c", script), 0);
    HAS(out_path, "out 1\n");
    HAS_NOT(out_path, "out 0");
    // The report names the log of a failed worker.
    assert_int_equal(RUN("--log-dir", logs, "-r3", "sh", "-c", "exit 1"), 1);
    HAS(err_path, "stderr.log\n");
}

static void slow_console_loses_nothing(void **state) {
    char command[512];
    snprintf(command, sizeof command,
             "%s/bin/fault_test_launch run --standalone --nproc-per-node 2 --tee 1 --log-dir "
             "%s/logs seq 60000 2>/dev/null "
             "| (sleep 0.5; sort | uniq -c | awk '{n[$2 ~ /^.default0.:/] += $1} END {print n[0], "
             "n[1]}')",
             TRIREME_BUILD_DIR, folder);
    char text[64] = "";
    FILE *pipe = popen(command, "r");
    assert_non_null(fgets(text, sizeof text, pipe));
    pclose(pipe);
    assert_string_equal(text, "60000 60000\n");
}

static void binding(void **state) {
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
        print_message("skipped: binding needs two cores\n");
        skip();
    }
    assert_int_equal(RUN(WORKERS(2), "--numa-binding=exclusive", "sh", "-c",
                         "echo cpus $(nproc) $(grep Cpus_allowed: /proc/self/status)"),
                     0);
    char *text = text_of(out_path), *second = strchr(text, '\n');
    assert_non_null(second);
    *second++ = 0;
    second[strcspn(second, "\n")] = 0;
    assert_string_not_equal(text, second);
    free(text);
    assert_int_equal(RUN(WORKERS(2), "--numa-binding=node", "true"), 0);
    assert_int_equal(RUN(WORKERS(2), "--numa-binding=socket", "true"), 0);
}

static const struct {
    const char *arguments[6];
    const char *named;
} bad[] = {
    {{NULL}, "PROGRAM"},
    {{"--nope", "true"}, "--nope"},
    {{"--n", "1", "true"}, "--n"},
    {{"-z", "true"}, "-z"},
    {{"--nproc-per-node"}, "--nproc-per-node"},
    {{"--nproc-per-node", "0", "true"}, "--nproc-per-node"},
    {{"--nproc-per-node", "many", "true"}, "many"},
    {{"--nproc-per-node", "100000", "true"}, "100000"},
    {{"--nnodes", "2:1", "true"}, "2:1"},
    {{"--nnodes", "2", "--rdzv-backend", "c10d", "true"}, "--rdzv-endpoint"},
    {{"--nnodes", "2", "--rdzv-endpoint", "a:b", "true"}, "a:b"},
    {{"--nnodes", "2", "--rdzv-endpoint", "localhost:4294996696", "true"}, "4294996696"},
    {{"--nnodes", "2", "--rdzv-endpoint", "::1", "true"}, "[ADDRESS]"},
    {{"--nnodes", "2", "--rdzv-endpoint", "fe80::1:29400", "true"}, "[ADDRESS]"},
    {{"--nnodes", "1:2", "true"}, "c10d"},
    {{"--nnodes", "2", "--standalone", "true"}, "--standalone"},
    {{"--rdzv-backend", "etcd", "true"}, "etcd"},
    {{"--rdzv-conf", "join_timeout=soon", "true"}, "soon"},
    {{"--rdzv-conf", "x", "true"}, "--rdzv-conf"},
    {{"--tee", "4", "true"}, "--tee"},
    {{"-t", "0:1,", "true"}, "0:1,"},
    {{"-r", "0:1,0:2", "true"}, "0:1,0:2"},
    {{"--local-ranks-filter", "a", "true"}, "--local-ranks-filter"},
    {{"--max-restarts", "-1", "true"}, "--max-restarts"},
    {{"--monitor-interval", "nan", "true"}, "--monitor-interval"},
    {{"--master-port", "70000", "true"}, "70000"},
    {{"--node-rank", "1", "true"}, "--node-rank"},
    {{"--numa-binding", "moon", "true"}, "moon"},
    {{"--signals-to-handle", "SIGKILL", "true"}, "SIGKILL"},
    {{"--logs-specs", "mine", "true"}, "mine"},
    {{"-m", "--no-python", "true"}, "--module"},
    {{"no-such-program"}, "no-such-program"},
    {{"./no-such-program"}, "./no-such-program"},
    {{"/etc/passwd"}, "/etc/passwd"},
    {{"missing.py"}, "missing.py"},
};

static void bad_usage_is_one_line(void **state) {
    char logs[128];
    snprintf(logs, sizeof logs, "%s/logs", folder);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *arguments[10] = {"--log-dir", logs};
        for (int k = 0; bad[i].arguments[k]; k++) arguments[2 + k] = bad[i].arguments[k];
        int code = wait_code(start(arguments));
        char *text = text_of(err_path);
        if (code != 2 || !strstr(text, bad[i].named) || strchr(text, '\n') != strrchr(text, '\n'))
            fail_msg("case %zu ends with %d and says: %s", i, code, text);
        free(text);
        if (access(logs, F_OK) == 0) fail_msg("case %zu made a folder", i);
    }
    setenv("PET_MAX_RESTARTS", "often", 1);
    assert_int_equal(RUN("true"), 2);
    unsetenv("PET_MAX_RESTARTS");
    HAS(err_path, "PET_MAX_RESTARTS");
}

static void help_is_on_standard_output(void **state) {
    assert_int_equal(RUN("--help"), 0);
    HAS(out_path, "--nproc-per-node N|auto|cpu|gpu");
    HAS(out_path, "PET_<NAME>");
    char *text = text_of(err_path);
    assert_string_equal(text, "");
    free(text);
}

static int set_up(void **state) {
    snprintf(folder, sizeof folder, "/tmp/test-launch-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(out_path, sizeof out_path, "%s/out", folder);
    snprintf(err_path, sizeof err_path, "%s/err", folder);
    return 0;
}

static int tear_down(void **state) { return tri_os_remove_tree(folder) == TRI_OK ? 0 : -1; }

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static const char *from_environment(const char *name) { return getenv(name); }

static int who_am_i(void) {
    tri_identity me;
    tri_store *store;
    int64_t met;
    char all[8];
    size_t size;
    tri_status status = tri_identity_read(from_environment, &me);
    if (status == TRI_OK) status = tri_store_open(&me, 20000, &store);
    if (status == TRI_OK) status = tri_store_add(store, "met", 1, &met);
    if (status == TRI_OK && met == me.size) status = tri_store_set(store, "all", "yes", 3);
    if (status == TRI_OK) status = tri_store_get(store, "all", 20000, all, sizeof all, &size);
    if (status == TRI_OK) status = tri_store_add(store, "met", 0, &met);
    if (status != TRI_OK) {
        fprintf(stderr, "%s\n", tri_error_message());
        return tri_status_exit_code(status);
    }
    printf("%s rank %d of %d, local %d of %d, met %d\n", me.launcher, me.rank, me.size,
           me.local_rank, me.local_size, (int)met);
    tri_store_close(store);
    return 0;
}

static void workers_meet(void **state) {
    assert_int_equal(RUN(WORKERS(3), "trireme", "whoami"), 0);
    HAS(out_path, "torchrun rank 0 of 3, local 0 of 3, met 3\n");
    HAS(out_path, "torchrun rank 2 of 3, local 2 of 3, met 3\n");
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "run")) return tri_launch_main(argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "hello")) return puts("hello from the program itself") < 0;
    if (argc > 1 && !strcmp(argv[1], "whoami")) return who_am_i();
    unsetenv("OMP_NUM_THREADS");
    const struct CMUnitTest tests[] = {
        CASE(every_variable),
        CASE(how_programs_are_run),
        CASE(workers_meet),
        CASE(restarts_until_it_works),
        CASE(always_crashing),
        CASE(bad_input_is_not_retried),
        CASE(folder_of_a_dead_launcher_is_removed),
        CASE(idle_flags_are_named),
        CASE(error_files_tell_the_cause),
        CASE(ends_by_signal_and_exit_codes),
        CASE(signals_are_passed_on),
        CASE(killed_launcher_takes_all_with_it),
        CASE(killed_worker_ends_all),
        CASE(leftover_children_end_with_the_run),
        CASE(tee_and_redirect),
        CASE(slow_console_loses_nothing),
        CASE(binding),
        CASE(bad_usage_is_one_line),
        CASE(help_is_on_standard_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
