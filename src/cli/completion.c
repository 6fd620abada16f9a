// `trireme completion bash|zsh|fish`: prints a completion script for the shell. First come the
// tables of commands and recipe keys in the shell's syntax, then a fixed program for the shell,
// which looks words up in them.
#include "cli/cli.h"

#include "base/option_manual.h"
#include "launch/site.h"
#include "nn/models/models.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

// The syntax in which a shell writes the two kinds of tables: a variable with a list of words, and
// a function that takes a key and prints a list of words, with one case for each key. The tables of
// different shells differ only in this syntax.
typedef struct shell_syntax {
    const char *list_open, *list_close; // before and after the words of a list
    // The text before a function's name, between the name and the cases, and after the cases.
    const char *function_open, *switch_open, *function_end;
    const char *otherwise; // the case of an unknown key, in which the function fails
    // The text before a case's key, between the key and its words, and after the words.
    const char *case_open, *words_open, *case_close;
} shell_syntax;

static const shell_syntax posix = {
    .list_open = "='",
    .list_close = "'\n",
    .function_open = "",
    .switch_open = "() {\n    case $1 in\n",
    .function_end = "    esac\n}\n",
    .otherwise = "    *) return 1 ;;\n",
    .case_open = "    '",
    .words_open = "') echo '",
    .case_close = "' ;;\n",
};

static const shell_syntax fish = {
    .list_open = " (string split -n ' ' -- '",
    .list_close = "')\n",
    .function_open = "function ",
    .switch_open = "\n    switch $argv[1]\n",
    .function_end = "    end\nend\n",
    .otherwise = "    case '*'\n        return 1\n",
    .case_open = "    case '",
    .words_open = "'\n        string split -n ' ' -- '",
    .case_close = "'\n        return 0\n",
};

static void open_list(const shell_syntax *s, const char *name) {
    printf("%s%s%s", s == &fish ? "set -g " : "", name, s->list_open);
}

static void open_function(const shell_syntax *s, const char *name) {
    printf("%s%s%s", s->function_open, name, s->switch_open);
}

static void close_function(const shell_syntax *s, bool fails) {
    printf("%s%s", fails ? s->otherwise : "", s->function_end);
}

static void open_case(const shell_syntax *s, const char *key) {
    printf("%s%s%s", s->case_open, key, s->words_open);
}

static void close_case(const shell_syntax *s) { fputs(s->case_close, stdout); }

// Prints the literal values of an argument such as "auto|cpu|PATH": words without capital letters,
// and words with a digit, which are names of types ("F32|BF16"). Other words are placeholders.
static void print_choices(const char *argument) {
    if (!strchr(argument, '|')) return;
    for (const char *at = argument; *at;) {
        size_t length = strcspn(at, "|");
        bool has_capital = false, has_digit = false;
        for (size_t i = 0; i < length; i++) {
            has_capital = has_capital || isupper((unsigned char)at[i]);
            has_digit = has_digit || isdigit((unsigned char)at[i]);
        }
        bool is_literal = !has_capital || has_digit;
        if (is_literal) printf("%.*s ", (int)length, at);
        at += length + (at[length] != 0);
    }
}

static void print_flags(const shell_syntax *s, const cli_command *c) {
    cli_flag f;
    open_case(s, c->name);
    for (int i = 0; cli_flag_at(c, i, &f); i++)
        if (strcmp(f.name, "help") != 0) printf("--%s ", f.name);
    printf("--help");
    close_case(s);
}

// Prints the sites that are installed, which users may choose by name.
static void print_sites(void) {
    tri_arena *arena = tri_arena_create(NULL, "sites");
    tri_site *sites;
    int count;
    if (tri_site_list(arena, &sites, &count) == TRI_OK)
        for (int i = 0; i < count; i++) printf("%s ", sites[i].name);
    tri_arena_destroy(arena);
}

// Prints the devices that can be planned for without being here: cuda:h200. The programs below
// offer words with a colon only when the colon is typed, because these are many.
static void print_device_models(void) {
    for (const tri_device_backend *const *b = cli_backends.devices; *b; b++)
        for (const tri_device_model *m = (*b)->models; m && m->name; m++)
            printf("%s:%s ", (*b)->name, m->name);
}

static void print_operations(void) {
    for (int i = 0; cli_bench_operation(i); i++) printf("%s ", cli_bench_operation(i));
}

// Flags with values that their argument does not list.
static const struct {
    const char *flag;
    void (*print)(void);
} listed[] = {
    {"site", print_sites}, {"device", print_device_models}, {"op", print_operations}, {0}};

// The keys of a recipe that were already printed. Several variants of a section (such as the
// optimizers sgd and adam) may have the same key, which should be offered only once.
typedef struct seen_keys {
    const shell_syntax *syntax;
    const char *keys[256];
    char text[256 * 64];
    size_t used;
    int count;
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
    bool is_open = strchr(e->key, '*') != NULL; // users choose the name for which the * stands
    if (e->row && !is_open && !e->is_element && is_new(context, e->key)) printf("%s= ", e->key);
}

static void print_path(void *context, const tri_option_entry *e) {
    if (e->row && e->row->path != TRI_PATH_NONE) printf("%s ", e->key);
}

static bool may_change(const tri_option_entry *e) {
    tri_option_change change;
    tri_option_find(&tri_recipe_table, e->key, &change);
    return change == TRI_CHANGE_ON_ORDER;
}

// Prints the keys that a resumed run may change.
static void print_changeable(void *context, const tri_option_entry *e) {
    if (may_change(e)) print_key(context, e);
}

// Prints one case of the shell's function for each flag of a command: the key is the command and
// the flag, "train --device", and the words are the flag's values.
static void print_values(const shell_syntax *s, const cli_command *c) {
    cli_flag f;
    for (int i = 0; cli_flag_at(c, i, &f); i++) {
        if (!f.argument) continue;
        printf("%s%s --%s%s", s->case_open, c->name, f.name, s->words_open);
        seen_keys seen = {.count = 0};
        if (!strcmp(f.argument, CLI_SETTINGS))
            tri_option_walk(&tri_recipe_table, print_changeable, &seen);
        else
            print_choices(f.argument);
        for (int k = 0; listed[k].flag; k++)
            if (!strcmp(f.name, listed[k].flag)) listed[k].print();
        close_case(s);
    }
}

static void print_verbs(const shell_syntax *s, const cli_command *c) {
    if (!c->verbs) return;
    open_case(s, c->name);
    for (const cli_verb *v = c->verbs; v->name; v++) printf("%s ", v->name);
    close_case(s);
}

static void print_key_values(void *context, const tri_option_entry *e) {
    seen_keys *seen = context;
    if (!e->row || e->is_element || !is_new(seen, e->key)) return;
    static const char *const of_type[] = {[TRI_OPTION_IS_BOOL] = "true false ",
                                          [TRI_OPTION_IS_BOOL_OR_INT] = "true false ",
                                          [TRI_OPTION_IS_INT_OR_AUTO] = "auto ",
                                          [TRI_OPTION_IS_REST] = NULL};
    const char *words = of_type[e->row->type];
    if (!words && !e->row->choices) return;
    open_case(seen->syntax, e->key);
    if (words) fputs(words, stdout);
    for (const char *const *choice = e->row->choices; choice && *choice; choice++)
        printf("%s ", *choice);
    close_case(seen->syntax);
}

static void print_names(const shell_syntax *s, const char *key, const tri_option_table *table) {
    open_case(s, key);
    for (int i = 0; i < table->variant_count; i++) printf("%s ", table->variants[i].name);
    close_case(s);
}

static void print_of_commands(const shell_syntax *s, const char *function,
                              void (*print)(const shell_syntax *s, const cli_command *c),
                              bool fails) {
    open_function(s, function);
    for (const cli_command *const *c = cli_commands; *c; c++) print(s, *c);
    close_function(s, fails);
}

static void print_tables(const shell_syntax *s) {
    open_list(s, "_trireme_commands");
    for (const cli_command *const *c = cli_commands; *c; c++) printf("%s ", (*c)->name);
    fputs(s->list_close, stdout);
    print_of_commands(s, "_trireme_flags", print_flags, false);
    print_of_commands(s, "_trireme_values", print_values, true);
    print_of_commands(s, "_trireme_verbs", print_verbs, false);
    seen_keys keys = {.syntax = s}, values = {.syntax = s};
    open_list(s, "_trireme_paths"); // the keys whose values are files or folders
    tri_option_walk(&tri_recipe_table, print_path, NULL);
    fputs(s->list_close, stdout);
    open_list(s, "_trireme_keys");
    tri_option_walk(&tri_recipe_table, print_key, &keys);
    fputs(s->list_close, stdout);
    open_function(s, "_trireme_key_values");
    open_case(s, "model.name");
    for (const tri_task *const *m = tri_models; *m; m++) printf("%s ", (*m)->name);
    close_case(s);
    print_names(s, "data.name", &tri_data_table);
    print_names(s, "optimizer.name", &tri_optimizer_table);
    print_names(s, "schedule.name", &tri_schedule_table);
    print_names(s, "average.name", &tri_average_table);
    tri_option_walk(&tri_recipe_table, print_key_values, &values);
    close_function(s, true);
}

// The program for bash. Bash usually breaks words at '=' and ':' too, and a completion replaces
// only the text after the last break. So for "optimizer.name=ad" the program offers "adam". Only if
// the user's COMP_WORDBREAKS has no '=' does it offer "optimizer.name=adam". The program splits the
// line at blanks itself, because it needs the key before the '='.
static const char bash_program[] =
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
    "    elif [[ \" $_trireme_paths\" == *\" $key \"* ]]; then\n"
    "        [[ $before ]] || _trireme_files \"$value\"\n"
    "    fi\n"
    "}\n"
    "_trireme_words() { # $1: what may be offered, $2: the word\n"
    "    local hidden='*:*' before=\n"
    "    [[ $2 == *:* ]] && hidden=\n"
    "    [[ $COMP_WORDBREAKS == *:* ]] && before=${2%\"${2##*:}\"}\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$1\" -X \"$hidden\" -- \"$2\")\n"
    "    COMPREPLY=(\"${COMPREPLY[@]#\"$before\"}\")\n"
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
    "    elif values=$(_trireme_values \"$command ${words[-1]}\"); then\n"
    "        _trireme_words \"$values\" \"$word\"\n"
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

static const char zsh_program[] =
    "_trireme() {\n"
    "    local -a before=(\"${(@)words[1,CURRENT-1]}\")\n"
    "    local i start=1 command verbs values key\n"
    "    for (( i = 1; i <= $#before; i++ )); do # trireme run ... trireme train: the last one\n"
    "        [[ ${before[i]:t} == trireme ]] && start=$i\n"
    "    done\n"
    "    before=(\"${(@)before[start,-1]}\")\n"
    "    command=${before[2]}\n"
    "    verbs=$(_trireme_verbs \"$command\")\n"
    "    if [[ -z $command ]]; then\n"
    "        compadd -- ${=_trireme_commands}\n"
    "    elif values=$(_trireme_values \"$command ${before[-1]}\"); then\n"
    "        local -a offered=(${=values})\n"
    "        [[ $PREFIX == *:* ]] || offered=(${offered:#*:*})\n"
    "        compadd -- $offered || _files\n"
    "    elif [[ $PREFIX == -* ]]; then\n"
    "        compadd -- ${=$(_trireme_flags \"$command\")}\n"
    "    elif [[ -n $verbs && $#before -eq 2 ]]; then\n"
    "        compadd -- ${=verbs}\n"
    "    elif [[ $command == run ]]; then\n"
    "        if [[ -n $PREFIX ]]; then _command_names -e; else compadd -- trireme; fi\n"
    "    elif [[ \" ${before[*]}\" != *.yaml* ]]; then\n"
    "        if [[ $command == checkpoint && ${before[3]} != init ]]; then\n"
    "            _files\n"
    "        else\n"
    "            _files -g '*.yaml'\n"
    "        fi\n"
    "    elif [[ $PREFIX == *=* ]]; then\n"
    "        key=${PREFIX%%=*}\n"
    "        compset -P '*='\n"
    "        if values=$(_trireme_key_values \"$key\"); then\n"
    "            compadd -- ${=values}\n"
    "        elif [[ \" $_trireme_paths\" == *\" $key \"* ]]; then\n"
    "            _files\n"
    "        fi\n"
    "    else\n"
    "        compadd -S '' -- ${=_trireme_keys}\n"
    "    fi\n"
    "}\n"
    "if [[ ${funcstack[1]} == _trireme ]]; then # found in $fpath, not sourced\n"
    "    _trireme \"$@\"\n"
    "else\n"
    "    compdef _trireme trireme\n"
    "fi\n";

static const char fish_program[] =
    "function _trireme_offer\n"
    "    set -l words (commandline -opc)\n"
    "    set -l word (commandline -ct)\n"
    "    set -l start 1\n"
    "    for i in (seq (count $words)) # trireme run ... trireme train: the last one counts\n"
    "        string match -qr '(^|/)trireme$' -- $words[$i]; and set start $i\n"
    "    end\n"
    "    set words $words[$start..-1]\n"
    "    set -l command $words[2]\n"
    "    set -l verbs (_trireme_verbs \"$command\")\n"
    "    set -l values\n"
    "    if test -z \"$command\"\n"
    "        string join \\n -- $_trireme_commands\n"
    "    else if set values (_trireme_values \"$command $words[-1]\")\n"
    "        string match -q '*:*' -- \"$word\"; or set values (string match -v '*:*' -- $values)\n"
    "        string match -- \"$word*\" $values; or __fish_complete_path \"$word\"\n"
    "    else if string match -q -- '-*' \"$word\"\n"
    "        _trireme_flags $command\n"
    "    else if test -n \"$verbs\" -a (count $words) -eq 2\n"
    "        string join \\n -- $verbs\n"
    "    else if test $command = run\n"
    "        test -n \"$word\"; and complete -C \"$word\"; or echo trireme\n"
    "    else if not string match -q -- '*.yaml*' \"$words\"\n"
    "        if test $command = checkpoint -a \"$words[3]\" != init\n"
    "            __fish_complete_path \"$word\"\n"
    "        else\n"
    "            __fish_complete_suffix .yaml\n"
    "        end\n"
    "    else if string match -q -- '*=*' \"$word\"\n"
    "        set -l parts (string split -m 1 = -- $word)\n"
    "        if set values (_trireme_key_values $parts[1])\n"
    "            printf \"$parts[1]=%s\\n\" $values\n"
    "        else if contains -- $parts[1] $_trireme_paths\n"
    "            for path in (__fish_complete_path \"$parts[2]\")\n"
    "                echo \"$parts[1]=$path\"\n"
    "            end\n"
    "        end\n"
    "    else\n"
    "        string join \\n -- $_trireme_keys\n"
    "    end\n"
    "end\n"
    "complete -c trireme -f -a '(_trireme_offer)'\n";

static const struct {
    const char *name, *first_line;
    const shell_syntax *syntax;
    const char *program;
} shells[] = {{"bash", "", &posix, bash_program},
              {"zsh", "#compdef trireme\n", &posix, zsh_program},
              {"fish", "", &fish, fish_program}};

static int run(const cli_context *context, int argc, char **argv) {
    (void)context;
    cli_arguments a;
    int code = cli_parse(&cli_completion, argc, argv, &a);
    if (code >= 0) return code;
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (a.count != 1 || strcmp(a.words[0], shells[i].name) != 0) continue;
        printf("%s# Completion of trireme's command line for %s, as `trireme completion %s` "
               "prints it.\n",
               shells[i].first_line, shells[i].name, shells[i].name);
        print_tables(shells[i].syntax);
        fputs(shells[i].program, stdout);
        return 0;
    }
    return cli_usage(&cli_completion, "completion: for which shell? There are bash, zsh and fish");
}

static const cli_verb verbs[] = {
    {"bash", "", "a script to be sourced, or put where bash looks"},
    {"zsh", "", "a script to be sourced, or a file _trireme in $fpath"},
    {"fish", "", "a script to be sourced, or put where fish looks"},
    {0}};

const cli_command cli_completion = {
    .name = "completion",
    .arguments = "bash|zsh|fish",
    .help = "Print a script that completes commands, flags, recipes and their keys.",
    .verbs = verbs,
    .examples = "source <(trireme completion bash)\n"
                "trireme completion bash > ~/.local/share/bash-completion/completions/trireme\n"
                "trireme completion fish > ~/.config/fish/completions/trireme.fish\n",
    .run = run};
