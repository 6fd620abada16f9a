// The thin layer between our kernels and their compilers: nvcc (CUDA), hipcc (HIP, for AMD), or a
// host compiler that emulates a GPU for tests (tests/emulated_gpu). Kernels are written in the
// language that CUDA and HIP share. This header supplies the parts that differ, or that the
// emulation has to control:
//
//   GPU_KERNEL name(params p)            a kernel; its parameters are one struct, passed by value
//   GPU_KERNEL_FOR(threads, blocks) name(params p)
//                                        a kernel that gets so few registers that `blocks` blocks
//                                        of `threads` threads, the most that it is launched with,
//                                        fit on a multiprocessor
//   GPU_SHARED(type, name, count)        shared memory of a thread block
//   GPU_DYNAMIC_SHARED(type, name)       shared memory of the size that gpu_launch was given
//   gpu_barrier()                        waits for all threads of the block
//   gpu_shuffle_xor(value, mask)         the `value` of the lane (thread of a warp) whose number is
//                                        this lane's, xor `mask`; all lanes have to call it
//   gpu_launch(stream, kernel, blocks, threads, params, why, shared_bytes = 0)
//                                        launches a kernel with `blocks` blocks of `threads`
//                                        threads each. If that fails, writes the reason to
//                                        why[CUDA_WHY_BYTES]. shared_bytes: size of the kernel's
//                                        GPU_DYNAMIC_SHARED
//
// Numbers in memory are read and written by gpu_get and gpu_put, which convert F16 and BF16 to and
// from float. A sum over a block is always added in the same order, so that a kernel's results have
// the same bits in every run.
#ifndef TRIREME_DEVICE_CUDA_MODULE_GPU_H
#define TRIREME_DEVICE_CUDA_MODULE_GPU_H

#if !defined(TRIREME_EMULATED_GPU) // else the compiler's command line includes the emulation
#if defined(__HIP__)
#if !defined(__HIP_PLATFORM_AMD__)
#define __HIP_PLATFORM_AMD__ 1 // HIP's headers demand it
#endif
#include <hip/hip_runtime.h>
#else
#include <cuda_runtime.h>
#endif
#define TRI_KERNEL_INLINE static __host__ __device__ __forceinline__ // see base/kernel_inline.h
#define TRI_KERNEL_UNROLL_10 _Pragma("unroll")
// Stands before a loop whose arrays a thread has in registers: registers cannot be indexed by a
// variable, so the loop must be unrolled.
#define GPU_UNROLL _Pragma("unroll")
#endif

#include "device/cuda/runtime.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#if !defined(TRIREME_EMULATED_GPU)
#include "device/cuda/module/stream.h"

#define GPU_KERNEL static __global__ void
#define GPU_KERNEL_FOR(threads, blocks) static __global__ void __launch_bounds__(threads, blocks)
#define GPU_DEVICE static __device__ __forceinline__
#define GPU_SHARED(type, name, count) __shared__ type name[count]
#define GPU_DYNAMIC_SHARED(type, name)                                                             \
    extern __shared__ __align__(16) unsigned char gpu_dynamic_shared[];                            \
    type *name = (type *)gpu_dynamic_shared

GPU_DEVICE void gpu_barrier() { __syncthreads(); }

template <typename T> GPU_DEVICE T gpu_shuffle_xor(T value, int mask) {
#if defined(__HIP__)
    return __shfl_xor(value, mask);
#else
    return __shfl_xor_sync(0xffffffffu, value, mask);
#endif
}

// Sets *word to `wanted` if its value is `expected`. Returns the old value.
GPU_DEVICE int32_t gpu_compare_and_swap(int32_t *word, int32_t expected, int32_t wanted) {
#if defined(__HIP__)
    return atomicCAS(word, expected, wanted);
#else
    return atomicCAS_system(word, expected, wanted);
#endif
}

GPU_DEVICE void gpu_fence_host() { __threadfence_system(); }

GPU_DEVICE void gpu_trap() {
#if defined(__HIP__)
    __builtin_trap();
#else
    __trap();
#endif
}

GPU_DEVICE int64_t gpu_clock_ns() {
#if defined(__HIP__)
#if defined(__HIP_DEVICE_COMPILE__)
    return (int64_t)__builtin_amdgcn_s_memrealtime() * 10; // this clock counts at 100 MHz
#else
    return 0; // never called: hipcc also compiles this function for the host
#endif
#else
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return (int64_t)ns;
#endif
}
#endif

#if defined(__HIP__)
enum { GPU_WARP = 64 };
#else
enum { GPU_WARP = 32 };
#endif
enum {
    GPU_BLOCK = 256,             // threads of a block, unless a kernel has its own number
    GPU_MAX_BLOCKS = 0x7fffffff, // the largest number of blocks along x
};

// The half types, as they lie in memory. They are structs, so that nothing computes with them by
// accident.
struct gpu_bf16 {
    uint16_t bits;
};
struct gpu_f16 {
    uint16_t bits;
};

GPU_DEVICE float gpu_get(float x) { return x; }
GPU_DEVICE double gpu_get(double x) { return x; }
GPU_DEVICE int64_t gpu_get(int64_t x) { return x; }
GPU_DEVICE int64_t gpu_get(int32_t x) { return x; }
GPU_DEVICE int64_t gpu_get(uint8_t x) { return x; }
GPU_DEVICE float gpu_get(gpu_bf16 x) {
    uint32_t bits = (uint32_t)x.bits << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// gpu_put rounds to nearest, ties to even; NaN stays NaN. The same rule as in tensor/half.h.
GPU_DEVICE void gpu_put(float *to, float x) { *to = x; }
GPU_DEVICE void gpu_put(double *to, double x) { *to = x; }
// Integers are computed with in 64 bits. What has no room wraps.
GPU_DEVICE void gpu_put(int64_t *to, int64_t x) { *to = x; }
GPU_DEVICE void gpu_put(int32_t *to, int64_t x) { *to = (int32_t)x; }
GPU_DEVICE void gpu_put(uint8_t *to, int64_t x) { *to = (uint8_t)x; }

#if !defined(__HIP__) && !defined(TRIREME_EMULATED_GPU)
// NVIDIA's GPUs convert by one instruction. The bits are those of the code for other GPUs below.
// Only gpu_get of an F16 that is NaN may return another NaN.
GPU_DEVICE float gpu_get(gpu_f16 x) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
    return value;
}

// Converts two floats to the type T (to nearest) and puts them into one word, `low` in the low
// bits. NaN stays NaN, but not with the bits that gpu_put writes.
template <typename T> GPU_DEVICE uint32_t gpu_pair(float low, float high);
template <> __device__ __forceinline__ uint32_t gpu_pair<gpu_bf16>(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
template <> __device__ __forceinline__ uint32_t gpu_pair<gpu_f16>(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// The conversion of a pair is used for one number too, because its instruction (F2FP) is several
// times faster than that for one (F2F).
GPU_DEVICE void gpu_put(gpu_bf16 *to, float x) {
    uint32_t nan = __float_as_uint(x) >> 16 | 0x40;
    to->bits = (uint16_t)(x != x ? nan : gpu_pair<gpu_bf16>(x, 0));
}

GPU_DEVICE void gpu_put(gpu_f16 *to, float x) {
    uint32_t nan = (__float_as_uint(x) >> 16 & 0x8000) | 0x7e00;
    to->bits = (uint16_t)(x != x ? nan : gpu_pair<gpu_f16>(x, 0));
}
#else
GPU_DEVICE float gpu_get(gpu_f16 x) {
    uint32_t sign = (uint32_t)(x.bits & 0x8000) << 16, exponent = x.bits >> 10 & 31;
    uint32_t fraction = x.bits & 0x3ff, bits;
    float value;
    if (exponent == 0) {
        value = (float)fraction * 5.9604644775390625e-8f; // 2^-24
        return sign ? -value : value;
    }
    bits = exponent == 31 ? sign | 0x7f800000 | fraction << 13
                          : sign | (exponent + 112) << 23 | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

GPU_DEVICE void gpu_put(gpu_bf16 *to, float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
    to->bits = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

GPU_DEVICE void gpu_put(gpu_f16 *to, float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff, half;
    if (size > 0x7f800000) {
        half = 0x7e00; // not a number
    } else if (size >= 0x477ff000) {
        half = 0x7c00; // infinity, because it rounds to more than 65504, the largest F16
    } else if (size < 0x38800000) {
        // Below 2^-14 the numbers of F16 are 2^-24 apart. The floats between 0.5 and 1 are 2^-24
        // apart too. So adding 0.5 rounds the number as F16 would.
        float value, one_half = 0.5f;
        uint32_t sum;
        memcpy(&value, &size, sizeof value);
        value += one_half;
        memcpy(&sum, &value, sizeof sum);
        half = sum - 0x3f000000;
    } else {
        half = ((size - (112u << 23)) + 0xfff + (size >> 13 & 1)) >> 13;
    }
    to->bits = (uint16_t)(sign | half);
}

template <typename T> GPU_DEVICE uint32_t gpu_pair(float low, float high) {
    T pair[2];
    uint32_t bits;
    gpu_put(&pair[0], low);
    gpu_put(&pair[1], high);
    memcpy(&bits, pair, sizeof bits);
    return bits;
}
#endif

// Reads the loss seed (the gradient of the loss with which the backward pass begins), one number of
// F32 or F64.
GPU_DEVICE float gpu_get_seed(const void *seed, tri_dtype type) {
    return type == TRI_F64 ? (float)*(const double *)seed : *(const float *)seed;
}

// The type in which a kernel computes with elements of type T.
template <typename T> struct gpu_wide { typedef float type; };
template <> struct gpu_wide<double> { typedef double type; };
template <> struct gpu_wide<int64_t> { typedef int64_t type; };
template <> struct gpu_wide<int32_t> { typedef int64_t type; };
template <> struct gpu_wide<uint8_t> { typedef int64_t type; };
// The type of sums of elements of type T.
template <typename T> struct gpu_sum { typedef T type; };
template <> struct gpu_sum<int32_t> { typedef int64_t type; };
template <> struct gpu_sum<uint8_t> { typedef int64_t type; };

GPU_DEVICE int64_t gpu_thread() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
GPU_DEVICE int64_t gpu_threads() { return (int64_t)gridDim.x * blockDim.x; }

// The larger value; NaN if one of the values is NaN, so that an error is not hidden.
template <typename T> GPU_DEVICE T gpu_larger(T a, T b) { return a > b || a != a ? a : b; }

// Computes the sum, or the maximum, over all lanes of a warp; every lane gets the result.
template <typename T> GPU_DEVICE T gpu_warp_sum(T value) {
    for (int mask = GPU_WARP / 2; mask; mask /= 2) value += gpu_shuffle_xor(value, mask);
    return value;
}

template <typename T> GPU_DEVICE T gpu_warp_max(T value) {
    for (int mask = GPU_WARP / 2; mask; mask /= 2)
        value = gpu_larger(value, gpu_shuffle_xor(value, mask));
    return value;
}

// Computes the sum, or the maximum, over all threads of a block; every thread gets it. `scratch` is
// shared memory of blockDim.x / GPU_WARP elements (blockDim.x is a multiple of GPU_WARP); the
// caller may use it again at once.
template <typename T> GPU_DEVICE T gpu_block_sum(T value, T *scratch) {
    value = gpu_warp_sum(value);
    int warps = (int)blockDim.x / GPU_WARP;
    if (threadIdx.x % GPU_WARP == 0) scratch[threadIdx.x / GPU_WARP] = value;
    gpu_barrier();
    value = scratch[0];
    for (int i = 1; i < warps; i++) value += scratch[i];
    gpu_barrier();
    return value;
}

template <typename T> GPU_DEVICE T gpu_block_max(T value, T *scratch) {
    value = gpu_warp_max(value);
    int warps = (int)blockDim.x / GPU_WARP;
    if (threadIdx.x % GPU_WARP == 0) scratch[threadIdx.x / GPU_WARP] = value;
    gpu_barrier();
    value = scratch[0];
    for (int i = 1; i < warps; i++) value = gpu_larger(value, scratch[i]);
    gpu_barrier();
    return value;
}

// Records a label or token that is out of range, so that the host can report it. Only the first one
// is recorded: its thread sets `kind` to CUDA_FAULT_TAKEN, and to the final value once all other
// fields are written. So no other thread writes them, and the host reads no half-written record.
GPU_DEVICE void gpu_refuse(cuda_fault *fault, int kind, int64_t value, int64_t index,
                           int64_t limit) {
    if (gpu_compare_and_swap(&fault->kind, CUDA_NO_FAULT, CUDA_FAULT_TAKEN) != CUDA_NO_FAULT)
        return;
    fault->value = value;
    fault->index = index;
    fault->limit = limit;
    gpu_fence_host();
    gpu_compare_and_swap(&fault->kind, CUDA_FAULT_TAKEN, kind);
}

// How many thread blocks to launch for a kernel with a grid-stride loop: enough to fill the device,
// but no more than there is work for. per_block: how many elements one block takes at a time.
static inline int64_t gpu_blocks(cuda_stream *stream, int64_t elements, int64_t per_block) {
    int64_t wanted = (elements + per_block - 1) / per_block;
    int64_t most = (int64_t)gpu_multiprocessors(stream) * 16;
    return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

// The number of blocks to launch: `blocks`, or the most that the device allows.
static inline int64_t gpu_at_most(int64_t blocks) {
    return blocks < GPU_MAX_BLOCKS ? blocks : (int64_t)GPU_MAX_BLOCKS;
}

// Chooses a C++ type by `dtype`: calls function((T *)NULL), where T is the C++ type of elements of
// F32, F16 or BF16 (gpu_with_float: also F64; gpu_with_number: also I64, I32 and U8), and returns
// what that call returns. The argument only carries the type. TRI_UNSUPPORTED: another dtype.
template <typename F> static inline tri_status gpu_with_real(tri_dtype dtype, F function) {
    switch (dtype) {
    case TRI_F32:
        return function((float *)nullptr);
    case TRI_F16:
        return function((gpu_f16 *)nullptr);
    case TRI_BF16:
        return function((gpu_bf16 *)nullptr);
    default:
        return TRI_UNSUPPORTED;
    }
}

// Returns function((T *)NULL, (O *)NULL), where T is the C++ type of `dtype`, and O that of
// out_type, which is the same type or F32. TRI_UNSUPPORTED: other types.
template <typename F>
static inline tri_status gpu_with_output(tri_dtype dtype, tri_dtype out_type, F function) {
    return gpu_with_real(dtype, [=](auto *type) {
        if (out_type == TRI_F32) return function(type, (float *)nullptr);
        return out_type == dtype ? function(type, type) : TRI_UNSUPPORTED;
    });
}

template <typename F> static inline tri_status gpu_with_float(tri_dtype dtype, F function) {
    return dtype == TRI_F64 ? function((double *)nullptr) : gpu_with_real(dtype, function);
}

template <typename F> static inline tri_status gpu_with_number(tri_dtype dtype, F function) {
    if (dtype == TRI_I64) return function((int64_t *)nullptr);
    if (dtype == TRI_I32) return function((int32_t *)nullptr);
    return dtype == TRI_U8 ? function((uint8_t *)nullptr) : gpu_with_float(dtype, function);
}

#endif
