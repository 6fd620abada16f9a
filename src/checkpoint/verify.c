// Reads and verifies the files of a checkpoint: length, header, then one chunk after the other.
// Read next: train/state.c, the sink that gets the tensors.
#include "checkpoint/verify.h"

#include "base/limits.h"
#include "base/os.h"
#include "checkpoint/folder.h"
#include "tensor/half.h"

#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct reading {
    tri_arena *arena;
    const char *path;
    const checkpoint_file *file;
    const tri_state_sink *sink; // gets the tensors; NULL: the file is only verified
    // Without a sink this reader reads every ranks-th chunk, beginning with number `rank`, or those
    // that somebody wants.
    int rank, ranks;
    checkpoint_wants *wants; // NULL: everything is wanted
    void *context;
    tri_safetensors *open;
    const tri_safetensors_entry *entries;
    checkpoint_chunks chunks;
    const int *targets; // entries[i] belongs to the sink's tensor targets[i]
    char *buffer;       // of the largest chunk
    char *halves;       // behind it: the same elements, in a half type
} reading;

// Checks the file's length before the file is parsed, so that the error says if a file is missing
// or truncated.
static tri_status check_size(const reading *r) {
    struct stat info;
    if (stat(r->path, &info) < 0) {
        tri_status status = tri_os_fail("look at", r->path);
        if (status != TRI_NOT_FOUND) return status;
        return TRI_FAIL(TRI_CORRUPT, "%s: is missing: the checkpoint is not whole", r->path);
    }
    if (info.st_size == r->file->size_bytes) return TRI_OK;
    int fd;
    TRI_TRY(tri_os_open_input(r->path, &fd)); // says if the file is a pointer
    tri_os.close(fd);
    return TRI_FAIL(TRI_CORRUPT, "%s: is damaged: it has %lld bytes, but state.json says %lld",
                    r->path, (long long)info.st_size, (long long)r->file->size_bytes);
}

static tri_status damaged_header(const reading *r) {
    return TRI_FAIL(TRI_CORRUPT, "%s: is damaged: its header does not have its SHA-256", r->path);
}

static tri_status hash_header(const reading *r, int fd, int64_t chunk_bytes) {
    uint64_t count;
    TRI_TRY(tri_os_pread_all(fd, &count, sizeof count, 0, r->path));
    count = le64toh(count);
    if (count > TRI_MAX_SAFETENSORS_HEADER || (int64_t)(count + 8) > r->file->size_bytes)
        return damaged_header(r);
    int64_t header_bytes = 8 + (int64_t)count, done = 0;
    char *header = malloc((size_t)header_bytes);
    if (!header) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for its header", r->path);
    tri_status status = tri_os_pread_all(fd, header, (size_t)header_bytes, 0, r->path);
    for (int i = 0; status == TRI_OK && done < header_bytes; i++, done += chunk_bytes) {
        int64_t size = header_bytes - done < chunk_bytes ? header_bytes - done : chunk_bytes;
        unsigned char hash[CHECKPOINT_HASH_BYTES];
        status = checkpoint_hash(header + done, size, hash);
        if (status == TRI_OK &&
            (i >= r->file->chunk_count || memcmp(hash, r->file->hashes[i], sizeof hash) != 0))
            status = damaged_header(r);
    }
    free(header);
    return status;
}

// Checks the header's hash before the header is parsed, so that a flipped bit is reported as damage
// and not as a mismatch of tensors. If the header belongs to another step, the message says so.
static tri_status check_header(reading *r, const checkpoint_manifest *manifest) {
    int fd;
    TRI_TRY(tri_os_open_input(r->path, &fd));
    tri_status status = hash_header(r, fd, manifest->chunk_bytes);
    tri_os.close(fd);
    if (status != TRI_CORRUPT) return status;
    if (tri_safetensors_open(r->path, &r->open) != TRI_OK) return damaged_header(r);
    char *end;
    const char *text = tri_safetensors_metadata(r->open, "step");
    int64_t step = text ? strtoll(text, &end, 10) : 0;
    if (!text || end == text || *end || step == manifest->info.step) return damaged_header(r);
    return TRI_FAIL(TRI_CORRUPT,
                    "%s: is of step %lld, but state.json is of step %lld: files of two checkpoints "
                    "are mixed, or this one is damaged",
                    r->path, (long long)step, (long long)manifest->info.step);
}

static tri_status check_dtypes(const reading *r) {
    for (int i = 0; i < tri_safetensors_count(r->open); i++) {
        tri_dtype there = r->entries[i].dtype, here = r->sink->tensors[r->targets[i]].dtype;
        if (there != here)
            return TRI_FAIL(TRI_BAD_INPUT, "%s: tensor '%s' is %s there, but %s in the model",
                            r->path, r->entries[i].name, tri_dtype_name(there),
                            tri_dtype_name(here));
    }
    return TRI_OK;
}

static tri_status damaged(const reading *r, const checkpoint_chunk *chunk) {
    if (chunk->tensor == CHECKPOINT_HEADER) return damaged_header(r);
    const tri_safetensors_entry *entry = &r->entries[chunk->tensor];
    return TRI_FAIL(TRI_CORRUPT,
                    "%s: tensor '%s' is damaged: bytes %lld to %lld do not have their SHA-256",
                    r->path, entry->name, (long long)(chunk->offset - entry->offset),
                    (long long)(chunk->offset - entry->offset + chunk->size_bytes - 1));
}

static tri_status write_to_sink(const reading *r, const checkpoint_chunk *chunk) {
    const tri_safetensors_entry *entry = &r->entries[chunk->tensor];
    int64_t element = (int64_t)tri_dtype_bytes(entry->dtype), count = chunk->size_bytes / element;
    int target = r->targets[chunk->tensor];
    tri_dtype taken = checkpoint_taken_dtype(&r->sink->tensors[target]);
    char *elements = taken == entry->dtype ? r->buffer : r->halves;
    if (elements == r->halves) tri_half_narrow(taken, (float *)r->buffer, r->halves, count);
    return r->sink->write(r->sink->context, target, (chunk->offset - entry->offset) / element,
                          count, elements);
}

static bool is_wanted(const reading *r, int i) {
    const checkpoint_chunk *chunk = &r->chunks.items[i];
    if (!r->sink && !r->wants) return i % r->ranks == r->rank;
    if ((r->sink && !r->sink->next_wanted) || chunk->tensor == CHECKPOINT_HEADER) return true;
    const tri_safetensors_entry *entry = &r->entries[chunk->tensor];
    int64_t element = (int64_t)tri_dtype_bytes(entry->dtype), count;
    int64_t first = (chunk->offset - entry->offset) / element;
    if (r->wants) return r->wants(r->context, entry->offset, first, chunk->size_bytes / element);
    int64_t found =
        r->sink->next_wanted(r->sink->context, r->targets[chunk->tensor], first, &count);
    return count > 0 && found < first + chunk->size_bytes / element;
}

static tri_status read_chunks(reading *r) {
    int fd = tri_os.open(r->path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return tri_os_fail("open", r->path);
    tri_status status = TRI_OK;
    for (int i = 0; i < r->chunks.count && status == TRI_OK; i++) {
        const checkpoint_chunk *chunk = &r->chunks.items[i];
        if (!is_wanted(r, i)) continue;
        unsigned char hash[CHECKPOINT_HASH_BYTES];
        status = tri_os_pread_all(fd, r->buffer, (size_t)chunk->size_bytes, chunk->offset, r->path);
        if (status == TRI_OK) status = checkpoint_hash(r->buffer, chunk->size_bytes, hash);
        if (status == TRI_OK && memcmp(hash, r->file->hashes[i], sizeof hash) != 0)
            status = damaged(r, chunk);
        if (status == TRI_OK && r->sink && chunk->tensor != CHECKPOINT_HEADER)
            status = write_to_sink(r, chunk);
    }
    tri_os.close(fd);
    return status;
}

static tri_status read_file(reading *r, const checkpoint_manifest *manifest) {
    TRI_TRY(check_size(r));
    TRI_TRY(check_header(r, manifest));
    TRI_TRY(tri_safetensors_open(r->path, &r->open));
    TRI_TRY(checkpoint_cut_file(r->arena, r->open, manifest->chunk_bytes, &r->entries, &r->chunks));
    if (r->chunks.count != r->file->chunk_count)
        return TRI_FAIL(TRI_CORRUPT,
                        "%s: is damaged: its header cuts it into %d chunks, but state.json has %d "
                        "hashes",
                        r->path, r->chunks.count, r->file->chunk_count);
    int64_t largest = 0;
    for (int i = 0; i < r->chunks.count; i++)
        if (r->chunks.items[i].size_bytes > largest) largest = r->chunks.items[i].size_bytes;
    r->buffer = malloc((size_t)(largest + largest / 2));
    r->halves = r->buffer + largest;
    if (!r->buffer) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for a chunk of it", r->path);
    if (r->sink) {
        int *targets;
        TRI_TRY(checkpoint_match(r->arena, r->path, r->entries, tri_safetensors_count(r->open),
                                 r->sink, NULL, &targets));
        r->targets = targets;
        TRI_TRY(check_dtypes(r));
    }
    return read_chunks(r);
}

static tri_status read_in(const char *folder, const checkpoint_manifest *manifest, reading *r) {
    r->arena = tri_arena_create(NULL, "checkpoint file");
    r->path = tri_arena_printf(r->arena, "%s/%s", folder, r->file->name);
    tri_status status = read_file(r, manifest);
    free(r->buffer);
    tri_safetensors_close(r->open);
    tri_arena_destroy(r->arena);
    return status;
}

tri_status checkpoint_read_file(const char *folder, const checkpoint_manifest *manifest,
                                const checkpoint_file *file, const tri_state_sink *sink) {
    return read_in(folder, manifest, &(reading){.file = file, .sink = sink, .ranks = 1});
}

tri_status checkpoint_verify_file(const char *folder, const checkpoint_manifest *manifest,
                                  const checkpoint_file *file, checkpoint_wants *wants,
                                  void *context) {
    return read_in(folder, manifest,
                   &(reading){.file = file, .ranks = 1, .wants = wants, .context = context});
}

tri_status checkpoint_verify(tri_arena *arena, const char *folder, checkpoint_manifest *manifest) {
    return checkpoint_verify_chunks(arena, folder, 0, 1, manifest);
}

tri_status checkpoint_open(tri_arena *arena, const char *folder, checkpoint_manifest *manifest) {
    TRI_TRY(checkpoint_manifest_read(arena, folder, manifest));
    int64_t step;
    if (checkpoint_is_step_name(folder, &step) && step != manifest->info.step)
        return TRI_FAIL(TRI_CORRUPT, "%s: holds step %lld by its state.json", folder,
                        (long long)manifest->info.step);
    return TRI_OK;
}

tri_status checkpoint_verify_chunks(tri_arena *arena, const char *folder, int rank, int ranks,
                                    checkpoint_manifest *manifest) {
    TRI_TRY(checkpoint_open(arena, folder, manifest));
    for (int i = 0; i < manifest->file_count; i++)
        TRI_TRY(read_in(folder, manifest,
                        &(reading){.file = &manifest->files[i], .rank = rank, .ranks = ranks}));
    return TRI_OK;
}
