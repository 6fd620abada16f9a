// What the two files of the test double of cuDNN share: dnn.cpp has the functions of the library,
// dnn_operations.cpp computes graphs of operations.
#ifndef TRIREME_TESTS_EMULATED_GPU_DNN_DOUBLE_H
#define TRIREME_TESTS_EMULATED_GPU_DNN_DOUBLE_H

#include "emulated_gpu/libraries.h"

#include <cstdio>
#include <cudnn_graph.h>
#include <functional>
#include <map>
#include <string>

namespace dnn_double {

// Any object of cuDNN. Engines, configurations and plans also have an engine's number, the value of
// its knob, and the graph of operations that they compute.
struct descriptor {
    cudnnBackendDescriptorType_t type;
    std::map<int, std::string> values; // by attribute: its value, as bytes
    bool finished = false;             // all attributes are set (BackendFinalize)
    int engine = 0;
    int64_t knob = 0;
    const descriptor *graph = nullptr;
};

// Returns value number i of an attribute; ends the program if it has not been set. The variant
// pack lacks a value if it does not name a tensor of the graph.
template <typename T> T get(const descriptor *x, cudnnBackendAttributeName_t name, int i = 0) {
    auto found = x->values.find(name);
    T value;
    if (found == x->values.end() || found->second.size() < (size_t)(i + 1) * sizeof value) {
        fprintf(stderr, "the emulated cuDNN: attribute %d has no value number %d\n", (int)name, i);
        abort();
    }
    memcpy(&value, found->second.data() + (size_t)i * sizeof value, sizeof value);
    return value;
}

bool has(const descriptor *x, cudnnBackendAttributeName_t name);

// How an engine computes a graph.
struct engine_rules {
    bool rounds_to_tf32; // what it multiplies in products and convolutions
    int64_t first;       // decides in which order products and convolutions add up
    void *workspace;
    size_t workspace_bytes;
};

// Whether the double has plans for a graph: see the top of dnn.cpp.
bool is_supported(const descriptor *graph);
// Returns a function that computes the graph on the tensors that `pack` names. It can be called
// several times, after `pack` is deleted too. By-value tensors are read at once.
std::function<void()> computation_of(const descriptor *graph, const descriptor *pack,
                                     const engine_rules &rules);

} // namespace dnn_double

#endif
