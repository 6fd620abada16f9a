// Runs a graph's nodes again and again on random values and measures each of them, to find kernels
// that are far from the limits of the machine. Training computes some convolutions by Winograd's
// algorithm, which needs fewer multiplications than the direct one but rounds differently. These
// convolutions are measured with both algorithms.
#include "device/bench.h"

#include "base/os.h"
#include "device/queue.h"
#include "ops/product_map.h"
#include "tensor/half.h"

#include <stdlib.h>
#include <string.h>

enum { BENCH_MAX_REPEATS = 1000, BENCH_MIN_REPEATS = 3, BENCH_ALIGN = 64 };

// Which kernels one run of the graph uses for convolutions: those of training, or those of the
// direct algorithm instead of Winograd's.
typedef enum kernel_choice { AS_IN_TRAINING, DIRECT, KERNEL_CHOICES } kernel_choice;

// A copy of a node that training computes by Winograd's algorithm. The copy's attributes forbid
// that algorithm. For all other nodes this struct is 0.
typedef struct direct_node {
    tri_node node; // the copy
    union {        // its attributes
        tri_conv2d_attr conv;
        tri_conv2d_grad_attr grad;
        tri_product_map_attr map;
    } attr;
    tri_kernel kernel; // the kernel that computes it
} direct_node;

typedef struct bench {
    tri_device *device;
    tri_queue *queue;
    const tri_graph *graph;
    void **data;         // by value: its memory on the device
    tri_kernel *kernels; // by node: the kernel that training uses
    direct_node *direct; // by node
    bool has_direct;     // there is a node that training computes by Winograd's algorithm
    void *workspace;     // memory that all kernels use in turn while they run
    double *times;       // seconds of each run: [node][kernel_choice][repeat]
    int64_t *stamps;     // [node][2]: when the queue began and ended the node's kernel, in ns
} bench;

static double uniform(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) * 0x1p-24;
}

// Fills a value with random numbers in [-0.5, 0.5), or with the integers 0 and 1, which are valid
// labels of any model. The step scalars, an input of optimizers (learning rate, factor of the
// gradients, …), get values as in a real step.
static void fill(const tri_value_info *info, void *host, int64_t count, uint64_t *state) {
    for (int64_t i = 0; i < count; i++) {
        double value = uniform(state) - 0.5;
        if (info->dtype == TRI_F32) ((float *)host)[i] = (float)value;
        if (info->dtype == TRI_BF16) ((uint16_t *)host)[i] = tri_float_to_bf16((float)value);
        if (info->dtype == TRI_F16) ((uint16_t *)host)[i] = tri_float_to_f16((float)value);
        if (info->dtype == TRI_F64) ((double *)host)[i] = value;
        if (info->dtype == TRI_I64) ((int64_t *)host)[i] = value > 0;
    }
    if (info->kind == TRI_VALUE_SCALAR && info->index == TRI_SCALAR_STEP) {
        double *step = host;
        memset(step, 0, sizeof *step * TRI_STEP_SCALAR_COUNT);
        step[TRI_STEP_LR] = 1e-3;
        step[TRI_STEP_GRADIENT_SCALE] = step[TRI_STEP_UPDATE] = 1;
    }
}

static bool is_view(const tri_node *node) { return node->op->flags & TRI_OP_VIEW; }

// Allocates and fills a value. A view gets no memory of its own.
static tri_status make_value(bench *b, int id, uint64_t *state) {
    const tri_value_info *info = &b->graph->values[id];
    if (info->kind == TRI_VALUE_NONE) return TRI_OK;
    if (info->kind == TRI_VALUE_RESULT && is_view(&b->graph->nodes[info->node])) return TRI_OK;
    size_t bytes = (size_t)tri_value_bytes(b->graph, (tri_value){.id = (uint32_t)id});
    TRI_TRY(b->device->backend->alloc(b->device, bytes, &b->data[id]));
    if (info->kind == TRI_VALUE_RESULT) return TRI_OK;
    void *host = calloc(1, bytes + BENCH_ALIGN);
    if (!host) return TRI_FAIL(TRI_NO_MEMORY, "no memory for %zu bytes of random numbers", bytes);
    fill(info, host, (int64_t)(bytes / tri_dtype_bytes(info->dtype)), state);
    tri_status status = tri_queue_write(b->queue, b->data[id], host, bytes);
    free(host);
    return status;
}

static void need_workspace(const tri_kernel *kernel, size_t *bytes) {
    if (kernel->workspace_bytes > *bytes) *bytes = kernel->workspace_bytes;
}

// Prepares a second kernel, of the direct algorithm, for a node that training computes by
// Winograd's algorithm. This kernel may expect the node's values in other layouts. The random
// values can be used as they are, because a value has the same size in all these layouts.
static tri_status prepare_direct(bench *b, int i) {
    const tri_graph *g = b->graph;
    const tri_kernel_def *def = b->kernels[i].def;
    direct_node *d = &b->direct[i];
    if (!def->is_winograd || !def->is_winograd(g, &g->nodes[i])) return TRI_OK;
    d->node = g->nodes[i];
    TRI_ASSERT(d->node.op->attr_bytes <= sizeof d->attr);
    memcpy(&d->attr, d->node.attr, d->node.op->attr_bytes);
    // The attributes of each convolution begin with tri_conv2d_attr.
    tri_conv2d_attr *conv =
        g->nodes[i].op == &tri_op_product_map ? &d->attr.map.of.conv2d : &d->attr.conv;
    conv->direct = true;
    d->node.attr = &d->attr;
    b->has_direct = true;
    return tri_kernel_make(b->device, g, &d->node, &d->kernel);
}

static tri_status prepare(bench *b) {
    const tri_graph *g = b->graph;
    size_t workspace = 0;
    uint64_t state = 1;
    for (int id = 0; id < g->value_count; id++) TRI_TRY(make_value(b, id, &state));
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        if (is_view(node)) b->data[node->outputs[0].id] = b->data[node->inputs[0].id];
        TRI_TRY(tri_kernel_make(b->device, g, node, &b->kernels[i]));
        TRI_TRY(prepare_direct(b, i));
        need_workspace(&b->kernels[i], &workspace);
        need_workspace(&b->direct[i].kernel, &workspace);
    }
    return b->device->backend->alloc(b->device, workspace, &b->workspace);
}

// Allocates `stamps`. A device that works asynchronously writes them itself, so they lie in host
// memory that the device can write.
static tri_status make_stamps(bench *b, size_t bytes) {
    const tri_device_backend *backend = b->device->backend;
    void *memory = backend->alloc_host ? NULL : calloc(1, bytes);
    if (backend->alloc_host) TRI_TRY(backend->alloc_host(b->device, bytes, &memory));
    b->stamps = memory;
    return memory ? TRI_OK : TRI_FAIL(TRI_NO_MEMORY, "no memory to measure");
}

static tri_status run_node(const bench *b, int i, kernel_choice choice) {
    const tri_node *node = &b->graph->nodes[i];
    void *in[TRI_MAX_INPUTS], *out[TRI_MAX_OUTPUTS];
    for (int k = 0; k < node->input_count; k++) in[k] = b->data[node->inputs[k].id];
    for (int k = 0; k < node->output_count; k++) out[k] = b->data[node->outputs[k].id];
    tri_kernel_args args = {.queue = b->queue, .in = in, .out = out, .workspace = b->workspace};
    bool direct = choice == DIRECT && b->direct[i].kernel.def;
    return tri_kernel_run(direct ? &b->direct[i].kernel : &b->kernels[i], &args);
}

static double *times_of(const bench *b, int i, kernel_choice choice) {
    return b->times + (i * KERNEL_CHOICES + (int)choice) * BENCH_MAX_REPEATS;
}

static tri_status run_graph(const bench *b, kernel_choice choice, int repeat) {
    int count = b->graph->node_count;
    for (int i = 0; i < count; i++) {
        TRI_TRY(tri_queue_time(b->queue, &b->stamps[2 * i]));
        TRI_TRY(run_node(b, i, choice));
        TRI_TRY(tri_queue_time(b->queue, &b->stamps[2 * i + 1]));
    }
    TRI_TRY(tri_queue_finish(b->queue));
    for (int i = 0; i < count; i++)
        times_of(b, i, choice)[repeat] = 1e-9 * (double)(b->stamps[2 * i + 1] - b->stamps[2 * i]);
    return TRI_OK;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double bytes_of(const bench *b, const tri_node *node) {
    double bytes = 0;
    for (int k = 0; k < node->input_count; k++)
        if (tri_value_is(node->inputs[k]))
            bytes += (double)tri_value_bytes(b->graph, node->inputs[k]);
    for (int k = 0; k < node->output_count; k++)
        bytes += (double)tri_value_bytes(b->graph, node->outputs[k]);
    return bytes;
}

double tri_bench_fraction(const tri_bench_peak *peak, double flops, double bytes, bool is_bf16,
                          double seconds) {
    const double noise = 1.05;
    double rate = peak->bytes_per_s;
    // Finds the rate at which `bytes` can be read and written: the highest of the memory's rate,
    // the rate measured for the largest size up to `bytes`, and the rates of all larger sizes.
    // Larger sizes count because a smaller buffer is at least as fast as a larger one.
    for (int i = 0; i < TRI_BENCH_RATES; i++)
        if (peak->caches[i].bytes_per_s > rate &&
            (bytes <= peak->caches[i].bytes || i + 1 == TRI_BENCH_RATES ||
             bytes < peak->caches[i + 1].bytes))
            rate = peak->caches[i].bytes_per_s;
    double compute = flops / (is_bf16 ? peak->bf16_flops_per_s : peak->flops_per_s);
    double move = bytes / rate, bound = compute > move ? compute : move;
    return seconds > 0 && bound <= noise * seconds ? bound / seconds : 0;
}

static double median(double *times, int repeats) {
    qsort(times, (size_t)repeats, sizeof *times, ascending);
    return times[repeats / 2];
}

static tri_bench_row row_of(const bench *b, const tri_bench_peak *peak, int i, int repeats) {
    const tri_graph *g = b->graph;
    const tri_kernel_def *direct = b->direct[i].kernel.def;
    double *times = times_of(b, i, AS_IN_TRAINING);
    tri_bench_row row = {.node = i,
                         .kernel = b->kernels[i].def->name,
                         .seconds = median(times, repeats),
                         .fastest = times[0],
                         .flops = tri_node_cost(g, &g->nodes[i]).flops,
                         .bytes = bytes_of(b, &g->nodes[i])};
    bool bf16 = tri_value_get(g, g->nodes[i].inputs[0])->dtype == TRI_BF16;
    row.fraction = tri_bench_fraction(peak, row.flops, row.bytes, bf16, row.seconds);
    if (!direct) return row;
    row.direct_kernel = direct->name;
    row.direct_seconds = median(times_of(b, i, DIRECT), repeats);
    row.direct_fraction = tri_bench_fraction(peak, row.flops, row.bytes, bf16, row.direct_seconds);
    return row;
}

static tri_status measure(bench *b, const tri_bench_peak *peak, double budget_s,
                          tri_bench_row *rows) {
    int repeats = 0;
    double begin = tri_os_seconds();
    while (repeats < BENCH_MAX_REPEATS &&
           (repeats < BENCH_MIN_REPEATS || tri_os_seconds() - begin < budget_s)) {
        TRI_TRY(run_graph(b, AS_IN_TRAINING, repeats));
        if (b->has_direct) TRI_TRY(run_graph(b, DIRECT, repeats));
        repeats++;
    }
    for (int i = 0; i < b->graph->node_count; i++) rows[i] = row_of(b, peak, i, repeats);
    return TRI_OK;
}

tri_status tri_bench_graph(tri_device *device, const tri_graph *graph, const tri_bench_peak *peak,
                           double budget_s, tri_bench_row *rows) {
    size_t values = (size_t)graph->value_count, nodes = (size_t)graph->node_count;
    bench b = {.device = device,
               .graph = graph,
               .data = calloc(values + 1, sizeof(void *)),
               .kernels = calloc(nodes + 1, sizeof(tri_kernel)),
               .direct = calloc(nodes + 1, sizeof(direct_node)),
               .times = calloc((nodes + 1) * KERNEL_CHOICES * BENCH_MAX_REPEATS, sizeof(double))};
    tri_status status = TRI_OK;
    if (!b.data || !b.kernels || !b.direct || !b.times)
        status = TRI_FAIL(TRI_NO_MEMORY, "no memory to measure");
    if (status == TRI_OK) status = make_stamps(&b, 2 * (nodes + 1) * sizeof(int64_t));
    if (status == TRI_OK) status = tri_queue_open(device, &b.queue);
    if (status == TRI_OK) status = prepare(&b);
    if (status == TRI_OK) status = measure(&b, peak, budget_s, rows);
    tri_queue_close(b.queue);
    for (size_t i = 0; b.kernels && i < nodes; i++) tri_kernel_release(&b.kernels[i]);
    for (size_t i = 0; b.direct && i < nodes; i++) tri_kernel_release(&b.direct[i].kernel);
    for (size_t id = 0; b.data && id < values; id++) {
        const tri_value_info *info = &graph->values[id];
        bool view =
            info->kind == TRI_VALUE_RESULT && graph->nodes[info->node].op->flags & TRI_OP_VIEW;
        if (b.data[id] && !view) device->backend->free(device, b.data[id]);
    }
    if (b.workspace) device->backend->free(device, b.workspace);
    free(b.data);
    free(b.kernels);
    free(b.direct);
    free(b.times);
    if (device->backend->free_host && b.stamps)
        device->backend->free_host(device, b.stamps);
    else
        free(b.stamps);
    return status;
}
