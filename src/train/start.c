// A run that a job or a launcher starts several times by one command: requeues and chained jobs of
// Slurm, restarts of `trireme run` and torchrun. --resume never and --resume PATH of that command
// are meant for the first start: a later one goes on from what the starts before it have written.
// The file .start in the run folder tells a later start from another run's first: it names the job
// and the launcher that have opened the folder, and what --resume said. It is written only by a
// command with one of these flags. Read next: resume.c.
#include "base/log.h"
#include "base/os.h"
#include "base/process.h"
#include "train/loop.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct start {
    const char *from;     // what --resume says, a path made absolute
    int64_t folder;       // the inode of the run folder: a copy is another run
    const char *job;      // Slurm's number of the job; "": there is none
    int64_t restarts;     // how often Slurm has started the job before
    const char *next;     // the job that was chained to this one; ""
    const char *launcher; // the launcher that starts again what fails; "": there is none
    const char *id;       // the name that torchrun's user has given the run; "": none
    int64_t hosts;        // how many agents torchrun has
} start;

static const char *variable(const char *name) { return getenv(name); }

static int64_t count_of(const char *name) {
    const char *text = variable(name);
    return text ? strtoll(text, NULL, 10) : 0;
}

// Names the launcher so that another one has another name: by the number that `trireme run` draws,
// or by the process of torchrun's agent.
static const char *name_launcher(tri_arena *arena) {
    char text[TRI_PROCESS_TEXT_BYTES];
    tri_process process;
    if (variable("TRIREME_GENERATION") && variable("TRIREME_JOB")) return variable("TRIREME_JOB");
    if (!variable("TORCHELASTIC_RESTART_COUNT")) return "";
    tri_process_self(&process);
    process.pid = tri_launcher_process("RANK");
    process.started = (int64_t)tri_process_start_time(process.pid);
    tri_process_write(&process, text);
    return tri_arena_strdup(arena, text);
}

// torchrun calls a run "none" to which its user has given no name.
static const char *name_run(void) {
    const char *id = variable("TORCHELASTIC_RUN_ID");
    return id && strcmp(id, "none") != 0 ? id : "";
}

static const char *absolute(tri_arena *arena, const train_loop *loop) {
    const char *from = loop->request->resume;
    char here[PATH_MAX];
    if (!train_resumes_by_path(loop) || *from == '/' || !getcwd(here, sizeof here)) return from;
    return tri_arena_printf(arena, "%s/%s", here, from);
}

static start this_start(tri_arena *arena, const train_loop *loop) {
    train_slurm_job job;
    struct stat info;
    (void)train_slurm_find(variable, &job);
    bool is_there = stat(loop->request->run_dir, &info) == 0;
    return (start){.from = absolute(arena, loop),
                   .folder = is_there ? (int64_t)info.st_ino : 0,
                   .job = tri_arena_strdup(arena, job.id),
                   .restarts = count_of("SLURM_RESTART_COUNT"),
                   .next = "",
                   .launcher = name_launcher(arena),
                   .id = name_run(),
                   .hosts = count_of("GROUP_WORLD_SIZE")};
}

// Whether the launcher of `found` has made the start `own`. It starts one command only, so that a
// second start is a later one. Of agents on several hosts, any may have rank 0, and their number
// may change, which torchrun does not count as a restart: the run's name tells.
static bool has_same_launcher(const start *own, const start *found) {
    if (*own->launcher && strcmp(own->launcher, found->launcher) == 0) return true;
    return *own->id && strcmp(own->id, found->id) == 0 && (own->hosts > 1 || found->hosts > 1);
}

// Whether the job or the launcher of `found` has made the start `own` after it.
static bool comes_later(const start *own, const start *found) {
    bool is_same_job = strcmp(own->job, found->job) == 0;
    if (strcmp(own->from, found->from) != 0 || own->folder != found->folder) return false;
    if (*own->job && is_same_job && own->restarts > found->restarts) return true;
    if (*own->job && strcmp(own->job, found->next) == 0) return true;
    return is_same_job && has_same_launcher(own, found);
}

static const char *path_of(tri_arena *arena, const train_loop *loop) {
    return tri_arena_printf(arena, "%s/.start", loop->request->run_dir);
}

static const char *text_of(const tri_tree *tree, const char *key) {
    const tri_tree *value = tri_tree_get(tree, key);
    return value && value->text ? value->text : "";
}

// False: there is no such file, or it cannot be read, so that this start counts as a first one.
static bool read_start(const train_loop *loop, start *out) {
    tri_tree *tree;
    if (!train_folder_has(loop, ".start") ||
        tri_json_read_file(loop->arena, path_of(loop->arena, loop), &tree) != TRI_OK)
        return false;
    *out = (start){.from = text_of(tree, "from"),
                   .job = text_of(tree, "job"),
                   .next = text_of(tree, "next"),
                   .launcher = text_of(tree, "launcher"),
                   .id = text_of(tree, "id")};
    return tri_tree_to_int(tri_tree_get(tree, "folder"), &out->folder) &&
           tri_tree_to_int(tri_tree_get(tree, "restarts"), &out->restarts) &&
           tri_tree_to_int(tri_tree_get(tree, "hosts"), &out->hosts);
}

static bool is_auto(const train_loop *loop) { return strcmp(loop->request->resume, "auto") == 0; }

tri_status train_note_start(const train_loop *loop, const char *next) {
    if (is_auto(loop)) return TRI_OK;
    // The loop's own arena is gone when the job is started again, after the session's end.
    tri_arena *arena = tri_arena_create(NULL, "note of a start");
    start own = this_start(arena, loop);
    tri_tree *tree = tri_tree_map(arena);
    tri_tree_put_string(arena, tree, "from", own.from);
    tri_tree_put_int(arena, tree, "folder", own.folder);
    tri_tree_put_string(arena, tree, "job", own.job);
    tri_tree_put_int(arena, tree, "restarts", own.restarts);
    tri_tree_put_string(arena, tree, "next", next);
    tri_tree_put_string(arena, tree, "launcher", own.launcher);
    tri_tree_put_string(arena, tree, "id", own.id);
    tri_tree_put_int(arena, tree, "hosts", own.hosts);
    const char *text = tri_json_emit(arena, tree);
    tri_status status = tri_os_replace_file(path_of(arena, loop), text, strlen(text));
    tri_arena_destroy(arena);
    return status;
}

tri_status train_settle_start(train_loop *loop) {
    start found;
    int32_t is_later = 0;
    if (is_auto(loop) || !loop->saves) return TRI_OK;
    if (loop->session->identity.rank == 0 && read_start(loop, &found)) {
        start own = this_start(loop->arena, loop);
        // Until the run has a checkpoint of its own, it begins again where --resume PATH says.
        bool can_go_on = !train_resumes_by_path(loop) || train_folder_has(loop, "checkpoints/last");
        is_later = comes_later(&own, &found) && can_go_on;
    }
    TRI_TRY(train_tell_all(loop, &is_later, "kind of start"));
    if (!is_later) return TRI_OK;
    if (loop->session->identity.rank == 0)
        tri_log_line(TRI_LOG_INFO,
                     "--resume %s was for the first start of this run, which now goes on in %s",
                     loop->request->resume, loop->request->run_dir);
    loop->resume = "auto";
    return TRI_OK;
}
