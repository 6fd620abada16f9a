// Opens and reads safetensors files. The header is checked completely, because files may come from
// anywhere. safetensors_write.c writes such files.
#include "format/safetensors.h"

#include "base/limits.h"
#include "base/os.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { COUNT_BYTES = 8 };

struct tri_safetensors {
    tri_arena *arena;
    const char *path;
    int fd;
    int64_t size_bytes, data_start;
    int count;
    tri_safetensors_entry *entries;        // sorted by offset
    const tri_safetensors_entry **by_name; // sorted by name
    int pair_count;
    tri_safetensors_pair *pairs;
};

const char *tri_safetensors_path(const tri_safetensors *file) { return file->path; }
int tri_safetensors_fd(const tri_safetensors *file) { return file->fd; }
int64_t tri_safetensors_size_bytes(const tri_safetensors *file) { return file->size_bytes; }
int tri_safetensors_count(const tri_safetensors *file) { return file->count; }

const tri_safetensors_entry *tri_safetensors_at(const tri_safetensors *file, int index) {
    TRI_ASSERT(index >= 0 && index < file->count);
    return &file->entries[index];
}

static int compare_name(const void *key, const void *item) {
    return strcmp(key, (*(const tri_safetensors_entry *const *)item)->name);
}

const tri_safetensors_entry *tri_safetensors_find(const tri_safetensors *file, const char *name) {
    if (file->count == 0) return NULL;
    const tri_safetensors_entry **found =
        bsearch(name, file->by_name, (size_t)file->count, sizeof *file->by_name, compare_name);
    return found ? *found : NULL;
}

const char *tri_safetensors_metadata(const tri_safetensors *file, const char *key) {
    for (int i = 0; i < file->pair_count; i++)
        if (strcmp(file->pairs[i].key, key) == 0) return file->pairs[i].value;
    return NULL;
}

tri_status tri_safetensors_read(const tri_safetensors *file, const tri_safetensors_entry *entry,
                                int64_t first, int64_t size_bytes, void *out) {
    TRI_ASSERT(first >= 0 && size_bytes >= 0 && first <= entry->size_bytes - size_bytes);
    tri_status status =
        tri_os_pread_all(file->fd, out, (size_t)size_bytes, entry->offset + first, file->path);
    return status == TRI_OK ? status : tri_status_context(status, "tensor '%s'", entry->name);
}

static tri_status parse_metadata(tri_safetensors *file, json_t *metadata) {
    if (!json_is_object(metadata))
        return TRI_FAIL(TRI_CORRUPT, "%s: __metadata__ of the header is not an object", file->path);
    file->pairs = TRI_NEW_ARRAY(file->arena, tri_safetensors_pair, json_object_size(metadata));
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value))
            return TRI_FAIL(TRI_CORRUPT, "%s: __metadata__ '%s' of the header is not a string",
                            file->path, key);
        file->pairs[file->pair_count++] = (tri_safetensors_pair){
            .key = tri_arena_strdup(file->arena, key),
            .value = tri_arena_strdup(file->arena, json_string_value(value)),
        };
    }
    return TRI_OK;
}

static tri_status parse_shape(const tri_safetensors *file, const char *name, json_t *shape,
                              tri_shape *out) {
    if (!json_is_array(shape))
        return TRI_FAIL(TRI_CORRUPT, "%s: tensor '%s' has no list 'shape'", file->path, name);
    if (json_array_size(shape) > TRI_MAX_RANK)
        return TRI_FAIL(TRI_UNSUPPORTED, "%s: tensor '%s' has %zu axes; at most %d are supported",
                        file->path, name, json_array_size(shape), TRI_MAX_RANK);
    *out = (tri_shape){.rank = (int)json_array_size(shape)};
    for (int i = 0; i < out->rank; i++) {
        json_t *dim = json_array_get(shape, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return TRI_FAIL(TRI_CORRUPT,
                            "%s: tensor '%s': a size of 'shape' is not a whole number >= 0",
                            file->path, name);
        out->dims[i] = json_integer_value(dim);
    }
    return TRI_OK;
}

// Computes the bytes of a tensor; -1: the number overflows. A shape with a dimension of 0 gives -1
// too if the product of the dimensions before the 0 overflows, because other programs would fail on
// such a tensor.
static int64_t bytes_of(const tri_shape *shape, tri_dtype dtype) {
    int64_t count = tri_shape_count(shape), bytes;
    if (count < 0 || __builtin_mul_overflow(count, (int64_t)tri_dtype_bytes(dtype), &bytes))
        return -1;
    return bytes;
}

static tri_status parse_entry(const tri_safetensors *file, const char *name, json_t *info,
                              tri_safetensors_entry *out) {
    if (!json_is_object(info))
        return TRI_FAIL(TRI_CORRUPT, "%s: tensor '%s' is not described by an object", file->path,
                        name);
    const char *dtype = json_string_value(json_object_get(info, "dtype"));
    if (!dtype)
        return TRI_FAIL(TRI_CORRUPT, "%s: tensor '%s' has no string 'dtype'", file->path, name);
    if (!tri_dtype_from_name(dtype, &out->dtype))
        return TRI_FAIL(TRI_UNSUPPORTED, "%s: tensor '%s' has dtype '%s', which is not supported",
                        file->path, name, dtype);
    TRI_TRY(parse_shape(file, name, json_object_get(info, "shape"), &out->shape));

    json_t *offsets = json_object_get(info, "data_offsets");
    json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return TRI_FAIL(TRI_CORRUPT, "%s: tensor '%s' has no 'data_offsets' of two whole numbers",
                        file->path, name);
    int64_t first = json_integer_value(begin), last = json_integer_value(end);
    if (first < 0 || last < first)
        return TRI_FAIL(TRI_CORRUPT, "%s: tensor '%s' has impossible data_offsets [%lld, %lld]",
                        file->path, name, (long long)first, (long long)last);
    int64_t size = bytes_of(&out->shape, out->dtype);
    if (size < 0)
        return TRI_FAIL(TRI_CORRUPT, "%s: tensor '%s': the product of its shape overflows",
                        file->path, name);
    if (size != last - first)
        return TRI_FAIL(TRI_CORRUPT,
                        "%s: tensor '%s' has %lld bytes by its data_offsets, but %lld by its shape",
                        file->path, name, (long long)(last - first), (long long)size);
    out->offset = first; // from the end of the header; check_offsets adds the header's length
    out->size_bytes = size;
    return TRI_OK;
}

static int compare_offset(const void *a, const void *b) {
    const tri_safetensors_entry *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->size_bytes != y->size_bytes) return x->size_bytes < y->size_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

// Checks that the tensors are contiguous from the end of the header to the file's end, as the
// format demands, because gaps and overlaps could hide data. Makes the tensors' offsets relative to
// the beginning of the file.
static tri_status check_offsets(tri_safetensors *file) {
    qsort(file->entries, (size_t)file->count, sizeof *file->entries, compare_offset);
    // `end`: where the tensors checked so far end, counted from the end of the header.
    int64_t end = 0, available = file->size_bytes - file->data_start;
    for (int i = 0; i < file->count; i++) {
        tri_safetensors_entry *entry = &file->entries[i];
        if (entry->offset < end)
            return TRI_FAIL(TRI_CORRUPT, "%s: tensor '%s' overlaps tensor '%s'", file->path,
                            entry->name, file->entries[i - 1].name);
        if (entry->offset > end)
            return TRI_FAIL(TRI_CORRUPT, "%s: a hole of %lld bytes in front of tensor '%s'",
                            file->path, (long long)(entry->offset - end), entry->name);
        end += entry->size_bytes;
        if (end > available)
            return TRI_FAIL(TRI_CORRUPT,
                            "%s: truncated: tensor '%s' ends %lld bytes past the end of the file",
                            file->path, entry->name, (long long)(end - available));
        entry->offset += file->data_start;
    }
    if (end < available)
        return TRI_FAIL(TRI_CORRUPT, "%s: %lld bytes too many after the last tensor", file->path,
                        (long long)(available - end));
    return TRI_OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp((*(const tri_safetensors_entry *const *)a)->name,
                  (*(const tri_safetensors_entry *const *)b)->name);
}

static void sort_by_name(tri_safetensors *file) {
    file->by_name = TRI_NEW_ARRAY(file->arena, const tri_safetensors_entry *, file->count);
    for (int i = 0; i < file->count; i++) file->by_name[i] = &file->entries[i];
    qsort(file->by_name, (size_t)file->count, sizeof *file->by_name, compare_names);
}

static tri_status parse_header(tri_safetensors *file, json_t *root) {
    if (!json_is_object(root))
        return TRI_FAIL(TRI_CORRUPT, "%s: the header is not a JSON object", file->path);
    if (json_object_size(root) > TRI_MAX_TENSORS)
        return TRI_FAIL(TRI_UNSUPPORTED, "%s: %zu tensors; at most %d are supported", file->path,
                        json_object_size(root), TRI_MAX_TENSORS);
    file->entries = TRI_NEW_ARRAY(file->arena, tri_safetensors_entry, json_object_size(root));
    const char *name;
    json_t *info;
    json_object_foreach(root, name, info) {
        if (strcmp(name, "__metadata__") == 0) {
            TRI_TRY(parse_metadata(file, info));
            continue;
        }
        tri_safetensors_entry *entry = &file->entries[file->count];
        TRI_TRY(parse_entry(file, name, info, entry));
        entry->name = tri_arena_strdup(file->arena, name);
        file->count++;
    }
    TRI_TRY(check_offsets(file));
    sort_by_name(file);
    return TRI_OK;
}

// Refuses what torch.save writes, by the first 8 bytes: a zip archive, or in older versions the
// pickle of a magic number.
static tri_status refuse_torch(const char *path, const void *head) {
    if (memcmp(head, "PK\3\4", 4) != 0 && memcmp(head, "\x80\x02\x8a\n", 4) != 0) return TRI_OK;
    const char *name = strrchr(path, '/'), *dot = strrchr(name ? name : path, '.');
    size_t length = dot ? (size_t)(dot - path) : strlen(path);
    char to[PATH_MAX];
    snprintf(to, sizeof to, "%.*s.safetensors", (int)length, path);
    return TRI_FAIL(TRI_CORRUPT,
                    "%s: is a file as torch.save writes, not a safetensors file; this line makes "
                    "one: " TRI_SAFETENSORS_OF_TORCH,
                    path, path, to);
}

static tri_status read_header(tri_safetensors *file) {
    struct stat info;
    if (fstat(file->fd, &info) < 0) return tri_os_fail("look at", file->path);
    if (!S_ISREG(info.st_mode)) return TRI_FAIL(TRI_BAD_INPUT, "%s: is not a file", file->path);
    file->size_bytes = info.st_size;
    if (info.st_size < COUNT_BYTES + 2)
        return TRI_FAIL(TRI_CORRUPT, "%s: %lld bytes are too few for a safetensors file",
                        file->path, (long long)info.st_size);
    uint64_t header_bytes;
    TRI_TRY(tri_os_pread_all(file->fd, &header_bytes, sizeof header_bytes, 0, file->path));
    TRI_TRY(refuse_torch(file->path, &header_bytes));
    header_bytes = le64toh(header_bytes);
    if (header_bytes > TRI_MAX_SAFETENSORS_HEADER)
        return TRI_FAIL(TRI_CORRUPT,
                        "%s: not a safetensors file: a header of %llu bytes (at most %d)",
                        file->path, (unsigned long long)header_bytes, TRI_MAX_SAFETENSORS_HEADER);
    if ((int64_t)header_bytes > info.st_size - COUNT_BYTES)
        return TRI_FAIL(TRI_CORRUPT, "%s: truncated: a header of %llu bytes in a file of %lld",
                        file->path, (unsigned long long)header_bytes, (long long)info.st_size);
    file->data_start = COUNT_BYTES + (int64_t)header_bytes;

    char *text = malloc(header_bytes + 1);
    if (!text) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for its header", file->path);
    tri_status status = tri_os_pread_all(file->fd, text, header_bytes, COUNT_BYTES, file->path);
    if (status == TRI_OK) {
        json_error_t error;
        json_t *root = json_loadb(text, header_bytes, JSON_REJECT_DUPLICATES, &error);
        if (root)
            status = parse_header(file, root);
        else if (json_error_code(&error) == json_error_duplicate_key)
            status =
                TRI_FAIL(TRI_CORRUPT, "%s: a name twice in the header: %s", file->path, error.text);
        else
            status = TRI_FAIL(TRI_CORRUPT, "%s: the header is not JSON: byte %d: %s", file->path,
                              error.position, error.text);
        json_decref(root);
    }
    free(text);
    return status;
}

tri_status tri_safetensors_open(const char *path, tri_safetensors **out) {
    *out = NULL;
    int fd;
    TRI_TRY(tri_os_open_input(path, &fd));
    tri_arena *arena = tri_arena_create(NULL, "safetensors");
    tri_safetensors *file = TRI_NEW(arena, tri_safetensors);
    file->arena = arena;
    file->path = tri_arena_strdup(arena, path);
    file->fd = fd;
    tri_status status = read_header(file);
    if (status == TRI_OK)
        *out = file;
    else
        tri_safetensors_close(file);
    return status;
}

tri_safetensors *tri_safetensors_adopt(const char *path, int fd,
                                       const tri_safetensors_entry *entries, int count) {
    struct stat info;
    tri_arena *arena = tri_arena_create(NULL, "tensors of another format");
    tri_safetensors *file = TRI_NEW(arena, tri_safetensors);
    *file = (tri_safetensors){.arena = arena, .path = tri_arena_strdup(arena, path), .fd = fd};
    if (fstat(fd, &info) == 0) file->size_bytes = info.st_size;
    file->count = count;
    file->entries = TRI_NEW_ARRAY(arena, tri_safetensors_entry, count);
    for (int i = 0; i < count; i++) {
        file->entries[i] = entries[i];
        file->entries[i].name = tri_arena_strdup(arena, entries[i].name);
    }
    sort_by_name(file);
    return file;
}

void tri_safetensors_close(tri_safetensors *file) {
    if (!file) return;
    tri_os.close(file->fd);
    tri_arena_destroy(file->arena);
}

bool tri_safetensors_probe(const char *path) {
    int fd = tri_os.open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return false;
    unsigned char head[64] = {0};
    ssize_t got = tri_os_pread_most(fd, head, sizeof head, 0);
    tri_os.close(fd);
    uint64_t header_bytes;
    memcpy(&header_bytes, head, sizeof header_bytes);
    if (got <= COUNT_BYTES || le64toh(header_bytes) > TRI_MAX_SAFETENSORS_HEADER) return false;
    size_t at = COUNT_BYTES;
    while (at < (size_t)got && strchr(" \t\r\n", head[at]) && head[at]) at++;
    return at < (size_t)got && head[at] == '{';
}
