// The module `hdf5`: reads arrays (data sets, in HDF5's words) by libhdf5.
#include "base/module.h"
#include "format/hdf5/hdf5.h"
#include "format/hdf5/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// More than what HDF5 writes of a file, or of an array, beside the numbers.
enum { NOTES_BYTES = 2048 };

struct tri_hdf5_array {
    hid_t file, array, memory_type;
    int rank;
    hsize_t dims[TRI_MAX_RANK];
};

// Settings of the library by its variables, which it reads at its first call, because they alone
// reach the files behind links and of virtual arrays, too. What the user sets stays. Locks: it asks
// for one on each file, also one that is only read, and fails where the file system has none; data
// that nobody writes need none. Prefix: it looks for raw data in files of their own in the working
// directory, where another file may have that name, and not beside the array's file.
__attribute__((constructor)) static void set_variables(void) {
    (void)setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0);
    (void)setenv("HDF5_EXTFILE_PREFIX", "${ORIGIN}", 0);
}

// Keeps the message of the innermost failure, which says most.
static herr_t innermost(unsigned depth, const H5E_error2_t *error, void *why) {
    if (depth == 0 && error->desc) snprintf(why, TRI_HDF5_WHY_BYTES, "%s", error->desc);
    return 0;
}

static tri_status fail(tri_status status, char *why, const char *otherwise) {
    snprintf(why, TRI_HDF5_WHY_BYTES, "%s", otherwise);
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, why);
    return status;
}

static tri_status refuse(char *why, const char *text) {
    snprintf(why, TRI_HDF5_WHY_BYTES, "%s", text);
    return TRI_BAD_INPUT;
}

// Whether the type is the one in which h5py stores NumPy's bool.
static bool is_bool(hid_t type) {
    int8_t no = -1, yes = -1;
    return H5Tget_size(type) == 1 && H5Tget_nmembers(type) == 2 &&
           H5Tenum_valueof(type, "FALSE", &no) >= 0 && H5Tenum_valueof(type, "TRUE", &yes) >= 0 &&
           no == 0 && yes == 1;
}

// The type as elements are read into memory: whole numbers and floats, whatever the order of their
// bytes in the file; names of numbers as the numbers. H5I_INVALID_HID: others.
static hid_t memory_type(hid_t type, tri_dtype *dtype) {
    H5T_class_t class = H5Tget_class(type);
    if (class == H5T_ENUM && is_bool(type)) {
        *dtype = TRI_BOOL;
        return H5Tcopy(type);
    }
    if (class == H5T_ENUM) {
        hid_t base = H5Tget_super(type), read_as = memory_type(base, dtype);
        H5Tclose(base);
        return read_as;
    }
    size_t bytes = H5Tget_size(type);
    bool is_signed = class == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2;
    const struct {
        H5T_class_t class;
        size_t bytes;
        bool is_signed;
        hid_t type;
        tri_dtype dtype;
    } rows[] = {
        {H5T_FLOAT, 4, false, H5T_NATIVE_FLOAT, TRI_F32},
        {H5T_FLOAT, 8, false, H5T_NATIVE_DOUBLE, TRI_F64},
        {H5T_FLOAT, 2, false, H5T_NATIVE_FLOAT, TRI_F32}, // widened by the library
        {H5T_INTEGER, 1, false, H5T_NATIVE_UINT8, TRI_U8},
        {H5T_INTEGER, 2, false, H5T_NATIVE_UINT16, TRI_U16},
        {H5T_INTEGER, 4, false, H5T_NATIVE_UINT32, TRI_U32},
        {H5T_INTEGER, 8, false, H5T_NATIVE_UINT64, TRI_U64},
        {H5T_INTEGER, 1, true, H5T_NATIVE_INT8, TRI_I8},
        {H5T_INTEGER, 2, true, H5T_NATIVE_INT16, TRI_I16},
        {H5T_INTEGER, 4, true, H5T_NATIVE_INT32, TRI_I32},
        {H5T_INTEGER, 8, true, H5T_NATIVE_INT64, TRI_I64},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].class != class || rows[i].bytes != bytes || rows[i].is_signed != is_signed)
            continue;
        *dtype = rows[i].dtype;
        return H5Tcopy(rows[i].type);
    }
    return H5I_INVALID_HID;
}

static tri_status read_shape(tri_hdf5_array *a, tri_shape *shape, char *why) {
    hid_t space = H5Dget_space(a->array);
    if (space < 0) return fail(TRI_CORRUPT, why, "its shape cannot be read");
    a->rank = H5Sget_simple_extent_ndims(space);
    bool fits = a->rank >= 0 && a->rank <= TRI_MAX_RANK;
    if (fits) H5Sget_simple_extent_dims(space, a->dims, NULL);
    H5Sclose(space);
    if (!fits) return refuse(why, "it has too many axes");
    shape->rank = a->rank;
    for (int i = 0; i < a->rank; i++) {
        if (a->dims[i] > INT64_MAX / 2) return refuse(why, "it is too large");
        shape->dims[i] = (int64_t)a->dims[i];
    }
    return TRI_OK;
}

// Whether the array lies in the file that was opened. One behind an external link lies in another.
static bool is_own(const tri_hdf5_array *a) {
    char own[PATH_MAX], of_array[PATH_MAX];
    ssize_t size = H5Fget_name(a->file, own, sizeof own);
    return size >= 0 && (size_t)size < sizeof own &&
           H5Fget_name(a->array, of_array, sizeof of_array) == size && !strcmp(own, of_array);
}

// Finds where elements lie that the file has as memory has them, without gaps.
static int64_t find_offset(const tri_hdf5_array *a, hid_t type) {
    hid_t properties = H5Dget_create_plist(a->array);
    bool is_plain = properties >= 0 && is_own(a) && H5Pget_layout(properties) == H5D_CONTIGUOUS &&
                    H5Pget_external_count(properties) == 0 && H5Tequal(type, a->memory_type) > 0;
    if (properties >= 0) H5Pclose(properties);
    haddr_t offset = is_plain ? H5Dget_offset(a->array) : HADDR_UNDEF;
    return offset == HADDR_UNDEF ? -1 : (int64_t)offset;
}

static tri_status describe(tri_hdf5_array *a, tri_hdf5_info *info, char *why) {
    hid_t type = H5Dget_type(a->array);
    if (type < 0) return fail(TRI_CORRUPT, why, "its type cannot be read");
    a->memory_type = memory_type(type, &info->dtype);
    info->offset = a->memory_type < 0 ? -1 : find_offset(a, type);
    H5Tclose(type);
    if (a->memory_type < 0) return refuse(why, "its elements are no numbers of 1 to 8 bytes");
    tri_status status = read_shape(a, &info->shape, why);
    return status == TRI_OK ? hdf5_check_storage(a->array, why) : status;
}

static void close_array(tri_hdf5_array *a) {
    if (a->memory_type > 0) H5Tclose(a->memory_type);
    if (a->array > 0) H5Dclose(a->array);
    if (a->file > 0) H5Fclose(a->file);
    free(a);
}

// Says why there is no array of this name: what has it may be a group, or a link to nothing.
static tri_status fail_open(hid_t file, const char *name, char *why) {
    enum { SHOWN = 400 };
    char inner[TRI_HDF5_WHY_BYTES];
    fail(TRI_BAD_INPUT, inner, "not found"); // before the next calls forget it
    hid_t group = H5Gopen2(file, name, H5P_DEFAULT);
    if (group >= 0) {
        H5Gclose(group);
        return refuse(why, "it is a group, and no array: name the arrays in data.fields='{FIELD: "
                           "ARRAY, ...}'");
    }
    bool is_there = H5Oexists_by_name(file, name, H5P_DEFAULT) > 0,
         is_link = H5Lexists(file, name, H5P_DEFAULT) > 0;
    snprintf(why, TRI_HDF5_WHY_BYTES, "%s%.*s",
             is_link && !is_there ? "it is a link that leads nowhere: " : "", SHOWN, inner);
    return is_there || is_link ? TRI_BAD_INPUT : TRI_NOT_FOUND;
}

static tri_status open_array(const char *path, const char *name, tri_hdf5_array **out,
                             tri_hdf5_info *info, char *why) {
    tri_hdf5_array *a = calloc(1, sizeof *a);
    *out = NULL;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (!a) return fail(TRI_NO_MEMORY, why, "no memory");
    a->file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    tri_status status = a->file < 0 ? fail(TRI_CORRUPT, why, "it is no HDF5 file") : TRI_OK;
    if (status == TRI_OK) {
        a->array = H5Dopen2(a->file, name, H5P_DEFAULT);
        if (a->array < 0) status = fail_open(a->file, name, why);
    }
    if (status == TRI_OK) status = describe(a, info, why);
    if (status == TRI_OK)
        *out = a;
    else
        close_array(a);
    return status;
}

typedef struct name_list {
    char *text;
    size_t size;
} name_list;

static herr_t add_name(hid_t group, const char *name, const H5L_info_t *link, void *context) {
    name_list *list = context;
    size_t bytes = strlen(name) + 1;
    char *text = realloc(list->text, list->size + bytes + 1);
    if (!text) return -1;
    memcpy(text + list->size, name, bytes);
    list->text = text;
    list->size += bytes;
    text[list->size] = 0;
    return 0;
}

static tri_status list_names(const char *path, char **out, char *why) {
    name_list list = {.text = calloc(1, 1)};
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    tri_status status = TRI_OK;
    if (file < 0)
        status = fail(TRI_CORRUPT, why, "it is no HDF5 file");
    else if (!list.text || H5Literate(file, H5_INDEX_NAME, H5_ITER_INC, NULL, add_name, &list) < 0)
        status = fail(TRI_CORRUPT, why, "its arrays cannot be listed");
    if (file >= 0) H5Fclose(file);
    if (status != TRI_OK) free(list.text);
    *out = status == TRI_OK ? list.text : NULL;
    return status;
}

static tri_status read_array(tri_hdf5_array *a, int64_t first, int64_t count, void *out,
                             char *why) {
    hsize_t start[TRI_MAX_RANK] = {(hsize_t)first}, size[TRI_MAX_RANK];
    for (int i = 0; i < a->rank; i++) size[i] = i ? a->dims[i] : (hsize_t)count;
    hid_t in_file = H5Dget_space(a->array), in_memory = H5Screate_simple(a->rank, size, NULL);
    bool is_read = in_file >= 0 && in_memory >= 0 &&
                   H5Sselect_hyperslab(in_file, H5S_SELECT_SET, start, NULL, size, NULL) >= 0 &&
                   H5Dread(a->array, a->memory_type, in_memory, in_file, H5P_DEFAULT, out) >= 0;
    tri_status status = is_read ? TRI_OK : fail(TRI_CORRUPT, why, "it cannot be read");
    if (in_file >= 0) H5Sclose(in_file);
    if (in_memory >= 0) H5Sclose(in_memory);
    return status;
}

static hid_t file_type(tri_dtype dtype) {
    switch (dtype) {
    case TRI_F32:
        return H5T_NATIVE_FLOAT;
    case TRI_F64:
        return H5T_NATIVE_DOUBLE;
    case TRI_BOOL:
    case TRI_U8:
        return H5T_NATIVE_UINT8;
    case TRI_U16:
        return H5T_NATIVE_UINT16;
    case TRI_U32:
        return H5T_NATIVE_UINT32;
    case TRI_U64:
        return H5T_NATIVE_UINT64;
    case TRI_I8:
        return H5T_NATIVE_INT8;
    case TRI_I16:
        return H5T_NATIVE_INT16;
    case TRI_I32:
        return H5T_NATIVE_INT32;
    case TRI_I64:
        return H5T_NATIVE_INT64;
    default:
        return H5I_INVALID_HID;
    }
}

// Makes an array whose place in the file is fixed at once.
static tri_status create_array(hid_t file, const char *name, tri_hdf5_info *info, char *why) {
    hsize_t dims[TRI_MAX_RANK];
    hid_t type = file_type(info->dtype);
    if (type < 0) return refuse(why, "HDF5 has no such type of numbers");
    for (int i = 0; i < info->shape.rank; i++) dims[i] = (hsize_t)info->shape.dims[i];
    hid_t space = H5Screate_simple(info->shape.rank, dims, NULL),
          properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_layout(properties, H5D_CONTIGUOUS);
    H5Pset_alloc_time(properties, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(properties, H5D_FILL_TIME_NEVER);
    hid_t array = H5Dcreate2(file, name, type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    haddr_t offset = array < 0 ? HADDR_UNDEF : H5Dget_offset(array);
    if (array >= 0) H5Dclose(array);
    H5Pclose(properties);
    H5Sclose(space);
    info->offset = (int64_t)offset;
    return offset == HADDR_UNDEF ? fail(TRI_IO, why, "it cannot be written") : TRI_OK;
}

// Finds the arrays of a file that `create` made earlier.
static tri_status find_arrays(const char *path, const char *const *names, tri_hdf5_info *infos,
                              int count, char *why) {
    for (int i = 0; i < count; i++) {
        tri_hdf5_array *array;
        tri_status status = open_array(path, names[i], &array, &infos[i], why);
        if (status != TRI_OK) return status;
        close_array(array);
        if (infos[i].offset < 0) return refuse(why, "its arrays are not in one piece");
    }
    return TRI_OK;
}

// Whether a file may be as long as the arrays make it, by ulimit -f and the file system's own
// limit: where libhdf5 cannot extend a file, it crashes when it closes that file.
static tri_status try_length(const char *path, const tri_hdf5_info *infos, int count, char *why) {
    int64_t bytes = NOTES_BYTES;
    for (int i = 0; i < count; i++) {
        hid_t type = file_type(infos[i].dtype);
        int64_t size = type < 0 ? 0 : (int64_t)H5Tget_size(type); // such a type is refused later
        for (int k = 0; k < infos[i].shape.rank; k++) size *= infos[i].shape.dims[k];
        bytes += NOTES_BYTES + size;
    }
    (void)unlink(path); // what a killed run left
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return TRI_OK; // libhdf5 tells why
    bool fits = ftruncate(fd, (off_t)bytes) == 0;
    int error = errno;
    if (!fits) (void)unlink(path);
    (void)close(fd);
    if (fits) return TRI_OK;
    snprintf(why, TRI_HDF5_WHY_BYTES, "it cannot have its %lld bytes: %s", (long long)bytes,
             strerror(error));
    return TRI_IO;
}

static tri_status create(const char *path, bool is_new, const char *const *names,
                         tri_hdf5_info *infos, int count, char *why) {
    tri_status status = TRI_OK;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (!is_new) return find_arrays(path, names, infos, count, why);
    status = try_length(path, infos, count, why);
    if (status != TRI_OK) return status;
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    if (file < 0) return fail(TRI_IO, why, "it cannot be made");
    for (int i = 0; i < count && status == TRI_OK; i++)
        status = create_array(file, names[i], &infos[i], why);
    if (H5Fclose(file) < 0 && status == TRI_OK) status = fail(TRI_IO, why, "it cannot be written");
    return status;
}

static const tri_hdf5 table = {.open = open_array,
                               .close = close_array,
                               .list = list_names,
                               .read = read_array,
                               .create = create};

TRI_MODULE(TRI_HDF5_INTERFACE, TRI_HDF5_ABI, "hdf5", &table);
