// Functions that launch the kernels of pool_last.cu, which do for images with channels last (NHWC)
// what those of pool.cu do for row-major images (NCHW); and functions that both files use.
#ifndef TRIREME_DEVICE_CUDA_MODULE_POOL_LAST_H
#define TRIREME_DEVICE_CUDA_MODULE_POOL_LAST_H

#include "device/cuda/module/gpu.h"

// The windows along axis d: 0 is the height, 1 the width.
GPU_DEVICE pool_axis axis_of(const cuda_windows &w, int d) {
    return {w.in[d], 0, w.kernel[d], w.stride[d], w.padding[d]};
}

// Returns 1 / the divisor of a window's sum. `begin` and `end` tell which rows and which columns of
// x the window covers.
GPU_DEVICE float factor_of(const cuda_avg_pool &p, const int64_t *begin, const int64_t *end) {
    int64_t inside = (end[0] - begin[0]) * (end[1] - begin[1]);
    return 1 / (float)(p.divisor ? p.divisor : inside);
}

tri_status pool_launch_last(cuda_stream *stream, const cuda_max_pool *p, char *why);
tri_status pool_launch_last(cuda_stream *stream, const cuda_max_pool_grad *p, char *why);
tri_status pool_launch_last(cuda_stream *stream, const cuda_avg_pool *p, bool is_gradient,
                            char *why);
tri_status pool_launch_last(cuda_stream *stream, const cuda_dropout *p, char *why);
tri_status pool_launch_last(cuda_stream *stream, const cuda_normalize_bytes *p, char *why);

#endif
