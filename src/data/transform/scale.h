// Inside of scale.c: the weights of an axis, and the faster way to use them on processors with
// AVX2.
#ifndef TRIREME_DATA_TRANSFORM_SCALE_H
#define TRIREME_DATA_TRANSFORM_SCALE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SCALE_PRECISION_BITS = 22, SCALE_PIXEL_BYTES = 4 };

// For each position of a result's axis: its first input position, how many it averages, and
// weights [taps].
typedef struct scale_axis {
    int64_t inputs, outputs, taps;
    const int32_t *first, *count, *weights;
    int64_t low, high; // the first input position that is used, and the one behind the last
} scale_axis;

// The same weights for two inputs at a time. Processors multiply and add pairs of 16 bits at once,
// so each weight is split into its upper bits and its lower 11, whose sums are added in the end:
// the result is the same to the bit.
typedef struct scale_pairs {
    int64_t outputs, pairs; // pairs of inputs of each output
    const int32_t *first;   // input positions
    const int16_t *weights; // [outputs, pairs, upper and lower, 2]
} scale_pairs;

// Room for the pairs of an axis with so many outputs and taps.
size_t scale_pairs_bytes(int64_t outputs, int64_t taps);
// Splits the weights. False: this processor has no AVX2, or the inputs are fewer than the pairs.
bool scale_pairs_make(const scale_axis *axis, void *memory, scale_pairs *out);
// Scales rows `low` to `high` of pixels along the row. Row i of the result begins at to + i *
// (bytes of a row of outputs).
void scale_pairs_rows(const scale_pairs *axis, const uint8_t *from, int64_t row_stride, int64_t low,
                      int64_t high, uint8_t *to);
// Makes all rows of the result from rows of `row_bytes` bytes, at least SCALE_LEAST_BYTES.
enum { SCALE_LEAST_BYTES = 32 };
void scale_pairs_columns(const scale_pairs *axis, const uint8_t *from, int64_t row_bytes,
                         uint8_t *to);

#endif
