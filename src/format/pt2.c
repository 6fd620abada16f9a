// Opens a .pt2 file: the archive's members, its versions, and where weights and constants lie.
#include "format/pt2.h"

#include "base/limits.h"
#include "base/os.h"
#include "format/zip.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// An archive that is being opened.
typedef struct archive {
    tri_arena *arena;
    int fd;
    tri_zip zip;
    tri_index members; // by name, without the folder that is the network's name
} archive;

static tri_status fail_damaged(const archive *a, const char *what) {
    return TRI_FAIL(TRI_CORRUPT, "%s: %s", a->zip.path, what);
}

static tri_status open_archive(tri_arena *arena, const char *path, archive *a) {
    *a = (archive){.arena = arena, .fd = -1};
    char begin[2];
    TRI_TRY(tri_os_open_input(path, &a->fd));
    ssize_t got = tri_os_pread_most(a->fd, begin, sizeof begin, 0);
    if (got < 0) return tri_os_fail("read", path);
    if (got < 2 || memcmp(begin, "PK", 2) != 0)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: is no network that torch.export.save wrote: no zip",
                        path);
    TRI_TRY(tri_zip_open(arena, a->fd, path, &a->zip));
    for (int i = 0; i < a->zip.count; i++) {
        const char *name = a->zip.members[i].name, *slash = strchr(name, '/');
        name = slash ? slash + 1 : name;
        tri_index_put(arena, &a->members, name, strlen(name), i);
    }
    return TRI_OK;
}

static void close_archive(archive *a) {
    if (a->fd >= 0) close(a->fd);
}

static const tri_zip_member *member_of(const archive *a, const char *name) {
    int found = tri_index_find(&a->members, name, strlen(name));
    return found == TRI_NOT_IN_INDEX ? NULL : &a->zip.members[found];
}

// Reads a member as text; *out is malloc'ed.
static tri_status read_member(const archive *a, const char *name, char **out, size_t *size) {
    const tri_zip_member *member = member_of(a, name);
    int64_t offset;
    *out = NULL;
    if (!member)
        return TRI_FAIL(TRI_CORRUPT, "%s: is no network that torch.export.save wrote: it has no %s",
                        a->zip.path, name);
    if (member->size_bytes > TRI_MAX_PT2_GRAPH)
        return TRI_FAIL(TRI_UNSUPPORTED, "%s: its %s has %lld bytes; at most %d are supported",
                        a->zip.path, name, (long long)member->size_bytes, TRI_MAX_PT2_GRAPH);
    *size = (size_t)member->size_bytes;
    TRI_TRY(tri_zip_locate(&a->zip, a->fd, member, &offset));
    if (!member->deflated) TRI_TRY(tri_zip_verify(&a->zip, a->fd, member));
    char *text = malloc(*size + 1);
    if (!text) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory to read it", a->zip.path);
    tri_status status = member->deflated
                            ? tri_zip_inflate(&a->zip, a->fd, member, text)
                            : tri_os_pread_all(a->fd, text, *size, offset, a->zip.path);
    text[*size] = 0;
    if (status == TRI_OK) *out = text;
    if (status != TRI_OK) free(text);
    return status;
}

bool tri_pt2_is_complex(int64_t type) {
    return type >= TRI_PT2_COMPLEX_HALF && type <= TRI_PT2_COMPLEX_DOUBLE;
}

static bool dtype_of(int64_t number, tri_dtype *out) {
    static const struct {
        int number;
        tri_dtype dtype;
    } rows[] = {{TRI_PT2_BYTE, TRI_U8},      {TRI_PT2_CHAR, TRI_I8},    {TRI_PT2_SHORT, TRI_I16},
                {TRI_PT2_INT32, TRI_I32},    {TRI_PT2_LONG, TRI_I64},   {TRI_PT2_HALF, TRI_F16},
                {TRI_PT2_FLOAT32, TRI_F32},  {TRI_PT2_DOUBLE, TRI_F64}, {TRI_PT2_BOOLEAN, TRI_BOOL},
                {TRI_PT2_BFLOAT16, TRI_BF16}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].number == number) {
            *out = rows[i].dtype;
            return true;
        }
    return false;
}

// Reads [{"as_int": 3}, …] or [3, …] into `out`; returns how many there are; -1: it is no such
// list.
static int read_sizes(const json_t *list, int64_t out[TRI_MAX_RANK]) {
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count > TRI_MAX_RANK) return -1;
    for (size_t i = 0; i < count; i++) {
        json_t *item = json_array_get(list, i);
        if (json_is_object(item)) item = json_object_get(item, "as_int");
        if (!json_is_integer(item)) return -1;
        out[i] = json_integer_value(item);
        if (out[i] < 0) return -1;
    }
    return (int)count;
}

static bool is_row_major(const tri_shape *shape, const int64_t *strides) {
    int64_t step = 1;
    for (int i = shape->rank - 1; i >= 0; i--) {
        if (shape->dims[i] != 1 && strides[i] != step) return false;
        step *= shape->dims[i];
    }
    return true;
}

// Whether all elements lie among the `available` ones.
static bool fits(const tri_shape *shape, const int64_t *strides, int64_t first, int64_t available) {
    int64_t last = first, reach;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dims[i] == 0) return true;
        if (__builtin_mul_overflow(shape->dims[i] - 1, strides[i], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return false;
    }
    return last < available;
}

// Describes one tensor of a list of weights or constants by its entry in the list.
static tri_status read_tensor(const archive *a, const char *folder, const char *name,
                              const json_t *entry, tri_pt2_tensor *out) {
    const json_t *meta = json_object_get(entry, "tensor_meta");
    const char *file = json_string_value(json_object_get(entry, "path_name"));
    int64_t first, bytes;
    tri_shape shape = {.rank = read_sizes(json_object_get(meta, "sizes"), shape.dims)};
    const json_t *start = json_object_get(meta, "storage_offset");
    if (json_is_object(start)) start = json_object_get(start, "as_int");
    first = json_is_integer(start) ? json_integer_value(start) : 0;
    const char *path = tri_arena_printf(a->arena, "data/%s/%s", folder, file ? file : "");
    const tri_zip_member *member = file ? member_of(a, path) : NULL;
    if (json_is_true(json_object_get(entry, "use_pickle")))
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "%s: '%s' is stored as a pickle, which is not read: save the network with "
                        "PyTorch 2.9 or later",
                        a->zip.path, name);
    if (shape.rank < 0 || !member || first < 0 ||
        read_sizes(json_object_get(meta, "strides"), out->strides) != shape.rank)
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "%s: '%s' has more than %d axes, sizes that are not fixed, or no bytes in "
                        "the file",
                        a->zip.path, name, TRI_MAX_RANK);
    int64_t type = json_integer_value(json_object_get(meta, "dtype"));
    if (!dtype_of(type, &out->entry.dtype))
        return TRI_FAIL(TRI_UNSUPPORTED, "%s: '%s' has %s", a->zip.path, name,
                        tri_pt2_is_complex(type)
                            ? "complex numbers, which are not supported: let the network keep two "
                              "tensors, such as cosines and sines"
                            : "a type that is not supported");
    int64_t count = tri_shape_count(&shape), unit = (int64_t)tri_dtype_bytes(out->entry.dtype);
    int64_t offset;
    if (count < 0 || __builtin_mul_overflow(count, unit, &bytes) ||
        !fits(&shape, out->strides, first, member->size_bytes / unit))
        return TRI_FAIL(TRI_CORRUPT, "%s: '%s' is larger than its bytes in the file", a->zip.path,
                        name);
    TRI_TRY(tri_zip_locate(&a->zip, a->fd, member, &offset));
    out->is_indirect = member->deflated || !is_row_major(&shape, out->strides);
    out->is_frozen = json_is_true(json_object_get(entry, "is_param")) &&
                     json_is_false(json_object_get(meta, "requires_grad"));
    out->member = *member;
    out->first = first;
    out->entry.name = tri_arena_strdup(a->arena, name);
    out->entry.shape = shape;
    out->entry.offset = offset + first * unit;
    out->entry.size_bytes = bytes;
    return TRI_OK;
}

// What two tensors have in common that are tied: PyTorch stores a tied weight once, under all its
// names.
static const char *place_of(tri_arena *arena, const tri_pt2_tensor *t) {
    char text[160];
    const char *place =
        tri_arena_printf(arena, "%s %lld %s", t->member.name, (long long)t->entry.offset,
                         tri_shape_text(&t->entry.shape, text, sizeof text));
    for (int i = 0; i < t->entry.shape.rank; i++)
        place = tri_arena_printf(arena, "%s %lld", place, (long long)t->strides[i]);
    return place;
}

// Finds which tensors are tied, and lists all names.
static void find_twins(tri_arena *arena, tri_pt2 *out) {
    tri_index known = {0};
    for (int i = 0; i < out->tensor_count; i++) {
        tri_pt2_tensor *t = &out->tensors[i];
        if (tri_pt2_find(out, t->entry.name) == NULL)
            tri_index_put(arena, &out->names, t->entry.name, strlen(t->entry.name), i);
        if (t->entry.size_bytes == 0) continue;
        const char *place = place_of(arena, t);
        int found = tri_index_find(&known, place, strlen(place));
        if (found == TRI_NOT_IN_INDEX) {
            tri_index_put(arena, &known, place, strlen(place), i);
            continue;
        }
        t->twin = out->tensors[found].entry.name;
        if (!out->tensors[found].alias) out->tensors[found].alias = t->entry.name;
    }
}

// Adds the tensors of data/<folder>/<list>.
static tri_status read_list(const archive *a, const char *folder, const char *list, bool is_weight,
                            tri_pt2 *out, int *capacity) {
    char *text;
    size_t size;
    json_error_t error;
    const char *name;
    json_t *entry;
    TRI_TRY(read_member(a, tri_arena_printf(a->arena, "data/%s/%s", folder, list), &text, &size));
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error),
           *config = json_object_get(root, "config");
    free(text);
    tri_status status = json_is_object(config) ? TRI_OK : fail_damaged(a, "its list of tensors");
    json_object_foreach(config, name, entry) {
        tri_pt2_tensor tensor = {.is_weight = is_weight};
        if (status == TRI_OK && out->tensor_count == TRI_MAX_TENSORS)
            status =
                TRI_FAIL(TRI_UNSUPPORTED, "%s: more than %d tensors", a->zip.path, TRI_MAX_TENSORS);
        // Constants that are no tensors, such as None, have no place and are read by no node.
        bool is_tensor = json_is_object(json_object_get(entry, "tensor_meta"));
        if (status != TRI_OK || (!is_tensor && !is_weight)) continue;
        status = read_tensor(a, folder, name, entry, &tensor);
        if (status == TRI_OK)
            TRI_PUSH(a->arena, out->tensors, out->tensor_count, *capacity) = tensor;
    }
    json_decref(root);
    return status;
}

// PyTorch before 2.9 writes other archives, or pickled weights.
static tri_status check_version(const archive *a) {
    if (member_of(a, "data/weights/model_weights_config.json")) return TRI_OK;
    bool is_old =
        member_of(a, "archive_format") || member_of(a, "serialized_exported_program.json");
    for (int i = 0; i < a->zip.count && !is_old; i++)
        is_old = strstr(a->zip.members[i].name, "serialized_exported_program") != NULL;
    if (is_old)
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "%s: was saved by a PyTorch whose weights are a pickle, which is not read: "
                        "save it with 2.9 or later",
                        a->zip.path);
    if (member_of(a, "data.pkl"))
        return TRI_FAIL(TRI_UNSUPPORTED,
                        "%s: was written by torch.save, and has no graph: export the network with "
                        "torch.export.export and torch.export.save",
                        a->zip.path);
    return TRI_FAIL(TRI_CORRUPT, "%s: is no network that torch.export.save wrote", a->zip.path);
}

static tri_status check_byte_order(const archive *a) {
    char *text = NULL;
    size_t size;
    TRI_TRY(read_member(a, "byteorder", &text, &size));
    bool is_little = !strncmp(text, "little", 6);
    free(text);
    return is_little ? TRI_OK
                     : TRI_FAIL(TRI_UNSUPPORTED, "%s: its bytes are big-endian", a->zip.path);
}

static tri_status read_archive(const archive *a, tri_pt2 *out) {
    char *text;
    size_t size;
    int capacity = 0;
    TRI_TRY(check_version(a));
    TRI_TRY(check_byte_order(a));
    out->zip = a->zip;
    TRI_TRY(read_member(a, "models/model.json", &text, &size));
    tri_status status = tri_pt2_parse_graph(a->arena, text, size, out);
    free(text);
    TRI_TRY(status);
    TRI_TRY(read_list(a, "weights", "model_weights_config.json", true, out, &capacity));
    TRI_TRY(read_list(a, "constants", "model_constants_config.json", false, out, &capacity));
    find_twins(a->arena, out);
    return TRI_OK;
}

tri_status tri_pt2_open(tri_arena *arena, const char *path, tri_pt2 *out) {
    archive a;
    *out = (tri_pt2){.path = tri_arena_strdup(arena, path)};
    tri_status status = open_archive(arena, out->path, &a);
    if (status == TRI_OK) status = read_archive(&a, out);
    close_archive(&a);
    return status;
}

bool tri_pt2_probe(const char *path) {
    archive a;
    tri_arena *arena = tri_arena_create(NULL, "probe of pt2");
    bool is_one = open_archive(arena, path, &a) == TRI_OK && member_of(&a, "models/model.json");
    close_archive(&a);
    tri_arena_destroy(arena);
    return is_one;
}

const tri_pt2_tensor *tri_pt2_find(const tri_pt2 *file, const char *name) {
    int found = tri_index_find(&file->names, name, strlen(name));
    return found == TRI_NOT_IN_INDEX ? NULL : &file->tensors[found];
}

// Copies the elements of a tensor out of all that its member has, row by row.
static void copy_rows(const tri_pt2_tensor *t, const char *from, char *to) {
    const tri_shape *shape = &t->entry.shape;
    size_t unit = tri_dtype_bytes(t->entry.dtype);
    int64_t index[TRI_MAX_RANK] = {0}, count = tri_shape_count(shape);
    for (int64_t n = 0; n < count; n++, to += unit) {
        int64_t at = t->first;
        for (int i = 0; i < shape->rank; i++) at += index[i] * t->strides[i];
        memcpy(to, from + (size_t)at * unit, unit);
        for (int i = shape->rank - 1; i >= 0 && ++index[i] == shape->dims[i]; i--) index[i] = 0;
    }
}

static tri_status read_indirect(const tri_pt2 *file, const tri_pt2_tensor *t, int fd, void *out) {
    char *all = malloc((size_t)t->member.size_bytes + 1);
    if (!all) return TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for '%s'", file->path, t->entry.name);
    int64_t begin = t->entry.offset - t->first * (int64_t)tri_dtype_bytes(t->entry.dtype);
    tri_status status = t->member.deflated ? tri_zip_inflate(&file->zip, fd, &t->member, all)
                                           : tri_os_pread_all(fd, all, (size_t)t->member.size_bytes,
                                                              begin, file->path);
    if (status == TRI_OK) copy_rows(t, all, out);
    free(all);
    return status;
}

static tri_status read_from(const tri_pt2 *file, const tri_pt2_tensor *t, int fd, void *out) {
    if (t->is_indirect) return read_indirect(file, t, fd, out);
    return tri_os_pread_all(fd, out, (size_t)t->entry.size_bytes, t->entry.offset, file->path);
}

tri_status tri_pt2_read(const tri_pt2 *file, const tri_pt2_tensor *tensor, void *out) {
    int fd;
    TRI_TRY(tri_os_open_input(file->path, &fd));
    tri_status status = read_from(file, tensor, fd, out);
    close(fd);
    return status;
}

// Writes the tensors one after the other into memory that is read as a file.
static tri_status unpack(const tri_pt2 *file, int fd, int memory, tri_safetensors_entry *entries,
                         const tri_pt2_tensor *const *tensors, int count) {
    int64_t offset = 0;
    tri_status status = TRI_OK;
    for (int i = 0; i < count && status == TRI_OK; i++) {
        size_t size = (size_t)entries[i].size_bytes;
        void *bytes = malloc(size + 1);
        status =
            bytes ? read_from(file, tensors[i], fd, bytes)
                  : TRI_FAIL(TRI_NO_MEMORY, "%s: no memory for '%s'", file->path, entries[i].name);
        if (status == TRI_OK) status = tri_os_pwrite_all(memory, bytes, size, offset, file->path);
        free(bytes);
        entries[i].offset = offset;
        offset += (int64_t)size;
    }
    return status;
}

tri_status tri_pt2_open_weights(const tri_pt2 *file, tri_safetensors **out) {
    int fd, memory = -1, count = 0;
    bool is_indirect = false;
    TRI_TRY(tri_os_open_input(file->path, &fd));
    tri_arena *arena = tri_arena_create(NULL, "weights of a network");
    tri_safetensors_entry *entries =
        TRI_NEW_ARRAY(arena, tri_safetensors_entry, file->tensor_count);
    const tri_pt2_tensor **tensors =
        TRI_NEW_ARRAY(arena, const tri_pt2_tensor *, file->tensor_count);
    for (int i = 0; i < file->tensor_count; i++) {
        const tri_pt2_tensor *t = &file->tensors[i];
        if (!t->is_weight || t->twin) continue;
        is_indirect = is_indirect || t->is_indirect;
        entries[count] = t->entry;
        tensors[count++] = t;
    }
    tri_status status = TRI_OK;
    if (is_indirect) {
        memory = memfd_create("weights", MFD_CLOEXEC);
        status = memory < 0 ? tri_os_fail("unpack", file->path)
                            : unpack(file, fd, memory, entries, tensors, count);
        close(fd);
    }
    if (status == TRI_OK)
        *out = tri_safetensors_adopt(file->path, is_indirect ? memory : fd, entries, count);
    else if (memory >= 0)
        close(memory);
    tri_arena_destroy(arena);
    return status;
}
