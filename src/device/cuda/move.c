// Ops that move elements and compute nothing, on the GPU: concat, split and their gradients,
// rechunk (cuts along one axis, joins along another), reorder (to another layout), and views, whose
// output is usually the input's memory. Elements may have any type.
#include "device/cuda/internal.h"

// The copies that one op makes, at most one for each input. A copy moves runs of consecutive
// elements.
typedef struct move_state {
    cuda_move move[TRI_MAX_INPUTS]; // by input: the copy that moves it
    // By input: where its copy begins, in bytes from the start of the input and of the output.
    size_t from_first[TRI_MAX_INPUTS], to_first[TRI_MAX_INPUTS];
    size_t zero_bytes; // how many bytes of the output are set to zero before the copies
} move_state;

// The product of the sizes of axes `first` to `end` - 1.
static int64_t elements(const tri_shape *shape, int64_t first, int64_t end) {
    int64_t count = 1;
    for (int64_t i = first; i < end; i++) count *= shape->dims[i];
    return count;
}

static int bytes_of(const tri_graph *graph, const tri_node *node) {
    return (int)tri_dtype_bytes(cuda_in_type(graph, node, 0));
}

// Describes a copy of `outer` runs of `run` consecutive elements of `bytes` bytes each. A run
// begins from_row elements after the previous one in the source, to_row elements in the
// destination.
static cuda_move runs(int bytes, int64_t outer, int64_t run, int64_t from_row, int64_t to_row) {
    return (cuda_move){
        .axes = 2, .element_bytes = bytes, .axis = {{outer, from_row, to_row}, {run, 1, 1}}};
}

// Sets *shape to the value's shape with its axes in the order in which they lie in memory. Returns
// the number of axis `dim` in this order.
static int64_t order_axes(const tri_graph *graph, tri_value value, tri_shape *shape, int64_t dim) {
    const tri_value_info *info = tri_value_get(graph, value);
    int64_t axis = dim;
    *shape = info->shape;
    for (int i = 0; i < shape->rank && !tri_layout_is_plain(&info->layout); i++) {
        shape->dims[i] = info->shape.dims[info->layout.order[i]];
        if (info->layout.order[i] == dim) axis = i;
    }
    return axis;
}

static move_state concat_state(const tri_graph *graph, const tri_node *node) {
    int64_t dim = ((const tri_concat_attr *)node->attr)->dim, first = 0;
    tri_shape whole;
    int64_t axis = order_axes(graph, node->outputs[0], &whole, dim);
    int64_t outer = elements(&whole, 0, axis), row = elements(&whole, axis, whole.rank);
    int64_t inner = elements(&whole, axis + 1, whole.rank);
    int bytes = bytes_of(graph, node);
    move_state state = {.zero_bytes = 0};
    for (int i = 0; i < node->input_count; i++) {
        if (!tri_value_is(node->inputs[i])) continue;
        int64_t run = cuda_in_shape(graph, node, i)->dims[dim] * inner;
        state.move[i] = runs(bytes, outer, run, run, row);
        state.to_first[i] = (size_t)(first * bytes);
        first += run;
    }
    return state;
}

static move_state concat_grad_state(const tri_graph *graph, const tri_node *node) {
    const tri_concat_grad_attr *a = node->attr;
    tri_shape whole;
    int64_t axis = order_axes(graph, node->inputs[0], &whole, a->dim);
    int64_t inner = elements(&whole, axis + 1, whole.rank), run = a->size * inner;
    int64_t outer = elements(&whole, 0, axis), row = whole.dims[axis] * inner;
    int bytes = bytes_of(graph, node);
    return (move_state){.move = {runs(bytes, outer, run, row, run)},
                        .from_first = {(size_t)(a->first * inner * bytes)}};
}

// Describes the copy that a split makes. Its gradient copies in the opposite direction.
static move_state split_state(const tri_graph *graph, const tri_node *node) {
    const tri_collective_attr *a = node->attr;
    bool is_gradient = node->op == &tri_op_split_grad;
    const tri_shape *slice =
        is_gradient ? cuda_in_shape(graph, node, 0) : cuda_out_shape(graph, node, 0);
    int64_t outer = elements(slice, 0, a->dim), run = elements(slice, a->dim, slice->rank);
    int bytes = bytes_of(graph, node);
    size_t first = (size_t)(a->index * run * bytes);
    if (!is_gradient)
        return (move_state){.move = {runs(bytes, outer, run, run * a->slices, run)},
                            .from_first = {first}};
    return (move_state){.move = {runs(bytes, outer, run, run, run * a->slices)},
                        .to_first = {first},
                        .zero_bytes = (size_t)(outer * run * a->slices * bytes)};
}

// Describes the copy that a rechunk makes. It cuts x into chunks along axis `from`, and y has these
// chunks one after the other along axis `to`: with 2 chunks, x [2, 6] cut along axis 1 becomes y
// [4, 3]. The first axis of the copy is the chunks, and its other axes are those of a chunk: in the
// example [2 chunks][2][3].
static move_state rechunk_state(const tri_graph *graph, const tri_node *node) {
    const tri_rechunk_attr *a = node->attr;
    const tri_shape *x = cuda_in_shape(graph, node, 0), *y = cuda_out_shape(graph, node, 0);
    tri_shape chunk = *x;
    move_state state = {.zero_bytes = 0};
    cuda_move *m = &state.move[0];
    chunk.dims[a->from] /= a->chunks;
    *m = (cuda_move){.axes = chunk.rank + 1, .element_bytes = bytes_of(graph, node)};
    for (int i = 0; i < chunk.rank; i++)
        m->axis[i + 1] = (cuda_move_axis){chunk.dims[i], elements(x, i + 1, x->rank),
                                          elements(y, i + 1, y->rank)};
    m->axis[0] =
        (cuda_move_axis){a->chunks, chunk.dims[a->from] * elements(x, a->from + 1, x->rank),
                         chunk.dims[a->to] * elements(y, a->to + 1, y->rank)};
    return state;
}

static tri_status prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                          tri_kernel *kernel) {
    move_state state = node->op == &tri_op_concat        ? concat_state(graph, node)
                       : node->op == &tri_op_concat_grad ? concat_grad_state(graph, node)
                       : node->op == &tri_op_rechunk     ? rechunk_state(graph, node)
                                                         : split_state(graph, node);
    return cuda_prepare(kernel, &state, sizeof state);
}

static tri_status run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const move_state *state = kernel->state;
    if (state->zero_bytes) TRI_TRY(cuda_zero(args->queue, args->out[0], state->zero_bytes));
    for (int i = 0; i < TRI_MAX_INPUTS; i++) {
        cuda_move p = state->move[i];
        if (p.axes == 0) continue;
        p.from = (const char *)args->in[i] + state->from_first[i];
        p.to = (char *)args->out[0] + state->to_first[i];
        CUDA_LAUNCH(args->queue, move, p);
    }
    return TRI_OK;
}

// Describes a layout as a sum of terms (cuda_reorder_term). A layout may cut axes into blocks of
// fixed size (nChw16c cuts the channels into blocks of 16). There is a term for each axis, and one
// for each block size that cuts it. A term adds index[axis] / divisor % modulus * stride to an
// element's offset. So its stride is the offset of the element whose index is `divisor` on this
// axis and 0 on all others. Terms that would always be 0, because the axis is not longer than
// `divisor`, are left out.
static cuda_reorder_side side_of(const tri_layout *layout, const tri_shape *shape) {
    cuda_reorder_side side = {.terms = 0};
    for (int axis = 0; axis < shape->rank; axis++) {
        int64_t divisor = 1;
        for (int block = layout->block_count; block >= 0; block--) {
            if (block > 0 && layout->block_axis[block - 1] != axis) continue;
            int64_t size = block > 0 ? layout->block_size[block - 1] : INT64_MAX;
            int64_t step[TRI_MAX_RANK] = {0};
            if (divisor >= shape->dims[axis]) break;
            step[axis] = divisor;
            side.term[side.terms++] =
                (cuda_reorder_term){axis, divisor, size, tri_layout_offset(layout, shape, step)};
            if (block > 0) divisor *= size;
        }
    }
    return side;
}

typedef struct reorder_state {
    cuda_reorder reorder;
    size_t zero_bytes; // size of an output that has padding, which is set to zero first
} reorder_state;

// Sets rows and columns if the copy is between row-major images and images whose channels are last:
// then each sample is a matrix that is transposed.
static void find_matrices(cuda_reorder *p, const tri_layout *x, const tri_layout *y) {
    const tri_layout last = cuda_channels_last(&p->shape);
    if (tri_layout_is_plain(&last) || tri_layout_is_plain(x) == tri_layout_is_plain(y)) return;
    if (!tri_layout_equal(&last, x) && !tri_layout_equal(&last, y)) return;
    int64_t channels = p->shape.dims[1], pixels = p->shape.dims[2] * p->shape.dims[3];
    p->rows = tri_layout_is_plain(x) ? channels : pixels;
    p->columns = tri_layout_is_plain(x) ? pixels : channels;
}

static tri_status reorder_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                                  tri_kernel *kernel) {
    const tri_value_info *x = tri_value_get(graph, node->inputs[0]);
    const tri_value_info *y = tri_value_get(graph, node->outputs[0]);
    int64_t taken = tri_layout_elements(&y->layout, &y->shape);
    reorder_state state = {.reorder = {.element_bytes = bytes_of(graph, node),
                                       .shape = x->shape,
                                       .count = tri_shape_count(&x->shape),
                                       .from_side = side_of(&x->layout, &x->shape),
                                       .to_side = side_of(&y->layout, &y->shape)}};
    find_matrices(&state.reorder, &x->layout, &y->layout);
    if (taken != state.reorder.count)
        state.zero_bytes = (size_t)taken * (size_t)state.reorder.element_bytes;
    return cuda_prepare(kernel, &state, sizeof state);
}

static tri_status reorder_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const reorder_state *state = kernel->state;
    cuda_reorder p = state->reorder;
    p.from = args->in[0];
    p.to = args->out[0];
    if (state->zero_bytes) TRI_TRY(cuda_zero(args->queue, p.to, state->zero_bytes));
    CUDA_LAUNCH(args->queue, reorder, p);
    return TRI_OK;
}

// Accepts any layout of the input. The layout pass added this node to get another layout, and has
// set the output's.
static void reorder_layouts(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, tri_layout *in, tri_layout *out) {
    out[0] = tri_value_get(graph, node->outputs[0])->layout;
}

static tri_status view_prepare(tri_device *device, const tri_graph *graph, const tri_node *node,
                               tri_kernel *kernel) {
    size_t bytes = (size_t)(cuda_in_count(graph, node, 0) * bytes_of(graph, node));
    return cuda_prepare(kernel, &bytes, sizeof bytes);
}

// Runs a view. It usually lies in its input's memory, and nothing has to be done. Where it has
// memory of its own, copies the elements.
static tri_status view_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    if (args->out[0] == args->in[0]) return TRI_OK;
    return cuda_copy_within(args->queue, args->out[0], args->in[0], *(const size_t *)kernel->state);
}

#define MOVE(identifier, layouts_function)                                                         \
    const tri_kernel_def cuda_kernel_##identifier = {.op = &tri_op_##identifier,                   \
                                                     .name = "move",                               \
                                                     .layouts = layouts_function,                  \
                                                     .prepare = prepare,                           \
                                                     .run = run,                                   \
                                                     .release = cuda_release};
MOVE(concat, cuda_layouts_of_images)
MOVE(concat_grad, cuda_layouts_of_images)
MOVE(split, NULL)
MOVE(split_grad, NULL)
MOVE(rechunk, NULL)

#define VIEW(identifier)                                                                           \
    const tri_kernel_def cuda_kernel_##identifier = {.op = &tri_op_##identifier,                   \
                                                     .name = "view",                               \
                                                     .prepare = view_prepare,                      \
                                                     .run = view_run,                              \
                                                     .release = cuda_release};
VIEW(reshape)
VIEW(copy_to)

const tri_kernel_def cuda_kernel_reorder = {.op = &tri_op_reorder,
                                            .name = "move",
                                            .layouts = reorder_layouts,
                                            .prepare = reorder_prepare,
                                            .run = reorder_run,
                                            .release = cuda_release};
