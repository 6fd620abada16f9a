// Prepares the kernels of all programs once, when the engine is made, because what libraries need
// for a kernel (descriptors, generated code) takes long to make. A program is the model's graph,
// compiled for one size of micro-batch, and for training or evaluation.
#include "engine/engine_internal.h"

#include <stdlib.h>

// Checks that the plan was made for this device. The kernels and layouts of a plan for another
// device would compute wrong results here.
static void check_device(const tri_engine *e) {
    const tri_device_description *planned = &e->plan->device, *opened = &e->device->description;
    TRI_ASSERT(planned->backend == opened->backend && planned->threads == opened->threads &&
               planned->features == opened->features && planned->alignment == opened->alignment);
}

static tri_status prepare_program(tri_engine *e, const tri_program *p, tri_kernel *kernels) {
    for (int i = 0; i < p->graph->node_count; i++) {
        if (!p->kernels[i]) continue;
        TRI_TRY(tri_kernel_prepare(p->kernels[i], e->device, p->graph, &p->graph->nodes[i],
                                   &kernels[i]));
        TRI_ASSERT((int64_t)kernels[i].workspace_bytes <= e->plan->sizes.workspace_bytes);
    }
    return TRI_OK;
}

tri_status engine_prepare_kernels(tri_engine *engine) {
    const tri_plan *plan = engine->plan;
    check_device(engine);
    for (int i = 0; i < plan->program_count; i++) {
        const tri_program *p = plan->programs[i];
        engine->kernels[i] = TRI_NEW_ARRAY(engine->arena, tri_kernel, p->graph->node_count);
        TRI_TRY(prepare_program(engine, p, engine->kernels[i]));
    }
    return TRI_OK;
}

void engine_release_kernels(tri_engine *engine) {
    for (int i = 0; i < engine->plan->program_count && engine->kernels[i]; i++)
        for (int k = 0; k < engine->plan->programs[i]->graph->node_count; k++)
            tri_kernel_release(&engine->kernels[i][k]);
}

const tri_kernel *engine_kernels_of(const tri_engine *engine, const tri_program *program) {
    const tri_plan *plan = engine->plan;
    int i = 0;
    while (i < plan->program_count && plan->programs[i] != program) i++;
    TRI_ASSERT(i < plan->program_count);
    return engine->kernels[i];
}
