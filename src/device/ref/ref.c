#include "device/ref/ref.h"

#include "device/widen.h"

#include <stdlib.h>
#include <string.h>

#define X(identifier) &ref_##identifier,
static const tri_kernel_def *const kernels[] = {TRI_OP_LIST(X) & tri_kernel_widened, NULL};
#undef X

static tri_status ref_open(const tri_device_config *config, tri_device **out) {
    *out = calloc(1, sizeof **out);
    if (!*out) return TRI_FAIL(TRI_NO_MEMORY, "device ref: no memory");
    **out = (tri_device){.backend = &tri_device_ref, .threads = 1};
    return TRI_OK;
}

static void ref_close(tri_device *device) { free(device); }

static tri_status ref_alloc(tri_device *device, size_t size_bytes, void **out) {
    *out = NULL;
    if (size_bytes > SIZE_MAX - 64)
        return TRI_FAIL(TRI_NO_MEMORY, "device ref: no memory for %zu bytes", size_bytes);
    size_t rounded = size_bytes ? (size_bytes + 63) / 64 * 64 : 64;
    *out = aligned_alloc(64, rounded);
    if (!*out) return TRI_FAIL(TRI_NO_MEMORY, "device ref: no memory for %zu bytes", size_bytes);
    memset(*out, 0, rounded);
    return TRI_OK;
}

static void ref_free(tri_device *device, void *memory) { free(memory); }

static void ref_copy_in(tri_device *device, void *to, const void *from_host, size_t size_bytes) {
    if (size_bytes) memcpy(to, from_host, size_bytes);
}

static void ref_copy_out(tri_device *device, void *to_host, const void *from, size_t size_bytes) {
    if (size_bytes) memcpy(to_host, from, size_bytes);
}

static void ref_zero(tri_device *device, void *memory, size_t size_bytes) {
    if (size_bytes) memset(memory, 0, size_bytes);
}

static void ref_accumulate(tri_device *device, float *to, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] += from[i];
}

static double ref_sum_of_squares(tri_device *device, const float *values, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)values[i] * (double)values[i];
    return sum;
}

const tri_device_backend tri_device_ref = {
    .name = "ref",
    .kernels = kernels,
    .open = ref_open,
    .close = ref_close,
    .alloc = ref_alloc,
    .free = ref_free,
    .copy_in = ref_copy_in,
    .copy_out = ref_copy_out,
    .zero = ref_zero,
    .add = ref_accumulate,
    .sum_of_squares = ref_sum_of_squares,
    .host_memory = true,
};
