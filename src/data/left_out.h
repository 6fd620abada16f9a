// The damaged samples that a data set has left out (data.on_error: skip). Each counts once, however
// often it is read.
#ifndef TRIREME_DATA_LEFT_OUT_H
#define TRIREME_DATA_LEFT_OUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// Zero: none yet. Any number of threads adds.
typedef struct tri_left_out {
    _Atomic int64_t count;
    _Atomic(_Atomic uint8_t *) seen; // a bit for each sample; NULL: none yet
} tri_left_out;

// Adds number `sample` of `samples`. Warns of it by the message of the last error; after the first
// few, samples are only counted.
void tri_left_out_add(tri_left_out *left_out, int64_t samples, int64_t sample);
// Whether the sample has been added.
bool tri_left_out_has(const tri_left_out *left_out, int64_t sample);
// Says how many there were, if not all were named, and frees what is allocated. `split`: of whose
// data, for the message.
void tri_left_out_end(tri_left_out *left_out, const char *split);

#endif
