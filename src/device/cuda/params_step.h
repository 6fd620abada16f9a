// The parameters of the module's kernels at the end of a step: optimizers, sums of squares of the
// gradients, step scalars. The step scalars are the numbers with which optimizers update the
// parameters: learning rate, factor of the gradients, whether the step is skipped. The device
// computes them (the op step_numbers), so that it need not wait for the host. A step halts if its
// numbers are not finite and no loss scale makes up for that; it then changes no parameter.
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
    CUDA_AVERAGE_WEIGHTS, // `param` is the average, `grad` the parameter
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

// One update of `count` numbers of parameters, all F32. Does nothing if the step scalars tell that
// the step is skipped or, for averages, is not averaged.
typedef struct cuda_update {
    cuda_rule rule;
    // CUDA_SGD: the momentum is Nesterov's. CUDA_ADAM: weight decay shrinks the parameter itself
    // (AdamW), instead of being added to the gradient.
    bool nesterov_or_decoupled;
    double number[CUDA_RULE_NUMBERS], lr_factor, weight_decay;
    int64_t count;
    const double *step; // the step scalars
    float *param;
    const float *grad;
    float *state[2]; // the optimizer's states, such as Adam's two averages; NULL: there is none
} cuda_update;

// sums[i] F64 = the sum of the squares of x[i * chunk] to x[(i + 1) * chunk - 1]. `chunk` divides
// `count`, the number of elements of x.
typedef struct cuda_squares {
    const float *x;
    int64_t count, chunk;
    double *sums;
    // If there is only one chunk, `blocks` thread blocks sum it together, and each writes its own
    // sum to block_sums, which has room for CUDA_SQUARES_BLOCKS.
    double *block_sums;
    int blocks;
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

// Computes the step scalars, and what this step hands to the next: the carried numbers (loss scale,
// count of updates, halt). `attr` has the bytes of a tri_step_numbers_attr, passed by value because
// the GPU cannot read the host's memory.
enum { CUDA_STEP_ATTR_WORDS = 12 };
typedef struct cuda_step_numbers {
    int64_t attr[CUDA_STEP_ATTR_WORDS];
    // carried: the carried numbers of the step before. control: what the host tells for this step
    // (learning rates, the norm to which gradients are clipped). sums: losses and counts of labels,
    // summed over all ranks. squares: one number, the sum of the squares of all gradients.
    const double *carried, *control, *sums, *squares;
    double *after, *step; // the new carried numbers, and the step scalars
} cuda_step_numbers;

// If the step halts, finds the first of the ranges of x that has a number that is not finite:
// *found = that range's number, counted from 1; 0: there is none, or the step does not halt.
typedef struct cuda_not_finite {
    const float *x;
    // [range_count, 2]: the first element of each range, and the one behind its last.
    const int64_t *ranges;
    int64_t range_count;
    const double *step; // the step scalars
    double *found;
} cuda_not_finite;

// seeds[i] = loss scale × weight / count of loss i: the gradient of this loss with respect to its
// sum, with which the backward pass begins.
typedef struct cuda_loss_seeds {
    const double *carried,
        *losses; // the carried numbers; losses [count, 2]: weight and count of each loss
    float *seeds;
    int64_t count; // number of losses
} cuda_loss_seeds;

#endif
