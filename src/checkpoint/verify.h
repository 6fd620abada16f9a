// Reading a checkpoint's files against state.json, with or without somebody who wants the bytes.
#ifndef TRIREME_CHECKPOINT_VERIFY_H
#define TRIREME_CHECKPOINT_VERIFY_H

#include "checkpoint/manifest.h"

// Reads and verifies one file; `sink` NULL: only that. A sink has to have exactly its tensors.
tri_status checkpoint_read_file(const char *folder, const checkpoint_manifest *manifest,
                                const checkpoint_file *file, const tri_state_sink *sink);
// The manifest of a step's folder, which has to be of the step that the folder is named after.
tri_status checkpoint_open(tri_arena *arena, const char *folder, checkpoint_manifest *manifest);
// Every file of a checkpoint. *manifest lies in `arena`.
tri_status checkpoint_verify(tri_arena *arena, const char *folder, checkpoint_manifest *manifest);
// One of `parts` parts of that, which together are all of it: piece by piece in turn.
tri_status checkpoint_verify_part(tri_arena *arena, const char *folder, int part, int parts,
                                  checkpoint_manifest *manifest);

// Which tensor of a sink each entry is for (-1: none), by name. Every tensor of the sink has an
// entry, but for buffers if `may_lack_buffers`, and every entry has a tensor; else TRI_BAD_INPUT
// with the nearest name. Shapes must be equal. dtypes are left to the caller.
tri_status checkpoint_match(tri_arena *arena, const char *path,
                            const tri_safetensors_entry *entries, int count,
                            const tri_state_sink *sink, bool may_lack_buffers, int **out);

#endif
