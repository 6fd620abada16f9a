// Order along one axis: argmax, and sort.
#include "ops/sort_key.h"

#include "device/ref/node.h"
#include "device/sort_pairs.h"

#include <math.h>

REF_BODY tri_status argmax_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_argmax_attr *a = (const void *)node->attr;
    axis_cut cut = ops_axis_cut(&node->s.in[0], a->axis);
    ref_array x = ref_input(args, 0, f64);
    int64_t *index = args->out[0];
    for (int64_t n = 0; n < cut.outer * cut.inner; n++) {
        int64_t first = n / cut.inner * cut.size * cut.inner + n % cut.inner, best = 0;
        for (int64_t k = 1; k < cut.size; k++) {
            double value = get(x, first + k * cut.inner), most = get(x, first + best * cut.inner);
            bool more = a->minimum ? value < most : value > most;
            if (!isnan(most) && (more || isnan(value))) best = k;
        }
        index[n] = best;
    }
    return TRI_OK;
}

static tri_status argmax_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    return node->s.in_type[0] == TRI_F64 ? argmax_body(node, args, true)
                                         : argmax_body(node, args, false);
}

const tri_kernel_def ref_argmax = {.op = &tri_op_argmax,
                                   .name = "ref",
                                   .supports = ref_supports,
                                   .prepare = ref_prepare,
                                   .run = argmax_run,
                                   .release = ref_release};

REF_BODY tri_status sort_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    const tri_sort_attr *a = (const void *)node->attr;
    axis_cut cut = ops_axis_cut(&node->s.in[0], a->axis);
    ref_array x = ref_input(args, 0, f64), y = ref_output(args, 0, f64);
    tri_sort_pair *pairs = args->workspace;
    int64_t *index = args->out[1];
    for (int64_t n = 0; n < cut.outer * cut.inner; n++) {
        int64_t i = n % cut.inner, o = n / cut.inner;
        for (int64_t k = 0; k < cut.size; k++) {
            int64_t key = sort_key_f64(get(x, (o * cut.size + k) * cut.inner + i));
            pairs[k] = (tri_sort_pair){a->descending ? ~key : key, k};
        }
        tri_sort_pairs(pairs, pairs + cut.size, cut.size, a->count);
        for (int64_t k = 0; k < a->count; k++) {
            int64_t to = (o * a->count + k) * cut.inner + i, from = pairs[k].index;
            index[to] = from;
            put(y, to, get(x, (o * cut.size + from) * cut.inner + i));
        }
    }
    return TRI_OK;
}

static tri_status sort_workspace(const tri_device_description *device, const tri_graph *graph,
                                 const tri_node *node, size_t *out) {
    const tri_shape *x = &tri_value_get(graph, node->inputs[0])->shape;
    int64_t size = x->dims[((const tri_sort_attr *)node->attr)->axis];
    *out = 2 * (size_t)size * sizeof(tri_sort_pair);
    return TRI_OK;
}

REF_KERNEL_WITH(sort, sort_workspace)
