// Finds the fastest of the ways in which a library (cuBLASLt, cuDNN) can compute a product or a
// convolution on this GPU. The choice is measured once and kept in a file, so that every later run
// computes in the same way: ways differ in how they round.
// docs/decisions/0026-measured-algorithms.md says why.
#ifndef TRIREME_DEVICE_CUDA_MODULE_CHOICES_H
#define TRIREME_DEVICE_CUDA_MODULE_CHOICES_H

#include "device/cuda/runtime.h"

#include <functional>
#include <stdint.h>
#include <string>
#include <vector>

// A choice as its file contains it: numbers whose meaning only the caller knows (blas.cu, dnn.cu).
typedef std::vector<uint64_t> choice;

// At most this many ways to compute an op are measured.
enum { CHOICES_MEASURED = 8 };

// The folder with the files of kept choices: $TRIREME_CUDA_CHOICES, which exists, because opening
// the device makes it. NULL: no choices are measured, kept or read.
const char *choices_folder();
// Reads the choice for `key`, a line of text that names device, library and what is computed.
// False: there is none, or its file is damaged.
bool choices_read(const std::string &key, choice *out);
// Writes a choice. If another process has written one for this key meanwhile, *own becomes that
// one, so that all ranks that share the folder compute in the same way. Fails if the file cannot be
// written.
tri_status choices_write(const std::string &key, choice *own, char *why);
// Returns a failure, whose message says that the library cannot compute in the way that is stored
// for `key`.
tri_status choices_refuse(const std::string &key, char *why);
// Returns the number of the fastest of `count` ways. seconds_of(i) measures way i, and returns a
// negative number if that is not possible. A way is preferred to an earlier one only if it is 2%
// faster, because less is noise. -1: no way could be measured.
int choices_fastest(int count, const std::function<double(int)> &seconds_of);

#endif
