// Measures the peak of a device, its highest rates of arithmetic and of memory, for
// `trireme bench kernels`. On the CPU, cpu_measure_peak runs loops that are written only for this.
// On any other device, adding two long vectors shows the rate of the memory, and products of square
// matrices show the rate of arithmetic.
#include "cli/bench_peak.h"

#include "base/os.h"
#include "device/cpu/cpu.h"
#include "device/queue.h"
#include "ops/ops.h"
#include "pass/pass.h"

enum {
    REPEATS = 10,
    LEAST_BYTES = 1 << 20,  // size of the smallest vectors
    MOST_BYTES = 512 << 20, // size of the largest vectors, larger than any cache
    LEAST_SIZE = 64,        // rows of the smallest square matrices
    MOST_SIZE = 8192,       // rows of the largest square matrices
};
// Vectors and matrices grow until a measurement takes this long, so that the time to start the work
// is only a small part of the measurement.
static const double LONG_S = 0.02;

static tri_status time_sums(tri_queue *queue, void *a, const void *b, size_t bytes,
                            double *seconds) {
    const tri_device_backend *backend = queue->device->backend;
    double begin = tri_os_seconds();
    for (int i = 0; i < REPEATS; i++)
        TRI_TRY(backend->add(queue, a, b, (int64_t)(bytes / sizeof(float))));
    TRI_TRY(tri_queue_finish(queue));
    *seconds = tri_os_seconds() - begin;
    return TRI_OK;
}

// Measures the rate in bytes/s at which a[i] += b[i] reads and writes memory, for vectors of
// `bytes` bytes, and raises out->bytes_per_s if this is the best so far. For each i, two elements
// are read and one is written.
static tri_status measure_memory(tri_device *device, size_t bytes, double *seconds,
                                 tri_bench_peak *out) {
    void *a = NULL, *b = NULL;
    tri_queue *queue;
    TRI_TRY(tri_queue_open(device, &queue));
    tri_status status = device->backend->alloc(device, bytes, &a);
    if (status == TRI_OK) status = device->backend->alloc(device, bytes, &b);
    for (int i = 0; i < 2 && status == TRI_OK; i++) { // the first time only warms up
        status = time_sums(queue, a, b, bytes, seconds);
        double rate = 3.0 * REPEATS * (double)bytes / *seconds;
        if (status == TRI_OK && rate > out->bytes_per_s) out->bytes_per_s = rate;
    }
    if (a) device->backend->free(device, a);
    if (b) device->backend->free(device, b);
    tri_queue_close(queue);
    return status;
}

// Multiplies two square matrices of `size` rows. *seconds is the fastest time of a product. Raises
// *rate, the best rate so far in FLOP/s, if this product was faster.
static tri_status measure_product(tri_device *device, tri_dtype dtype, int64_t size,
                                  double *seconds, double *rate) {
    tri_arena *arena = tri_arena_create(NULL, "product");
    tri_graph *g = tri_graph_create(arena, &(tri_graph_options){0});
    tri_bench_row rows[4];
    tri_block(g, "product");
    tri_value in[] = {tri_input(g, "x", dtype, tri_shape_of(size, size)),
                      tri_input(g, "w", dtype, tri_shape_of(size, size)),
                      {0}};
    tri_node_add(g, &tri_op_linear, in, 3, &(tri_linear_attr){.axes = 1}, "");
    tri_status status = tri_pass_layout(g, &device->description);
    TRI_ASSERT(status != TRI_OK || g->node_count <= (int)(sizeof rows / sizeof *rows));
    if (status == TRI_OK)
        status = tri_bench_graph(
            device, g, &(tri_bench_peak){.flops_per_s = 1, .bf16_flops_per_s = 1, .bytes_per_s = 1},
            0.01, rows);
    for (int i = 0; i < g->node_count && status == TRI_OK; i++) {
        if (g->nodes[i].op != &tri_op_linear) continue;
        *seconds = rows[i].fastest;
        if (rows[i].flops / rows[i].fastest > *rate) *rate = rows[i].flops / rows[i].fastest;
    }
    tri_arena_destroy(arena);
    return status;
}

tri_status cli_measure_peak(tri_device *device, tri_bench_peak *out) {
    if (device->backend == &tri_device_cpu) return cpu_measure_peak(device, out);
    double seconds = 0;
    *out = (tri_bench_peak){0};
    for (size_t bytes = LEAST_BYTES; bytes <= MOST_BYTES && seconds < LONG_S; bytes *= 8)
        TRI_TRY(measure_memory(device, bytes, &seconds, out));
    seconds = 0;
    for (int64_t size = LEAST_SIZE; size <= MOST_SIZE && seconds < LONG_S; size *= 2)
        TRI_TRY(measure_product(device, TRI_F32, size, &seconds, &out->flops_per_s));
    seconds = 0;
    for (int64_t size = LEAST_SIZE; size <= MOST_SIZE && seconds < LONG_S; size *= 2)
        TRI_TRY(measure_product(device, TRI_BF16, size, &seconds, &out->bf16_flops_per_s));
    return TRI_OK;
}
