// The table of `trireme run`'s flags, by which the command line and environment variables are read.
// As in torchrun, a variable can set a flag too: PET_MAX_RESTARTS sets --max-restarts. values.c
// reads values that have a grammar of their own.
#include "launch/options.h"

#include "base/log.h"
#include "base/shell.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum value_kind {
    SWITCH, // a flag without a value
    TEXT,
    FOLDER,
    COUNT, // a number: 0, 1, 2, …
    SECONDS,
    WORKERS,
    NODES,
    STREAMS,
    RANKS,
    SIGNAL_NAMES,
    CONF,
    BINDING,
    START_METHOD,
    // The value names one of torchrun's plugins, which are written in Python: only the default is
    // accepted.
    ONLY_DEFAULT,
} value_kind;

typedef struct flag {
    const char *name;
    char letter;
    value_kind kind;
    size_t offset; // where the value is stored in launch_options
    const char *initial;
    const char *values; // the values as --help shows them
    const char *help;
} flag;

#define FIELD(name) offsetof(launch_options, name)

// torchrun's flags, in torchrun's order, and --show-binding. Names with underscores, and
// environment variables PET_<NAME>, are accepted too.
static const flag flags[] = {
    {"nnodes", 0, NODES, FIELD(nodes_min), "1", "N|MIN:MAX",
     "nodes of the job: on each, the same command is started; MIN:MAX begins with MIN, and others "
     "may join and leave"},
    {"nproc-per-node", 0, WORKERS, FIELD(workers), "1", "N|auto|cpu|gpu", "workers on this node"},
    {"standalone", 0, SWITCH, FIELD(standalone), "0", NULL,
     "run on this node alone, on a free port: the usual choice on one machine"},
    {"max-restarts", 0, COUNT, FIELD(max_restarts), "0", "N",
     "after a failure, start all workers again up to N times"},
    {"module", 'm', SWITCH, FIELD(module), "0", NULL, "PROGRAM is a Python module (python3 -u -m)"},
    {"no-python", 0, SWITCH, FIELD(no_python), "0", NULL,
     "start PROGRAM itself even if its name ends in .py"},
    {"run-path", 0, SWITCH, FIELD(run_path), "0", NULL,
     "PROGRAM is a Python script to run through runpy"},
    {"log-dir", 0, FOLDER, FIELD(log_dir), NULL, "DIR",
     "make a folder for log and error files in DIR (default: a temporary folder)"},
    {"redirects", 'r', STREAMS, FIELD(redirects), "0", "0|1|2|3|RANK:N,…",
     "write stdout (1), stderr (2) or both (3) of all workers, or of the ranks named, to files"},
    {"tee", 't', STREAMS, FIELD(tee), "0", "0|1|2|3|RANK:N,…",
     "like --redirects, but also show the output on the console, with [role rank]: before it"},
    {"local-ranks-filter", 0, RANKS, FIELD(shown), "", "RANK,…",
     "show only these workers on the console"},
    {"role", 0, TEXT, FIELD(role), "default", "NAME",
     "name of the workers in output prefixes and in ROLE_NAME"},
    {"numa-binding", 0, BINDING, FIELD(binding), "none",
     "none|node|socket|exclusive|core-complex|auto",
     "bind each worker to CPUs; auto: to cores of its own, near its GPU if it has one"},
    {"show-binding", 0, SWITCH, FIELD(shows_binding), "0", NULL,
     "print which CPUs each worker gets, as a table and as masks; without PROGRAM, nothing else"},
    {"signals-to-handle", 0, SIGNAL_NAMES, FIELD(signals), "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
     "NAME,…",
     "signals that end the run and are passed on to the workers; SIGUSR1, SIGUSR2 and SIGXCPU are "
     "only passed on"},
    {"shutdown-timeout", 0, SECONDS, FIELD(shutdown_s), "30", "SECONDS",
     "time for workers to end after a signal (at most 5 after a failure); then they are "
     "killed"},
    {"monitor-interval", 0, SECONDS, FIELD(monitor_interval_s), "0.1", "SECONDS",
     "accepted without effect: the end of a worker is noticed at once"},
    {"virtual-local-rank", 0, SWITCH, FIELD(virtual_local_rank), "0", NULL,
     "set LOCAL_RANK=0 for all workers; each sees one GPU of CUDA_VISIBLE_DEVICES"},
    {"node-rank", 0, COUNT, FIELD(node_rank), "0", "N", "number of this node, from 0 (static)"},
    {"master-addr", 0, TEXT, FIELD(master_addr), "127.0.0.1", "HOST", "where rank 0 listens"},
    {"master-port", 0, COUNT, FIELD(master_port), "29500", "PORT", "port on which rank 0 listens"},
    {"local-addr", 0, TEXT, FIELD(local_addr), NULL, "HOST",
     "address under which other nodes reach this one"},
    {"rdzv-backend", 0, TEXT, FIELD(backend), "static", "static|c10d",
     "how the nodes find each other"},
    {"rdzv-endpoint", 0, TEXT, FIELD(endpoint), "", "HOST[:PORT]",
     "where the nodes find each other: one of them, and a free port there (29400)"},
    {"rdzv-id", 0, TEXT, FIELD(run_id), "none", "NAME", "the job's name, TORCHELASTIC_RUN_ID"},
    {"rdzv-conf", 0, CONF, FIELD(conf), "", "KEY=VALUE,…",
     "join_timeout=SECONDS (600), last_call_timeout=SECONDS (30), read_timeout=SECONDS (60) for "
     "a node that was cut off, and of signs of life keep_alive_interval=SECONDS (5) and "
     "keep_alive_max_attempt=N (3)"},
    {"start-method", 0, START_METHOD, 0, "spawn", "spawn|fork|forkserver",
     "accepted without effect: workers are programs, not functions"},
    {"event-log-handler", 0, ONLY_DEFAULT, 0, "null", "null",
     "accepted for torchrun's command lines; its plugins are Python"},
    {"logs-specs", 0, ONLY_DEFAULT, 0, "default", "default",
     "accepted for torchrun's command lines; its plugins are Python"},
    {"help", 'h', SWITCH, FIELD(help), "0", NULL, "this page"},
};
enum { FLAGS = sizeof flags / sizeof *flags, NAME_BYTES = 48 };
_Static_assert(FLAGS <= 64, "launch_options.given has a bit for each");

static tri_status read_count(const char *name, const char *text, int *out) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < 0 || value > 1000000000)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: '%.40s' is not a number from 0", name, text);
    *out = (int)value;
    return TRI_OK;
}

static tri_status read_seconds(const char *name, const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    if (end == text || *end || !isfinite(*out) || *out < 0 || *out > 1e6)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: '%.40s' is not a number of seconds", name, text);
    return TRI_OK;
}

// Reads one of several words; *out is the word's index.
static tri_status read_word(const char *name, const char *text, const char *const *words,
                            int *out) {
    char list[128] = "";
    for (int i = 0; words[i]; i++) {
        if (!strcmp(words[i], text)) {
            *out = i;
            return TRI_OK;
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", words[i]);
    }
    return TRI_FAIL(TRI_BAD_INPUT, "%s: '%.40s' is not one of %s", name, text, list);
}

static tri_status read_binding(const char *name, const char *text, launch_binding *out) {
    static const char *const words[] = {"none",         "node", "socket", "exclusive",
                                        "core-complex", "auto", NULL};
    int index;
    TRI_TRY(read_word(name, text, words, &index));
    *out = (launch_binding)index;
    return TRI_OK;
}

// Reads `text` as the flag's value; `name` is the flag or the variable, for messages.
static tri_status set_flag(const flag *f, const char *name, const char *text, launch_options *o) {
    static char folder[PATH_MAX];
    static const char *const methods[] = {"spawn", "fork", "forkserver", NULL};
    void *field = (char *)o + f->offset;
    int unused;
    switch (f->kind) {
    case SWITCH:
        *(bool *)field = strcmp(text, "0") != 0 && *text;
        return TRI_OK;
    case TEXT:
        *(const char **)field = text;
        return TRI_OK;
    case FOLDER: // one flag is a folder, and a process reads one command line
        *(const char **)field = tri_shell_home(text, folder, sizeof folder);
        return TRI_OK;
    case COUNT:
        return read_count(name, text, field);
    case SECONDS:
        return read_seconds(name, text, field);
    case WORKERS:
        return launch_workers_parse(name, text, field);
    case NODES:
        return launch_nodes_parse(name, text, &o->nodes_min, &o->nodes_max);
    case STREAMS:
        return launch_stream_map_parse(name, text, field);
    case RANKS:
        return launch_rank_set_parse(name, text, field);
    case SIGNAL_NAMES:
        return launch_signals_parse(name, text, field);
    case CONF:
        return launch_conf_parse(name, text, field);
    case BINDING:
        return read_binding(name, text, field);
    case START_METHOD:
        return read_word(name, text, methods, &unused);
    case ONLY_DEFAULT:
        return read_word(name, text, (const char *const[]){f->initial, NULL}, &unused);
    }
    return TRI_OK;
}

static void underscored(const char *name, char *out) {
    int i = 0;
    for (; name[i] && i < NAME_BYTES - 1; i++) out[i] = name[i] == '-' ? '_' : name[i];
    out[i] = 0;
}

static tri_status read_environment(const char *(*get)(const char *name), launch_options *o) {
    for (int i = 0; i < FLAGS; i++) {
        char name[NAME_BYTES + 4] = "PET_";
        underscored(flags[i].name, name + 4);
        for (char *c = name; *c; c++) *c = (char)toupper((unsigned char)*c);
        const char *text = flags[i].letter == 'h' ? NULL : get(name);
        if (text) TRI_TRY(set_flag(&flags[i], name, text, o));
        if (text) o->given |= UINT64_C(1) << i;
        if (text && !strcmp(flags[i].name, "master-port")) o->master_port_given = true;
    }
    return TRI_OK;
}

static tri_status bad_flag(char **argv, int code) {
    const char *given = argv[optind - 1];
    if (code == ':')
        return TRI_FAIL(TRI_BAD_INPUT, "%.80s needs a value; see trireme run --help", given);
    // In a word of several letters, such as -np, optind does not point behind it yet. Of a long
    // flag, optopt is 0 or no letter.
    if (optopt > 0 && optopt < 256 && isprint(optopt))
        return TRI_FAIL(TRI_BAD_INPUT, "trireme run has no flag -%c%s; see --help", optopt,
                        optopt == 'n' ? ": --nproc-per-node N starts N ranks" : "");
    return TRI_FAIL(TRI_BAD_INPUT,
                    "trireme run has no flag %.80s (or several begin with it); see --help", given);
}

static tri_status read_arguments(int argc, char **argv, launch_options *o) {
    struct option table[2 * FLAGS + 1] = {0};
    char with_underscores[FLAGS][NAME_BYTES], letters[2 * FLAGS + 3] = "+:";
    int rows = 0, letter = 2;
    for (int i = 0; i < FLAGS; i++) {
        int argument = flags[i].kind == SWITCH ? no_argument : required_argument;
        underscored(flags[i].name, with_underscores[i]);
        table[rows++] = (struct option){flags[i].name, argument, NULL, 256 + i};
        if (strcmp(with_underscores[i], flags[i].name) != 0)
            table[rows++] = (struct option){with_underscores[i], argument, NULL, 256 + i};
        if (!flags[i].letter) continue;
        letters[letter++] = flags[i].letter;
        if (argument) letters[letter++] = ':';
    }
    optind = 0; // glibc: 0 makes getopt start from the beginning
    for (int code; (code = getopt_long(argc, argv, letters, table, NULL)) != -1;) {
        const flag *f = code >= 256 ? &flags[code - 256] : NULL;
        for (int i = 0; i < FLAGS && !f; i++)
            if (flags[i].letter && flags[i].letter == code) f = &flags[i];
        if (!f) return bad_flag(argv, code);
        char name[NAME_BYTES + 2];
        snprintf(name, sizeof name, "--%s", f->name);
        TRI_TRY(set_flag(f, name, f->kind == SWITCH ? "1" : optarg, o));
        o->given |= UINT64_C(1) << (f - flags);
        if (!strcmp(f->name, "master-port")) o->master_port_given = true;
    }
    o->program = argv + optind;
    return TRI_OK;
}

static bool always(const launch_options *o) { return true; }
static bool is_standalone(const launch_options *o) { return o->standalone; }
static bool is_static(const launch_options *o) {
    return !o->standalone && !strcmp(o->backend, "static");
}
static bool is_one_node(const launch_options *o) { return o->nodes_max == 1; }
static bool has_static_address(const launch_options *o) { return is_one_node(o) && is_static(o); }
static bool has_given_address(const launch_options *o) { return !is_static(o) && o->local_addr; }
static bool is_numbered(const launch_options *o) { return !is_one_node(o) && !is_static(o); }

// Flags of torchrun that have no effect if is_idle returns true for the given options. They are
// accepted, with a warning that tells why, so that command lines for torchrun work.
static const struct {
    const char *name;
    bool (*is_idle)(const launch_options *o);
    const char *why;
} idle_flags[] = {
    {"monitor-interval", always, "the end of a worker is noticed at once"},
    {"start-method", always, "workers are programs, not functions"},
    {"rdzv-backend", is_standalone, "--standalone runs on this node alone"},
    {"rdzv-endpoint", is_one_node, "the job has only one node"},
    {"rdzv-conf", is_one_node, "the job has only one node"},
    {"node-rank", is_numbered, "c10d numbers nodes in the order in which they join"},
    {"rdzv-id", is_standalone, "--standalone chooses a random name"},
    {"local-addr", has_static_address, "--master-addr says where rank 0 listens"},
    {"master-addr", has_given_address, "--local-addr says where rank 0 listens"},
};

static bool is_given(const launch_options *o, const char *name) {
    for (int i = 0; i < FLAGS; i++)
        if (!strcmp(flags[i].name, name)) return o->given >> i & 1;
    TRI_ASSERT(!"a flag of the table");
    return false;
}

void launch_options_warn_idle(const launch_options *o) {
    for (size_t i = 0; i < sizeof idle_flags / sizeof *idle_flags; i++)
        if (is_given(o, idle_flags[i].name) && idle_flags[i].is_idle(o))
            tri_log_line(TRI_LOG_WARNING, "run: --%s has no effect: %s", idle_flags[i].name,
                         idle_flags[i].why);
}

static tri_status check(const launch_options *o) {
    if (!*o->program && !o->shows_binding)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "no PROGRAM was given: trireme run [FLAG …] PROGRAM [ARG …]");
    if (o->no_python && o->module)
        return TRI_FAIL(TRI_BAD_INPUT, "--no-python and --module exclude each other");
    if (o->master_port < 1 || o->master_port > 65535)
        return TRI_FAIL(TRI_BAD_INPUT, "--master-port: %d is not a port (1 to 65535)",
                        o->master_port);
    if (o->node_rank >= o->nodes_max)
        return TRI_FAIL(TRI_BAD_INPUT, "--node-rank: %d of %d nodes (numbers start at 0)",
                        o->node_rank, o->nodes_max);
    if (o->standalone && o->nodes_max > 1)
        return TRI_FAIL(TRI_BAD_INPUT, "--standalone: runs on one node, and --nnodes asks for %d",
                        o->nodes_max);
    if (is_static(o) && o->nodes_min != o->nodes_max)
        return TRI_FAIL(TRI_BAD_INPUT, "--nnodes: MIN:MAX needs --rdzv-backend c10d");
    return TRI_OK;
}

tri_status launch_options_parse(int argc, char **argv, const char *(*get)(const char *name),
                                launch_options *out) {
    *out = (launch_options){.conf = {600, 30, 15, 60, 5, 3}};
    for (int i = 0; i < FLAGS; i++)
        if (flags[i].initial) TRI_TRY(set_flag(&flags[i], flags[i].name, flags[i].initial, out));
    TRI_TRY(read_environment(get, out));
    TRI_TRY(read_arguments(argc, argv, out));
    // --show-binding without --numa-binding needs a binding that it can show.
    if (out->shows_binding && out->binding == LAUNCH_BIND_NONE) out->binding = LAUNCH_BIND_AUTO;
    return out->help ? TRI_OK : check(out);
}

bool tri_launch_flag_at(int index, tri_launch_flag *out) {
    if (index >= FLAGS) return false;
    const flag *f = &flags[index];
    *out = (tri_launch_flag){f->name, f->values, f->help, f->letter};
    return true;
}

void launch_options_help(void) {
    printf("usage: trireme run [FLAG …] PROGRAM [ARG …]\n\n"
           "Starts PROGRAM several times, as the workers (ranks) of a job. Flags "
           "and\n"
           "variables are torchrun's: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and "
           "the\n"
           "others. A PROGRAM whose name ends in .py is run by python3 (or $PYTHON_EXEC), others "
           "directly.\n"
           "When a worker fails, all workers are stopped, and started again up to --max-restarts "
           "times.\n"
           "The report of a failure shows its cause last.\n\n");
    for (int i = 0; i < FLAGS; i++) {
        const flag *f = &flags[i];
        char left[96];
        snprintf(left, sizeof left, "%c%c%c --%s %s", f->letter ? '-' : ' ',
                 f->letter ? f->letter : ' ', f->letter ? ',' : ' ', f->name,
                 f->values ? f->values : "");
        bool initial = f->initial && *f->initial && f->kind != SWITCH && f->kind != ONLY_DEFAULT;
        printf("  %s\n          %s%s%s%s\n", left, f->help, initial ? " [" : "",
               initial ? f->initial : "", initial ? "]" : "");
    }
    printf("\nEach flag is also read from PET_<NAME>, for instance PET_MAX_RESTARTS=3. In names, "
           "underscores\n"
           "may replace hyphens. Exit codes: 0: done; 1: a worker failed; 2: bad usage or input; "
           "75: stopped\n"
           "early with a checkpoint, run the command again; 128+n: ended by signal n.\n\n"
           "for example\n");
    for (const char *at = TRI_LAUNCH_EXAMPLES; *at; at = strchr(at, '\n') + 1)
        printf("  %.*s\n", (int)strcspn(at, "\n"), at);
}
