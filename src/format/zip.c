// Reads zip archives (.npz files are such archives): directory, local headers, stored and deflated
// members.
#include "format/zip.h"

#include "base/limits.h"
#include "base/little_endian.h"
#include "base/os.h"

#include <isa-l/crc.h>
#include <isa-l/igzip_lib.h>
#include <stdlib.h>
#include <string.h>

enum {
    END_BYTES = 22,
    COMMENT_BYTES = 65535,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    CHUNK_BYTES = 1 << 16,
    // ISA-L, which decompresses, counts output bytes in 32 bits, so it is asked for at most this
    // many at a time.
    OUTPUT_STEP_BYTES = 1 << 30,
    // The most bytes that one compressed byte can become: deflate codes up to 258 bytes in 2 bits.
    MAX_EXPANSION = 1032,
    ENCRYPTED = 1,
    STORED = 0,
    DEFLATED = 8,
};

static tri_status damaged(const char *path) {
    return TRI_FAIL(TRI_CORRUPT, "%s: its zip directory is damaged, or the file is cut short",
                    path);
}

// True if `size` bytes from `offset` on lie within a file of `total` bytes. Neither number is
// trusted, so the check avoids sums that could overflow.
static bool lies_within(uint64_t offset, uint64_t size, int64_t total) {
    return offset <= (uint64_t)total && size <= (uint64_t)total - offset;
}

typedef struct directory {
    uint64_t offset, bytes, count;
} directory;

// Finds the end record, after which only the archive's comment may follow, and reads from it where
// the directory lies.
static tri_status find_directory(int fd, tri_zip *zip, directory *out) {
    int64_t tail = zip->file_bytes < END_BYTES + COMMENT_BYTES + LOCATOR_BYTES
                       ? zip->file_bytes
                       : END_BYTES + COMMENT_BYTES + LOCATOR_BYTES;
    uint8_t *bytes = malloc((size_t)tail + 1);
    if (!bytes) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to read it", zip->path);
    tri_status status =
        tri_os_pread_all(fd, bytes, (size_t)tail, zip->file_bytes - tail, zip->path);
    int64_t at = tail - END_BYTES;
    while (
        status == TRI_OK && at >= 0 &&
        !(tri_le32(bytes + at) == 0x06054b50 && at + END_BYTES + tri_le16(bytes + at + 20) == tail))
        at--;
    if (status == TRI_OK && at < 0) status = damaged(zip->path);
    uint64_t end64 = 0;
    bool has_locator = false;
    if (status == TRI_OK) {
        const uint8_t *end = bytes + at;
        *out = (directory){tri_le32(end + 16), tri_le32(end + 12), tri_le16(end + 10)};
        has_locator = at >= LOCATOR_BYTES && tri_le32(end - LOCATOR_BYTES) == 0x07064b50;
        if (has_locator) end64 = tri_le64(end - LOCATOR_BYTES + 8);
    }
    free(bytes);
    TRI_TRY(status);
    if (!has_locator) return TRI_OK;
    uint8_t record[END64_BYTES];
    if (!lies_within(end64, sizeof record, zip->file_bytes)) return damaged(zip->path);
    TRI_TRY(tri_os_pread_all(fd, record, sizeof record, (int64_t)end64, zip->path));
    if (tri_le32(record) != 0x06064b50) return damaged(zip->path);
    *out = (directory){tri_le64(record + 48), tri_le64(record + 40), tri_le64(record + 32)};
    return TRI_OK;
}

// Reads those of the `wanted` numbers (sizes and offset of a member) that do not fit into 32 bits:
// in the directory's entry they are UINT32_MAX, and the entry's extra field of type 1 contains
// them, in the order of `wanted`. False: it does not.
static bool read_extra(const uint8_t *at, const uint8_t *end, uint64_t *const wanted[3]) {
    bool needs = false;
    for (int i = 0; i < 3; i++) needs = needs || *wanted[i] == UINT32_MAX;
    if (!needs) return true;
    for (; end - at >= 4; at += 4 + tri_le16(at + 2)) {
        const uint8_t *value = at + 4;
        if (tri_le16(at + 2) > end - value) return false;
        if (tri_le16(at) != 1) continue;
        const uint8_t *stop = value + tri_le16(at + 2);
        for (int i = 0; i < 3; i++) {
            if (*wanted[i] != UINT32_MAX) continue;
            if (stop - value < 8) return false;
            *wanted[i] = tri_le64(value);
            value += 8;
        }
        return true;
    }
    return false;
}

static tri_status read_member(tri_arena *arena, const tri_zip *zip, const uint8_t **at,
                              const uint8_t *end, tri_zip_member *out) {
    const uint8_t *entry = *at;
    if (end - entry < ENTRY_BYTES || tri_le32(entry) != 0x02014b50) return damaged(zip->path);
    size_t name = tri_le16(entry + 28), extra = tri_le16(entry + 30),
           comment = tri_le16(entry + 32);
    if ((size_t)(end - entry) < ENTRY_BYTES + name + extra + comment) return damaged(zip->path);
    uint64_t packed = tri_le32(entry + 20), size = tri_le32(entry + 24),
             offset = tri_le32(entry + 42);
    const uint8_t *more = entry + ENTRY_BYTES + name;
    if (!read_extra(more, more + extra, (uint64_t *const[]){&size, &packed, &offset}))
        return damaged(zip->path);
    char *text = tri_arena_alloc(arena, name + 1);
    memcpy(text, entry + ENTRY_BYTES, name);
    uint16_t method = tri_le16(entry + 10);
    if ((tri_le16(entry + 8) & ENCRYPTED) || (method != STORED && method != DEFLATED))
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "%s: member '%s' is %s; numpy.savez and numpy.savez_compressed write what "
                        "can be read",
                        zip->path, text,
                        method == STORED || method == DEFLATED ? "encrypted"
                                                               : "compressed in another way than "
                                                                 "deflate");
    if (!lies_within(offset, LOCAL_BYTES, zip->file_bytes) ||
        !lies_within(offset, packed, zip->file_bytes) || size > INT64_MAX ||
        (method == STORED && packed != size) || size / MAX_EXPANSION > packed)
        return damaged(zip->path);
    *out = (tri_zip_member){.name = text,
                            .deflated = method == DEFLATED,
                            .crc32 = tri_le32(entry + 16),
                            .packed_bytes = (int64_t)packed,
                            .size_bytes = (int64_t)size,
                            .header_offset = (int64_t)offset};
    *at = more + extra + comment;
    return TRI_OK;
}

static tri_status read_directory(tri_arena *arena, int fd, const directory *where, tri_zip *zip) {
    uint8_t *bytes = malloc(where->bytes + 1);
    if (!bytes) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to read it", zip->path);
    tri_status status =
        tri_os_pread_all(fd, bytes, where->bytes, (int64_t)where->offset, zip->path);
    const uint8_t *at = bytes, *end = bytes + where->bytes;
    for (; status == TRI_OK && zip->count < (int)where->count; zip->count++)
        status = read_member(arena, zip, &at, end, &zip->members[zip->count]);
    free(bytes);
    return status;
}

tri_status tri_zip_open(tri_arena *arena, int fd, const char *path, tri_zip *out) {
    *out = (tri_zip){.path = tri_arena_strdup(arena, path)};
    struct stat info;
    directory where;
    if (fstat(fd, &info) < 0) return tri_os_fail("look at", path);
    out->file_bytes = info.st_size;
    TRI_TRY(find_directory(fd, out, &where));
    if (where.count > TRI_MAX_ZIP_MEMBERS)
        return TRI_FAIL(TRI_UNSUPPORTED, "%s: %llu members; at most %d are supported", path,
                        (unsigned long long)where.count, TRI_MAX_ZIP_MEMBERS);
    if (!lies_within(where.offset, where.bytes, out->file_bytes) ||
        where.bytes / ENTRY_BYTES < where.count)
        return damaged(path);
    out->members = TRI_NEW_ARRAY(arena, tri_zip_member, (int)where.count + 1);
    return read_directory(arena, fd, &where, out);
}

tri_status tri_zip_locate(const tri_zip *zip, int fd, const tri_zip_member *member,
                          int64_t *offset) {
    uint8_t header[LOCAL_BYTES];
    TRI_TRY(tri_os_pread_all(fd, header, sizeof header, member->header_offset, zip->path));
    *offset = member->header_offset + LOCAL_BYTES + tri_le16(header + 26) + tri_le16(header + 28);
    if (tri_le32(header) != 0x04034b50 ||
        !lies_within((uint64_t)*offset, (uint64_t)member->packed_bytes, zip->file_bytes))
        return TRI_FAIL(TRI_CORRUPT, "%s: the header of its member '%s' is damaged", zip->path,
                        member->name);
    return TRI_OK;
}

static tri_status fail_content(const tri_zip *zip, const tri_zip_member *member, const char *what) {
    return TRI_FAIL(TRI_CORRUPT, "%s: its member '%s' is damaged: %s", zip->path, member->name,
                    what);
}

// The packed bytes of a member, of which one chunk at a time is in memory.
typedef struct packed {
    int fd;
    int64_t offset, left;
    uint8_t bytes[CHUNK_BYTES];
} packed;

static tri_status next_chunk(packed *from, const char *path, uint32_t *got) {
    *got = from->left < CHUNK_BYTES ? (uint32_t)from->left : CHUNK_BYTES;
    TRI_TRY(tri_os_pread_all(from->fd, from->bytes, *got, from->offset, path));
    from->offset += *got;
    from->left -= *got;
    return TRI_OK;
}

static tri_status inflate_all(const tri_zip *zip, const tri_zip_member *member, packed *from,
                              uint8_t *out) {
    struct inflate_state *state = aligned_alloc(64, (sizeof *state + 63) / 64 * 64);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to read it", zip->path);
    isal_inflate_init(state);
    tri_status status = TRI_OK;
    int64_t made = 0;
    uint8_t beyond; // receives a byte beyond the declared size, which is an error
    while (status == TRI_OK && state->block_state != ISAL_BLOCK_FINISH) {
        if (state->avail_in == 0 && from->left > 0) {
            status = next_chunk(from, zip->path, &state->avail_in);
            state->next_in = from->bytes;
            if (status != TRI_OK) break;
        }
        int64_t room = member->size_bytes - made;
        bool full = room == 0;
        uint32_t before = state->avail_in;
        state->next_out = full ? &beyond : out + made;
        state->avail_out = full ? 1 : room < OUTPUT_STEP_BYTES ? (uint32_t)room : OUTPUT_STEP_BYTES;
        uint32_t offered = state->avail_out;
        int code = isal_inflate(state);
        uint32_t gained = offered - state->avail_out;
        if (code < 0 || (full && gained > 0))
            status = fail_content(zip, member, "its compressed bytes are damaged");
        else if (gained == 0 && state->avail_in == before &&
                 state->block_state != ISAL_BLOCK_FINISH)
            status = fail_content(zip, member, "it ends too early");
        if (!full) made += gained;
    }
    if (status == TRI_OK && made != member->size_bytes)
        status = fail_content(zip, member, "it ends too early");
    free(state);
    return status;
}

tri_status tri_zip_inflate(const tri_zip *zip, int fd, const tri_zip_member *member, void *out) {
    packed *from = malloc(sizeof *from);
    if (!from) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to read it", zip->path);
    *from = (packed){.fd = fd, .left = member->packed_bytes};
    tri_status status = tri_zip_locate(zip, fd, member, &from->offset);
    if (status == TRI_OK) status = inflate_all(zip, member, from, out);
    free(from);
    TRI_TRY(status);
    if (crc32_gzip_refl(0, out, (uint64_t)member->size_bytes) != member->crc32)
        return fail_content(zip, member, "wrong checksum");
    return TRI_OK;
}

tri_status tri_zip_verify(const tri_zip *zip, int fd, const tri_zip_member *member) {
    packed *from = malloc(sizeof *from);
    if (!from) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to read it", zip->path);
    *from = (packed){.fd = fd, .left = member->packed_bytes};
    uint32_t crc = 0, got;
    tri_status status = tri_zip_locate(zip, fd, member, &from->offset);
    while (status == TRI_OK && from->left > 0) {
        status = next_chunk(from, zip->path, &got);
        if (status == TRI_OK) crc = crc32_gzip_refl(crc, from->bytes, got);
    }
    free(from);
    TRI_TRY(status);
    return crc == member->crc32 ? TRI_OK : fail_content(zip, member, "wrong checksum");
}
