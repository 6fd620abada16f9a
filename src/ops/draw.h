// Random numbers as an input of the op map: which number an element gets. It depends on the key of
// what draws, the step, the sample's number in the step and the element's number in the sample, so
// that ranks and micro-batches, which have some samples or a slice of each, draw what one rank
// would.
#ifndef TRIREME_OPS_DRAW_H
#define TRIREME_OPS_DRAW_H

#include "base/philox.h"

#include <stdint.h>
#include <trireme/tensor.h>

typedef enum tri_draw_kind {
    TRI_DRAW_NONE,
    TRI_DRAW_UNIFORM, // a number in [0, 1), of 24 bits, which every type of F32 or more holds
    TRI_DRAW_KEEPS,   // 0 with a probability p, else 1
} tri_draw_kind;

// Random numbers that an input of map stands for; the value that is read is the graph's input
// `position`. They are those of a tensor of `shape`, whose first axis has the samples, and are read
// as if it were stored: a slice by a view, and its axes of size 1 again and again.
typedef struct tri_map_draw {
    int64_t kind; // a tri_draw_kind
    uint64_t key; // tri_philox_key(seed, name)
    double p;     // of TRI_DRAW_KEEPS
    tri_shape shape;
} tri_map_draw;

// The numbers that are drawn for a tensor, in row-major order, whose first axis has samples.
typedef struct tri_draw_stream {
    int64_t kind; // a tri_draw_kind
    uint64_t key;
    uint64_t threshold; // of TRI_DRAW_KEEPS: 1 from this random word on
    int64_t elements;   // of a sample
} tri_draw_stream;

tri_draw_stream tri_map_stream_of(const tri_map_draw *draw);

TRI_KERNEL_INLINE float tri_draw_number(const tri_draw_stream *draws, uint32_t word) {
    if (draws->kind == TRI_DRAW_KEEPS) return word >= draws->threshold ? 1 : 0;
    return tri_philox_uniform(word);
}

// Draws element `index` of the tensor, of which `position` has the step and the first sample.
TRI_KERNEL_INLINE float tri_draw_at(const tri_draw_stream *draws, const int64_t *position,
                                    int64_t index) {
    int64_t sample = index / draws->elements, element = index % draws->elements;
    tri_philox_block drawn =
        tri_philox_quad(draws->key, (uint64_t)position[0], (uint32_t)position[1] + (uint32_t)sample,
                        (uint64_t)element / 4);
    // A GPU's registers cannot be indexed by a variable.
    uint32_t even = element & 2 ? drawn.word[2] : drawn.word[0];
    uint32_t odd = element & 2 ? drawn.word[3] : drawn.word[1];
    return tri_draw_number(draws, element & 1 ? odd : even);
}

#endif
