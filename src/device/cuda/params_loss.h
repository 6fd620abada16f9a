// Parameters of the kernels of losses and metrics.
#ifndef TRIREME_DEVICE_CUDA_PARAMS_LOSS_H
#define TRIREME_DEVICE_CUDA_PARAMS_LOSS_H

#include <stdbool.h>
#include <stdint.h>
#include <trireme/tensor.h>

#define CUDA_LOSS_KERNEL_LIST(X)                                                                   \
    X(class_rows)                                                                                  \
    X(distance)                                                                                    \
    X(loss_sum)

// What a kernel computes of each row of scores.
typedef enum cuda_class_function {
    CUDA_LOG_SOFTMAX,        // x -> y
    CUDA_LOG_SOFTMAX_GRAD,   // x (log_softmax's output), dy -> y; y may lie over dy
    CUDA_CROSS_ENTROPY,      // x, labels -> terms
    CUDA_CROSS_ENTROPY_GRAD, // x, labels, seed -> y; y may lie over x
    CUDA_NLL,                // x, labels -> terms
    CUDA_NLL_GRAD,           // labels, seed -> y
    CUDA_ACCURACY,           // x, labels -> terms: 1 or 0
    CUDA_ROW_MAX,            // x -> sums [rows]
    // Of a slice of the classes, which begins at class `first` of `classes`:
    CUDA_SLICE_SOFTMAX, // x, labels, max -> sums [rows, 2]
    CUDA_SLICE_GRAD,    // x, labels, max, slice_sums [rows, 2], seed -> y; y may lie over x
    CUDA_SLICE_ARGMAX,  // x, max -> sums [rows]: minus the class, or minus `classes`
} cuda_class_function;

typedef struct cuda_class_rows {
    cuda_class_function function;
    int64_t rows, width; // of x and y
    int64_t first, classes, ignored;
    tri_dtype type, seed_type;
    const void *x, *dy, *seed;
    const int64_t *labels;
    const float *max, *slice_sums;
    void *y;
    double *terms; // [rows]: what the row adds to the loss; 0 for an ignored label
    float *sums;
    struct cuda_fault *fault;
} cuda_class_rows;

// Losses of predictions and targets, in which every element counts. `count` elements in each of
// `samples` samples. CUDA_RELATIVE_L2 has a term for each sample, the others one for each of the
// `parts` that the elements are cut into.
typedef enum cuda_distance_function {
    CUDA_SQUARED_ERROR,
    CUDA_BINARY_CROSS_ENTROPY,
    CUDA_RELATIVE_L2,
} cuda_distance_function;

typedef struct cuda_distance {
    cuda_distance_function function;
    int64_t samples, count, parts;
    tri_dtype type, seed_type;
    const void *prediction, *target, *seed;
    double *terms; // [parts] or [samples]; NULL: the gradient is wanted
    void *dx;
} cuda_distance;
enum { CUDA_DISTANCE_PART = 4096, CUDA_DISTANCE_MAX_PARTS = 1024 };

// What is summed up for a loss.
typedef enum cuda_term {
    CUDA_TERMS,      // terms
    CUDA_SLICE_LOSS, // log(a[2i]) - a[2i + 1]
    CUDA_SLICE_HITS, // whether -a[i] is the label; checks labels
} cuda_term;

// out[0] = the sum of `count` terms, out[1] = how many labels are not ignored; without labels,
// out[1] = whole.
typedef struct cuda_loss_sum {
    cuda_term term;
    int64_t count, ignored, classes;
    double whole;
    const double *terms;
    const float *a;
    const int64_t *labels;
    double *out;
    struct cuda_fault *fault;
} cuda_loss_sum;

#endif
