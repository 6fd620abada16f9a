// A thread's position among the elements of one channel. The GPU_BLOCK threads of a block go
// through these elements together, GPU_BLOCK elements at a time. The elements lie in runs of
// `inner` neighbours: one run for each sample.
#ifndef TRIREME_DEVICE_CUDA_MODULE_WALK_H
#define TRIREME_DEVICE_CUDA_MODULE_WALK_H

#include "device/cuda/module/gpu.h"

struct gpu_walk {
    int64_t outer, inner; // the run (sample) in which the thread is, and the position in it
    // A thread goes on by GPU_BLOCK elements of the channel each time: by outer_step whole samples
    // and inner_step more elements.
    int64_t outer_step, inner_step;
};

// Returns the position of element `number` of the channel, where a thread begins.
GPU_DEVICE gpu_walk gpu_walk_from(int64_t number, int64_t inner) {
    return {number / inner, number % inner, GPU_BLOCK / inner, GPU_BLOCK % inner};
}

// Moves the position on by GPU_BLOCK elements of the channel, without a division, because divisions
// are slow on a GPU.
GPU_DEVICE void gpu_walk_on(gpu_walk *at, int64_t inner) {
    at->outer += at->outer_step;
    at->inner += at->inner_step;
    if (at->inner < inner) return;
    at->inner -= inner;
    at->outer++;
}

#endif
