// Reads the files of a checkpoint and checks every chunk against its hash in state.json. If there
// is a sink (tri_state_sink), a load writes the tensors to it; without one the files are only
// checked.
#ifndef TRIREME_CHECKPOINT_VERIFY_H
#define TRIREME_CHECKPOINT_VERIFY_H

#include "checkpoint/manifest.h"

// Reads and verifies one file of a checkpoint. If `sink` is not NULL, the sink gets the tensors
// while they are verified, so that the file is read only once; its tensors must be exactly those of
// the file.
tri_status checkpoint_read_file(const char *folder, const checkpoint_manifest *manifest,
                                const checkpoint_file *file, const tri_state_sink *sink);
// Whether somebody reads some of the elements first … first + count - 1 of a tensor, whose data
// begin at byte `offset` of the file.
typedef bool checkpoint_wants(void *context, int64_t offset, int64_t first, int64_t count);
// Verifies one file: its header, and the chunks that somebody wants; NULL: all.
tri_status checkpoint_verify_file(const char *folder, const checkpoint_manifest *manifest,
                                  const checkpoint_file *file, checkpoint_wants *wants,
                                  void *context);
// Reads state.json in a checkpoint's folder. TRI_CORRUPT also if the folder's name and state.json
// name different steps: then somebody has renamed the folder.
tri_status checkpoint_open(tri_arena *arena, const char *folder, checkpoint_manifest *manifest);
// Verifies every file of a checkpoint. *manifest lies in `arena`.
tri_status checkpoint_verify(tri_arena *arena, const char *folder, checkpoint_manifest *manifest);
// Verifies every `ranks`-th chunk, beginning with chunk `rank`: so the ranks together verify all
// chunks, each about the same number.
tri_status checkpoint_verify_chunks(tri_arena *arena, const char *folder, int rank, int ranks,
                                    checkpoint_manifest *manifest);

// Gets the type in which a sink takes the tensor's elements.
tri_dtype checkpoint_taken_dtype(const tri_state_tensor *tensor);
// Pairs the tensors of a file with those of a sink by name, because their orders may differ:
// entries[i] of the file belongs to the sink's tensor number (*out)[i]. TRI_BAD_INPUT: the shapes
// of a pair differ, or a tensor has no partner; the message lists all such, with the nearest names.
// may_lack (NULL: none may) says which of the sink's tensors the file may lack. The caller compares
// the dtypes.
tri_status checkpoint_match(tri_arena *arena, const char *path,
                            const tri_safetensors_entry *entries, int count,
                            const tri_state_sink *sink, const bool *may_lack, int **out);

#endif
