// Ops that cut tensors along an axis into chunks: split keeps one chunk, its gradient puts the
// chunk back among zeros, and rechunk joins the chunks along another axis. They copy elements of
// any type.
#include "device/ref/node.h"

#include <string.h>

// A tensor seen as `outer` contiguous runs. A run has all elements along the axis along which the
// tensor is cut, and along all later axes. So each chunk of the tensor is contiguous within a run.
typedef struct runs {
    int64_t outer;
    size_t run_bytes;
} runs;

static runs runs_of(const tri_shape *shape, int64_t axis, tri_dtype dtype) {
    runs r = {.outer = 1, .run_bytes = tri_dtype_bytes(dtype)};
    for (int i = 0; i < shape->rank; i++)
        if (i < axis)
            r.outer *= shape->dims[i];
        else
            r.run_bytes *= (size_t)shape->dims[i];
    return r;
}

static tri_status split_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    const tri_collective_attr *a = (const void *)node->attr;
    runs slice = runs_of(&node->s.out[0], a->dim, node->s.in_type[0]);
    const char *from = (const char *)args->in[0] + slice.run_bytes * (size_t)a->index;
    char *to = args->out[0];
    for (int64_t i = 0; i < slice.outer; i++, to += slice.run_bytes)
        memcpy(to, from + slice.run_bytes * (size_t)(i * a->slices), slice.run_bytes);
    return TRI_OK;
}

static tri_status split_grad_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    const tri_collective_attr *a = (const void *)node->attr;
    runs slice = runs_of(&node->s.in[0], a->dim, node->s.in_type[0]);
    const char *from = args->in[0];
    char *to = (char *)args->out[0];
    memset(to, 0, slice.run_bytes * (size_t)(slice.outer * a->slices));
    to += slice.run_bytes * (size_t)a->index;
    for (int64_t i = 0; i < slice.outer; i++, from += slice.run_bytes)
        memcpy(to + slice.run_bytes * (size_t)(i * a->slices), from, slice.run_bytes);
    return TRI_OK;
}

// x has the chunks side by side along axis `from`; y has the same chunks side by side along axis
// `to`. For example, with 2 chunks, x [3, 4] becomes y [6, 2] for `from` 1 and `to` 0. The elements
// of a chunk have the same order in x and y, so each memcpy copies as many as are contiguous in
// both.
static tri_status rechunk_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    const tri_rechunk_attr *a = (const void *)node->attr;
    tri_shape chunk = node->s.in[0];
    chunk.dims[a->from] /= a->chunks;
    runs from = runs_of(&chunk, a->from, node->s.in_type[0]);
    runs to = runs_of(&chunk, a->to, node->s.in_type[0]);
    size_t step = from.run_bytes < to.run_bytes ? from.run_bytes : to.run_bytes;
    size_t bytes = (size_t)from.outer * from.run_bytes, chunks = (size_t)a->chunks;
    for (size_t c = 0; c < chunks; c++)
        for (size_t at = 0; at < bytes; at += step) {
            size_t source =
                (at / from.run_bytes * chunks + c) * from.run_bytes + at % from.run_bytes;
            size_t target = (at / to.run_bytes * chunks + c) * to.run_bytes + at % to.run_bytes;
            memcpy((char *)args->out[0] + target, (const char *)args->in[0] + source, step);
        }
    return TRI_OK;
}

#define CHUNK_KERNEL(op_name)                                                                      \
    const tri_kernel_def ref_##op_name = {.op = &tri_op_##op_name,                                 \
                                          .name = "ref",                                           \
                                          .prepare = ref_prepare,                                  \
                                          .run = op_name##_run,                                    \
                                          .release = ref_release};
CHUNK_KERNEL(split)
CHUNK_KERNEL(split_grad)
CHUNK_KERNEL(rechunk)
