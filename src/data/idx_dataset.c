// The data set "idx" (data.name): MNIST and similar data, which have a file of images and a file of
// labels, raw or gzip-compressed. They are kept in memory if they are small, as such data mostly
// are, or compressed, as such files cannot be read at random positions. Of large raw images each
// sample is read when it is needed.
#include "base/os.h"
#include "base/quantity.h"
#include "data/content.h"
#include "data/kind.h"
#include "format/idx.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IMAGES, LABELS, IN_MEMORY_BYTES = 64 << 20 };

typedef struct idx_state {
    tri_idx images, labels;
    const char *images_path;
    int fd; // of images that are not in memory; -1: there are none
} idx_state;

// Finds the file PREFIX-SUFFIX or PREFIX-SUFFIX.gz, because both can be downloaded.
static tri_status find_file(tri_dataset *dataset, const char *prefix, const char *suffix,
                            const char **out) {
    const char *plain =
        tri_dataset_path(dataset, tri_arena_printf(dataset->arena, "%s-%s", prefix, suffix));
    const char *zipped = tri_arena_printf(dataset->arena, "%s.gz", plain);
    *out = access(plain, F_OK) == 0 ? plain : zipped;
    tri_dataset_note_file(dataset, *out);
    if (access(*out, F_OK) == 0) return TRI_OK;
    return TRI_FAIL(
        TRI_NOT_FOUND,
        "%s: there is no such file, nor %s-%s.gz: set data.path to the folder that has it", plain,
        prefix, suffix);
}

static bool is_file(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

static tri_status open_images(tri_dataset *dataset, idx_state *state, const char *prefix) {
    const char *path;
    TRI_TRY(find_file(dataset, prefix, "images-idx3-ubyte", &path));
    TRI_TRY(tri_content_check(path, "idx"));
    TRI_TRY(tri_idx_read(path, TRI_IDX_IMAGES, IN_MEMORY_BYTES, &state->images));
    state->images_path = path;
    if (!state->images.data) TRI_TRY(tri_os_open_input(path, &state->fd));
    const tri_shape *shape = &state->images.shape;
    if (shape->dims[0] == 0) return TRI_FAIL(TRI_BAD_INPUT, "%s: has no images", path);
    dataset->samples = shape->dims[0];
    tri_shape image = tri_shape_of(1, shape->dims[1], shape->dims[2]);
    return tri_dataset_add(dataset, path, "images", TRI_U8, &image);
}

// What is only predicted may have no labels.
static tri_status open_labels(tri_dataset *dataset, idx_state *state, const char *prefix) {
    const char *path;
    tri_status status = find_file(dataset, prefix, "labels-idx1-ubyte", &path);
    if (status == TRI_NOT_FOUND && dataset->options->may_lack_fields &&
        dataset->file_split != TRI_DATA_TRAIN)
        return TRI_OK;
    TRI_TRY(status);
    TRI_TRY(tri_content_check(path, "idx"));
    TRI_TRY(tri_idx_read(path, TRI_IDX_LABELS, INT64_MAX, &state->labels));
    if (dataset->samples != state->labels.shape.dims[0])
        return TRI_FAIL(TRI_BAD_INPUT, "%s: %s, but %s in %s", state->images_path,
                        tri_counted(dataset->samples, "image"),
                        tri_counted(state->labels.shape.dims[0], "label"), path);
    return tri_dataset_add(dataset, path, "labels", TRI_U8, &(tri_shape){0});
}

static tri_status open_files(tri_dataset *dataset, idx_state *state) {
    const tri_data_options *options = dataset->options;
    if (!options->path)
        return TRI_FAIL(TRI_BAD_INPUT, "data.path is not set: the folder with the IDX files");
    const char *prefix = tri_dataset_file(dataset);
    if (!prefix) prefix = dataset->file_split == TRI_DATA_TEST ? "t10k" : "train";
    if (is_file(options->path)) {
        TRI_TRY(tri_content_check(options->path, "idx"));
        return TRI_FAIL(TRI_BAD_INPUT,
                        "data.path=%s is a file; set it to the folder with the IDX files, and "
                        "data.train to what their names begin with",
                        options->path);
    }
    TRI_TRY(open_images(dataset, state, prefix));
    return open_labels(dataset, state, prefix);
}

static tri_status idx_open(tri_dataset *dataset) {
    idx_state *state = TRI_NEW(dataset->arena, idx_state);
    dataset->state = state;
    state->fd = -1;
    TRI_TRY(open_files(dataset, state));
    const uint8_t *labels = state->labels.data;
    int64_t *classes = &dataset->fields[LABELS].classes;
    for (int64_t i = 0; labels && i < dataset->samples; i++)
        if (labels[i] >= *classes) *classes = labels[i] + 1;
    return TRI_OK;
}

static void idx_close(tri_dataset *dataset) {
    idx_state *state = dataset->state;
    if (state->fd >= 0) tri_os.close(state->fd);
    tri_idx_free(&state->images);
    tri_idx_free(&state->labels);
}

static tri_status idx_read(const tri_dataset *dataset, void *worker, int64_t sample,
                           tri_sample_value *values) {
    const idx_state *state = dataset->state;
    const uint8_t *images = state->images.data, *labels = state->labels.data;
    size_t bytes = dataset->fields[IMAGES].stored_bytes;
    if (labels) values[LABELS].data = labels + sample;
    values[IMAGES].data = images ? images + (size_t)sample * bytes : values[IMAGES].buffer;
    if (images) return TRI_OK;
    return tri_os_pread_all(state->fd, values[IMAGES].buffer, bytes,
                            state->images.offset + sample * (int64_t)bytes, state->images_path);
}

// Prefetches an image into the cache, because the hardware cannot predict where a shuffled sample
// lies.
static void idx_hint(const tri_dataset *dataset, int64_t sample) {
    enum { CACHE_LINE_BYTES = 64 };
    tri_sample_value values[2];
    const idx_state *state = dataset->state;
    if (!state->images.data) return;
    idx_read(dataset, NULL, sample, values);
    for (size_t at = 0; at < dataset->fields[IMAGES].stored_bytes; at += CACHE_LINE_BYTES)
        __builtin_prefetch((const char *)values[IMAGES].data + at);
}

// Describes the data without opening them: by the shapes of MNIST, which similar data usually have.
static tri_status idx_describe(tri_dataset *dataset) {
    tri_shape image = tri_shape_of(1, 28, 28);
    TRI_TRY(tri_dataset_add(dataset, "data", "images", TRI_U8, &image));
    return tri_dataset_add(dataset, "data", "labels", TRI_U8, &(tri_shape){0});
}

const tri_dataset_kind tri_dataset_idx = {
    .open = idx_open,
    .close = idx_close,
    .read = idx_read,
    .hint = idx_hint,
    .has_usual_test = true,
    .describe = idx_describe,
    .describes_guess = true,
};
