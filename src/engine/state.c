#include "base/philox.h"
#include "engine/engine_internal.h"

#include <stdlib.h>
#include <string.h>

enum { COPY_ELEMENTS = 4096 };

void engine_list_tensors(tri_engine *e) {
    const tri_graph *g = e->plan->graph;
    e->model_tensors = TRI_NEW_ARRAY(e->arena, tri_engine_tensor, g->parameter_count);
    e->optimizer_tensors =
        TRI_NEW_ARRAY(e->arena, tri_engine_tensor, g->parameter_count * e->optimizer.state_count);
    for (int i = 0; i < g->parameter_count; i++) {
        const tri_parameter_info *p = &g->parameters[i];
        e->model_tensors[e->model_tensor_count++] =
            (tri_engine_tensor){p->name, p->dtype, p->shape, p->role, i, -1};
    }
    for (int s = 0; s < e->optimizer.state_count; s++)
        for (int i = 0; i < g->parameter_count; i++) {
            const tri_parameter_info *p = &g->parameters[i];
            if (p->role != TRI_ROLE_TRAINED) continue;
            const char *name =
                tri_arena_printf(e->arena, "%s.%s", p->name, e->optimizer.state_names[s]);
            e->optimizer_tensors[e->optimizer_tensor_count++] =
                (tri_engine_tensor){name, TRI_F32, p->shape, p->role, i, s};
        }
}

int tri_engine_model_tensors(const tri_engine *engine, const tri_engine_tensor **out) {
    *out = engine->model_tensors;
    return engine->model_tensor_count;
}

int tri_engine_optimizer_tensors(const tri_engine *engine, const tri_engine_tensor **out) {
    *out = engine->optimizer_tensors;
    return engine->optimizer_tensor_count;
}

static float *place_of(const tri_engine *e, const tri_engine_tensor *tensor) {
    float *base = tensor->state < 0 ? e->parameters : e->states[tensor->state];
    return base + e->plan->flat.parameters[tensor->parameter].offset;
}

// The host's view of a whole tensor's memory: the memory itself where the host may touch it.
static float *open_view(const tri_engine *e, const tri_engine_tensor *tensor) {
    if (e->device->backend->host_memory) return place_of(e, tensor);
    size_t bytes = (size_t)e->plan->flat.parameters[tensor->parameter].elements * sizeof(float);
    float *copy = malloc(bytes);
    TRI_ASSERT(copy);
    e->device->backend->copy_out(e->device, copy, place_of(e, tensor), bytes);
    return copy;
}

static void close_view(const tri_engine *e, const tri_engine_tensor *tensor, float *view,
                       bool changed) {
    if (e->device->backend->host_memory) return;
    size_t bytes = (size_t)e->plan->flat.parameters[tensor->parameter].elements * sizeof(float);
    if (changed) e->device->backend->copy_in(e->device, place_of(e, tensor), view, bytes);
    free(view);
}

void tri_engine_read(const tri_engine *engine, const tri_engine_tensor *tensor, int64_t first,
                     int64_t count, void *to) {
    if (count == 0) return;
    if (tensor->role == TRI_ROLE_COUNTER) {
        memcpy(to, &engine->counters[tensor->parameter], sizeof(int64_t));
        return;
    }
    float *view = open_view(engine, tensor);
    tri_layout_to_plain(&engine->plan->graph->parameters[tensor->parameter].layout, &tensor->shape,
                        sizeof(float), view, to, first, count);
    close_view(engine, tensor, view, false);
}

void tri_engine_write(tri_engine *engine, const tri_engine_tensor *tensor, int64_t first,
                      int64_t count, const void *from) {
    if (count == 0) return;
    if (tensor->role == TRI_ROLE_COUNTER) {
        memcpy(&engine->counters[tensor->parameter], from, sizeof(int64_t));
        return;
    }
    float *view = open_view(engine, tensor);
    tri_layout_from_plain(&engine->plan->graph->parameters[tensor->parameter].layout,
                          &tensor->shape, sizeof(float), from, view, first, count);
    close_view(engine, tensor, view, true);
}

static float initial_value(const tri_init *init, uint64_t key, uint64_t element) {
    switch (init->kind) {
    case TRI_INIT_ZERO:
        return 0;
    case TRI_INIT_CONSTANT:
        return (float)init->a;
    case TRI_INIT_UNIFORM:
        return tri_philox_init_uniform(key, element, (float)init->a, (float)init->b);
    case TRI_INIT_NORMAL:
        return tri_philox_init_normal(key, element, (float)init->a, (float)init->b);
    }
    return 0;
}

void tri_engine_initialize(tri_engine *engine, uint64_t seed) {
    const tri_graph *g = engine->plan->graph;
    float values[COPY_ELEMENTS];
    for (int i = 0; i < engine->model_tensor_count; i++) {
        const tri_engine_tensor *tensor = &engine->model_tensors[i];
        const tri_parameter_info *p = &g->parameters[tensor->parameter];
        engine->counters[tensor->parameter] = 0;
        if (tensor->role == TRI_ROLE_COUNTER) continue;
        uint64_t key = tri_philox_key(seed, p->name);
        int64_t total = tri_shape_count(&p->shape);
        for (int64_t first = 0; first < total; first += COPY_ELEMENTS) {
            int64_t count = total - first < COPY_ELEMENTS ? total - first : COPY_ELEMENTS;
            for (int64_t k = 0; k < count; k++)
                values[k] = initial_value(&p->init, key, (uint64_t)(first + k));
            tri_engine_write(engine, tensor, first, count, values);
        }
    }
}

void tri_engine_count_update(tri_engine *engine) {
    for (int i = 0; i < engine->plan->graph->parameter_count; i++)
        if (engine->plan->graph->parameters[i].role == TRI_ROLE_COUNTER) engine->counters[i]++;
}
