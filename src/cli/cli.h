// What the subcommands share: their tables of flags, the parser of command lines, messages. Each
// subcommand is a file of its own. Only src/cli names concrete devices and communicators.
#ifndef TRIREME_CLI_CLI_H
#define TRIREME_CLI_CLI_H

#include "base/quantity.h"
#include "train/session.h"

typedef struct cli_context {
    const char *program;  // argv[0] of the program
    const tri_task *task; // the task that a user's program gave to tri_main; NULL: none
} cli_context;

// One flag. `argument` shows what follows it: "DIR", or the possible values, "auto|never|PATH".
// Words without capitals are literal values, the others are placeholders. NULL: nothing follows.
typedef struct cli_flag {
    const char *name; // without the dashes
    const char *argument, *help;
    char letter; // 0: none
} cli_flag;

// One of the things that a command can do, if it does several, such as `check` in `trireme data
// check`.
typedef struct cli_verb {
    const char *name, *arguments, *help;
} cli_verb;

// Which of a command's flags a verb takes. The others have no effect with it, so that a warning can
// say so.
typedef struct cli_verb_flags {
    const char *verb, *flags; // "out json"
} cli_verb_flags;

// A command. --help, `trireme manual` and `trireme completion` all come from this, so that none is
// out of date.
typedef struct cli_command {
    const char *name;
    const char *arguments; // "RECIPE [key.path=value ...]"
    const char *help;      // one line
    const cli_flag *flags; // a NULL name ends it; NULL: none, or flag_at
    // Reads the flags from another room's table instead. False: there is no flag `index`.
    bool (*flag_at)(int index, cli_flag *out);
    const cli_verb *verbs;            // a NULL name ends it; NULL: none
    const cli_verb_flags *verb_flags; // a NULL verb ends it; NULL: each verb takes all flags
    const char *more;                 // paragraphs for --help and the manual, or NULL
    const char *examples;             // command lines, each ended by a line feed
    int (*run)(const cli_context *context, int argc, char **argv); // argv[0] is the command's name
} cli_command;

extern const cli_command cli_train, cli_eval, cli_run, cli_submit, cli_plan, cli_bench, cli_data,
    cli_checkpoint, cli_completion, cli_manual, cli_preflight, cli_scale, cli_trace, cli_version;
extern const cli_command *const cli_commands[]; // NULL ends it
extern const tri_backends cli_backends;

// Runs `trireme bench kernels` on the device of this name. `words`: built-in models, or a recipe
// with its overrides; none: all built-in models.
tri_status cli_bench_kernels(const cli_context *context, const char *device, tri_arena *arena,
                             int count, char **words, double seconds, bool json);

enum { CLI_MAX_FLAGS = 16 };

// A parsed command line.
typedef struct cli_arguments {
    const cli_command *command;
    const char *values[CLI_MAX_FLAGS]; // in the order of the command's flags; NULL: not given
    char **words;                      // all arguments that are not flags
    int count;
} cli_arguments;

// Parses argv[1...]. Flags may stand anywhere among the words, up to `--`. Moves the words to the
// front of argv + 1. Returns -1 if the command is to run. Otherwise returns its exit code: 0 after
// printing the help for --help, 2 after reporting a bad flag.
int cli_parse(const cli_command *command, int argc, char **argv, cli_arguments *out);
// Gets the value that was given to a flag of the command's table; NULL: none.
const char *cli_value(const cli_arguments *arguments, const char *flag);
// Whether the flag was given.
bool cli_has(const cli_arguments *arguments, const char *flag);
// Reads flag `index` from `flags` or `flag_at`. False: there is none.
bool cli_flag_at(const cli_command *command, int index, cli_flag *out);

// Reports a failure: prints the thread's error message as one line and returns the exit code. If
// the failure is the same on all ranks, only rank 0 prints it. Every rank writes its error file
// (TORCHELASTIC_ERROR_FILE).
int cli_fail(tri_status status);
// Reports a failure whose `message` was printed before, by this rank or another one: only the error
// file is written.
int cli_fail_printed(tri_status status, const char *message);
// Refuses to overwrite what an output must not: TRI_BAD_INPUT if `flag` names as the file to write
// the recipe itself, a file of a checkpoint, or a run's own recipe or metrics. `input`: the
// recipe's path; NULL: none.
tri_status cli_check_output(const char *flag, const char *output, const char *input);
#define CLI_DEVICE_FLAG(words)                                                                     \
    { "device", "auto|cpu|cuda|ref|null|far", words, 0 }
// Reads the value of --seconds; `otherwise` if the text is NULL.
tri_status cli_read_seconds(const char *text, double otherwise, double *out);
// Binds a rank that srun or mpirun started to cores of its own, where it sees those of others too
// (TRIREME_BIND), and lets it have a thread for each. Called before a command computes. *cores: how
// many; 0: it was not bound.
tri_status cli_bind_rank(int *cores);
// Logs a warning, on rank 0 only, so that it appears once.
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Reports a wrong command line in one line that points to the command's --help. Returns 2.
int cli_usage(const cli_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
