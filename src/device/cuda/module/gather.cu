// Elements along an axis by their numbers: gather, and scatter, which puts them there. gather reads
// each index and one element for each that it writes. In scatter, each thread reads all indices of
// its column (params_index.h), which neighbouring threads read at the same time, and reads and
// writes those elements that are its own.
#include "device/cuda/module/gpu.h"

#include <type_traits>

namespace {

// The index, or -1 if the axis has no such element, which is reported.
GPU_DEVICE int64_t index_at(const index_axis &a, const int64_t *index, int64_t at,
                            cuda_fault *fault) {
    int64_t found = index[at];
    if (found >= 0 && found < a.cut.size) return found;
    gpu_refuse(fault, CUDA_FAULT_INDEX, found, at, a.cut.size);
    return -1;
}

template <typename T> GPU_KERNEL gather(cuda_gather p) {
    const index_axis &a = p.axis;
    for (int64_t n = gpu_thread(); n < a.cut.outer * a.count * a.cut.inner; n += gpu_threads()) {
        int64_t i = n % a.cut.inner, k = n / a.cut.inner % a.count, o = n / a.cut.inner / a.count;
        int64_t row = index_at(a, p.index, index_axis_at(&a, o, k, i), p.fault);
        int64_t from = (o * a.cut.size + row) * a.cut.inner + i;
        bool takes = row >= 0 && (!p.later || p.later[from] == k);
        ((T *)p.y)[n] = takes ? ((const T *)p.x)[from] : T();
    }
}

// Calls put(element of the result, element of the source, k) for each element that a thread owns.
template <typename F>
GPU_DEVICE void for_own(const index_axis &a, int64_t owners, const int64_t *index,
                        cuda_fault *fault, F put) {
    for (int64_t n = gpu_thread(); n < a.cut.outer * owners * a.cut.inner; n += gpu_threads()) {
        int64_t i = n % a.cut.inner, own = n / a.cut.inner % owners, o = n / a.cut.inner / owners;
        for (int64_t k = 0; k < a.count; k++) {
            int64_t row = index_at(a, index, index_axis_at(&a, o, k, i), fault);
            if (row >= 0 && row % owners == own)
                put((o * a.cut.size + row) * a.cut.inner + i, (o * a.count + k) * a.cut.inner + i,
                    k);
        }
    }
}

GPU_KERNEL note_last(cuda_gather p) {
    for_own(p.axis, p.owners, p.index, p.fault,
            [&](int64_t to, int64_t from, int64_t k) { p.later[to] = k; });
}

template <typename T> GPU_KERNEL scatter_base(cuda_scatter p) {
    typedef typename gpu_wide<T>::type W;
    int64_t count = p.axis.cut.outer * p.axis.cut.size * p.axis.cut.inner;
    for (int64_t n = gpu_thread(); n < count; n += gpu_threads())
        ((W *)p.room)[n] = p.base ? gpu_get(((const T *)p.base)[n]) : (W)0;
}

template <typename T> GPU_KERNEL scatter(cuda_scatter p) {
    typedef typename gpu_wide<T>::type W;
    W *room = (W *)p.room;
    const T *source = (const T *)p.source;
    for_own(p.axis, p.owners, p.index, p.fault, [&](int64_t to, int64_t from, int64_t k) {
        W value = gpu_get(source[from]), old = room[to];
        if (p.kind == CUDA_SCATTER_ADD) value += old;
        if (p.kind == CUDA_SCATTER_MAX && (old != old || value <= old)) value = old; // NaN stays
        room[to] = value;
    });
}

template <typename T> GPU_KERNEL scatter_end(cuda_scatter p) {
    typedef typename gpu_wide<T>::type W;
    int64_t count = p.axis.cut.outer * p.axis.cut.size * p.axis.cut.inner;
    for (int64_t n = gpu_thread(); n < count; n += gpu_threads())
        gpu_put(&((T *)p.y)[n], ((const W *)p.room)[n]);
}

// Threads that take each its own elements; see params_index.h.
int64_t owner_blocks(cuda_stream *stream, const axis_cut &cut, int64_t owners) {
    return gpu_blocks(stream, cut.outer * owners * cut.inner, GPU_BLOCK);
}

template <typename T> tri_status launch(cuda_stream *stream, const cuda_gather *p, char *why) {
    int64_t count = p->axis.cut.outer * p->axis.count * p->axis.cut.inner;
    return gpu_launch(stream, gather<T>, gpu_blocks(stream, count, GPU_BLOCK), GPU_BLOCK, *p, why);
}

} // namespace

extern "C" tri_status cuda_launch_gather(cuda_stream *stream, const cuda_gather *p, char *why) {
    if (p->axis.cut.outer * p->axis.count * p->axis.cut.inner == 0) return TRI_OK;
    tri_status status = TRI_OK;
    if (p->later)
        status = gpu_launch(stream, note_last, owner_blocks(stream, p->axis.cut, p->owners),
                            GPU_BLOCK, *p, why);
    if (status != TRI_OK) return status;
    switch (p->element_bytes) {
    case 1:
        return launch<uint8_t>(stream, p, why);
    case 2:
        return launch<uint16_t>(stream, p, why);
    case 4:
        return launch<uint32_t>(stream, p, why);
    default:
        return launch<uint64_t>(stream, p, why);
    }
}

extern "C" tri_status cuda_launch_scatter(cuda_stream *stream, const cuda_scatter *p, char *why) {
    const axis_cut &cut = p->axis.cut;
    if (cut.outer * cut.size * cut.inner == 0) return TRI_OK;
    return gpu_with_float(p->type, [=](auto *type) {
        typedef typename std::remove_pointer<decltype(type)>::type T;
        const axis_cut &of = p->axis.cut;
        int64_t blocks = gpu_blocks(stream, of.outer * of.size * of.inner, GPU_BLOCK);
        tri_status status = gpu_launch(stream, scatter_base<T>, blocks, GPU_BLOCK, *p, why);
        if (status != TRI_OK) return status;
        if (status == TRI_OK)
            status = gpu_launch(stream, scatter<T>, owner_blocks(stream, of, p->owners), GPU_BLOCK,
                                *p, why);
        if (status != TRI_OK || p->room == p->y) return status;
        return gpu_launch(stream, scatter_end<T>, blocks, GPU_BLOCK, *p, why);
    });
}
