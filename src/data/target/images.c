// Targets of image files: a folder a class, or tar archives.
#include "base/os.h"
#include "data/target/target.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 512 };

static tri_status check_folder(const tri_target *target) {
    TRI_TRY(tri_target_check_images(target, "imagefolder"));
    if (tri_target_find(target, "labels") != TRI_NO_FIELD) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "--to imagefolder: has a folder a class, and the data no labels");
}

static void class_path(const tri_target *target, int64_t label, char path[PATH_MAX]) {
    snprintf(path, PATH_MAX, "%s/%s/%06lld", target->folder, target->split, (long long)label);
}

// By class: whether its folder was made.
static tri_status begin_folder(tri_target *target, tri_target_mark *mark) {
    target->state = TRI_NEW_ARRAY(target->arena, bool, target->classes);
    return TRI_OK;
}

static tri_status make_folder(tri_target *target, int64_t label) {
    char path[PATH_MAX];
    bool *is_made = target->state;
    if (is_made[label]) return TRI_OK;
    is_made[label] = true;
    class_path(target, label, path);
    return tri_os_make_folders(path);
}

// Classes are numbered by the order of their folders' names in the training data, so none may lack.
static tri_status end_folder(tri_target *target) {
    char path[PATH_MAX];
    bool is_there;
    for (int64_t i = 0; i < target->classes && !strcmp(target->split, "train"); i++) {
        class_path(target, i, path);
        TRI_TRY(tri_os_exists(path, &is_there));
        if (!is_there)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "--to imagefolder: no training sample has class %lld, so that those "
                            "after it would change their numbers",
                            (long long)i);
    }
    return TRI_OK;
}

static tri_status put_file(tri_target *target, int64_t sample, const tri_target_value *values) {
    char *made, path[PATH_MAX];
    const void *file;
    size_t bytes;
    const char *suffix;
    int64_t label = tri_target_label(target, values);
    if (label < 0)
        return TRI_FAIL(TRI_BAD_INPUT, "--to imagefolder: sample %lld has no class",
                        (long long)sample);
    TRI_TRY(make_folder(target, label));
    TRI_TRY(tri_target_image(target, &values[tri_target_find(target, "images")], &made, &file,
                             &bytes, &suffix));
    snprintf(path, sizeof path, "%s/%s/%06lld/%09lld.%s", target->folder, target->split,
             (long long)label, (long long)sample, suffix);
    tri_status status = tri_os_replace_fleeting(path, file, bytes);
    free(made);
    return status;
}

static tri_status sync_files(tri_target *target, int64_t samples, tri_target_mark *mark) {
    mark->samples = samples;
    return TRI_OK;
}

static void close_files(tri_target *target) {}
static const char *folder_value(const tri_target *target) { return target->split; }

const tri_target_kind tri_target_imagefolder = {.name = "imagefolder",
                                                .keeps_encoded = true,
                                                .may_leave_out = true,
                                                .marks_at = tri_target_marks_at_times,
                                                .check = check_folder,
                                                .begin = begin_folder,
                                                .put = put_file,
                                                .sync = sync_files,
                                                .end = end_folder,
                                                .close = close_files,
                                                .value = folder_value};

// The archive that is being written. It has its name once it is complete.
typedef struct tar_state {
    FILE *file;
    tri_os_replacement replacement;
    char path[PATH_MAX];
    int64_t first; // its first sample
} tar_state;

static tri_status check_tar(const tri_target *target) {
    return tri_target_check_images(target, "webdataset");
}

static tri_status begin_tar(tri_target *target, tri_target_mark *mark) {
    tar_state *state = TRI_NEW(target->arena, tar_state);
    target->state = state;
    return TRI_OK;
}

static tri_status end_shard(tar_state *state, tri_status status) {
    static const char zeros[2 * BLOCK];
    if (!state->file) return status;
    bool is_written = fwrite(zeros, sizeof zeros, 1, state->file) == 1;
    if (fflush(state->file) != 0) is_written = false;
    if (status == TRI_OK && !is_written) status = tri_os_fail("write", state->path);
    status = tri_os_replacement_end(&state->replacement, status);
    fclose(state->file);
    state->file = NULL;
    return status;
}

static tri_status begin_shard(tri_target *target, int64_t sample) {
    tar_state *state = target->state;
    tri_target_shard(target, sample, "tar", state->path);
    TRI_TRY(tri_os_replacement_begin(state->path, &state->replacement));
    int fd = dup(state->replacement.fd);
    state->file = fd < 0 ? NULL : fdopen(fd, "wb");
    if (state->file) return TRI_OK;
    return tri_os_replacement_end(&state->replacement, tri_os_fail("write", state->path));
}

// Writes a member with a header of the form ustar.
static tri_status write_member(tar_state *state, const char *name, const void *bytes, size_t size) {
    char header[BLOCK] = "", zeros[BLOCK] = "";
    snprintf(header, 100, "%s", name);
    memcpy(header + 100, "0000644\0000000000\0000000000\000", 24);
    snprintf(header + 124, 12, "%011zo", size);
    memcpy(header + 136, "00000000000\000        0", 21);
    memcpy(header + 257, "ustar\00000", 8);
    unsigned sum = 0;
    for (int i = 0; i < BLOCK; i++) sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
    size_t rest = (BLOCK - size % BLOCK) % BLOCK;
    if (fwrite(header, BLOCK, 1, state->file) == 1 && fwrite(bytes, 1, size, state->file) == size &&
        fwrite(zeros, 1, rest, state->file) == rest)
        return TRI_OK;
    return tri_os_fail("write", state->path);
}

static tri_status put_tar(tri_target *target, int64_t sample, const tri_target_value *values) {
    tar_state *state = target->state;
    char *made, name[100], label_text[32];
    const void *file;
    size_t bytes;
    const char *suffix;
    int64_t label = tri_target_label(target, values);
    if (!state->file) TRI_TRY(begin_shard(target, sample));
    TRI_TRY(tri_target_image(target, &values[tri_target_find(target, "images")], &made, &file,
                             &bytes, &suffix));
    snprintf(name, sizeof name, "%09lld.%s", (long long)sample, suffix);
    tri_status status = write_member(state, name, file, bytes);
    free(made);
    if (status != TRI_OK || tri_target_find(target, "labels") == TRI_NO_FIELD) return status;
    if (label < 0)
        return TRI_FAIL(TRI_BAD_INPUT, "--to webdataset: sample %lld has no class",
                        (long long)sample);
    snprintf(name, sizeof name, "%09lld.cls", (long long)sample);
    int length = snprintf(label_text, sizeof label_text, "%lld", (long long)label);
    return write_member(state, name, label_text, (size_t)length);
}

// Only whole archives stay after a kill.
static tri_status sync_tar(tri_target *target, int64_t samples, tri_target_mark *mark) {
    if (!tri_target_is_shard_end(samples)) return TRI_OK;
    TRI_TRY(end_shard(target->state, TRI_OK));
    mark->samples = samples;
    return TRI_OK;
}

static tri_status end_tar(tri_target *target) { return end_shard(target->state, TRI_OK); }

static void close_tar(tri_target *target) {
    if (target->state) (void)end_shard(target->state, TRI_IO); // what is not complete is removed
}

static const char *tar_value(const tri_target *target) { return tri_target_shards(target, "tar"); }

const tri_target_kind tri_target_webdataset = {.name = "webdataset",
                                               .keeps_encoded = true,
                                               .may_leave_out = true,
                                               .marks_at = tri_target_is_shard_end,
                                               .check = check_tar,
                                               .begin = begin_tar,
                                               .put = put_tar,
                                               .sync = sync_tar,
                                               .end = end_tar,
                                               .close = close_tar,
                                               .value = tar_value};
