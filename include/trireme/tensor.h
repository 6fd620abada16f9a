// Element types and shapes of tensors.
#ifndef TRIREME_TENSOR_H
#define TRIREME_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <trireme/api.h>

TRI_API_BEGIN

enum { TRI_MAX_RANK = 6 };

// The label of a sample (or token) that loss and metrics leave out: PyTorch's default ignore_index.
enum { TRI_IGNORED_LABEL = -100 };

// X(element type, its name in safetensors files, bytes per element)
#define TRI_DTYPE_LIST(X)                                                                          \
    X(TRI_F32, "F32", 4)                                                                           \
    X(TRI_F64, "F64", 8)                                                                           \
    X(TRI_F16, "F16", 2)                                                                           \
    X(TRI_BF16, "BF16", 2)                                                                         \
    X(TRI_I64, "I64", 8)                                                                           \
    X(TRI_I32, "I32", 4)                                                                           \
    X(TRI_I16, "I16", 2)                                                                           \
    X(TRI_I8, "I8", 1)                                                                             \
    X(TRI_U64, "U64", 8)                                                                           \
    X(TRI_U32, "U32", 4)                                                                           \
    X(TRI_U16, "U16", 2)                                                                           \
    X(TRI_U8, "U8", 1)                                                                             \
    X(TRI_BOOL, "BOOL", 1)                                                                         \
    X(TRI_F8_E4M3, "F8_E4M3", 1)                                                                   \
    X(TRI_F8_E5M2, "F8_E5M2", 1)

typedef enum tri_dtype {
#define X(dtype, name, bytes) dtype,
    TRI_DTYPE_LIST(X)
#undef X
        TRI_DTYPE_COUNT
} tri_dtype;

// The sizes of a tensor's axes, outermost first. Rank 0 is a scalar (one element); a size may be 0.
typedef struct tri_shape {
    int rank;
    int64_t dims[TRI_MAX_RANK];
} tri_shape;

// The safetensors name of a dtype, "F32"; never NULL.
const char *tri_dtype_name(tri_dtype dtype);
// Bytes of one element of a dtype.
size_t tri_dtype_bytes(tri_dtype dtype);
// Finds the dtype of a safetensors name. False: there is no such dtype.
bool tri_dtype_from_name(const char *name, tri_dtype *out);

// The number of elements; -1 if it does not fit into an int64_t or a size is negative, so that
// callers can refuse shapes that a file gives.
int64_t tri_shape_count(const tri_shape *shape);
// Whether rank and all sizes are the same.
bool tri_shape_equal(const tri_shape *a, const tri_shape *b);
// Writes the shape as "[64, 1, 28, 28]" into `out` (cut when too long) and returns `out`.
char *tri_shape_text(const tri_shape *shape, char *out, size_t size);

TRI_API_END

// The shape of the sizes given: tri_shape_of(3, 4) is that of a matrix of 3 rows and 4 columns.
#ifdef __cplusplus
template <typename... tri_size> inline tri_shape tri_shape_of(tri_size... sizes) {
    return tri_shape{(int)sizeof...(sizes), {(int64_t)sizes...}};
}
#else
#define tri_shape_of(...)                                                                          \
    ((tri_shape){.rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                \
                 .dims = {__VA_ARGS__}})
#endif

#endif
