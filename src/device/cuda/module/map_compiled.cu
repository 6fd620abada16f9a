// The formulas that are compiled ahead (map_compiled.h) on the GPU. They read each element of their
// inputs once and write each of their outputs once, so memory bandwidth decides their time.
#include "device/cuda/module/gpu.h"
#include "device/map_compiled.h"
#include "ops/formula_math.h"

#include <type_traits>

namespace {

// Neighbouring elements that one instruction reads or writes: 16 bytes.
template <typename T> struct alignas(16) pack {
    static const int count = 16 / sizeof(T);
    T at[count];
};

#define NUMBER(x) ((W)(x))
#define AS(text, same) same
#define relu(x) ((x) <= 0 ? 0 : (x))
#define leaky_relu(x, slope) ((x) > 0 ? (x) : (x) * (slope))
#define sigmoid(x) MAP_SIGMOID(x)
#define normal_cdf(x) MAP_NORMAL_CDF(x)

// A row of the list: how many inputs and outputs it has, and its function of one element.
#define ROW(name, in_count, out_count, body)                                                       \
    struct name##_row {                                                                            \
        static const int inputs = in_count, outputs = out_count;                                   \
        template <typename W> GPU_DEVICE void compute(const W *in, W *out, W slope) {              \
            body(void) slope;                                                                      \
        }                                                                                          \
    };
#define PART(name, value) const W name = value;
#define ONE(name, a, parts, y) ROW(name, 1, 1, W a = in[0]; parts out[0] = y;)
#define TWO(name, a, b, parts, y) ROW(name, 2, 1, W a = in[0]; W b = in[1]; parts out[0] = y;)
#define PAIR(name, a, b, c, parts, y, z)                                                           \
    ROW(name, 3, 2, W a = in[0]; W b = in[1]; W c = in[2]; parts out[0] = y; out[1] = z;)
TRI_COMPILED_LIST(ONE, TWO, PAIR)
#undef relu
#undef leaky_relu
#undef sigmoid
#undef normal_cdf

template <typename R, typename T> GPU_KERNEL map_compiled(cuda_map_compiled p) {
    typedef typename gpu_wide<T>::type W;
    constexpr int n = pack<T>::count;
    uintptr_t addresses = 0;
    for (int k = 0; k < R::inputs; k++) addresses |= (uintptr_t)p.in[k];
    for (int k = 0; k < R::outputs; k++) addresses |= (uintptr_t)p.out[k];
    W in[R::inputs], out[R::outputs];
    int64_t packs = addresses % 16 == 0 ? p.count / n : 0;
    for (int64_t i = gpu_thread(); i < packs; i += gpu_threads()) {
        pack<T> given[R::inputs], made[R::outputs];
        for (int k = 0; k < R::inputs; k++) given[k] = ((const pack<T> *)p.in[k])[i];
        for (int e = 0; e < n; e++) {
            for (int k = 0; k < R::inputs; k++) in[k] = (W)gpu_get(given[k].at[e]);
            R::compute(in, out, (W)p.slope);
            for (int k = 0; k < R::outputs; k++) gpu_put(&made[k].at[e], out[k]);
        }
        for (int k = 0; k < R::outputs; k++) ((pack<T> *)p.out[k])[i] = made[k];
    }
    for (int64_t i = packs * n + gpu_thread(); i < p.count; i += gpu_threads()) {
        for (int k = 0; k < R::inputs; k++) in[k] = (W)gpu_get(((const T *)p.in[k])[i]);
        R::compute(in, out, (W)p.slope);
        for (int k = 0; k < R::outputs; k++) gpu_put(&((T *)p.out[k])[i], out[k]);
    }
}

template <typename R>
tri_status launch(cuda_stream *stream, const cuda_map_compiled *p, char *why) {
    return gpu_with_float(p->type, [=](auto *type) {
        typedef typename std::remove_pointer<decltype(type)>::type T;
        int64_t blocks = gpu_blocks(stream, p->count / pack<T>::count + 1, GPU_BLOCK);
        return gpu_launch(stream, map_compiled<R, T>, blocks, GPU_BLOCK, *p, why);
    });
}

} // namespace

extern "C" tri_status cuda_launch_map_compiled(cuda_stream *stream, const cuda_map_compiled *p,
                                               char *why) {
    if (p->count == 0) return TRI_OK;
    switch (p->row) {
#define X(name, ...)                                                                               \
    case TRI_COMPILED_##name:                                                                      \
        return launch<name##_row>(stream, p, why);
        TRI_COMPILED_LIST(X, X, X)
#undef X
    default:
        return TRI_UNSUPPORTED;
    }
}
