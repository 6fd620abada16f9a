// Saves a checkpoint. Files are cut into chunks. Every rank hashes some of the chunks and writes
// them into files that all ranks share, in a hidden folder; rank 0 then adds state.json (whose
// contents are called the manifest) and renames the folder. A rank that fails records the error and
// takes part in the collectives until the ranks next agree on a status, so that no rank waits for
// one that has returned. Read next: chunk.c (how files are cut), manifest.c (state.json), folder.c
// (commit, symbolic links, removal of old checkpoints).
#include "base/limits.h"
#include "base/log.h"
#include "base/os.h"
#include "base/thread.h"
#include "checkpoint/agree.h"
#include "checkpoint/folder.h"
#include "checkpoint/late.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct own_chunk { // a chunk that this rank writes
    int file_index, chunk_index;
    int64_t snapshot_offset;
} own_chunk;

typedef struct tri_pending_save save;
struct tri_pending_save {
    tri_checkpoint_save_request request;
    tri_arena *arena;
    const char *home;      // RUN/checkpoints
    char hidden[PATH_MAX]; // the folder that is being written; rank 0 chooses its name
    checkpoint_manifest manifest;
    checkpoint_image images[CHECKPOINT_MAX_FILES];
    own_chunk *own;
    int own_count;
    int64_t own_bytes;
    // The bytes of all chunks that this rank writes, one after the other; NULL unless is_async.
    char *snapshot;
    void *buffer; // memory for one chunk; NULL if is_async
    int fds[CHECKPOINT_MAX_FILES];
    // A save has two stages, writing and committing. If is_async, each stage runs on a thread, so
    // that training continues. While the thread runs, only it may use this struct, except for the
    // atomic members. is_ready: the thread is done. is_cancelled: it shall end early.
    bool is_async, has_thread, is_committing, is_committed;
    void (*stage)(save *s);
    pthread_t thread;
    _Atomic bool is_ready, is_cancelled;
    // Time spent in tri_checkpoint_save_begin and in the stages that have ended. For writing, the
    // first stage, the time of the slowest rank counts.
    int64_t worked_ns;
    tri_status status; // this rank's first failure; `message` is its text
    char message[TRI_MESSAGE_MAX_BYTES];
};

// Keeps this rank's first failure with its message, because later ones may only follow from it.
static void record(save *s, tri_status status) {
    if (status == TRI_OK || s->status != TRI_OK) return;
    s->status = status;
    snprintf(s->message, sizeof s->message, "%s", tri_error_message());
}

static tri_status failure_of(const save *s) {
    return s->status == TRI_OK ? TRI_OK : TRI_FAIL(s->status, "%s", s->message);
}

static const char *path_of(save *s, int file) {
    return tri_arena_printf(s->arena, "%s/%s", s->hidden, s->manifest.files[file].name);
}

// Lays out a file and adds it to the manifest. Doubles the chunk size while there would be too many
// chunks (TRI_MAX_CHECKPOINT_CHUNKS), so that the hashes of any model fit into state.json.
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
        if (status != TRI_UNSUPPORTED || s->manifest.chunk_bytes >= TRI_MAX_CHECKPOINT_CHUNK_BYTES)
            return tri_status_context(status, "checkpoint, %s", name);
        s->manifest.chunk_bytes *= 2;
    }
    s->manifest.files[s->manifest.file_count++] = (checkpoint_file){
        .name = name,
        .size_bytes = image->layout.file_bytes,
        .chunk_count = image->chunks.count,
    };
    return TRI_OK;
}

// Whether this rank writes the chunk. The file is divided into ranges of chunk_bytes. A chunk that
// begins in range number i is written by one of the n ranks that hold its tensor: the one with
// number i modulo n among them. So the ranks take turns, go through the file at about the same
// speed, and need neighbouring tensors at any moment. Reading a tensor may be collective
// (tri_state_source.fetch); in this order no rank waits long for the others.
static bool writes_chunk(const save *s, const tri_state_source *source,
                         const checkpoint_chunk *chunk) {
    int64_t index = chunk->offset / s->manifest.chunk_bytes;
    int ranks = checkpoint_ranks(s->request.comm), rank = checkpoint_rank(s->request.comm);
    if (source->holder_count && chunk->tensor != CHECKPOINT_HEADER)
        ranks = source->holder_count(source->context, chunk->tensor, &rank);
    return index % ranks == rank;
}

static void list_own(save *s) {
    int capacity = 0;
    for (int f = 0; f < s->manifest.file_count; f++)
        for (int i = 0; i < s->images[f].chunks.count; i++) {
            const checkpoint_chunk *chunk = &s->images[f].chunks.items[i];
            if (!writes_chunk(s, s->images[f].source, chunk)) continue;
            TRI_PUSH(s->arena, s->own, s->own_count, capacity) = (own_chunk){f, i, s->own_bytes};
            s->own_bytes += chunk->size_bytes;
        }
}

static tri_status plan(save *s) {
    const tri_checkpoint_save_request *r = &s->request;
    int64_t chunk = r->chunk_bytes ? r->chunk_bytes : TRI_CHECKPOINT_CHUNK_BYTES, last;
    TRI_ASSERT(chunk >= 8 && chunk % 8 == 0 && r->step >= 0);
    // All files have chunks of the same size. If a file would have too many chunks, this size is
    // doubled. If a later file has doubled it, the earlier ones are cut into chunks again.
    do {
        last = chunk;
        s->manifest.chunk_bytes = chunk;
        s->manifest.file_count = 0;
        TRI_TRY(plan_file(s, CHECKPOINT_MODEL_FILE, r->model));
        if (r->optimizer) TRI_TRY(plan_file(s, CHECKPOINT_OPTIMIZER_FILE, r->optimizer));
        if (r->average) TRI_TRY(plan_file(s, CHECKPOINT_AVERAGE_FILE, r->average));
        chunk = s->manifest.chunk_bytes;
    } while (chunk != last);

    int64_t chunks = 0;
    for (int i = 0; i < s->manifest.file_count; i++) chunks += s->images[i].chunks.count;
    unsigned char(*hashes)[CHECKPOINT_HASH_BYTES] =
        tri_arena_alloc(s->arena, (size_t)chunks * CHECKPOINT_HASH_BYTES);
    for (int i = 0; i < s->manifest.file_count; i++) {
        s->manifest.files[i].hashes = hashes;
        hashes += s->images[i].chunks.count;
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

// Rank 0 creates the hidden folder and its files with their full size, so that each rank can write
// its chunks at their offsets.
static tri_status prepare(save *s) {
    if (s->request.prepare) TRI_TRY(s->request.prepare(s->request.prepare_context));
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

// Makes the tensor of chunk i readable (tri_state_source.fetch), if this rank holds the tensor and
// i is its first chunk. For the tensor's further chunks it need not be fetched again.
static tri_status fetch(const tri_state_source *source, const checkpoint_chunks *chunks, int i) {
    int tensor = chunks->items[i].tensor, index = 0;
    if (!source->fetch || tensor == CHECKPOINT_HEADER ||
        (i > 0 && chunks->items[i - 1].tensor == tensor))
        return TRI_OK;
    if (source->holder_count) source->holder_count(source->context, tensor, &index);
    return index == TRI_NOT_A_HOLDER ? TRI_OK : source->fetch(source->context, tensor);
}

// Calls `visit` for the chunks that this rank writes, in order. It fetches every tensor that this
// rank holds, also if the rank writes no chunk of it, and also after an error, because the other
// holders wait for it. Only an error of a fetch ends the loop, because then the fetch has failed on
// all holders.
static void for_each_own_chunk(save *s, tri_status (*visit)(save *s, const own_chunk *own)) {
    int next = 0;
    for (int f = 0; f < s->manifest.file_count; f++)
        for (int i = 0; i < s->images[f].chunks.count; i++) {
            tri_status status = fetch(s->images[f].source, &s->images[f].chunks, i);
            record(s, status);
            if (status != TRI_OK) return;
            const own_chunk *own = &s->own[next];
            if (next == s->own_count || own->file_index != f || own->chunk_index != i) continue;
            next++;
            if (s->status == TRI_OK) record(s, visit(s, own));
        }
}

static tri_status read_chunk(save *s, const own_chunk *own, void *to) {
    const checkpoint_image *image = &s->images[own->file_index];
    return checkpoint_image_read(image, &image->chunks.items[own->chunk_index], to);
}

static tri_status write_chunk(save *s, const own_chunk *own, const void *bytes) {
    const checkpoint_chunk *chunk = &s->images[own->file_index].chunks.items[own->chunk_index];
    unsigned char *hash = s->manifest.files[own->file_index].hashes[own->chunk_index];
    TRI_TRY(checkpoint_hash(bytes, chunk->size_bytes, hash));
    return tri_os_pwrite_all(s->fds[own->file_index], bytes, (size_t)chunk->size_bytes,
                             chunk->offset, path_of(s, own->file_index));
}

static tri_status copy_to_snapshot(save *s, const own_chunk *own) {
    return read_chunk(s, own, s->snapshot + own->snapshot_offset);
}

static tri_status write_directly(save *s, const own_chunk *own) {
    TRI_TRY(read_chunk(s, own, s->buffer));
    return write_chunk(s, own, s->buffer);
}

static void open_files(save *s) {
    checkpoint_patience patience = CHECKPOINT_PATIENT;
    // When a rank is lost, rank 0 removes the files at once, and those who wait for them would wait
    // in vain.
    patience.is_cancelled = &s->is_cancelled;
    for (int i = 0; i < s->manifest.file_count && s->status == TRI_OK; i++) {
        if (checkpoint_rank(s->request.comm) > 0) // rank 0 has created the file itself
            checkpoint_await_file(&patience, path_of(s, i), 0);
        if (atomic_load(&s->is_cancelled)) return;
        s->fds[i] = tri_os.open(path_of(s, i), O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0);
        if (s->fds[i] >= 0) continue;
        tri_status status = tri_os_fail("open", path_of(s, i));
        if (checkpoint_rank(s->request.comm) > 0)
            tri_status_context(status, "do all ranks share the run folder's file system?");
        record(s, status);
    }
}

static void close_files(save *s) {
    for (int i = 0; i < s->manifest.file_count; i++) {
        if (s->fds[i] < 0) continue;
        bool is_needed = s->status == TRI_OK && !atomic_load(&s->is_cancelled);
        if (is_needed && tri_os.fsync(s->fds[i]) < 0) record(s, tri_os_fail("sync", path_of(s, i)));
        if (tri_os.close(s->fds[i]) < 0) record(s, tri_os_fail("close", path_of(s, i)));
        s->fds[i] = -1;
    }
}

static void write_snapshot(save *s) {
    open_files(s);
    for (int i = 0; i < s->own_count && s->status == TRI_OK; i++) {
        if (atomic_load(&s->is_cancelled)) break;
        record(s, write_chunk(s, &s->own[i], s->snapshot + s->own[i].snapshot_offset));
    }
    close_files(s);
    free(s->snapshot);
    s->snapshot = NULL;
}

static tri_status gather_hashes(save *s) {
    int64_t words = 0;
    for (int i = 0; i < s->manifest.file_count; i++)
        words += (int64_t)s->manifest.files[i].chunk_count * (CHECKPOINT_HASH_BYTES / 4);
    return checkpoint_sum(s->request.comm, s->manifest.files[0].hashes, words);
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

// Commits the checkpoint: rank 0 writes state.json and renames the folder. It does so after every
// rank has synced its bytes, because from the rename on the checkpoint counts as complete.
static tri_status commit(save *s) {
    checkpoint_steps steps;
    TRI_TRY(checkpoint_scan(s->arena, s->home, &steps));
    TRI_TRY(write_state(s, &steps));
    TRI_TRY(tri_os_sync_folder(s->hidden));
    const char *name = checkpoint_step_name(s->arena, s->request.step);
    if (s->request.admit) TRI_TRY(s->request.admit(s->request.admit_context));
    TRI_TRY(checkpoint_commit(s->arena, s->home, s->hidden, name));
    s->is_committed = true;
    return TRI_OK;
}

// Publishes the checkpoint, on rank 0 and after the commit: first sets the symbolic links "last"
// and "best", then removes old checkpoints, also if a link could not be set. In this order a link
// never points at a checkpoint that was removed.
static tri_status publish(save *s) {
    const tri_checkpoint_save_request *r = &s->request;
    TRI_TRY(tri_os_sync_folder(s->home));
    // If there already was a checkpoint of this step, the commit has exchanged the two folders, and
    // `hidden` is now the old one.
    TRI_TRY(tri_os_remove_tree(s->hidden));
    tri_status linked =
        checkpoint_link(s->arena, s->home, "last", checkpoint_step_name(s->arena, r->step));
    const char *why = linked == TRI_OK ? "" : tri_arena_strdup(s->arena, tri_error_message());
    tri_status status = checkpoint_settle(s->arena, s->home, &r->monitor, r->save_top_k);
    return linked == TRI_OK ? status : TRI_FAIL(linked, "%s", why);
}

static void commit_and_publish(save *s) {
    record(s, commit(s));
    if (s->is_committed && publish(s) != TRI_OK)
        tri_log_line(TRI_LOG_WARNING, "checkpoint of step %lld is saved, but: %s",
                     (long long)s->request.step, tri_error_message());
}

static void *run_stage(void *context) {
    save *s = context;
    int64_t begun_ns = tri_os.monotonic_ns();
    if (s->stage) s->stage(s);
    s->worked_ns += tri_os.monotonic_ns() - begun_ns;
    atomic_store(&s->is_ready, true);
    return NULL;
}

static void begin_stage(save *s, void (*stage)(save *s)) {
    s->stage = stage;
    atomic_store(&s->is_ready, false);
    s->has_thread = stage && s->is_async && tri_thread_start(&s->thread, run_stage, s) == 0;
    if (!s->has_thread) run_stage(s);
}

static void join(save *s) {
    if (s->has_thread) pthread_join(s->thread, NULL);
    s->has_thread = false;
}

// Allocates the snapshot. If that fails on any rank, all ranks use a buffer for one chunk instead,
// because they all have to write in the same way.
static tri_status allocate(save *s) {
    if (s->request.snapshot_bytes > 0) {
        if (s->own_bytes <= s->request.snapshot_bytes)
            s->snapshot = malloc((size_t)s->own_bytes + 1);
        int32_t lacking = !s->snapshot;
        TRI_TRY(checkpoint_sum(s->request.comm, &lacking, 1));
        s->is_async = lacking == 0;
    }
    if (s->is_async) return TRI_OK;
    free(s->snapshot);
    s->snapshot = NULL;
    int64_t largest = 0;
    for (int i = 0; i < s->manifest.file_count; i++)
        if (s->images[i].largest_bytes > largest) largest = s->images[i].largest_bytes;
    s->buffer = malloc((size_t)largest);
    if (!s->buffer)
        record(s, TRI_FAIL(TRI_NO_MEMORY, "checkpoint: no memory for a chunk of %lld bytes",
                           (long long)largest));
    return TRI_OK;
}

static tri_ledger *ledger_of_commit(const save *s) {
    const tri_comm *comm = s->request.comm;
    return comm && comm->rank == 0 ? comm->ledger : NULL;
}

// Enters what only rank 0 does for a checkpoint, inside of the ledger's action of saving it.
static tri_ledger_mark enter_commit(const save *s) {
    return tri_ledger_enter(ledger_of_commit(s), TRI_LEDGER_COMMIT, "a checkpoint");
}

static void leave_commit(const save *s, tri_ledger_mark mark) {
    tri_ledger_end(ledger_of_commit(s), mark);
}

static tri_status begin(save *s) {
    tri_comm *comm = s->request.comm;
    int64_t begun_ns = tri_os.monotonic_ns();
    tri_status status = plan(s);
    tri_ledger_mark preparing = enter_commit(s);
    if (status == TRI_OK && checkpoint_rank(comm) == 0) status = prepare(s);
    leave_commit(s, preparing);
    TRI_TRY(checkpoint_agree(comm, status));
    TRI_TRY(checkpoint_broadcast(comm, s->hidden, sizeof s->hidden));
    TRI_TRY(allocate(s));
    if (!s->is_async) open_files(s);
    for_each_own_chunk(s, s->is_async ? copy_to_snapshot : write_directly);
    s->worked_ns = tri_os.monotonic_ns() - begun_ns;
    begin_stage(s, s->is_async ? write_snapshot : close_files);
    return TRI_OK;
}

// Removes the hidden folder of a save that did not commit, and frees the save. Returns `status` and
// keeps its message.
static tri_status close_save(save *s, tri_status status) {
    if (!s->is_committed && s->hidden[0] && checkpoint_rank(s->request.comm) == 0) {
        char message[TRI_MESSAGE_MAX_BYTES];
        snprintf(message, sizeof message, "%s", tri_error_message());
        if (tri_os_remove_tree(s->hidden) != TRI_OK)
            tri_log_line(TRI_LOG_WARNING, "%s: left behind: %s", s->hidden, tri_error_message());
        if (status != TRI_OK) status = TRI_FAIL(status, "%s", message);
    }
    if (s->request.worked_s) *s->request.worked_s = 1e-9 * (double)s->worked_ns;
    free(s->snapshot);
    free(s->buffer);
    tri_arena_destroy(s->arena);
    free(s);
    return status;
}

tri_status tri_checkpoint_save_begin(const tri_checkpoint_save_request *request,
                                     tri_pending_save **out) {
    save *s = malloc(sizeof *s);
    TRI_ASSERT(s);
    *s = (save){.request = *request, .arena = tri_arena_create(NULL, "checkpoint save")};
    for (int i = 0; i < CHECKPOINT_MAX_FILES; i++) s->fds[i] = -1;
    s->home = checkpoint_home(s->arena, request->run_dir);
    *out = NULL;
    tri_status status = begin(s);
    if (status != TRI_OK) return close_save(s, status);
    *out = s;
    return TRI_OK;
}

bool tri_checkpoint_save_is_async(const tri_pending_save *s) { return s->is_async; }

tri_save_state tri_checkpoint_save_state(const tri_pending_save *s) {
    if (!atomic_load(&s->is_ready)) return TRI_SAVE_BUSY;
    return s->status == TRI_OK ? TRI_SAVE_READY : TRI_SAVE_FAILED;
}

tri_status tri_checkpoint_save_advance(tri_pending_save *s, bool *ended) {
    *ended = true;
    if (!atomic_load(&s->is_ready)) atomic_store(&s->is_cancelled, true);
    join(s);
    tri_status status = checkpoint_agree(s->request.comm, failure_of(s));
    if (status == TRI_OK && !s->is_committing) status = gather_hashes(s);
    if (status == TRI_OK && !s->is_committing)
        status = checkpoint_largest(s->request.comm, &s->worked_ns, 1);
    if (status != TRI_OK || s->is_committing) return close_save(s, status);
    *ended = false;
    s->is_committing = true;
    tri_ledger_mark committing = enter_commit(s);
    begin_stage(s, checkpoint_rank(s->request.comm) == 0 ? commit_and_publish : NULL);
    leave_commit(s, committing);
    return TRI_OK;
}

tri_status tri_checkpoint_save_finish(tri_pending_save *s) {
    tri_status status = TRI_OK;
    for (bool ended = false; !ended;) {
        tri_ledger_mark committing = s->is_committing ? enter_commit(s) : (tri_ledger_mark){0};
        join(s);
        if (s->is_committing) leave_commit(s, committing);
        status = tri_checkpoint_save_advance(s, &ended);
    }
    return status;
}

void tri_checkpoint_save_abandon(tri_pending_save *s) {
    if (!s) return;
    atomic_store(&s->is_cancelled, true);
    join(s);
    close_save(s, TRI_OK);
}

tri_status tri_checkpoint_save(const tri_checkpoint_save_request *request) {
    tri_checkpoint_save_request at_once = *request;
    at_once.snapshot_bytes = 0;
    tri_pending_save *s;
    TRI_TRY(tri_checkpoint_save_begin(&at_once, &s));
    return tri_checkpoint_save_finish(s);
}
