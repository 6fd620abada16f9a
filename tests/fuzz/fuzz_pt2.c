// Reads arbitrary bytes as a network that PyTorch has exported, and as the text of its graph, of
// which a network is built.
#include "format/pt2.h"
#include "nn/exported/build.h"

#include <string.h>

#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void open_file(tri_arena *arena, const char *path) {
    tri_pt2 file;
    tri_safetensors *weights;
    if (tri_pt2_open(arena, path, &file) != TRI_OK) {
        TRI_ASSERT(strstr(tri_error_message(), path));
        return;
    }
    if (tri_pt2_open_weights(&file, &weights) == TRI_OK) tri_safetensors_close(weights);
}

static void build(tri_arena *arena, nn_exported *network) {
    int refusals, count = 0;
    if (exported_prepare(network) != TRI_OK) return;
    (void)nn_exported_refusals(network, &refusals);
    if (refusals > 0) return;
    tri_graph *graph =
        tri_graph_create(arena, &(tri_graph_options){.task = &network->task, .predicts = true});
    for (; count < TRI_TASK_MAX_FIELDS && network->task.fields[count].name; count++) {
        const tri_field *field = &network->task.fields[count];
        tri_shape shape = {.rank = field->shape.rank + 1, .dims = {2}};
        for (int i = 0; i < field->shape.rank; i++) shape.dims[i + 1] = field->shape.dims[i];
        tri_input(graph, field->name, field->dtype, shape);
    }
    tri_batch batch = tri_batch_make(graph, 2);
    network->task.build(graph, &batch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tri_arena *arena = tri_arena_create(NULL, "fuzz");
    nn_exported network = {.arena = arena, .file.path = "net.pt2"};
    open_file(arena, memory_file(data, size));
    if (tri_pt2_parse_graph(arena, (const char *)data, size, &network.file) == TRI_OK)
        build(arena, &network);
    tri_arena_destroy(arena);
    return 0;
}
