// Reads and writes several neighbouring elements, 16 bytes at most, by one instruction, which is
// faster than one by one. The elements that a thread takes in this way are called a lot.
#ifndef TRIREME_DEVICE_CUDA_MODULE_PACK_H
#define TRIREME_DEVICE_CUDA_MODULE_PACK_H

#include "device/cuda/module/gpu.h"

template <typename T, int count> struct alignas(sizeof(T) * count) gpu_pack { T at[count]; };

// How many elements a lot has, for tensors of the types A and B: so many that those of the narrower
// type fill 16 bytes.
template <typename A, typename B = A> struct gpu_lot {
    static const int count = 16 / (sizeof(A) < sizeof(B) ? sizeof(A) : sizeof(B));
};

// Reads n neighbouring elements as floats (those of F64 as doubles), or writes them. `from` and
// `to` are aligned to n elements, or to 16 bytes if n elements are larger than that.
template <int n, typename T, typename W> GPU_DEVICE void gpu_read(const T *from, W (&out)[n]) {
    constexpr int step = n * sizeof(T) <= 16 ? n : 16 / (int)sizeof(T);
    for (int s = 0; s < n; s += step) {
        gpu_pack<T, step> got = *(const gpu_pack<T, step> *)(from + s);
        for (int k = 0; k < step; k++) out[s + k] = gpu_get(got.at[k]);
    }
}

template <int n, typename T, typename W> GPU_DEVICE void gpu_write(T *to, const W (&numbers)[n]) {
    constexpr int step = n * sizeof(T) <= 16 ? n : 16 / (int)sizeof(T);
    for (int s = 0; s < n; s += step) {
        gpu_pack<T, step> put;
        for (int k = 0; k < step; k++) gpu_put(&put.at[k], numbers[s + k]);
        *(gpu_pack<T, step> *)(to + s) = put;
    }
}

// Whether rows of `width` elements can be read n at a time. `addresses` is all addresses combined
// by |: it is a multiple of 16 only if each of them is.
static inline bool gpu_in_lots(int64_t width, int n, uintptr_t addresses) {
    return width % n == 0 && addresses % 16 == 0;
}

// How a thread reads and writes n neighbouring elements: with few instructions (`whole`) or, if an
// address is no multiple of 16 bytes, one element at a time. Which elements a thread takes depends
// on n alone, so that a sum has the same bits at whatever addresses its tensors lie.
template <int n, bool whole> struct gpu_access {
    static const int count = n;
    static const bool is_whole = whole;
    template <typename T> GPU_DEVICE void read(const T *from, float (&out)[n]) {
        if constexpr (whole) {
            gpu_read(from, out);
        } else {
            for (int k = 0; k < n; k++) out[k] = gpu_get(from[k]);
        }
    }
    template <typename T> GPU_DEVICE void write(T *to, const float (&in)[n]) {
        if constexpr (whole) {
            gpu_write(to, in);
        } else {
            for (int k = 0; k < n; k++) gpu_put(&to[k], in[k]);
        }
    }
};

// Calls run(access) with the gpu_access for rows of `width` elements at these addresses, which are
// combined by | as for gpu_in_lots.
template <int n, typename F>
static inline tri_status gpu_with_access(int64_t width, uintptr_t addresses, F run) {
    if (width % n != 0) return run(gpu_access<1, true>());
    return addresses % 16 == 0 ? run(gpu_access<n, true>()) : run(gpu_access<n, false>());
}

// Whether 16 bytes can be read at each of these addresses; NULL counts as yes.
GPU_DEVICE bool gpu_is_aligned(const void *a, const void *b = nullptr, const void *c = nullptr,
                               const void *d = nullptr) {
    return ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d) % 16 == 0;
}

#endif
