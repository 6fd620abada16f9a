// Macros for functions in headers that both kernels of a GPU and C code call, so that there is only
// one copy of what they compute. Such a header is valid in C17 and C++17, and declares its
// functions TRI_KERNEL_INLINE. Sources of GPU kernels first include device/cuda/module/gpu.h, which
// defines these macros for the GPU's compiler; the definitions below are for C.
#ifndef TRIREME_BASE_KERNEL_INLINE_H
#define TRIREME_BASE_KERNEL_INLINE_H

#if !defined(TRI_KERNEL_INLINE)
#define TRI_KERNEL_INLINE static inline __attribute__((always_inline, unused))
#define TRI_KERNEL_UNROLL_10 _Pragma("GCC unroll 10") // stands before a loop that runs 10 times
#endif

#endif
