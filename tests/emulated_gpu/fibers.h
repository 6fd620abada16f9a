// Runs a kernel: all its blocks one after the other, and the threads of each block as fibers.
#ifndef TRIREME_TESTS_EMULATED_GPU_FIBERS_H
#define TRIREME_TESTS_EMULATED_GPU_FIBERS_H

#include <cstdint>
#include <functional>

// Calls `body` once for each thread. `shared_bytes` is the size of a block's dynamic shared memory.
// With `samples`, only the first and the last block run, because tests of very large grids would
// otherwise take too long. False: a thread of the kernel trapped.
bool emulated_run(int64_t blocks, int threads, int shared_bytes, bool samples,
                  const std::function<void()> &body);

#endif
