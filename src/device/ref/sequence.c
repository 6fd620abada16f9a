#include "device/ref/node.h"

#include <math.h>
#include <string.h>

#include "device/ref/f32.h"

#include "device/ref/sequence_body.h"

#include "device/ref/f64.h"

#include "device/ref/sequence_body.h"

REF_KERNEL(embedding)
REF_SUMMING_KERNEL(embedding_grad_weight, s->out[0].dims[0])
REF_KERNEL(rotary)

static tri_status next_token_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    const int64_t *ids = args->in[0];
    int64_t *labels = args->out[0], length = node->s.in[0].dims[1];
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++)
        labels[i] = (i + 1) % length ? ids[i + 1] : TRI_IGNORED_LABEL;
    return TRI_OK;
}

const tri_kernel_def ref_next_token = {.op = &tri_op_next_token,
                                       .name = "ref",
                                       .prepare = ref_prepare,
                                       .run = next_token_run,
                                       .release = ref_release};
