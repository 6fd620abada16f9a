// The parameters of the kernels of the module `cuda` (runtime.h): for each kernel a struct, which
// the program fills in and the module's function that launches the kernel takes. All pointers are
// addresses that the device can use. The header is for C and C++ alike, because the program is C
// and the kernels are C++.
#ifndef TRIREME_DEVICE_CUDA_PARAMS_H
#define TRIREME_DEVICE_CUDA_PARAMS_H

#include "device/cuda/params_attention.h"
#include "device/cuda/params_comm.h"
#include "device/cuda/params_image.h"
#include "device/cuda/params_index.h"
#include "device/cuda/params_loss.h"
#include "device/cuda/params_map.h"
#include "device/cuda/params_move.h"
#include "device/cuda/params_recurrent.h"
#include "device/cuda/params_rows.h"
#include "device/cuda/params_step.h"

#include <stdbool.h>
#include <stdint.h>
#include <trireme/tensor.h>

// X(NAME) for every kernel of the module. Kernel NAME takes a struct cuda_NAME. A new kernel gets a
// row here or in a list that is named here, a struct in the same header, and a function
// cuda_launch_NAME in a .cu file of module/.
#define CUDA_KERNEL_LIST(X)                                                                        \
    X(pointwise)                                                                                   \
    X(product)                                                                                     \
    X(column_sums)                                                                                 \
    CUDA_ROW_KERNEL_LIST(X)                                                                        \
    CUDA_ATTENTION_KERNEL_LIST(X)                                                                  \
    CUDA_LOSS_KERNEL_LIST(X)                                                                       \
    CUDA_STEP_KERNEL_LIST(X)                                                                       \
    CUDA_IMAGE_KERNEL_LIST(X)                                                                      \
    CUDA_MOVE_KERNEL_LIST(X)                                                                       \
    CUDA_MAP_KERNEL_LIST(X)                                                                        \
    CUDA_RECURRENT_KERNEL_LIST(X)                                                                  \
    CUDA_INDEX_KERNEL_LIST(X)                                                                      \
    CUDA_COMM_KERNEL_LIST(X)                                                                       \
    X(clock)                                                                                       \
    X(trap)

// What a pointwise kernel computes from the elements a and b. Each comment tells what a and b are,
// in this order, and, behind the arrow, what the result is.
typedef enum cuda_function {
    CUDA_ADD,  // a + b
    CUDA_CAST, // a, converted to another type
} cuda_function;

// out[i] = function(a[i], b[i]) for i below `count`; each tensor in F32, F64, F16 or BF16.
typedef struct cuda_pointwise {
    cuda_function function;
    tri_dtype a_type, b_type, out_type;
    const void *a, *b;
    void *out;
    int64_t count;
} cuda_pointwise;

// sums [columns] F32 = the sums of the columns of x [rows, columns]. The rows are cut into slices,
// whose sums are stored in `room` and then added, in an order that depends on `rows` alone.
typedef struct cuda_column_sums {
    int64_t rows, columns, slices; // numbers of rows and columns of x, and of slices
    tri_dtype type;                // type of x
    const void *x;
    float *sums, *room; // room [slices, columns], needed if there is more than one slice
} cuda_column_sums;

// A product of row-major matrices: c = a · b + bias, or a · b is added to c. c is [m, n]; a is
// [m, k], or [k, m] if it is transposed; b is [k, n], or [n, k]. Sums are in F32 (in F64 if the
// inputs are F64).
typedef struct cuda_product {
    int64_t m, n, k;
    bool transpose_a, transpose_b;
    // Distances between the rows in memory, in elements; 0: the matrix is densely packed.
    int64_t a_row, b_row, c_row;
    // If above 1: so many products, whose matrices lie a_step, b_step and c_step elements apart.
    int64_t count, a_step, b_step, c_step;
    tri_dtype in_type, out_type; // in_type: type of a, b and the bias; out_type: type of c
    bool relu;                   // ReLU is applied to c
    bool tf32;                   // F32 inputs may be rounded to TF32
    bool adds;                   // the product is added to c, which is F32; no ReLU, no bias
    const void *a, *b, *bias;    // bias [n]; NULL: there is no bias
    void *c;
    // The gradient of the bias, where the product is the gradient of a weight (a is dyᵀ): the
    // library may sum it while it reads dy for the product. bias_grad.sums NULL: it is not wanted.
    cuda_column_sums bias_grad;
    void *workspace; // memory that the vendor's library uses while it computes
    int64_t workspace_bytes;
} cuda_product;

// Records at what time the GPU reaches this kernel: *ns = the time as CLOCK_MONOTONIC counts it.
// `ns` is pinned host memory, which the device can write.
typedef struct cuda_clock {
    int64_t *ns;
    int64_t offset_ns; // this is added to the device's clock to get CLOCK_MONOTONIC
} cuda_clock;

// Makes the GPU fail as it does when a kernel reads an invalid address: for tests of how a run ends
// then.
typedef struct cuda_trap {
    int32_t unused;
} cuda_trap;

#endif
