// Opens weights from any supported source as one list of tensors. A source is one safetensors file,
// a checkpoint, or several safetensors files ("shards") that an index file lists
// (model.safetensors.index.json). So the code that exports, compares or loads weights need not
// distinguish them.
#ifndef TRIREME_CHECKPOINT_WEIGHTS_H
#define TRIREME_CHECKPOINT_WEIGHTS_H

#include "checkpoint/checkpoint.h"
#include "format/safetensors.h"

enum { CHECKPOINT_NO_ENTRY = -1 };

#define CHECKPOINT_INDEX_FILE "model.safetensors.index.json"

typedef struct checkpoint_weights {
    const char *path; // path of the single safetensors file, or of the index file
    bool is_averaged; // they are a checkpoint's averages
    int count;
    tri_safetensors_entry *entries; // the tensors of all files, sorted by name
    const tri_safetensors **files;  // files[i] contains entries[i]
    // It is a network of PyTorch, which may have parameters and buffers that nothing reads.
    bool is_network;
    tri_safetensors **open;
    int open_count;
    // Of a checkpoint: its folder, what describes it, and the file; NULL: it is none.
    const char *folder;
    const struct checkpoint_manifest *manifest;
    const struct checkpoint_file *file;
} checkpoint_weights;

// Opens a .safetensors file, the index of a sharded one, a folder with either, a network
// that PyTorch has exported (format/pt2.h), or a checkpoint. A checkpoint's weights are verified
// first. `evaluated`: the weights are the averages, if the checkpoint has any that evaluations use.
// Everything except the open files lies in `arena`. The caller closes *out, also after a failure.
tri_status checkpoint_weights_open(tri_arena *arena, const char *path, bool evaluated,
                                   checkpoint_weights *out);
// Opens one safetensors file. Even if it belongs to a checkpoint, the checkpoint's other files are
// not looked at.
tri_status checkpoint_weights_open_file(tri_arena *arena, const char *path,
                                        checkpoint_weights *out);
void checkpoint_weights_close(checkpoint_weights *weights);
// Finds the index of the entry called `name`; CHECKPOINT_NO_ENTRY: there is none.
int checkpoint_weights_find(const checkpoint_weights *weights, const char *name);
// Copies elements first … first + count - 1 of entries[index] to `to`, in the file's dtype.
tri_status checkpoint_weights_read(const checkpoint_weights *weights, int index, int64_t first,
                                   int64_t count, void *to);

#endif
