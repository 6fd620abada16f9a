// The low-rank adapters among a checkpoint's weights (tri_lora in graph/graph.h): merges them into
// the weights beside which they are, and describes them as peft does.
#ifndef TRIREME_CHECKPOINT_ADAPTERS_H
#define TRIREME_CHECKPOINT_ADAPTERS_H

#include "checkpoint/weights.h"

// One adapter, by the numbers of its entries in checkpoint_weights.
typedef struct checkpoint_adapter {
    const char *layer;
    int weight, a, b;   // of the weight [out, in], of A [rank, in], and of B [out, rank]
    bool is_transposed; // the file has the weight as [in, out]
} checkpoint_adapter;

typedef struct checkpoint_adapters {
    int count; // 0: there are none, or none is of interest
    checkpoint_adapter *items;
    int64_t rank;
    double alpha, dropout;
    const char *recipe; // of the checkpoint; NULL: it has none
    // A and B of the adapter that was used last, and its number plus 1.
    double *a, *b;
    int loaded;
} checkpoint_adapters;

// Whether a tensor of this name is one of an adapter's matrices.
bool checkpoint_is_adapter(const char *name);
// Finds the adapters of `weights`, which were opened from `path`. TRI_BAD_INPUT: there are none, or
// the path is no checkpoint, which alone tells by what they are multiplied. TRI_CORRUPT: shapes do
// not fit together.
tri_status checkpoint_adapters_find(tri_arena *arena, const char *path,
                                    const checkpoint_weights *weights, checkpoint_adapters *out);
// Whether one of the adapters adds to this entry.
bool checkpoint_adapters_has(const checkpoint_adapters *adapters, int entry);
// Adds alpha / rank · B · A to elements first … first + count - 1 of such an entry.
tri_status checkpoint_adapters_add(checkpoint_adapters *adapters, const checkpoint_weights *weights,
                                   int entry, int64_t first, int64_t count, double *values);
// Makes the folder if it is missing and writes adapter_config.json into it. *file: the path of the
// tensors that belong there. TRI_BAD_INPUT: the folder has other files.
tri_status checkpoint_adapters_write_config(tri_arena *arena, const char *folder,
                                            const checkpoint_adapters *adapters,
                                            const checkpoint_weights *weights, const char **file);

#endif
