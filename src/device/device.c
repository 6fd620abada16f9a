// Chooses a device's kernel for a node, asks it for layouts and workspace, and prepares and
// releases it.
#include "device/device.h"

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

tri_status tri_kernel_prepare(const tri_kernel_def *def, tri_device *device, const tri_graph *graph,
                              const tri_node *node, tri_kernel *out) {
    size_t planned;
    *out = (tri_kernel){0};
    TRI_TRY(tri_kernel_workspace(def, &device->description, graph, node, &planned));
    *out = (tri_kernel){.def = def, .workspace_bytes = planned};
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

void tri_kernel_release(tri_kernel *kernel) {
    if (kernel->def && kernel->def->release) kernel->def->release(kernel);
    *kernel = (tri_kernel){0};
}
