// Reads plain and gzip-compressed files as a stream, so that readers of formats need not
// distinguish them.
#include "format/unzip.h"

#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <isa-l/igzip_lib.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    INPUT_BYTES = 1 << 16,
    MAGIC_BYTES = 2, // the bytes 0x1f 0x8b
    // ISA-L, which decompresses, counts output bytes in 32 bits, so it is asked for at most this
    // many at a time.
    OUTPUT_STEP_BYTES = 1 << 30,
    // The most bytes that one compressed byte can become: deflate codes up to 258 bytes in 2 bits.
    MAX_EXPANSION = 1032,
};

struct tri_unzip {
    int fd;
    char *path;
    int64_t file_bytes;
    int64_t taken; // for an uncompressed file: how many bytes tri_unzip_read has returned
    bool gzip, ended;
    struct inflate_state state;
    uint8_t input[INPUT_BYTES];
};

// Refills the empty input buffer with at least `least` bytes, or with the rest of the file if that
// is less. At the end of the file the buffer stays empty.
static tri_status refill(tri_unzip *source, uint32_t least) {
    struct inflate_state *state = &source->state;
    state->next_in = source->input;
    state->avail_in = 0;
    while (state->avail_in < least) {
        ssize_t got =
            tri_os.read(source->fd, source->input + state->avail_in, INPUT_BYTES - state->avail_in);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return tri_os_fail("read", source->path);
        if (got == 0) break;
        state->avail_in += (uint32_t)got;
    }
    return TRI_OK;
}

static tri_status start(tri_unzip *source) {
    struct stat info;
    if (fstat(source->fd, &info) < 0) return tri_os_fail("look at", source->path);
    if (!S_ISREG(info.st_mode)) return TRI_FAIL(TRI_BAD_INPUT, "%s: is not a file", source->path);
    source->file_bytes = info.st_size;
    isal_inflate_init(&source->state);
    source->state.crc_flag = ISAL_GZIP;
    TRI_TRY(refill(source, MAGIC_BYTES));
    source->gzip = source->state.avail_in >= MAGIC_BYTES && source->input[0] == 0x1f &&
                   source->input[1] == 0x8b;
    return TRI_OK;
}

tri_status tri_unzip_open(const char *path, tri_unzip **out) {
    *out = NULL;
    int fd;
    TRI_TRY(tri_os_open_input(path, &fd));
    tri_unzip *source = calloc(1, sizeof *source);
    char *copy = strdup(path);
    if (!source || !copy) {
        free(source);
        free(copy);
        tri_os.close(fd);
        return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to read it", path);
    }
    source->fd = fd;
    source->path = copy;
    tri_status status = start(source);
    if (status == TRI_OK)
        *out = source;
    else
        tri_unzip_close(source);
    return status;
}

void tri_unzip_close(tri_unzip *source) {
    if (!source) return;
    tri_os.close(source->fd);
    free(source->path);
    free(source);
}

// Called at the end of a gzip member: begins the next one, if there is one, because a file may have
// several (RFC 1952, 2.2).
static tri_status next_member(tri_unzip *source) {
    if (source->state.avail_in == 0) TRI_TRY(refill(source, 1));
    if (source->state.avail_in == 0) {
        source->ended = true;
        return TRI_OK;
    }
    uint8_t *next_in = source->state.next_in;
    uint32_t avail_in = source->state.avail_in;
    isal_inflate_reset(&source->state);
    source->state.crc_flag = ISAL_GZIP;
    source->state.next_in = next_in;
    source->state.avail_in = avail_in;
    return TRI_OK;
}

// Decompresses up to `size` bytes. It returns fewer only at the end of the file.
static tri_status inflate_some(tri_unzip *source, uint8_t *out, uint32_t size, uint32_t *got) {
    struct inflate_state *state = &source->state;
    *got = 0;
    while (*got < size && !source->ended) {
        uint32_t before = state->avail_in;
        state->next_out = out + *got;
        state->avail_out = size - *got;
        int code = isal_inflate(state);
        if (code < 0)
            return TRI_FAIL(TRI_CORRUPT, "%s: its gzip data is damaged%s", source->path,
                            code == ISAL_INCORRECT_CHECKSUM ? ": wrong checksum" : "");
        uint32_t made = size - *got - state->avail_out;
        *got += made;
        if (state->block_state == ISAL_BLOCK_FINISH) {
            TRI_TRY(next_member(source));
        } else if (state->avail_in == 0 && *got < size) {
            TRI_TRY(refill(source, 1));
            if (state->avail_in == 0)
                return TRI_FAIL(TRI_CORRUPT, "%s: truncated: its gzip data has no end",
                                source->path);
        } else if (made == 0 && state->avail_in == before) {
            return TRI_FAIL(TRI_CORRUPT, "%s: its gzip data is damaged", source->path);
        }
    }
    return TRI_OK;
}

static tri_status copy_some(tri_unzip *source, uint8_t *out, size_t size, size_t *got) {
    size_t ready = source->state.avail_in < size ? source->state.avail_in : size;
    memcpy(out, source->state.next_in, ready);
    source->state.next_in += ready;
    source->state.avail_in -= (uint32_t)ready;
    *got = ready;
    while (*got < size && !source->ended) {
        ssize_t done = tri_os.read(source->fd, out + *got, size - *got);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return tri_os_fail("read", source->path);
        source->ended = done == 0;
        *got += (size_t)done;
    }
    source->taken += (int64_t)*got;
    return TRI_OK;
}

static tri_status read_some(tri_unzip *source, uint8_t *out, size_t size, size_t *got) {
    if (!source->gzip) return copy_some(source, out, size, got);
    *got = 0;
    while (*got < size && !source->ended) {
        size_t step = size - *got < OUTPUT_STEP_BYTES ? size - *got : OUTPUT_STEP_BYTES;
        uint32_t made;
        TRI_TRY(inflate_some(source, out + *got, (uint32_t)step, &made));
        *got += made;
    }
    return TRI_OK;
}

tri_status tri_unzip_read(tri_unzip *source, void *out, size_t size) {
    size_t got;
    TRI_TRY(read_some(source, out, size, &got));
    if (got < size)
        return TRI_FAIL(TRI_CORRUPT, "%s: truncated: it ends %zu bytes too early", source->path,
                        size - got);
    return TRI_OK;
}

tri_status tri_unzip_end(tri_unzip *source) {
    uint8_t extra;
    size_t got;
    TRI_TRY(read_some(source, &extra, 1, &got));
    if (got > 0)
        return TRI_FAIL(TRI_CORRUPT, "%s: bytes too many after its last element", source->path);
    return TRI_OK;
}

bool tri_unzip_is_gzip(const tri_unzip *source) { return source->gzip; }

int64_t tri_unzip_max_bytes(const tri_unzip *source) {
    if (!source->gzip) return source->file_bytes - source->taken;
    int64_t most;
    return __builtin_mul_overflow(source->file_bytes, (int64_t)MAX_EXPANSION, &most) ? INT64_MAX
                                                                                     : most;
}
