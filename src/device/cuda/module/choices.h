// Choices that were measured on this GPU and are kept in files, so that every later run chooses the
// same: of several ways to compute the same sums, each has its own rounding.
// docs/decisions/0026-measured-algorithms.md says why.
#ifndef TRIREME_DEVICE_CUDA_MODULE_CHOICES_H
#define TRIREME_DEVICE_CUDA_MODULE_CHOICES_H

#include "device/cuda/runtime.h"

#include <stdint.h>
#include <string>

// What is kept: an algorithm of cuBLASLt, which the library allows to be stored as it is, and the
// workspace that it needs.
struct choice {
    uint64_t algorithm[8];
    uint64_t workspace_bytes;
};

// The folder of the files: $TRIREME_CUDA_CHOICES. NULL: nothing is to be measured or read.
const char *choices_folder();
// Reads the choice for `key`, a line of text that names device, library and what is computed.
// False: there is none, or its file is damaged.
bool choices_read(const std::string &key, choice *out);
// Writes a choice. If another process has written one for this key meanwhile, *own becomes that
// one, so that all ranks that share the folder compute with the same. Fails if the file cannot be
// written.
tri_status choices_write(const std::string &key, choice *own, char *why);

#endif
