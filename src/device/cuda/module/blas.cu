// Matrix products by cuBLASLt. The library is opened when the first product needs it; if it is not
// installed, the kernel of product.cu computes. An algorithm is chosen once for each shape, type
// and alignment, from those that the library's heuristic proposes: the first one or, with
// TRIREME_CUDA_CHOICES, the fastest of the first few. Which is the fastest is measured once, and
// the choice is kept (choices.h).
//
// cuBLASLt's matrices are column-major. Row-major c = a · b is column-major cᵀ = bᵀ · aᵀ in the
// same memory: so b becomes the first operand, a the second, and m and n change places. Our bias
// has one number for each column of c, and so for each row of cᵀ, as cuBLASLt expects.
#include "device/cuda/module/choices.h"
#include "device/cuda/module/vendor.h"

#if defined(__HIP__) // hipBLASLt is not called yet: our own kernel computes every product
bool vendor_has_products() { return false; }
bool vendor_product(cuda_stream *, const cuda_product *, bool *, tri_status *, char *) {
    return false;
}
#else

#include <cublasLt.h>
#include <map>
#include <mutex>
#include <new>
#include <stdint.h>
#include <string.h>
#include <tuple>

namespace {

// The functions of the library that are used here, each looked up by name.
#define BLAS_FUNCTIONS(X)                                                                          \
    X(Create)                                                                                      \
    X(MatmulDescCreate)                                                                            \
    X(MatmulDescSetAttribute)                                                                      \
    X(MatrixLayoutCreate)                                                                          \
    X(MatrixLayoutSetAttribute)                                                                    \
    X(MatmulPreferenceCreate)                                                                      \
    X(MatmulPreferenceSetAttribute)                                                                \
    X(MatmulPreferenceDestroy)                                                                     \
    X(MatmulAlgoGetHeuristic)                                                                      \
    X(GetVersion)                                                                                  \
    X(GetStatusName)                                                                               \
    X(Matmul)

struct library {
#define X(name) decltype(&cublasLt##name) name;
    BLAS_FUNCTIONS(X)
#undef X
};

// Opens the library and looks up its functions. NULL: it is not installed.
const library *find_library() {
    static library functions;
    void *handle = vendor_open("cublasLt");
    if (!handle) return nullptr;
#define X(name)                                                                                    \
    functions.name = (decltype(functions.name))vendor_symbol(handle, "cublasLt" #name);            \
    if (!functions.name) return nullptr;
    BLAS_FUNCTIONS(X)
#undef X
    return &functions;
}

const library *blas() {
    static const library *const found = find_library();
    return found;
}

// What the choice of an algorithm depends on: sizes, transpositions, types, TF32, ReLU,
// whether there is a bias or the gradient of one, the alignment of all operands, the size of the
// workspace, because an algorithm may need more than another product of the same shape has, and how
// the matrices lie. A product that is added to c runs by the same algorithm as one that overwrites
// c.
typedef std::tuple<int64_t, int64_t, int64_t, bool, bool, int, int, bool, bool, bool, bool,
                   uint32_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>
    product_key;

// A product that is ready to run. It lives as long as the process, because choosing its algorithm
// takes long.
struct prepared {
    bool supported = false; // the library can compute it
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes = 0;
};

// What the process keeps for each device: cuBLASLt's handle, and the products that are ready to
// run.
struct blas_state {
    std::mutex lock;
    cublasLtHandle_t handle = nullptr;
    std::map<product_key, prepared> products;
};

cudaDataType_t type_of(tri_dtype dtype) {
    return dtype == TRI_F32 ? CUDA_R_32F : dtype == TRI_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

uint32_t alignment_of(const cuda_product *p) {
    uintptr_t all = (uintptr_t)p->a | (uintptr_t)p->b | (uintptr_t)p->c | (uintptr_t)p->bias |
                    (uintptr_t)p->bias_grad.sums | 256;
    if (p->count > 1) // the matrices behind the first one too
        all |= (uintptr_t)(p->a_step | p->b_step) * (p->in_type == TRI_F32 ? 4 : 2) |
               (uintptr_t)p->c_step * (p->out_type == TRI_F32 ? 4 : 2);
    return (uint32_t)(all & -all); // the largest power of 2 that divides all of them, up to 256
}

product_key key_of(const cuda_product *p) {
    return product_key(p->m, p->n, p->k, p->transpose_a, p->transpose_b, (int)p->in_type,
                       (int)p->out_type, p->tf32, p->relu, p->bias != nullptr,
                       p->bias_grad.sums != nullptr, alignment_of(p), p->workspace_bytes, p->a_row,
                       p->b_row, p->c_row, p->count, p->a_step, p->b_step, p->c_step);
}

cublasLtEpilogue_t epilogue_of(const cuda_product *p) {
    if (p->bias_grad.sums) return CUBLASLT_EPILOGUE_BGRADB; // the second operand is dyᵀ
    if (!p->relu) return p->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    return p->bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
}

#define SET(attribute, value)                                                                      \
    (l->MatmulDescSetAttribute(x->operation, CUBLASLT_MATMUL_DESC_##attribute, &(value),           \
                               sizeof(value)) == CUBLAS_STATUS_SUCCESS)

// Returns the bias that the product adds or, if it computes the gradient of a bias instead, where
// this gradient is written.
const void *bias_of(const cuda_product *p) {
    return p->bias_grad.sums ? p->bias_grad.sums : p->bias;
}

// Describes the product to cuBLASLt, with the address of the bias: the heuristic, which is asked
// later, reads the alignment of the bias from this address.
bool describe_operation(const library *l, const cuda_product *p, prepared *x) {
    cublasOperation_t first = p->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = epilogue_of(p);
    cudaDataType_t bias_type = p->bias_grad.sums ? CUDA_R_32F : type_of(p->in_type);
    const void *bias = bias_of(p);
    cublasComputeType_t compute = p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    return l->MatmulDescCreate(&x->operation, compute, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
           SET(TRANSA, first) && SET(TRANSB, second) && SET(EPILOGUE, epilogue) &&
           (!bias || (SET(BIAS_DATA_TYPE, bias_type) && SET(BIAS_POINTER, bias)));
}

// Describes `count` matrices that lie `step` elements apart; `line`: the distance between columns.
bool describe_matrix(const library *l, tri_dtype dtype, int64_t rows, int64_t columns, int64_t line,
                     int64_t count, int64_t step, cublasLtMatrixLayout_t *out) {
    int32_t batch = (int32_t)count;
    if (l->MatrixLayoutCreate(out, type_of(dtype), (uint64_t)rows, (uint64_t)columns, line) !=
        CUBLAS_STATUS_SUCCESS)
        return false;
    return count == 1 ||
           (l->MatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                        sizeof batch) == CUBLAS_STATUS_SUCCESS &&
            l->MatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                        sizeof step) == CUBLAS_STATUS_SUCCESS);
}

// Describes the three matrices to cuBLASLt, with rows and columns as column-major code sees them.
bool describe_matrices(const library *l, const cuda_product *p, prepared *x) {
    return describe_matrix(l, p->in_type, p->transpose_b ? p->k : p->n,
                           p->transpose_b ? p->n : p->k, p->b_row, p->count, p->b_step, &x->a) &&
           describe_matrix(l, p->in_type, p->transpose_a ? p->m : p->k,
                           p->transpose_a ? p->k : p->m, p->a_row, p->count, p->a_step, &x->b) &&
           describe_matrix(l, p->out_type, p->n, p->m, p->c_row, p->count, p->c_step, &x->c);
}

// Asks the heuristic for algorithms, the best first. Returns how many there are.
int list_algorithms(const library *l, cublasLtHandle_t handle, const cuda_product *p,
                    const prepared *x, int most, cublasLtMatmulHeuristicResult_t *results) {
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasLtMatmulPreference_t wish;
    if (l->MatmulPreferenceCreate(&wish) != CUBLAS_STATUS_SUCCESS) return 0;
    uint64_t workspace_bytes = p->workspace_bytes;
    uint32_t alignment = alignment_of(p);
    bool good = l->MatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                &workspace_bytes,
                                                sizeof workspace_bytes) == CUBLAS_STATUS_SUCCESS;
    for (cublasLtMatmulPreferenceAttributes_t which : alignments)
        good = good && l->MatmulPreferenceSetAttribute(wish, which, &alignment, sizeof alignment) ==
                           CUBLAS_STATUS_SUCCESS;
    int found = 0, usable = 0;
    good = good && l->MatmulAlgoGetHeuristic(handle, x->operation, x->a, x->b, x->c, x->c, wish,
                                             most, results, &found) == CUBLAS_STATUS_SUCCESS;
    (void)l->MatmulPreferenceDestroy(wish);
    while (good && usable < found && results[usable].state == CUBLAS_STATUS_SUCCESS) usable++;
    return usable;
}

void set_algorithm(prepared *x, const cublasLtMatmulHeuristicResult_t &result) {
    x->algorithm = result.algo;
    x->workspace_bytes = result.workspaceSize;
}

blas_state *state_of(const library *l, int device) {
    enum { DEVICES = 64 };
    // Never freed, because a thread may still use it while the process ends.
    static blas_state *const states = new blas_state[DEVICES];
    if (device < 0 || device >= DEVICES) return nullptr;
    blas_state *state = &states[device];
    std::lock_guard<std::mutex> guard(state->lock);
    if (!state->handle && l->Create(&state->handle) != CUBLAS_STATUS_SUCCESS) return nullptr;
    return state;
}

cublasStatus_t multiply(const library *l, blas_state *state, prepared *x, cuda_stream *stream,
                        const cuda_product *p) {
    const float one = 1, beta = p->adds ? 1 : 0;
    const void *bias = bias_of(p);
    if (bias && !SET(BIAS_POINTER, bias)) return CUBLAS_STATUS_INVALID_VALUE;
    return l->Matmul(state->handle, x->operation, &one, p->b, x->a, p->a, x->b, &beta, p->c, x->c,
                     p->c, x->c, &x->algorithm, p->workspace, x->workspace_bytes,
                     (cudaStream_t)vendor_stream(stream));
}

// Makes the key (a line of text) under which the choice of an algorithm for this product lies in a
// file: all that the choice depends on.
std::string line_of(const library *l, cuda_stream *stream, const cuda_product *p) {
    char text[512];
    snprintf(text, sizeof text,
             "; cuBLASLt %zu; product 2: m %lld n %lld k %lld, transposed %d %d, types %d %d, tf32 "
             "%d, ReLU %d, bias %d %d, aligned %u, workspace %lld, rows %lld %lld %lld, count "
             "%lld, steps %lld %lld %lld",
             l->GetVersion(), (long long)p->m, (long long)p->n, (long long)p->k, p->transpose_a,
             p->transpose_b, (int)p->in_type, (int)p->out_type, p->tf32, p->relu,
             p->bias != nullptr, p->bias_grad.sums != nullptr, alignment_of(p),
             (long long)p->workspace_bytes, (long long)p->a_row, (long long)p->b_row,
             (long long)p->c_row, (long long)p->count, (long long)p->a_step, (long long)p->b_step,
             (long long)p->c_step);
    return vendor_device_name(stream) + text;
}

// Sets x to the fastest of the algorithms in `results`. Runs each of them on the product's own
// memory, into which the product is computed afterwards. False: nothing could be measured, and x
// has the first algorithm.
bool measure(const library *l, blas_state *state, prepared *x, cuda_stream *stream,
             const cuda_product *p, const cublasLtMatmulHeuristicResult_t *results, int count) {
    int best = choices_fastest(count, [=](int i) {
        set_algorithm(x, results[i]);
        return vendor_seconds(
            stream, [=] { return multiply(l, state, x, stream, p) == CUBLAS_STATUS_SUCCESS; });
    });
    set_algorithm(x, results[best < 0 ? 0 : best]);
    return best >= 0;
}

// What a file keeps of a chosen algorithm: the workspace that it needs, and cuBLASLt's description
// of it, which the library allows to be stored as it is.
choice choice_of(const prepared *x) {
    choice made(1 + sizeof x->algorithm / sizeof(uint64_t));
    made[0] = x->workspace_bytes;
    memcpy(&made[1], &x->algorithm, sizeof x->algorithm);
    return made;
}

bool take(const choice &kept, prepared *x) {
    if (kept.size() != choice_of(x).size()) return false;
    x->workspace_bytes = kept[0];
    memcpy(&x->algorithm, &kept[1], sizeof x->algorithm);
    x->supported = true;
    return true;
}

// Chooses the algorithm: the one that a file keeps, else the fastest or, if none is measured, the
// heuristic's first. This can fail only with TRIREME_CUDA_CHOICES, because only then files are read
// and written.
tri_status choose(const library *l, blas_state *state, prepared *x, cuda_stream *stream,
                  const cuda_product *p, char *why) {
    cublasLtMatmulHeuristicResult_t results[CHOICES_MEASURED];
    bool is_kept = choices_folder() != nullptr;
    std::string line = is_kept ? line_of(l, stream, p) : "";
    choice kept;
    if (is_kept && choices_read(line, &kept) && take(kept, x)) return TRI_OK;
    bool measures = is_kept && !p->adds; // each measured run would be added to c
    int count = list_algorithms(l, state->handle, p, x, measures ? CHOICES_MEASURED : 1, results);
    x->supported = count > 0;
    if (!x->supported) return TRI_OK;
    set_algorithm(x, results[0]);
    if (!measures || !measure(l, state, x, stream, p, results, count)) return TRI_OK;
    kept = choice_of(x);
    tri_status status = choices_write(line, &kept, why);
    if (status == TRI_OK && !take(kept, x)) status = choices_refuse(line, why);
    return status;
}

// Prepares a product, or finds it prepared. A product that the library cannot compute is remembered
// too, so that the library is asked only once.
tri_status prepare(const library *l, blas_state *state, cuda_stream *stream, const cuda_product *p,
                   prepared **out, char *why) {
    auto [at, is_new] = state->products.try_emplace(key_of(p));
    prepared *x = *out = &at->second;
    if (!is_new || !describe_operation(l, p, x) || !describe_matrices(l, p, x)) return TRI_OK;
    return choose(l, state, x, stream, p, why);
}

tri_status run(const library *l, blas_state *state, prepared *x, cuda_stream *stream,
               const cuda_product *p, char *why) {
    cublasStatus_t status = multiply(l, state, x, stream, p);
    if (status == CUBLAS_STATUS_SUCCESS) return TRI_OK;
    char said[160];
    snprintf(said, sizeof said, "cublasLtMatmul: %s", l->GetStatusName(status));
    return vendor_failed(stream, said, why);
}

} // namespace

bool vendor_has_products() { return blas() != nullptr; }

bool vendor_product(cuda_stream *stream, const cuda_product *params, bool *sums_bias,
                    tri_status *status, char *why) {
    const library *l = blas();
    bool takes = params->m > 0 && params->n > 0 && params->k > 0 && params->count <= INT32_MAX;
    blas_state *state = l && takes ? state_of(l, vendor_device(stream)) : nullptr;
    if (!state) return false;
    std::lock_guard<std::mutex> guard(state->lock);
    cuda_product p = *params;
    for (;;) {
        prepared *x;
        *status = prepare(l, state, stream, &p, &x, why);
        if (*status != TRI_OK) return true;
        *sums_bias = p.bias_grad.sums != nullptr;
        if (x->supported) {
            *status = run(l, state, x, stream, &p, why);
            return true;
        }
        // Not every type and alignment has an algorithm that sums the gradient of a bias: tries
        // again without that gradient.
        if (!*sums_bias) return false;
        p.bias_grad.sums = nullptr;
    }
}
#endif
