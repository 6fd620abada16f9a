// The parameters of the module's kernels that work along one axis by the numbers of its elements.
#ifndef TRIREME_DEVICE_CUDA_PARAMS_INDEX_H
#define TRIREME_DEVICE_CUDA_PARAMS_INDEX_H

#include "ops/index_axis.h"

#include <stdbool.h>
#include <stdint.h>
#include <trireme/tensor.h>

#define CUDA_INDEX_KERNEL_LIST(X)                                                                  \
    X(gather)                                                                                      \
    X(scatter)                                                                                     \
    X(argmax)                                                                                      \
    X(sort)                                                                                        \
    X(scan)                                                                                        \
    X(scan_grad)

// y [outer, count, inner] = the elements of x [outer, size, inner] that the index names.
typedef struct cuda_gather {
    index_axis axis;
    int element_bytes; // 1, 2, 4 or 8
    const int64_t *index;
    const void *x;
    void *y;
    // For each element of x the last index that names it, by which an index that is there again
    // later takes 0; NULL: it takes the element.
    int64_t *later;
    int64_t owners; // as in cuda_scatter, for `later`
    struct cuda_fault *fault;
} cuda_gather;

enum { CUDA_SCATTER_SET, CUDA_SCATTER_ADD, CUDA_SCATTER_MAX }; // the values of tri_scatter_kind

// y [outer, size, inner] = base (NULL: 0), with the elements of source [outer, count, inner] put
// where the index says. A thread goes through the indices of one outer and one inner index in their
// order, and takes those that are its own: of `owners` threads, those that are equal to its number
// modulo `owners`. So no two threads write one element, and each sum has the order of the index.
typedef struct cuda_scatter {
    index_axis axis;
    int kind;
    tri_dtype type;
    int64_t owners;
    const int64_t *index;
    const void *source, *base;
    void *y;
    void *room; // as y, but F32 if `type` is a half type, so that sums are rounded once; else y
    struct cuda_fault *fault;
} cuda_scatter;

// As many that a GPU has work, and no more than there are elements.
enum { CUDA_SCATTER_THREADS = 1 << 14 };
TRI_KERNEL_INLINE int64_t cuda_scatter_owners(const axis_cut *cut) {
    int64_t columns = cut->outer * cut->inner;
    int64_t wanted = columns > 0 ? CUDA_SCATTER_THREADS / columns : 1;
    if (wanted > cut->size) wanted = cut->size;
    return wanted < 1 ? 1 : wanted;
}

// index [outer, inner] = where along the axis of x [outer, size, inner] the first of the largest
// elements is, or of the smallest; NaN is both.
typedef struct cuda_argmax {
    axis_cut cut;
    bool minimum;
    tri_dtype type;
    const void *x;
    int64_t *index;
} cuda_argmax;

// y, index [outer, count, inner] = the first `count` elements of x [outer, size, inner] in their
// order. Keys (ops/sort_key.h) and numbers of the elements of each axis lie together, in the
// workspace: first runs of CUDA_SORT_RUN are sorted, then runs are merged from one pair of arrays
// into the other, until there is one run.
typedef struct cuda_sort {
    axis_cut cut;
    int64_t count, run; // run: the size of the runs that are merged
    bool descending;
    tri_dtype type;
    const void *x;
    void *y;
    int64_t *index;
    int64_t *keys[2];  // [outer · inner, size]
    int32_t *order[2]; // [outer · inner, size]
} cuda_sort;
enum { CUDA_SORT_RUN = 8 };

// y, index = the scan along the axis of x (ops/scan_step.h); index NULL: the scan finds no extreme.
typedef struct cuda_scan {
    axis_cut cut;
    int64_t kind; // a tri_scan_kind
    bool reverse;
    tri_dtype type;
    const void *x;
    void *y;
    int64_t *index;
} cuda_scan;

// dx = the gradient of a running product or logarithm of sums.
typedef struct cuda_scan_grad {
    axis_cut cut;
    int64_t kind;
    tri_dtype type;
    const void *x, *y, *dy;
    void *dx;
} cuda_scan_grad;

#endif
