// Ops on sequences of tokens on the GPU: embedding, labels for next-token prediction, rotary
// position embedding. This file chooses the kernels' parameters; module/embedding.cu and
// module/rotary.cu have the kernels.
#include "device/cuda/internal.h"

#include <math.h>

static cuda_tokens tokens_of(const tri_graph *graph, const tri_node *node) {
    bool grad = node->op == &tri_op_embedding_grad_weight;
    const tri_embedding_attr *a =
        grad ? &((const tri_embedding_grad_attr *)node->attr)->rows : node->attr;
    const tri_shape *table = grad ? cuda_out_shape(graph, node, 0) : cuda_in_shape(graph, node, 1);
    cuda_tokens t = {.count = cuda_in_count(graph, node, 0),
                     .first = a->first,
                     .rows = table->dims[0],
                     .total = a->total ? a->total : table->dims[0]};
    return t;
}

// Whether the kernels can compute the embedding, or its gradient. They store positions of tokens
// and numbers of the table's rows as I32, so there must be fewer than 2^31 of each. Input 1 is the
// table or, for the gradient, dy (input 0 is the tokens' ids).
static bool supports_embedding(const tri_device_description *device, const tri_graph *graph,
                               const tri_node *node) {
    cuda_tokens t = tokens_of(graph, node);
    return cuda_is_real(cuda_in_type(graph, node, 1)) && t.count < INT32_MAX && t.rows < INT32_MAX;
}

static tri_status embedding_prepare(tri_device *device, const tri_graph *graph,
                                    const tri_node *node, tri_kernel *kernel) {
    cuda_embedding p = {.tokens = tokens_of(graph, node),
                        .width = cuda_in_shape(graph, node, 1)->dims[1],
                        .type = cuda_in_type(graph, node, 1)};
    p.tokens.fault = cuda_fault_of(device);
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status embedding_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_embedding p = *(const cuda_embedding *)kernel->state;
    p.tokens.ids = args->in[0];
    p.table = args->in[1];
    p.y = args->out[0];
    CUDA_LAUNCH(args->queue, embedding, p);
    return TRI_OK;
}

typedef struct embedding_grad {
    cuda_token_order order;
    cuda_row_starts starts;
    cuda_embedding_grad sums;
} embedding_grad;

// How many numbers of I32 the workspace of the embedding's gradient begins with: the arrays keys[2]
// and positions[2] of cuda_token_order (two of each, because the sort moves elements from one to
// the other) and the array `starts` of cuda_row_starts. It is a multiple of 4, so that what lies
// behind them is aligned to 16 bytes.
static size_t grad_indices(const cuda_tokens *t) {
    return (size_t)(4 * t->count + t->rows + 1 + 3) / 4 * 4;
}

// Computes the size of the workspace of the embedding's gradient, for which the positions of tokens
// are sorted by the rows that the tokens read. Behind the arrays for that, it has the sums of
// cuda_embedding_grad's chunks.
static tri_status grad_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    cuda_tokens t = tokens_of(graph, node);
    size_t width = (size_t)cuda_out_shape(graph, node, 0)->dims[1];
    size_t sums = 2 * (size_t)cuda_token_chunks(t.count) * width;
    *out = grad_indices(&t) * sizeof(int32_t) + sums * sizeof(float);
    return TRI_OK;
}

static unsigned grad_adds(const tri_device_description *device, const tri_graph *graph,
                          const tri_node *node) {
    return 1;
}

static tri_status grad_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    embedding_grad state = {.order.tokens = tokens_of(graph, node),
                            .sums.type = cuda_in_type(graph, node, 1),
                            .sums.width = cuda_out_shape(graph, node, 0)->dims[1]};
    cuda_tokens *t = &state.order.tokens;
    t->fault = cuda_fault_of(device);
    while (t->rows >> (state.order.digits * CUDA_DIGIT_BITS)) state.order.digits++;
    state.starts.count = state.sums.count = t->count;
    state.starts.rows = state.sums.rows = t->rows;
    return cuda_prepare(kernel, &state, sizeof state);
}

static tri_status grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    embedding_grad state = *(const embedding_grad *)kernel->state;
    int64_t count = state.order.tokens.count;
    int32_t *room = args->workspace;
    int last = state.order.digits % 2;
    for (int i = 0; i < 2; i++) {
        state.order.keys[i] = room + i * count;
        state.order.positions[i] = room + (2 + i) * count;
    }
    state.order.tokens.ids = args->in[0];
    state.starts.keys = state.order.keys[last];
    state.starts.starts = room + 4 * count;
    state.sums.dy = args->in[1];
    state.sums.keys = state.starts.keys;
    state.sums.chunk_sums = (float *)args->workspace + grad_indices(&state.order.tokens);
    state.sums.positions = state.order.positions[last];
    state.sums.starts = state.starts.starts;
    state.sums.dtable = args->out[0];
    state.sums.adds = args->adds & 1;
    CUDA_LAUNCH(args->queue, token_order, state.order);
    CUDA_LAUNCH(args->queue, row_starts, state.starts);
    CUDA_LAUNCH(args->queue, embedding_grad, state.sums);
    return TRI_OK;
}

static tri_status next_token_prepare(tri_device *device, const tri_graph *graph,
                                     const tri_node *node, tri_kernel *kernel) {
    const int64_t *dims = cuda_in_shape(graph, node, 0)->dims;
    cuda_next_token p = {.samples = dims[0], .length = dims[1], .ignored = TRI_IGNORED_LABEL};
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status next_token_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_next_token p = *(const cuda_next_token *)kernel->state;
    p.ids = args->in[0];
    p.labels = args->out[0];
    CUDA_LAUNCH(args->queue, next_token, p);
    return TRI_OK;
}

static tri_status rotary_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                 tri_kernel *kernel) {
    const tri_rotary_attr *a = node->attr;
    const int64_t *dims = cuda_in_shape(graph, node, 0)->dims;
    cuda_rotary p = {.samples = dims[0],
                     .length = dims[1],
                     .heads = dims[2],
                     .half = dims[3] / 2,
                     .first = a->first,
                     .log_theta = log2(a->theta),
                     .scaling = a->scaling,
                     .inverse = a->inverse,
                     .type = cuda_in_type(graph, node, 0)};
    return cuda_prepare(kernel, &p, sizeof p);
}

static tri_status rotary_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    cuda_rotary p = *(const cuda_rotary *)kernel->state;
    p.x = args->in[0];
    p.spans = args->in[1];
    p.y = args->out[0];
    CUDA_LAUNCH(args->queue, rotary, p);
    return TRI_OK;
}

const tri_kernel_def cuda_kernel_embedding = {.op = &tri_op_embedding,
                                              .name = "embedding",
                                              .supports = supports_embedding,
                                              .prepare = embedding_prepare,
                                              .run = embedding_run,
                                              .release = cuda_release};
const tri_kernel_def cuda_kernel_embedding_grad_weight = {.op = &tri_op_embedding_grad_weight,
                                                          .name = "sorted",
                                                          .supports = supports_embedding,
                                                          .workspace = grad_workspace,
                                                          .adds = grad_adds,
                                                          .prepare = grad_prepare,
                                                          .run = grad_run,
                                                          .release = cuda_release};
const tri_kernel_def cuda_kernel_next_token = {.op = &tri_op_next_token,
                                               .name = "next-token",
                                               .prepare = next_token_prepare,
                                               .run = next_token_run,
                                               .release = cuda_release};
const tri_kernel_def cuda_kernel_rotary = {.op = &tri_op_rotary,
                                           .name = "rotary",
                                           .supports = cuda_takes_real,
                                           .prepare = rotary_prepare,
                                           .run = rotary_run,
                                           .release = cuda_release};
