// Reads the index that Megatron writes beside a file of tokens, and compares it with the file.
#include "format/megatron.h"

#include "base/little_endian.h"
#include "base/os.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    VERSION_AT = 9,
    CODE_AT = 17,
    COUNT_AT = 18,
    FAIRSEQ_BYTES = 26, // of its head, which has no number of documents
    HEAD_BYTES = 34,
    LENGTH_BYTES = 4,
    PLACE_BYTES = 8,
    BLOCK = 4096, // sequences
};

// The types that the index names by a code, of those that are read. Megatron writes signed numbers
// of 32 bits for vocabularies of more than 65500 tokens; no token is negative.
static const struct {
    uint8_t code, bytes;
    tri_token_type type;
} types[] = {{1, 1, TRI_TOKENS_U8}, {4, 4, TRI_TOKENS_U32}, {8, 2, TRI_TOKENS_U16}};

typedef struct index_file {
    const char *path;
    int fd;
    int64_t bytes;
    int64_t head_bytes;
    int64_t sequences;
    int64_t width; // of a token
} index_file;

static tri_status fail_damaged(const index_file *index, const char *what) {
    return TRI_FAIL(TRI_CORRUPT,
                    "%s: %s: write it again with the file of tokens, or remove it and set "
                    "data.dtype",
                    index->path, what);
}

// Finds how many sequences the index has, and checks that it has their lengths and places.
static tri_status read_counts(index_file *index) {
    uint8_t counts[HEAD_BYTES - COUNT_AT] = {0};
    if (index->bytes < FAIRSEQ_BYTES) return fail_damaged(index, "is cut off");
    size_t some = index->bytes < HEAD_BYTES ? FAIRSEQ_BYTES - COUNT_AT : sizeof counts;
    TRI_TRY(tri_os_pread_all(index->fd, counts, some, COUNT_AT, index->path));
    uint64_t sequences = tri_le64(counts), documents = tri_le64(counts + 8);
    uint64_t bytes = (uint64_t)index->bytes, rows = sequences * (LENGTH_BYTES + PLACE_BYTES);
    uint64_t documented = HEAD_BYTES + rows + documents * PLACE_BYTES;
    bool is_small = sequences <= bytes && documents <= bytes; // so that nothing overflows
    bool is_fairseq = sequences <= bytes && bytes == FAIRSEQ_BYTES + rows;
    if (!is_fairseq && (!is_small || (bytes != documented && bytes != documented + sequences)))
        return fail_damaged(index,
                            "has another size than its numbers of sequences and documents say");
    index->sequences = (int64_t)sequences;
    index->head_bytes = is_fairseq ? FAIRSEQ_BYTES : HEAD_BYTES;
    return TRI_OK;
}

// Adds up the bytes of all sequences, each of which begins where the last one ended.
static tri_status add_up(const index_file *index, int64_t *total) {
    uint8_t lengths[BLOCK * LENGTH_BYTES], places[BLOCK * PLACE_BYTES];
    int64_t places_at = index->head_bytes + index->sequences * LENGTH_BYTES;
    *total = 0;
    for (int64_t first = 0; first < index->sequences; first += BLOCK) {
        int64_t left = index->sequences - first, count = left < BLOCK ? left : BLOCK;
        TRI_TRY(tri_os_pread_all(index->fd, lengths, (size_t)count * LENGTH_BYTES,
                                 index->head_bytes + first * LENGTH_BYTES, index->path));
        TRI_TRY(tri_os_pread_all(index->fd, places, (size_t)count * PLACE_BYTES,
                                 places_at + first * PLACE_BYTES, index->path));
        for (int64_t i = 0; i < count; i++) {
            int32_t length = (int32_t)tri_le32(lengths + i * LENGTH_BYTES);
            if (length < 0 || tri_le64(places + i * PLACE_BYTES) != (uint64_t)*total ||
                __builtin_add_overflow(*total, length * index->width, total))
                return fail_damaged(index, "its sequences do not follow one another");
        }
    }
    return TRI_OK;
}

static tri_status check(index_file *index, const char *path, int64_t file_bytes) {
    int64_t total;
    TRI_TRY(read_counts(index));
    TRI_TRY(add_up(index, &total));
    if (total == file_bytes) return TRI_OK;
    return TRI_FAIL(TRI_CORRUPT,
                    "%s: its index %s promises %lld tokens of %lld bytes (%lld bytes), but the "
                    "file has %lld: one of the two is cut off, or belongs to another file",
                    path, index->path, (long long)(total / index->width), (long long)index->width,
                    (long long)total, (long long)file_bytes);
}

static tri_status read_open(index_file *index, const char *path, int64_t file_bytes,
                            tri_token_type *type, bool *is_there) {
    static const uint8_t begin[CODE_AT] = "MMIDIDX\0\0\1"; // with version 1
    uint8_t found[COUNT_AT];
    *is_there = tri_os_pread_most(index->fd, found, sizeof found, 0) == (ssize_t)sizeof found &&
                !memcmp(found, begin, VERSION_AT);
    if (!*is_there) return TRI_OK;
    bool is_known = !memcmp(found, begin, CODE_AT);
    for (size_t i = 0; is_known && i < sizeof types / sizeof *types; i++) {
        if (types[i].code != found[CODE_AT]) continue;
        *type = types[i].type;
        index->width = types[i].bytes;
        return check(index, path, file_bytes);
    }
    return TRI_FAIL(TRI_UNSUPPORTED,
                    "%s: its version or the type of its tokens (code %d) is not supported: int32, "
                    "uint16 and uint8 are; set data.dtype to read %s as another type",
                    index->path, found[CODE_AT], path);
}

tri_status tri_megatron_read_index(const char *path, int64_t file_bytes, tri_token_type *type,
                                   bool *is_there) {
    char name[PATH_MAX];
    struct stat info;
    size_t length = strlen(path);
    *is_there = false;
    if (length < 5 || length >= sizeof name || strcmp(path + length - 4, ".bin") != 0)
        return TRI_OK;
    snprintf(name, sizeof name, "%.*s.idx", (int)length - 4, path);
    if (access(name, F_OK) != 0 && errno == ENOENT) return TRI_OK;
    int fd;
    tri_status status = TRI_OK;
    TRI_TRY(tri_os_open_input(name, &fd));
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        index_file index = {.path = name, .fd = fd, .bytes = info.st_size};
        status = read_open(&index, path, file_bytes, type, is_there);
    }
    tri_os.close(fd);
    return status;
}
