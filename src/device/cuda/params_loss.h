// Parameters of the module's kernels of losses and metrics. A row has the scores of one prediction,
// one for each class. The term of a row is what it adds to the loss or the metric. The seed is the
// gradient with respect to the sum of these terms, with which the backward pass begins.
#ifndef TRIREME_DEVICE_CUDA_PARAMS_LOSS_H
#define TRIREME_DEVICE_CUDA_PARAMS_LOSS_H

#include <stdbool.h>
#include <stdint.h>
#include <trireme/tensor.h>

#define CUDA_LOSS_KERNEL_LIST(X)                                                                   \
    X(class_rows)                                                                                  \
    X(softmax_columns)                                                                             \
    X(distance)                                                                                    \
    X(loss_sum)

// The functions of a row of scores. Each comment names the members of cuda_class_rows that the
// function reads and, behind the arrow, the one that it writes; x is the scores.
typedef enum cuda_class_function {
    CUDA_SOFTMAX,            // x -> y
    CUDA_SOFTMAX_GRAD,       // x (the output of softmax), dy -> y; y may be the memory of dy
    CUDA_LOG_SOFTMAX,        // x -> y
    CUDA_LOG_SOFTMAX_GRAD,   // x (the output of log_softmax), dy -> y; y may be the memory of dy
    CUDA_CROSS_ENTROPY,      // x, labels -> terms
    CUDA_CROSS_ENTROPY_GRAD, // x, labels, seed -> y; y may be the memory of x
    CUDA_NLL,                // x, labels -> terms
    CUDA_NLL_GRAD,           // labels, seed -> y
    CUDA_ONE_HOT,            // labels -> y: 1 at the label, 0 elsewhere
    CUDA_SOFT_NLL,           // x, dy (the soft labels) -> terms, row_labels (0 or `ignored`)
    CUDA_SOFT_NLL_GRAD,      // x (the soft labels), seed -> y
    CUDA_TOP_CLASS,          // x -> row_labels: the first largest, or `ignored` if all are 0
    CUDA_ACCURACY,           // x, labels -> terms: 1 where the prediction is right, else 0
    CUDA_ROW_MAX,            // x -> row_results [rows]: the largest score
    // The remaining functions serve ranks that share the classes: each rank has the scores of one
    // slice of the `classes` classes, which begins at class `first`. `max` is the largest score of
    // a row over all slices.
    //
    // x, labels, max -> row_results [rows, 2]: the sum of exp(x - max) over the slice, and the
    // label's x - max; 0 if the label is in another slice.
    CUDA_SLICE_SOFTMAX,
    // x, labels, max, slice_sums, seed -> y; y may be the memory of x. slice_sums [rows, 2] is the
    // sum over all slices of what CUDA_SLICE_SOFTMAX has made.
    CUDA_SLICE_GRAD,
    // x, max -> row_results [rows]: -c, where c is the first class of this slice with the score
    // `max`, or `classes` if there is none. The maximum of the slices' -c is then -(the first such
    // class of all): if the largest score is that of classes 3 and 7, max(-3, -7) = -3.
    CUDA_SLICE_ARGMAX,
} cuda_class_function;

typedef struct cuda_class_rows {
    cuda_class_function function;
    int64_t rows, width; // number of rows, and scores in each
    // For functions that see a slice of the classes: the first class of the slice, and the number
    // of all classes. `ignored`: the label of rows that do not count.
    int64_t first, classes, ignored;
    tri_dtype type, seed_type; // type of x, dy and y; type of the seed
    const void *x, *dy, *seed;
    const int64_t *labels; // [rows]
    const float *max, *slice_sums;
    void *y;
    double *terms; // [rows]: what each row adds to the loss; 0 for an ignored label
    float *row_results;
    int64_t *row_labels; // [rows]
    float smoothing;     // of soft labels
    // CUDA_SOFTMAX. Not 0: rows are causal, `queries` of them belong together, and row t of these
    // has only its first t + 1 + width - queries scores. `empty`: a row of -infinity becomes 0.
    int64_t queries;
    bool empty;
    struct cuda_fault *fault; // where the kernel describes an invalid label
} cuda_class_rows;

// Softmax, or its logarithm, of x [outer, count, inner] over the middle axis. dy not NULL: its
// gradient, where x is its output; y may be the memory of dy.
typedef struct cuda_softmax_columns {
    bool is_log;
    tri_dtype type;
    int64_t outer, count, inner;
    const void *x, *dy;
    void *y;
} cuda_softmax_columns;

// Losses that sum over all elements of predictions and targets: `count` elements in each of
// `samples` samples. The elements of each sample are cut into `slices`. CUDA_RELATIVE_L2 makes one
// term for each sample. The others have one sample and make one term for each slice.
typedef enum cuda_distance_function {
    CUDA_SQUARED_ERROR,
    CUDA_BINARY_CROSS_ENTROPY,
    CUDA_RELATIVE_L2,
} cuda_distance_function;

typedef struct cuda_distance {
    cuda_distance_function function;
    int64_t samples, count, slices;
    tri_dtype type, seed_type; // type of prediction, target and dx; type of the seed
    const void *prediction, *target, *seed;
    // What each slice (with CUDA_RELATIVE_L2: each sample) adds to the loss. NULL: the gradient is
    // computed instead.
    double *terms;
    // For CUDA_RELATIVE_L2: the sums over each slice [samples, slices, 2], and the factor of each
    // sample [samples], with which its gradient is computed.
    double *slice_sums, *factors;
    void *dx; // the gradient of the prediction
} cuda_distance;
// There is one slice for every CUDA_DISTANCE_SLICE elements, but at most CUDA_DISTANCE_MAX_SLICES.
enum { CUDA_DISTANCE_SLICE = 4096, CUDA_DISTANCE_MAX_SLICES = 1024 };

// Which terms loss_sum adds up.
typedef enum cuda_term {
    CUDA_TERMS, // the numbers cuda_loss_sum.terms
    // The cross-entropy of row i where ranks share the classes: log(all_slices[2i]) -
    // all_slices[2i + 1], or 0 if its label is ignored. Here cuda_loss_sum.all_slices [rows, 2] is
    // the sum over all slices of what CUDA_SLICE_SOFTMAX makes: the sum of exp(x - max) over all
    // classes, and the label's x - max.
    CUDA_SLICE_LOSS,
    // 1 if -all_slices[i] is the label of row i, else 0; also checks the labels. Here `all_slices`
    // has the maxima of CUDA_SLICE_ARGMAX over all slices.
    CUDA_SLICE_HITS,
} cuda_term;

// out[0] = the sum of `count` terms. out[1] = the count by which the sum is later divided: how
// many labels are not ignored or, if there are no labels, `whole`.
typedef struct cuda_loss_sum {
    cuda_term term;
    int64_t count, ignored, classes;
    double whole;
    const double *terms;
    const float *all_slices;
    const int64_t *labels;
    double *out;
    struct cuda_fault *fault;
} cuda_loss_sum;

#endif
