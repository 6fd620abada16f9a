// The device `cpu`: opens it, finds out which instruction sets it may use, and lists its kernels.
// It also has the functions that are not ops of a graph: they allocate memory, copy, set to zero
// and add.
#include "device/cpu/cpu.h"

#include "base/limits.h"
#include "base/parallel.h"
#include "base/variable.h"
#include "device/cpu/amx.h"
#include "device/queue.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/ref/ref.h"

enum {
    CPU_MAX_KERNELS = 256,
    CPU_HUGE_PAGE_BYTES = 2 << 20,
    CPU_FLAT_GRAIN = 1 << 14, // a range of fewer elements is not worth a second thread
};

// All kernels. A node gets the first kernel that supports it, so our own come first, because they
// are faster. After them come those of the device `ref`, the reference in plain C. The first call
// of cpu_describe fills the list.
static const tri_kernel_def *cpu_kernels[CPU_MAX_KERNELS];

static void list_kernels(void) {
    if (cpu_kernels[0]) return;
    static const tri_kernel_def *const own[] = {
#define X(name) &cpu_##name,
        CPU_KERNEL_LIST(X)
#undef X
    };
    int count = (int)(sizeof own / sizeof *own), total = count;
    const tri_kernel_def *const *ref = tri_device_ref.kernels;
    for (; ref[total - count]; total++) {
        TRI_ASSERT(total + 1 < CPU_MAX_KERNELS);
        cpu_kernels[total] = ref[total - count];
    }
    memcpy(cpu_kernels, own, sizeof own);
}

// Limits the instruction set to TRIREME_CPU_ISA, so that hosts with different CPUs can train
// together.
static tri_status limit_isa(unsigned *features) {
    static const struct {
        const char *name;
        unsigned features;
    } levels[] = {{"base", 0},
                  {"avx2", CPU_HAS_AVX2},
                  {"avx512", CPU_HAS_AVX2 | CPU_HAS_AVX512},
                  {"bf16", CPU_HAS_AVX2 | CPU_HAS_AVX512 | CPU_HAS_BF16},
                  {"amx", CPU_HAS_AVX2 | CPU_HAS_AVX512 | CPU_HAS_BF16 | CPU_HAS_AMX}};
    const char *most = "amx";
    TRI_TRY(tri_variable_choice(NULL, "TRIREME_CPU_ISA", &most));
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (!strcmp(most, levels[i].name)) *features &= levels[i].features;
    return TRI_OK;
}

static unsigned features_here(void) {
    unsigned features = 0;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) features |= CPU_HAS_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        features |= CPU_HAS_AVX512;
    if (features & CPU_HAS_AVX512 && __builtin_cpu_supports("avx512bf16")) features |= CPU_HAS_BF16;
    if (features & CPU_HAS_BF16 && cpu_amx_is_allowed()) features |= CPU_HAS_AMX;
    return features;
}

static tri_status cpu_describe(const tri_device_config *config, tri_device_description *out) {
    list_kernels();
    *out = tri_device_description_of(&tri_device_cpu, config);
    if (!config->threads) out->threads = tri_parallel_threads();
    out->features = features_here();
    if (out->threads < 1 || out->threads > TRI_MAX_THREADS)
        return TRI_FAIL(TRI_BAD_INPUT, "OMP_NUM_THREADS: a rank has 1 to %d threads",
                        TRI_MAX_THREADS);
    // OpenMP never starts more threads than OMP_THREAD_LIMIT. If `threads` were larger, oneDNN
    // would divide its work among that many threads, and nobody would do the work of those that
    // were never started.
    if (out->threads > omp_get_thread_limit()) out->threads = omp_get_thread_limit();
    return limit_isa(&out->features);
}

static tri_status cpu_open(const tri_device_config *config, tri_device **out) {
    tri_device_description description;
    dnnl_engine_t engine;
    *out = NULL;
    TRI_TRY(cpu_describe(config, &description));
    TRI_TRY(cpu_engine(&engine));
    cpu_device *device = calloc(1, sizeof *device);
    if (!device) return TRI_FAIL(TRI_NO_MEMORY, "no memory for the device cpu");
    device->head = (tri_device){.backend = &tri_device_cpu, .description = description};
    cpu_use_threads(&description);
    dnnl_status_t status = dnnl_stream_create(&device->stream, engine, dnnl_stream_default_flags);
    if (status != dnnl_success) {
        free(device);
        return TRI_FAIL(TRI_INTERNAL, "oneDNN does not start: status %d", status);
    }
    *out = &device->head;
    return TRI_OK;
}

static void cpu_close(tri_device *head) {
    cpu_device *device = (cpu_device *)head;
    if (!device) return;
    if (device->stream) dnnl_stream_destroy(device->stream);
    free(device);
}

static tri_status cpu_alloc(tri_device *device, size_t size_bytes, void **out) {
    // Large buffers use huge pages if the system has them, because fewer pages cause fewer misses
    // of the TLB.
    bool huge = size_bytes >= CPU_HUGE_PAGE_BYTES;
    size_t alignment = huge ? CPU_HUGE_PAGE_BYTES : 64;
    if (size_bytes > SIZE_MAX - alignment ||
        posix_memalign(out, alignment, size_bytes ? size_bytes : 1))
        return TRI_FAIL(TRI_NO_MEMORY, "the device cpu has no memory for %zu bytes", size_bytes);
    if (!huge) {
        memset(*out, 0, size_bytes);
        return TRI_OK;
    }
    // Its whole pages become zero when they are first used, so that what is never used takes no
    // memory.
    size_t end = size_bytes / CPU_HUGE_PAGE_BYTES * CPU_HUGE_PAGE_BYTES;
    madvise(*out, size_bytes, MADV_HUGEPAGE);
    if (madvise(*out, end, MADV_DONTNEED) != 0) memset(*out, 0, end);
    memset((char *)*out + end, 0, size_bytes - end);
    return TRI_OK;
}

static void cpu_free(tri_device *device, void *memory) { free(memory); }

static tri_status cpu_copy(tri_queue *queue, void *to, const void *from, size_t size_bytes) {
    if (size_bytes) memcpy(to, from, size_bytes);
    return TRI_OK;
}

typedef struct flat_job {
    float *to;
    const float *from;
    int64_t count;
} flat_job;

static void zero_range(void *context, int64_t begin, int64_t end, int thread) {
    flat_job *job = context;
    memset((char *)job->to + begin, 0, (size_t)(end - begin));
}

static tri_status cpu_zero(tri_queue *queue, void *memory, size_t size_bytes) {
    flat_job job = {.to = memory};
    cpu_parallel(cpu_of(queue->device), (int64_t)size_bytes, CPU_FLAT_GRAIN * 4, zero_range, &job);
    return TRI_OK;
}

CPU_BODY add_body(void *context, int64_t begin, int64_t end) {
    flat_job *job = context;
    float *restrict to = job->to;
    const float *restrict from = job->from;
    for (int64_t i = begin; i < end; i++) to[i] += from[i];
}
CPU_RANGES(add)

static tri_status cpu_add(tri_queue *queue, float *to, const float *from, int64_t count) {
    flat_job job = {.to = to, .from = from};
    const cpu_device *device = cpu_of(queue->device);
    cpu_parallel(device, count, CPU_FLAT_GRAIN, add_range(device), &job);
    return TRI_OK;
}

const tri_device_backend tri_device_cpu = {
    .name = "cpu",
    .kernels = cpu_kernels,
    .describe = cpu_describe,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .open_queue = tri_queue_open_immediate,
    .close_queue = tri_queue_close_immediate,
    .record = tri_queue_record_nothing,
    .wait = tri_queue_wait_here,
    .copy_in = cpu_copy,
    .copy_out = cpu_copy,
    .zero = cpu_zero,
    .add = cpu_add,
    .host_memory = true,
};
