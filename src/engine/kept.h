// How parameters are kept between steps: as F32 masters or, where nothing is trained, in the type
// in which kernels read them, in the engine's buffers or in a mapped file.
#ifndef TRIREME_ENGINE_KEPT_H
#define TRIREME_ENGINE_KEPT_H

#include "engine/engine_internal.h"

// A parameter that kernels read where it lies in a file.
typedef struct engine_mapped {
    const char *values; // NULL: the parameter is not mapped
    void *pages;
    size_t size_bytes; // of the pages
} engine_mapped;

// Defined in memory.c. engine_kept returns where this rank's range lies of an optimizer state, or
// (TRI_STATE_MASTERS) of a bucket's parameters: of their masters or, without masters, of what
// kernels read. engine_kept_dtype returns its type.
bool engine_has_masters(const tri_engine *engine, tri_bucket_kind bucket);
void *engine_kept(const tri_engine *engine, int unit, tri_bucket_kind bucket, int state);
tri_dtype engine_kept_dtype(const tri_engine *engine, tri_bucket_kind bucket, int state);

// Defined in mapped.c. NULL: the parameter does not lie in a mapped file.
void *engine_mapped_values(const tri_engine *engine, int parameter);
void engine_unmap(tri_engine *engine, int parameter); // it then lies in the engine's buffers again

#endif
