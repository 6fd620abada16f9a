// Choices that were measured on this GPU and are kept in files, so that every later run chooses the
// same: of several ways to compute the same sums, each has its own rounding.
// docs/decisions/0026-measured-algorithms.md says why.
#ifndef TRIREME_DEVICE_CUDA_MODULE_CHOICES_H
#define TRIREME_DEVICE_CUDA_MODULE_CHOICES_H

#include "device/cuda/runtime.h"

#include <functional>
#include <stdint.h>
#include <string>
#include <vector>

// What is kept, as numbers: their meaning is the library's caller's (blas.cu, dnn.cu).
typedef std::vector<uint64_t> choice;

// How many ways to compute the same are measured at most.
enum { CHOICES_MEASURED = 8 };

// The folder of the files: $TRIREME_CUDA_CHOICES. NULL: nothing is to be measured or read.
const char *choices_folder();
// Reads the choice for `key`, a line of text that names device, library and what is computed.
// False: there is none, or its file is damaged.
bool choices_read(const std::string &key, choice *out);
// Writes a choice. If another process has written one for this key meanwhile, *own becomes that
// one, so that all ranks that share the folder compute with the same. Fails if the file cannot be
// written.
tri_status choices_write(const std::string &key, choice *own, char *why);
// The failure of a run whose kept choice for `key` the library cannot carry out.
tri_status choices_refuse(const std::string &key, char *why);
// Returns the number of the fastest of `count` ways, where seconds_of(i) measures way i. The first
// one wins unless another is 2% faster, because less is noise. A time below 0 counts as none;
// -1: no way could be measured.
int choices_fastest(int count, const std::function<double(int)> &seconds_of);

#endif
