// A kernel that ends all work of the device with an error, so that tests can see how a run ends
// after a GPU's failure. It reads and writes no memory.
#include "device/cuda/module/gpu.h"

namespace {
GPU_KERNEL trap(cuda_trap) { gpu_trap(); }
} // namespace

extern "C" tri_status cuda_launch_trap(cuda_stream *stream, const cuda_trap *p, char *why) {
    return gpu_launch(stream, trap, 1, 1, *p, why);
}
