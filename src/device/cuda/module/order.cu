// Order along one axis: argmax, and sort. argmax reads each element once; a warp takes a long axis
// whose elements lie side by side, else a thread takes an axis. sort reads and writes 12 bytes for
// each element in each of its rounds, of which there are log2(size / CUDA_SORT_RUN): in one, each
// thread finds the place of its element by bisection in the run with which its own is merged. So
// all elements of all axes are moved at once, and no two threads meet.
#include "device/cuda/module/gpu.h"
#include "ops/sort_key.h"

#include <type_traits>

namespace {

GPU_DEVICE int64_t key_of(float x) { return sort_key_f32(x); }
GPU_DEVICE int64_t key_of(double x) { return sort_key_f64(x); }
GPU_DEVICE int64_t key_of(int64_t x) { return x; }

// The key for argmax: NaN is the largest, whichever extreme is wanted.
template <typename W> GPU_DEVICE int64_t extreme_key(bool minimum, W x) {
    if constexpr (std::is_integral<W>::value) return minimum ? ~x : x;
    return key_of(minimum ? -x : x);
}

template <typename T> GPU_KERNEL argmax(cuda_argmax p) {
    const axis_cut &cut = p.cut;
    for (int64_t n = gpu_thread(); n < cut.outer * cut.inner; n += gpu_threads()) {
        const T *x = (const T *)p.x + n / cut.inner * cut.size * cut.inner + n % cut.inner;
        int64_t most = extreme_key(p.minimum, gpu_get(x[0])), best = 0;
        for (int64_t k = 1; k < cut.size; k++) {
            int64_t key = extreme_key(p.minimum, gpu_get(x[k * cut.inner]));
            if (key <= most) continue;
            most = key;
            best = k;
        }
        p.index[n] = best;
    }
}

template <typename T> GPU_KERNEL argmax_of_rows(cuda_argmax p) {
    int lane = (int)(threadIdx.x % GPU_WARP);
    for (int64_t n = gpu_thread() / GPU_WARP; n < p.cut.outer; n += gpu_threads() / GPU_WARP) {
        const T *x = (const T *)p.x + n * p.cut.size;
        int64_t most = INT64_MIN, best = p.cut.size;
        for (int64_t k = lane; k < p.cut.size; k += GPU_WARP) {
            int64_t key = extreme_key(p.minimum, gpu_get(x[k]));
            if (key < most || (key == most && k >= best)) continue;
            most = key;
            best = k;
        }
        for (int mask = GPU_WARP / 2; mask; mask /= 2) {
            int64_t key = gpu_shuffle_xor(most, mask), at = gpu_shuffle_xor(best, mask);
            if (key < most || (key == most && at >= best)) continue;
            most = key;
            best = at;
        }
        if (lane == 0) p.index[n] = best;
    }
}

// Where element k of column n (an outer and an inner index) lies.
GPU_DEVICE int64_t element_of(const axis_cut &cut, int64_t n, int64_t k, int64_t size) {
    return (n / cut.inner * size + k) * cut.inner + n % cut.inner;
}

// A thread sorts one run by insertion.
template <typename T> GPU_KERNEL sort_runs(cuda_sort p) {
    const axis_cut &cut = p.cut;
    int64_t runs = (cut.size + CUDA_SORT_RUN - 1) / CUDA_SORT_RUN;
    for (int64_t item = gpu_thread(); item < cut.outer * cut.inner * runs; item += gpu_threads()) {
        int64_t n = item / runs, first = item % runs * CUDA_SORT_RUN;
        int64_t end = first + CUDA_SORT_RUN < cut.size ? first + CUDA_SORT_RUN : cut.size;
        int64_t *keys = p.keys[0] + n * cut.size;
        int32_t *order = p.order[0] + n * cut.size;
        for (int64_t k = first; k < end; k++) {
            int64_t key = key_of(gpu_get(((const T *)p.x)[element_of(cut, n, k, cut.size)]));
            int64_t to = k;
            if (p.descending) key = ~key;
            for (; to > first && keys[to - 1] > key; to--) {
                keys[to] = keys[to - 1];
                order[to] = order[to - 1];
            }
            keys[to] = key;
            order[to] = (int32_t)k;
        }
    }
}

// How many of the sorted keys are below `key`, or not above it.
GPU_DEVICE int64_t count_before(const int64_t *keys, int64_t count, int64_t key, bool or_equal) {
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (keys[middle] < key || (or_equal && keys[middle] == key))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

GPU_KERNEL sort_merge(cuda_sort p) {
    int64_t size = p.cut.size, count = p.cut.outer * p.cut.inner * size;
    for (int64_t n = gpu_thread(); n < count; n += gpu_threads()) {
        int64_t column = n - n % size, at = n % size, first = at - at % (2 * p.run);
        const int64_t *keys = p.keys[0] + column;
        int64_t middle = first + p.run < size ? first + p.run : size;
        int64_t end = first + 2 * p.run < size ? first + 2 * p.run : size;
        // Of equal keys, those of the first run come first.
        int64_t others = at < middle ? count_before(keys + middle, end - middle, keys[at], false)
                                     : count_before(keys + first, middle - first, keys[at], true);
        int64_t to = at < middle ? at + others : first + others + (at - middle);
        p.keys[1][column + to] = keys[at];
        p.order[1][column + to] = p.order[0][n];
    }
}

template <typename T> GPU_KERNEL sort_end(cuda_sort p) {
    const axis_cut &cut = p.cut;
    for (int64_t n = gpu_thread(); n < cut.outer * p.count * cut.inner; n += gpu_threads()) {
        int64_t i = n % cut.inner, k = n / cut.inner % p.count, o = n / cut.inner / p.count;
        int64_t column = o * cut.inner + i, from = p.order[0][column * cut.size + k];
        p.index[n] = from;
        ((T *)p.y)[n] = ((const T *)p.x)[element_of(cut, column, from, cut.size)];
    }
}

template <typename T> tri_status sort(cuda_stream *stream, cuda_sort p, char *why) {
    int64_t count = p.cut.outer * p.cut.inner * p.cut.size;
    int64_t blocks = gpu_blocks(stream, count, GPU_BLOCK);
    tri_status status =
        gpu_launch(stream, sort_runs<T>,
                   gpu_blocks(stream, count / CUDA_SORT_RUN + p.cut.outer * p.cut.inner, GPU_BLOCK),
                   GPU_BLOCK, p, why);
    for (p.run = CUDA_SORT_RUN; status == TRI_OK && p.run < p.cut.size; p.run *= 2) {
        status = gpu_launch(stream, sort_merge, blocks, GPU_BLOCK, p, why);
        int64_t *keys = p.keys[0];
        int32_t *order = p.order[0];
        p.keys[0] = p.keys[1];
        p.order[0] = p.order[1];
        p.keys[1] = keys;
        p.order[1] = order;
    }
    if (status != TRI_OK) return status;
    return gpu_launch(stream, sort_end<T>,
                      gpu_blocks(stream, p.cut.outer * p.count * p.cut.inner, GPU_BLOCK), GPU_BLOCK,
                      p, why);
}

} // namespace

extern "C" tri_status cuda_launch_argmax(cuda_stream *stream, const cuda_argmax *p, char *why) {
    int64_t columns = p->cut.outer * p->cut.inner;
    if (columns == 0) return TRI_OK;
    return gpu_with_number(p->type, [=](auto *type) {
        typedef typename std::remove_pointer<decltype(type)>::type T;
        bool rows = p->cut.inner == 1 && p->cut.size >= 2 * GPU_WARP;
        int64_t per_block = rows ? GPU_BLOCK / GPU_WARP : GPU_BLOCK;
        return gpu_launch(stream, rows ? argmax_of_rows<T> : argmax<T>,
                          gpu_blocks(stream, columns, per_block), GPU_BLOCK, *p, why);
    });
}

extern "C" tri_status cuda_launch_sort(cuda_stream *stream, const cuda_sort *p, char *why) {
    if (p->cut.outer * p->cut.inner * p->count == 0) return TRI_OK;
    return gpu_with_number(p->type, [=](auto *type) {
        typedef typename std::remove_pointer<decltype(type)>::type T;
        return sort<T>(stream, *p, why);
    });
}
