// The commands `trireme checkpoint list` and `verify`.
#include "base/os.h"
#include "base/quantity.h"
#include "checkpoint/find.h"
#include "checkpoint/verify.h"
#include "checkpoint/weights.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *time_text(tri_arena *arena, int64_t unix_s) {
    char text[32] = "?";
    struct tm parts;
    time_t when = (time_t)unix_s;
    if (gmtime_r(&when, &parts)) strftime(text, sizeof text, "%Y-%m-%d %H:%M:%SZ", &parts);
    return tri_arena_strdup(arena, text);
}

// Whether the run has removed a checkpoint since the folder was scanned.
static bool is_removed(const char *path) {
    bool is_there = true;
    return tri_os_exists(path, &is_there) == TRI_OK && !is_there;
}

// Checks a checkpoint quickly, without reading its tensors: only that its files exist with their
// full length. Returns "" or what is wrong with it.
static const char *what_is_wrong(tri_arena *arena, const checkpoint_step *step) {
    if (step->readable != TRI_OK) return step->why;
    for (int i = 0; i < step->manifest.file_count; i++) {
        const checkpoint_file *file = &step->manifest.files[i];
        struct stat info;
        if (stat(tri_arena_printf(arena, "%s/%s", step->path, file->name), &info) < 0)
            return errno == ENOENT ? tri_arena_printf(arena, "%s is missing", file->name)
                                   : tri_arena_printf(arena, "%s: %s", file->name, strerror(errno));
        if (info.st_size != file->size_bytes)
            return tri_arena_printf(arena, "%s has another length", file->name);
    }
    return "";
}

static void print_json(tri_arena *arena, const tri_tree *line, FILE *out) {
    fprintf(out, "%s\n", tri_json_emit(arena, line));
}

static void list_json(tri_arena *arena, const char *home, const checkpoint_step *step,
                      const char *fault, FILE *out) {
    const tri_checkpoint_info *info = &step->manifest.info;
    tri_tree *line = tri_tree_map(arena);
    tri_tree_put(arena, line, "step", tri_tree_int(arena, step->step));
    tri_tree_put(arena, line, "path", tri_tree_string(arena, step->path));
    tri_tree_put(arena, line, "whole", tri_tree_bool(arena, !*fault));
    if (*fault) tri_tree_put(arena, line, "why", tri_tree_string(arena, fault));
    if (step->readable == TRI_OK) {
        const tri_tree *epoch = tri_tree_get(info->training, "epoch");
        if (epoch) tri_tree_put(arena, line, "epoch", tri_tree_copy(arena, epoch));
        if (info->monitor.is_known)
            tri_tree_put(arena, line, info->monitor.name,
                         tri_tree_double(arena, info->monitor.value));
        tri_tree_put(arena, line, "bytes",
                     tri_tree_int(arena, checkpoint_manifest_bytes(&step->manifest)));
        tri_tree_put(arena, line, "saved_unix_s", tri_tree_int(arena, info->saved_unix_s));
        tri_tree_put(arena, line, "program", tri_tree_string(arena, info->program));
    }
    tri_tree_put(arena, line, "last",
                 tri_tree_bool(arena, checkpoint_links_to(arena, home, "last", step->path)));
    tri_tree_put(arena, line, "best",
                 tri_tree_bool(arena, checkpoint_links_to(arena, home, "best", step->path)));
    print_json(arena, line, out);
}

static void list_line(tri_arena *arena, const char *home, const checkpoint_step *step,
                      const char *fault, FILE *out) {
    const tri_checkpoint_info *info = &step->manifest.info;
    if (step->readable != TRI_OK) {
        fprintf(out, "%10lld  damaged: %s\n", (long long)step->step, fault);
        return;
    }
    const tri_tree *epoch = tri_tree_get(info->training, "epoch");
    const char *value =
        !info->monitor.is_known
            ? ""
            : tri_arena_printf(arena, "%s %.6g", info->monitor.name, info->monitor.value);
    bool last = checkpoint_links_to(arena, home, "last", step->path);
    bool best = checkpoint_links_to(arena, home, "best", step->path);
    const char *links = last && best ? "  last best" : last ? "  last" : best ? "  best" : "";
    fprintf(out, "%10lld  %5s  %-22s  %9s  %s%s%s%s\n", (long long)step->step,
            epoch && epoch->kind == TRI_TREE_SCALAR ? epoch->text : "", value,
            tri_bytes_text((double)checkpoint_manifest_bytes(&step->manifest)),
            time_text(arena, info->saved_unix_s), links, *fault ? "  damaged: " : "", fault);
}

static tri_status list(tri_arena *arena, const char *path, bool json, FILE *out) {
    char real[PATH_MAX];
    if (!realpath(path, real)) return tri_os_fail("open", path);
    struct stat info;
    if (stat(real, &info) == 0 && S_ISREG(info.st_mode)) return checkpoint_refuse_file(path);
    const char *home;
    checkpoint_steps steps = {0};
    TRI_TRY(checkpoint_home_of(arena, real, &home));
    if (home) TRI_TRY(checkpoint_scan(arena, home, &steps));
    if (steps.count == 0) return TRI_FAIL(TRI_NOT_FOUND, "%s: there is no checkpoint in it", path);
    if (!json)
        fprintf(out, "%10s  %5s  %-22s  %9s  %-20s  %s\n", "step", "epoch", "monitor", "size",
                "saved", "links");
    for (int i = steps.count - 1; i >= 0; i--) { // the newest is printed last, next to the prompt
        const checkpoint_step *step = &steps.items[i];
        const char *fault = what_is_wrong(arena, step);
        if (!*fault || !is_removed(step->path))
            (json ? list_json : list_line)(arena, home, step, fault, out);
    }
    return TRI_OK;
}

tri_status tri_checkpoint_list(const char *run_dir, bool json, FILE *out) {
    tri_arena *arena = tri_arena_create(NULL, "checkpoint list");
    tri_status status = list(arena, run_dir, json, out);
    tri_arena_destroy(arena);
    return status;
}

static void report(tri_arena *arena, const char *path, tri_status status, int64_t bytes,
                   const char *checked, bool json, FILE *out) {
    if (json) {
        tri_tree *line = tri_tree_map(arena);
        tri_tree_put(arena, line, "path", tri_tree_string(arena, path));
        tri_tree_put(arena, line, "ok", tri_tree_bool(arena, status == TRI_OK));
        if (status == TRI_OK) {
            tri_tree_put(arena, line, "checked", tri_tree_string(arena, checked));
            tri_tree_put(arena, line, "bytes", tri_tree_int(arena, bytes));
        } else {
            tri_tree_put(arena, line, "why", tri_tree_string(arena, tri_error_message()));
        }
        print_json(arena, line, out);
    } else if (status == TRI_OK) {
        fprintf(out, "%s: ok (%s, %s)\n", path, checked, tri_bytes_text((double)bytes));
    }
}

// Verifies one checkpoint, which was there when its path was found. A checkpoint that the run
// removes or replaces meanwhile is not damaged.
static tri_status verify_step(tri_arena *arena, const char *path, bool json, FILE *out) {
    checkpoint_manifest manifest;
    struct stat before = {0}, after = {0};
    tri_status status;
    do {
        (void)stat(path, &before);
        status = checkpoint_verify(arena, path, &manifest);
        if (status != TRI_OK && is_removed(path)) {
            report(arena, path, TRI_OK, 0, "nothing: the run removed it meanwhile", json, out);
            return TRI_OK;
        }
    } while (status != TRI_OK && stat(path, &after) == 0 && after.st_ino != before.st_ino);
    int64_t bytes = status == TRI_OK ? checkpoint_manifest_bytes(&manifest) : 0;
    report(arena, path, status, bytes, "every hash", json, out);
    return status;
}

// Checks files of weights that are given without a checkpoint's state.json. Their hashes are not
// known, so only their headers and lengths can be checked.
static tri_status verify_weights(tri_arena *arena, const char *path, bool json, FILE *out) {
    checkpoint_weights weights;
    tri_status status = checkpoint_weights_open(arena, path, false, &weights);
    int64_t bytes = 0;
    for (int i = 0; status == TRI_OK && i < weights.open_count; i++)
        bytes += tri_safetensors_size_bytes(weights.open[i]);
    report(arena, path, status, bytes, "header and length; there are no hashes", json, out);
    checkpoint_weights_close(&weights);
    return status;
}

static tri_status verify_all(tri_arena *arena, const char *path, const char *home, bool json,
                             FILE *out) {
    checkpoint_steps steps;
    TRI_TRY(checkpoint_scan(arena, home, &steps));
    if (steps.count == 0) return TRI_FAIL(TRI_NOT_FOUND, "%s: there is no checkpoint in it", path);
    tri_status first = TRI_OK;
    const char *why = NULL;
    for (int i = steps.count - 1; i >= 0; i--) {
        tri_status status = verify_step(arena, steps.items[i].path, json, out);
        if (status == TRI_OK || first != TRI_OK) continue;
        first = status;
        why = tri_arena_strdup(arena, tri_error_message());
    }
    return first == TRI_OK ? TRI_OK : TRI_FAIL(first, "%s", why);
}

static tri_status verify(tri_arena *arena, const char *path, bool json, FILE *out) {
    char real[PATH_MAX];
    checkpoint_kind kind;
    const char *found;
    const char *home;
    if (!realpath(path, real)) return tri_os_fail("open", path);
    TRI_TRY(checkpoint_home_of(arena, real, &home));
    if (home) return verify_all(arena, path, home, json, out);
    TRI_TRY(checkpoint_resolve(arena, path, &kind, &found));
    return (kind == CHECKPOINT_IS_STEP ? verify_step : verify_weights)(arena, found, json, out);
}

tri_status tri_checkpoint_verify(const char *path, bool json, FILE *out) {
    tri_arena *arena = tri_arena_create(NULL, "checkpoint verify");
    tri_status status = verify(arena, path, json, out);
    tri_arena_destroy(arena);
    return status;
}
