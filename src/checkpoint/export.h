// Weights that are written for other programs, converted on the way: what the exports to one file
// and to a folder share.
#ifndef TRIREME_CHECKPOINT_EXPORT_H
#define TRIREME_CHECKPOINT_EXPORT_H

#include "checkpoint/adapters.h"

// Where a tensor is read.
typedef struct checkpoint_place {
    const checkpoint_weights *from;
    int entry; // of its entries
} checkpoint_place;

typedef struct checkpoint_exported {
    checkpoint_weights weights;
    checkpoint_weights program; // has what a run does not train
    int count;
    tri_state_tensor *tensors; // the tensors, with the dtypes to be written
    checkpoint_place *places;  // where each of them is read
    checkpoint_adapters adapters;
    bool is_merged;    // the adapters are added to the weights
    bool is_apart;     // the adapters are written as tensors beside the weights
    char *buffer;      // one chunk as it was read, in the dtype of its file
    double *sums;      // elements with what their adapter adds
    int64_t overflows; // finite values that became infinite
    int overflowed;    // the first tensor that had one
} checkpoint_exported;

// Opens `path` (checkpoint_weights_open), and chooses the tensors to write. `kind`, `dtype`,
// `program`: as for tri_checkpoint_export. Everything except the open files lies in `arena`. The
// caller calls checkpoint_export_close, also after a failure.
tri_status checkpoint_export_open(tri_arena *arena, const char *path, tri_export_kind kind,
                                  const char *dtype, const char *program, checkpoint_exported *e);
void checkpoint_export_close(checkpoint_exported *e);
// Adds the tensors of an exported network that the weights have not.
tri_status checkpoint_export_complete(tri_arena *arena, const char *path, const char *program,
                                      checkpoint_exported *e);
// The size of a tensor as it is written.
int64_t checkpoint_export_bytes(const checkpoint_exported *e, int tensor);
// Copies elements of a tensor to `to`, in the dtype in which it is written.
tri_status checkpoint_export_read(checkpoint_exported *e, int tensor, int64_t first, int64_t count,
                                  void *to);
// Writes one .safetensors file atomically (tri_checkpoint_write_weights).
tri_status checkpoint_export_write(tri_arena *arena, const char *path,
                                   const tri_state_source *model);
// Prints what was written, without a line feed at the end.
void checkpoint_export_tell(const checkpoint_exported *e, const char *out_path, FILE *out);
// Warns of values that became infinite, and of adapters whose factor the file does not have.
void checkpoint_export_warn(const checkpoint_exported *e, const char *out_path);

#endif
