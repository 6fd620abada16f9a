// The types of a tensor's elements with their names and sizes, and shapes: how many elements they
// have, whether two are equal, and their text.
#include <trireme/tensor.h>

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} rows[TRI_DTYPE_COUNT] = {
#define X(dtype, name, bytes) [dtype] = {name, bytes},
    TRI_DTYPE_LIST(X)
#undef X
};

const char *tri_dtype_name(tri_dtype dtype) {
    return (unsigned)dtype < TRI_DTYPE_COUNT ? rows[dtype].name : "unknown";
}

size_t tri_dtype_bytes(tri_dtype dtype) {
    return (unsigned)dtype < TRI_DTYPE_COUNT ? rows[dtype].bytes : 0;
}

bool tri_dtype_from_name(const char *name, tri_dtype *out) {
    for (int i = 0; i < TRI_DTYPE_COUNT; i++) {
        if (strcmp(rows[i].name, name) != 0) continue;
        *out = (tri_dtype)i;
        return true;
    }
    return false;
}

int64_t tri_shape_count(const tri_shape *shape) {
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dims[i] < 0) return -1;
        if (__builtin_mul_overflow(count, shape->dims[i], &count)) return -1;
    }
    return count;
}

bool tri_shape_equal(const tri_shape *a, const tri_shape *b) {
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

char *tri_shape_text(const tri_shape *shape, char *out, size_t size) {
    size_t used = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < shape->rank && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, i ? ", %lld" : "%lld",
                                 (long long)shape->dims[i]);
    if (used < size) snprintf(out + used, size - used, "]");
    return out;
}
