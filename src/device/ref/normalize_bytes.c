// Normalises images of bytes: (byte / 255 - mean) / std of the channel. Each operation is rounded
// to F32, so that all devices get the same bits.
#include "device/ref/node.h"

#include "tensor/pixels.h"

static tri_status normalize_bytes_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    const ref_node *node = kernel->state;
    const tri_pixel_scale *a = (const void *)node->attr;
    const uint8_t *x = args->in[0];
    float *y = args->out[0];
    int64_t count = ref_count(&node->s.in[0]);
    int64_t plane = count / (node->s.in[0].dims[0] * a->channels);
    for (int64_t i = 0; i < count; i++) {
        int64_t channel = i / plane % a->channels;
        float value = (float)x[i] / 255.0f;
        value = value - (float)a->mean[channel];
        y[i] = value / (float)a->std[channel];
    }
    return TRI_OK;
}

const tri_kernel_def ref_normalize_bytes = {.op = &tri_op_normalize_bytes,
                                            .name = "ref",
                                            .prepare = ref_prepare,
                                            .run = normalize_bytes_run,
                                            .release = ref_release};
