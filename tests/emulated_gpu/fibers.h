// Runs a kernel: all blocks, and the threads of each as fibers.
#ifndef TRIREME_TESTS_EMULATED_GPU_FIBERS_H
#define TRIREME_TESTS_EMULATED_GPU_FIBERS_H

#include <cstdint>
#include <functional>

// False: a thread of the kernel trapped. `shared_bytes` are a block's dynamic shared memory;
// `samples`: only the first and the last block run.
bool emulated_run(int64_t blocks, int threads, int shared_bytes, bool samples,
                  const std::function<void()> &body);

#endif
