// What the subcommands share. One file per subcommand; only this room names concrete backends.
#ifndef TRIREME_CLI_CLI_H
#define TRIREME_CLI_CLI_H

#include "base/quantity.h"
#include "train/session.h"

typedef struct cli_context {
    const char *program;  // argv[0] of the program
    const tri_task *task; // the program's own; NULL: none
} cli_context;

// One flag. `argument` shows what it takes: "DIR", or its values "auto|never|PATH", in which the
// words without capitals stand for themselves. NULL: a switch.
typedef struct cli_flag {
    const char *name; // without the dashes
    const char *argument, *help;
    char letter; // 0: none
} cli_flag;

// What a command is asked to do where it does several things: `trireme data check`.
typedef struct cli_verb {
    const char *name, *arguments, *help;
} cli_verb;

// Which of a command's flags a verb takes.
typedef struct cli_verb_flags {
    const char *verb, *flags; // "out json"
} cli_verb_flags;

// --help, `trireme manual` and `trireme completion` all come from these.
typedef struct cli_command {
    const char *name;
    const char *arguments;                     // "RECIPE [key.path=value ...]"
    const char *help;                          // one line
    const cli_flag *flags;                     // a NULL name ends it; NULL: none, or flag_at
    bool (*flag_at)(int index, cli_flag *out); // of a room that has its own table; false: no more
    const cli_verb *verbs;                     // a NULL name ends it; NULL: none
    const cli_verb_flags *verb_flags;          // a NULL verb ends it; NULL: all take all
    const char *more;                          // paragraphs for --help and the manual, or NULL
    const char *examples;                      // command lines, each ended by a line feed
    int (*run)(const cli_context *context, int argc, char **argv); // argv[0] is the command's name
} cli_command;

extern const cli_command cli_train, cli_eval, cli_run, cli_plan, cli_bench, cli_data,
    cli_checkpoint, cli_completion, cli_manual, cli_trace, cli_version;
extern const cli_command *const cli_commands[]; // NULL ends it
extern const tri_backends cli_backends;

// The part of `bench` that measures kernels: of the named built-in models, or of all.
tri_status cli_bench_kernels(const cli_context *context, tri_arena *arena, int count, char **words,
                             double seconds, bool json);

enum { CLI_MAX_FLAGS = 16 };

// A command line taken apart.
typedef struct cli_arguments {
    const cli_command *command;
    const char *values[CLI_MAX_FLAGS]; // by place in the table of flags; NULL: not given
    char **words;                      // what is no flag
    int count;
} cli_arguments;

// Parses argv[1...] by the command's flags, which may stand anywhere among the words; `--` ends the
// flags. Words are moved to the front of argv + 1. Returns -1 to continue; 0 after --help, which is
// printed; 2 after a bad flag, which is reported.
int cli_parse(const cli_command *command, int argc, char **argv, cli_arguments *out);
// The value of a flag of the table, NULL when not given; of a switch, whether it was.
const char *cli_value(const cli_arguments *arguments, const char *flag);
bool cli_has(const cli_arguments *arguments, const char *flag);
// The flag at `index`, wherever the command has its flags; false: no more.
bool cli_flag_at(const cli_command *command, int index, cli_flag *out);

// Prints the thread's error message as one line and returns the exit code. Where all ranks fail
// alike, only rank 0 prints. Every rank writes its error file (TORCHELASTIC_ERROR_FILE).
int cli_fail(tri_status status);
// TRI_BAD_INPUT when the file that `flag` names for writing is the one that is read.
tri_status cli_check_output(const char *flag, const char *output, const char *input);
#define CLI_DEVICE_FLAG(words)                                                                     \
    { "device", "auto|cpu|ref|null", words, 0 }
// A warning, by rank 0.
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
// A bad command line: one line that names the command's --help. Returns 2.
int cli_usage(const cli_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
