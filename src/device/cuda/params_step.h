// The parameters of the kernels at the end of a step: optimizers, sums of squares, step scalars.
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

// The numbers of each optimizer's rule, as indices into cuda_update.number. The files of the
// optimizers in src/ops, such as sgd.c, say what the numbers mean.
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

// One update of `count` numbers, all F32. Does nothing if the step scalars say that the step is
// skipped.
typedef struct cuda_update {
    cuda_rule rule;
    // Sgd: with Nesterov's momentum; adam: weight decay is applied apart from the gradient (AdamW).
    bool flag;
    double number[CUDA_RULE_NUMBERS], weight_decay;
    int64_t count;
    const double *step; // the step scalars
    float *param;
    const float *grad;
    float *state[2]; // NULL: the rule has no such state
} cuda_update;

// sums[i] F64 = the sum of the squares of x[i * chunk] to x[(i + 1) * chunk - 1]; chunk divides
// count.
typedef struct cuda_squares {
    const float *x;
    int64_t count, chunk;
    double *sums;
    // If there is only one chunk: CUDA_SQUARES_BLOCKS numbers, for the sums of the thread blocks.
    double *block_sums;
    int blocks; // how many thread blocks sum one chunk together
} cuda_squares;

// If there is only one chunk, at most CUDA_SQUARES_BLOCKS thread blocks sum it. Each of them takes
// CUDA_SQUARES_TURN numbers at a time. Both constants are the same for every device, so that the
// sum has the same bits on all of them.
enum { CUDA_SQUARES_BLOCKS = 1024, CUDA_SQUARES_TURN = 1 << 12 };

// sums [width] = the sum of the rows of x [rows, width].
typedef struct cuda_sum_rows {
    const double *x;
    double *sums;
    int64_t rows, width;
} cuda_sum_rows;

// The op step_numbers, with its inputs (`carried` to `squares`) and outputs. `attr` has the bytes
// of a tri_step_numbers_attr, passed by value because the GPU cannot read the host's memory.
enum { CUDA_STEP_ATTR_WORDS = 12 };
typedef struct cuda_step_numbers {
    int64_t attr[CUDA_STEP_ATTR_WORDS];
    const double *carried, *control, *sums, *squares;
    double *after, *step;
} cuda_step_numbers;

// If the step halts, finds which of `ranges` (first element, end) of x is the first with a number
// that is not finite: *found = that range's number, counted from 1; 0: there is none, or the step
// does not halt.
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
