// The data set "webdataset" (data.name): tar archives in which the files of a sample follow each
// other (web_list.h). An index says where each sample lies (web_index.h), so that any sample can be
// read directly.
#include "base/quantity.h"
#include "data/files.h"
#include "data/image_worker.h"
#include "data/open_files.h"
#include "data/web_index.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { IMAGES, LABELS };

typedef struct web_state {
    const char *const *paths; // of the archives
    web_index index;
    tri_open_files *files;
} web_state;

static tri_status add_fields(tri_dataset *dataset, const char *source, bool has_labels) {
    tri_shape image = tri_shape_of(3, TRI_ANY_SIZE, TRI_ANY_SIZE);
    TRI_TRY(tri_dataset_add(dataset, source, "images", TRI_U8, &image));
    if (!has_labels) return TRI_OK;
    return tri_dataset_add(dataset, source, "labels", TRI_I32, &(tri_shape){0});
}

static tri_status web_describe(tri_dataset *dataset) { return add_fields(dataset, "data", true); }

static tri_status web_open(tri_dataset *dataset) {
    web_state *state = TRI_NEW(dataset->arena, web_state);
    tri_data_files files = {0};
    state->index.samples.fd = -1;
    dataset->state = state;
    TRI_TRY(tri_data_files_find(dataset, "tar files, such as train-{000000..000009}.tar", &files));
    state->paths = (const char *const *)files.paths;
    TRI_TRY(web_index_open(dataset->arena, dataset->options->cache, state->paths, files.count,
                           &state->index));
    TRI_TRY(tri_open_files_create(&state->files));
    const tri_tar_totals *totals = &state->index.samples.totals;
    dataset->samples = totals->samples;
    if (totals->others > 0)
        dataset->facts.rest = tri_arena_printf(
            dataset->arena,
            "%s, the first is %s: a sample is NAME.jpg, .jpeg, .png or .webp, with NAME.cls, and "
            "NAME ends at its first dot",
            tri_counted(totals->others, "file"), totals->first_other);
    TRI_TRY(add_fields(dataset, files.paths[0], totals->has_labels));
    if (totals->has_labels) dataset->fields[LABELS].classes = totals->classes;
    return TRI_OK;
}

static void web_close(tri_dataset *dataset) {
    web_state *state = dataset->state;
    tri_tar_index_close(&state->index.samples);
    tri_open_files_destroy(state->files);
}

static tri_status web_read(const tri_dataset *dataset, void *worker, int64_t number,
                           tri_sample_value *values) {
    const web_state *state = dataset->state;
    tri_tar_sample sample;
    int archive, fd;
    char name[PATH_MAX];
    TRI_TRY(tri_tar_index_read(&state->index.samples, number, &sample, &archive));
    const web_archive *from = &state->index.archives[archive];
    snprintf(name, sizeof name, "%s: sample %lld", state->paths[archive], (long long)number);
    if (state->index.samples.totals.has_labels) {
        memcpy(values[LABELS].buffer, &sample.label, sizeof sample.label);
        values[LABELS].data = values[LABELS].buffer;
    }
    TRI_TRY(tri_open_files_take(state->files, archive, from->path, from->state, &fd));
    tri_status status =
        tri_image_worker_decode(worker, fd, sample.offset, sample.size, name, &values[IMAGES]);
    tri_open_files_release(state->files, fd);
    return status;
}

const tri_dataset_kind tri_dataset_webdataset = {
    .open = web_open,
    .close = web_close,
    .worker_create = tri_image_worker_create,
    .worker_destroy = tri_image_worker_destroy,
    .read = web_read,
    .describe = web_describe,
    .is_decoded = true,
};
