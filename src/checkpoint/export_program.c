// Completes the weights of an exported network by what only its file has: tied weights under their
// other names, and parameters and buffers that are not trained. So PyTorch's load_state_dict finds
// all it wants, and nothing else.
#include "checkpoint/export.h"
#include "format/pt2.h"

#include <stdlib.h>
#include <string.h>

typedef struct completed {
    tri_state_tensor tensor;
    checkpoint_place place;
} completed;

static int by_name(const void *a, const void *b) {
    return strcmp(((const completed *)a)->tensor.name, ((const completed *)b)->tensor.name);
}

// Finds where the tensor is read: in the weights, or in the network's file.
static tri_status find_place(const checkpoint_exported *e, const char *path, const tri_pt2 *network,
                             const tri_pt2_tensor *t, completed *out) {
    const char *name = t->twin ? t->twin : t->entry.name;
    int trained = checkpoint_weights_find(&e->weights, name),
        stored = checkpoint_weights_find(&e->program, name);
    bool is_trained = trained != CHECKPOINT_NO_ENTRY;
    const checkpoint_weights *from = is_trained ? &e->weights : &e->program;
    const tri_safetensors_entry *entry = &from->entries[is_trained ? trained : stored];
    if (!tri_shape_equal(&entry->shape, &t->entry.shape)) {
        char here[160], there[160];
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: '%s' is %s, but %s in %s: these weights are of another network", path,
                        name, tri_shape_text(&entry->shape, here, sizeof here),
                        tri_shape_text(&t->entry.shape, there, sizeof there), network->path);
    }
    *out = (completed){{.name = t->entry.name, .dtype = entry->dtype, .shape = entry->shape},
                       {from, is_trained ? trained : stored}};
    return TRI_OK;
}

// Whether the network has every tensor of the weights, but for adapters and counts of batches.
static tri_status check_known(const checkpoint_exported *e, const char *path,
                              const tri_pt2 *network) {
    for (int i = 0; i < e->weights.count; i++) {
        const char *name = e->weights.entries[i].name;
        const tri_pt2_tensor *t = tri_pt2_find(network, name);
        bool is_count = e->weights.entries[i].dtype == TRI_I64;
        if ((t && t->is_weight) || checkpoint_is_adapter(name) || is_count) continue;
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: '%s' is not in %s: these weights are of another network", path, name,
                        network->path);
    }
    return TRI_OK;
}

tri_status checkpoint_export_complete(tri_arena *arena, const char *path, const char *program,
                                      checkpoint_exported *e) {
    tri_pt2 network;
    TRI_TRY(tri_pt2_open(arena, program, &network));
    TRI_TRY(checkpoint_weights_open(arena, program, false, &e->program));
    TRI_TRY(check_known(e, path, &network));
    completed *all = TRI_NEW_ARRAY(arena, completed, e->count + network.tensor_count);
    int count = 0;
    for (int i = 0; i < e->count; i++)
        if (checkpoint_is_adapter(e->tensors[i].name))
            all[count++] = (completed){e->tensors[i], e->places[i]};
    for (int i = 0; i < network.tensor_count; i++)
        if (network.tensors[i].is_weight)
            TRI_TRY(find_place(e, path, &network, &network.tensors[i], &all[count++]));
    qsort(all, (size_t)count, sizeof *all, by_name);
    e->count = count;
    e->tensors = TRI_NEW_ARRAY(arena, tri_state_tensor, count);
    e->places = TRI_NEW_ARRAY(arena, checkpoint_place, count);
    for (int i = 0; i < count; i++) e->tensors[i] = all[i].tensor, e->places[i] = all[i].place;
    return TRI_OK;
}
