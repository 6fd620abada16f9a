// Linear layers in F32 by the device's own matrix product, and what the BF16 kernels share with
// them.
//
// The home layout of W [out, in], in which W, its gradient and its optimizer states are kept, is
// [out / 64][in][64] (oneDNN's AB16b64a) if out is a multiple of 64 and `in` a multiple of 16, else
// plain. The forward product and both gradients read or write W in either layout, without a
// reorder. x and y are plain.
//
// If W is BF16 and the device has BF16 products, W is plain, because these products themselves copy
// it into pairs of neighbouring values, which instructions for BF16 multiply.
#include "device/cpu/linear.h"

#include "device/cpu/product_map.h"
#include "device/cpu/scalar.h"

#include <stdlib.h>

linear_task linear_task_of(const tri_node *node) {
    if (node->op == &tri_op_linear) return LINEAR_FORWARD;
    return node->op == &tri_op_linear_grad_input ? LINEAR_GRAD_INPUT : LINEAR_GRAD_WEIGHT;
}

linear_shape linear_shape_of(const tri_graph *graph, const tri_node *node) {
    const tri_shape *weight, *y;
    switch (linear_task_of(node)) {
    case LINEAR_FORWARD:
        weight = cpu_in_shape(graph, node, 1);
        y = cpu_out_shape(graph, node, 0);
        break;
    case LINEAR_GRAD_INPUT:
        weight = cpu_in_shape(graph, node, 1);
        y = cpu_in_shape(graph, node, 0);
        break;
    default:
        weight = &((const tri_linear_grad_attr *)node->attr)->shape;
        y = cpu_in_shape(graph, node, 1);
        break;
    }
    linear_shape s = {.rows = 1,
                      .out = weight->dims[0],
                      .in = 1,
                      .dtype = tri_value_get(graph, node->inputs[0])->dtype,
                      .result = tri_value_get(graph, node->outputs[0])->dtype};
    for (int i = 1; i < weight->rank; i++) s.in *= weight->dims[i];
    for (int i = 0; i + 1 < y->rank; i++) s.rows *= y->dims[i];
    return s;
}

cpu_format linear_home(const tri_device_description *device, const linear_shape *s) {
    if (s->dtype == TRI_BF16 && cpu_has(device, CPU_HAS_BF16)) return CPU_PLAIN;
    return s->out % 64 == 0 && s->in % 16 == 0 ? CPU_OI16I64O : CPU_PLAIN;
}

bool linear_has_bias(const tri_node *node) {
    if (node->op == &tri_op_linear) return tri_value_is(node->inputs[2]);
    if (node->op == &tri_op_linear_grad_input) return false;
    return ((const tri_linear_grad_attr *)node->attr)->has_bias;
}

tri_layout linear_weight_layout(const tri_device_description *device, const tri_graph *graph,
                                tri_value weight, const linear_shape *shape) {
    // A plain weight stays plain if it is not a parameter, or is a parameter whose home layout the
    // layout pass has already chosen.
    const tri_value_info *info = tri_value_get(graph, weight);
    bool chosen = info->kind != TRI_VALUE_PARAMETER || graph->parameters[info->index].layout_chosen;
    if (chosen && tri_layout_is_plain(&info->layout)) return TRI_LAYOUT_PLAIN;
    return cpu_format_layout(linear_home(device, shape));
}

void linear_layouts(const tri_device_description *device, const tri_graph *graph,
                    const tri_node *node, tri_layout *in, tri_layout *out) {
    linear_shape s = linear_shape_of(graph, node);
    tri_layout home = cpu_format_layout(linear_home(device, &s));
    for (int i = 0; i < node->input_count; i++) in[i] = TRI_LAYOUT_PLAIN;
    if (linear_task_of(node) == LINEAR_GRAD_WEIGHT) {
        out[0] = home;
        return;
    }
    in[1] = linear_weight_layout(device, graph, node->inputs[1], &s);
}

enum { SUM_COLUMNS = 64, SUM_GRAIN = 1 << 15 };

typedef struct sum_job {
    const void *dy;
    float *sums;
    double *totals;
    int64_t rows, columns;
    bool accumulate;
} sum_job;

// Adds `width` columns of dy, from column `first` on, to `totals`.
CPU_SCALAR void add_columns(const sum_job *job, bool bf16, int64_t first, int64_t width,
                            double *totals) {
    for (int64_t begin = 0; begin < job->rows; begin += CPU_SUM_TERMS) {
        int64_t left = job->rows - begin,
                end = left < CPU_SUM_TERMS ? job->rows : begin + CPU_SUM_TERMS;
        float sums[SUM_COLUMNS] = {0};
        for (int64_t r = begin; r < end; r++)
            for (int64_t i = 0; i < width; i++)
                sums[i] += cpu_get(job->dy, bf16, r * job->columns + first + i);
        for (int64_t i = 0; i < width; i++) totals[i] += (double)sums[i];
    }
}

// Sums each column of dy in blocks [begin, end) of 64 columns.
CPU_BODY sum_columns_typed(void *context, int64_t begin, int64_t end, bool bf16) {
    const sum_job job = *(const sum_job *)context;
    for (int64_t b = begin; b < end; b++) {
        double totals[SUM_COLUMNS] = {0};
        int64_t first = b * SUM_COLUMNS, left = job.columns - first;
        int64_t width = left < SUM_COLUMNS ? left : SUM_COLUMNS;
        for (int64_t i = 0; job.accumulate && i < width; i++) totals[i] = job.totals[first + i];
        if (width < SUM_COLUMNS)
            add_columns(&job, bf16, first, width, totals);
        else
            add_columns(&job, bf16, first, SUM_COLUMNS, totals);
        for (int64_t i = 0; i < width; i++) job.sums[first + i] = (float)totals[i];
        for (int64_t i = 0; job.totals && i < width; i++) job.totals[first + i] = totals[i];
    }
}
CPU_TYPED_RANGES(sum_columns)

void linear_sum_columns(const cpu_device *device, const linear_shape *s, const void *dy,
                        float *dbias, double *totals, bool accumulate) {
    sum_job job = {.dy = dy,
                   .sums = dbias,
                   .totals = totals,
                   .rows = s->rows,
                   .columns = s->out,
                   .accumulate = accumulate};
    int64_t blocks = (s->out + SUM_COLUMNS - 1) / SUM_COLUMNS;
    cpu_parallel(device, blocks, SUM_GRAIN / SUM_COLUMNS / s->rows + 1,
                 sum_columns_range(device, s->dtype == TRI_BF16), &job);
}

typedef struct linear_state {
    const cpu_device *device;
    linear_shape shape;
    cpu_gemm gemm;
    int a, b; // indices of the node's inputs that are the product's operands
    bool bias, bias_gradient;
} linear_state;

static bool linear_supports(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node) {
    linear_shape s = linear_shape_of(graph, node);
    return cpu_is_f32(device, graph, node) && s.rows > 0 && s.in > 0;
}

static cpu_matrix weight_of(const tri_layout *layout, const linear_shape *s) {
    cpu_matrix w = cpu_matrix_plain(NULL, s->in);
    if (!tri_layout_is_plain(layout)) // the blocked layout [out / 64][in][64]
        w = (cpu_matrix){.row = 1, .row_block = 64 * s->in, .column = 64, .column_block = 64 * 64};
    return w;
}

cpu_gemm linear_gemm(linear_task task, const linear_shape *s, const tri_layout *weight,
                     bool *swaps) {
    cpu_matrix x = cpu_matrix_plain(NULL, s->in), y = cpu_matrix_plain(NULL, s->out);
    cpu_matrix w = weight_of(weight, s);
    *swaps = false;
    if (task == LINEAR_FORWARD)
        return (cpu_gemm){
            .m = s->rows, .n = s->out, .k = s->in, .a = x, .b = cpu_matrix_transposed(w), .c = y};
    if (task == LINEAR_GRAD_INPUT)
        return (cpu_gemm){.m = s->rows, .n = s->in, .k = s->out, .a = y, .b = w, .c = x};
    if (w.column == 1) {
        *swaps = true;
        return (cpu_gemm){
            .m = s->out, .n = s->in, .k = s->rows, .a = cpu_matrix_transposed(y), .b = x, .c = w};
    }
    // W is blocked: computes dWᵀ = xᵀ·dy, because the rows of dWᵀ are contiguous in that layout.
    return (cpu_gemm){.m = s->in,
                      .n = s->out,
                      .k = s->rows,
                      .a = cpu_matrix_transposed(x),
                      .b = y,
                      .c = cpu_matrix_transposed(w)};
}

static linear_state state_of(const tri_graph *graph, const tri_node *node) {
    linear_task task = linear_task_of(node);
    linear_state state = {.shape = linear_shape_of(graph, node)};
    tri_value weight = task == LINEAR_GRAD_WEIGHT ? node->outputs[0] : node->inputs[1];
    bool swaps;
    state.gemm = linear_gemm(task, &state.shape, &tri_value_get(graph, weight)->layout, &swaps);
    state.a = swaps;
    state.b = !swaps;
    state.bias = task == LINEAR_FORWARD && linear_has_bias(node);
    state.bias_gradient = task == LINEAR_GRAD_WEIGHT && linear_has_bias(node);
    return state;
}

static tri_status linear_workspace(const tri_device_description *device, const tri_graph *graph,
                                   const tri_node *node, size_t *out) {
    linear_state state = state_of(graph, node);
    *out = cpu_gemm_workspace(device, &state.gemm);
    return TRI_OK;
}

static tri_status linear_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                 tri_kernel *kernel) {
    linear_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a linear layer");
    *state = state_of(graph, node);
    state->device = cpu_of(device);
    kernel->state = state;
    return TRI_OK;
}

tri_status cpu_linear_compute(const tri_kernel *kernel, const tri_kernel_args *args,
                              const cpu_finish *finish) {
    const linear_state *state = kernel->state;
    cpu_gemm gemm = state->gemm;
    gemm.finish = finish;
    gemm.a.data = args->in[state->a];
    gemm.b.data = args->in[state->b];
    gemm.c.data = args->out[0];
    gemm.bias = state->bias ? args->in[2] : NULL;
    cpu_gemm_run(state->device, &gemm, args->workspace);
    if (state->bias_gradient)
        linear_sum_columns(state->device, &state->shape, args->in[1], args->out[1], NULL, false);
    return TRI_OK;
}

static tri_status linear_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    return cpu_linear_compute(kernel, args, NULL);
}

static void linear_release(tri_kernel *kernel) { free(kernel->state); }

#define LINEAR_KERNEL(identifier, opname)                                                          \
    const tri_kernel_def cpu_##identifier = {                                                      \
        .op = &tri_op_##opname,                                                                    \
        .name = "product",                                                                         \
        .supports = linear_supports,                                                               \
        .layouts = linear_layouts,                                                                 \
        .workspace = linear_workspace,                                                             \
        .prepare = linear_prepare,                                                                 \
        .run = linear_run,                                                                         \
        .release = linear_release,                                                                 \
    };
LINEAR_KERNEL(linear_forward, linear)
LINEAR_KERNEL(linear_grad_input, linear_grad_input)
LINEAR_KERNEL(linear_grad_weight, linear_grad_weight)
