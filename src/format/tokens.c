#include "format/tokens.h"

#include "base/os.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HEADER_BYTES = 1024, MAGIC = 0, VERSION = 1, COUNT = 2 };

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

// The header that the file begins with; NULL when it is none. As text its first bytes are no UTF-8,
// and as tokens they are larger than those that such files hold.
static const int32_t *header_of(const tri_tokens *tokens, int *row) {
    const int32_t *words = tokens->map;
    if (tokens->map_bytes < HEADER_BYTES) return NULL;
    for (*row = 0; *row < (int)(sizeof headers / sizeof *headers); ++*row)
        if (words[MAGIC] == headers[*row].magic) return words;
    return NULL;
}

static tri_status read_header(const char *path, tri_token_type *type, tri_tokens *tokens) {
    int row;
    const int32_t *words = *type == TRI_TOKENS_AUTO ? header_of(tokens, &row) : NULL;
    if (*type == TRI_TOKENS_AUTO) *type = type_of_name(path);
    tokens->data = tokens->map;
    if (!words) return TRI_OK;
    *type = headers[row].type;
    tokens->data = (const char *)tokens->map + HEADER_BYTES;
    if (words[VERSION] != headers[row].version)
        return TRI_FAIL(TRI_UNSUPPORTED, "%s: version %d of its header; %d is supported", path,
                        words[VERSION], headers[row].version);
    size_t bytes = (size_t)(uint32_t)words[COUNT] * tri_dtype_bytes(dtypes[*type]);
    if (bytes == tokens->map_bytes - HEADER_BYTES) return TRI_OK;
    return TRI_FAIL(TRI_CORRUPT, "%s: its header promises %u tokens (%zu bytes), but %zu follow",
                    path, (uint32_t)words[COUNT], bytes, tokens->map_bytes - HEADER_BYTES);
}

static tri_status fail_empty(const char *path) {
    return TRI_FAIL(TRI_BAD_INPUT, "%s: is empty: no tokens", path);
}

static tri_status map_file(const char *path, int fd, tri_tokens *out) {
    struct stat info;
    if (fstat(fd, &info) < 0) return tri_os_fail("look at", path);
    if (!S_ISREG(info.st_mode)) return TRI_FAIL(TRI_BAD_INPUT, "%s: is not a file", path);
    if (info.st_size == 0) return fail_empty(path);
    void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return tri_os_fail("map", path);
    out->map = map;
    out->map_bytes = (size_t)info.st_size;
    return TRI_OK;
}

static tri_status open_map(const char *path, tri_token_type type, int fd, tri_tokens *out) {
    TRI_TRY(map_file(path, fd, out));
    TRI_TRY(read_header(path, &type, out));
    out->dtype = dtypes[type];
    size_t width = tri_dtype_bytes(out->dtype);
    size_t bytes = out->map_bytes - (size_t)((const char *)out->data - (const char *)out->map);
    if (bytes % width)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: %zu bytes are no whole number of %s tokens of %zu bytes; if it is of "
                        "another type, set data.dtype",
                        path, bytes, tri_dtype_name(out->dtype), width);
    if (bytes == 0) return fail_empty(path);
    out->count = (int64_t)(bytes / width);
    return TRI_OK;
}

tri_status tri_tokens_open(const char *path, tri_token_type type, tri_tokens *out) {
    *out = (tri_tokens){0};
    int fd = tri_os.open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return tri_os_fail("open", path);
    tri_status status = open_map(path, type, fd, out);
    tri_os.close(fd);
    if (status != TRI_OK) tri_tokens_close(out);
    return status;
}

void tri_tokens_close(tri_tokens *tokens) {
    if (tokens->map) munmap(tokens->map, tokens->map_bytes);
    *tokens = (tri_tokens){0};
}

#define LARGEST(T)                                                                                 \
    do {                                                                                           \
        const T *items = (const T *)tokens->data + first;                                          \
        T most = 0;                                                                                \
        for (int64_t i = 0; i < count; i++) most = items[i] > most ? items[i] : most;              \
        return most;                                                                               \
    } while (0)

uint32_t tri_tokens_largest(const tri_tokens *tokens, int64_t first, int64_t count) {
    TRI_ASSERT(first >= 0 && count >= 0 && first + count <= tokens->count);
    if (tokens->dtype == TRI_U8) LARGEST(uint8_t);
    if (tokens->dtype == TRI_U16) LARGEST(uint16_t);
    LARGEST(uint32_t);
}

void tri_tokens_hint(const tri_tokens *tokens, int64_t first, int64_t count) {
    size_t width = tri_dtype_bytes(tokens->dtype), page = (size_t)sysconf(_SC_PAGESIZE);
    size_t from =
        (size_t)((const char *)tokens->data - (const char *)tokens->map) + (size_t)first * width;
    size_t skip = from % page;
    // A wish: it may fail.
    madvise((char *)tokens->map + from - skip, (size_t)count * width + skip, MADV_WILLNEED);
}
