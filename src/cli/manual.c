// `trireme manual`: prints the manual page in roff. It is made from the same tables as --help, so
// that the two agree.
#include "cli/cli.h"

#include "base/option_manual.h"
#include "base/variable.h"

#include <stdio.h>
#include <string.h>
#include <trireme/trireme.h>

// Reads one code point of UTF-8, because roff needs its number, and moves *c to its last byte.
static unsigned code_point(const char **c) {
    unsigned char first = (unsigned char)**c;
    int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    unsigned point = first & (0x3fu >> more);
    while (more-- > 0 && ((*c)[1] & 0xc0) == 0x80) point = point << 6 | (*++*c & 0x3f);
    return point;
}

// Prints text in roff. It escapes backslashes, hyphens, characters outside ASCII, and a dot or
// quote at the beginning of a line, which roff would read as a command.
static void print_text(const char *text) {
    bool begins = true;
    for (const char *c = text; *c; c++) {
        if (begins && (*c == '.' || *c == '\'')) fputs("\\&", stdout);
        if (*c == '\\')
            fputs("\\e", stdout);
        else if (*c == '-')
            fputs("\\-", stdout);
        else if (*c & 0x80)
            printf("\\[u%04X]", code_point(&c));
        else
            fputc(*c, stdout);
        begins = *c == '\n';
    }
}

static void print_tagged(const char *before, const char *tag, const char *argument,
                         const char *text) {
    printf(".TP\n\\fB");
    print_text(before);
    print_text(tag);
    printf("\\fR");
    if (argument && *argument) {
        printf(" \\fI");
        print_text(argument);
        printf("\\fR");
    }
    fputc('\n', stdout);
    print_text(text);
    fputc('\n', stdout);
}

static void print_command(const cli_command *c) {
    cli_flag f;
    printf(".SS trireme %s ", c->name);
    print_text(c->arguments);
    fputc('\n', stdout);
    print_text(c->help);
    fputc('\n', stdout);
    for (const cli_verb *v = c->verbs; v && v->name; v++)
        print_tagged("", v->name, v->arguments, v->help);
    for (int i = 0; cli_flag_at(c, i, &f); i++) print_tagged("--", f.name, f.argument, f.help);
    printf(".PP\n");
    if (c->more) print_text(c->more);
    printf(".PP\n.nf\n");
    print_text(c->examples);
    printf(".fi\n");
}

static void print_key(void *context, const tri_option_entry *e) {
    (void)context;
    printf(".TP\n");
    if (!e->row) {
        printf("\\fB%s: %s\\fR\n", e->key, e->variant->name);
        print_text(e->variant->help);
        fputc('\n', stdout);
        return;
    }
    printf("\\fB");
    print_text(e->key);
    printf("\\fR");
    if (e->row->default_yaml) {
        printf(" = ");
        print_text(e->row->default_yaml);
    }
    fputc('\n', stdout);
    print_text(e->row->help);
    if (e->allowed) {
        printf(" (");
        print_text(e->allowed);
        printf(")");
    }
    fputc('\n', stdout);
}

static const cli_verb files[] = {
    {"recipe.yaml", "", "the recipe as resolved, with overrides and defaults"},
    {"metrics.jsonl", "", "one object a line: start, training, evaluation, warnings, the end"},
    {"metrics.csv", "", "the same as a table, with log.csv=true"},
    {"tensorboard/", "", "events of curves"},
    {"checkpoints/step-N/", "",
     "model.safetensors, optimizer.safetensors and state.json; last and best are links"},
    {0}};

static const cli_verb codes[] = {{"0", "", "done"},
                                 {"1", "", "the run failed; one line says why"},
                                 {"2", "", "bad usage, recipe or input; nothing was changed"},
                                 {"75", "", "stopped early: run it again"},
                                 {"128+n", "", "ended by signal n"},
                                 {0}};

// Variables that others than Trireme have named; its own are in tri_variables.
static const cli_verb variables[] = {
    {"OMP_NUM_THREADS", "", "threads of each rank"},
    {"NO_COLOR", "", "set to anything: no colours"},
    {"RANK, WORLD_SIZE, LOCAL_RANK, ...", "", "who this rank is, as torchrun sets them"},
    {"PET_NAME", "", "the value of trireme run's flag of that name"},
    {0}};

static void print_list(const char *title, const cli_verb *list) {
    printf(".SH %s\n", title);
    for (const cli_verb *v = list; v->name; v++) print_tagged("", v->name, v->arguments, v->help);
}

static int run(const cli_context *context, int argc, char **argv) {
    (void)context;
    cli_arguments a;
    int code = cli_parse(&cli_manual, argc, argv, &a);
    if (code >= 0) return code;
    if (a.count) return cli_usage(&cli_manual, "manual: takes no arguments");
    printf(".TH TRIREME 1 \"\" \"trireme %s\" \"User Commands\"\n.SH NAME\n"
           "trireme \\- distributed training of neural networks\n"
           ".SH SYNOPSIS\n.B trireme\n.I COMMAND\n[\\fIARGUMENT\\fR ...]\n.SH DESCRIPTION\n",
           tri_version());
    print_text("Trains a network from a recipe, on one core or on all of them, with the same "
               "samples and mathematics. Flags may stand anywhere among a command's words, as "
               "--flag value or --flag=value; a recipe's keys are overridden as key.path=value.\n");
    printf(".SH COMMANDS\n");
    for (const cli_command *const *c = cli_commands; *c; c++) print_command(*c);
    printf(".SH RECIPE\nThe keys of a recipe with their defaults. Keys under a name belong to the "
           "section when it has that name.\n");
    tri_option_walk(&tri_recipe_table, print_key, NULL);
    print_list("FILES OF A RUN", files);
    print_list("EXIT STATUS", codes);
    print_list("ENVIRONMENT", variables);
    for (const tri_variable *v = tri_variables; v->name; v++)
        print_tagged("", v->name, v->values, v->help);
    return 0;
}

const cli_command cli_manual = {.name = "manual",
                                .arguments = "",
                                .help = "Print the manual page.",
                                .examples = "trireme manual | man -l -\n",
                                .run = run};
