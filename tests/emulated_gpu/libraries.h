// The doubles of the vendor's libraries: each returns the function of that name, or NULL.
#ifndef TRIREME_TESTS_EMULATED_GPU_LIBRARIES_H
#define TRIREME_TESTS_EMULATED_GPU_LIBRARIES_H

void *emulated_blas(const char *name);
void *emulated_dnn(const char *name);
void *emulated_nccl(const char *name);
bool emulated_nccl_is_there();

#endif
