// The initial values of a parameter: any range of its elements, from the seed and the name alone.
#ifndef TRIREME_ENGINE_INITIAL_H
#define TRIREME_ENGINE_INITIAL_H

#include "graph/graph.h"

typedef struct engine_initial {
    tri_init init; // as tri_init_resolve has it
    uint64_t key;
    int64_t rows, columns; // of the whole parameter, [rows, …]
    int64_t taps, middle;  // of a kernel: its size, and its middle element
    double *vectors;       // of an orthogonal matrix: its rows or columns, whichever are fewer
    bool *is_zero;         // of a sparse matrix
    double *norms;         // the values themselves, of a parameter that begins as norms of another
} engine_initial;

// Prepares the values of a parameter, as tri_parameter_stored describes it. TRI_NO_MEMORY:
// ORTHOGONAL and SPARSE take a matrix in memory, norms all that there are.
tri_status engine_initial_begin(const tri_parameter_info *parameter, uint64_t seed,
                                engine_initial *out);
// Makes `count` elements of the full parameter, from element `first` on. Any threads may call it.
void engine_initial_make(const engine_initial *initial, int64_t first, int64_t count, float *out);
void engine_initial_end(engine_initial *initial);

#endif
