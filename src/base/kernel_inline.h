// For functions of headers that kernels of a GPU call as well as C code, so that there is one copy
// of what they compute. Such a header is C17 and C++17 alike and declares them TRI_KERNEL_INLINE.
// The kernels' own header has defined these macros before where they need other words.
#ifndef TRIREME_BASE_KERNEL_INLINE_H
#define TRIREME_BASE_KERNEL_INLINE_H

#if !defined(TRI_KERNEL_INLINE)
#define TRI_KERNEL_INLINE static inline __attribute__((always_inline, unused))
#define TRI_KERNEL_UNROLL_10 _Pragma("GCC unroll 10") // before a loop of 10 rounds
#endif

#endif
