// The data sets "cifar10" and "cifar100" (data.name): the binary version, files of records of one
// size. A record of CIFAR-10 is a byte with the class, then 1,024 bytes each of red, green and
// blue, row by row; CIFAR-100 has a byte with the superclass before that with the class.
// (https://www.cs.toronto.edu/~kriz/cifar.html)
#include "base/os.h"
#include "data/kind.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    IMAGES,
    LABELS,
    SIDE = 32,
    CHANNELS = 3,
    IMAGE_BYTES = CHANNELS * SIDE * SIDE,
    MOST_FILES = 5
};

typedef struct cifar_format {
    const char *train[MOST_FILES], *test; // the usual names of the files
    int label_bytes;                      // bytes before the image; the last one is the class
    int classes;
} cifar_format;

static const cifar_format cifar10 = {.train = {"data_batch_1.bin", "data_batch_2.bin",
                                               "data_batch_3.bin", "data_batch_4.bin",
                                               "data_batch_5.bin"},
                                     .test = "test_batch.bin",
                                     .label_bytes = 1,
                                     .classes = 10};
static const cifar_format cifar100 = {
    .train = {"train.bin"}, .test = "test.bin", .label_bytes = 2, .classes = 100};

typedef struct cifar_file {
    const char *path;
    int fd;
    int64_t end; // number of the first sample behind this file
} cifar_file;

typedef struct cifar_state {
    const cifar_format *format;
    int count;
    cifar_file files[MOST_FILES];
} cifar_state;

static const cifar_format *format_of(const tri_dataset *dataset) {
    return dataset->kind == &tri_dataset_cifar10 ? &cifar10 : &cifar100;
}

static int record_bytes(const cifar_format *format) { return format->label_bytes + IMAGE_BYTES; }

static tri_status open_file(tri_dataset *dataset, cifar_state *state, const char *path) {
    struct stat info;
    cifar_file *file = &state->files[state->count];
    *file = (cifar_file){.path = path};
    TRI_TRY(tri_os_open_input(path, &file->fd));
    state->count++; // from here on cifar_close closes it
    tri_dataset_note_file(dataset, path);
    int bytes = record_bytes(state->format);
    if (fstat(file->fd, &info) != 0) return tri_os_fail("read", path);
    if (!S_ISREG(info.st_mode)) return TRI_FAIL(TRI_BAD_INPUT, "%s: is not a file", path);
    if (info.st_size == 0 || info.st_size % bytes != 0)
        return TRI_FAIL(TRI_CORRUPT,
                        "%s: %lld bytes are not a whole number of records of %d bytes: it is "
                        "truncated, or not the binary version of %s",
                        path, (long long)info.st_size, bytes, dataset->options->name);
    dataset->samples += info.st_size / bytes;
    file->end = dataset->samples;
    return TRI_OK;
}

// Opens the usual files of the training data: all of them, or the first few. A gap between them is
// refused.
static tri_status open_usual(tri_dataset *dataset, cifar_state *state) {
    const char *missing = NULL;
    for (int i = 0; i < MOST_FILES && state->format->train[i]; i++) {
        const char *path = tri_dataset_path(dataset, state->format->train[i]);
        bool is_there = access(path, F_OK) == 0;
        if (!is_there && !missing) missing = path;
        if (is_there && missing)
            return TRI_FAIL(TRI_NOT_FOUND, "%s: there is no such file, but %s", missing, path);
        if (is_there || i == 0) TRI_TRY(open_file(dataset, state, path));
    }
    return TRI_OK;
}

static tri_status describe(tri_dataset *dataset, const char *source) {
    tri_shape image = tri_shape_of(CHANNELS, SIDE, SIDE);
    TRI_TRY(tri_dataset_add(dataset, source, "images", TRI_U8, &image));
    TRI_TRY(tri_dataset_add(dataset, source, "labels", TRI_U8, &(tri_shape){0}));
    dataset->fields[LABELS].classes = format_of(dataset)->classes;
    return TRI_OK;
}

static tri_status cifar_describe(tri_dataset *dataset) { return describe(dataset, "data"); }

static tri_status cifar_open(tri_dataset *dataset) {
    cifar_state *state = TRI_NEW(dataset->arena, cifar_state);
    dataset->state = state;
    state->format = format_of(dataset);
    if (!dataset->options->path)
        return TRI_FAIL(TRI_BAD_INPUT, "data.path is not set: the folder with the binary files");
    const char *name = tri_dataset_file(dataset);
    if (!name && dataset->file_split == TRI_DATA_TEST) name = state->format->test;
    if (name)
        TRI_TRY(open_file(dataset, state, tri_dataset_path(dataset, name)));
    else
        TRI_TRY(open_usual(dataset, state));
    return describe(dataset, state->files[0].path);
}

static void cifar_close(tri_dataset *dataset) {
    cifar_state *state = dataset->state;
    for (int i = 0; i < state->count; i++) tri_os.close(state->files[i].fd);
}

static tri_status cifar_read(const tri_dataset *dataset, void *worker, int64_t sample,
                             tri_sample_value *values) {
    const cifar_state *state = dataset->state;
    uint8_t record[2 + IMAGE_BYTES];
    int i = 0, bytes = record_bytes(state->format);
    while (sample >= state->files[i].end) i++;
    const cifar_file *file = &state->files[i];
    int64_t first = i > 0 ? state->files[i - 1].end : 0;
    TRI_TRY(
        tri_os_pread_all(file->fd, record, (size_t)bytes, (sample - first) * bytes, file->path));
    uint8_t label = record[state->format->label_bytes - 1];
    if (label >= state->format->classes)
        return TRI_FAIL(TRI_CORRUPT, "%s: record %lld has the class %d, which is not one of %d",
                        file->path, (long long)(sample - first), label, state->format->classes);
    memcpy(values[IMAGES].buffer, record + state->format->label_bytes, IMAGE_BYTES);
    values[IMAGES].data = values[IMAGES].buffer;
    memcpy(values[LABELS].buffer, &label, 1);
    values[LABELS].data = values[LABELS].buffer;
    return TRI_OK;
}

#define KIND(word)                                                                                 \
    const tri_dataset_kind tri_dataset_##word = {                                                  \
        .open = cifar_open,                                                                        \
        .close = cifar_close,                                                                      \
        .read = cifar_read,                                                                        \
        .has_usual_test = true,                                                                    \
        .describe = cifar_describe,                                                                \
        .is_decoded = true,                                                                        \
    };
KIND(cifar10)
KIND(cifar100)
