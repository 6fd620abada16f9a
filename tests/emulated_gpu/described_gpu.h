// The real cuDNN, asked for plans for a GPU that is not here: since version 9.8 it takes the
// properties of a device as text. Functions in described_gpu.cpp replace some of cuDNN's: where a
// call sets a handle, they set such properties instead, and they execute nothing. They
// also replace the functions of module/vendor.h that need a GPU.
#ifndef TRIREME_TESTS_EMULATED_GPU_DESCRIBED_GPU_H
#define TRIREME_TESTS_EMULATED_GPU_DESCRIBED_GPU_H

#include "device/cuda/module/vendor.h"

#include <cstddef>
#include <cstdint>
#include <string>

struct described_gpu {
    size_t version;          // of cuDNN
    int executed;            // how often a plan would have been executed
    int64_t workspace_bytes; // workspace of the plan that was asked for last
    bool wants_plan;         // keep last_plan
    std::string last_plan;   // the plan that was executed last, as cuDNN writes it
    int device_number;       // number of the device; plans are remembered for each device
};
extern described_gpu described;

// Opens cuDNN and describes a device of this kind to it. Plans that are asked for from now on are
// for this device. Returns false, and prints why, if the library is not installed or too old; the
// test then ends with DESCRIBED_SKIPPED.
enum { DESCRIBED_SKIPPED = 77 };
typedef enum described_kind { DESCRIBED_H200, DESCRIBED_A100 } described_kind;
bool describe_gpu(described_kind kind);

#endif
