// Wraps oneDNN for the kernels: describes tensors, and creates, runs and releases primitives.
#include "base/hash.h"
#include "device/cpu/internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// By cpu_format: oneDNN's tag of the layout, and the same layout as a tri_layout. CPU_PLAIN has no
// row, because its tag depends on the number of axes.
static const struct {
    dnnl_format_tag_t tag;
    tri_layout layout;
} formats[CPU_FORMAT_COUNT] = {
    [CPU_NCHW16C] = {dnnl_nChw16c, {.block_count = 1, .block_axis = {1}, .block_size = {16}}},
    [CPU_OIHW16I16O] = {dnnl_OIhw16i16o,
                        {.block_count = 2, .block_axis = {1, 0}, .block_size = {16, 16}}},
    [CPU_OIHW16O16I] = {dnnl_OIhw16o16i,
                        {.block_count = 2, .block_axis = {0, 1}, .block_size = {16, 16}}},
    [CPU_OHWI16O] =
        {dnnl_Ohwi16o,
         {.block_count = 1, .block_axis = {0}, .block_size = {16}, .order = {0, 2, 3, 1}}},
    [CPU_OIHW8I16O2I] = {dnnl_OIhw8i16o2i,
                         {.block_count = 3, .block_axis = {1, 0, 1}, .block_size = {8, 16, 2}}},
    [CPU_OIHW8O16I2O] = {dnnl_OIhw8o16i2o,
                         {.block_count = 3, .block_axis = {0, 1, 0}, .block_size = {8, 16, 2}}},
    [CPU_OHWI16O2I] =
        {dnnl_OhwI16o2i,
         {.block_count = 2, .block_axis = {0, 1}, .block_size = {16, 2}, .order = {0, 2, 3, 1}}},
    [CPU_OI16I64O] = {dnnl_AB16b64a,
                      {.block_count = 2, .block_axis = {1, 0}, .block_size = {16, 64}}},
};

tri_layout cpu_format_layout(cpu_format format) { return formats[format].layout; }

bool cpu_layout_is(const tri_layout *layout, cpu_format format) {
    tri_layout wanted = cpu_format_layout(format);
    return tri_layout_equal(layout, &wanted);
}

tri_status cpu_format_md(cpu_format format, tri_dtype dtype, int rank, const int64_t *dims,
                         onednn_md *out) {
    static const dnnl_format_tag_t plain[] = {0,         dnnl_a,     dnnl_ab,    dnnl_abc,
                                              dnnl_abcd, dnnl_abcde, dnnl_abcdef};
    dnnl_format_tag_t tag = format == CPU_PLAIN ? plain[rank]
                            : format == CPU_ANY ? dnnl_format_tag_any
                                                : formats[format].tag;
    dnnl_data_type_t type = dtype == TRI_BF16 ? dnnl_bf16 : dnnl_f32;
    CPU_DNNL(onednn_md_create(out, rank, dims, type, tag));
    return TRI_OK;
}

static dnnl_engine_t shared_engine;
static dnnl_status_t shared_engine_status;

static void make_engine(void) {
    shared_engine_status = dnnl_engine_create(&shared_engine, dnnl_cpu, 0);
}

tri_status cpu_engine(dnnl_engine_t *out) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_engine);
    *out = shared_engine;
    if (shared_engine_status == dnnl_success) return TRI_OK;
    return TRI_FAIL(TRI_INTERNAL, "oneDNN does not start: status %d", shared_engine_status);
}

tri_status cpu_primitive_make(const cpu_device *device, dnnl_primitive_desc_t pd, const int *args,
                              int count, cpu_primitive *out) {
    dnnl_engine_t engine;
    *out = (cpu_primitive){.stream = device->stream, .count = count};
    TRI_TRY(cpu_engine(&engine)); // never fails, since the device is open
    dnnl_status_t status = dnnl_primitive_create(&out->primitive, pd);
    for (int i = 0; i <= count && status == dnnl_success; i++) {
        onednn_const_md md = i < count
                                 ? dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, args[i])
                                 : dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
        if (i == count) out->scratchpad_bytes = dnnl_memory_desc_get_size(md);
        out->args[i].arg = i < count ? args[i] : DNNL_ARG_SCRATCHPAD;
        status = dnnl_memory_create(&out->args[i].memory, md, engine, DNNL_MEMORY_NONE);
    }
    dnnl_primitive_desc_destroy(pd);
    if (status == dnnl_success) return TRI_OK;
    cpu_primitive_release(out);
    return TRI_FAIL(TRI_INTERNAL, "oneDNN cannot make a primitive: status %d", status);
}

tri_status cpu_primitive_run(cpu_primitive *primitive, void *const *data, void *scratchpad) {
    for (int i = 0; i <= primitive->count; i++) {
        void *memory = i < primitive->count ? data[i] : scratchpad;
        if (memory == primitive->data[i])
            continue; // the usual case: tensors lie where they lay in the last run
        CPU_DNNL(dnnl_memory_set_data_handle(primitive->args[i].memory, memory));
        primitive->data[i] = memory;
    }
    CPU_DNNL(dnnl_primitive_execute(primitive->primitive, primitive->stream, primitive->count + 1,
                                    primitive->args));
    return TRI_OK;
}

void cpu_primitive_release(cpu_primitive *primitive) {
    for (int i = 0; i <= CPU_MAX_ARGS; i++)
        if (primitive->args[i].memory) dnnl_memory_destroy(primitive->args[i].memory);
    if (primitive->primitive) dnnl_primitive_destroy(primitive->primitive);
    *primitive = (cpu_primitive){0};
}

tri_status cpu_primitive_attr(dnnl_primitive_attr_t *out) {
    dnnl_primitive_attr_t attr;
    CPU_DNNL(dnnl_primitive_attr_create(&attr));
    dnnl_status_t status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    *out = attr;
    if (status == dnnl_success) return TRI_OK;
    dnnl_primitive_attr_destroy(attr);
    return TRI_FAIL(TRI_INTERNAL, "oneDNN refuses an attribute: status %d", status);
}

cpu_primitive_facts cpu_primitive_facts_of(const_dnnl_primitive_desc_t pd) {
    cpu_primitive_facts facts = {.exists = true};
    const char *name = "";
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success)
        facts.fast = !strstr(name, "ref");
    facts.scratchpad_bytes =
        dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
    return facts;
}

enum {
    KEY_BYTES = 256,
    // Number of entries of the cache, each with the facts of one primitive; a model has some
    // hundreds of distinct convolutions and reorders.
    FACTS_ENTRIES = 1024,
};

typedef struct facts_entry {
    size_t bytes; // size of the key; 0: this entry is empty
    unsigned char key[KEY_BYTES];
    cpu_primitive_facts facts;
} facts_entry;

static facts_entry facts_cache[FACTS_ENTRIES];
static pthread_mutex_t facts_cache_lock = PTHREAD_MUTEX_INITIALIZER;

static facts_entry *entry_of(const void *key, size_t bytes) {
    TRI_ASSERT(bytes > 0 && bytes <= KEY_BYTES);
    return &facts_cache[tri_hash_bytes(TRI_HASH_OF_NOTHING, key, bytes) % FACTS_ENTRIES];
}

bool cpu_facts_find(const void *key, size_t bytes, cpu_primitive_facts *out) {
    pthread_mutex_lock(&facts_cache_lock);
    const facts_entry *entry = entry_of(key, bytes);
    bool found = entry->bytes == bytes && !memcmp(entry->key, key, bytes);
    if (found) *out = entry->facts;
    pthread_mutex_unlock(&facts_cache_lock);
    return found;
}

void cpu_facts_keep(const void *key, size_t bytes, cpu_primitive_facts facts) {
    pthread_mutex_lock(&facts_cache_lock);
    // If the entry has the facts of another key with the same hash, they are overwritten: this only
    // costs the time to ask oneDNN for them again.
    facts_entry *entry = entry_of(key, bytes);
    entry->bytes = bytes;
    memcpy(entry->key, key, bytes);
    entry->facts = facts;
    pthread_mutex_unlock(&facts_cache_lock);
}
