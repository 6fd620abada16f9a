// Reads the files of a checkpoint and checks every chunk against its hash in state.json, with or
// without a sink for the tensors.
#ifndef TRIREME_CHECKPOINT_VERIFY_H
#define TRIREME_CHECKPOINT_VERIFY_H

#include "checkpoint/manifest.h"

// Reads and verifies one file of a checkpoint. With a sink, also passes it the tensors, so that the
// file is read only once; the sink's tensors must be exactly those of the file. NULL: only
// verifies.
tri_status checkpoint_read_file(const char *folder, const checkpoint_manifest *manifest,
                                const checkpoint_file *file, const tri_state_sink *sink);
// Reads the manifest of a step's folder. TRI_CORRUPT if the folder is named after another step:
// then somebody renamed it, and its step would be wrong.
tri_status checkpoint_open(tri_arena *arena, const char *folder, checkpoint_manifest *manifest);
// Verifies every file of a checkpoint. *manifest lies in `arena`.
tri_status checkpoint_verify(tri_arena *arena, const char *folder, checkpoint_manifest *manifest);
// Verifies every `ranks`-th chunk, beginning at chunk `rank`: the ranks together verify all, each a
// part of the bytes.
tri_status checkpoint_verify_chunks(tri_arena *arena, const char *folder, int rank, int ranks,
                                    checkpoint_manifest *manifest);

// Pairs the tensors of a file with those of a sink by name, because their orders may differ:
// (*out)[i] is the index in the sink of entries[i]. TRI_BAD_INPUT with the nearest name if an entry
// or a tensor of the sink has no partner (a buffer of the sink may lack one if `may_lack_buffers`),
// or if shapes differ. The caller compares the dtypes.
tri_status checkpoint_match(tri_arena *arena, const char *path,
                            const tri_safetensors_entry *entries, int count,
                            const tri_state_sink *sink, bool may_lack_buffers, int **out);

#endif
