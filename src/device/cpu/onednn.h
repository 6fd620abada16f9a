// The calls in which the interfaces of oneDNN 2 and 3 differ, with the meaning they have in 3.
#ifndef TRIREME_DEVICE_CPU_ONEDNN_H
#define TRIREME_DEVICE_CPU_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>

// Description of a tensor.
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

typedef enum conv_task { CONV_FORWARD, CONV_GRAD_INPUT, CONV_GRAD_WEIGHT } conv_task;

// What the primitive of a task is made from; x, weight, bias and y stand for their gradients where
// those are computed.
typedef struct onednn_convolution {
    dnnl_alg_kind_t algorithm;
    onednn_md x, weight, bias, y; // bias NULL: none
    onednn_md any_weight;         // of the forward pass, in whatever order it wants: for gradients
    dnnl_dims_t stride, dilation, before, after; // dilation − 1; padding
    dnnl_primitive_attr_t attr;
} onednn_convolution;

dnnl_status_t onednn_convolution_describe(dnnl_engine_t engine, conv_task task,
                                          const onednn_convolution *c, dnnl_primitive_desc_t *out);
// True where the library has Winograd convolutions of F32.
bool onednn_has_winograd(void);

// Adds (leaky) ReLU to what is done to a result.
dnnl_status_t onednn_append_relu(dnnl_post_ops_t post_ops, float slope);

#endif
