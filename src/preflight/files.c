// Checks that all ranks see the same run folder, which checkpoints need. Each rank writes a small
// file there and looks for the files of the other ranks, which a network file system may show late.
#include "preflight/state.h"

#include "base/os.h"
#include "base/quantity.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    // With at most this many ranks, every rank writes a file and looks for those of the other
    // ranks. With more, only the first rank of each host does, because all ranks of a host see the
    // same files.
    ALL_RANKS = 256,
    // The pauses between two looks double until they are at least this long.
    LONGEST_PAUSE_NS = 50000000
};

typedef struct shared_note { // the contents of a rank's file
    // job: a random number, the same on all ranks; rank: the rank that wrote the file;
    // inverted_rank: ~rank, which shows that the contents are complete and come from a rank.
    uint64_t job, rank, inverted_rank;
} shared_note;

static bool takes_part(const preflight *p, int rank) {
    return p->identity.size <= ALL_RANKS || p->first[p->host_of[rank]] == rank;
}

static const char *skips(const preflight *p) {
    if (p->identity.size < 2) return "one rank";
    for (int h = 0; h < p->host_count; h++)
        if (p->folders[p->first[h]].failure[0]) return "the run folder cannot be used";
    return NULL;
}

static void name_file(const preflight *p, uint64_t job, int rank, char path[PATH_MAX]) {
    snprintf(path, PATH_MAX, "%s/.trireme-preflight-%016llx-%d", p->folder, (unsigned long long)job,
             rank);
}

static char own_path[PATH_MAX];
static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { SIGNALS = sizeof signals / sizeof *signals };
static struct sigaction before[SIGNALS];

static void remove_and_end(int number) {
    unlink(own_path);
    signal(number, SIG_DFL);
    raise(number);
}

// Makes the signals that end this rank remove its file first. A signal that is ignored (SIGHUP
// under nohup) stays ignored.
static void catch_signals(void) {
    struct sigaction removing = {.sa_handler = remove_and_end};
    for (int i = 0; i < SIGNALS; i++) {
        sigaction(signals[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) sigaction(signals[i], &removing, NULL);
    }
}

static tri_status write_file(const preflight *p, uint64_t job) {
    int rank = p->identity.rank;
    shared_note note = {job, (uint64_t)rank, ~(uint64_t)rank};
    name_file(p, job, rank, own_path);
    catch_signals();
    int fd = tri_os.open(own_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return tri_os_fail("create", own_path);
    tri_status status = tri_os_write_all(fd, &note, sizeof note, own_path);
    if (status == TRI_OK && tri_os.fsync(fd) != 0) status = tri_os_fail("sync", own_path);
    tri_os.close(fd);
    return status;
}

static void remove_file(void) {
    (void)tri_os.unlink(own_path);
    for (int i = 0; i < SIGNALS; i++) sigaction(signals[i], &before[i], NULL);
    own_path[0] = 0;
}

// Removes the files of all ranks after a failure, because a rank that was killed has not removed
// its own.
static void remove_others(const preflight *p, uint64_t job) {
    char path[PATH_MAX];
    for (int r = 0; r < p->identity.size; r++) {
        name_file(p, job, r, path);
        if (takes_part(p, r)) (void)tri_os.unlink(path);
    }
}

static bool is_seen(const preflight *p, uint64_t job, int rank) {
    char path[PATH_MAX];
    shared_note note = {0};
    name_file(p, job, rank, path);
    int fd = tri_os.open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    ssize_t size = tri_os_pread_most(fd, &note, sizeof note, 0);
    tri_os.close(fd);
    return size == (ssize_t)sizeof note && note.job == job && note.rank == (uint64_t)rank &&
           note.inverted_rank == ~(uint64_t)rank;
}

// Looks for the files of all ranks. late_s[r]: after how many seconds rank r's file was first seen;
// -1: never.
static void look(const preflight *p, uint64_t job, double *late_s) {
    double begin = tri_os_seconds();
    int64_t pause_ns = 1000000;
    int left = 0;
    for (int r = 0; r < p->identity.size; r++) {
        late_s[r] = takes_part(p, r) ? -1 : 0;
        left += late_s[r] < 0;
    }
    for (;;) {
        for (int r = 0; r < p->identity.size; r++) {
            if (late_s[r] >= 0 || !is_seen(p, job, r)) continue;
            late_s[r] = tri_os_seconds() - begin;
            left--;
        }
        if (!left || tri_os_seconds() - begin > p->request->limits.seen_s) return;
        tri_os.sleep_ns(pause_ns);
        if (pause_ns < LONGEST_PAUSE_NS) pause_ns *= 2;
    }
}

static tri_status write_and_look(preflight *p, uint64_t job, double *late_s) {
    bool writes = takes_part(p, p->identity.rank);
    tri_status written = tri_comm_agree(p->comm, writes ? write_file(p, job) : TRI_OK, "files");
    if (written != TRI_OK && p->comm->backend->failed(p->comm) == TRI_OK) {
        p->file_failure = tri_arena_strdup(p->arena, tri_error_message());
        return TRI_OK;
    }
    TRI_TRY(written);
    if (writes) look(p, job, late_s);
    // Waits for all ranks, because each rank removes its file next.
    return tri_comm_barrier(p->comm, "files seen");
}

// What each rank tells about the files that it saw. This is only a summary: complete lists would
// grow with the square of the ranks.
typedef struct seen_files {
    double late_s;  // seconds until the last file was seen
    int32_t lowest; // the lowest rank whose file was seen; -1: none
} seen_files;

static seen_files seen_of(const preflight *p, const double *late_s) {
    seen_files own = {.lowest = -1};
    for (int r = 0; r < p->identity.size; r++) {
        own.late_s = fmax(own.late_s, late_s[r]);
        if (own.lowest < 0 && takes_part(p, r) && late_s[r] >= 0) own.lowest = r;
    }
    return own;
}

// Groups the ranks by folder. Let l be the lowest rank whose file rank r sees. If l also sees the
// file of r, then r belongs to the folder of l; else r gets a folder of its own. Only l knows
// whether it sees the file of r. So l sets is_seen_back[r] to 1, and a sum over all ranks tells it
// to the other ranks.
static tri_status group_folders(preflight *p, const double *late_s) {
    int ranks = p->identity.size, me = p->identity.rank;
    seen_files own = seen_of(p, late_s), *all = TRI_NEW_ARRAY(p->arena, seen_files, ranks);
    int32_t *is_seen_back = TRI_NEW_ARRAY(p->arena, int32_t, ranks);
    TRI_TRY(preflight_gather(p, &own, all, sizeof own, "files"));
    for (int r = 0; r < ranks; r++)
        is_seen_back[r] = takes_part(p, r) && all[r].lowest == me && late_s[r] >= 0;
    TRI_TRY(tri_comm_run(p->comm, &(tri_comm_op){.kind = TRI_COMM_ALL_REDUCE,
                                                 .reduction = TRI_REDUCE_SUM,
                                                 .dtype = TRI_I32,
                                                 .count = ranks,
                                                 .send = is_seen_back,
                                                 .recv = is_seen_back,
                                                 .label = "files"}));
    p->late_s = 0;
    p->folder_of = TRI_NEW_ARRAY(p->arena, int32_t, ranks);
    for (int r = 0; r < ranks; r++) {
        int lowest = is_seen_back[r] ? all[r].lowest : r;
        p->folder_of[r] = !takes_part(p, r) ? -1 : lowest < r ? p->folder_of[lowest] : r;
        p->late_s = fmax(p->late_s, all[r].late_s);
    }
    return TRI_OK;
}

// Finds the folder that most ranks see, so that the other ranks can be named. If several folders
// are seen by equally many ranks, it is the one that the lowest of these ranks sees.
static int common_folder(const preflight *p) {
    int best = 0, *count = TRI_NEW_ARRAY(p->arena, int, p->identity.size);
    for (int r = 0; r < p->identity.size; r++)
        if (p->folder_of[r] >= 0) count[p->folder_of[r]]++;
    for (int f = 0; f < p->identity.size; f++)
        if (count[f] > count[best]) best = f;
    return best;
}

static tri_status measure(preflight *p) {
    int ranks = p->identity.size;
    uint64_t job = tri_os_random();
    double *mine = TRI_NEW_ARRAY(p->arena, double, ranks);
    TRI_TRY(tri_comm_run(p->comm, &(tri_comm_op){.kind = TRI_COMM_BROADCAST,
                                                 .dtype = TRI_U8,
                                                 .count = sizeof job,
                                                 .send = &job,
                                                 .recv = &job,
                                                 .label = "files"}));
    tri_status status = write_and_look(p, job, mine);
    if (own_path[0]) remove_file();
    if (status != TRI_OK) remove_others(p, job);
    TRI_TRY(status);
    return group_folders(p, mine);
}

static void judge(preflight *p, preflight_row *row) {
    if (p->file_failure) {
        preflight_fail(p, row, "%s", p->file_failure);
        return;
    }
    int common = common_folder(p);
    preflight_list others = {.arena = p->arena};
    row->values = tri_tree_map(p->arena);
    tri_tree *outside = tri_tree_list(p->arena);
    for (int r = 0; r < p->identity.size; r++) {
        if (p->folder_of[r] < 0 || p->folder_of[r] == common) continue;
        preflight_list_add(&others, "%s", preflight_rank_text(p, r));
        tri_tree_append(p->arena, outside, tri_tree_int(p->arena, r));
    }
    tri_tree_put(p->arena, row->values, "late_s", tri_tree_double(p->arena, p->late_s));
    tri_tree_put(p->arena, row->values, "other_folder", outside);
    row->summary = tri_arena_printf(p->arena, "files of other ranks seen in %s within %s",
                                    p->folder, tri_duration_text(p->late_s));
    if (others.count)
        preflight_fail(p, row,
                       "%s on %s is not the folder that %s sees: no file of its was seen within "
                       "%s; put the run folder on a file system that all hosts share",
                       p->folder, preflight_list_text(&others), preflight_rank_text(p, common),
                       tri_seconds_text(p->request->limits.seen_s));
}

const preflight_check preflight_same_files = {
    .name = "same-files", .attempts = 1, .skips = skips, .measure = measure, .judge = judge};
