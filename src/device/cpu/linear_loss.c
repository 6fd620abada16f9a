// A linear layer with the cross-entropy of its scores (together: a head), and the gradient of both.
// Computes one chunk of rows at a time, so that the memory for scores holds only one chunk: first
// its scores, then their gradient.
//
// Results have the same bits as those of the separate kernels (linear.c, linear_bf16.c,
// class_loss.c), because the same code computes products and losses. The gradient of the weight is
// a sum over rows. In F32 the separate product adds it up in blocks of rows, and the chunks here
// are the same blocks (tri_loss_chunk).
#include "device/cpu/class_loss.h"
#include "device/cpu/linear.h"

#include <stdlib.h>

// One of the layer's three products, in F32 or BF16.
typedef struct head_product {
    linear_task task;
    bool swaps; // the product's left operand is the second of its two inputs (linear_gemm)
    cpu_gemm f32;
    cpu_bf16_gemm bf16;
} head_product;

// Sizes in bytes of the ranges of the workspace: of_rows, the results of all rows (first the
// losses, then whether each prediction is right); `bias`, the sums so far of the gradient of the
// bias; `terms`, scratch memory of cpu_class_gradient; and `product`, the workspace of one product.
typedef struct head_space {
    size_t of_rows, bias, terms, product;
} head_space;

typedef struct head_state {
    const cpu_device *device;
    linear_shape shape; // sizes of the layer for one full chunk of rows
    int64_t rows;       // number of rows of all chunks together
    bool bf16, bias, seed_f64, accuracy;
    head_product scores, grad_input, grad_weight;
    head_space space;
} head_state;

static bool is_gradient(const tri_node *node) {
    return node->op == &tri_op_linear_cross_entropy_grad;
}

static linear_shape shape_of(const tri_graph *graph, const tri_node *node) {
    const tri_shape *weight = cpu_in_shape(graph, node, 1);
    tri_dtype dtype = tri_value_get(graph, node->inputs[0])->dtype;
    return (linear_shape){.rows = tri_loss_chunk(tri_shape_count(cpu_in_shape(graph, node, 2))),
                          .in = weight->dims[1],
                          .out = weight->dims[0],
                          .dtype = dtype,
                          .result = dtype};
}

static bool head_supports(const tri_device_description *device, const tri_graph *graph,
                          const tri_node *node) {
    linear_shape s = shape_of(graph, node);
    if (s.rows < 1 || s.in < 1) return false;
    return s.dtype == TRI_BF16 ? cpu_has(device, CPU_HAS_BF16) : cpu_is_f32(device, graph, node);
}

static void head_layouts(const tri_device_description *device, const tri_graph *graph,
                         const tri_node *node, tri_layout *in, tri_layout *out) {
    linear_shape s = shape_of(graph, node);
    for (int i = 0; i < node->input_count; i++) in[i] = TRI_LAYOUT_PLAIN;
    in[1] = linear_weight_layout(device, graph, node->inputs[1], &s);
    if (is_gradient(node)) out[1] = in[1];
}

static head_product product_of(linear_task task, linear_shape s, bool bf16,
                               const tri_layout *weight) {
    head_product p = {.task = task};
    if (task == LINEAR_GRAD_WEIGHT) s.result = TRI_F32;
    if (bf16)
        p.bf16 = linear_bf16_gemm(task, &s, &p.swaps);
    else
        p.f32 = linear_gemm(task, &s, weight, &p.swaps);
    return p;
}

static void set_rows(head_product *p, int64_t rows) {
    if (p->task == LINEAR_GRAD_WEIGHT)
        p->f32.k = p->bf16.k = rows;
    else
        p->f32.m = p->bf16.m = rows;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }
static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// The most workspace that the product needs, for whole chunks and for the last one, which may be
// shorter.
static size_t product_bytes(const tri_device_description *device, const head_state *s,
                            head_product p) {
    int64_t last = s->rows - (s->rows - 1) / s->shape.rows * s->shape.rows;
    size_t most = 0;
    for (int i = 0; i < 2; i++) {
        set_rows(&p, i == 0 ? s->shape.rows : last);
        most = larger(most, s->bf16 ? cpu_bf16_gemm_workspace(device, &p.bf16)
                                    : cpu_gemm_workspace(device, &p.f32));
    }
    return most;
}

static head_state state_of(const tri_device_description *device, const tri_graph *graph,
                           const tri_node *node) {
    bool gradient = is_gradient(node);
    const tri_layout *weight = &tri_value_get(graph, node->inputs[1])->layout;
    head_state s = {.shape = shape_of(graph, node),
                    .rows = tri_shape_count(cpu_in_shape(graph, node, 2)),
                    .bias = tri_value_is(node->inputs[gradient ? 4 : 3])};
    s.bf16 = s.shape.dtype == TRI_BF16;
    s.scores = product_of(LINEAR_FORWARD, s.shape, s.bf16, weight);
    s.space.product = product_bytes(device, &s, s.scores);
    if (gradient) {
        const tri_layout *result = &tri_value_get(graph, node->outputs[1])->layout;
        s.grad_input = product_of(LINEAR_GRAD_INPUT, s.shape, s.bf16, weight);
        s.grad_weight = product_of(LINEAR_GRAD_WEIGHT, s.shape, s.bf16, result);
        s.space.product = larger(s.space.product, product_bytes(device, &s, s.grad_input));
        s.space.product = larger(s.space.product, product_bytes(device, &s, s.grad_weight));
        if (s.bias) s.space.bias = aligned((size_t)s.shape.out * sizeof(double));
        s.space.terms =
            aligned((size_t)cpu_class_terms(device, s.shape.out, s.bf16) * sizeof(float));
        s.seed_f64 = tri_value_get(graph, node->inputs[3])->dtype == TRI_F64;
    } else {
        s.accuracy = ((const tri_linear_cross_entropy_attr *)node->attr)->accuracy;
    }
    s.space.of_rows = aligned((size_t)s.rows * (s.accuracy ? 2 : 1) * sizeof(double));
    return s;
}

static tri_status head_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    head_state s = state_of(device, graph, node);
    *out = s.space.of_rows + s.space.bias + s.space.terms + s.space.product;
    return TRI_OK;
}

static tri_status head_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    head_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a linear layer with its loss");
    *state = state_of(&device->description, graph, node);
    state->device = cpu_of(device);
    kernel->state = state;
    return TRI_OK;
}

static void head_release(tri_kernel *kernel) { free(kernel->state); }

// Computes a product (forward, or a gradient) for `rows` rows. `first` and `second` are the first
// two inputs of the op linear, linear_grad_input or linear_grad_weight, which computes the same
// product.
static void multiply(const head_state *s, const head_product *product, int64_t rows,
                     const void *first, const void *second, const void *bias, bool accumulate,
                     void *out, void *workspace) {
    head_product p = *product;
    const void *left = p.swaps ? second : first, *right = p.swaps ? first : second;
    set_rows(&p, rows);
    if (s->bf16) {
        p.bf16.a = left;
        p.bf16.b = right;
        p.bf16.c = out;
        p.bf16.bias = bias;
        p.bf16.accumulate = accumulate;
        cpu_bf16_gemm_run(s->device, &p.bf16, workspace);
        return;
    }
    p.f32.a.data = (float *)(uintptr_t)left;
    p.f32.b.data = (float *)(uintptr_t)right;
    p.f32.c.data = out;
    p.f32.bias = bias;
    p.f32.accumulate = accumulate;
    cpu_gemm_run(s->device, &p.f32, workspace);
}

// A chunk of rows, which begins with row `first`, and the ranges of the workspace that it uses.
typedef struct head_chunk {
    int64_t first;
    cpu_class_rows rows; // the chunk's scores and labels
    const char *x;       // the chunk's rows of x
    double *of_row;      // the cross-entropy of each row of the chunk
    double *bias;        // the gradient of the bias so far
    float *terms;        // scratch of cpu_class_gradient, as long as cpu_class_terms says
    void *workspace;     // workspace of the layer's products
} head_chunk;

static cpu_class_rows all_rows(const head_state *s, const tri_kernel_args *args) {
    return (cpu_class_rows){.labels = args->in[2], .rows = s->rows, .classes = s->shape.out};
}

// Makes the chunk of rows that begins with row `first`, and computes its scores.
static head_chunk open_chunk(const head_state *s, const tri_kernel_args *args, int64_t first,
                             const void *bias, void *scores) {
    char *workspace = args->workspace;
    int64_t left = s->rows - first, element = s->bf16 ? 2 : 4;
    head_chunk c = {.first = first,
                    .rows = {.scores = scores,
                             .labels = (const int64_t *)args->in[2] + first,
                             .rows = left < s->shape.rows ? left : s->shape.rows,
                             .classes = s->shape.out,
                             .bf16 = s->bf16},
                    .x = (const char *)args->in[0] + first * s->shape.in * element,
                    .of_row = (double *)(void *)workspace + first,
                    .bias = (double *)(void *)(workspace + s->space.of_rows),
                    .terms = (float *)(void *)(workspace + s->space.of_rows + s->space.bias)};
    c.workspace = (char *)c.terms + s->space.terms;
    multiply(s, &s->scores, c.rows.rows, c.x, args->in[1], bias, false, scores, c.workspace);
    return c;
}

static tri_status loss_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const head_state *s = kernel->state;
    cpu_class_rows all = all_rows(s, args);
    double *losses = args->workspace, *hits = losses + s->rows;
    TRI_TRY(cpu_class_check_labels(&all));
    for (int64_t first = 0; first < s->rows; first += s->shape.rows) {
        head_chunk c = open_chunk(s, args, first, s->bias ? args->in[3] : NULL, args->out[2]);
        cpu_class_losses(s->device, &c.rows, c.of_row);
        if (s->accuracy) cpu_class_hits(s->device, &c.rows, hits + first);
    }
    cpu_class_sum(&all, losses, args->out[0]);
    if (s->accuracy) cpu_class_sum(&all, hits, args->out[1]);
    return TRI_OK;
}

static tri_status gradient_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const head_state *s = kernel->state;
    cpu_class_rows all = all_rows(s, args);
    const void *seed = args->in[3];
    float factor = s->seed_f64 ? (float)*(const double *)seed : *(const float *)seed;
    void *gradient = args->out[4];
    int64_t element = s->bf16 ? 2 : 4;
    TRI_TRY(cpu_class_check_labels(&all));
    for (int64_t first = 0; first < s->rows; first += s->shape.rows) {
        head_chunk c = open_chunk(s, args, first, s->bias ? args->in[4] : NULL, gradient);
        linear_shape shape = s->shape;
        shape.rows = c.rows.rows;
        char *dx = (char *)args->out[0] + first * s->shape.in * element;
        cpu_class_gradient(s->device, &c.rows, factor, c.terms, gradient, c.of_row);
        multiply(s, &s->grad_weight, shape.rows, c.x, gradient, NULL, first > 0, args->out[1],
                 c.workspace);
        if (s->bias)
            linear_sum_columns(s->device, &shape, gradient, args->out[2], c.bias, first > 0);
        multiply(s, &s->grad_input, shape.rows, gradient, args->in[1], NULL, false, dx,
                 c.workspace);
    }
    cpu_class_sum(&all, args->workspace, args->out[3]);
    return TRI_OK;
}

#define HEAD_KERNEL(opname, run_function)                                                          \
    const tri_kernel_def cpu_##opname##_chunks = {                                                 \
        .op = &tri_op_##opname,                                                                    \
        .name = "chunks",                                                                          \
        .supports = head_supports,                                                                 \
        .layouts = head_layouts,                                                                   \
        .workspace = head_workspace,                                                               \
        .prepare = head_prepare,                                                                   \
        .run = run_function,                                                                       \
        .release = head_release,                                                                   \
        .chunks_scores = true,                                                                     \
    };
HEAD_KERNEL(linear_cross_entropy, loss_run)
HEAD_KERNEL(linear_cross_entropy_grad, gradient_run)
