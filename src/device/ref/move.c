// Ops that move or convert values and compute nothing: reorder, reshape, copy_to and cast.
#include "device/ref/node.h"

#include "tensor/half.h"

#include <math.h>
#include <string.h>

enum { MOVE_CHUNK = 1024 };

// Converts between any two layouts, in chunks of MOVE_CHUNK elements, through a buffer in which
// these lie in row-major order. Padding of the result is 0.
static tri_status reorder_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    const tri_shape *shape = &node->s.in[0];
    size_t bytes = tri_dtype_bytes(node->s.in_type[0]);
    int64_t count = ref_count(shape), taken = tri_layout_elements(&node->out_layout, shape);
    uint64_t chunk[MOVE_CHUNK]; // has room for elements of up to 8 bytes
    if (taken != count) memset(args->out[0], 0, (size_t)taken * bytes);
    for (int64_t first = 0; first < count; first += MOVE_CHUNK) {
        int64_t some = count - first < MOVE_CHUNK ? count - first : MOVE_CHUNK;
        tri_layout_to_plain(&node->in_layout, shape, bytes, args->in[0], chunk, first, some);
        tri_layout_from_plain(&node->out_layout, shape, bytes, chunk, args->out[0], first, some);
    }
    return TRI_OK;
}

// Accepts any layout of the input. The layout pass (pass/layout.c) has added this node to get
// another layout, and has already set the output's layout.
static void reorder_layouts(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, tri_layout *in, tri_layout *out) {
    out[0] = tri_value_get(graph, node->outputs[0])->layout;
}

const tri_kernel_def ref_reorder = {.op = &tri_op_reorder,
                                    .name = "ref",
                                    .layouts = reorder_layouts,
                                    .prepare = ref_prepare,
                                    .run = reorder_run,
                                    .release = ref_release};

// Runs an op whose output is a view: the input's elements under another shape. The output usually
// lies in the input's memory, and nothing has to be done. If the output has memory of its own,
// copies the elements.
static tri_status view_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    size_t bytes = (size_t)ref_count(&node->s.in[0]) * tri_dtype_bytes(node->s.in_type[0]);
    if (args->out[0] != args->in[0]) memmove(args->out[0], args->in[0], bytes);
    return TRI_OK;
}

const tri_kernel_def ref_reshape = {.op = &tri_op_reshape,
                                    .name = "ref",
                                    .prepare = ref_prepare,
                                    .run = view_run,
                                    .release = ref_release};

const tri_kernel_def ref_copy_to = {.op = &tri_op_copy_to,
                                    .name = "ref",
                                    .prepare = ref_prepare,
                                    .run = view_run,
                                    .release = ref_release};

static double read_number(tri_dtype dtype, const void *from, int64_t i) {
    if (dtype == TRI_F64) return ((const double *)from)[i];
    if (dtype == TRI_F32) return (double)((const float *)from)[i];
    if (tri_dtype_is_half(dtype))
        return (double)tri_half_to_float(dtype, ((const uint16_t *)from)[i]);
    return (double)ref_get_integer(dtype, from, i);
}

// The integer next to 0; of a number without room the nearest one that has, and 0 of NaN.
static int64_t nearest_integer(tri_dtype dtype, double number) {
    if (isnan(number)) return 0;
    if (dtype == TRI_U8) return number >= UINT8_MAX ? UINT8_MAX : number <= 0 ? 0 : (int64_t)number;
    if (dtype == TRI_I32 && fabs(number) >= 0x1p31) return number > 0 ? INT32_MAX : INT32_MIN;
    if (fabs(number) >= 0x1p63) return number > 0 ? INT64_MAX : INT64_MIN;
    return (int64_t)number;
}

static void write_number(tri_dtype dtype, void *to, int64_t i, double number) {
    if (dtype == TRI_F64)
        ((double *)to)[i] = number;
    else if (dtype == TRI_F32)
        ((float *)to)[i] = (float)number;
    else if (tri_dtype_is_half(dtype))
        ((uint16_t *)to)[i] = tri_float_to_half(dtype, (float)number);
    else
        ref_put_integer(dtype, to, i, nearest_integer(dtype, number));
}

static tri_status cast_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    tri_dtype from = node->s.in_type[0], to = node->s.out_type[0];
    bool integers = !tri_dtype_is_float(from) && !tri_dtype_is_float(to);
    int64_t count = ref_count(&node->s.in[0]);
    for (int64_t i = 0; integers && i < count; i++)
        ref_put_integer(to, args->out[0], i, ref_get_integer(from, args->in[0], i));
    bool rounds_once = !tri_dtype_is_float(from) && to == TRI_F32; // and not to F64 before
    for (int64_t i = 0; rounds_once && i < count; i++)
        ((float *)args->out[0])[i] = (float)ref_get_integer(from, args->in[0], i);
    for (int64_t i = 0; !integers && !rounds_once && i < count; i++)
        write_number(to, args->out[0], i, read_number(from, args->in[0], i));
    return TRI_OK;
}

const tri_kernel_def ref_cast = {.op = &tri_op_cast,
                                 .name = "ref",
                                 .prepare = ref_prepare,
                                 .run = cast_run,
                                 .release = ref_release};
