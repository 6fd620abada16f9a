// Weights wherever they lie: one safetensors file, the shards of an index, or a checkpoint.
#ifndef TRIREME_CHECKPOINT_WEIGHTS_H
#define TRIREME_CHECKPOINT_WEIGHTS_H

#include "checkpoint/checkpoint.h"
#include "format/safetensors.h"

typedef struct checkpoint_weights {
    const char *path; // of the file that names all others
    int count;
    tri_safetensors_entry *entries; // of all files, sorted by name
    const tri_safetensors **files;  // files[i] holds entries[i]
    tri_safetensors **open;
    int open_count;
} checkpoint_weights;

// `path` as of tri_checkpoint_load_weights; a checkpoint is verified first. All but the open files
// lies in `arena`; close also after a failure.
tri_status checkpoint_weights_open(tri_arena *arena, const char *path, checkpoint_weights *out);
// One safetensors file, whatever else lies around it.
tri_status checkpoint_weights_open_file(tri_arena *arena, const char *path,
                                        checkpoint_weights *out);
void checkpoint_weights_close(checkpoint_weights *weights);
int checkpoint_weights_find(const checkpoint_weights *weights, const char *name); // or -1
tri_status checkpoint_weights_read(const checkpoint_weights *weights, int index, int64_t first,
                                   int64_t count, void *to);

#endif
