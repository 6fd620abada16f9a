// Measures the highest rates of this machine: arithmetic in F32 and BF16, and the bandwidth of
// memory and caches. `trireme bench kernels` reports the speed of kernels as fractions of these.
#include "device/cpu/amx.h"
#include "device/cpu/cpu.h"

#include "base/os.h"

enum {
    // Number of independent sums. To keep the FMA units busy it must be at least the latency of an
    // FMA times the FMAs that begin in a cycle, for example 4 cycles · 2 = 8.
    PEAK_CHAINS = 12,
    PEAK_TILES = 4,       // number of independent sums for AMX; each is a tile, a register of AMX
    PEAK_ROUNDS = 200000, // iterations of a loop that each thread runs in one measurement
    // The same for the loop for AMX: fewer, because an instruction of AMX takes about 16 cycles.
    PEAK_TILE_ROUNDS = 20000,
    PEAK_REPEATS = 9,              // measurements, of which the best counts
    PEAK_BUFFER_BYTES = 192 << 20, // size of each buffer, larger than all caches
};

static volatile float peak_sink; // receives results, so that the compiler does not remove the loops

static CPU_AVX512 void fma_avx512(void *context, int64_t begin, int64_t end, int thread) {
    __m512 sum[PEAK_CHAINS], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
    for (int i = 0; i < PEAK_CHAINS; i++) sum[i] = _mm512_set1_ps((float)i);
    for (int64_t r = begin; r < end; r++) {
#pragma GCC unroll 12
        for (int i = 0; i < PEAK_CHAINS; i++) sum[i] = _mm512_fmadd_ps(sum[i], x, y);
        __asm__ volatile("" ::"v"(sum[0]));
    }
    for (int i = 1; i < PEAK_CHAINS; i++) sum[0] = _mm512_add_ps(sum[0], sum[i]);
    peak_sink = _mm512_reduce_add_ps(sum[0]);
}

// Measures VDPBF16PS, which adds 32 products of BF16 in pairs to 16 sums.
static __attribute__((target("avx512f,avx512bf16"))) void dot_bf16(void *context, int64_t begin,
                                                                   int64_t end, int thread) {
    __m512 sum[PEAK_CHAINS];
    __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(1e-3f));
    for (int i = 0; i < PEAK_CHAINS; i++) sum[i] = _mm512_set1_ps((float)i);
    for (int64_t r = begin; r < end; r++) {
#pragma GCC unroll 12
        for (int i = 0; i < PEAK_CHAINS; i++) sum[i] = _mm512_dpbf16_ps(sum[i], x, x);
        __asm__ volatile("" ::"v"(sum[0]));
    }
    for (int i = 1; i < PEAK_CHAINS; i++) sum[0] = _mm512_add_ps(sum[0], sum[i]);
    peak_sink = _mm512_reduce_add_ps(sum[0]);
}

// Measures TDPBF16PS, which adds 16 × 16 × 32 products of BF16 to 16 × 16 sums.
static CPU_AMX void dot_tiles(void *context, int64_t begin, int64_t end, int thread) {
    cpu_amx_begin();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (int64_t r = begin; r < end; r++) { // each iteration executes PEAK_CHAINS instructions
        for (int i = 0; i < PEAK_CHAINS / PEAK_TILES; i++) {
            _tile_dpbf16ps(0, 4, 5);
            _tile_dpbf16ps(1, 4, 5);
            _tile_dpbf16ps(2, 4, 5);
            _tile_dpbf16ps(3, 4, 5);
        }
    }
    cpu_amx_end();
}

static __attribute__((target("avx2,fma"))) void fma_avx2(void *context, int64_t begin, int64_t end,
                                                         int thread) {
    __m256 sum[PEAK_CHAINS], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
    for (int i = 0; i < PEAK_CHAINS; i++) sum[i] = _mm256_set1_ps((float)i);
    for (int64_t r = begin; r < end; r++) {
#pragma GCC unroll 12
        for (int i = 0; i < PEAK_CHAINS; i++) sum[i] = _mm256_fmadd_ps(sum[i], x, y);
        __asm__ volatile("" ::"x"(sum[0]));
    }
    for (int i = 1; i < PEAK_CHAINS; i++) sum[0] = _mm256_add_ps(sum[0], sum[i]);
    peak_sink = sum[0][0];
}

// Measures the best rate of `loop`, in floating-point operations per second. One iteration of
// `loop` is PEAK_CHAINS instructions, each with `products` multiplications and as many additions;
// every thread runs `each` iterations.
static double best_rate(const cpu_device *device, int products, int64_t each, cpu_range loop) {
    int64_t iterations = each * device->head.description.threads;
    double best = 0;
    for (int repeat = 0; repeat < PEAK_REPEATS; repeat++) {
        double start = tri_os_seconds();
        cpu_parallel(device, iterations, 1, loop, NULL);
        double rate =
            products * 2.0 * PEAK_CHAINS * (double)iterations / (tri_os_seconds() - start);
        if (rate > best) best = rate;
    }
    return best;
}

// Measures how many bytes per second the device's `add` (a[i] += b[i]) reads and writes if its two
// buffers have `bytes` bytes together. This is the rate of the smallest cache that holds both
// buffers, or else of memory.
static tri_bench_rate cache_rate(tri_device *head, void *a, void *b, size_t bytes) {
    tri_bench_rate rate = {.bytes = (double)bytes};
    int calls = (int)(((size_t)8 << 20) / bytes) + 1;
    for (int repeat = 0; repeat < PEAK_REPEATS; repeat++) {
        double start = tri_os_seconds();
        for (int i = 0; i < calls; i++)
            head->backend->add(&(tri_queue){head}, a, b, (int64_t)(bytes / 2 / sizeof(float)));
        double found = 1.5 * (double)bytes * calls / (tri_os_seconds() - start);
        if (found > rate.bytes_per_s) rate.bytes_per_s = found;
    }
    return rate;
}

tri_status cpu_measure_peak(tri_device *head, tri_bench_peak *out) {
    const cpu_device *device = cpu_of(head);
    double flops, bf16 = 0, bytes = 0;
    const tri_device_description *has = &head->description;
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (!cpu_has(has, CPU_HAS_AVX512) && !avx2)
        return TRI_FAIL(TRI_UNSUPPORTED, "the peak is measured on CPUs with AVX2 or AVX-512 only");
    flops = best_rate(device, cpu_has(has, CPU_HAS_AVX512) ? 16 : 8, PEAK_ROUNDS,
                      cpu_has(has, CPU_HAS_AVX512) ? fma_avx512 : fma_avx2);
    if (cpu_has(has, CPU_HAS_AMX))
        bf16 = best_rate(device, 16 * 16 * 32, PEAK_TILE_ROUNDS, dot_tiles);
    else if (cpu_has(has, CPU_HAS_BF16))
        bf16 = best_rate(device, 32, PEAK_ROUNDS, dot_bf16);
    void *a, *b;
    TRI_TRY(head->backend->alloc(head, PEAK_BUFFER_BYTES, &a));
    tri_status status = head->backend->alloc(head, PEAK_BUFFER_BYTES, &b);
    for (int repeat = 0; repeat < PEAK_REPEATS && status == TRI_OK; repeat++) {
        double start = tri_os_seconds();
        // Each element is read from two buffers and written to one.
        head->backend->add(&(tri_queue){head}, a, b, PEAK_BUFFER_BYTES / sizeof(float));
        double rate = 3.0 * PEAK_BUFFER_BYTES / (tri_os_seconds() - start);
        if (rate > bytes) bytes = rate;
    }
    *out = (tri_bench_peak){
        .flops_per_s = flops, .bf16_flops_per_s = bf16 > 0 ? bf16 : flops, .bytes_per_s = bytes};
    for (int i = 0; i < TRI_BENCH_RATES && status == TRI_OK; i++)
        out->caches[i] = cache_rate(head, a, b, (size_t)16384 << (3 * i));
    head->backend->free(head, a);
    if (status == TRI_OK) head->backend->free(head, b);
    return status;
}
