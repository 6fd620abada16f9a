// The machine crashes after any system call of a save, and any data that was not synced may be
// lost. After every such crash the newest reported checkpoint, or a newer one, is intact; no
// incomplete one is visible; `last` and `best` point at intact ones, and after the next start
// `last` points at the newest. The same holds if an earlier process was killed. Each fsync is
// needed: leaving out any one of them breaks this. The crashes are simulated: a save's system calls
// are recorded, and a model of a disk (crash_disk) tells what each crash may leave.
#include "support/checkpoint_fixture.h"
#include "support/comm_ranks.h"
#include "support/crash_disk.h"

#include <dirent.h>

enum { WIDTH = 20, CHUNK = 2048, MAX_SAVES = 8, MAX_SITES = 64 };

static char top[64], disk_root[96], shown_root[96], run_dir[128], shown_run[128];

static int no_fsync(int fd) { return 0; } // saves time; the crash disk still records the call

static int setup(void **state) {
    tri_os.fsync = no_fsync;
    bool in_memory = access("/dev/shm", W_OK) == 0; // faster for thousands of small files
    snprintf(top, sizeof top, "%s/trireme-crash-XXXXXX", in_memory ? "/dev/shm" : "/tmp");
    if (!mkdtemp(top)) return 1;
    snprintf(disk_root, sizeof disk_root, "%s/disk", top);
    snprintf(shown_root, sizeof shown_root, "%s/shown", top);
    snprintf(run_dir, sizeof run_dir, "%s/runs/one", disk_root);
    snprintf(shown_run, sizeof shown_run, "%s/runs/one", shown_root);
    return mkdir(disk_root, 0777) != 0 || mkdir(shown_root, 0777) != 0;
}

static int teardown(void **state) {
    tri_os = tri_os_system;
    return tri_os_remove_tree(top) != TRI_OK;
}

static void clear(const char *root) {
    if (tri_os_remove_tree(root) != TRI_OK || mkdir(root, 0777) != 0)
        fail_msg("%s: cannot be cleared", root);
}

typedef struct scenario {
    const char *name;
    int64_t steps[MAX_SAVES]; // the steps after which a checkpoint is saved; 0 ends the list
    int64_t save_top_k, snapshot_bytes;
    bool no_exchange;
    int ranks;
} scenario;

static fixture_save options(const scenario *s, int64_t step) {
    // The best checkpoint, that with the lowest val_loss, is step 1, then step 3, then step 5.
    static const double values[] = {0, 3, 5, 2, 4, 1};
    tri_checkpoint_monitor monitor = {
        .name = "val_loss", .is_known = true, .value = values[step % 6]};
    return (fixture_save){.step = step,
                          .width = WIDTH,
                          .chunk_bytes = CHUNK,
                          .monitor = monitor,
                          .save_top_k = s->save_top_k,
                          .snapshot_bytes = s->snapshot_bytes};
}

static void save_on_ranks(tri_comm *comm, ranks_table *table, void *argument) {
    const scenario *s = argument;
    for (int i = 0; i < MAX_SAVES && s->steps[i]; i++) {
        fixture_save save = options(s, s->steps[i]);
        save.comm = comm;
        CHECK_OK(fixture_do_save(run_dir, save));
        if (comm->rank == 0) crash_log_mark(s->steps[i]);
    }
}

// Prepares the run folder as a training run does when it starts, and saves the scenario's steps.
static void run_scenario(const scenario *s) {
    assert_int_equal(tri_os_make_folders(run_dir), TRI_OK);
    assert_int_equal(tri_checkpoint_clean(run_dir), TRI_OK);
    if (s->ranks > 1) {
        scenario own = *s;
        assert_int_equal(ranks_run(s->ranks, NULL, save_on_ranks, &own), 0);
        return;
    }
    for (int i = 0; i < MAX_SAVES && s->steps[i]; i++) {
        assert_int_equal(fixture_do_save(run_dir, options(s, s->steps[i])), TRI_OK);
        crash_log_mark(s->steps[i]);
    }
}

static void record(const scenario *s, crash_log *log) {
    crash_log_begin(disk_root, s->no_exchange);
    run_scenario(s);
    crash_log_end(log);
    tri_os.fsync = no_fsync;
}

// Describes the first fault that was found, for the test's message.
static char wrong[1024];

static bool is_wrong(const char *where, const char *what, int64_t step, int64_t wanted) {
    snprintf(wrong, sizeof wrong, "%s %s: step %lld, not %lld (%s)", where, what, (long long)step,
             (long long)wanted, tri_error_message());
    return false;
}

// True if every visible checkpoint is intact.
static bool steps_are_whole(const char *when) {
    char home[160], path[512];
    snprintf(home, sizeof home, "%s/checkpoints", shown_run);
    DIR *folder = opendir(home);
    bool whole = true;
    for (struct dirent *entry; folder && whole && (entry = readdir(folder));) {
        int64_t step = -1, wanted;
        if (strncmp(entry->d_name, "step-", 5) != 0) continue;
        wanted = strtoll(entry->d_name + 5, NULL, 10);
        snprintf(path, sizeof path, "%s/%s", home, entry->d_name);
        if (fixture_do_load(path, WIDTH, 0, &step) != TRI_OK || step != wanted)
            whole = is_wrong(when, entry->d_name, step, wanted);
    }
    if (folder) closedir(folder);
    return whole;
}

// True if the symbolic link points to the checkpoint of a step that is `least` or later (if `least`
// is negative, there need be no link). That checkpoints are intact was checked before.
static bool link_is_good(const char *name, int64_t least) {
    char path[192], target[64];
    int64_t step = -1;
    snprintf(path, sizeof path, "%s/checkpoints/%s", shown_run, name);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0 && least < 0) return true;
    if (length > 5) {
        target[length] = 0;
        step = strtoll(target + 5, NULL, 10);
    }
    return (step >= least && access(path, F_OK) == 0) || is_wrong("link", name, step, least);
}

static bool has_set_aside(void) {
    char home[160];
    snprintf(home, sizeof home, "%s/checkpoints", shown_run);
    DIR *folder = opendir(home);
    bool found = false;
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        found = found || strncmp(entry->d_name, ".old-", 5) == 0;
    if (folder) closedir(folder);
    return found;
}

// Checks the files that a crash has left. `reported`: the step of the newest save that had returned
// before the crash; -1: none.
static bool state_is_good(int64_t reported) {
    int64_t found;
    bool restores = has_set_aside();
    if (!steps_are_whole("before the start")) return false;
    // A program that only reads the run folder follows the symbolic links "last" and "best" before
    // any run starts there again, so they must be good now. The exception is a crash while a save
    // replaced a checkpoint of the same step: the save had renamed that checkpoint's folder to
    // ".old-…", and the next start renames it back.
    if (!restores && (!link_is_good("last", reported) || !link_is_good("best", -1))) return false;
    if (fixture_find(shown_run, WIDTH, &found) != TRI_OK || found < reported)
        return is_wrong("what is found by", "auto", found, reported);
    return (!restores || steps_are_whole("after the start")) && link_is_good("last", found) &&
           link_is_good("best", -1);
}

typedef struct seen_states { // hashes of the disk states that were checked
    uint64_t *items;
    int count, capacity;
} seen_states;

static bool is_new(seen_states *seen, uint64_t hash) {
    if (2 * seen->count >= seen->capacity) {
        seen_states larger = {.capacity = seen->capacity ? 2 * seen->capacity : 1024};
        larger.items = calloc((size_t)larger.capacity, sizeof *larger.items);
        for (int i = 0; i < seen->capacity; i++)
            if (seen->items[i]) is_new(&larger, seen->items[i]);
        free(seen->items);
        *seen = larger;
    }
    hash += !hash;
    int at = (int)(hash % (uint64_t)seen->capacity);
    for (; seen->items[at]; at = (at + 1) % seen->capacity)
        if (seen->items[at] == hash) return false;
    seen->items[at] = hash;
    seen->count++;
    return true;
}

// Checks every disk state that a crash at this moment may leave.
static bool crashes_are_good(crash_disk *disk, int64_t reported, seen_states *seen) {
    int states = crash_disk_states(disk);
    for (int i = 0; i < states; i++) {
        uint64_t hash = crash_disk_hash(disk, i) ^ (uint64_t)(reported + 1) * 0x9e3779b97f4a7c15u;
        if (!is_new(seen, hash)) continue;
        clear(shown_root);
        crash_disk_show(disk, i, shown_root);
        if (state_is_good(reported)) continue;
        size_t used = strlen(wrong);
        snprintf(wrong + used, sizeof wrong - used, "; %s", crash_disk_tell(disk, i));
        return false;
    }
    return true;
}

// Applies the recorded system calls of `log` to the disk one by one, and checks a crash after each.
// `without`: this call is left out, and only crashes after it are checked; -1: none is left out.
static bool log_is_good(crash_disk *disk, const crash_log *log, int64_t *reported, int without,
                        seen_states *seen) {
    bool good = true;
    for (int i = 0; i < log->count && good; i++) {
        const crash_call *call = &log->calls[i];
        if (call->kind == CRASH_MARK) *reported = call->mark;
        if (i != without) crash_disk_apply(disk, call);
        if (i < without) continue;
        good = crashes_are_good(disk, *reported, seen);
        size_t used = strlen(wrong);
        if (!good)
            snprintf(wrong + used, sizeof wrong - used, "; call %d of %d (%d %s)", i, log->count,
                     (int)call->kind, call->path);
    }
    return good;
}

static bool replay(const crash_log *log, int without, int *states) {
    seen_states seen = {0};
    crash_disk *disk = crash_disk_new();
    int64_t reported = -1;
    bool good = log_is_good(disk, log, &reported, without, &seen);
    crash_disk_free(disk);
    free(seen.items);
    if (states) *states = seen.count;
    return good;
}

static const scenario scenarios[] = {
    {.name = "at once", .steps = {1, 2, 3, 4, 5}, .save_top_k = 1},
    {.name = "behind", .steps = {1, 2, 3}, .save_top_k = 0, .snapshot_bytes = 1 << 20},
    {.name = "again", .steps = {1, 1, 2, 3, 3}, .save_top_k = 0},
    {.name = "again, set aside", .steps = {1, 1, 2, 2}, .save_top_k = -1, .no_exchange = true},
    {.name = "two ranks", .steps = {1, 2}, .save_top_k = -1, .ranks = 2},
};

static void test_any_crash(void **state) {
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        crash_log log;
        int states;
        clear(disk_root);
        record(&scenarios[i], &log);
        double start = tri_os_seconds();
        if (!replay(&log, -1, &states)) fail_msg("%s: %s", scenarios[i].name, wrong);
        print_message("%s: %d calls, %d states, %.1f s\n", scenarios[i].name, log.count, states,
                      tri_os_seconds() - start);
        crash_log_free(&log);
    }
}

// Writes a name by which the same fsync is found in every save. It has two parts: the path, without
// what changes from save to save, and how often this save has synced the same path before.
static void name_site(const crash_log *log, int at, char *site, size_t size) {
    int begin = at, same = 0;
    while (begin > 0 && log->calls[begin - 1].kind != CRASH_MARK) begin--;
    for (int i = begin; i < at; i++)
        same +=
            log->calls[i].kind == CRASH_SYNC && !strcmp(log->calls[i].path, log->calls[at].path);
    const char *path = log->calls[at].path, *hidden = strstr(path, "/.tmp-");
    const char *last = hidden ? strchr(hidden + 1, '/') : NULL;
    snprintf(site, size, "%.*s%s%s, %d", hidden ? (int)(hidden - path) : CRASH_PATH_BYTES, path,
             hidden ? "/.tmp" : "", last ? last : "", same);
}

typedef struct sync_site {
    char name[2 * CRASH_PATH_BYTES];
    bool counts;
} sync_site;

static sync_site *find_site(sync_site *sites, int *count, const char *name) {
    for (int i = 0; i < *count; i++)
        if (!strcmp(sites[i].name, name)) return &sites[i];
    TRI_ASSERT(*count < MAX_SITES);
    snprintf(sites[*count].name, sizeof sites->name, "%s", name);
    return &sites[(*count)++];
}

// Checks that test_any_crash would fail if any one fsync were missing: otherwise that test would
// not show that a save has all fsyncs that it needs.
static void test_every_sync_counts(void **state) {
    static sync_site sites[MAX_SITES];
    int count = 0, idle = 0;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        crash_log log;
        clear(disk_root);
        record(&scenarios[i], &log);
        for (int c = 0; c < log.count; c++) {
            char name[2 * CRASH_PATH_BYTES];
            if (log.calls[c].kind != CRASH_SYNC) continue;
            name_site(&log, c, name, sizeof name);
            sync_site *site = find_site(sites, &count, name);
            site->counts = site->counts || !replay(&log, c, NULL);
        }
        crash_log_free(&log);
    }
    for (int i = 0; i < count; i++) {
        if (!sites[i].counts) print_error("nothing needs fsync of %s\n", sites[i].name);
        idle += !sites[i].counts;
    }
    print_message("%d sites of fsync\n", count);
    assert_int_equal(idle, 0);
    assert_true(count >= 10);
}

// Simulates a process that is killed after call `at` of a save, while the machine goes on. The next
// process sees all that was written, synced or not, and saves a checkpoint itself. Checks that a
// crash of the machine after any call of this second save leaves good files.
static void go_on_after_kill(const scenario *s, const crash_log *before, int at) {
    crash_disk *disk = crash_disk_new();
    seen_states seen = {0};
    crash_log log;
    int64_t reported = -1;
    for (int i = 0; i <= at; i++) {
        crash_disk_apply(disk, &before->calls[i]);
        if (before->calls[i].kind == CRASH_MARK) reported = before->calls[i].mark;
    }
    clear(disk_root);
    crash_disk_states(disk);
    crash_disk_show(disk, 0, disk_root);
    scenario next = *s;
    next.steps[0] = reported < 0 ? 1 : reported + 1;
    next.steps[1] = 0;
    record(&next, &log);
    if (!log_is_good(disk, &log, &reported, -1, &seen))
        fail_msg("%s, killed after call %d: %s", s->name, at, wrong);
    crash_disk_free(disk);
    crash_log_free(&log);
    free(seen.items);
}

static void test_crash_after_a_kill(void **state) {
    static const scenario killed[] = {
        {.name = "killed", .steps = {1, 1, 2, 3}, .save_top_k = 0},
        {.name = "killed, set aside", .steps = {1, 1}, .save_top_k = -1, .no_exchange = true},
    };
    for (size_t i = 0; i < sizeof killed / sizeof *killed; i++) {
        crash_log log;
        double start = tri_os_seconds();
        clear(disk_root);
        record(&killed[i], &log);
        int at = 0; // skips the run folder's creation, which the start of a run has synced
        while (!strstr(log.calls[at].path, "/checkpoints")) at++;
        for (; at < log.count; at++)
            if (log.calls[at].kind != CRASH_WRITE && log.calls[at].kind != CRASH_SYNC)
                go_on_after_kill(&killed[i], &log, at);
        print_message("%s: %d calls, %.1f s\n", killed[i].name, log.count,
                      tri_os_seconds() - start);
        crash_log_free(&log);
    }
}

static bool has_text(const char *path, const char *text) {
    char *found;
    size_t size;
    if (tri_os_read_file(path, 1 << 20, &found, &size) != TRI_OK) return false;
    bool same = strcmp(found, text) == 0;
    free(found);
    return same;
}

// Checks a file that tri_os_replace_file has written twice: it is whole in every state that a crash
// may leave. It has the text that was last reported as written, or a later one; before the first
// report it may be missing. `without`: the recorded call that is left out; -1: none.
static bool file_is_good(const crash_log *log, int without) {
    static const char *const texts[] = {"", "one", "two"};
    crash_disk *disk = crash_disk_new();
    char path[160];
    int64_t reported = 0;
    bool good = true;
    snprintf(path, sizeof path, "%s/recipe.yaml", shown_root);
    for (int i = 0; i < log->count && good; i++) {
        if (i != without) crash_disk_apply(disk, &log->calls[i]);
        if (log->calls[i].kind == CRASH_MARK) reported = log->calls[i].mark;
        int states = crash_disk_states(disk);
        for (int k = 0; k < states && good; k++) {
            clear(shown_root);
            crash_disk_show(disk, k, shown_root);
            good = reported == 0 && access(path, F_OK) != 0;
            for (int64_t t = reported > 0 ? reported : 1; t <= 2; t++)
                good = good || has_text(path, texts[t]);
        }
    }
    crash_disk_free(disk);
    return good;
}

static void test_replaced_file(void **state) {
    crash_log log;
    int syncs = 0;
    char path[160];
    snprintf(path, sizeof path, "%s/recipe.yaml", disk_root);
    crash_log_begin(disk_root, false);
    assert_int_equal(tri_os_replace_file(path, "one", 3), TRI_OK);
    crash_log_mark(1);
    assert_int_equal(tri_os_replace_file(path, "two", 3), TRI_OK);
    crash_log_mark(2);
    crash_log_end(&log);
    assert_true(file_is_good(&log, -1));
    for (int i = 0; i < log.count; i++) {
        if (log.calls[i].kind != CRASH_SYNC) continue;
        syncs++;
        assert_false(file_is_good(&log, i));
    }
    assert_int_equal(syncs, 4);
    crash_log_free(&log);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_any_crash, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_sync_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_crash_after_a_kill, setup, teardown),
        cmocka_unit_test_setup_teardown(test_replaced_file, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
