// Loads a checkpoint into sinks. Read next: verify.c, which reads and checks the files.
#include "checkpoint/find.h"
#include "checkpoint/verify.h"

#include <string.h>

// Loads one file of the checkpoint. With `whole`, reads and verifies every tensor of the file,
// whatever the sink wants and even without a sink.
static tri_status load_file(const char *folder, const checkpoint_manifest *manifest,
                            const char *name, const tri_state_sink *sink, bool whole) {
    tri_state_sink all = sink ? *sink : (tri_state_sink){.count = 0};
    if (whole) all.is_wanted = NULL;
    for (int i = 0; i < manifest->file_count; i++)
        if ((sink || whole) && strcmp(manifest->files[i].name, name) == 0)
            return checkpoint_read_file(folder, manifest, &manifest->files[i], sink ? &all : NULL);
    return sink ? TRI_FAIL(TRI_BAD_INPUT, "%s: was saved without %s", folder, name) : TRI_OK;
}

tri_status tri_checkpoint_read_info(tri_arena *arena, const char *path, tri_checkpoint_info *out) {
    const char *folder;
    checkpoint_manifest manifest;
    TRI_TRY(checkpoint_step_folder(arena, path, &folder));
    TRI_TRY(checkpoint_manifest_read(arena, folder, &manifest));
    *out = manifest.info;
    return TRI_OK;
}

static tri_status load(tri_arena *arena, const char *path, const tri_state_sink *model,
                       const tri_state_sink *optimizer, bool whole, tri_checkpoint_info *out) {
    const char *folder;
    checkpoint_manifest manifest;
    TRI_TRY(checkpoint_step_folder(arena, path, &folder));
    TRI_TRY(checkpoint_open(arena, folder, &manifest));
    TRI_TRY(load_file(folder, &manifest, CHECKPOINT_MODEL_FILE, model, whole));
    TRI_TRY(load_file(folder, &manifest, CHECKPOINT_OPTIMIZER_FILE, optimizer, whole));
    if (out) *out = manifest.info;
    return TRI_OK;
}

tri_status tri_checkpoint_load(tri_arena *arena, const char *path, const tri_state_sink *model,
                               const tri_state_sink *optimizer, tri_checkpoint_info *out) {
    if (out) return load(arena, path, model, optimizer, false, out);
    tri_arena *own = tri_arena_create(NULL, "checkpoint load");
    tri_status status = load(own, path, model, optimizer, false, NULL);
    tri_arena_destroy(own);
    return status;
}

tri_status tri_checkpoint_load_whole(tri_arena *arena, const char *path,
                                     const tri_state_sink *model, const tri_state_sink *optimizer,
                                     tri_checkpoint_info *out) {
    return load(arena, path, model, optimizer, true, out);
}
