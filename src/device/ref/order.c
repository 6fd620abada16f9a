// Order along one axis: argmax, and sort.
#include "ops/sort_key.h"

#include "device/ref/node.h"
#include "device/sort_pairs.h"
#include "tensor/half.h"

// The key of an element. `opposite`: the smallest one has the largest key; NaN has it always.
static int64_t key_of(const ref_node *node, const tri_kernel_args *args, int64_t i, bool opposite) {
    tri_dtype type = node->s.in_type[0];
    if (!tri_dtype_is_float(type)) {
        int64_t value = ref_get_integer(type, args->in[0], i);
        return opposite ? ~value : value;
    }
    double value = get(ref_input(args, 0, type == TRI_F64), i);
    return sort_key_f64(opposite ? -value : value);
}

static tri_status argmax_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    const tri_argmax_attr *a = (const void *)node->attr;
    axis_cut cut = ops_axis_cut(&node->s.in[0], a->axis);
    int64_t *index = args->out[0];
    for (int64_t n = 0; n < cut.outer * cut.inner; n++) {
        int64_t first = n / cut.inner * cut.size * cut.inner + n % cut.inner, most = 0;
        index[n] = 0;
        for (int64_t k = 0; k < cut.size; k++) {
            int64_t key = key_of(node, args, first + k * cut.inner, a->minimum);
            if (k > 0 && key <= most) continue;
            most = key;
            index[n] = k;
        }
    }
    return TRI_OK;
}

const tri_kernel_def ref_argmax = {.op = &tri_op_argmax,
                                   .name = "ref",
                                   .supports = ref_supports,
                                   .prepare = ref_prepare,
                                   .run = argmax_run,
                                   .release = ref_release};

static tri_status sort_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    const tri_sort_attr *a = (const void *)node->attr;
    axis_cut cut = ops_axis_cut(&node->s.in[0], a->axis);
    size_t bytes = tri_dtype_bytes(node->s.in_type[0]);
    tri_sort_pair *pairs = args->workspace;
    int64_t *index = args->out[1];
    for (int64_t n = 0; n < cut.outer * cut.inner; n++) {
        int64_t i = n % cut.inner, o = n / cut.inner;
        for (int64_t k = 0; k < cut.size; k++) {
            int64_t key = key_of(node, args, (o * cut.size + k) * cut.inner + i, false);
            pairs[k] = (tri_sort_pair){a->descending ? ~key : key, k};
        }
        tri_sort_pairs(pairs, pairs + cut.size, cut.size, a->count);
        for (int64_t k = 0; k < a->count; k++) {
            int64_t to = (o * a->count + k) * cut.inner + i, from = pairs[k].index;
            index[to] = from;
            memcpy((char *)args->out[0] + (size_t)to * bytes,
                   (const char *)args->in[0] +
                       (size_t)((o * cut.size + from) * cut.inner + i) * bytes,
                   bytes);
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

const tri_kernel_def ref_sort = {.op = &tri_op_sort,
                                 .name = "ref",
                                 .supports = ref_supports,
                                 .workspace = sort_workspace,
                                 .prepare = ref_prepare,
                                 .run = sort_run,
                                 .release = ref_release};
