// The device `ref`: lists its kernels, and has the functions that are not ops of a graph: they
// allocate memory, copy, set to zero and add.
#include "device/ref/ref.h"

#include "device/queue.h"
#include "device/widen.h"

#include <stdlib.h>
#include <string.h>

#define X(identifier) &ref_##identifier,
static const tri_kernel_def *const kernels[] = {TRI_OP_LIST(X) & tri_kernel_widened, NULL};
#undef X

static tri_status ref_describe(const tri_device_config *config, tri_device_description *out) {
    *out = tri_device_description_of(&tri_device_ref, config);
    out->threads = 1;
    return TRI_OK;
}

static tri_status ref_open(const tri_device_config *config, tri_device **out) {
    *out = calloc(1, sizeof **out);
    if (!*out) return TRI_FAIL(TRI_NO_MEMORY, "device ref: no memory");
    (*out)->backend = &tri_device_ref;
    return ref_describe(config, &(*out)->description);
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

static tri_status ref_copy(tri_queue *queue, void *to, const void *from, size_t size_bytes) {
    if (size_bytes) memcpy(to, from, size_bytes);
    return TRI_OK;
}

static tri_status ref_zero(tri_queue *queue, void *memory, size_t size_bytes) {
    if (size_bytes) memset(memory, 0, size_bytes);
    return TRI_OK;
}

static tri_status ref_accumulate(tri_queue *queue, float *to, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] += from[i];
    return TRI_OK;
}

const tri_device_backend tri_device_ref = {
    .name = "ref",
    .kernels = kernels,
    .describe = ref_describe,
    .open = ref_open,
    .close = ref_close,
    .alloc = ref_alloc,
    .free = ref_free,
    .open_queue = tri_queue_open_immediate,
    .close_queue = tri_queue_close_immediate,
    .record = tri_queue_record_nothing,
    .wait = tri_queue_wait_here,
    .copy_in = ref_copy,
    .copy_out = ref_copy,
    .zero = ref_zero,
    .add = ref_accumulate,
    .host_memory = true,
};
