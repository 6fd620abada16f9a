// Captures work that is issued to a queue of the device cuda as a CUDA graph, and repeats it. The
// host launches a whole graph at once, which saves it the launch of every single kernel.
// TRIREME_CUDA_GRAPHS=0 turns this off.
#include "device/cuda/internal.h"

#include "base/variable.h"

#include <stdlib.h>
#include <string.h>

// Captured work: the CUDA graph, and the functions of the module, which made it and has to free it.
struct tri_captured {
    const cuda_runtime *runtime;
    cuda_graph *graph;
};

static const char what[] = "CUDA graph (TRIREME_CUDA_GRAPHS=0 goes without)";

bool cuda_launches_block(void) {
    const char *text = getenv("CUDA_LAUNCH_BLOCKING");
    return text && strcmp(text, "1") == 0;
}

tri_status cuda_read_captures(bool *without) {
    const char *graphs = "1";
    TRI_TRY(tri_variable_choice(NULL, "TRIREME_CUDA_GRAPHS", &graphs));
    *without = !strcmp(graphs, "0") || cuda_launches_block();
    return TRI_OK;
}

tri_status cuda_begin_capture(tri_queue *queue) {
    char why[CUDA_WHY_BYTES] = "";
    const cuda_runtime *runtime = cuda_of(queue->device)->runtime;
    TRI_TRY(cuda_check(runtime->begin_capture(cuda_stream_of(queue), why), what, why));
    cuda_set_captures(queue, true);
    return TRI_OK;
}

tri_status cuda_end_capture(tri_queue *queue, tri_captured **out) {
    char why[CUDA_WHY_BYTES] = "";
    const cuda_runtime *runtime = cuda_of(queue->device)->runtime;
    cuda_graph *graph;
    *out = NULL;
    cuda_set_captures(queue, false);
    TRI_TRY(cuda_check(runtime->end_capture(cuda_stream_of(queue), &graph, why), what, why));
    tri_captured *captured = malloc(sizeof *captured);
    if (!captured) {
        runtime->close_graph(graph);
        return TRI_FAIL(TRI_NO_MEMORY, "device cuda: no memory");
    }
    *captured = (tri_captured){runtime, graph};
    *out = captured;
    return TRI_OK;
}

tri_status cuda_repeat(tri_queue *queue, tri_captured *captured) {
    char why[CUDA_WHY_BYTES] = "";
    tri_status status = captured->runtime->repeat(cuda_stream_of(queue), captured->graph, why);
    return cuda_check(status, what, why);
}

void cuda_close_capture(tri_captured *captured) {
    if (!captured) return;
    captured->runtime->close_graph(captured->graph);
    free(captured);
}
