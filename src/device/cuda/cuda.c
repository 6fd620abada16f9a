// The device cuda: finds, describes and opens a GPU, and gives out its memory. queue.c has copies
// and sums, and most other files of this folder have the ops. All code that needs CUDA is in a
// module (runtime.h), so that a login node without a GPU can plan a run for one.
#include "device/cuda/internal.h"

#include "base/log.h"
#include "base/os.h"
#include "device/cpu/cpu.h"
#include "device/gpus.h"
#include "device/queue.h"
#include "device/ref/ref.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define X(name) &cuda_kernel_##name,
static const tri_kernel_def *const kernels[] = {CUDA_KERNELS(X) & cuda_kernel_on_host, NULL};
#undef X

// The features of GPUs for which a run can be planned without having one (gpus.h).
#define HALF .features = CUDA_HAS_BF16 | CUDA_HAS_PRODUCTS | CUDA_HAS_DNN, .module = "cuda"
#define NO_BF16 .features = CUDA_HAS_PRODUCTS | CUDA_HAS_DNN, .module = "cuda"
#define PLAIN .module = "hip"
enum { GPU_ALIGNMENT = 256 };
#define MODEL(gpu_name, driver, is_capable_of, gigabytes, ...)                                     \
    {.name = gpu_name,                                                                             \
     .memory_bytes = gigabytes * INT64_C(1000000000),                                              \
     .alignment = GPU_ALIGNMENT,                                                                   \
     is_capable_of},
static const tri_device_model models[] = {TRI_GPUS(MODEL){0}};

// What a plan leaves free of a GPU's memory for what it does not count: CUDA's context (if the GPU
// is only described), the code of cuBLASLt and cuDNN, which is loaded at its first use, and CUDA
// graphs. The number is an estimate, not a measurement.
static const int64_t reserve_bytes = (int64_t)1 << 30;

tri_status cuda_check(tri_status status, const char *what, const char *why) {
    if (status == TRI_OK) return TRI_OK;
    if (status != TRI_IO || cuda_launches_block())
        return TRI_FAIL(status, "device cuda: %s: %s", what, why);
    return TRI_FAIL(status,
                    "device cuda: the GPU failed: %s; a run with CUDA_LAUNCH_BLOCKING=1 in its "
                    "environment is slow and names the op",
                    why);
}

static tri_status find(const tri_device_config *config, const cuda_runtime **runtime) {
    char why[CUDA_WHY_BYTES] = "";
    int count = 0;
    TRI_TRY(cuda_load(config, runtime));
    TRI_TRY(cuda_check((*runtime)->count(&count, why), "no GPU can be used", why));
    if (config->index < count) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "device cuda: rank %d of this host has no GPU of its own, because %d %s "
                    "visible: start fewer ranks, or set CUDA_VISIBLE_DEVICES",
                    config->index, count, count == 1 ? "is" : "are");
}

static tri_status open_context(const cuda_runtime *runtime, int index, cuda_properties *properties,
                               cuda_context **out) {
    char why[CUDA_WHY_BYTES] = "";
    return cuda_check(runtime->open(index, properties, out, why), "the GPU does not open", why);
}

// Whether the text contains the word, with neither a letter nor a digit beside it.
static bool has_word(const char *text, const char *word) {
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at++)
        if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[length]))
            return true;
    return false;
}

// Returns the kind of the GPU by the driver's name for it. Of kinds that differ in their memory, it
// is the smallest that has as much, where drivers count up to a tenth more than the makers. NULL:
// the GPU is of no kind that we know.
static const char *kind_of(const cuda_properties *properties) {
#define ROW(name, driver, ...) driver,
    static const char *const drivers[] = {TRI_GPUS(ROW)};
#undef ROW
    const char *kind = NULL;
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++) {
        if (!has_word(properties->name, drivers[i])) continue;
        kind = models[i].name;
        if (properties->memory_bytes <= models[i].memory_bytes / 10 * 11) break;
    }
    return kind;
}

static tri_device_description described(const tri_device_config *config,
                                        const cuda_properties *properties) {
    tri_device_description d = tri_device_description_of(&tri_device_cuda, config);
    d.threads = 1;
    d.reserve_bytes = reserve_bytes;
    if (config->model) return d;
    d.kind = kind_of(properties);
    d.memory_bytes = properties->memory_bytes;
    d.alignment = GPU_ALIGNMENT;
    d.features = (properties->has_bf16 ? CUDA_HAS_BF16 : 0) |
                 (properties->has_products ? CUDA_HAS_PRODUCTS : 0) |
                 (properties->has_dnn ? CUDA_HAS_DNN : 0);
    return d;
}

static tri_status cuda_describe(const tri_device_config *config, tri_device_description *out) {
    cuda_properties properties = {0};
    const cuda_runtime *runtime;
    cuda_context *context;
    *out = described(config, &properties);
    if (config->model) return TRI_OK;
    TRI_TRY(find(config, &runtime));
    TRI_TRY(open_context(runtime, config->index, &properties, &context));
    runtime->close(context);
    *out = described(config, &properties);
    return TRI_OK;
}

static void cuda_close(tri_device *head) {
    cuda_device *device = (cuda_device *)head;
    if (!device) return;
    tri_queue_close(device->setup);
    if (device->host) tri_device_ref.close(device->host);
    if (device->context) device->runtime->close(device->context);
    free(device);
}

// Makes the folder in which the module keeps its choices of the fastest algorithms
// (module/choices.h). So a path that cannot be a folder is found here, and not only when the first
// choice is to be kept.
static tri_status make_choices_folder(void) {
    char why[CUDA_WHY_BYTES];
    const char *folder = getenv("TRIREME_CUDA_CHOICES");
    if (!folder || !*folder || tri_os_make_folders(folder) == TRI_OK) return TRI_OK;
    snprintf(why, sizeof why, "%s", tri_error_message());
    return TRI_FAIL(TRI_BAD_INPUT, "TRIREME_CUDA_CHOICES: %s", why);
}

// Warns once, on the first rank of a host, that the run is slow because libraries cannot be used.
static void warn_of_missing(const tri_device_config *config, const cuda_properties *properties) {
    static bool has_warned;
    if (!properties->missing[0] || config->index > 0 || has_warned) return;
    has_warned = true;
    tri_log_line(
        TRI_LOG_WARNING,
        "device cuda: kernels of our own, many times slower, stand in for %s; libraries are "
        "also looked for in the folders of TRIREME_CUDA_LIBRARIES",
        properties->missing);
}

static tri_status open_parts(const tri_device_config *config, cuda_device *device) {
    tri_device_config real = {.index = config->index};
    TRI_TRY(make_choices_folder());
    TRI_TRY(find(config, &device->runtime));
    TRI_TRY(open_context(device->runtime, config->index, &device->properties, &device->context));
    warn_of_missing(config, &device->properties);
    device->head = (tri_device){.backend = &tri_device_cuda,
                                .description = described(config, &device->properties)};
    TRI_TRY(cuda_read_captures(&device->head.without_captures));
    TRI_TRY(tri_device_ref.open(&real, &device->host));
    return cuda_open_queue(&device->head, &device->setup);
}

static tri_status cuda_open(const tri_device_config *config, tri_device **out) {
    cuda_device *device = calloc(1, sizeof *device);
    *out = NULL;
    if (!device) return TRI_FAIL(TRI_NO_MEMORY, "device cuda: no memory");
    tri_status status = open_parts(config, device);
    if (status != TRI_OK) {
        cuda_close(&device->head);
        return status;
    }
    *out = &device->head;
    return TRI_OK;
}

static int64_t cuda_free_memory(tri_device *device) {
    return cuda_of(device)->runtime->free_memory(cuda_of(device)->context);
}

static void cuda_free(tri_device *device, void *memory) {
    if (memory) cuda_of(device)->runtime->free(cuda_of(device)->context, memory);
}

static tri_status cuda_alloc(tri_device *device, size_t size_bytes, void **out) {
    cuda_device *d = cuda_of(device);
    char why[CUDA_WHY_BYTES] = "", what[64];
    snprintf(what, sizeof what, "no memory for %zu bytes", size_bytes);
    TRI_TRY(cuda_check(d->runtime->alloc(d->context, size_bytes, out, why), what, why));
    tri_status status = cuda_zero(d->setup, *out, size_bytes);
    if (status == TRI_OK) status = tri_queue_finish(d->setup);
    if (status == TRI_OK) return TRI_OK;
    cuda_free(device, *out);
    *out = NULL;
    return status;
}

static tri_status cuda_alloc_host(tri_device *device, size_t size_bytes, void **out) {
    cuda_device *d = cuda_of(device);
    char why[CUDA_WHY_BYTES] = "", what[80];
    snprintf(what, sizeof what, "no pinned memory of the host for %zu bytes", size_bytes);
    TRI_TRY(cuda_check(d->runtime->alloc_host(d->context, size_bytes, out, why), what, why));
    memset(*out, 0, size_bytes);
    return TRI_OK;
}

static void cuda_free_host(tri_device *device, void *memory) {
    if (memory) cuda_of(device)->runtime->free_host(cuda_of(device)->context, memory);
}

static void cuda_mark(tri_device *device, const char *name) {
    cuda_of(device)->runtime->mark(name);
}

const tri_device_backend tri_device_cuda = {
    .name = "cuda",
    .host = &tri_device_cpu,
    .kernels = kernels,
    .models = models,
    .describe = cuda_describe,
    .open = cuda_open,
    .close = cuda_close,
    .free_memory = cuda_free_memory,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .alloc_host = cuda_alloc_host,
    .free_host = cuda_free_host,
    .open_queue = cuda_open_queue,
    .close_queue = cuda_close_queue,
    .record = cuda_record,
    .wait = cuda_wait,
    .time = cuda_time,
    .copy_in = cuda_copy_in,
    .copy_in_later = cuda_copy_in_later,
    .copy_out = cuda_copy_out,
    .zero = cuda_zero,
    .add = cuda_add,
    .host_memory = false,
    .is_asynchronous = true,
    .captures = true,
    .begin_capture = cuda_begin_capture,
    .end_capture = cuda_end_capture,
    .repeat = cuda_repeat,
    .close_capture = cuda_close_capture,
    .mark = cuda_mark,
    .takes_bytes = true,
};
