// Parses command lines, prints --help, and reports failures with their exit codes. A verb is one
// function of a command, such as `check` in `trireme data check`. The words of a command line are
// its arguments that are not flags.
#include "cli/cli.h"

#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"
#include "base/shell.h"
#include "recipe/missing.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

bool cli_flag_at(const cli_command *command, int index, cli_flag *out) {
    if (command->flag_at) return command->flag_at(index, out);
    if (!command->flags || !command->flags[index].name) return false;
    *out = command->flags[index];
    return true;
}

static void print_help(const cli_command *command) {
    cli_flag f;
    printf("usage: trireme %s %s\n\n%s\n", command->name, command->arguments, command->help);
    if (command->verbs) printf("\n");
    for (const cli_verb *v = command->verbs; v && v->name; v++) {
        char left[64];
        snprintf(left, sizeof left, "%s %s", v->name, v->arguments);
        printf("  %-34s %s\n", left, v->help);
    }
    for (int i = 0; cli_flag_at(command, i, &f); i++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", f.name, f.argument ? " " : "",
                 f.argument ? f.argument : "");
        printf("%s  %-34s %s\n", i ? "" : "\n", left, f.help);
    }
    if (command->more) printf("\n%s", command->more);
    printf("\nfor example\n");
    for (const char *at = command->examples; *at;) {
        int length = (int)strcspn(at, "\n");
        printf("  %.*s\n", length, at);
        at += length + (at[length] != 0);
    }
}

static bool takes_overrides(const cli_command *command) {
    bool found = strstr(command->arguments, "key.path=value");
    for (const cli_verb *v = command->verbs; v && v->name; v++)
        found = found || strstr(v->arguments, "key.path=value");
    return found;
}

// Reports an unknown flag. If the flag is a key of the recipe (people write --lr), tells how to
// write this key instead; `next` is the word after the flag.
static int unknown_flag(const cli_command *command, const char *text, const char *next,
                        const char *const *known, int count) {
    const char *equals = strchr(text, '='), *instead = NULL;
    bool is_value = next && *next != '-' && !strpbrk(next, "=/") && !strstr(next, ".yaml");
    tri_arena *arena = tri_arena_create(NULL, "flag");
    if (takes_overrides(command))
        instead = tri_recipe_instead_of_flag(
            arena, &tri_recipe_table,
            tri_arena_printf(arena, "%.*s", (int)strcspn(text, "="), text),
            equals     ? equals + 1
            : is_value ? next
                       : NULL);
    const char *near = instead ? NULL : tri_option_nearest(text, known, count);
    if (near) instead = tri_arena_printf(arena, "did you mean --%s?", near);
    int code = cli_usage(command, "unknown flag --%s%s%s%s", text, instead ? " (" : "",
                         instead ? instead : "", instead ? ")" : "");
    tri_arena_destroy(arena);
    return code;
}

// Takes the settings of a flag: `first`, and all words up to the next flag or the next word that is
// no key.path=value.
static int take_settings(const char *first, int argc, char **argv, int *at, cli_arguments *out) {
    for (const char *setting = first;;) {
        if (out->setting_count == CLI_MAX_SETTINGS)
            return cli_usage(out->command, "more than %d settings", CLI_MAX_SETTINGS);
        out->settings[out->setting_count++] = setting;
        const char *next = *at + 1 < argc ? argv[*at + 1] : "";
        if (*next == '-' || !strchr(next, '=')) return -1;
        setting = argv[++*at];
    }
}

// Expands ~ in the value of flag `index`, if it is a path. A process reads one command line.
static const char *settle_value(const cli_flag *flag, int index, const char *value) {
    static char paths[CLI_MAX_FLAGS][PATH_MAX];
    static const char *const kinds[] = {"DIR", "FILE", "PATH"};
    for (size_t i = 0; flag->argument && i < sizeof kinds / sizeof *kinds; i++)
        if (strstr(flag->argument, kinds[i]))
            return tri_shell_home(value, paths[index], sizeof paths[index]);
    return value;
}

static int take_flag(int argc, char **argv, int *at, cli_arguments *out) {
    const cli_command *command = out->command;
    const char *text = argv[*at] + 2, *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    const char *known[CLI_MAX_FLAGS];
    int count = 0;
    for (cli_flag f; cli_flag_at(command, count, &f); count++) {
        TRI_ASSERT(count < CLI_MAX_FLAGS);
        known[count] = f.name;
        if (strlen(f.name) != length || strncmp(f.name, text, length) != 0) continue;
        if (!f.argument && equals) return cli_usage(command, "--%s takes no value", f.name);
        if (f.argument && !equals && *at + 1 >= argc)
            return cli_usage(command, "--%s needs %s", f.name, f.argument);
        if (f.argument && !*(equals ? equals + 1 : argv[*at + 1]))
            return cli_usage(command, "--%s needs %s", f.name, f.argument);
        const char *value = !f.argument ? "" : equals ? equals + 1 : argv[++*at];
        out->values[count] = settle_value(&f, count, value);
        bool has_settings = f.argument && !strcmp(f.argument, CLI_SETTINGS);
        return has_settings ? take_settings(value, argc, argv, at, out) : -1;
    }
    return unknown_flag(command, text, *at + 1 < argc ? argv[*at + 1] : NULL, known, count);
}

static bool takes_flag(const char *flags, const char *name) {
    size_t length = strlen(name);
    for (const char *at = flags; (at = strstr(at, name)); at += length)
        if ((at == flags || at[-1] == ' ') && (at[length] == 0 || at[length] == ' ')) return true;
    return false;
}

// Warns about flags that belong to another verb of the command, because users expect that a flag
// has an effect.
static void warn_idle_flags(const cli_arguments *a) {
    const cli_verb_flags *row = a->count > 0 ? a->command->verb_flags : NULL;
    cli_flag f;
    while (row && row->verb && strcmp(row->verb, a->words[0]) != 0) row++;
    if (!row || !row->verb) return;
    for (int i = 0; cli_flag_at(a->command, i, &f); i++)
        if (a->values[i] && !takes_flag(row->flags, f.name))
            cli_warn("--%s has no effect on trireme %s %s", f.name, a->command->name, row->verb);
}

int cli_parse(const cli_command *command, int argc, char **argv, cli_arguments *out) {
    *out = (cli_arguments){.command = command, .words = argv + 1};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--")) {
            while (++i < argc) out->words[out->count++] = argv[i];
            break;
        }
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            print_help(command);
            return 0;
        }
        if (argv[i][0] != '-' || !argv[i][1]) {
            out->words[out->count++] = argv[i];
            continue;
        }
        if (argv[i][1] != '-') return cli_usage(command, "unknown flag %s", argv[i]);
        int code = take_flag(argc, argv, &i, out);
        if (code >= 0) return code;
    }
    warn_idle_flags(out);
    return -1;
}

const char *cli_value(const cli_arguments *arguments, const char *flag) {
    cli_flag f;
    for (int i = 0; cli_flag_at(arguments->command, i, &f); i++)
        if (!strcmp(f.name, flag)) return arguments->values[i];
    TRI_ASSERT(!"a flag of the command's table");
    return NULL;
}

bool cli_has(const cli_arguments *arguments, const char *flag) {
    return cli_value(arguments, flag) != NULL;
}

// Gets the path of the file in which a launcher looks for the cause of a failure; NULL: there is no
// launcher.
static const char *error_file(void) {
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    return path && *path ? path : NULL;
}

// Writes the error file, from which a launcher learns the cause: {"message": {"message": …,
// "extraInfo": {"timestamp": …, "said": …}, "errorCode": n}}. This is torchrun's format, with the
// additional entry `said`: whether this process has printed the message itself.
static void write_error_file(tri_status status, bool is_printed) {
    const char *path = error_file();
    if (!path) return;
    char text[TRI_MESSAGE_MAX_BYTES + 64], stamp[32];
    snprintf(text, sizeof text, "%s: %s", tri_status_name(status), tri_error_message());
    snprintf(stamp, sizeof stamp, "%lld", (long long)(tri_os.realtime_ns() / 1000000000));
    json_t *report = json_pack("{s:{s:s#, s:{s:s, s:b}, s:i}}", "message", "message", text,
                               (int)strlen(text), "extraInfo", "timestamp", stamp, "said",
                               is_printed, "errorCode", tri_status_exit_code(status));
    char *bytes = report ? json_dumps(report, 0) : NULL;
    if (bytes) (void)tri_os_replace_file(path, bytes, strlen(bytes));
    free(bytes);
    json_decref(report);
}

static bool is_other_rank(void) {
    tri_identity identity;
    return tri_identity_read((const char *(*)(const char *))getenv, &identity) == TRI_OK &&
           identity.rank > 0;
}

void cli_warn(const char *format, ...) {
    char text[TRI_MESSAGE_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!is_other_rank()) tri_log_line(TRI_LOG_WARNING, "%s", text);
}

// Whether this rank prints the failure. If all ranks have the same failure, only rank 0 prints it.
// If a rank is lost, all other ranks fail with TRI_PEER_LOST. Each of them prints that, unless
// there is a launcher: then only rank 0 does, because the launcher reads the error files of all
// ranks and prints the cause.
static bool prints_failure(tri_status status) {
    bool same_for_all = status == TRI_STOPPED || status == TRI_NOT_FINITE;
    bool is_reported = status == TRI_PEER_LOST && error_file();
    return !(same_for_all || is_reported) || !is_other_rank();
}

static void print_line(const char *line) { tri_log_line(TRI_LOG_ERROR, "%s", line); }

// Prints the message of a failure by bad usage or input once for the whole job, whether all ranks
// have failed or only this one. `line` is this rank's message, and is replaced by the line that was
// printed, by this rank or another. Returns whether this rank has printed a line.
static bool refuse(tri_status status, char line[TRI_MESSAGE_MAX_BYTES]) {
    tri_identity identity;
    tri_refusal refusal = {.has_reason = status != TRI_REFUSED, .print = print_line};
    bool is_known = tri_identity_read((const char *(*)(const char *))getenv, &identity) == TRI_OK;
    if (!is_known || identity.size == 1) {
        print_line(line);
        return true;
    }
    tri_store_refuse(&identity, line, &refusal);
    if (refusal.answer[0]) memcpy(line, refusal.answer, sizeof refusal.answer);
    return refusal.is_printed;
}

int cli_fail(tri_status status) {
    char line[TRI_MESSAGE_MAX_BYTES];
    // No signal may come between printing the message and writing the error file, which says that
    // the message is printed. If a launcher stopped this rank in between, it would find no such
    // file and print the message again.
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    snprintf(line, sizeof line, "%s", tri_error_message());
    bool is_printed;
    if (tri_status_exit_code(status) == 2) {
        is_printed = refuse(status, line);
    } else {
        is_printed = prints_failure(status);
        if (is_printed) print_line(line);
    }
    if (status != TRI_STOPPED) {
        (void)TRI_FAIL(status, "%s", line);
        write_error_file(status, is_printed);
    }
    return tri_status_exit_code(status);
}

int cli_fail_printed(tri_status status, const char *message) {
    (void)TRI_FAIL(status, "%s", message);
    write_error_file(status, true);
    return tri_status_exit_code(status);
}

// Whether files with all of these names lie in the folder that contains `path`.
static bool lies_beside(const char *path, const char *const *names) {
    const char *slash = strrchr(path, '/');
    for (; *names; names++) {
        char beside[PATH_MAX];
        struct stat info;
        snprintf(beside, sizeof beside, "%.*s%s", slash ? (int)(slash - path + 1) : 0, path,
                 *names);
        if (stat(beside, &info) != 0) return false;
    }
    return true;
}

// Finds what an existing file belongs to, from the files beside it, so that no output overwrites a
// file of a checkpoint or run. NULL: nothing that Trireme writes.
static const char *owner_of(const char *path) {
    static const char *const in_checkpoint[] = {"model.safetensors", "state.json", NULL},
                             *const in_sharded[] = {"model.safetensors.index.json", "state.json",
                                                    NULL},
                             *const in_run[] = {"recipe.yaml", "checkpoints", NULL},
                             *const of_run[] = {"recipe.yaml", "metrics.jsonl", NULL};
    if (lies_beside(path, in_checkpoint) || lies_beside(path, in_sharded)) return "a checkpoint";
    const char *slash = strrchr(path, '/');
    for (const char *const *name = of_run; *name; name++)
        if (!strcmp(slash ? slash + 1 : path, *name) && lies_beside(path, in_run)) return "a run";
    return NULL;
}

// What a flag's file is, and the bytes at `offset` with which such a file begins, one of them. An
// existing file that begins with others is one of the user's and is not overwritten.
static const struct output_kind {
    const char *flag, *what, *begins[3];
    size_t offset;
} output_kinds[] = {{"out", "safetensors file", {"{"}, 8},
                    {"html", "web page", {"<!DOCTYPE html"}, 0},
                    {"csv", "table of a run", {"kind,step"}, 0},
                    {"png", "PNG image", {"\x89PNG"}, 0},
                    {"svg", "SVG image", {"<svg", "<?xml"}, 0}};

// Names that stand for another format: programs that read files by their names cannot read these.
static const char *const foreign_endings[] = {".npy", ".npz",  ".pt",   ".pth",  ".ckpt", ".bin",
                                              ".h5",  ".hdf5", ".onnx", ".gguf", ".pkl",  NULL};

static tri_status check_name(const char *flag, const char *output, const char *what) {
    const char *dot = strrchr(output, '.');
    for (const char *const *ending = foreign_endings; dot && *ending; ending++)
        if (!strcasecmp(dot, *ending))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "--%s: %s would be a %s, which programs do not expect under a name in "
                            "%s: name it %.*s.safetensors",
                            flag, output, what, *ending, (int)(dot - output), output);
    return TRI_OK;
}

// Refuses to replace a file that is not of the kind which is written.
static tri_status check_kind(const char *flag, const char *output) {
    const struct output_kind *kind = NULL;
    for (size_t i = 0; i < sizeof output_kinds / sizeof *output_kinds; i++)
        if (!strcmp(output_kinds[i].flag, flag)) kind = &output_kinds[i];
    if (!kind) return TRI_OK;
    if (kind->offset) TRI_TRY(check_name(flag, output, kind->what));
    char head[16] = "";
    FILE *file = fopen(output, "rb");
    size_t size = file ? fread(head, 1, sizeof head - 1, file) : 0;
    if (file) fclose(file);
    bool is_one = size == 0; // an empty file, as mktemp makes it
    for (int i = 0; i < 3 && kind->begins[i]; i++)
        is_one = is_one || !strncmp(head + kind->offset, kind->begins[i], strlen(kind->begins[i]));
    if (is_one) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "--%s: %s exists and is no %s: name another file, or remove it first", flag,
                    output, kind->what);
}

tri_status cli_read_whole(const cli_arguments *a, const char *flag, int64_t least, int64_t most,
                          int64_t *out) {
    const char *text = cli_value(a, flag);
    if (!text) return TRI_OK;
    double value;
    char *end;
    errno = 0;
    int64_t whole = strtoll(text, &end, 10); // exact, also beyond 2^53
    bool is_whole = !*end && end != text && errno == 0;
    if (!is_whole && tri_quantity_read(text, &value) && value < 0x1p63) {
        whole = (int64_t)value;
        is_whole = (double)whole == value;
    }
    if (!is_whole || whole < least || whole > most)
        return TRI_FAIL(TRI_BAD_INPUT, "--%s: must be a whole number from %lld to %lld, not '%s'",
                        flag, (long long)least, (long long)most, text);
    *out = whole;
    return TRI_OK;
}

tri_status cli_check_output(const char *flag, const char *output, const char *input) {
    struct stat to;
    if (!output) return TRI_OK;
    if (stat(output, &to) != 0) return check_kind(flag, output);
    if (!S_ISREG(to.st_mode)) return TRI_OK;
    if (input && tri_os_is_same_file(input, output))
        return TRI_FAIL(TRI_BAD_INPUT, "--%s: %s is the recipe itself: name another file", flag,
                        output);
    char *target = realpath(output, NULL);
    const char *owner = target ? owner_of(target) : NULL;
    free(target);
    if (!owner) return check_kind(flag, output);
    return TRI_FAIL(TRI_BAD_INPUT, "--%s: %s is part of %s: name another file", flag, output,
                    owner);
}

tri_status cli_check_svg(const char *path, const char *input) {
    tri_os_replacement file;
    if (!path) return TRI_OK;
    TRI_TRY(cli_check_output("svg", path, input));
    TRI_TRY(tri_os_replacement_begin(path, &file));
    (void)tri_os_replacement_end(&file, TRI_STOPPED); // removes the file again
    return TRI_OK;
}

tri_status cli_write_svg(const char *path, cli_drawing *draw, const void *what) {
    char *picture = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&picture, &size);
    if (!out) return TRI_FAIL(TRI_NO_MEMORY, "--svg: no memory for the picture");
    draw(what, out);
    fclose(out);
    tri_status status = tri_os_replace_file(path, picture, size);
    free(picture);
    return status;
}

// Whether `settings`, such as "batch.global=8 batch.micro=2", have the key of this override.
static bool sets_key_of(const char *settings, const char *override) {
    size_t length = strcspn(override, "=") + 1;
    for (const char *at = settings; *at; at += *at == ' ') {
        if (!strncmp(at, override, length)) return true;
        at += strcspn(at, " ");
    }
    return false;
}

void cli_print_training(const cli_context *context, const cli_arguments *a, const char *settings) {
    tri_arena *arena = tri_arena_create(NULL, "command");
    printf("%s train", tri_shell_word(arena, context->program));
    for (int i = 0; i < a->count; i++)
        if (i == 0 || !sets_key_of(settings, a->words[i]))
            printf(" %s", tri_shell_word(arena, a->words[i]));
    printf(" %s", settings);
    if (cli_has(a, "device")) printf(" --device %s", tri_shell_word(arena, cli_value(a, "device")));
    printf("\n");
    tri_arena_destroy(arena);
}

int cli_usage(const cli_command *command, const char *format, ...) {
    char text[TRI_MESSAGE_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return cli_fail(TRI_FAIL(TRI_BAD_INPUT, "%s (see trireme %s --help)", text, command->name));
}
