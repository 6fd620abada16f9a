// Saving: every rank writes and hashes its pieces of the same files in a hidden folder, which rank
// 0 then completes and renames. What fails on one rank before that is noted there, and heard of by
// all where they next agree: until then nobody leaves the others waiting.
#include "base/limits.h"
#include "base/log.h"
#include "base/os.h"
#include "checkpoint/agree.h"
#include "checkpoint/folder.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct own_piece { // that this rank writes
    int file, piece;
    int64_t at; // in the snapshot
} own_piece;

typedef struct tri_checkpoint_saving save;
struct tri_checkpoint_saving {
    tri_checkpoint_save_request request;
    tri_arena *arena;
    const char *home;      // RUN/checkpoints
    char hidden[PATH_MAX]; // the folder being written; rank 0 names it
    checkpoint_manifest manifest;
    checkpoint_image images[CHECKPOINT_MAX_FILES];
    own_piece *own;
    int own_count;
    int64_t own_bytes;
    char *snapshot; // of all own pieces, one after the other
    void *buffer;   // of one piece, without a snapshot
    int fds[CHECKPOINT_MAX_FILES];
    // The two stages, each perhaps on a thread, which then has all of this to itself.
    bool is_behind, has_thread, is_committing, is_committed;
    void (*stage)(save *s);
    pthread_t thread;
    _Atomic bool is_ready, is_unwanted;
    tri_status status; // the first failure here
    char why[TRI_MESSAGE_MAX_BYTES];
};

static void note(save *s, tri_status status) {
    if (status == TRI_OK || s->status != TRI_OK) return;
    s->status = status;
    snprintf(s->why, sizeof s->why, "%s", tri_error_message());
}

static tri_status outcome(const save *s) {
    return s->status == TRI_OK ? TRI_OK : TRI_FAIL(s->status, "%s", s->why);
}

static const char *path_of(save *s, int file) {
    return tri_arena_printf(s->arena, "%s/%s", s->hidden, s->manifest.files[file].name);
}

// Chunks grow until each file has few enough: the hashes of any model fit into state.json.
static tri_status plan_file(save *s, const char *name, const tri_state_source *source) {
    const tri_safetensors_pair metadata[] = {
        {"format", "pt"},
        {"step", tri_arena_printf(s->arena, "%lld", (long long)s->request.step)},
    };
    checkpoint_image *image = &s->images[s->manifest.file_count];
    for (;;) {
        tri_status status =
            checkpoint_image_plan(s->arena, source, metadata, 2, s->manifest.chunk_bytes, image);
        if (status == TRI_OK) break;
        if (status != TRI_UNSUPPORTED || s->manifest.chunk_bytes >= TRI_MAX_CHECKPOINT_CHUNK)
            return tri_status_context(status, "checkpoint, %s", name);
        s->manifest.chunk_bytes *= 2;
    }
    s->manifest.files[s->manifest.file_count++] = (checkpoint_file){
        .name = name,
        .size_bytes = image->layout.file_bytes,
        .piece_count = image->pieces.count,
    };
    return TRI_OK;
}

// Pieces go round the ranks by their place in the file, so that all ranks work on neighbouring
// tensors at any moment, whoever owns these.
static bool is_mine(const save *s, const tri_state_source *source, const checkpoint_piece *piece) {
    int64_t turn = piece->offset / s->manifest.chunk_bytes;
    int ranks = checkpoint_ranks(s->request.comm), rank = checkpoint_rank(s->request.comm);
    if (source->holders && piece->tensor >= 0)
        ranks = source->holders(source->context, piece->tensor, &rank);
    return turn % ranks == rank;
}

static void list_own(save *s) {
    int capacity = 0;
    for (int f = 0; f < s->manifest.file_count; f++)
        for (int i = 0; i < s->images[f].pieces.count; i++) {
            const checkpoint_piece *piece = &s->images[f].pieces.items[i];
            if (!is_mine(s, s->images[f].source, piece)) continue;
            TRI_PUSH(s->arena, s->own, s->own_count, capacity) = (own_piece){f, i, s->own_bytes};
            s->own_bytes += piece->size_bytes;
        }
}

static tri_status plan(save *s) {
    const tri_checkpoint_save_request *r = &s->request;
    int64_t chunk = r->chunk_bytes ? r->chunk_bytes : TRI_CHECKPOINT_CHUNK_BYTES, last;
    TRI_ASSERT(chunk >= 8 && chunk % 8 == 0 && r->step >= 0);
    do { // again where the second file made the chunks larger
        last = chunk;
        s->manifest.chunk_bytes = chunk;
        s->manifest.file_count = 0;
        TRI_TRY(plan_file(s, CHECKPOINT_MODEL_FILE, r->model));
        if (r->optimizer) TRI_TRY(plan_file(s, CHECKPOINT_OPTIMIZER_FILE, r->optimizer));
        chunk = s->manifest.chunk_bytes;
    } while (chunk != last);

    int64_t pieces = 0;
    for (int i = 0; i < s->manifest.file_count; i++) pieces += s->images[i].pieces.count;
    unsigned char(*hashes)[CHECKPOINT_HASH_BYTES] =
        tri_arena_alloc(s->arena, (size_t)pieces * CHECKPOINT_HASH_BYTES);
    for (int i = 0; i < s->manifest.file_count; i++) {
        s->manifest.files[i].hashes = hashes;
        hashes += s->images[i].pieces.count;
    }
    list_own(s);
    return TRI_OK;
}

static tri_status create_file(const char *path, int64_t size_bytes) {
    int fd = tri_os.open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return tri_os_fail("create", path);
    tri_status status = tri_os.ftruncate(fd, size_bytes) < 0 ? tri_os_fail("size", path) : TRI_OK;
    if (tri_os.close(fd) < 0 && status == TRI_OK) status = tri_os_fail("close", path);
    return status;
}

// Rank 0 makes the hidden folder and the files in their full size.
static tri_status prepare(save *s) {
    const char *name = checkpoint_step_name(s->arena, s->request.step);
    const char *hidden = checkpoint_hidden(s->arena, s->home, "tmp", name);
    if (snprintf(s->hidden, sizeof s->hidden, "%s", hidden) >= (int)sizeof s->hidden - 64)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: the path is too long", s->home);
    TRI_TRY(tri_os_make_folders(s->home));
    if (tri_os.mkdir(s->hidden, 0777) < 0) return tri_os_fail("create the folder", s->hidden);
    for (int i = 0; i < s->manifest.file_count; i++)
        TRI_TRY(create_file(path_of(s, i), s->manifest.files[i].size_bytes));
    return TRI_OK;
}

static tri_status fetch(const tri_state_source *source, const checkpoint_pieces *pieces, int i) {
    int tensor = pieces->items[i].tensor, index = 0;
    if (!source->fetch || tensor < 0 || (i > 0 && pieces->items[i - 1].tensor == tensor))
        return TRI_OK;
    if (source->holders) source->holders(source->context, tensor, &index);
    return index < 0 ? TRI_OK : source->fetch(source->context, tensor);
}

// Every holder fetches every tensor, whichever of its pieces it writes, and whatever went wrong
// before: the others wait for it. Only when the fetching itself fails, it does so for all.
static void walk(save *s, tri_status (*take)(save *s, const own_piece *own)) {
    int next = 0;
    for (int f = 0; f < s->manifest.file_count; f++)
        for (int i = 0; i < s->images[f].pieces.count; i++) {
            tri_status status = fetch(s->images[f].source, &s->images[f].pieces, i);
            note(s, status);
            if (status != TRI_OK) return;
            const own_piece *own = &s->own[next];
            if (next == s->own_count || own->file != f || own->piece != i) continue;
            next++;
            if (s->status == TRI_OK) note(s, take(s, own));
        }
}

static tri_status read_piece(save *s, const own_piece *own, void *to) {
    const checkpoint_image *image = &s->images[own->file];
    return checkpoint_image_read(image, &image->pieces.items[own->piece], to);
}

static tri_status write_piece(save *s, const own_piece *own, const void *bytes) {
    const checkpoint_piece *piece = &s->images[own->file].pieces.items[own->piece];
    unsigned char *hash = s->manifest.files[own->file].hashes[own->piece];
    TRI_TRY(checkpoint_hash(bytes, piece->size_bytes, hash));
    return tri_os_pwrite_all(s->fds[own->file], bytes, (size_t)piece->size_bytes, piece->offset,
                             path_of(s, own->file));
}

static tri_status keep(save *s, const own_piece *own) {
    return read_piece(s, own, s->snapshot + own->at);
}

static tri_status copy(save *s, const own_piece *own) {
    TRI_TRY(read_piece(s, own, s->buffer));
    return write_piece(s, own, s->buffer);
}

static void open_files(save *s) {
    for (int i = 0; i < s->manifest.file_count && s->status == TRI_OK; i++) {
        s->fds[i] = tri_os.open(path_of(s, i), O_WRONLY | O_CLOEXEC, 0);
        if (s->fds[i] >= 0) continue;
        tri_status status = tri_os_fail("open", path_of(s, i));
        if (checkpoint_rank(s->request.comm) > 0)
            tri_status_context(status, "do all ranks share the run directory's file system?");
        note(s, status);
    }
}

static void close_files(save *s) {
    for (int i = 0; i < s->manifest.file_count; i++) {
        if (s->fds[i] < 0) continue;
        bool counts = s->status == TRI_OK && !atomic_load(&s->is_unwanted);
        if (counts && tri_os.fsync(s->fds[i]) < 0) note(s, tri_os_fail("sync", path_of(s, i)));
        if (tri_os.close(s->fds[i]) < 0) note(s, tri_os_fail("close", path_of(s, i)));
        s->fds[i] = -1;
    }
}

static void write_snapshot(save *s) {
    open_files(s);
    for (int i = 0; i < s->own_count && s->status == TRI_OK; i++) {
        if (atomic_load(&s->is_unwanted)) break;
        note(s, write_piece(s, &s->own[i], s->snapshot + s->own[i].at));
    }
    close_files(s);
    free(s->snapshot);
    s->snapshot = NULL;
}

static tri_status gather_hashes(save *s) {
    int64_t words = 0;
    for (int i = 0; i < s->manifest.file_count; i++)
        words += (int64_t)s->manifest.files[i].piece_count * (CHECKPOINT_HASH_BYTES / 4);
    return checkpoint_gather(s->request.comm, s->manifest.files[0].hashes, words);
}

static tri_status write_state(save *s, const checkpoint_steps *steps) {
    tri_checkpoint_info *info = &s->manifest.info;
    *info = (tri_checkpoint_info){
        .step = s->request.step,
        .commit = 1,
        .saved_unix_s = tri_os.realtime_ns() / 1000000000,
        .program = "trireme " TRIREME_VERSION,
        .recipe = s->request.recipe,
        .training = s->request.training,
        .monitor = s->request.monitor,
    };
    for (int i = 0; i < steps->count; i++)
        if (steps->items[i].readable == TRI_OK &&
            steps->items[i].manifest.info.commit >= info->commit)
            info->commit = steps->items[i].manifest.info.commit + 1;
    char *text;
    size_t size;
    TRI_TRY(checkpoint_manifest_text(s->arena, &s->manifest, &text, &size));
    const char *path = tri_arena_printf(s->arena, "%s/%s", s->hidden, CHECKPOINT_STATE_FILE);
    int fd = tri_os.open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return tri_os_fail("create", path);
    tri_status status = tri_os_write_all(fd, text, size, path);
    if (status == TRI_OK && tri_os.fsync(fd) < 0) status = tri_os_fail("sync", path);
    if (tri_os.close(fd) < 0 && status == TRI_OK) status = tri_os_fail("close", path);
    return status;
}

// Rank 0, once every byte of every rank is on the disk.
static tri_status commit(save *s) {
    checkpoint_steps steps;
    TRI_TRY(checkpoint_scan(s->arena, s->home, &steps));
    TRI_TRY(write_state(s, &steps));
    TRI_TRY(tri_os_sync_folder(s->hidden));
    const char *name = checkpoint_step_name(s->arena, s->request.step);
    TRI_TRY(checkpoint_commit(s->arena, s->home, s->hidden, name));
    s->is_committed = true;
    return TRI_OK;
}

// Rank 0, after the commit: links first, so that they never point at what retention removes.
static tri_status tidy_up(save *s) {
    const tri_checkpoint_save_request *r = &s->request;
    checkpoint_steps steps;
    TRI_TRY(tri_os_sync_folder(s->home));
    TRI_TRY(tri_os_remove_tree(s->hidden)); // what the same step held before
    TRI_TRY(checkpoint_scan(s->arena, s->home, &steps));
    TRI_TRY(checkpoint_link(s->arena, s->home, "last", checkpoint_step_name(s->arena, r->step)));
    const checkpoint_step *best = checkpoint_best(&steps, &r->monitor);
    if (best && r->save_top_k != 0)
        TRI_TRY(checkpoint_link(s->arena, s->home, "best", checkpoint_base_name(best->path)));
    TRI_TRY(tri_os_sync_folder(s->home));
    return checkpoint_retain(s->arena, s->home, &steps, &r->monitor, r->save_top_k);
}

static void finish_files(save *s) {
    note(s, commit(s));
    if (s->is_committed && tidy_up(s) != TRI_OK)
        tri_log(TRI_LOG_WARNING, "checkpoint of step %lld is saved, but: %s",
                (long long)s->request.step, tri_error_message());
}

static void *run_stage(void *context) {
    save *s = context;
    if (s->stage) s->stage(s);
    atomic_store(&s->is_ready, true);
    return NULL;
}

static void begin_stage(save *s, void (*stage)(save *s)) {
    s->stage = stage;
    atomic_store(&s->is_ready, false);
    s->has_thread = stage && s->is_behind && pthread_create(&s->thread, NULL, run_stage, s) == 0;
    if (!s->has_thread) run_stage(s);
}

static void join(save *s) {
    if (s->has_thread) pthread_join(s->thread, NULL);
    s->has_thread = false;
}

// Memory for a snapshot on every rank, or on none.
static tri_status choose(save *s) {
    if (s->request.snapshot_bytes > 0) {
        if (s->own_bytes <= s->request.snapshot_bytes)
            s->snapshot = malloc((size_t)s->own_bytes + 1);
        int32_t lacking = !s->snapshot;
        TRI_TRY(checkpoint_gather(s->request.comm, &lacking, 1));
        s->is_behind = lacking == 0;
    }
    if (s->is_behind) return TRI_OK;
    free(s->snapshot);
    s->snapshot = NULL;
    int64_t largest = 0;
    for (int i = 0; i < s->manifest.file_count; i++)
        if (s->images[i].largest_bytes > largest) largest = s->images[i].largest_bytes;
    s->buffer = malloc((size_t)largest);
    if (!s->buffer)
        note(s, TRI_FAIL(TRI_NO_MEMORY, "checkpoint: no memory for a chunk of %lld bytes",
                         (long long)largest));
    return TRI_OK;
}

static tri_status begin(save *s) {
    tri_comm *comm = s->request.comm;
    tri_status status = plan(s);
    if (status == TRI_OK && checkpoint_rank(comm) == 0) status = prepare(s);
    TRI_TRY(checkpoint_agree(comm, status));
    TRI_TRY(checkpoint_share(comm, s->hidden, sizeof s->hidden));
    TRI_TRY(choose(s));
    if (!s->is_behind) open_files(s);
    walk(s, s->is_behind ? keep : copy);
    begin_stage(s, s->is_behind ? write_snapshot : close_files);
    return TRI_OK;
}

// Nothing is left of what was not committed. Keeps the status, and its message.
static tri_status end(save *s, tri_status status) {
    if (!s->is_committed && s->hidden[0] && checkpoint_rank(s->request.comm) == 0) {
        char why[TRI_MESSAGE_MAX_BYTES];
        snprintf(why, sizeof why, "%s", tri_error_message());
        if (tri_os_remove_tree(s->hidden) != TRI_OK)
            tri_log(TRI_LOG_WARNING, "%s: left behind: %s", s->hidden, tri_error_message());
        if (status != TRI_OK) status = TRI_FAIL(status, "%s", why);
    }
    free(s->snapshot);
    free(s->buffer);
    tri_arena_destroy(s->arena);
    free(s);
    return status;
}

tri_status tri_checkpoint_save_begin(const tri_checkpoint_save_request *request,
                                     tri_checkpoint_saving **out) {
    save *s = malloc(sizeof *s);
    TRI_ASSERT(s);
    *s = (save){.request = *request, .arena = tri_arena_create(NULL, "checkpoint save")};
    for (int i = 0; i < CHECKPOINT_MAX_FILES; i++) s->fds[i] = -1;
    s->home = checkpoint_home(s->arena, request->run_dir);
    *out = NULL;
    tri_status status = begin(s);
    if (status != TRI_OK) return end(s, status);
    *out = s;
    return TRI_OK;
}

bool tri_checkpoint_save_is_behind(const tri_checkpoint_saving *s) { return s->is_behind; }

tri_checkpoint_saving_state tri_checkpoint_save_state(const tri_checkpoint_saving *s) {
    if (!atomic_load(&s->is_ready)) return TRI_SAVING_BUSY;
    return s->status == TRI_OK ? TRI_SAVING_READY : TRI_SAVING_FAILED;
}

tri_status tri_checkpoint_save_advance(tri_checkpoint_saving *s, bool *ended) {
    *ended = true;
    if (!atomic_load(&s->is_ready)) atomic_store(&s->is_unwanted, true);
    join(s);
    tri_status status = checkpoint_agree(s->request.comm, outcome(s));
    if (status == TRI_OK && !s->is_committing) status = gather_hashes(s);
    if (status != TRI_OK || s->is_committing) return end(s, status);
    *ended = false;
    s->is_committing = true;
    begin_stage(s, checkpoint_rank(s->request.comm) == 0 ? finish_files : NULL);
    return TRI_OK;
}

tri_status tri_checkpoint_save_finish(tri_checkpoint_saving *saving) {
    tri_status status = TRI_OK;
    for (bool ended = false; !ended;) {
        join(saving);
        status = tri_checkpoint_save_advance(saving, &ended);
    }
    return status;
}

void tri_checkpoint_save_abandon(tri_checkpoint_saving *saving) {
    if (!saving) return;
    atomic_store(&saving->is_unwanted, true);
    join(saving);
    end(saving, TRI_OK);
}

tri_status tri_checkpoint_save(const tri_checkpoint_save_request *request) {
    tri_checkpoint_save_request at_once = *request;
    at_once.snapshot_bytes = 0;
    tri_checkpoint_saving *saving;
    TRI_TRY(tri_checkpoint_save_begin(&at_once, &saving));
    return tri_checkpoint_save_finish(saving);
}
