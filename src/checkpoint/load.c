// Loads a checkpoint into sinks. Read next: verify.c, which reads and checks the files.
#include "checkpoint/find.h"
#include "checkpoint/verify.h"

// Loads one file of the checkpoint. With `whole`, reads and verifies every tensor of the file,
// whatever the sink wants and even without a sink.
static tri_status load_file(const char *folder, const checkpoint_manifest *manifest,
                            const char *name, const tri_state_sink *sink, bool whole) {
    tri_state_sink all = sink ? *sink : (tri_state_sink){.count = 0};
    if (whole) all.next_wanted = NULL;
    const checkpoint_file *file = checkpoint_manifest_file(manifest, name);
    if (file && (sink || whole))
        return checkpoint_read_file(folder, manifest, file, sink ? &all : NULL);
    return sink && !file ? TRI_FAIL(TRI_BAD_INPUT, "%s: was saved without %s", folder, name)
                         : TRI_OK;
}

tri_status tri_checkpoint_read_info(tri_arena *arena, const char *path, tri_checkpoint_info *out) {
    const char *folder;
    checkpoint_manifest manifest;
    TRI_TRY(checkpoint_step_folder(arena, path, &folder));
    TRI_TRY(checkpoint_manifest_read(arena, folder, &manifest));
    *out = manifest.info;
    return TRI_OK;
}

static tri_status load(tri_arena *arena, const char *path, const tri_checkpoint_sinks *sinks,
                       bool whole, tri_checkpoint_info *out) {
    const char *folder;
    checkpoint_manifest manifest;
    TRI_TRY(checkpoint_step_folder(arena, path, &folder));
    TRI_TRY(checkpoint_open(arena, folder, &manifest));
    TRI_TRY(load_file(folder, &manifest, CHECKPOINT_MODEL_FILE, sinks->model, whole));
    TRI_TRY(load_file(folder, &manifest, CHECKPOINT_OPTIMIZER_FILE, sinks->optimizer, whole));
    TRI_TRY(load_file(folder, &manifest, CHECKPOINT_AVERAGE_FILE, sinks->average, whole));
    if (out) *out = manifest.info;
    return TRI_OK;
}

tri_status tri_checkpoint_load(tri_arena *arena, const char *path,
                               const tri_checkpoint_sinks *sinks, tri_checkpoint_info *out) {
    if (out) return load(arena, path, sinks, false, out);
    tri_arena *own = tri_arena_create(NULL, "checkpoint load");
    tri_status status = load(own, path, sinks, false, NULL);
    tri_arena_destroy(own);
    return status;
}

tri_status tri_checkpoint_load_whole(tri_arena *arena, const char *path,
                                     const tri_checkpoint_sinks *sinks, tri_checkpoint_info *out) {
    return load(arena, path, sinks, true, out);
}
