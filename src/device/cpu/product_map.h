// The kernels of products that a map may finish: each computes its product and finishes the
// elements of the output as soon as they are stored. finish NULL: the product is all.
#ifndef TRIREME_DEVICE_CPU_PRODUCT_MAP_H
#define TRIREME_DEVICE_CPU_PRODUCT_MAP_H

#include "device/cpu/epilogue.h"

typedef tri_status cpu_product_compute(const tri_kernel *kernel, const tri_kernel_args *args,
                                       const cpu_finish *finish);
cpu_product_compute cpu_conv_compute, cpu_depthwise_compute, cpu_linear_compute,
    cpu_linear_bf16_compute, cpu_matmul_compute, cpu_one_output_compute, cpu_winograd_compute_avx2,
    cpu_winograd_compute_avx512;

#endif
