// A loss of terms and counts, the weights of labels, and labels of which one more is ignored.
#include "device/ref/node.h"

REF_BODY tri_status ratio_loss_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    double *sums = args->out[0];
    for (int k = 0; k < 2; k++) {
        ref_array x = ref_input(args, k, f64);
        sums[k] = 0;
        for (int64_t i = 0, count = ref_count(&node->s.in[k]); i < count; i++) sums[k] += get(x, i);
    }
    return TRI_OK;
}

REF_BODY tri_status label_weights_body(const ref_node *node, const tri_kernel_args *args,
                                       bool f64) {
    int64_t classes = node->s.in[1].dims[0];
    const int64_t *labels = args->in[0];
    ref_array weights = ref_input(args, 1, f64), y = ref_output(args, 0, f64);
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++) {
        TRI_TRY(ref_check_label(labels[i], i, classes));
        put(y, i, labels[i] == TRI_IGNORED_LABEL ? 0 : get(weights, labels[i]));
    }
    return TRI_OK;
}

REF_KERNEL(ratio_loss)
REF_KERNEL(label_weights)

static tri_status ignore_label_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    const tri_ignore_label_attr *attr = (const void *)node->attr;
    const int64_t *from = args->in[0];
    int64_t *to = args->out[0];
    for (int64_t i = 0, count = ref_count(&node->s.in[0]); i < count; i++)
        to[i] = from[i] == attr->label ? TRI_IGNORED_LABEL : from[i];
    return TRI_OK;
}

const tri_kernel_def ref_ignore_label = {.op = &tri_op_ignore_label,
                                         .name = "ref",
                                         .prepare = ref_prepare,
                                         .run = ignore_label_run,
                                         .release = ref_release};
