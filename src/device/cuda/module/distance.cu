// Losses that sum over all elements, their gradients, and the final sum of every loss. The kernels
// read prediction and target once (the gradient of relative L2 twice), which is 8 bytes for each
// element (4 in F16 and BF16), and sum in F64. The gradients write 4 bytes (2) for each element.
#include "device/cuda/module/pack.h"

namespace {

enum { MAX_WARPS = GPU_BLOCK / 32, SUM_THREADS = 1024, SUM_WARPS = SUM_THREADS / 32 };

// What one element adds to the loss (squared error, or binary cross-entropy of a score).
GPU_DEVICE float term_of(int function, float prediction, float target) {
    if (function == CUDA_SQUARED_ERROR) return (prediction - target) * (prediction - target);
    return (prediction > 0 ? prediction : 0) - prediction * target +
           log1pf(expf(-fabsf(prediction)));
}

// The derivative of term_of with respect to the prediction.
GPU_DEVICE float slope_of(int function, float prediction, float target) {
    if (function == CUDA_SQUARED_ERROR) return 2 * (prediction - target);
    return 1 / (1 + expf(-prediction)) - target;
}

// Sums the terms of all elements, into p.slices sums. The elements are cut into runs of GPU_BLOCK *
// n. Thread block b adds up run b and then every p.slices-th run after it. So the order of the sum
// depends neither on the device nor on where the tensors lie. Writes 8 bytes for each block.
template <int function, typename T, typename access> GPU_KERNEL sum_slices(cuda_distance p) {
    constexpr int n = access::count;
    GPU_SHARED(double, scratch, MAX_WARPS);
    double sum = 0;
    for (int64_t i = gpu_thread() * n; i < p.samples * p.count; i += gpu_threads() * n) {
        float prediction[n], target[n];
        access::read((const T *)p.prediction + i, prediction);
        access::read((const T *)p.target + i, target);
        for (int k = 0; k < n; k++) sum += (double)term_of(function, prediction[k], target[k]);
    }
    sum = gpu_block_sum(sum, scratch);
    if (threadIdx.x == 0) p.terms[blockIdx.x] = sum;
}

template <int function, typename T, typename access> GPU_KERNEL gradient(cuda_distance p) {
    constexpr int n = access::count;
    float seed = gpu_get_seed(p.seed, p.seed_type);
    for (int64_t i = gpu_thread() * n; i < p.samples * p.count; i += gpu_threads() * n) {
        float prediction[n], target[n];
        access::read((const T *)p.prediction + i, prediction);
        access::read((const T *)p.target + i, target);
        for (int k = 0; k < n; k++)
            prediction[k] = seed * slope_of(function, prediction[k], target[k]);
        access::write((T *)p.dx + i, prediction);
    }
}

// For the relative L2 error of each sample, |prediction - target| / |target|, computes the sums of
// squares of which it is made. A thread block takes a slice of a sample: a run of GPU_BLOCK * n
// elements, and then every p.slices-th run after it. Writes 16 bytes for each slice.
template <typename T, typename access> GPU_KERNEL relative_sums(cuda_distance p) {
    constexpr int n = access::count;
    GPU_SHARED(double, scratch, MAX_WARPS);
    for (int64_t item = blockIdx.x; item < p.samples * p.slices; item += gridDim.x) {
        int64_t begin = item / p.slices * p.count, step = p.slices * GPU_BLOCK * n;
        double far = 0, size = 0;
        for (int64_t i = (item % p.slices * GPU_BLOCK + threadIdx.x) * n; i < p.count; i += step) {
            float prediction[n], target[n];
            access::read((const T *)p.prediction + begin + i, prediction);
            access::read((const T *)p.target + begin + i, target);
            for (int k = 0; k < n; k++) {
                double d = (double)prediction[k] - (double)target[k];
                far += d * d;
                size += (double)target[k] * (double)target[k];
            }
        }
        far = gpu_block_sum(far, scratch);
        size = gpu_block_sum(size, scratch);
        if (threadIdx.x != 0) continue;
        p.slice_sums[2 * item] = far;
        p.slice_sums[2 * item + 1] = size;
    }
}

// Adds up the slices of each sample, one warp for each sample, in a fixed order. Writes the
// sample's error or (if p.terms is NULL) the factor of its gradient. Reads 16 bytes for each slice,
// and writes 8 for each sample.
GPU_KERNEL relative_join(cuda_distance p) {
    for (int64_t s = gpu_thread() / GPU_WARP; s < p.samples; s += gpu_threads() / GPU_WARP) {
        double far = 0, size = 0;
        for (int64_t i = threadIdx.x % GPU_WARP; i < p.slices; i += GPU_WARP) {
            far += p.slice_sums[2 * (s * p.slices + i)];
            size += p.slice_sums[2 * (s * p.slices + i) + 1];
        }
        far = sqrt(gpu_warp_sum(far));
        size = sqrt(gpu_warp_sum(size));
        if (threadIdx.x % GPU_WARP != 0) continue;
        if (p.terms)
            p.terms[s] = far / size;
        else
            p.factors[s] = far == 0 ? 0 : (double)gpu_get_seed(p.seed, p.seed_type) / (far * size);
    }
}

// Computes the gradient of the sum of the relative errors. Blocks take slices as in relative_sums.
template <typename T, typename access> GPU_KERNEL relative_gradient(cuda_distance p) {
    constexpr int n = access::count;
    for (int64_t item = blockIdx.x; item < p.samples * p.slices; item += gridDim.x) {
        int64_t begin = item / p.slices * p.count, step = p.slices * GPU_BLOCK * n;
        float factor = (float)p.factors[item / p.slices];
        for (int64_t i = (item % p.slices * GPU_BLOCK + threadIdx.x) * n; i < p.count; i += step) {
            float prediction[n], target[n];
            access::read((const T *)p.prediction + begin + i, prediction);
            access::read((const T *)p.target + begin + i, target);
            for (int k = 0; k < n; k++) prediction[k] = factor * (prediction[k] - target[k]);
            access::write((T *)p.dx + begin + i, prediction);
        }
    }
}

template <typename T, typename access>
tri_status launch_relative(cuda_stream *stream, const cuda_distance *p, char *why) {
    int64_t blocks = gpu_at_most(p->samples * p->slices);
    tri_status status = gpu_launch(stream, relative_sums<T, access>, blocks, GPU_BLOCK, *p, why);
    if (status == TRI_OK)
        status =
            gpu_launch(stream, relative_join, gpu_blocks(stream, p->samples, GPU_BLOCK / GPU_WARP),
                       GPU_BLOCK, *p, why);
    if (status != TRI_OK || p->terms) return status;
    return gpu_launch(stream, relative_gradient<T, access>, blocks, GPU_BLOCK, *p, why);
}

template <int function, typename T, typename access>
tri_status launch_with(cuda_stream *stream, const cuda_distance *p, char *why) {
    if (function == CUDA_RELATIVE_L2) return launch_relative<T, access>(stream, p, why);
    if (p->terms)
        return gpu_launch(stream, sum_slices<function, T, access>, p->slices, GPU_BLOCK, *p, why);
    int64_t blocks = gpu_blocks(stream, p->samples * p->count / access::count, GPU_BLOCK);
    return gpu_launch(stream, gradient<function, T, access>, blocks, GPU_BLOCK, *p, why);
}

template <int function, typename T>
tri_status launch_as(cuda_stream *stream, T *, const cuda_distance *p, char *why) {
    int64_t row = function == CUDA_RELATIVE_L2 ? p->count : p->samples * p->count;
    uintptr_t addresses = (uintptr_t)p->prediction | (uintptr_t)p->target | (uintptr_t)p->dx;
    return gpu_with_access<gpu_lot<T>::count>(row, addresses, [=](auto access) {
        return launch_with<function, T, decltype(access)>(stream, p, why);
    });
}

template <int function> tri_status launch(cuda_stream *stream, const cuda_distance *p, char *why) {
    return gpu_with_real(p->type,
                         [=](auto *type) { return launch_as<function>(stream, type, p, why); });
}

// Computes what row i adds to the sum. `counts`: the row's label is not ignored; false: it adds 0.
GPU_DEVICE double term_at(const cuda_loss_sum &p, int64_t i, bool counts) {
    switch (p.term) {
    case CUDA_SLICE_LOSS:
        return counts ? (double)logf(p.all_slices[2 * i]) - (double)p.all_slices[2 * i + 1] : 0;
    case CUDA_SLICE_HITS:
        return counts && -(double)p.all_slices[i] == (double)p.labels[i];
    default:
        return p.terms[i];
    }
}

// Adds up the terms of a loss in one thread block, so that the order of the sum depends on `count`
// alone. Reads 8 bytes for each row (CUDA_SLICE_HITS: 4) and, where there are labels, another 8;
// writes 16.
GPU_KERNEL loss_sum(cuda_loss_sum p) {
    GPU_SHARED(double, scratch, SUM_WARPS);
    double sum = 0, labels = 0;
    for (int64_t i = threadIdx.x; i < p.count; i += SUM_THREADS) {
        bool counts = !p.labels || p.labels[i] != p.ignored;
        if (p.term == CUDA_SLICE_HITS && counts && (p.labels[i] < 0 || p.labels[i] >= p.classes))
            gpu_refuse(p.fault, CUDA_FAULT_LABEL, p.labels[i], i, p.classes);
        sum += term_at(p, i, counts);
        labels += counts;
    }
    sum = gpu_block_sum(sum, scratch);
    labels = gpu_block_sum(labels, scratch);
    if (threadIdx.x == 0) p.out[0] = sum;
    if (threadIdx.x == 0) p.out[1] = p.labels ? labels : p.whole;
}

} // namespace

extern "C" tri_status cuda_launch_distance(cuda_stream *stream, const cuda_distance *p, char *why) {
    switch (p->function) {
    case CUDA_SQUARED_ERROR:
        return launch<CUDA_SQUARED_ERROR>(stream, p, why);
    case CUDA_BINARY_CROSS_ENTROPY:
        return launch<CUDA_BINARY_CROSS_ENTROPY>(stream, p, why);
    case CUDA_RELATIVE_L2:
        return launch<CUDA_RELATIVE_L2>(stream, p, why);
    }
    return TRI_UNSUPPORTED;
}

extern "C" tri_status cuda_launch_loss_sum(cuda_stream *stream, const cuda_loss_sum *p, char *why) {
    return gpu_launch(stream, loss_sum, 1, SUM_THREADS, *p, why);
}
