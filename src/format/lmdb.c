// Walks the tree of an LMDB database: lmdb.h tells why without the library. The layout of pages is
// that of mdb.c, "MDB_page", "MDB_node" and "MDB_meta".
#include "format/lmdb.h"

#include "base/little_endian.h"
#include "base/os.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAGE_HEADER = 16,
    NODE_HEADER = 8,
    IS_BRANCH = 0x01,
    IS_LEAF = 0x02,
    IS_OVERFLOW = 0x04,
    KINDS = 0x07, // of pages
    VALUE_ELSEWHERE = 0x01,
    VALUE_IS_TREE = 0x06, // a database, or several values of one key
    META_BYTES = PAGE_HEADER + 136,
    MOST_DEPTH = 32,
    LEAST_PAGE = 256,
    MOST_PAGE = 1 << 16,
};
static const uint32_t MAGIC = 0xbeefc0de;
static const uint64_t NO_PAGE = UINT64_MAX;

// What a meta page says.
typedef struct meta {
    uint32_t page_bytes;
    uint16_t flags; // of the main database
    uint64_t root, last_page, transaction;
} meta;

typedef struct walk {
    int fd;
    const char *path;
    int64_t file_bytes;
    meta meta;
    uint64_t pages_read; // a tree has no page twice
    uint8_t *pages;      // one for each depth
    tri_status (*visit)(void *context, const tri_lmdb_entry *entry);
    void *context;
} walk;

static tri_status fail(const walk *w, const char *why) {
    return TRI_FAIL(TRI_CORRUPT, "%s: %s", w->path, why);
}

// Reads a meta page, which begins with its header: magic, version, two numbers of the map, then the
// records of two trees (free pages, and the main database), the last page and the transaction.
static bool read_meta(const walk *w, int64_t offset, meta *out) {
    uint8_t bytes[META_BYTES];
    if (offset + META_BYTES > w->file_bytes ||
        tri_os_pread_all(w->fd, bytes, sizeof bytes, offset, w->path) != TRI_OK)
        return false;
    const uint8_t *at = bytes + PAGE_HEADER, *free_pages = at + 24, *entries = at + 72;
    if (tri_le32(at) != MAGIC || tri_le32(at + 4) != 1) return false;
    *out = (meta){.page_bytes = tri_le32(free_pages),
                  .flags = tri_le16(entries + 4),
                  .root = tri_le64(entries + 40),
                  .last_page = tri_le64(at + 120),
                  .transaction = tri_le64(at + 128)};
    return out->page_bytes >= LEAST_PAGE && out->page_bytes <= MOST_PAGE;
}

static tri_status find_meta(walk *w) {
    meta other;
    if (!read_meta(w, 0, &w->meta)) return fail(w, "is no LMDB database (data.mdb of LMDB 0.9)");
    if (!read_meta(w, w->meta.page_bytes, &other)) return fail(w, "its second page is damaged");
    if (other.page_bytes != w->meta.page_bytes) return fail(w, "its pages have two sizes");
    if (other.transaction > w->meta.transaction) w->meta = other;
    if (w->meta.last_page >= (uint64_t)w->file_bytes / w->meta.page_bytes)
        return fail(w, "is cut off");
    if (w->meta.flags == 0) return TRI_OK;
    return TRI_FAIL(TRI_UNSUPPORTED,
                    "%s: its keys are in another order than that of their bytes, or have several "
                    "values",
                    w->path);
}

static tri_status read_page(walk *w, uint64_t number, uint8_t *page) {
    if (number > w->meta.last_page || w->pages_read++ > w->meta.last_page)
        return fail(w, "a page is damaged");
    TRI_TRY(tri_os_pread_all(w->fd, page, w->meta.page_bytes,
                             (int64_t)(number * w->meta.page_bytes), w->path));
    uint16_t lower = tri_le16(page + 12), upper = tri_le16(page + 14);
    uint32_t size = w->meta.page_bytes;
    if (tri_le64(page) != number || lower < PAGE_HEADER || lower > upper || upper > size)
        return fail(w, "a page is damaged");
    return TRI_OK;
}

// Finds where a value lies that has pages of its own.
static tri_status find_elsewhere(const walk *w, uint64_t number, tri_lmdb_entry *entry) {
    uint8_t header[PAGE_HEADER];
    if (number > w->meta.last_page) return fail(w, "a value's page is damaged");
    entry->offset = (int64_t)(number * w->meta.page_bytes);
    TRI_TRY(tri_os_pread_all(w->fd, header, sizeof header, entry->offset, w->path));
    entry->offset += PAGE_HEADER;
    bool is_whole = tri_le64(header) == number && (tri_le16(header + 10) & KINDS) == IS_OVERFLOW &&
                    entry->size <= w->file_bytes - entry->offset;
    return is_whole ? TRI_OK : fail(w, "a value's page is damaged");
}

static tri_status visit_leaf(const walk *w, const uint8_t *page, int64_t page_offset,
                             const uint8_t *node) {
    int64_t at = node - page, room = (int64_t)w->meta.page_bytes - at - NODE_HEADER;
    uint16_t flags = tri_le16(node + 4), key_bytes = tri_le16(node + 6);
    tri_lmdb_entry entry = {.key = (const char *)node + NODE_HEADER,
                            .key_bytes = key_bytes,
                            .offset = page_offset + at + NODE_HEADER + key_bytes,
                            .size = (int64_t)tri_le16(node) | (int64_t)tri_le16(node + 2) << 16};
    int64_t inside = flags & VALUE_ELSEWHERE ? (int64_t)sizeof(uint64_t) : entry.size;
    if (key_bytes + inside > room) return fail(w, "an entry is damaged");
    if (flags & VALUE_IS_TREE)
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "%s: has named databases, or several values for one key, which are not "
                        "read",
                        w->path);
    if (flags & VALUE_ELSEWHERE)
        TRI_TRY(find_elsewhere(w, tri_le64(node + NODE_HEADER + key_bytes), &entry));
    return w->visit(w->context, &entry);
}

static tri_status visit_page(walk *w, uint64_t number, int depth) {
    uint8_t *page = w->pages + (size_t)depth * w->meta.page_bytes;
    if (depth == MOST_DEPTH) return fail(w, "a page is damaged");
    TRI_TRY(read_page(w, number, page));
    int kind = tri_le16(page + 10) & KINDS, count = (tri_le16(page + 12) - PAGE_HEADER) / 2;
    if (kind != IS_BRANCH && kind != IS_LEAF) return fail(w, "a page is damaged");
    for (int i = 0; i < count; i++) {
        uint32_t at = tri_le16(page + PAGE_HEADER + 2 * i);
        if (at < PAGE_HEADER || at + NODE_HEADER > w->meta.page_bytes)
            return fail(w, "an entry is damaged");
        const uint8_t *node = page + at;
        if (kind == IS_LEAF)
            TRI_TRY(visit_leaf(w, page, (int64_t)(number * w->meta.page_bytes), node));
        else
            TRI_TRY(visit_page(w,
                               tri_le16(node) | (uint64_t)tri_le16(node + 2) << 16 |
                                   (uint64_t)tri_le16(node + 4) << 32,
                               depth + 1));
    }
    return TRI_OK;
}

tri_status tri_lmdb_list(int fd, const char *path,
                         tri_status (*visit)(void *context, const tri_lmdb_entry *entry),
                         void *context) {
    struct stat info;
    walk w = {.fd = fd, .path = path, .visit = visit, .context = context};
    if (fstat(fd, &info) < 0) return tri_os_fail("look at", path);
    w.file_bytes = info.st_size;
    TRI_TRY(find_meta(&w));
    if (w.meta.root == NO_PAGE) return TRI_OK; // an empty database
    w.pages = malloc((size_t)MOST_DEPTH * w.meta.page_bytes);
    if (!w.pages) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to read it", path);
    tri_status status = visit_page(&w, w.meta.root, 0);
    free(w.pages);
    return status;
}
