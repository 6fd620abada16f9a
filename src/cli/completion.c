// `trireme completion bash`: a script for bash, written from the tables of commands and recipes.
#include "cli/cli.h"

#include "nn/models/models.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

// The parts of "auto|cpu|PATH" that stand for themselves: those without capitals, and of
// "F32|BF16" those with a digit.
static void print_choices(const char *argument) {
    if (!strchr(argument, '|')) return;
    for (const char *at = argument; *at;) {
        size_t length = strcspn(at, "|");
        bool has_capital = false, has_digit = false;
        for (size_t i = 0; i < length; i++) {
            has_capital = has_capital || isupper((unsigned char)at[i]);
            has_digit = has_digit || isdigit((unsigned char)at[i]);
        }
        bool literal = !has_capital || has_digit;
        if (literal) printf("%.*s ", (int)length, at);
        at += length + (at[length] != 0);
    }
}

static void print_flags(const cli_command *c) {
    cli_flag f;
    printf("    '%s') echo '", c->name);
    for (int i = 0; cli_flag_at(c, i, &f); i++)
        if (strcmp(f.name, "help") != 0) printf("--%s ", f.name);
    printf("--help' ;;\n");
}

static void print_values(const cli_command *c) {
    cli_flag f;
    for (int i = 0; cli_flag_at(c, i, &f); i++) {
        if (!f.argument) continue;
        printf("    '%s --%s') echo '", c->name, f.name);
        print_choices(f.argument);
        printf("' ;;\n");
    }
}

static void print_verbs(const cli_command *c) {
    printf("    '%s') echo '", c->name);
    for (const cli_verb *v = c->verbs; v->name; v++) printf("%s ", v->name);
    printf("' ;;\n");
}

// A key that several variants have comes once, at its first place.
typedef struct seen_keys {
    const char *keys[256];
    char text[256 * 64];
    size_t used;
    int count;
    bool with_values;
} seen_keys;

static bool is_new(seen_keys *seen, const char *key) {
    for (int i = 0; i < seen->count; i++)
        if (!strcmp(seen->keys[i], key)) return false;
    size_t size = strlen(key) + 1;
    TRI_ASSERT(seen->count < 256 && seen->used + size <= sizeof seen->text);
    seen->keys[seen->count++] = memcpy(seen->text + seen->used, key, size);
    seen->used += size;
    return true;
}

static void print_key(void *context, const tri_option_entry *e) {
    bool is_open = strchr(e->key, '*') != NULL; // keys that no table knows
    if (e->row && !is_open && is_new(context, e->key)) printf("%s= ", e->key);
}

static void print_key_values(void *context, const tri_option_entry *e) {
    if (!e->row || !is_new(context, e->key)) return;
    if (e->row->type == TRI_OPTION_IS_BOOL) printf("    '%s') echo 'true false' ;;\n", e->key);
    if (!e->row->choices) return;
    printf("    '%s') echo '", e->key);
    for (const char *const *choice = e->row->choices; *choice; choice++) printf("%s ", *choice);
    printf("' ;;\n");
}

static void print_names(const char *key, const tri_option_table *table) {
    printf("    '%s') echo '", key);
    for (int i = 0; i < table->variant_count; i++) printf("%s ", table->variants[i].name);
    printf("' ;;\n");
}

static void print_tables(void) {
    printf("_trireme_commands='");
    for (const cli_command *const *c = cli_commands; *c; c++) printf("%s ", (*c)->name);
    printf("'\n_trireme_flags() {\n    case $1 in\n");
    for (const cli_command *const *c = cli_commands; *c; c++) print_flags(*c);
    printf("    esac\n}\n_trireme_values() {\n    case \"$1 $2\" in\n");
    for (const cli_command *const *c = cli_commands; *c; c++) print_values(*c);
    printf("    *) return 1 ;;\n    esac\n}\n_trireme_verbs() {\n    case $1 in\n");
    for (const cli_command *const *c = cli_commands; *c; c++)
        if ((*c)->verbs) print_verbs(*c);
    seen_keys keys = {.count = 0}, values = {.count = 0};
    printf("    esac\n}\n_trireme_keys='");
    tri_option_walk(&tri_recipe_table, print_key, &keys);
    printf("'\n_trireme_key_values() {\n    case $1 in\n    'model.name') echo '");
    for (const tri_task *const *m = tri_models; *m; m++) printf("%s ", (*m)->name);
    printf("' ;;\n");
    print_names("data.name", &tri_data_table);
    print_names("optimizer.name", &tri_optimizer_table);
    print_names("schedule.name", &tri_schedule_table);
    tri_option_walk(&tri_recipe_table, print_key_values, &values);
    printf("    *) return 1 ;;\n    esac\n}\n");
}

// The words are taken from the line itself: bash breaks them at '=', and counts what it replaces
// from there.
static const char program[] =
    "_trireme_files() { # $1: the word, $2: a suffix or nothing\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    mapfile -t COMPREPLY < <(compgen -d -- \"$1\"; compgen -f -X \"!*$2\" -- \"$1\")\n"
    "    local i\n"
    "    for i in \"${!COMPREPLY[@]}\"; do # once each\n"
    "        [[ -d ${COMPREPLY[i]} && -n ${seen[${COMPREPLY[i]}]} ]] && unset \"COMPREPLY[i]\"\n"
    "        seen[${COMPREPLY[i]:-.}]=1\n"
    "    done\n"
    "}\n"
    "_trireme_setting() { # $1: key=value\n"
    "    local key=${1%%=*} value=${1#*=} before= values\n"
    "    [[ $COMP_WORDBREAKS == *=* ]] || before=$key=\n"
    "    if values=$(_trireme_key_values \"$key\"); then\n"
    "        mapfile -t COMPREPLY < <(compgen -P \"$before\" -W \"$values\" -- \"$value\")\n"
    "    elif [[ $key == data.path || $key == data.train || $key == data.test || $key == init ]]; "
    "then\n"
    "        [[ $before ]] || _trireme_files \"$value\"\n"
    "    fi\n"
    "}\n"
    "_trireme() {\n"
    "    local line=${COMP_LINE:0:COMP_POINT} words word= start=0 i command verbs values\n"
    "    local -A seen=()\n"
    "    read -ra words <<<\"$line\"\n"
    "    if [[ $line != *[[:space:]] ]]; then\n"
    "        word=${words[-1]}\n"
    "        unset 'words[-1]'\n"
    "    fi\n"
    "    for i in \"${!words[@]}\"; do # trireme run ... trireme train: the last one counts\n"
    "        [[ ${words[i]##*/} == trireme ]] && start=$i\n"
    "    done\n"
    "    words=(\"${words[@]:start}\")\n"
    "    command=${words[1]}\n"
    "    verbs=$(_trireme_verbs \"$command\")\n"
    "    if [[ -z $command ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$_trireme_commands\" -- \"$word\")\n"
    "    elif values=$(_trireme_values \"$command\" \"${words[-1]}\"); then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$word\")\n"
    "        [[ ${#COMPREPLY[@]} -gt 0 ]] || _trireme_files \"$word\"\n"
    "    elif [[ $word == -* ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$(_trireme_flags \"$command\")\" -- \"$word\")\n"
    "    elif [[ -n $verbs && ${#words[@]} -eq 2 ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$verbs\" -- \"$word\")\n"
    "    elif [[ $command == run ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -c -- \"$word\")\n"
    "        [[ $word ]] || COMPREPLY=(trireme)\n"
    "    elif [[ \" ${words[*]}\" != *.yaml* ]]; then\n"
    "        local suffix=.yaml\n"
    "        [[ $command == checkpoint && ${words[2]} != init ]] && suffix=\n"
    "        _trireme_files \"$word\" \"$suffix\"\n"
    "    elif [[ $word == *=* ]]; then\n"
    "        _trireme_setting \"$word\"\n"
    "    else\n"
    "        compopt -o nospace 2>/dev/null\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$_trireme_keys\" -- \"$word\")\n"
    "    fi\n"
    "}\n"
    "complete -F _trireme trireme\n";

static int run(const cli_context *context, int argc, char **argv) {
    (void)context;
    cli_arguments a;
    int code = cli_parse(&cli_completion, argc, argv, &a);
    if (code >= 0) return code;
    if (a.count != 1 || strcmp(a.words[0], "bash") != 0)
        return cli_usage(&cli_completion, "completion: for which shell? There is bash");
    printf("# Completion of trireme's command line for bash, as `trireme completion bash` "
           "prints it.\n");
    print_tables();
    fputs(program, stdout);
    return 0;
}

static const cli_verb verbs[] = {{"bash", "", "a script to be sourced"}, {0}};

const cli_command cli_completion = {
    .name = "completion",
    .arguments = "bash",
    .help = "Print a script that completes commands, flags, recipes and their keys.",
    .verbs = verbs,
    .examples = "source <(trireme completion bash)\n"
                "trireme completion bash > ~/.local/share/bash-completion/completions/trireme\n",
    .run = run};
