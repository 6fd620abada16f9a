#include "cli/cli.h"

#include "base/log.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <trireme/trireme.h>

const cli_command cli_commands[] = {
    {"train", "RECIPE [key.path=value ...]", "Train a recipe's model.", cli_train},
    {"eval", "RECIPE --checkpoint PATH [key.path=value ...]",
     "Evaluate a checkpoint on the recipe's test data.", cli_eval},
    {"run", "[torchrun's flags] PROGRAM [ARG ...]",
     "Start the ranks of this node, watch them, start them again.", cli_run},
    {"plan", "RECIPE [key.path=value ...]",
     "Show blocks, memory and schedule of a run without running it.", cli_plan},
    {"bench", "kernels [MODEL ...] | comm | data RECIPE | train RECIPE",
     "Measure kernels, collectives, loading or training.", cli_bench},
    {"data", "list | check RECIPE", "List the kinds of data sets; read one and say what is in it.",
     cli_data},
    {"checkpoint", "list | verify | export | diff PATH ... | init RECIPE",
     "Look at, verify, convert, compare or make checkpoints.", cli_checkpoint},
    {"version", "", "Print the version.", cli_version},
    {NULL, NULL, NULL, NULL},
};

static void print_commands(const char *program) {
    printf(
        "usage: %s COMMAND ...\n\nDistributed deep-learning training: the same recipe on one core "
        "or on all of them, with the same result.\n\n",
        program);
    for (const cli_command *c = cli_commands; c->name; c++)
        printf("  %-12s %s\n", c->name, c->help);
    printf("\n  trireme train recipes/mnist-cnn.yaml\n"
           "  trireme run --standalone --nproc-per-node 2 trireme train recipes/mnist-cnn.yaml\n\n"
           "trireme COMMAND --help says more.\n");
}

int cli_version(const cli_context *context, int argc, char **argv) {
    (void)context;
    static const cli_flag flags[] = {{0}};
    int count, code = cli_parse(cli_find("version"), flags, argc, argv, &count, NULL);
    if (code >= 0) return code;
    printf("trireme %s\n", tri_version());
    return 0;
}

int tri_main(int argc, char **argv, const tri_task *task) {
    cli_context context = {.program = argv[0], .task = task};
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        print_commands("trireme");
        return 2;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        print_commands("trireme");
        return 0;
    }
    if (!strcmp(argv[1], "--version")) return cli_version(&context, 1, argv);
    const cli_command *command = cli_find(argv[1]);
    if (command) {
        int code = command->run(&context, argc - 1, argv + 1);
        if (fflush(stdout) != 0 && code == 0) code = 1;
        return code;
    }
    const char *known[32];
    int count = 0;
    for (const cli_command *c = cli_commands; c->name; c++) known[count++] = c->name;
    const char *near = tri_option_nearest(argv[1], known, count);
    return cli_fail(TRI_FAIL(TRI_BAD_INPUT, "unknown command '%s'%s%s%s; trireme --help lists them",
                             argv[1], near ? " (did you mean '" : "", near ? near : "",
                             near ? "'?)" : ""));
}
