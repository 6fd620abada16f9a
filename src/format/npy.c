// Opens and reads NumPy arrays: files (.npy) and members of archives (.npz). Read next:
// npy_header.c, zip.c.
#include "format/npy.h"

#include "base/limits.h"
#include "base/os.h"
#include "format/npy_header.h"
#include "format/zip.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

struct tri_npy {
    tri_arena *arena;
    const char *name;
    int fd;
    tri_zip zip;
    const tri_zip_member *member; // NULL unless the file is an archive
    tri_npy_header header;
    // Where the first element lies: in `memory` or, if `memory` is NULL, in the file.
    int64_t offset;
    uint8_t *memory;  // an unpacked member; NULL: elements are read from the file
    size_t width;     // bytes of an element
    bool is_verified; // the member's checksum was verified
};

const char *tri_npy_name(const tri_npy *array) { return array->name; }
tri_dtype tri_npy_dtype(const tri_npy *array) { return array->header.dtype; }
const tri_shape *tri_npy_shape(const tri_npy *array) { return &array->header.shape; }

static tri_status open_file(const char *path, int *fd, int64_t *bytes, bool *is_archive) {
    struct stat info;
    *bytes = 0;
    *is_archive = false;
    TRI_TRY(tri_os_open_input(path, fd));
    if (fstat(*fd, &info) < 0) return tri_os_fail("look at", path);
    if (!S_ISREG(info.st_mode)) return TRI_FAIL(TRI_BAD_INPUT, "%s: is not a file", path);
    char magic[4] = "";
    *bytes = info.st_size;
    if (info.st_size >= (off_t)sizeof magic)
        TRI_TRY(tri_os_pread_all(*fd, magic, sizeof magic, 0, path));
    *is_archive = !memcmp(magic, "PK\3\4", 4) || !memcmp(magic, "PK\5\6", 4);
    return TRI_OK;
}

// The length of a member's name without ".npy", because users leave that out.
static size_t bare(const char *name) {
    size_t length = strlen(name);
    return length > 4 && !strcmp(name + length - 4, ".npy") ? length - 4 : length;
}

static tri_status find_member(tri_npy *array, const char *path, const char *member) {
    const tri_zip *zip = &array->zip;
    TRI_TRY(tri_zip_open(array->arena, array->fd, path, &array->zip));
    if (!member && zip->count != 1)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: holds %d arrays: name one as %s:NAME", path, zip->count,
                        path);
    for (int i = 0; i < zip->count && !array->member; i++) {
        const char *name = zip->members[i].name;
        size_t length = bare(name);
        if (!member || !strcmp(name, member) ||
            (strlen(member) == length && !strncmp(name, member, length)))
            array->member = &zip->members[i];
    }
    if (array->member) return TRI_OK;
    const char *list = "";
    for (int i = 0; i < zip->count && i < 8; i++)
        list = tri_arena_printf(array->arena, "%s%s%.*s", list, i ? ", " : "",
                                (int)bare(zip->members[i].name), zip->members[i].name);
    return TRI_FAIL(TRI_BAD_INPUT, "%s: has no array '%s'; it has %s", path, member, list);
}

static tri_status unpack(tri_npy *array) {
    int64_t bytes = array->member->size_bytes;
    array->memory = malloc((size_t)bytes + 1);
    if (!array->memory)
        return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for its %lld bytes", array->name,
                        (long long)bytes);
    return tri_zip_inflate(&array->zip, array->fd, array->member, array->memory);
}

// Reads the header of the array: `bytes` bytes from array->offset on, in `memory` or, if that is
// NULL, in the file.
static tri_status read_header(tri_npy *array, int64_t bytes) {
    uint8_t *head = array->memory, *copy = NULL;
    size_t size = bytes < TRI_NPY_HEADER_BYTES ? (size_t)bytes : TRI_NPY_HEADER_BYTES;
    tri_status status = TRI_OK;
    if (!head) {
        head = copy = malloc(size + 1);
        if (!head) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to read it", array->name);
        status = tri_os_pread_all(array->fd, head, size, array->offset, array->name);
    }
    if (status == TRI_OK) status = tri_npy_header_read(head, size, array->name, &array->header);
    free(copy);
    TRI_TRY(status);
    array->width = tri_dtype_bytes(array->header.dtype);
    int64_t wanted;
    if (__builtin_mul_overflow(tri_shape_count(&array->header.shape), (int64_t)array->width,
                               &wanted))
        return TRI_FAIL(TRI_CORRUPT, "%s: the product of its sizes overflows", array->name);
    int64_t available = bytes - array->header.header_bytes;
    array->offset += array->header.header_bytes;
    if (available == wanted) return TRI_OK;
    return TRI_FAIL(TRI_CORRUPT, "%s: %s: its shape asks for %lld bytes, and %lld follow",
                    array->name, available < wanted ? "truncated" : "bytes too many",
                    (long long)wanted, (long long)available);
}

static tri_status open_array(tri_npy *array, const char *path, const char *member) {
    int64_t bytes;
    bool is_archive;
    array->name = tri_arena_strdup(array->arena, path);
    TRI_TRY(open_file(path, &array->fd, &bytes, &is_archive));
    if (!is_archive && member)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: is not an archive, so it has no array '%s'", path,
                        member);
    if (!is_archive) return read_header(array, bytes);
    TRI_TRY(find_member(array, path, member));
    array->name = tri_arena_printf(array->arena, "%s:%.*s", path, (int)bare(array->member->name),
                                   array->member->name);
    if (array->member->deflated)
        TRI_TRY(unpack(array));
    else
        TRI_TRY(tri_zip_locate(&array->zip, array->fd, array->member, &array->offset));
    array->is_verified = array->member->size_bytes <= TRI_MAX_VERIFIED_BYTES;
    if (array->is_verified && !array->member->deflated)
        TRI_TRY(tri_zip_verify(&array->zip, array->fd, array->member));
    return read_header(array, array->member->size_bytes);
}

tri_status tri_npy_open(const char *path, const char *member, tri_npy **out) {
    *out = NULL;
    tri_arena *arena = tri_arena_create(NULL, "npy");
    tri_npy *array = TRI_NEW(arena, tri_npy);
    *array = (tri_npy){.arena = arena, .fd = -1};
    tri_status status = open_array(array, path, member);
    if (status == TRI_OK)
        *out = array;
    else
        tri_npy_close(array);
    return status;
}

void tri_npy_close(tri_npy *array) {
    if (!array) return;
    if (array->fd >= 0) tri_os.close(array->fd);
    free(array->memory);
    tri_arena_destroy(array->arena);
}

tri_status tri_npy_list(tri_arena *arena, const char *path, const char *const **names, int *count) {
    int fd;
    int64_t bytes;
    bool is_archive;
    tri_zip zip = {0};
    *count = 0;
    tri_status status = open_file(path, &fd, &bytes, &is_archive);
    if (status == TRI_OK && is_archive) status = tri_zip_open(arena, fd, path, &zip);
    if (fd >= 0) tri_os.close(fd);
    TRI_TRY(status);
    const char **list = TRI_NEW_ARRAY(arena, const char *, zip.count + 1);
    for (; *count < zip.count; ++*count)
        list[*count] = tri_arena_printf(arena, "%.*s", (int)bare(zip.members[*count].name),
                                        zip.members[*count].name);
    *names = list;
    return TRI_OK;
}

static void swap(uint8_t *at, int64_t count, size_t width) {
    for (uint8_t *end = at + (size_t)count * width; at < end; at += width)
        for (size_t i = 0; i < width / 2; i++) {
            uint8_t byte = at[i];
            at[i] = at[width - 1 - i];
            at[width - 1 - i] = byte;
        }
}

tri_status tri_npy_read(const tri_npy *array, int64_t first, int64_t count, void *out) {
    int64_t width = (int64_t)array->width, total = tri_shape_count(&array->header.shape);
    TRI_ASSERT(first >= 0 && count >= 0 && first <= total - count);
    int64_t at = array->offset + first * width;
    if (array->memory)
        memcpy(out, array->memory + at, (size_t)(count * width));
    else
        TRI_TRY(tri_os_pread_all(array->fd, out, (size_t)(count * width), at, array->name));
    if (array->header.is_swapped) swap(out, count, array->width);
    return TRI_OK;
}

tri_status tri_npy_verify(const tri_npy *array) {
    if (!array->member || array->member->deflated || array->is_verified) return TRI_OK;
    return tri_zip_verify(&array->zip, array->fd, array->member);
}
