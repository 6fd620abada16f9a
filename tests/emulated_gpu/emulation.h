// Emulates on the host what src/device/cuda/module/gpu.h needs of a GPU, so that tests run our
// kernels without one. Blocks run one after the other. The threads of a block are fibers of one
// thread of the host, which goes from fiber to fiber at barriers and shuffles. Shared memory is
// filled with poison before each block. Each array of it is an allocation of its own, so that
// AddressSanitizer sees an access beyond its end. If some threads of a block do not reach a barrier
// at which others wait, the program ends with a message.
#ifndef TRIREME_TESTS_EMULATED_GPU_EMULATION_H
#define TRIREME_TESTS_EMULATED_GPU_EMULATION_H

#include "device/cuda/runtime.h"

#include <functional>
#include <string.h>
#include <vector>

struct emulated_index {
    unsigned x;
};

// What a kernel knows of the thread that runs it: threadIdx, blockIdx, blockDim and gridDim.
// emulated_now: that of the fiber which runs now.
struct emulated_thread {
    emulated_index thread, block, block_size, grid_size;
};
extern __thread emulated_thread *emulated_now; // unlike thread_local, read without a call

#if !defined(EMULATED_WITHOUT_KERNELS) // else CUDA's own headers have these names
#define threadIdx (emulated_now->thread)
#define blockIdx (emulated_now->block)
#define blockDim (emulated_now->block_size)
#define gridDim (emulated_now->grid_size)
#endif

#define GPU_KERNEL static void
#define GPU_KERNEL_FOR(threads, blocks) static void
#define GPU_DEVICE static inline
#define GPU_UNROLL
#define GPU_SHARED(type, name, count)                                                              \
    type *name = (type *)emulated_shared(__LINE__, sizeof(type) * (count))

#define GPU_DYNAMIC_SHARED(type, name) type *name = (type *)emulated_dynamic_shared()

// Returns the array of shared memory that is declared in this source line. The block's first thread
// that asks for it allocates it.
void *emulated_shared(int line, size_t size_bytes);
void *emulated_dynamic_shared(); // its size is the launch's `shared_bytes`
void emulated_barrier();
// Hands 8 bytes to the other lanes (threads) of the warp, and returns the 8 bytes of the lane whose
// number is this lane's ^ mask.
uint64_t emulated_shuffle_xor(uint64_t bits, int mask);
// Hands an address to the other lanes of the warp, and sets `lanes` to the addresses of all 32. The
// lanes may read what lies there until emulated_go_on, which all of them have to call.
void emulated_gather(const void *address, const void **lanes);
void emulated_go_on();
// Begins a copy to shared memory; `from` NULL: of zeros. The bytes arrive only in
// emulated_copy_wait, and `to` is filled with poison until then, so that tests notice a kernel that
// does not wait.
void emulated_copy(void *to, const void *from, size_t size_bytes);
void emulated_copy_wait();
int64_t emulated_clock_ns();
bool emulated_is_pinned(cuda_stream *stream, const void *memory);
// Adds work to the stream that is not a kernel, such as a product of the emulated cuBLASLt.
void emulated_push(cuda_stream *stream, std::function<void()> item);
// Loads a kernel of a library when it is issued for the first time, because libraries have other
// kernels for other shapes. `kernel` is what tells it from all others.
void emulated_load(const std::vector<int64_t> &kernel);
// Adds a kernel to the stream; `body` runs one thread of it.
tri_status emulated_launch(cuda_stream *stream, const void *kernel, int64_t blocks, int threads,
                           int shared_bytes, const std::function<void()> &body, char *why);
void emulated_trap(); // called by a kernel: ends all work of the device with an error
bool emulated_failed(const cuda_stream *stream); // a kernel has trapped on the stream's device
int gpu_multiprocessors(const cuda_stream *stream);

static inline void gpu_barrier() { emulated_barrier(); }

template <typename T> static inline T gpu_shuffle_xor(T value, int mask) {
    uint64_t bits = 0;
    static_assert(sizeof value <= sizeof bits, "a lane hands over 8 bytes");
    memcpy(&bits, &value, sizeof value);
    bits = emulated_shuffle_xor(bits, mask);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline int32_t gpu_compare_and_swap(int32_t *word, int32_t expected, int32_t wanted) {
    __atomic_compare_exchange_n(word, &expected, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

static inline void gpu_fence_host() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void gpu_trap() { emulated_trap(); }
static inline int64_t gpu_clock_ns() { return emulated_clock_ns(); }

// Whether a GPU could write to the memory of the host that these parameters name: it has to be
// pinned. Only the kernel of the clock is checked; a cuda_fault, to which other kernels write, is
// always pinned.
static inline bool emulated_reaches_host(cuda_stream *stream, const cuda_clock &params) {
    return emulated_is_pinned(stream, params.ns);
}
template <typename P> static inline bool emulated_reaches_host(cuda_stream *, const P &) {
    return true;
}

template <typename P>
static inline tri_status gpu_launch(cuda_stream *stream, void (*kernel)(P), int64_t blocks,
                                    int threads, P params, char *why, int shared_bytes = 0) {
    if (blocks == 0) return TRI_OK;
    bool reaches = emulated_reaches_host(stream, params);
    auto body = [=] {
        if (!reaches) gpu_trap();
        kernel(params);
    };
    return emulated_launch(stream, (const void *)kernel, blocks, threads, shared_bytes, body, why);
}

#endif
