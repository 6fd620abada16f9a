// Gives oneDNN 2 and 3 the same interface, so that no other file depends on the library's version.
#include "device/cpu/onednn.h"

#include <stdlib.h>

#if DNNL_VERSION_MAJOR < 3

dnnl_status_t onednn_md_create(onednn_md *out, int rank, const dnnl_dims_t dims,
                               dnnl_data_type_t type, dnnl_format_tag_t tag) {
    *out = calloc(1, sizeof **out);
    if (!*out) return dnnl_out_of_memory;
    return dnnl_memory_desc_init_by_tag(*out, rank, dims, type, tag);
}

void onednn_md_destroy(onednn_md md) { free(md); }

static dnnl_status_t describe(dnnl_engine_t engine, conv_task task, const onednn_convolution *c,
                              const_dnnl_primitive_desc_t forward, dnnl_primitive_desc_t *out) {
    dnnl_convolution_desc_t d;
    dnnl_status_t status;
    if (task == CONV_FORWARD)
        status = dnnl_dilated_convolution_forward_desc_init(
            &d, dnnl_forward_training, c->algorithm, c->x, c->weight, c->bias, c->y, c->stride,
            c->dilation, c->before, c->after);
    else if (task == CONV_GRAD_INPUT)
        status = dnnl_dilated_convolution_backward_data_desc_init(
            &d, c->algorithm, c->x, c->weight, c->y, c->stride, c->dilation, c->before, c->after);
    else
        status = dnnl_dilated_convolution_backward_weights_desc_init(
            &d, c->algorithm, c->x, c->weight, c->bias, c->y, c->stride, c->dilation, c->before,
            c->after);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(out, &d, c->attr, engine, forward);
}

bool onednn_has_winograd(void) { return true; }

#else

dnnl_status_t onednn_md_create(onednn_md *out, int rank, const dnnl_dims_t dims,
                               dnnl_data_type_t type, dnnl_format_tag_t tag) {
    return dnnl_memory_desc_create_with_tag(out, rank, dims, type, tag);
}

void onednn_md_destroy(onednn_md md) {
    if (md) dnnl_memory_desc_destroy(md);
}

static dnnl_status_t describe(dnnl_engine_t engine, conv_task task, const onednn_convolution *c,
                              const_dnnl_primitive_desc_t forward, dnnl_primitive_desc_t *out) {
    if (task == CONV_FORWARD)
        return dnnl_convolution_forward_primitive_desc_create(
            out, engine, dnnl_forward_training, c->algorithm, c->x, c->weight, c->bias, c->y,
            c->stride, c->dilation, c->before, c->after, c->attr);
    if (task == CONV_GRAD_INPUT)
        return dnnl_convolution_backward_data_primitive_desc_create(
            out, engine, c->algorithm, c->x, c->weight, c->y, c->stride, c->dilation, c->before,
            c->after, forward, c->attr);
    return dnnl_convolution_backward_weights_primitive_desc_create(
        out, engine, c->algorithm, c->x, c->weight, c->bias, c->y, c->stride, c->dilation,
        c->before, c->after, forward, c->attr);
}

// oneDNN 3 has no Winograd for x86-64 any more.
bool onednn_has_winograd(void) { return false; }

#endif

dnnl_status_t onednn_convolution_describe(dnnl_engine_t engine, conv_task task,
                                          const onednn_convolution *c, dnnl_primitive_desc_t *out) {
    if (task == CONV_FORWARD) return describe(engine, task, c, NULL, out);
    onednn_convolution forward = *c;
    forward.weight = c->forward_weight;
    forward.bias = NULL;
    forward.attr = NULL;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t status = describe(engine, CONV_FORWARD, &forward, NULL, &hint);
    if (status != dnnl_success) return status;
    status = describe(engine, task, c, hint, out);
    dnnl_primitive_desc_destroy(hint);
    return status;
}
