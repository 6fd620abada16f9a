// Makes the command line and the environment of each worker (a rank's process, which `trireme run`
// starts). Read next: worker.c, which starts it.
#include "launch/command.h"

#include "base/program.h"
#include "recipe/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

enum { VARIABLES_MAX = 32 };

static bool is_program(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

// Looks for the program `name` in the folders of PATH, as a shell does. NULL: there is none.
static const char *search_path(tri_arena *arena, const char *name) {
    const char *folders = getenv("PATH");
    for (const char *at = folders ? folders : "/usr/local/bin:/usr/bin:/bin"; *at;) {
        size_t length = strcspn(at, ":");
        const char *path =
            tri_arena_printf(arena, "%.*s/%s", length ? (int)length : 1, length ? at : ".", name);
        if (is_program(path)) return path;
        at += length + (at[length] == ':');
    }
    return NULL;
}

// A recipe where the program should be: the user has left the program out.
static bool is_recipe(const char *name) { return tri_recipe_is_named(name) && !is_program(name); }

static tri_status find_program(tri_arena *arena, const char *name, const char **out) {
    *out = name;
    if (is_recipe(name))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%.400s: is a recipe and no program; write trireme train %.400s", name,
                        name);
    if (strchr(name, '/')) {
        if (access(name, F_OK) != 0) return TRI_FAIL(TRI_NOT_FOUND, "%.400s: not found", name);
        if (!is_program(name))
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%.400s: is not an executable program (a Python script needs a name "
                            "that ends in .py)",
                            name);
        return TRI_OK;
    }
    *out = search_path(arena, name);
    char self[PATH_MAX];
    if (!*out && !strcmp(name, "trireme") && tri_program_start(self))
        *out = tri_arena_strdup(arena, self);
    if (*out) return TRI_OK;
    static const char *const commands[] = {"train", "eval", "predict", "bench"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(name, commands[i]))
            return TRI_FAIL(TRI_NOT_FOUND,
                            "%s: no program of this name is on PATH; write trireme %s", name, name);
    bool is_in_folder = access(name, F_OK) == 0;
    return TRI_FAIL(TRI_NOT_FOUND, "%.400s: no program of this name is on PATH%s%.400s%s", name,
                    is_in_folder ? "; did you mean ./" : "", is_in_folder ? name : "",
                    is_in_folder ? "?" : "");
}

static bool ends_in_py(const char *name) {
    size_t length = strlen(name);
    return length > 3 && !strcmp(name + length - 3, ".py");
}

tri_status launch_command_find(tri_arena *arena, const launch_options *options,
                               launch_command *out) {
    int given = 0;
    while (options->program[given]) given++;
    out->argv = TRI_NEW_ARRAY(arena, const char *, given + 5);
    const char *name = options->program[0];
    bool script = options->run_path || (!options->no_python && ends_in_py(name));
    if (script || options->module) {
        const char *python = getenv("PYTHON_EXEC");
        if (!python || !*python) python = "python3";
        out->argv[out->argc++] = python;
        out->argv[out->argc++] = "-u"; // makes Python's output unbuffered
        if (options->module) out->argv[out->argc++] = "-m";
        if (script && !options->module && access(name, R_OK) != 0)
            return TRI_FAIL(TRI_NOT_FOUND, "%.400s: there is no readable script of this name",
                            name);
        if (options->run_path) {
            out->argv[out->argc++] = "-c";
            out->argv[out->argc++] = "import runpy, sys; del sys.argv[0]; "
                                     "runpy.run_path(sys.argv[0], run_name='__main__')";
        }
        TRI_TRY(find_program(arena, python, &out->path));
    } else {
        TRI_TRY(find_program(arena, name, &out->path));
    }
    for (int i = 0; i < given; i++) out->argv[out->argc++] = options->program[i];
    return TRI_OK;
}

// Replaces each ${local_rank} by the worker's local rank. torchrun's command lines have no other
// macro.
static char *expand(tri_arena *arena, const char *text, int local_rank) {
    static const char macro[] = "${local_rank}";
    char *out = tri_arena_strdup(arena, text);
    for (char *at = out; (at = strstr(at, macro));) {
        size_t before = (size_t)(at - out);
        char *next = tri_arena_printf(arena, "%.*s%d%s", (int)before, out, local_rank,
                                      at + sizeof macro - 1);
        at = next + before;
        out = next;
    }
    return out;
}

char **launch_command_arguments(tri_arena *arena, const launch_command *command, int local_rank) {
    char **out = TRI_NEW_ARRAY(arena, char *, command->argc + 1);
    for (int i = 0; i < command->argc; i++) out[i] = expand(arena, command->argv[i], local_rank);
    return out;
}

typedef struct variables {
    tri_arena *arena;
    // Each text is "NAME=value", which sets a variable, or "NAME" alone, which removes a variable
    // that the worker would inherit.
    char *text[VARIABLES_MAX];
    int count;
} variables;

__attribute__((format(printf, 2, 3))) static void put(variables *v, const char *format, ...) {
    char text[4600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    TRI_ASSERT(v->count < VARIABLES_MAX);
    v->text[v->count++] = tri_arena_strdup(v->arena, text);
}

// Adds the variable for --virtual-local-rank, which is for programs that always use GPU 0: worker i
// gets a CUDA_VISIBLE_DEVICES that has only entry i of this process's list or, without such a list,
// GPU i.
static void put_virtual_rank(variables *v, int local_rank) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    const char *at = visible;
    for (int i = 0; at && i < local_rank; i++) {
        at = strchr(at, ',');
        if (at) at++;
    }
    if (at)
        put(v, "CUDA_VISIBLE_DEVICES=%.*s", (int)strcspn(at, ","), at);
    else if (!visible)
        put(v, "CUDA_VISIBLE_DEVICES=%d", local_rank);
}

// Adds the variables by which the workers of all nodes find each other in a run on several nodes.
// Their values come from the launcher that decides for all nodes (the serving agent).
static void put_agent(variables *v, const launch_members *m) {
    // The generation counts all starts of the workers. TORCHELASTIC_RESTART_COUNT cannot replace
    // it, because it counts only restarts after a failure, and the workers are also started again
    // when a node came or went.
    put(v, "TRIREME_GENERATION=%d", m->generation);
    put(v, "TRIREME_JOB=%s", m->job);
    if (m->store[0])
        put(v, "TRIREME_STORE=%s", m->store);
    else
        // Removes an inherited value. The store's address is missing only while the store's server
        // itself uses this function, to learn the names of job and run (store.c).
        put(v, "TRIREME_STORE");
}

static void put_all(variables *v, const launch_options *o, const launch_members *m, int local_rank,
                    const char *error_file) {
    int rank = m->first_rank + local_rank;
    put(v, "RANK=%d", rank);
    put(v, "LOCAL_RANK=%d", o->virtual_local_rank ? 0 : local_rank);
    put(v, "GROUP_RANK=%d", m->group_rank);
    put(v, "ROLE_RANK=%d", rank);
    put(v, "WORLD_SIZE=%d", m->world_size);
    put(v, "LOCAL_WORLD_SIZE=%d", o->workers);
    put(v, "GROUP_WORLD_SIZE=%d", m->group_size);
    put(v, "ROLE_WORLD_SIZE=%d", m->world_size);
    put(v, "ROLE_NAME=%s", o->role);
    put(v, "MASTER_ADDR=%s", m->master_addr);
    put(v, "MASTER_PORT=%d", m->master_port);
    put(v, "TORCHELASTIC_RESTART_COUNT=%d", m->restarts);
    put(v, "TORCHELASTIC_MAX_RESTARTS=%d", o->max_restarts);
    put(v, "TORCHELASTIC_RUN_ID=%s", m->run_id);
    put(v, "TORCHELASTIC_ERROR_FILE=%s", error_file);
    // Rank 0 serves PyTorch's store; the launcher does not.
    put(v, "TORCHELASTIC_USE_AGENT_STORE=False");
    put(v, "TRIREME_NONCE=%s", m->nonce);
    if (o->nodes_max > 1) put_agent(v, m);
    // Removes the variable, which describes how this launcher itself was started.
    put(v, "TRIREME_LAUNCHER");
    if (!getenv("NCCL_ASYNC_ERROR_HANDLING")) put(v, "NCCL_ASYNC_ERROR_HANDLING=1");
    if (!getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING")) put(v, "TORCH_NCCL_ASYNC_ERROR_HANDLING=1");
    // With --numa-binding auto each worker has cores of its own, so it may have a thread for each
    // of them. Otherwise workers may share cores, and a thread of every worker for every core would
    // be too many, so each worker gets one thread.
    if (!getenv("OMP_NUM_THREADS") && o->workers > 1 && o->binding != LAUNCH_BIND_AUTO)
        put(v, "OMP_NUM_THREADS=1");
    if (o->virtual_local_rank) put_virtual_rank(v, local_rank);
}

static bool is_replaced(const variables *v, const char *entry) {
    size_t length = strcspn(entry, "=");
    for (int i = 0; i < v->count; i++)
        if (strcspn(v->text[i], "=") == length && !strncmp(v->text[i], entry, length)) return true;
    return false;
}

char **launch_command_environment(tri_arena *arena, const launch_options *options,
                                  const launch_members *members, int local_rank,
                                  const char *error_file) {
    variables v = {.arena = arena};
    put_all(&v, options, members, local_rank, error_file);
    int inherited = 0, count = 0;
    while (environ[inherited]) inherited++;
    char **out = TRI_NEW_ARRAY(arena, char *, inherited + v.count + 1);
    for (int i = 0; i < inherited; i++)
        if (!is_replaced(&v, environ[i])) out[count++] = environ[i];
    for (int i = 0; i < v.count; i++)
        if (strchr(v.text[i], '=')) out[count++] = v.text[i];
    return out;
}
