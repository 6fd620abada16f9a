// The data set "imagefolder" (data.name): a folder for each class, with image files in it or in
// folders below it. Classes are numbered in the order of their names, files are sorted by folder
// and name, as torchvision's ImageFolder does. What is only predicted may be a folder of images
// without classes, in the order of their names.
#include "base/hash.h"
#include "base/os.h"
#include "base/quantity.h"
#include "data/image_worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IMAGES, LABELS, MOST_DEPTH = 32 };

typedef struct folder_state {
    const char *root;
    const char **classes; // sorted by name
    int class_count, class_capacity;
    const char **files; // by sample: the path below `root`, CLASS/…/NAME
    int file_count, file_capacity;
    int32_t *labels;         // by sample
    int64_t other_count;     // files that are no images by their name, or images outside of classes
    const char *first_other; // the first of them by name, below `root`
    bool is_flat;            // there are no classes, and so no labels
} folder_state;

#define IMAGE_NAMES ".jpg, .jpeg, .png, .webp, .bmp, .ppm, .pgm"

static void count_other(folder_state *state, const char *name) {
    if (state->other_count++ == 0 || strcmp(name, state->first_other) < 0)
        state->first_other = name;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Orders by the name of the class, then by the folder's path, then by the file's name.
static int compare_files(const void *a, const void *b) {
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    size_t x_class = strcspn(x, "/"), y_class = strcspn(y, "/");
    int by_class = memcmp(x, y, x_class < y_class ? x_class : y_class);
    if (by_class != 0 || x_class != y_class)
        return by_class != 0 ? by_class : x_class < y_class ? -1 : 1;
    size_t x_folder = (size_t)(strrchr(x, '/') - x), y_folder = (size_t)(strrchr(y, '/') - y);
    int order = memcmp(x, y, x_folder < y_folder ? x_folder : y_folder);
    if (order != 0) return order;
    return x_folder != y_folder ? (x_folder < y_folder ? -1 : 1)
                                : strcmp(x + x_folder, y + y_folder);
}

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

// Lists the image files in the folder `below` of `root`, and in the folders in it.
static tri_status list_files(tri_arena *arena, folder_state *state, const char *below, int depth) {
    char *path = tri_arena_printf(arena, "%s/%s", state->root, below);
    DIR *folder = opendir(path);
    if (!folder) return tri_os_fail("open", path);
    tri_status status = TRI_OK;
    for (struct dirent *entry; status == TRI_OK && (errno = 0, entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        char *name = tri_arena_printf(arena, "%s/%s", below, entry->d_name);
        bool is_image = tri_image_is_name(entry->d_name);
        bool is_unknown = entry->d_type == DT_UNKNOWN || entry->d_type == DT_LNK;
        // Only what is no image by its name costs a call of the system.
        bool is_below = entry->d_type == DT_DIR ||
                        (is_unknown && !is_image &&
                         is_folder(tri_arena_printf(arena, "%s/%s", state->root, name)));
        if (is_below && depth < MOST_DEPTH)
            status = list_files(arena, state, name, depth + 1);
        else if (is_below)
            status = TRI_FAIL(TRI_BAD_INPUT,
                              "%s/%s: folders in folders, more than %d deep: does a "
                              "link lead upwards?",
                              state->root, name, MOST_DEPTH);
        else if (is_image)
            TRI_PUSH(arena, state->files, state->file_count, state->file_capacity) = name;
        else
            count_other(state, name);
    }
    if (status == TRI_OK && errno != 0) status = tri_os_fail("read", path);
    closedir(folder);
    return status;
}

static bool has_file(tri_arena *arena, const char *folder, const char *name) {
    return access(tri_arena_printf(arena, "%s/%s", folder, name), F_OK) == 0;
}

// Whether a folder is that of a run, without images of its own, or has nothing but such folders.
// The run may lie among the classes that it is trained on (data.path=.), and is none of them.
static bool is_of_runs(tri_arena *arena, const char *path, int depth) {
    bool is_run = has_file(arena, path, "recipe.yaml") &&
                  (has_file(arena, path, "metrics.jsonl") || has_file(arena, path, "checkpoints"));
    DIR *folder = depth < MOST_DEPTH ? opendir(path) : NULL;
    bool has_runs = is_run, has_else = !folder;
    for (struct dirent *entry; !has_else && (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        const char *below = tri_arena_printf(arena, "%s/%s", path, entry->d_name);
        has_else = tri_image_is_name(entry->d_name) ||
                   (!is_run && (!is_folder(below) || !is_of_runs(arena, below, depth + 1)));
        has_runs = true;
    }
    if (folder) closedir(folder);
    return has_runs && !has_else;
}

// Lists the folders in `root`: the classes.
static tri_status list_classes(tri_arena *arena, const char *root, folder_state *out) {
    DIR *folder = opendir(root);
    if (!folder) return tri_os_fail("open", root);
    for (struct dirent *entry; (errno = 0, entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        bool is_class = entry->d_type == DT_DIR;
        if (entry->d_type == DT_UNKNOWN || entry->d_type == DT_LNK)
            is_class = is_folder(tri_arena_printf(arena, "%s/%s", root, entry->d_name));
        if (is_class && is_of_runs(arena, tri_arena_printf(arena, "%s/%s", root, entry->d_name), 0))
            continue;
        if (is_class)
            TRI_PUSH(arena, out->classes, out->class_count, out->class_capacity) =
                tri_arena_strdup(arena, entry->d_name);
        else if (tri_image_is_name(entry->d_name))
            count_other(out, tri_arena_strdup(arena, entry->d_name));
    }
    int error = errno;
    closedir(folder);
    if (error != 0) {
        errno = error;
        return tri_os_fail("read", root);
    }
    if (out->class_count > 0)
        qsort(out->classes, (size_t)out->class_count, sizeof *out->classes, compare_names);
    return TRI_OK;
}

// The folder with the training classes: data.train, else the folder `train` in data.path, else
// data.path itself.
static const char *training_root(tri_dataset *dataset) {
    const tri_tree *train = dataset->options->train;
    if (train && train->kind == TRI_TREE_SCALAR) return tri_dataset_path(dataset, train->text);
    const char *usual = tri_dataset_path(dataset, "train");
    return is_folder(usual) || !dataset->options->path ? usual : dataset->options->path;
}

// Gives each file the number of its class. `known` are the classes of the training data: those of
// other splits have the same numbers, also if some classes are missing there.
static tri_status number_files(tri_dataset *dataset, folder_state *state,
                               const folder_state *known) {
    state->labels = TRI_NEW_ARRAY(dataset->arena, int32_t, state->file_count);
    int file = 0;
    for (int i = 0; i < state->class_count; i++) {
        const char *name = state->classes[i],
                   **found = bsearch(&name, known->classes, (size_t)known->class_count, sizeof name,
                                     compare_names);
        if (!found)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "%s/%s: the training data, %s, have no class of this name", state->root,
                            name, known->root);
        int first = file;
        size_t length = strlen(name);
        while (file < state->file_count && !strncmp(state->files[file], name, length) &&
               state->files[file][length] == '/')
            state->labels[file++] = (int32_t)(found - known->classes);
        if (file == first)
            return TRI_FAIL(TRI_BAD_INPUT, "%s/%s: has no images (" IMAGE_NAMES ")", state->root,
                            name);
    }
    TRI_ASSERT(file == state->file_count || state->is_flat);
    return TRI_OK;
}

static tri_status describe(tri_dataset *dataset, const char *source, bool is_flat) {
    tri_shape image = tri_shape_of(3, TRI_ANY_SIZE, TRI_ANY_SIZE);
    TRI_TRY(tri_dataset_add(dataset, source, "images", TRI_U8, &image));
    return is_flat ? TRI_OK : tri_dataset_add(dataset, source, "labels", TRI_I32, &(tri_shape){0});
}

static tri_status folder_describe(tri_dataset *dataset) { return describe(dataset, "data", false); }

static tri_status find_root(tri_dataset *dataset, const char **out) {
    const char *name = tri_dataset_file(dataset);
    bool is_training = dataset->file_split == TRI_DATA_TRAIN;
    *out = name ? tri_dataset_path(dataset, name) : is_training ? training_root(dataset) : NULL;
    if (*out) {
        tri_dataset_note_source(dataset, *out);
        return TRI_OK;
    }
    return TRI_FAIL(TRI_NOT_FOUND, "data.test is not set: the folder with a folder for each class");
}

// Lists the classes of the training data, which number those of other splits. Their folders are
// enough: images in them are not read.
static tri_status list_training(tri_dataset *dataset, folder_state **out) {
    const char *train = training_root(dataset);
    folder_state *known = *out = TRI_NEW(dataset->arena, folder_state);
    if (!is_folder(train))
        return TRI_FAIL(TRI_NOT_FOUND,
                        "%s: the folder of the training data is not there, whose classes number "
                        "those of the %s data: set data.train; empty folders for the classes are "
                        "enough",
                        train, tri_data_split_name(dataset->split));
    known->root = train;
    return list_classes(dataset->arena, train, known);
}

// Lists the files of all classes or, where only images are asked for, of a folder without classes.
static tri_status list(tri_dataset *dataset, folder_state *state) {
    TRI_TRY(list_classes(dataset->arena, state->root, state));
    state->is_flat = state->class_count == 0 && state->other_count > 0 &&
                     dataset->options->may_lack_fields && dataset->file_split != TRI_DATA_TRAIN;
    if (state->class_count == 0 && !state->is_flat)
        return TRI_FAIL(TRI_BAD_INPUT, "%s: has no folders: a folder for each class is needed",
                        state->root);
    if (state->is_flat) {
        state->other_count = 0;
        TRI_TRY(list_files(dataset->arena, state, ".", 0));
    }
    for (int i = 0; i < state->class_count; i++)
        TRI_TRY(list_files(dataset->arena, state, state->classes[i], 0));
    if (state->file_count > 0)
        qsort(state->files, (size_t)state->file_count, sizeof *state->files, compare_files);
    return TRI_OK;
}

// Looks whether the first file is only a pointer, because then most are: before a run begins.
static tri_status check_first(const folder_state *state) {
    char path[PATH_MAX];
    int fd;
    if (state->file_count == 0) return TRI_OK;
    snprintf(path, sizeof path, "%s/%s", state->root, state->files[0]);
    TRI_TRY(tri_os_open_input(path, &fd));
    tri_os.close(fd);
    return TRI_OK;
}

static tri_status folder_open(tri_dataset *dataset) {
    folder_state *state = TRI_NEW(dataset->arena, folder_state), *known = state;
    dataset->state = state;
    TRI_TRY(find_root(dataset, &state->root));
    TRI_TRY(list(dataset, state));
    if (dataset->file_split != TRI_DATA_TRAIN && !state->is_flat)
        TRI_TRY(list_training(dataset, &known));
    TRI_TRY(number_files(dataset, state, known));
    TRI_TRY(check_first(state));
    dataset->samples = state->file_count;
    dataset->facts.listing = TRI_HASH_OF_NOTHING;
    for (int i = 0; i < state->file_count; i++)
        dataset->facts.listing = tri_hash_text(dataset->facts.listing, state->files[i]);
    if (state->other_count > 0)
        dataset->facts.rest = tri_arena_printf(
            dataset->arena, "%s, the first is %s/%s: images are %s in a class's folder",
            tri_counted(state->other_count, "file"), state->root, state->first_other, IMAGE_NAMES);
    TRI_TRY(describe(dataset, state->root, state->is_flat));
    if (state->is_flat) return TRI_OK;
    dataset->fields[LABELS].classes = known->class_count;
    dataset->fields[LABELS].names.classes = (tri_strings){known->classes, known->class_count};
    return TRI_OK;
}

static void folder_close(tri_dataset *dataset) {}

static tri_status folder_read(const tri_dataset *dataset, void *worker, int64_t sample,
                              tri_sample_value *values) {
    const folder_state *state = dataset->state;
    char path[PATH_MAX];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", state->root, state->files[sample]);
    if (!state->is_flat) values[LABELS].data = &state->labels[sample];
    int fd = tri_os.open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return tri_os_fail("open", path);
    tri_status status = fstat(fd, &info) == 0 ? TRI_OK : tri_os_fail("read", path);
    if (status == TRI_OK && !S_ISREG(info.st_mode))
        status = TRI_FAIL(TRI_CORRUPT, "%s: is not a file", path);
    if (status == TRI_OK)
        status = tri_image_worker_decode(worker, fd, 0, info.st_size, path, &values[IMAGES]);
    tri_os.close(fd);
    return status;
}

const tri_dataset_kind tri_dataset_imagefolder = {
    .open = folder_open,
    .close = folder_close,
    .worker_create = tri_image_worker_create,
    .worker_destroy = tri_image_worker_destroy,
    .read = folder_read,
    .describe = folder_describe,
    .is_decoded = true,
};
