// Classification losses, metrics and log-softmax on the GPU: how the kernels of
// module/class_rows.cu and module/distance.cu are launched. For a loss or an accuracy, a first
// kernel writes to the workspace what each row of scores adds to it (the row's term), and a second
// one adds the terms up, in an order that does not depend on the device.
#include "device/cuda/internal.h"

// One op, and the function that computes it. x to seed: the index of the op's input to which the
// member of cuda_class_rows with the same name points; -1: the op has no such input.
typedef struct class_row {
    const tri_op *op;
    cuda_class_function function;
    int x, dy, labels, max, slice_sums, seed;
    // has_terms: the op adds up one term of each row of scores, to a loss or a metric. has_classes:
    // the op sees a slice of the classes, and its attributes (tri_classes_attr) tell which.
    bool has_terms, has_classes;
} class_row;

static const class_row class_rows[] = {
    {&tri_op_softmax, CUDA_SOFTMAX, 0, -1, -1, -1, -1, -1, false, false},
    {&tri_op_softmax_grad, CUDA_SOFTMAX_GRAD, 0, 1, -1, -1, -1, -1, false, false},
    {&tri_op_log_softmax, CUDA_LOG_SOFTMAX, 0, -1, -1, -1, -1, -1, false, false},
    {&tri_op_log_softmax_grad, CUDA_LOG_SOFTMAX_GRAD, 0, 1, -1, -1, -1, -1, false, false},
    {&tri_op_cross_entropy, CUDA_CROSS_ENTROPY, 0, -1, 1, -1, -1, -1, true, false},
    {&tri_op_cross_entropy_grad, CUDA_CROSS_ENTROPY_GRAD, 0, -1, 1, -1, -1, 2, false, false},
    {&tri_op_nll_loss, CUDA_NLL, 0, -1, 1, -1, -1, -1, true, false},
    {&tri_op_nll_loss_grad, CUDA_NLL_GRAD, -1, -1, 0, -1, -1, 1, false, false},
    {&tri_op_one_hot, CUDA_ONE_HOT, -1, -1, 0, -1, -1, -1, false, false},
    {&tri_op_soft_nll_loss, CUDA_SOFT_NLL, 0, 1, -1, -1, -1, -1, true, false},
    {&tri_op_soft_nll_loss_grad, CUDA_SOFT_NLL_GRAD, 0, -1, -1, -1, -1, 1, false, false},
    {&tri_op_top_class, CUDA_TOP_CLASS, 0, -1, -1, -1, -1, -1, false, false},
    {&tri_op_accuracy, CUDA_ACCURACY, 0, -1, 1, -1, -1, -1, true, false},
    {&tri_op_row_max, CUDA_ROW_MAX, 0, -1, -1, -1, -1, -1, false, false},
    {&tri_op_vocab_parallel_softmax, CUDA_SLICE_SOFTMAX, 0, -1, 1, 2, -1, -1, false, true},
    {&tri_op_vocab_parallel_cross_entropy_grad, CUDA_SLICE_GRAD, 0, -1, 1, 2, 3, 4, false, true},
    {&tri_op_vocab_parallel_argmax, CUDA_SLICE_ARGMAX, 0, -1, -1, 1, -1, -1, false, true},
};

static const class_row *class_row_of(const tri_op *op) {
    for (size_t i = 0; i < sizeof class_rows / sizeof *class_rows; i++)
        if (class_rows[i].op == op) return &class_rows[i];
    return NULL;
}

typedef struct class_state {
    const class_row *row;
    cuda_class_rows rows;
    cuda_loss_sum sum;
} class_state;

// Returns the value of the scores, whose shape the kernel needs. nll_loss_grad and one_hot do not
// read the scores, but their output has their shape and type.
static const tri_value_info *scores_of(const tri_graph *graph, const tri_node *node) {
    bool made = node->op == &tri_op_nll_loss_grad || node->op == &tri_op_one_hot;
    return tri_value_get(graph, made ? node->outputs[0] : node->inputs[0]);
}

static bool supports(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node) {
    return cuda_is_real(scores_of(graph, node)->dtype);
}

static bool softmax_supports(const tri_device_description *device, const tri_graph *graph,
                             const tri_node *node) {
    return ((const tri_softmax_attr *)node->attr)->behind == 0 && supports(device, graph, node);
}

static int64_t rows_of(const tri_value_info *scores) {
    int64_t rows = 1;
    for (int i = 0; i + 1 < scores->shape.rank; i++) rows *= scores->shape.dims[i];
    return rows;
}

static tri_status class_workspace(const tri_device_description *device, const tri_graph *graph,
                                  const tri_node *node, size_t *out) {
    const class_row *row = class_row_of(node->op);
    size_t rows = (size_t)rows_of(scores_of(graph, node));
    *out = row->has_terms ? rows * sizeof(double) : 0;
    // Soft labels do not tell by themselves which rows count.
    if (row->function == CUDA_SOFT_NLL) *out += rows * sizeof(int64_t);
    return TRI_OK;
}

static tri_status class_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                tri_kernel *kernel) {
    const tri_value_info *scores = scores_of(graph, node);
    class_state state = {.row = class_row_of(node->op)};
    cuda_class_rows *p = &state.rows;
    *p = (cuda_class_rows){.function = state.row->function,
                           .rows = rows_of(scores),
                           .width = scores->shape.dims[scores->shape.rank - 1],
                           .ignored = TRI_IGNORED_LABEL,
                           .type = scores->dtype,
                           .fault = cuda_fault_of(device)};
    p->classes = p->width;
    if (state.row->has_classes) {
        const tri_classes_attr *a = node->attr;
        p->first = a->first;
        p->classes = a->classes;
    }
    if (p->function == CUDA_SOFT_NLL || p->function == CUDA_SOFT_NLL_GRAD)
        p->smoothing = (float)((const tri_soft_labels_attr *)node->attr)->smoothing;
    if (p->function == CUDA_SOFTMAX) {
        const tri_softmax_attr *a = node->attr;
        p->queries = a->causal ? scores->shape.dims[scores->shape.rank - 2] : 0;
        p->empty = a->empty;
    }
    if (state.row->seed >= 0) p->seed_type = cuda_in_type(graph, node, state.row->seed);
    state.sum = (cuda_loss_sum){
        .term = CUDA_TERMS, .count = p->rows, .ignored = p->ignored, .fault = p->fault};
    return cuda_prepare(kernel, &state, sizeof state);
}

static const void *input_at(const tri_kernel_args *args, int i) {
    return i < 0 ? NULL : args->in[i];
}

static tri_status class_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const class_state *state = kernel->state;
    const class_row *row = state->row;
    cuda_class_rows p = state->rows;
    p.x = input_at(args, row->x);
    p.dy = input_at(args, row->dy);
    p.labels = input_at(args, row->labels);
    p.max = input_at(args, row->max);
    p.slice_sums = input_at(args, row->slice_sums);
    p.seed = input_at(args, row->seed);
    p.terms = args->workspace;
    p.y = args->out[0];
    p.row_results = args->out[0];
    p.row_labels = row->has_terms ? (int64_t *)(p.terms + p.rows) : args->out[0];
    CUDA_LAUNCH(args->queue, class_rows, p);
    if (!row->has_terms) return TRI_OK;
    cuda_loss_sum sum = state->sum;
    sum.terms = p.terms;
    sum.labels = p.labels ? p.labels : p.row_labels;
    sum.out = args->out[0];
    CUDA_LAUNCH(args->queue, loss_sum, sum);
    return TRI_OK;
}

// Whether the op ends the computation of the loss (true) or of the accuracy (false) where ranks
// share the classes. Both ops only add up terms from what earlier ops have made, so they share the
// code below.
static bool is_slice_loss(const tri_op *op) { return op == &tri_op_vocab_parallel_cross_entropy; }

static tri_status slice_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                tri_kernel *kernel) {
    bool is_loss = is_slice_loss(node->op);
    cuda_loss_sum p = {.term = is_loss ? CUDA_SLICE_LOSS : CUDA_SLICE_HITS,
                       .count = cuda_in_count(graph, node, 1),
                       .ignored = TRI_IGNORED_LABEL,
                       .classes = ((const tri_classes_attr *)node->attr)->classes,
                       .fault = cuda_fault_of(device)};
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status slice_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_loss_sum p = *(const cuda_loss_sum *)kernel->state;
    p.all_slices = args->in[is_slice_loss(kernel->def->op) ? 3 : 0];
    p.labels = args->in[1];
    p.out = args->out[0];
    CUDA_LAUNCH(args->queue, loss_sum, p);
    return TRI_OK;
}

#define CLASSES_IF(identifier, supports_function)                                                  \
    const tri_kernel_def cuda_kernel_##identifier = {.op = &tri_op_##identifier,                   \
                                                     .name = "class-rows",                         \
                                                     .supports = supports_function,                \
                                                     .workspace = class_workspace,                 \
                                                     .prepare = class_prepare,                     \
                                                     .run = class_run,                             \
                                                     .release = cuda_release};
#define CLASSES(identifier) CLASSES_IF(identifier, supports)
#define SOFTMAX(identifier) CLASSES_IF(identifier, softmax_supports)
#define SLICE(identifier)                                                                          \
    const tri_kernel_def cuda_kernel_##identifier = {.op = &tri_op_##identifier,                   \
                                                     .name = "loss-sum",                           \
                                                     .supports = supports,                         \
                                                     .prepare = slice_prepare,                     \
                                                     .run = slice_run,                             \
                                                     .release = cuda_release};
SOFTMAX(softmax)
SOFTMAX(softmax_grad)
SOFTMAX(log_softmax)
SOFTMAX(log_softmax_grad)
CLASSES(cross_entropy)
CLASSES(cross_entropy_grad)
CLASSES(nll_loss)
CLASSES(nll_loss_grad)
CLASSES(soft_nll_loss)
CLASSES(soft_nll_loss_grad)
CLASSES(one_hot)
CLASSES(top_class)
CLASSES(accuracy)
CLASSES(row_max)
CLASSES(vocab_parallel_softmax)
CLASSES(vocab_parallel_cross_entropy_grad)
CLASSES(vocab_parallel_argmax)
SLICE(vocab_parallel_cross_entropy)
SLICE(vocab_parallel_accuracy)
