// Ops of a user's own program: calls their functions.
#include "ops/own.h"

#include "device/ref/node.h"

#include <string.h>

static tri_own_tensor tensor(void *data, tri_dtype dtype, const tri_shape *shape) {
    return (tri_own_tensor){data, dtype, *shape, tri_shape_count(shape)};
}

static void set_inputs(const ref_node *node, const tri_kernel_args *args, int first,
                       tri_own_tensor *to, int count) {
    for (int k = 0; k < count; k++)
        if (node->s.present[first + k])
            to[k] = tensor((void *)(uintptr_t)args->in[first + k], node->s.in_type[first + k],
                           &node->s.in[first + k]);
}

static tri_status own_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    const tri_own_attr *a = (const void *)node->attr;
    tri_own_call call = {.settings = a->settings};
    set_inputs(node, args, 0, call.in, TRI_OWN_INPUTS);
    for (int k = 0; k < ops_own_outputs(a->op); k++)
        call.out[k] = tensor(args->out[k], node->s.out_type[k], &node->s.out[k]);
    a->op->compute(&call);
    return TRI_OK;
}

static tri_status own_grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    const tri_own_attr *a = (const void *)node->attr;
    tri_own_call call = {.settings = a->settings};
    set_inputs(node, args, 0, call.in, TRI_OWN_INPUTS);
    set_inputs(node, args, TRI_OWN_INPUTS, call.out, TRI_OWN_OUTPUTS);
    set_inputs(node, args, TRI_OWN_INPUTS + TRI_OWN_OUTPUTS, call.out_grad, TRI_OWN_OUTPUTS);
    for (int k = 0; k < a->op->inputs; k++) {
        tri_own_tensor dx = tensor(args->out[k], node->s.out_type[k], &node->s.out[k]);
        memset(dx.data, 0, (size_t)dx.count * tri_dtype_bytes(dx.dtype));
        if (!(a->op->integers >> k & 1)) call.in_grad[k] = dx;
    }
    a->op->gradient(&call);
    return TRI_OK;
}

const tri_kernel_def ref_own = {.op = &tri_op_own,
                                .name = "ref",
                                .supports = ref_supports,
                                .prepare = ref_prepare,
                                .run = own_run,
                                .release = ref_release};
const tri_kernel_def ref_own_grad = {.op = &tri_op_own_grad,
                                     .name = "ref",
                                     .supports = ref_supports,
                                     .prepare = ref_prepare,
                                     .run = own_grad_run,
                                     .release = ref_release};
