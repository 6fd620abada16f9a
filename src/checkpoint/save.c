// Saving: every rank writes and hashes its pieces of the same files in a hidden folder, which rank
// 0 then completes and renames.
#include "base/limits.h"
#include "base/log.h"
#include "base/os.h"
#include "checkpoint/agree.h"
#include "checkpoint/folder.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct save {
    const tri_checkpoint_save_request *request;
    tri_arena *arena;
    const char *home;      // RUN/checkpoints
    char hidden[PATH_MAX]; // the folder being written; rank 0 names it
    checkpoint_manifest manifest;
    checkpoint_image images[CHECKPOINT_MAX_FILES];
    void *buffer; // of one piece
} save;

static const char *path_of(save *s, int file) {
    return tri_arena_printf(s->arena, "%s/%s", s->hidden, s->manifest.files[file].name);
}

// Chunks grow until each file has few enough: the hashes of any model fit into state.json.
static tri_status plan_file(save *s, const char *name, const tri_state_source *source) {
    const tri_safetensors_pair metadata[] = {
        {"format", "pt"},
        {"step", tri_arena_printf(s->arena, "%lld", (long long)s->request->step)},
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

static tri_status plan(save *s) {
    const tri_checkpoint_save_request *r = s->request;
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

    int64_t pieces = 0, largest = 0;
    for (int i = 0; i < s->manifest.file_count; i++) {
        pieces += s->images[i].pieces.count;
        if (s->images[i].largest_bytes > largest) largest = s->images[i].largest_bytes;
    }
    unsigned char(*hashes)[CHECKPOINT_HASH_BYTES] =
        tri_arena_alloc(s->arena, (size_t)pieces * CHECKPOINT_HASH_BYTES);
    for (int i = 0; i < s->manifest.file_count; i++) {
        s->manifest.files[i].hashes = hashes;
        hashes += s->images[i].pieces.count;
    }
    s->buffer = malloc((size_t)largest);
    if (!s->buffer)
        return TRI_FAIL(TRI_NO_MEMORY, "checkpoint: no memory for a chunk of %lld bytes",
                        (long long)largest);
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
    const char *name = checkpoint_step_name(s->arena, s->request->step);
    const char *hidden = checkpoint_hidden(s->arena, s->home, "tmp", name);
    if (snprintf(s->hidden, sizeof s->hidden, "%s", hidden) >= (int)sizeof s->hidden - 64)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: the path is too long", s->home);
    struct stat info;
    if (stat(s->home, &info) < 0) {
        TRI_TRY(tri_os_make_folders(s->home));
        TRI_TRY(tri_os_sync_folder(s->request->run_dir));
    }
    if (tri_os.mkdir(s->hidden, 0777) < 0) return tri_os_fail("create the folder", s->hidden);
    for (int i = 0; i < s->manifest.file_count; i++)
        TRI_TRY(create_file(path_of(s, i), s->manifest.files[i].size_bytes));
    return TRI_OK;
}

// Pieces go round the ranks by their place in the file, so that all ranks work on neighbouring
// tensors at any moment, whoever owns these.
static bool is_mine(const save *s, const tri_state_source *source, const checkpoint_piece *piece) {
    int64_t turn = piece->offset / s->manifest.chunk_bytes;
    int ranks = checkpoint_ranks(s->request->comm), rank = checkpoint_rank(s->request->comm);
    if (source->holders && piece->tensor >= 0)
        ranks = source->holders(source->context, piece->tensor, &rank);
    return turn % ranks == rank;
}

// Every holder fetches every tensor, whichever of its pieces it writes, and whatever went wrong
// before: the others wait for it.
static tri_status fetch(const save *s, const tri_state_source *source,
                        const checkpoint_pieces *pieces, int i) {
    int tensor = pieces->items[i].tensor, index = 0;
    (void)s;
    if (!source->fetch || tensor < 0 || (i > 0 && pieces->items[i - 1].tensor == tensor))
        return TRI_OK;
    if (source->holders) source->holders(source->context, tensor, &index);
    return index < 0 ? TRI_OK : source->fetch(source->context, tensor);
}

static tri_status write_piece(save *s, const checkpoint_image *image, const checkpoint_piece *piece,
                              unsigned char *hash, int fd, const char *path) {
    TRI_TRY(checkpoint_image_read(image, piece, s->buffer));
    TRI_TRY(checkpoint_hash(s->buffer, piece->size_bytes, hash));
    return tri_os_pwrite_all(fd, s->buffer, (size_t)piece->size_bytes, piece->offset, path);
}

static tri_status write_pieces(save *s, int file, int fd, const char *path) {
    const checkpoint_image *image = &s->images[file];
    char why[TRI_MESSAGE_MAX_BYTES] = "";
    tri_status status = TRI_OK;
    for (int i = 0; i < image->pieces.count; i++) {
        const checkpoint_piece *piece = &image->pieces.items[i];
        TRI_TRY(fetch(s, image->source, &image->pieces, i));
        if (status != TRI_OK || !is_mine(s, image->source, piece)) continue;
        status = write_piece(s, image, piece, s->manifest.files[file].hashes[i], fd, path);
        if (status != TRI_OK) snprintf(why, sizeof why, "%s", tri_error_message());
    }
    if (status != TRI_OK) return TRI_FAIL(status, "%s", why);
    return tri_os.fsync(fd) < 0 ? tri_os_fail("sync", path) : TRI_OK;
}

static tri_status write_files(save *s) {
    for (int i = 0; i < s->manifest.file_count; i++) {
        const char *path = path_of(s, i);
        int fd = tri_os.open(path, O_WRONLY | O_CLOEXEC, 0);
        if (fd < 0 && checkpoint_rank(s->request->comm) > 0)
            return tri_status_context(tri_os_fail("open", path),
                                      "do all ranks share the run directory's file system?");
        if (fd < 0) return tri_os_fail("open", path);
        tri_status status = write_pieces(s, i, fd, path);
        if (tri_os.close(fd) < 0 && status == TRI_OK) status = tri_os_fail("close", path);
        TRI_TRY(status);
    }
    return TRI_OK;
}

static tri_status gather_hashes(save *s) {
    int64_t words = 0;
    for (int i = 0; i < s->manifest.file_count; i++)
        words += (int64_t)s->manifest.files[i].piece_count * (CHECKPOINT_HASH_BYTES / 4);
    return checkpoint_gather(s->request->comm, s->manifest.files[0].hashes, words);
}

static tri_status write_state(save *s, const checkpoint_steps *steps) {
    tri_checkpoint_info *info = &s->manifest.info;
    *info = (tri_checkpoint_info){
        .step = s->request->step,
        .commit = 1,
        .saved_unix_s = tri_os.realtime_ns() / 1000000000,
        .program = "trireme " TRIREME_VERSION,
        .recipe = s->request->recipe,
        .training = s->request->training,
        .monitor = s->request->monitor,
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
static tri_status commit(save *s, bool *is_committed) {
    checkpoint_steps steps;
    TRI_TRY(checkpoint_scan(s->arena, s->home, &steps));
    TRI_TRY(write_state(s, &steps));
    TRI_TRY(tri_os_sync_folder(s->hidden));
    const char *name = checkpoint_step_name(s->arena, s->request->step);
    TRI_TRY(checkpoint_commit(s->arena, s->home, s->hidden, name));
    *is_committed = true;
    return TRI_OK;
}

// Rank 0, after the commit: links first, so that they never point at what retention removes.
static tri_status tidy_up(save *s) {
    const tri_checkpoint_save_request *r = s->request;
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

static tri_status run(save *s, bool *is_committed) {
    tri_comm *comm = s->request->comm;
    bool leads = checkpoint_rank(comm) == 0;
    tri_status status = plan(s);
    if (status == TRI_OK && leads) status = prepare(s);
    TRI_TRY(checkpoint_agree(comm, status));
    TRI_TRY(checkpoint_share(comm, s->hidden, sizeof s->hidden));
    TRI_TRY(checkpoint_agree(comm, write_files(s)));
    TRI_TRY(gather_hashes(s));
    status = leads ? commit(s, is_committed) : TRI_OK;
    if (*is_committed && tidy_up(s) != TRI_OK)
        tri_log(TRI_LOG_WARNING, "checkpoint of step %lld is saved, but: %s",
                (long long)s->request->step, tri_error_message());
    return checkpoint_agree(comm, status);
}

tri_status tri_checkpoint_save(const tri_checkpoint_save_request *request) {
    save s = {.request = request, .arena = tri_arena_create(NULL, "checkpoint save")};
    s.home = checkpoint_home(s.arena, request->run_dir);
    bool is_committed = false;
    tri_status status = run(&s, &is_committed);
    if (!is_committed && s.hidden[0] && checkpoint_rank(request->comm) == 0) {
        char why[TRI_MESSAGE_MAX_BYTES];
        snprintf(why, sizeof why, "%s", tri_error_message());
        if (tri_os_remove_tree(s.hidden) != TRI_OK)
            tri_log(TRI_LOG_WARNING, "%s: left behind: %s", s.hidden, tri_error_message());
        status = TRI_FAIL(status, "%s", why);
    }
    free(s.buffer);
    tri_arena_destroy(s.arena);
    return status;
}
