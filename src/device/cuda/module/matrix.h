// Products of small matrices of half types (F16, BF16), which the lanes (threads) of a warp compute
// together on tensor cores (PTX ISA, "mma.sync.m16n8k16" and "ldmatrix": compute capability 8.0),
// and copies to shared memory that run beside the computation ("cp.async"). AMD's GPUs have other
// instructions, so there is no version for HIP. The GPU that tests emulate on the host
// (tests/emulated_gpu) computes the same from the same registers of the same lanes.
//
// The elements of a matrix are spread over the lanes. With r = l / 4 and c = l % 4 * 2, lane l
// holds these elements [row][column], in this order:
//
//   c [16, 8]    [r][c], [r][c + 1], [r + 8][c], [r + 8][c + 1]
//   a [16, 16]   those four, then the same four in columns 8 to 15
//   b [16, 8]    [c][r], [c + 1][r], [c + 8][r], [c + 9][r]
//
// So a lane holds the same elements of c as of one half of a. Therefore the result c of one product
// can be half of the operand a of the next, without moving anything between lanes.
#ifndef TRIREME_DEVICE_CUDA_MODULE_MATRIX_H
#define TRIREME_DEVICE_CUDA_MODULE_MATRIX_H

#include "device/cuda/module/gpu.h"

#if !defined(__HIP__)
#define GPU_HAS_MATRIX 1

struct gpu_matrix_a {
    uint32_t at[4]; // two elements in each
};
struct gpu_matrix_b {
    uint32_t at[2];
};
struct gpu_matrix_c {
    float at[4];
};

#if !defined(TRIREME_EMULATED_GPU)
// 2^x, by one instruction; subnormal numbers count as 0.
GPU_DEVICE float gpu_exp2(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

#define GPU_MULTIPLY_AS(T, type)                                                                   \
    template <>                                                                                    \
    __device__ __forceinline__ void gpu_multiply<T>(gpu_matrix_c & c, const gpu_matrix_a &a,       \
                                                    const gpu_matrix_b &b) {                       \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"             \
                     : "+f"(c.at[0]), "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3])                  \
                     : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b.at[0]),       \
                       "r"(b.at[1]));                                                              \
    }

// c += a · b, summed in F32. The whole warp executes the instruction together; `volatile` keeps the
// compiler from moving it into a branch.
template <typename T>
GPU_DEVICE void gpu_multiply(gpu_matrix_c &c, const gpu_matrix_a &a, const gpu_matrix_b &b);
GPU_MULTIPLY_AS(gpu_bf16, "bf16")
GPU_MULTIPLY_AS(gpu_f16, "f16")

// Reads four matrices [8, 8] from shared memory. Lane l (thread l of the warp) gives the address of
// row (l % 8) of matrix (l / 8); a row has 16 bytes and is aligned to them. With r = l / 4 and c =
// l % 4 * 2, lane l gets the elements [r][c] and [r][c + 1] of each matrix.
GPU_DEVICE void gpu_load_rows(uint32_t (&out)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

// As gpu_load_rows, but transposes the matrices: a lane (thread of the warp) gets the elements
// [c][r] and [c + 1][r], with r and c as at the top of this file.
GPU_DEVICE void gpu_load_columns(uint32_t (&out)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

// Begins to copy 16 bytes, both ends aligned, from global to shared memory; writes zeros and reads
// nothing if `is_there` is false. After gpu_copy_wait the thread that began a copy sees its result;
// other threads see it after a barrier that follows.
GPU_DEVICE void gpu_copy(void *shared, const void *global, bool is_there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(global),
                   "r"(is_there ? 16 : 0)
                 : "memory");
}

// As gpu_copy, for 4 bytes.
GPU_DEVICE void gpu_copy_float(float *shared, const float *global, bool is_there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(global),
                   "r"(is_there ? 4 : 0)
                 : "memory");
}

GPU_DEVICE void gpu_copy_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

#else
GPU_DEVICE float gpu_exp2(float x) { return exp2f(x); }

template <typename T> GPU_DEVICE float gpu_half_of(uint32_t pair, int which) {
    T elements[2];
    memcpy(elements, &pair, sizeof elements);
    return gpu_get(elements[which]);
}

template <typename T>
GPU_DEVICE void gpu_multiply(gpu_matrix_c &c, const gpu_matrix_a &a, const gpu_matrix_b &b) {
    struct both {
        gpu_matrix_a a;
        gpu_matrix_b b;
    } own = {a, b};
    int lane = (int)threadIdx.x % GPU_WARP;
    const both *lanes[GPU_WARP];
    emulated_gather(&own, (const void **)lanes);
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; k++) {
            uint32_t x = lanes[row % 8 * 4 + k % 8 / 2]->a.at[k / 8 * 2 + row / 8];
            uint32_t y = lanes[column * 4 + k % 8 / 2]->b.at[k / 8];
            c.at[i] += gpu_half_of<T>(x, k % 2) * gpu_half_of<T>(y, k % 2);
        }
    }
    emulated_go_on();
}

GPU_DEVICE void gpu_load_rows(uint32_t (&out)[4], const void *row) {
    int lane = (int)threadIdx.x % GPU_WARP;
    const uint16_t *rows[GPU_WARP];
    emulated_gather(row, (const void **)rows);
    for (int m = 0; m < 4; m++) memcpy(&out[m], &rows[m * 8 + lane / 4][lane % 4 * 2], 4);
    emulated_go_on();
}

GPU_DEVICE void gpu_load_columns(uint32_t (&out)[4], const void *row) {
    int lane = (int)threadIdx.x % GPU_WARP;
    const uint16_t *rows[GPU_WARP];
    emulated_gather(row, (const void **)rows);
    for (int m = 0; m < 4; m++) {
        const uint16_t *const *at = &rows[m * 8 + lane % 4 * 2];
        out[m] = at[0][lane / 4] | (uint32_t)at[1][lane / 4] << 16;
    }
    emulated_go_on();
}

GPU_DEVICE void gpu_copy(void *shared, const void *global, bool is_there) {
    emulated_copy(shared, is_there ? global : nullptr, 16);
}

GPU_DEVICE void gpu_copy_float(float *shared, const float *global, bool is_there) {
    emulated_copy(shared, is_there ? global : nullptr, 4);
}

GPU_DEVICE void gpu_copy_wait() { emulated_copy_wait(); }
#endif
#endif
#endif
