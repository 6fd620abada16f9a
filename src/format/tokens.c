// Reads files of tokens. The file is read and not mapped: if it is truncated while it is open, a
// read returns an error, but access to a mapping would kill the process.
#include "format/tokens.h"

#include "base/os.h"
#include "format/megatron.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { HEADER_BYTES = 1024, MAGIC = 0, VERSION = 1, COUNT = 2, BLOCK = 1 << 16 };

static const struct {
    const char *suffix;
    tri_token_type type;
} suffixes[] = {{".bin", TRI_TOKENS_U16}, {".u16", TRI_TOKENS_U16}, {".u32", TRI_TOKENS_U32}};

static const struct {
    int32_t magic, version;
    tri_token_type type;
} headers[] = {{20240520, 1, TRI_TOKENS_U16}, {20240801, 7, TRI_TOKENS_U32}};

static const tri_dtype dtypes[] = {
    [TRI_TOKENS_U8] = TRI_U8, [TRI_TOKENS_U16] = TRI_U16, [TRI_TOKENS_U32] = TRI_U32};

static tri_token_type type_of_name(const char *path) {
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        size_t end = strlen(suffixes[i].suffix);
        if (length > end && strcmp(path + length - end, suffixes[i].suffix) == 0)
            return suffixes[i].type;
    }
    return TRI_TOKENS_U8;
}

enum { ROWS = sizeof headers / sizeof *headers };

typedef struct header {
    int32_t words[COUNT + 1];
    int row; // row of `headers`; ROWS: the file has no header
} header;

// Reads the header, if the file begins with one. A file without a header is not taken for one with
// a header: the bytes of a magic number are not valid UTF-8, and read as U16 they begin with a
// token above 55000, which GPT-2's vocabulary (50257) does not have.
static tri_status find_header(const tri_tokens *tokens, int64_t file_bytes, header *out) {
    out->row = ROWS;
    if (file_bytes < HEADER_BYTES) return TRI_OK;
    TRI_TRY(tri_os_pread_all(tokens->fd, out->words, sizeof out->words, 0, tokens->path));
    for (out->row = 0; out->row < ROWS; out->row++)
        if (out->words[MAGIC] == headers[out->row].magic) break;
    return TRI_OK;
}

static tri_status read_header(int64_t file_bytes, tri_token_type *type, tri_tokens *tokens) {
    header found;
    bool has_index;
    if (*type != TRI_TOKENS_AUTO) return TRI_OK;
    *type = type_of_name(tokens->path);
    TRI_TRY(tri_megatron_read_index(tokens->path, file_bytes, type, &has_index));
    if (has_index) return TRI_OK;
    TRI_TRY(find_header(tokens, file_bytes, &found));
    tokens->is_guessed = found.row == ROWS;
    if (tokens->is_guessed) return TRI_OK;
    *type = headers[found.row].type;
    tokens->offset = HEADER_BYTES;
    if (found.words[VERSION] != headers[found.row].version)
        return TRI_FAIL(TRI_UNSUPPORTED, "%s: version %d of its header; %d is supported",
                        tokens->path, found.words[VERSION], headers[found.row].version);
    uint32_t count = (uint32_t)found.words[COUNT];
    int64_t bytes = (int64_t)count * (int64_t)tri_dtype_bytes(dtypes[*type]);
    int64_t available = file_bytes - HEADER_BYTES;
    if (bytes == available) return TRI_OK;
    return TRI_FAIL(TRI_CORRUPT, "%s: its header promises %u tokens (%lld bytes), but %lld follow",
                    tokens->path, count, (long long)bytes, (long long)available);
}

static tri_status fail_empty(const char *path) {
    return TRI_FAIL(TRI_BAD_INPUT, "%s: is empty: no tokens", path);
}

static tri_status read_shape(tri_token_type type, tri_tokens *out) {
    struct stat info;
    if (fstat(out->fd, &info) < 0) return tri_os_fail("look at", out->path);
    if (!S_ISREG(info.st_mode)) return TRI_FAIL(TRI_BAD_INPUT, "%s: is not a file", out->path);
    if (info.st_size == 0) return fail_empty(out->path);
    TRI_TRY(read_header(info.st_size, &type, out));
    out->dtype = dtypes[type];
    int64_t width = (int64_t)tri_dtype_bytes(out->dtype), bytes = info.st_size - out->offset;
    if (bytes % width)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: %lld bytes are not a multiple of a %s token's %lld; if it is of "
                        "another type, set data.dtype",
                        out->path, (long long)bytes, tri_dtype_name(out->dtype), (long long)width);
    if (bytes == 0) return fail_empty(out->path);
    out->count = bytes / width;
    return TRI_OK;
}

tri_status tri_tokens_open(const char *path, tri_token_type type, tri_tokens *out) {
    *out = (tri_tokens){.path = strdup(path)};
    if (!out->path) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to open it", path);
    tri_status status = tri_os_open_input(path, &out->fd);
    if (status == TRI_OK) status = read_shape(type, out);
    if (status != TRI_OK) tri_tokens_close(out);
    return status;
}

void tri_tokens_close(tri_tokens *tokens) {
    if (tokens->path && tokens->fd >= 0) tri_os.close(tokens->fd);
    free(tokens->path);
    *tokens = (tri_tokens){0};
}

static int64_t offset_of(const tri_tokens *tokens, int64_t first) {
    return tokens->offset + first * (int64_t)tri_dtype_bytes(tokens->dtype);
}

tri_status tri_tokens_read(const tri_tokens *tokens, int64_t first, int64_t count, void *out) {
    TRI_ASSERT(first >= 0 && count >= 0 && count <= tokens->count - first);
    size_t bytes = (size_t)count * tri_dtype_bytes(tokens->dtype);
    return tri_os_pread_all(tokens->fd, out, bytes, offset_of(tokens, first), tokens->path);
}

#define LARGEST(T)                                                                                 \
    do {                                                                                           \
        const T *items = data;                                                                     \
        T most = 0;                                                                                \
        for (int64_t i = 0; i < count; i++) most = items[i] > most ? items[i] : most;              \
        return most;                                                                               \
    } while (0)

uint32_t tri_tokens_largest_of(tri_dtype dtype, const void *data, int64_t count) {
    if (dtype == TRI_U8) LARGEST(uint8_t);
    if (dtype == TRI_U16) LARGEST(uint16_t);
    LARGEST(uint32_t);
}

tri_status tri_tokens_largest(const tri_tokens *tokens, int64_t first, int64_t count,
                              uint32_t *out) {
    *out = 0;
    uint32_t *block = malloc(BLOCK * sizeof *block);
    tri_status status =
        block ? TRI_OK : TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to check it", tokens->path);
    for (int64_t done = 0; done < count && status == TRI_OK; done += BLOCK) {
        int64_t some = count - done < BLOCK ? count - done : BLOCK;
        status = tri_tokens_read(tokens, first + done, some, block);
        if (status != TRI_OK) break;
        uint32_t most = tri_tokens_largest_of(tokens->dtype, block, some);
        if (most > *out) *out = most;
    }
    free(block);
    return status;
}

void tri_tokens_hint(const tri_tokens *tokens, int64_t first, int64_t count) {
    // If this fails, only the reading becomes slower.
    posix_fadvise(tokens->fd, offset_of(tokens, first),
                  count * (int64_t)tri_dtype_bytes(tokens->dtype), POSIX_FADV_WILLNEED);
}
