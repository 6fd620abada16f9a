// Reads IDX files into memory, or the headers of large ones. The sizes in the header are checked
// against the file before memory is allocated.
#include "format/idx.h"

#include "base/os.h"
#include "format/unzip.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LARGE_PAGE_BYTES = 2 << 20 };

static uint32_t big_endian(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static bool dtype_of(uint8_t type, tri_dtype *out) {
    static const struct {
        uint8_t type;
        tri_dtype dtype;
    } rows[] = {{8, TRI_U8},   {9, TRI_I8},   {11, TRI_I16},
                {12, TRI_I32}, {13, TRI_F32}, {14, TRI_F64}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].type != type) continue;
        *out = rows[i].dtype;
        return true;
    }
    return false;
}

static tri_status check_kind(const char *path, tri_idx_kind kind, const tri_idx *idx) {
    static const struct {
        const char *name;
        int rank;
    } rows[] = {[TRI_IDX_IMAGES] = {"images", 3}, [TRI_IDX_LABELS] = {"labels", 1}};
    if (kind == TRI_IDX_ANY) return TRI_OK;
    tri_idx_kind other = kind == TRI_IDX_IMAGES ? TRI_IDX_LABELS : TRI_IDX_IMAGES;
    if (idx->shape.rank == rows[other].rank)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: holds %s where %s are expected: are the two files swapped?", path,
                        rows[other].name, rows[kind].name);
    if (idx->shape.rank != rows[kind].rank || idx->dtype != TRI_U8)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: holds %s with %d axes; %s are U8 with %d", path,
                        tri_dtype_name(idx->dtype), idx->shape.rank, rows[kind].name,
                        rows[kind].rank);
    return TRI_OK;
}

static tri_status read_header(tri_unzip *source, const char *path, tri_idx *out) {
    uint8_t magic[4], sizes[4 * TRI_MAX_RANK];
    TRI_TRY(tri_unzip_read(source, magic, sizeof magic));
    int rank = magic[3];
    if (magic[0] != 0 || magic[1] != 0 || !dtype_of(magic[2], &out->dtype) || rank == 0)
        return TRI_FAIL(TRI_CORRUPT, "%s: not an IDX file: its magic number is 0x%08x", path,
                        big_endian(magic));
    if (rank > TRI_MAX_RANK)
        return TRI_FAIL(TRI_UNSUPPORTED, "%s: %d axes; at most %d are supported", path, rank,
                        TRI_MAX_RANK);
    TRI_TRY(tri_unzip_read(source, sizes, 4 * (size_t)rank));
    out->shape.rank = rank;
    for (int i = 0; i < rank; i++) out->shape.dims[i] = big_endian(sizes + 4 * i);
    int64_t count = tri_shape_count(&out->shape);
    if (count < 0 ||
        __builtin_mul_overflow(count, (int64_t)tri_dtype_bytes(out->dtype), &out->size_bytes))
        return TRI_FAIL(TRI_CORRUPT, "%s: the product of its sizes overflows", path);
    return TRI_OK;
}

// Reverses the bytes of each element, because the file is big-endian.
static void to_host_order(tri_idx *idx) {
    size_t bytes = tri_dtype_bytes(idx->dtype);
    uint8_t *at = idx->data, *end = at + idx->size_bytes;
    for (; bytes > 1 && at < end; at += bytes) {
        for (size_t i = 0; i < bytes / 2; i++) {
            uint8_t byte = at[i];
            at[i] = at[bytes - 1 - i];
            at[bytes - 1 - i] = byte;
        }
    }
}

// Allocates memory for the elements, in huge pages where possible: samples are read in random
// order, and huge pages cause fewer TLB misses.
static void *allocate(size_t bytes) {
    if (bytes < LARGE_PAGE_BYTES) return malloc(bytes ? bytes : 1);
    size_t whole = (bytes + LARGE_PAGE_BYTES - 1) / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
    void *data = aligned_alloc(LARGE_PAGE_BYTES, whole);
    if (data) madvise(data, whole, MADV_HUGEPAGE); // if this fails, reads are only slower
    return data;
}

static tri_status read_all(tri_unzip *source, const char *path, tri_idx_kind kind,
                           int64_t most_bytes, tri_idx *out) {
    TRI_TRY(read_header(source, path, out));
    TRI_TRY(check_kind(path, kind, out));
    int64_t left = tri_unzip_max_bytes(source);
    if (out->size_bytes > left)
        return TRI_FAIL(TRI_CORRUPT,
                        "%s: truncated: by its sizes it has %lld bytes, but it can hold %lld", path,
                        (long long)out->size_bytes, (long long)left);
    out->offset = 4 + 4 * (int64_t)out->shape.rank;
    bool stays = out->size_bytes > most_bytes && !tri_unzip_is_gzip(source);
    if (stays && out->dtype == TRI_U8 && out->size_bytes == left) return TRI_OK;
    out->data = allocate((size_t)out->size_bytes);
    if (!out->data)
        return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for its %lld bytes", path,
                        (long long)out->size_bytes);
    TRI_TRY(tri_unzip_read(source, out->data, (size_t)out->size_bytes));
    TRI_TRY(tri_unzip_end(source));
    to_host_order(out);
    return TRI_OK;
}

tri_status tri_idx_read(const char *path, tri_idx_kind kind, int64_t most_bytes, tri_idx *out) {
    *out = (tri_idx){0};
    tri_unzip *source;
    TRI_TRY(tri_unzip_open(path, &source));
    tri_status status = read_all(source, path, kind, most_bytes, out);
    tri_unzip_close(source);
    if (status != TRI_OK) tri_idx_free(out);
    return status;
}

void tri_idx_free(tri_idx *idx) {
    free(idx->data);
    *idx = (tri_idx){0};
}
