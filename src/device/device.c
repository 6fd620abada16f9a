// Chooses a device's kernel for a node, asks the kernel for layouts and workspace, and prepares and
// releases it.
#include "device/device.h"

#include "base/free_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tri_device_description tri_device_description_of(const tri_device_backend *backend,
                                                 const tri_device_config *config) {
    const tri_device_model *model = config->model;
    tri_device_description device = {.backend = backend,
                                     .model = model,
                                     .threads = config->threads ? config->threads : 1,
                                     .alignment = TRI_DEVICE_ALIGNMENT};
    if (!model) return device;
    device.features = model->features;
    device.memory_bytes = model->memory_bytes;
    device.alignment = model->alignment;
    return device;
}

const char *tri_device_name(const tri_device_description *device,
                            char text[TRI_DEVICE_NAME_BYTES]) {
    const tri_device_model *model = device->model;
    snprintf(text, TRI_DEVICE_NAME_BYTES, "%s%s%s", device->backend->name, model ? ":" : "",
             model ? model->name : "");
    return text;
}

// Takes away the device's reserve (of libraries and the driver), and says so.
static void take_reserve(const tri_device_description *device, tri_device_memory *memory) {
    size_t length = strlen(memory->whose);
    if (device->reserve_bytes == 0 || memory->bytes == 0) return; // 0: the size is not known
    memory->bytes -= device->reserve_bytes;
    if (memory->bytes < 1) memory->bytes = 1;
    snprintf(memory->whose + length, sizeof memory->whose - length,
             " beside %.1f GB for its libraries", (double)device->reserve_bytes * 1e-9);
}

tri_device_memory tri_device_memory_of(const tri_device_description *device, tri_device *opened,
                                       int sharers) {
    tri_device_memory memory = {.bytes = device->memory_bytes, .is_own = true};
    char name[TRI_DEVICE_NAME_BYTES];
    if (opened && device->backend->free_memory) {
        memory.bytes = device->backend->free_memory(opened);
        snprintf(memory.whose, sizeof memory.whose, "that is free on %s",
                 tri_device_name(device, name));
        take_reserve(device, &memory);
    } else if (device->memory_bytes) {
        snprintf(memory.whose, sizeof memory.whose, "of %s", tri_device_name(device, name));
        take_reserve(device, &memory);
    } else {
        const char *whose;
        memory.is_own = false;
        memory.bytes = tri_free_memory(sharers, &whose);
        snprintf(memory.whose, sizeof memory.whose, "%s", whose);
    }
    return memory;
}

const tri_kernel_def *tri_device_select(const tri_device_description *device,
                                        const tri_graph *graph, const tri_node *node) {
    if (node->op->flags & TRI_OP_COLLECTIVE) return NULL;
    for (const tri_kernel_def *const *def = device->backend->kernels; *def; def++) {
        if ((*def)->op && (*def)->op != node->op) continue;
        if (!(*def)->supports || (*def)->supports(device, graph, node)) return *def;
    }
    return NULL;
}

void tri_kernel_layouts(const tri_kernel_def *def, const tri_device_description *device,
                        const tri_graph *graph, const tri_node *node, tri_layout *in,
                        tri_layout *out) {
    for (int i = 0; i < node->output_count; i++) out[i] = TRI_LAYOUT_PLAIN;
    if (def && def->layouts) {
        def->layouts(device, graph, node, in, out);
        return;
    }
    for (int i = 0; i < node->input_count; i++) in[i] = TRI_LAYOUT_PLAIN;
}

tri_status tri_kernel_workspace(const tri_kernel_def *def, const tri_device_description *device,
                                const tri_graph *graph, const tri_node *node, size_t *out) {
    *out = 0;
    return def->workspace ? def->workspace(device, graph, node, out) : TRI_OK;
}

unsigned tri_kernel_adds(const tri_kernel_def *def, const tri_device_description *device,
                         const tri_graph *graph, const tri_node *node) {
    return def->adds ? def->adds(device, graph, node) : 0;
}

static size_t add_value(const tri_graph *graph, tri_value value, char *text, size_t size) {
    char shape[128];
    if (!tri_value_is(value)) return 0;
    const tri_value_info *info = tri_value_get(graph, value);
    return (size_t)snprintf(text, size, " %s %s", tri_dtype_name(info->dtype),
                            tri_shape_text(&info->shape, shape, sizeof shape));
}

// Describes a node for messages, such as "linear fc2: F32 [64, 128] F32 [10, 128] -> F32 [64, 10]".
static char *describe_node(const tri_graph *graph, const tri_node *node) {
    char text[512];
    if (!node) return NULL; // tests may have a kernel without a node
    const char *name = node->name ? node->name : "";
    size_t used =
        (size_t)snprintf(text, sizeof text, "%s%s%.100s:", node->op->name, *name ? " " : "", name);
    for (int i = 0; i < node->input_count && used < sizeof text; i++)
        used += add_value(graph, node->inputs[i], text + used, sizeof text - used);
    if (used < sizeof text) used += (size_t)snprintf(text + used, sizeof text - used, " ->");
    for (int i = 0; i < node->output_count && used < sizeof text; i++)
        used += add_value(graph, node->outputs[i], text + used, sizeof text - used);
    return strdup(text);
}

tri_status tri_kernel_prepare(const tri_kernel_def *def, tri_device *device, const tri_graph *graph,
                              const tri_node *node, tri_kernel *out) {
    size_t planned;
    *out = (tri_kernel){0};
    TRI_TRY(tri_kernel_workspace(def, &device->description, graph, node, &planned));
    *out = (tri_kernel){.def = def, .workspace_bytes = planned, .what = describe_node(graph, node)};
    if (def->prepare) TRI_TRY(def->prepare(device, graph, node, out));
    TRI_ASSERT(out->workspace_bytes <= planned);
    return TRI_OK;
}

tri_status tri_kernel_make(tri_device *device, const tri_graph *graph, const tri_node *node,
                           tri_kernel *out) {
    const tri_kernel_def *def = tri_device_select(&device->description, graph, node);
    if (def) return tri_kernel_prepare(def, device, graph, node, out);
    *out = (tri_kernel){0};
    return TRI_FAIL(TRI_UNSUPPORTED, "device %s has no kernel for %s", device->backend->name,
                    node->op->name);
}

tri_status tri_kernel_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    tri_status status = kernel->def->run(kernel, args);
    if (status != TRI_INTERNAL && status != TRI_NO_MEMORY) return status;
    return tri_status_context(status, "op %s", kernel->what ? kernel->what : kernel->def->name);
}

void tri_kernel_release(tri_kernel *kernel) {
    if (kernel->def && kernel->def->release) kernel->def->release(kernel);
    free(kernel->what);
    *kernel = (tri_kernel){0};
}
