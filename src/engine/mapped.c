// Parameters that kernels read where they lie in a file of weights, so that a model that is not
// trained needs no copy of them. Pages come from the file when they are read, and the system may
// drop them again when memory is short. The engine's buffers keep a place for such parameters,
// which is never written and so takes no memory.
#include "base/os.h"
#include "engine/kept.h"

#include <sys/mman.h>
#include <unistd.h>

enum {
    LEAST_BYTES = 1 << 16, // a smaller parameter is copied, which takes less than the pages' table
    ALIGNMENT = 8,         // of values, in bytes; writers of safetensors align the first tensor so
};

void *engine_mapped_values(const tri_engine *e, int parameter) {
    return (void *)e->memory.mapped[parameter].values;
}

void engine_unmap(tri_engine *e, int parameter) {
    engine_mapped *m = &e->memory.mapped[parameter];
    if (m->values) munmap(m->pages, m->size_bytes);
    *m = (engine_mapped){.values = NULL};
}

// Finds which bytes of the file are this rank's slice; false: they do not lie side by side, or a
// kernel cannot read them there.
static bool find_bytes(const tri_engine *e, const tri_engine_tensor *tensor, int64_t *offset,
                       int64_t *bytes) {
    const tri_parameter_info p =
        tri_parameter_stored(&e->plan->graph->parameters[tensor->parameter]);
    int64_t width = (int64_t)tri_dtype_bytes(tensor->kept), count = tri_shape_count(&p.shape);
    if (e->plan->trains || e->plan->sharing.shards > 1 || !e->device->backend->host_memory)
        return false;
    if (tensor->role == TRI_ROLE_COUNTER || !tri_layout_is_plain(&p.layout)) return false;
    if (tri_parameter_run(&p.slice, &p.shape) != count) return false;
    *bytes = count * width;
    *offset += p.slice.count ? p.slice.index * *bytes : 0;
    return *bytes >= LEAST_BYTES && *offset % ALIGNMENT == 0;
}

tri_status tri_engine_map(tri_engine *e, const tri_engine_tensor *tensor, int fd, int64_t offset,
                          bool *is_mapped) {
    int64_t bytes, page = sysconf(_SC_PAGESIZE);
    TRI_ASSERT(e->flights.count == 0);
    *is_mapped = find_bytes(e, tensor, &offset, &bytes);
    if (!*is_mapped) return TRI_OK;
    int64_t before = offset % page;
    size_t size = (size_t)(before + bytes);
    void *pages = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, offset - before);
    if (pages == MAP_FAILED) return tri_os_fail("map", tensor->name);
    madvise(pages, size, MADV_WILLNEED);
    engine_unmap(e, tensor->parameter);
    e->memory.mapped[tensor->parameter] = (engine_mapped){(char *)pages + before, pages, size};
    return TRI_OK;
}
