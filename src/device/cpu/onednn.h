// The calls that differ between oneDNN 2 and 3, as functions that behave as in oneDNN 3, so that
// kernels need not know the version.
#ifndef TRIREME_DEVICE_CPU_ONEDNN_H
#define TRIREME_DEVICE_CPU_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>

// The description of a tensor ("memory descriptor").
#if DNNL_VERSION_MAJOR < 3
typedef dnnl_memory_desc_t *onednn_md;
typedef const dnnl_memory_desc_t *onednn_const_md;
#else
typedef dnnl_memory_desc_t onednn_md;
typedef const_dnnl_memory_desc_t onednn_const_md;
#endif

dnnl_status_t onednn_md_create(onednn_md *out, int rank, const dnnl_dims_t dims,
                               dnnl_data_type_t type, dnnl_format_tag_t tag);
void onednn_md_destroy(onednn_md md); // NULL allowed

// What a kernel computes: a convolution, the gradient of its input, or the gradient of its weight.
typedef enum conv_task { CONV_FORWARD, CONV_GRAD_INPUT, CONV_GRAD_WEIGHT } conv_task;

// A convolution, as one conv_task needs it. Where the task reads or computes the gradient of a
// tensor, the tensor's member describes the gradient: for CONV_GRAD_WEIGHT, which computes dweight
// and dbias from x and dy, `weight`, `bias` and `y` describe dweight, dbias and dy.
typedef struct onednn_convolution {
    dnnl_alg_kind_t algorithm;
    onednn_md x, weight, bias, y; // bias is NULL if there is none
    // The weight of the forward convolution, in a layout of oneDNN's choice. To make the primitive
    // of a gradient, oneDNN first needs a forward primitive.
    onednn_md forward_weight;
    dnnl_dims_t stride;
    dnnl_dims_t dilation;      // oneDNN counts dilation from 0: ours minus 1
    dnnl_dims_t before, after; // padding at the beginning and at the end of each axis
    dnnl_primitive_attr_t attr;
} onednn_convolution;

dnnl_status_t onednn_convolution_describe(dnnl_engine_t engine, conv_task task,
                                          const onednn_convolution *c, dnnl_primitive_desc_t *out);
// Whether the library has Winograd convolutions in F32.
bool onednn_has_winograd(void);

#endif
