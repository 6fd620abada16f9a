// tri_main: finds the command that argv names and runs it. This file has the list of all commands.
#include "cli/cli.h"

#include "base/log.h"
#include "base/os.h"
#include "base/thread.h"
#include "base/variable.h"
#include "recipe/recipe.h"
#include "train/task.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <trireme/trireme.h>

const cli_command *const cli_commands[] = {
    &cli_train,
    &cli_eval,
    &cli_predict,
    &cli_generate,
    &cli_run,
    &cli_preflight,
    &cli_submit,
    &cli_plan,
    &cli_scale,
    &cli_lr_find,
    &cli_batch_find,
    &cli_bench,
    &cli_data,
    &cli_trace,
    &cli_report,
    &cli_compare,
    &cli_export,
    &cli_checkpoint,
    &cli_model,
    &cli_completion,
    &cli_manual,
    &cli_version,
    NULL,
};

static void print_commands(FILE *out) {
    fprintf(out, "usage: trireme COMMAND ...\n\n"
                 "Distributed deep-learning training: the same recipe, samples and mathematics on "
                 "one core\nand on many.\n\n");
    for (const cli_command *const *c = cli_commands; *c; c++)
        fprintf(out, "  %-12s %s\n", (*c)->name, (*c)->help);
    fprintf(out, "\nfor example\n"
                 "  trireme train recipes/mnist-cnn.yaml\n"
                 "  trireme run --standalone --nproc-per-node 2 trireme train "
                 "recipes/mnist-cnn.yaml\n\n"
                 "trireme COMMAND --help explains a command; trireme train --keys lists the keys "
                 "of a recipe.\n");
}

static int run_version(const cli_context *context, int argc, char **argv) {
    (void)context;
    cli_arguments a;
    int code = cli_parse(&cli_version, argc, argv, &a);
    if (code >= 0) return code;
    if (a.count) return cli_usage(&cli_version, "version: takes no arguments");
    printf("trireme %s\n", tri_version());
    return 0;
}

const cli_command cli_version = {.name = "version",
                                 .arguments = "",
                                 .help = "Print the version.",
                                 .examples = "trireme version\n",
                                 .run = run_version};

static int unknown_command(const char *name) {
    if (tri_recipe_is_named(name))
        return cli_fail(TRI_FAIL(TRI_BAD_INPUT,
                                 "%s: is a recipe and no command; write trireme "
                                 "train %s",
                                 name, name));
    const char *known[32];
    int count = 0;
    for (const cli_command *const *c = cli_commands; *c && count < 32; c++)
        known[count++] = (*c)->name;
    const char *near = tri_option_nearest(name, known, count);
    return cli_fail(TRI_FAIL(TRI_BAD_INPUT, "unknown command '%s'%s%s%s; trireme --help lists them",
                             name, near ? " (did you mean '" : "", near ? near : "",
                             near ? "'?)" : ""));
}

// Turns success into a failure if standard output could not be written. If the command keeps its
// results in files too, a closed pipe is only reported.
static int finish_output(int code, bool keeps_results) {
    errno = 0;
    bool is_written = fflush(stdout) == 0 && !ferror(stdout);
    if (is_written || code != 0) return code;
    const char *why = errno ? strerror(errno) : "not all was written";
    struct stat info;
    bool is_pipe =
        fstat(fileno(stdout), &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode));
    if (is_pipe && keeps_results) {
        tri_log_line(TRI_LOG_WARNING,
                     "standard output is a closed pipe: the end of what this command "
                     "prints is lost; it has done all its work");
        return 0;
    }
    if (is_pipe) why = "it is a closed pipe";
    return cli_fail(TRI_FAIL(TRI_IO, "standard output: cannot write the results: %s", why));
}

// Opens /dev/null for standard streams that are closed. Otherwise the next file that is opened
// would get a stream's number, and messages would be written into it.
static void keep_standard_streams(void) {
    for (int fd = 0; fd <= 2; fd++)
        // The stream is opened in the wrong direction, so that using it fails.
        if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

// The least stack of the main thread with which the program was tried, and the stack that it takes
// where it may: also for threads whose starter asks for no size, because their default is the
// limit that holds when the process starts.
enum { LEAST_STACK_BYTES = 128 << 10, STACK_BYTES = 8 << 20 };

// Raises a low limit of the stack (ulimit -s), so that no thread runs over its end.
static tri_status settle_stack(void) {
    struct rlimit limit;
    pthread_attr_t threads;
    size_t of_a_thread = 0;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= STACK_BYTES) return TRI_OK;
    struct rlimit raised = {STACK_BYTES,
                            limit.rlim_max > STACK_BYTES ? limit.rlim_max : STACK_BYTES};
    if (setrlimit(RLIMIT_STACK, &raised) != 0) { // only root may raise the hard limit
        raised = (struct rlimit){limit.rlim_max, limit.rlim_max};
        if (raised.rlim_cur > limit.rlim_cur && setrlimit(RLIMIT_STACK, &raised) != 0)
            raised.rlim_cur = limit.rlim_cur;
    }
    if (raised.rlim_cur < LEAST_STACK_BYTES)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "the limit of the stack (ulimit -s) is %lld KiB, and it has to be at least "
                        "%d KiB",
                        (long long)raised.rlim_cur >> 10, LEAST_STACK_BYTES >> 10);
    if (pthread_getattr_default_np(&threads) != 0) return TRI_OK;
    if (pthread_attr_getstacksize(&threads, &of_a_thread) == 0 && of_a_thread < STACK_BYTES &&
        pthread_attr_setstacksize(&threads, STACK_BYTES) == 0)
        (void)pthread_setattr_default_np(&threads);
    pthread_attr_destroy(&threads);
    return TRI_OK;
}

static int run_program(int argc, char **argv, const tri_task *task) {
    cli_context context = {.program = argc > 0 ? argv[0] : "trireme", .task = task};
    keep_standard_streams();
    tri_log_stage("main");
    tri_os_handle_suspension();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); // so that a write beyond the limit of ulimit -f fails with a message
    if (argc < 2) {
        print_commands(stderr);
        return 2;
    }
    if (task && tri_task_check(task, "this program") != TRI_OK) return cli_fail(TRI_BAD_INPUT);
    const char *name = argv[1];
    char *help_of[] = {argv[0], argc > 2 ? argv[2] : NULL, "--help", NULL};
    if (!strcmp(name, "help") && help_of[1]) {
        name = help_of[1];
        argc = 3;
        argv = help_of;
    } else if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        print_commands(stdout);
        return finish_output(0, false);
    }
    if (!strcmp(name, "--version")) name = "version";
    for (const cli_command *const *c = cli_commands; *c; c++) {
        if (strcmp((*c)->name, name) != 0) continue;
        tri_status status = settle_stack();
        if (status == TRI_OK) status = tri_variables_check(NULL);
        int code = status != TRI_OK ? cli_fail(status) : (*c)->run(&context, argc - 1, argv + 1);
        return finish_output(code, (*c)->keeps_results);
    }
    return unknown_command(name);
}

int tri_main(int argc, char **argv, const tri_task *task) {
    locale_t before = tri_thread_use_c_locale();
    int code = run_program(argc, argv, task);
    uselocale(before);
    return code;
}
