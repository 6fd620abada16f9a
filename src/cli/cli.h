// What the subcommands share. One file per subcommand; only this room names concrete backends.
#ifndef TRIREME_CLI_CLI_H
#define TRIREME_CLI_CLI_H

#include "train/session.h"

#include <getopt.h>

typedef struct cli_context {
    const char *program;  // argv[0] of the program
    const tri_task *task; // the program's own; NULL: none
} cli_context;

typedef struct cli_command {
    const char *name;
    const char *arguments;                                         // "RECIPE [key.path=value …]"
    const char *help;                                              // one line
    int (*run)(const cli_context *context, int argc, char **argv); // argv[0] is the command's name
} cli_command;

extern const cli_command cli_commands[]; // a NULL name ends it
extern const tri_backends cli_backends;

int cli_train(const cli_context *context, int argc, char **argv);
int cli_eval(const cli_context *context, int argc, char **argv);
int cli_run(const cli_context *context, int argc, char **argv);
int cli_plan(const cli_context *context, int argc, char **argv);
int cli_bench(const cli_context *context, int argc, char **argv);
// The part of `bench` that measures kernels: of the named built-in models, or of all.
tri_status cli_bench_kernels(tri_arena *arena, int count, char **models, double seconds, bool json);
int cli_data(const cli_context *context, int argc, char **argv);
int cli_checkpoint(const cli_context *context, int argc, char **argv);
int cli_version(const cli_context *context, int argc, char **argv);

// One flag of a command. Flags may stand anywhere among the arguments; `--` ends them.
typedef struct cli_flag {
    const char *name;     // without the dashes
    const char *argument; // "DIR"; NULL: a switch
    const char *help;
    const char **value; // of a flag with an argument
    bool *set;          // of a switch
} cli_flag;

// Parses argv[1…] and moves what is no flag to the front of argv + 1, their number in *count.
// --help prints usage, flags and `more` (may be NULL) and gives 0; a bad flag says so and gives 2;
// -1: go on.
int cli_parse(const cli_command *command, const cli_flag *flags, int argc, char **argv, int *count,
              const char *more);
const cli_command *cli_find(const char *name);

// Prints the thread's message as the one line of a failure and returns the exit code. Rank 0 speaks
// for all of a job; other ranks leave it to their error file (TORCHELASTIC_ERROR_FILE), which
// everyone writes.
int cli_fail(tri_status status);
// A bad command line: one line that names the command's --help. Returns 2.
int cli_usage(const cli_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// "1,199,882", in one of a few static buffers.
const char *cli_number(double value);
// "4.8 MB"
const char *cli_bytes(double bytes);

#endif
