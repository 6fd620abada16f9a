// The kinds of recurrent layers. The host and kernels of a GPU use the same code.
#ifndef TRIREME_OPS_RECURRENT_KIND_H
#define TRIREME_OPS_RECURRENT_KIND_H

#include "base/kernel_inline.h"

#include <stdint.h>

typedef enum tri_recurrent_kind {
    TRI_RECURRENT_TANH,
    TRI_RECURRENT_RELU,
    TRI_RECURRENT_LSTM, // gates: input, forget, cell, output
    TRI_RECURRENT_GRU,  // gates: reset, update, new
    TRI_RECURRENT_KINDS
} tri_recurrent_kind;

// How many gates a unit has: sums that are made in every step. The gates of a kind lie one behind
// the other, each with all H units, as in PyTorch: [gates · H].
TRI_KERNEL_INLINE int64_t tri_recurrent_gates(int64_t kind) {
    return kind == TRI_RECURRENT_LSTM ? 4 : kind == TRI_RECURRENT_GRU ? 3 : 1;
}

#endif
