// A test double of cuBLASLt: the functions that module/blas.cu calls, for memory of the host. It
// checks what the library would check (sizes, leading dimensions, types) and computes what the
// descriptions say, so that a wrong description gives wrong numbers. It refuses products whose
// operands are aligned to less than 16 bytes, so that tests run our own kernel as well.
//
// It has several algorithms. Each adds up in another order, so their results are rounded
// differently. The function that proposes algorithms (cuBLASLt's heuristic) lists algorithm 0
// first. With the environment variable EMULATED_BLAS_FASTEST=N, algorithm N takes the least time
// when it is measured.
#include "device/cuda/module/vendor.h"

#include "emulated_gpu/emulation.h"
#include "emulated_gpu/libraries.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cublasLt.h>

namespace {

enum { ALIGNMENT = 16, WORKSPACE_BYTES = 1024, ALGORITHMS = 3 };

// Marks the algorithms that `choose` has proposed (in algo.data[7]); `multiply` refuses all others.
const uint64_t MARK = 0x616c676f;

struct operation {
    cublasOperation_t first = CUBLAS_OP_N, second = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    cudaDataType_t bias_type = CUDA_R_32F;
    const void *bias = nullptr;
    bool tf32 = false;
};

struct matrix {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t leading;
    int32_t count; // how many such matrices there are, and how many elements they lie apart
    int64_t step;
};

struct preference {
    uint64_t workspace_bytes = 0;
    uint32_t alignment = 256;
};

template <typename T, typename H> T *of(H handle) { return (T *)handle; }

cublasStatus_t create(cublasLtHandle_t *out) {
    *out = (cublasLtHandle_t)malloc(1); // never freed, as module/blas.cu keeps its handle
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t create_operation(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                cudaDataType_t scale) {
    bool tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    if ((!tf32 && compute != CUBLAS_COMPUTE_32F) || scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    operation *made = new operation;
    made->tf32 = tf32;
    *out = (cublasLtMatmulDesc_t)made;
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T> cublasStatus_t take(T *field, const void *value, size_t size_bytes) {
    if (size_bytes != sizeof *field) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, value, size_bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t set_operation(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t which,
                             const void *value, size_t size_bytes) {
    operation *x = of<operation>(handle);
    switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return take(&x->first, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return take(&x->second, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return take(&x->epilogue, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return take(&x->bias_type, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return take(&x->bias, value, size_bytes);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t create_matrix(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows,
                             uint64_t columns, int64_t leading) {
    if (leading < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
    *out = (cublasLtMatrixLayout_t) new matrix{type, rows, columns, leading, 1, 0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t set_matrix(cublasLtMatrixLayout_t handle, cublasLtMatrixLayoutAttribute_t which,
                          const void *value, size_t size_bytes) {
    matrix *x = of<matrix>(handle);
    if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return take(&x->count, value, size_bytes);
    if (which == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
        return take(&x->step, value, size_bytes);
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t create_preference(cublasLtMatmulPreference_t *out) {
    *out = (cublasLtMatmulPreference_t) new preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t destroy_preference(cublasLtMatmulPreference_t handle) {
    delete of<preference>(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t set_preference(cublasLtMatmulPreference_t handle,
                              cublasLtMatmulPreferenceAttributes_t which, const void *value,
                              size_t size_bytes) {
    preference *x = of<preference>(handle);
    if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return take(&x->workspace_bytes, value, size_bytes);
    return take(&x->alignment, value, size_bytes);
}

uint64_t rows_of(const matrix *x, cublasOperation_t op) {
    return op == CUBLAS_OP_N ? x->rows : x->columns;
}
uint64_t columns_of(const matrix *x, cublasOperation_t op) {
    return op == CUBLAS_OP_N ? x->columns : x->rows;
}

bool fits(const operation *x, const matrix *a, const matrix *b, const matrix *c) {
    bool wide = c->type == CUDA_R_32F && a->type != CUDA_R_32F;
    bool has_bias =
        x->epilogue == CUBLASLT_EPILOGUE_BIAS || x->epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    // The gradient of a bias has the type of the output.
    if (x->epilogue == CUBLASLT_EPILOGUE_BGRADB && x->bias_type != c->type) return false;
    return rows_of(a, x->first) == c->rows && columns_of(b, x->second) == c->columns &&
           columns_of(a, x->first) == rows_of(b, x->second) && a->type == b->type &&
           a->count == c->count && b->count == c->count &&
           (c->count == 1 || c->step >= (int64_t)c->rows) && (a->type == c->type || wide) &&
           !(wide && has_bias);
}

// Returns the alignment of the bias in bytes, at most 256, as the heuristic takes it from the
// address. No bias (NULL) counts as aligned.
uint64_t alignment_of(const void *bias) {
    uintptr_t bits = (uintptr_t)bias | 256;
    return bits & -bits;
}

cublasStatus_t choose(cublasLtHandle_t, cublasLtMatmulDesc_t operation_handle,
                      cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                      cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t wish, int wanted,
                      cublasLtMatmulHeuristicResult_t *results, int *found) {
    const preference *p = of<preference>(wish);
    *found = 0;
    if (wanted < 1 || c != d || p->alignment < ALIGNMENT || p->workspace_bytes < WORKSPACE_BYTES ||
        !fits(of<operation>(operation_handle), of<matrix>(a), of<matrix>(b), of<matrix>(c)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *found = wanted < ALGORITHMS ? wanted : ALGORITHMS;
    for (int i = 0; i < *found; i++) {
        memset(&results[i], 0, sizeof results[i]);
        results[i].state = CUBLAS_STATUS_SUCCESS;
        results[i].workspaceSize = WORKSPACE_BYTES;
        results[i].algo.data[0] = (uint64_t)i;
        results[i].algo.data[6] = alignment_of(of<operation>(operation_handle)->bias);
        results[i].algo.data[7] = MARK;
    }
    return CUBLAS_STATUS_SUCCESS;
}

float read(cudaDataType_t type, const void *data, int64_t i) {
    uint32_t bits;
    float value;
    if (type == CUDA_R_32F) return ((const float *)data)[i];
    if (type == CUDA_R_16F) return (float)((const _Float16 *)data)[i];
    bits = (uint32_t)((const uint16_t *)data)[i] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void write(cudaDataType_t type, void *data, int64_t i, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (type == CUDA_R_32F) ((float *)data)[i] = value;
    if (type == CUDA_R_16F) ((_Float16 *)data)[i] = (_Float16)value;
    if (type == CUDA_R_16BF)
        ((uint16_t *)data)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float at(const matrix *x, cublasOperation_t op, const void *data, uint64_t row, uint64_t column) {
    int64_t i = op == CUBLAS_OP_N ? (int64_t)(column * x->leading + row)
                                  : (int64_t)(row * x->leading + column);
    return read(x->type, data, i);
}

float rounded(const operation *x, float value) { return x->tf32 ? emulated_tf32(value) : value; }

// Computes a product as its descriptions say. Algorithm i begins its sums over the axis k with
// element i, so that different algorithms give results with different bits.
void compute(uint64_t algorithm, const operation *x, const matrix *a, const void *a_data,
             const matrix *b, const void *b_data, float beta, const matrix *c, void *c_data) {
    bool has_bias =
        x->epilogue == CUBLASLT_EPILOGUE_BIAS || x->epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    bool relu = x->epilogue == CUBLASLT_EPILOGUE_RELU || x->epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    uint64_t depth = columns_of(a, x->first);
    for (uint64_t column = 0; column < c->columns; column++) {
        for (uint64_t row = 0; row < c->rows; row++) {
            float sum = 0;
            for (uint64_t i = 0; i < depth; i++) {
                uint64_t k = (i + algorithm) % depth;
                sum += rounded(x, at(a, x->first, a_data, row, k)) *
                       rounded(x, at(b, x->second, b_data, k, column));
            }
            if (has_bias) sum += read(x->bias_type, x->bias, (int64_t)row);
            int64_t i = (int64_t)(column * c->leading + row);
            if (beta != 0) sum += beta * read(c->type, c_data, i);
            if (relu && sum <= 0) sum = 0;
            write(c->type, c_data, i, sum);
        }
    }
}

// The matrix number i of those that the description counts.
void *part(const matrix *x, const void *data, int32_t i) {
    return (char *)(uintptr_t)data + i * x->step * (x->type == CUDA_R_32F ? 4 : 2);
}

// What the epilogue BGRADB does: writes the sums of the second operand over k, one for each column
// of the result, to x->bias.
void sum_columns(uint64_t algorithm, const operation *x, const matrix *b, const void *b_data) {
    uint64_t depth = rows_of(b, x->second);
    for (uint64_t column = 0; column < columns_of(b, x->second); column++) {
        float sum = 0;
        for (uint64_t i = 0; i < depth; i++)
            sum += at(b, x->second, b_data, (i + algorithm) % depth, column);
        write(x->bias_type, (void *)(uintptr_t)x->bias, (int64_t)column, sum);
    }
}

cublasStatus_t multiply(cublasLtHandle_t, cublasLtMatmulDesc_t operation_handle, const void *alpha,
                        const void *a_data, cublasLtMatrixLayout_t a, const void *b_data,
                        cublasLtMatrixLayout_t b, const void *beta, const void *c_data,
                        cublasLtMatrixLayout_t c, void *d_data, cublasLtMatrixLayout_t d,
                        const cublasLtMatmulAlgo_t *chosen, void *workspace, size_t workspace_bytes,
                        cudaStream_t stream) {
    float factor = *(const float *)beta;
    if (*(const float *)alpha != 1 || (factor != 0 && factor != 1) || c_data != d_data || c != d ||
        !workspace || workspace_bytes < WORKSPACE_BYTES || chosen->data[7] != MARK)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (alignment_of(of<operation>(operation_handle)->bias) < chosen->data[6])
        return CUBLAS_STATUS_INVALID_VALUE;
    if (emulated_failed((cuda_stream *)stream)) return CUBLAS_STATUS_EXECUTION_FAILED;
    operation x = *of<operation>(operation_handle); // a copy: the next product sets another bias
    uint64_t algorithm = chosen->data[0];
    emulated_seconds += emulated_seconds_of("EMULATED_BLAS_FASTEST", algorithm);
    const matrix *first = of<matrix>(a), *second = of<matrix>(b), *result = of<matrix>(c);
    emulated_load({'b', (int64_t)result->rows, (int64_t)result->columns,
                   (int64_t)columns_of(first, x.first)});
    emulated_push((cuda_stream *)stream, [=] {
        memset(workspace, 0xff, WORKSPACE_BYTES);
        if (x.epilogue == CUBLASLT_EPILOGUE_BGRADB) sum_columns(algorithm, &x, second, b_data);
        for (int32_t i = 0; i < result->count; i++)
            compute(algorithm, &x, first, part(first, a_data, i), second, part(second, b_data, i),
                    factor, result, part(result, d_data, i));
    });
    return CUBLAS_STATUS_SUCCESS;
}

size_t version() { return 1; }

const char *name_of(cublasStatus_t status) {
    return status == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED" : "another";
}

const emulated_function functions[] = {{"GetStatusName", (void *)name_of},
                                       {"GetVersion", (void *)version},
                                       {"Create", (void *)create},
                                       {"MatmulDescCreate", (void *)create_operation},
                                       {"MatmulDescSetAttribute", (void *)set_operation},
                                       {"MatrixLayoutCreate", (void *)create_matrix},
                                       {"MatrixLayoutSetAttribute", (void *)set_matrix},
                                       {"MatmulPreferenceCreate", (void *)create_preference},
                                       {"MatmulPreferenceSetAttribute", (void *)set_preference},
                                       {"MatmulPreferenceDestroy", (void *)destroy_preference},
                                       {"MatmulAlgoGetHeuristic", (void *)choose},
                                       {"Matmul", (void *)multiply}};

} // namespace

void *emulated_blas(const char *name) { return emulated_find(functions, "cublasLt", name); }
