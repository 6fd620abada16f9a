// The gradient of silu(gate) * up. For each element it reads three numbers (gate, up, dy) and
// writes two (dgate, dup), each of 4 bytes (2 in F16 or BF16).
#include "device/cuda/module/pack.h"

namespace {

template <typename T, int n> GPU_KERNEL gate_grad(cuda_gate_grad p) {
    int64_t lots = p.count / n;
    for (int64_t i = gpu_thread(); i < lots; i += gpu_threads()) {
        float gate[n], up[n], dy[n];
        gpu_read((const T *)p.gate + i * n, gate);
        gpu_read((const T *)p.up + i * n, up);
        gpu_read((const T *)p.dy + i * n, dy);
        for (int k = 0; k < n; k++) {
            float s = 1 / (1 + expf(-gate[k])), dup = dy[k] * gate[k] * s;
            gate[k] = dy[k] * up[k] * s * (1 + gate[k] * (1 - s));
            up[k] = dup;
        }
        gpu_write((T *)p.dgate + i * n, gate);
        gpu_write((T *)p.dup + i * n, up);
    }
}

uintptr_t addresses(const cuda_gate_grad *p) {
    return (uintptr_t)p->gate | (uintptr_t)p->up | (uintptr_t)p->dy | (uintptr_t)p->dgate |
           (uintptr_t)p->dup;
}

// Launches the kernel for groups of n neighbouring elements (lots). Elements that do not fill a
// group get a second launch, in which each thread takes one element.
template <typename T>
tri_status launch_as(cuda_stream *stream, T *, const cuda_gate_grad *p, char *why) {
    constexpr int n = gpu_lot<T>::count;
    cuda_gate_grad lots = *p, rest = *p;
    lots.count = addresses(p) % 16 == 0 ? p->count / n * n : 0;
    rest.count = p->count - lots.count;
    rest.gate = (const T *)p->gate + lots.count;
    rest.up = (const T *)p->up + lots.count;
    rest.dy = (const T *)p->dy + lots.count;
    rest.dgate = (T *)p->dgate + lots.count;
    rest.dup = (T *)p->dup + lots.count;
    tri_status status = TRI_OK;
    if (lots.count)
        status = gpu_launch(stream, gate_grad<T, n>, gpu_blocks(stream, lots.count / n, GPU_BLOCK),
                            GPU_BLOCK, lots, why);
    if (status != TRI_OK || rest.count == 0) return status;
    return gpu_launch(stream, gate_grad<T, 1>, gpu_blocks(stream, rest.count, GPU_BLOCK), GPU_BLOCK,
                      rest, why);
}

} // namespace

extern "C" tri_status cuda_launch_gate_grad(cuda_stream *stream, const cuda_gate_grad *p,
                                            char *why) {
    return gpu_with_real(p->type, [=](auto *type) { return launch_as(stream, type, p, why); });
}
