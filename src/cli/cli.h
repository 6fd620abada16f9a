// What the subcommands share: their tables of flags, the parser of command lines, messages. Each
// subcommand has a file of its own. Only src/cli knows concrete devices and communicators.
#ifndef TRIREME_CLI_CLI_H
#define TRIREME_CLI_CLI_H

#include "base/quantity.h"
#include "train/session.h"

#include <stdio.h>

typedef struct cli_context {
    const char *program;  // the program's argv[0]
    const tri_task *task; // the task that a user's program gave to tri_main; NULL: none
} cli_context;

// The argument of a flag that one or more settings of a recipe follow.
#define CLI_SETTINGS "key.path=value ..."

// One flag. `argument` shows what follows the flag: "DIR", or the possible values,
// "auto|never|PATH". Words without capital letters, and words with a digit ("BF16"), are literal
// values; the others are placeholders. NULL: nothing follows.
typedef struct cli_flag {
    const char *name; // without the dashes
    const char *argument, *help;
    char letter; // the short form; 0: there is none
} cli_flag;

// A verb: one of several functions of a command, such as `check` in `trireme data check`.
typedef struct cli_verb {
    const char *name, *arguments, *help;
} cli_verb;

// Which of a command's flags have an effect with a verb. For any other flag that is given, a
// warning says that it has none.
typedef struct cli_verb_flags {
    const char *verb, *flags; // the flags are separated by blanks: "out json"
} cli_verb_flags;

// A command. --help, `trireme manual` and `trireme completion` are all made from this, so that none
// is out of date.
typedef struct cli_command {
    const char *name;
    const char *arguments; // what follows the name, for --help: "RECIPE [key.path=value ...]"
    const char *help;      // one line that describes the command
    const cli_flag *flags; // ends with a NULL name; NULL: there are none, or flag_at lists them
    // Gets flag `index` from a table outside of src/cli, for a command whose `flags` is NULL.
    // False: there is no such flag. NULL: the flags are in `flags`.
    bool (*flag_at)(int index, cli_flag *out);
    const cli_verb *verbs;            // ends with a NULL name; NULL: there are none
    const cli_verb_flags *verb_flags; // ends with a NULL verb; NULL: each verb takes all flags
    const char *more;                 // further paragraphs for --help and the manual; NULL: none
    const char *examples;             // command lines, each followed by a line feed
    // The command's results are in files too. So it has succeeded even if the reader of its output
    // closes the pipe.
    bool keeps_results;
    // Runs the command; argv[0] is its name.
    int (*run)(const cli_context *context, int argc, char **argv);
} cli_command;

extern const cli_command cli_train, cli_eval, cli_predict, cli_generate, cli_run, cli_submit,
    cli_plan, cli_bench, cli_data, cli_checkpoint, cli_model, cli_completion, cli_manual,
    cli_preflight, cli_report, cli_compare, cli_export, cli_scale, cli_lr_find, cli_batch_find,
    cli_trace, cli_version;
// The list of commands; ends with NULL.
extern const cli_command *const cli_commands[];
extern const tri_backends cli_backends;

// Runs `trireme bench kernels` on the device with this name. `words`: built-in models, or a recipe
// with its overrides; if empty, all built-in models. `seconds`: how long each model is measured.
tri_status cli_bench_kernels(const cli_context *context, const char *device, tri_arena *arena,
                             int count, char **words, double seconds, bool json);

// Runs `trireme bench data`, for `seconds` a row. `formats`: as which other kinds the data are
// measured, too, "all" or a list such as "npy,lmdb"; NULL: as none.
tri_status cli_bench_data(tri_arena *arena, const tri_recipe *recipe, double seconds,
                          const char *formats, bool json);

// Gets the name of operation `index` of `trireme bench comm --op`; NULL: there is none.
const char *cli_bench_operation(int index);

enum { CLI_MAX_FLAGS = 16, CLI_MAX_SETTINGS = 64 };

// A parsed command line.
typedef struct cli_arguments {
    const cli_command *command;
    // The given values, indexed as the command's flags; NULL: the flag was not given.
    const char *values[CLI_MAX_FLAGS];
    // The key.path=value after the flag whose argument is CLI_SETTINGS, of which `values` has the
    // first.
    const char *settings[CLI_MAX_SETTINGS];
    int setting_count;
    char **words; // all arguments that are not flags
    int count;
} cli_arguments;

// Parses argv[1...]. Flags may stand anywhere among the words, up to `--`. Moves the words to the
// front of argv + 1. Returns -1 if the command is to be run, otherwise its exit code: 0 after
// printing help for --help, 2 after reporting a bad flag.
int cli_parse(const cli_command *command, int argc, char **argv, cli_arguments *out);
// Gets the value that was given to a flag; NULL: the flag was not given.
const char *cli_value(const cli_arguments *arguments, const char *flag);
// Reads a flag's whole number from `least` to `most`, written 12, 1e6 or 64k. *out keeps its value
// if the flag was not given. TRI_BAD_INPUT: it is something else.
tri_status cli_read_whole(const cli_arguments *arguments, const char *flag, int64_t least,
                          int64_t most, int64_t *out);
// Whether the flag was given.
bool cli_has(const cli_arguments *arguments, const char *flag);
// Gets flag `index` from `flags` or `flag_at`. False: there is none.
bool cli_flag_at(const cli_command *command, int index, cli_flag *out);

// Reports a failure: prints the thread's error message as one line and returns the exit code. If
// the failure is the same on all ranks, only rank 0 prints it. Every rank writes its error file
// (TORCHELASTIC_ERROR_FILE), unless the run was only asked to stop (TRI_STOPPED).
int cli_fail(tri_status status);
// Reports a failure whose `message` was already printed, by this rank or another one: only writes
// the error file.
int cli_fail_printed(tri_status status, const char *message);
// Checks that `output` is a file that may be overwritten. TRI_BAD_INPUT: it is the recipe itself, a
// file of a checkpoint, a run's own recipe or metrics, or a file of another kind than the one that
// is written; or its name is that of another format. `flag` names the output for the message.
// `input`: the recipe's path; NULL: there is none.
tri_status cli_check_output(const char *flag, const char *output, const char *input);
// Checks a picture's output before the work: cli_check_output of --svg, and that a file can be made
// there. NULL: there is none.
tri_status cli_check_svg(const char *path, const char *input);
// Writes what `draw` draws of `what`.
typedef void cli_drawing(const void *what, FILE *out);
tri_status cli_write_svg(const char *path, cli_drawing *draw, const void *what);
// Prints the command that trains the recipe of this command line with further settings, words such
// as batch.micro=8, which take the place of overrides of the same keys.
void cli_print_training(const cli_context *context, const cli_arguments *arguments,
                        const char *settings);
// Loads the recipe that the first word names. If there is no word, or it is an override such as
// batch.micro=8, loads the recipe of the run to which the checkpoint (--checkpoint) belongs.
tri_status cli_load_evaluated(tri_arena *arena, const cli_context *context, const cli_arguments *a,
                              tri_recipe *out);
// Warns that the device null computes nothing. To be called after the run, because bad input should
// be reported in a single line.
void cli_warn_of_null(const cli_arguments *a, const char *consequence);
#define CLI_DEVICE_FLAG(words)                                                                     \
    { "device", "auto|cpu|cuda|ref|null|far", words, 0 }
// Reads the value of --seconds; if the text is NULL, *out is `otherwise`.
tri_status cli_read_seconds(const char *text, double otherwise, double *out);
// If srun or mpirun started this rank and lets it run on the cores of other ranks too, binds the
// rank to cores of its own (TRIREME_BIND), with one thread for each core. To be called before a
// command computes. *cores: to how many cores the rank was bound; 0: it was not bound.
tri_status cli_bind_rank(int *cores);
// Logs a warning on rank 0 only, so that it appears once.
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Reports a wrong command line in one line, which points to the command's --help. Returns 2.
int cli_usage(const cli_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
