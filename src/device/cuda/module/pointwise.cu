// Pointwise kernels: out[i] = function(a[i], b[i]). They read each element of a and b once and
// write each of out once, so memory bandwidth decides their time. An element has 4 bytes in F32, 8
// in F64, and 2 in F16 and BF16.
#include "device/cuda/module/gpu.h"

#include <type_traits>

namespace {

// How many elements a thread takes at a time: 16 bytes of the widest type.
template <typename A, typename B, typename O> struct lot {
    static const int widest = sizeof(A) > sizeof(B)
                                  ? (sizeof(A) > sizeof(O) ? sizeof(A) : sizeof(O))
                              : sizeof(B) > sizeof(O) ? sizeof(B)
                                                      : sizeof(O);
    static const int count = 16 / widest;
};

// Neighbouring elements that one instruction reads or writes.
template <typename T, int count> struct alignas(sizeof(T) * count) pack { T at[count]; };

template <typename W> GPU_DEVICE W compute(int function, W a, W b) {
    switch (function) {
    case CUDA_ADD:
        return a + b;
    default:
        return a; // CUDA_CAST: the store converts
    }
}

// Computes the function of all elements. `function` is a template parameter, so that the loop does
// not branch on it. For each element, reads sizeof(A) bytes (and sizeof(B), if there is a `b`) and
// writes sizeof(O).
template <int function, typename A, typename B, typename O> GPU_KERNEL pointwise(cuda_pointwise p) {
    typedef typename gpu_wide<A>::type W;
    constexpr int n = lot<A, B, O>::count;
    const A *a = (const A *)p.a;
    const B *b = (const B *)p.b;
    O *out = (O *)p.out;
    bool aligned = ((uintptr_t)a | (uintptr_t)b | (uintptr_t)out) % 16 == 0;
    int64_t lots = aligned ? p.count / n : 0;
    for (int64_t i = gpu_thread(); i < lots; i += gpu_threads()) {
        pack<A, n> left = ((const pack<A, n> *)a)[i];
        pack<B, n> right = {};
        pack<O, n> result;
        if (b) right = ((const pack<B, n> *)b)[i];
        for (int k = 0; k < n; k++)
            gpu_put(&result.at[k],
                    compute<W>(function, (W)gpu_get(left.at[k]), (W)gpu_get(right.at[k])));
        ((pack<O, n> *)out)[i] = result;
    }
    for (int64_t i = lots * n + gpu_thread(); i < p.count; i += gpu_threads())
        gpu_put(&out[i], compute<W>(function, (W)gpu_get(a[i]), b ? (W)gpu_get(b[i]) : (W)0));
}

template <int function, typename A, typename B, typename O>
tri_status launch(cuda_stream *stream, const cuda_pointwise *p, char *why) {
    int64_t blocks = gpu_blocks(stream, p->count / lot<A, B, O>::count + 1, GPU_BLOCK);
    return gpu_launch(stream, pointwise<function, A, B, O>, blocks, GPU_BLOCK, *p, why);
}

// Launches the kernel where a, b and out have one type.
template <int function>
tri_status launch_alike(cuda_stream *stream, const cuda_pointwise *p, char *why) {
    return gpu_with_float(p->a_type, [=](auto *type) {
        typedef typename std::remove_pointer<decltype(type)>::type T;
        return launch<function, T, T, T>(stream, p, why);
    });
}

// Adds tensors of two types: the sum of F32 and a half type is F32.
template <typename H>
tri_status add_mixed(cuda_stream *stream, const cuda_pointwise *p, char *why) {
    return p->a_type == TRI_F32 ? launch<CUDA_ADD, float, H, float>(stream, p, why)
                                : launch<CUDA_ADD, H, float, float>(stream, p, why);
}

tri_status cast(cuda_stream *stream, const cuda_pointwise *p, char *why) {
    return gpu_with_float(p->a_type, [=](auto *from) {
        typedef typename std::remove_pointer<decltype(from)>::type A;
        return gpu_with_float(p->out_type, [=](auto *to) {
            typedef typename std::remove_pointer<decltype(to)>::type O;
            return launch<CUDA_CAST, A, A, O>(stream, p, why);
        });
    });
}

} // namespace

extern "C" tri_status cuda_launch_pointwise(cuda_stream *stream, const cuda_pointwise *p,
                                            char *why) {
    if (p->count == 0) return TRI_OK;
    switch (p->function) {
    case CUDA_CAST:
        return cast(stream, p, why);
    case CUDA_ADD:
        if (p->a_type == p->b_type) return launch_alike<CUDA_ADD>(stream, p, why);
        return p->a_type == TRI_F16 || p->b_type == TRI_F16 ? add_mixed<gpu_f16>(stream, p, why)
                                                            : add_mixed<gpu_bf16>(stream, p, why);
    }
    return TRI_UNSUPPORTED;
}
