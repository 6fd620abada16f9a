// Products of matrices over batch axes on the GPU: one launch multiplies the matrices of one batch
// axis, so that it is repeated for each index of the others.
#include "device/cuda/internal.h"
#include "device/matmul_plan.h"

typedef struct matmul_state {
    cuda_product product;
    tri_matmul_plan plan; // without the batch axis that a launch takes
} matmul_state;

static bool supports(const tri_device_description *device, const tri_graph *graph,
                     const tri_node *node) {
    return cuda_is_real(cuda_in_type(graph, node, 0));
}

// Takes the longest batch axis out of the plan.
static void take_axis(matmul_state *s) {
    tri_matmul_plan *p = &s->plan;
    tri_matmul_operand *operands[] = {&p->a, &p->b, &p->c};
    int64_t *steps[] = {&s->product.a_step, &s->product.b_step, &s->product.c_step};
    int longest = 0;
    if (p->rank == 0) return;
    for (int i = 1; i < p->rank; i++)
        if (p->batch[i] > p->batch[longest]) longest = i;
    s->product.count = p->batch[longest];
    p->items /= s->product.count;
    p->rank--;
    for (int i = longest; i < p->rank; i++) p->batch[i] = p->batch[i + 1];
    for (int k = 0; k < 3; k++) {
        *steps[k] = operands[k]->batch[longest];
        for (int i = longest; i < p->rank; i++) operands[k]->batch[i] = operands[k]->batch[i + 1];
    }
}

static matmul_state state_of(const tri_graph *graph, const tri_node *node) {
    matmul_state s = {.plan = tri_matmul_plan_make(graph, node)};
    const tri_matmul_plan *p = &s.plan;
    s.product = (cuda_product){.m = p->m,
                               .n = p->n,
                               .k = p->k,
                               .transpose_a = p->a.column != 1,
                               .transpose_b = p->b.column != 1,
                               .in_type = cuda_in_type(graph, node, 0),
                               .out_type = cuda_out_type(graph, node, 0)};
    s.product.a_row = s.product.transpose_a ? p->a.column : p->a.row;
    s.product.b_row = s.product.transpose_b ? p->b.column : p->b.row;
    s.product.c_row = p->c.row;
    s.product.tf32 = s.product.in_type == TRI_F32 && graph->options.tf32;
    take_axis(&s);
    return s;
}

static tri_status workspace(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, size_t *out) {
    *out = device->features & CUDA_HAS_PRODUCTS ? CUDA_PRODUCT_WORKSPACE_BYTES : 0;
    return TRI_OK;
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    matmul_state state = state_of(graph, node);
    state.product.workspace_bytes = (int64_t)kernel->workspace_bytes;
    return cuda_prepare(kernel, &state, sizeof state);
}

static const void *at(const void *data, tri_dtype type, int64_t element) {
    return (const char *)data + element * (int64_t)tri_dtype_bytes(type);
}

static tri_status run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const matmul_state *s = kernel->state;
    const tri_matmul_plan *plan = &s->plan;
    for (int64_t item = 0; item < plan->items; item++) {
        cuda_product p = s->product;
        p.a = at(args->in[plan->swapped], p.in_type, tri_matmul_offset(plan, &plan->a, item));
        p.b = at(args->in[!plan->swapped], p.in_type, tri_matmul_offset(plan, &plan->b, item));
        p.c = (char *)args->out[0] +
              tri_matmul_offset(plan, &plan->c, item) * (int64_t)tri_dtype_bytes(p.out_type);
        p.workspace = args->workspace;
        CUDA_LAUNCH(args->queue, product, p);
    }
    return TRI_OK;
}

const tri_kernel_def cuda_kernel_matmul = {.op = &tri_op_matmul,
                                           .name = "products",
                                           .supports = supports,
                                           .workspace = workspace,
                                           .prepare = prepare,
                                           .run = run,
                                           .release = cuda_release};
