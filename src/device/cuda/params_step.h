// What the kernels of a step's end are given: optimizers, sums of squares, the numbers of a step.
#ifndef TRIREME_DEVICE_CUDA_PARAMS_STEP_H
#define TRIREME_DEVICE_CUDA_PARAMS_STEP_H

#include <stdbool.h>
#include <stdint.h>

#define CUDA_STEP_KERNEL_LIST(X)                                                                   \
    X(update)                                                                                      \
    X(squares)                                                                                     \
    X(sum_rows)                                                                                    \
    X(step_numbers)                                                                                \
    X(not_finite)                                                                                  \
    X(loss_seeds)

typedef enum cuda_rule {
    CUDA_SGD,
    CUDA_ADAM,
    CUDA_ADADELTA,
    CUDA_MOVING_AVERAGE,
} cuda_rule;

// The numbers of a rule, in the order in which it names them; see src/ops/sgd.c and the others.
enum {
    CUDA_SGD_MOMENTUM = 0,
    CUDA_SGD_DAMPENING,
    CUDA_ADAM_BETA1 = 0,
    CUDA_ADAM_BETA2,
    CUDA_ADAM_EPS,
    CUDA_ADADELTA_RHO = 0,
    CUDA_ADADELTA_EPS,
    CUDA_AVERAGE_MOMENTUM = 0,
    CUDA_RULE_NUMBERS = 3
};

// One update of `count` numbers, all F32. Does nothing if the step scalars say so.
typedef struct cuda_update {
    cuda_rule rule;
    bool flag; // sgd: Nesterov; adam: weight decay apart from the gradient (AdamW)
    double number[CUDA_RULE_NUMBERS], weight_decay;
    int64_t count;
    const double *step; // scalars
    float *param;
    const float *grad;
    float *state[2]; // NULL: the rule has none
} cuda_update;

// sums[i] F64 = the sum of squares of numbers i * chunk and on of x; chunk divides count.
typedef struct cuda_squares {
    const float *x;
    int64_t count, chunk;
    double *sums;
    double *parts; // where there is one chunk: CUDA_SQUARES_PARTS numbers for the blocks' sums
    int blocks;    // that sum the one chunk
} cuda_squares;

// Where there is one chunk, it is summed by at most so many blocks, which take so many numbers in
// turn. Both are the same on every device, and so are the bits of the sum.
enum { CUDA_SQUARES_PARTS = 1024, CUDA_SQUARES_TURN = 1 << 12 };

// sums [width] = the sum of the rows of x [rows, width].
typedef struct cuda_sum_rows {
    const double *x;
    double *sums;
    int64_t rows, width;
} cuda_sum_rows;

// `attr` is a tri_step_numbers_attr, by value because the host's memory is not the device's.
enum { CUDA_STEP_ATTR_WORDS = 12 };
typedef struct cuda_step_numbers {
    int64_t attr[CUDA_STEP_ATTR_WORDS];
    const double *carried, *control, *sums, *squares;
    double *after, *step;
} cuda_step_numbers;

// *found = the number from 1 of the first of `ranges` (first element, end) of x with a number that
// is not finite, if the step halts; else 0.
typedef struct cuda_not_finite {
    const float *x;
    const int64_t *ranges;
    int64_t range_count;
    const double *step;
    double *found;
} cuda_not_finite;

// seeds [count]: see tri_op_loss_seeds.
typedef struct cuda_loss_seeds {
    const double *carried, *losses;
    float *seeds;
    int64_t count;
} cuda_loss_seeds;

#endif
