// Refuses arrays of which a part is not there: see storage.h.
#include "format/hdf5/storage.h"

#include "format/hdf5/hdf5.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Parts of virtual arrays, and how often those may be virtual, too; bytes of a name.
enum { MOST_PARTS = 1 << 20, MOST_LEVELS = 4, SHOWN = 200 };

// How many parts of virtual arrays may still follow, and how many levels of them.
typedef struct nesting {
    int parts, levels;
} nesting;

// An array while it is checked.
typedef struct storage {
    hid_t array, properties;
    int64_t elements;
    char file[PATH_MAX]; // where the array lies
    nesting *within;
    char *why;
} storage;

__attribute__((format(printf, 2, 3))) static tri_status refuse(const storage *s, const char *format,
                                                               ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->why, TRI_HDF5_WHY_BYTES, format, arguments);
    va_end(arguments);
    return TRI_BAD_INPUT;
}

static bool has_chosen_fill(const storage *s) {
    H5D_fill_value_t fill = H5D_FILL_VALUE_UNDEFINED;
    H5Pfill_value_defined(s->properties, &fill);
    return fill == H5D_FILL_VALUE_USER_DEFINED;
}

// Refuses a filter that this library lacks, such as h5py's own compression, lzf.
static tri_status check_filters(const storage *s) {
    int count = H5Pget_nfilters(s->properties);
    for (int i = 0; i < count; i++) {
        char name[64] = "";
        unsigned flags, config;
        size_t values = 0;
        H5Z_filter_t filter = H5Pget_filter2(s->properties, (unsigned)i, &flags, &values, NULL,
                                             sizeof name - 1, name, &config);
        if (filter < 0 || H5Zfilter_avail(filter) > 0) continue;
        return refuse(s,
                      "its filter %s (number %d) is not in the HDF5 library here: write the array "
                      "again with compression='gzip', or set HDF5_PLUGIN_PATH to the filter's "
                      "folder",
                      *name ? name : "without a name", (int)filter);
    }
    return TRI_OK;
}

static tri_status check_chunks(const storage *s) {
    hsize_t dims[H5S_MAX_RANK], chunk[H5S_MAX_RANK], all = 1, written = 0;
    hid_t space = H5Dget_space(s->array);
    int rank = H5Sget_simple_extent_dims(space, dims, NULL);
    bool is_counted = rank >= 0 && H5Pget_chunk(s->properties, rank, chunk) == rank &&
                      H5Dget_num_chunks(s->array, space, &written) >= 0;
    H5Sclose(space);
    if (!is_counted) return refuse(s, "its chunks cannot be counted");
    for (int i = 0; i < rank; i++) all *= (dims[i] + chunk[i] - 1) / chunk[i];
    if (written >= all) return TRI_OK;
    return refuse(
        s,
        "%llu of its %llu chunks were never written, and would be zeros: write them or, if "
        "they are meant to be empty, make the array with fillvalue=0",
        (unsigned long long)(all - written), (unsigned long long)all);
}

// Finds where the library looks for raw data.
static void find_raw(const storage *s, const char *name, char *path, size_t size) {
    static const char beside[] = "${ORIGIN}";
    const char *prefix = getenv("HDF5_EXTFILE_PREFIX"), *slash = strrchr(s->file, '/');
    bool is_absolute = name[0] == '/',
         is_beside = prefix && !strncmp(prefix, beside, strlen(beside));
    if (is_absolute || !prefix || !*prefix || !strcmp(prefix, "."))
        snprintf(path, size, "%s", name);
    else if (is_beside)
        snprintf(path, size, "%.*s%s/%s", slash ? (int)(slash - s->file) : 1, slash ? s->file : ".",
                 prefix + strlen(beside), name);
    else
        snprintf(path, size, "%s/%s", prefix, name);
}

static tri_status check_raw(const storage *s, int count) {
    char name[PATH_MAX] = "", path[3 * PATH_MAX];
    hid_t type = H5Dget_type(s->array);
    hsize_t size, left = (hsize_t)s->elements * H5Tget_size(type);
    off_t offset;
    struct stat info;
    H5Tclose(type);
    for (int i = 0; i < count && left > 0; i++) {
        if (H5Pget_external(s->properties, (unsigned)i, sizeof name - 1, name, &offset, &size) < 0)
            return refuse(s, "its raw data cannot be found");
        find_raw(s, name, path, sizeof path);
        if (stat(path, &info) != 0)
            return refuse(
                s,
                "its data lie in %.*s, which is not there: put that file beside this one, "
                "or set HDF5_EXTFILE_PREFIX to its folder",
                SHOWN, path);
        hsize_t part = size < left ? size : left, end = (hsize_t)offset + part;
        if ((hsize_t)info.st_size < end)
            return refuse(
                s,
                "its data lie in %.*s, which has %lld bytes of %llu, and would go on with "
                "zeros: make or copy that file again",
                SHOWN, path, (long long)info.st_size, (unsigned long long)end);
        left -= part;
    }
    return left > 0 ? refuse(s, "its raw files have not all of its data") : TRI_OK;
}

static tri_status check_array(hid_t array, nesting *within, char *why);

// Whether an array of this shape, which a part takes as a whole, begins with the block that the
// part fills. HDF5 then reads that beginning: the array may have grown along its first axis since.
static bool begins_with(hid_t filled, int rank, const hsize_t *dims) {
    hsize_t first[H5S_MAX_RANK], last[H5S_MAX_RANK], block = 1;
    int more = H5Sget_simple_extent_ndims(filled) - rank; // axes that only the virtual array has
    if (more < 0 || rank == 0 || H5Sget_select_bounds(filled, first, last) < 0) return false;
    for (int i = 0; i < more + rank; i++) {
        hsize_t size = last[i] - first[i] + 1;
        if (i < more ? size != 1 : i == more ? size > dims[0] : size != dims[i - more])
            return false;
        block *= size;
    }
    return H5Sget_select_npoints(filled) == (hssize_t)block;
}

// Whether the array has all that part number `index` of a virtual one takes of it.
static bool has_selection(hid_t array, hid_t properties, size_t index) {
    hsize_t dims[H5S_MAX_RANK], first[H5S_MAX_RANK], last[H5S_MAX_RANK];
    hid_t space = H5Dget_space(array), wanted = H5Pget_virtual_srcspace(properties, index),
          filled = H5Pget_virtual_vspace(properties, index);
    int rank = H5Sget_simple_extent_dims(space, dims, NULL);
    bool has_all = rank >= 0;
    if (H5Sget_select_type(wanted) == H5S_SEL_ALL) { // its shape is not always in the file
        hssize_t points = H5Sget_select_npoints(filled);
        has_all = points < 0 || H5Sget_simple_extent_npoints(space) == points ||
                  begins_with(filled, rank, dims);
    } else if (has_all && H5Sget_select_bounds(wanted, first, last) >= 0) {
        has_all = H5Sget_simple_extent_ndims(wanted) == rank;
        for (int i = 0; has_all && i < rank; i++) // a part without end has what there is
            has_all = last[i] < dims[i] || last[i] == H5S_UNLIMITED;
    }
    H5Sclose(space);
    H5Sclose(wanted);
    H5Sclose(filled);
    return has_all;
}

// Checks part number `index` of a virtual array.
static tri_status check_part(const storage *s, size_t index, const char *file, const char *name) {
    char path[2 * PATH_MAX], inner[TRI_HDF5_WHY_BYTES] = "it is not there";
    const char *slash = strrchr(s->file, '/');
    snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash + 1 - s->file) : 0, s->file, file);
    if (!strcmp(file, ".")) snprintf(path, sizeof path, "%s", s->file);
    const char *found = file[0] == '/' || access(path, F_OK) != 0 ? file : path;
    if (s->within->parts-- <= 0 || s->within->levels <= 0)
        return refuse(s, "it is virtual, and has too many parts within parts");
    s->within->levels--;
    hid_t source = H5Fopen(found, H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t array = source < 0 ? H5I_INVALID_HID : H5Dopen2(source, name, H5P_DEFAULT);
    tri_status status = array < 0 ? TRI_BAD_INPUT : check_array(array, s->within, inner);
    s->within->levels++;
    if (status == TRI_OK && !has_selection(array, s->properties, index)) {
        snprintf(inner, sizeof inner, "it has another shape");
        status = TRI_BAD_INPUT;
    }
    if (array >= 0) H5Dclose(array);
    if (source >= 0) H5Fclose(source);
    if (status == TRI_OK) return TRI_OK;
    return refuse(s, "it is virtual, and its part '%.*s' of %.*s: %.*s", SHOWN / 4, name, SHOWN / 2,
                  file, SHOWN, inner);
}

static tri_status check_virtual(const storage *s) {
    char file[PATH_MAX], name[PATH_MAX];
    size_t count = 0;
    hsize_t covered = 0;
    bool is_endless = false;
    H5Pget_virtual_count(s->properties, &count);
    for (size_t i = 0; i < count; i++) {
        if (H5Pget_virtual_filename(s->properties, i, file, sizeof file) < 0 ||
            H5Pget_virtual_dsetname(s->properties, i, name, sizeof name) < 0)
            return refuse(s, "it is virtual, and its part %zu cannot be found", i);
        tri_status status = check_part(s, i, file, name);
        if (status != TRI_OK) return status;
        hid_t space = H5Pget_virtual_vspace(s->properties, i);
        hssize_t points = H5Sget_select_npoints(space);
        H5Sclose(space);
        is_endless = is_endless || points < 0;
        covered += (hsize_t)points;
    }
    if (is_endless || covered >= (hsize_t)s->elements || has_chosen_fill(s)) return TRI_OK;
    return refuse(s,
                  "it is virtual, and its parts are %llu of its %llu elements: the others would be "
                  "zeros; if they are meant to be, make the array with fillvalue=0",
                  (unsigned long long)covered, (unsigned long long)s->elements);
}

static tri_status check(const storage *s) {
    H5D_layout_t layout = H5Pget_layout(s->properties);
    int raw = H5Pget_external_count(s->properties);
    H5D_space_status_t status = H5D_SPACE_STATUS_ALLOCATED;
    if (layout == H5D_VIRTUAL) return check_virtual(s);
    if (raw > 0) return check_raw(s, raw);
    tri_status filters = check_filters(s);
    if (filters != TRI_OK) return filters;
    if (has_chosen_fill(s)) return TRI_OK;
    if (layout == H5D_CHUNKED) return check_chunks(s);
    H5Dget_space_status(s->array, &status);
    if (status == H5D_SPACE_STATUS_ALLOCATED) return TRI_OK;
    return refuse(s, "it was never written, and would be zeros: write it or, if it is meant to be "
                     "empty, make the array with fillvalue=0");
}

static tri_status check_array(hid_t array, nesting *within, char *why) {
    storage s = {.array = array, .within = within, .why = why};
    hid_t space = H5Dget_space(array);
    s.elements = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    if (space >= 0) H5Sclose(space);
    if (s.elements == 0) return TRI_OK;
    s.properties = H5Dget_create_plist(array);
    bool is_known =
        s.elements > 0 && s.properties >= 0 && H5Fget_name(array, s.file, sizeof s.file) >= 0;
    tri_status status = is_known ? check(&s) : refuse(&s, "its storage cannot be found");
    if (s.properties >= 0) H5Pclose(s.properties);
    return status;
}

tri_status hdf5_check_storage(hid_t array, char *why) {
    nesting levels = {MOST_PARTS, MOST_LEVELS};
    return check_array(array, &levels, why);
}
