// Attention of half types (F16, BF16), and its gradient, by cuDNN (dnn.h). The library has no
// operation "attention": it is described as products and operations on single elements, in the
// order in which cuDNN recognises them ("Fused Flash Attention" in cuDNN's documentation of its
// graph API). cuDNN then computes all of them tile by tile, and never stores the scores.
//
// q, k, v and y lie in memory as [samples, length, heads, width]. cuDNN's axes are samples, heads,
// length and width, so all shapes below have this order.
//
// In the gradient, several thread blocks add to the gradient of q, in the order in which they
// happen to run. So its last bits may differ from run to run, which the caller has to allow.
#include "device/cuda/module/dnn.h"

#if defined(DNN_IS_THERE)

#include <math.h>
#include <string.h>

namespace {

typedef dnn_descriptor descriptor;

// Versions of cuDNN from 9.6 on set the sums of the gradient of q to zero themselves.
enum { LEAST_VERSION = 90600 };

enum {
    Q_ID = 1,
    K_ID,
    V_ID,
    Y_ID,
    LOG_SUM_EXP_ID,
    SCALE_ID,
    MINUS_INFINITY_ID,
    ONE_ID,
    DY_ID,
    DQ_ID,
    DK_ID,
    DV_ID,
    DOTS_ID,
    DQ_SUMS_ID,
    FIRST_VIRTUAL_ID // tensors that only pass between operations are numbered from here on
};

// Describes the tensors of a graph, and collects its operations in order. Functions that compute
// something append one or more operations, and return the tensor that the last of them writes.
struct builder {
    const cuda_attention *p;
    std::vector<descriptor> operations = {};
    int64_t next_id = FIRST_VIRTUAL_ID;

    // A tensor [samples, heads, rows, columns] that only passes between operations.
    descriptor virtual_tensor(cudnnDataType_t type, int64_t heads, int64_t rows, int64_t columns) {
        int64_t dims[] = {p->samples, heads, rows, columns};
        int64_t strides[] = {heads * rows * columns, rows * columns, columns, 1};
        return dnn_tensor(next_id++, type, DNN_VIRTUAL, dims, strides);
    }
    descriptor scores(cudnnDataType_t type = CUDNN_DATA_FLOAT) {
        return virtual_tensor(type, p->heads, p->queries, p->keys);
    }
    descriptor number(int64_t id) {
        const int64_t ones[] = {1, 1, 1, 1};
        return dnn_tensor(id, CUDNN_DATA_FLOAT, DNN_BY_VALUE, ones, ones);
    }
    // A tensor of `heads` heads with the memory order of q, k, v and y. `is_transposed`: its rows
    // are seen as columns.
    descriptor rows(int64_t id, int64_t heads, int64_t length, bool is_transposed = false,
                    dnn_where where = DNN_IN_MEMORY) {
        int64_t w = p->width;
        int64_t dims[] = {p->samples, heads, length, w};
        int64_t strides[] = {length * heads * w, w, heads * w, 1};
        if (is_transposed) {
            std::swap(dims[2], dims[3]);
            std::swap(strides[2], strides[3]);
        }
        return dnn_tensor(id, dnn_type(p->type), where, dims, strides);
    }
    // An F32 tensor [samples, heads, queries, columns] in memory.
    descriptor sums(int64_t id, int64_t columns) {
        int64_t dims[] = {p->samples, p->heads, p->queries, columns};
        int64_t strides[] = {p->heads * p->queries * columns, p->queries * columns, columns, 1};
        return dnn_tensor(id, CUDNN_DATA_FLOAT, DNN_IN_MEMORY, dims, strides);
    }

    descriptor pointwise(dnn_pointwise_attr attr, const descriptor &x, const descriptor *b,
                         descriptor y, const descriptor *mask = nullptr) {
        operations.push_back(dnn_pointwise(attr, x, b, mask, y));
        return y;
    }
    descriptor pointwise(cudnnPointwiseMode_t mode, const descriptor &x, const descriptor *b,
                         descriptor y) {
        return pointwise(dnn_pointwise_attr{mode}, x, b, std::move(y));
    }
    // c = a · b for each head. If a has more heads than b, neighbouring heads of a share one of b.
    descriptor product(const descriptor &a, const descriptor &b, descriptor c) {
        descriptor what(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
        what.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
        what.finalize();
        descriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
        operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, what);
        operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
        operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
        operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
        operation.finalize();
        operations.push_back(std::move(operation));
        return c;
    }
    // Reduces the axes of which y has fewer elements than x.
    descriptor reduce(cudnnReduceTensorOp_t how, const descriptor &x, descriptor y) {
        descriptor what(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
        what.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
        what.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
        what.finalize();
        descriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
        operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, what);
        operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
        operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
        operation.finalize();
        operations.push_back(std::move(operation));
        return y;
    }
    // Sees the elements of x with the axes and strides of y.
    descriptor reshape(const descriptor &x, descriptor y) {
        descriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
        operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
        operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
        operation.finalize();
        operations.push_back(std::move(operation));
        return y;
    }
    // Sees scores [queries, keys] as [keys, queries].
    descriptor transpose(const descriptor &x) {
        int64_t area = p->queries * p->keys;
        int64_t dims[] = {p->samples, p->heads, p->keys, p->queries};
        int64_t strides[] = {p->heads * area, area, 1, p->keys};
        return reshape(x, dnn_tensor(next_id++, dnn_type(p->type), DNN_VIRTUAL, dims, strides));
    }

    // scale · q · kᵀ
    descriptor scaled_scores(const descriptor &k_transposed) {
        descriptor scale = number(SCALE_ID);
        descriptor all = product(rows(Q_ID, p->heads, p->queries), k_transposed, scores());
        return pointwise(CUDNN_POINTWISE_MUL, all, &scale, scores());
    }
    // If attention is causal: x, where the scores of keys after the query are minus infinity.
    descriptor masked(descriptor x) {
        if (!p->causal) return x;
        descriptor nothing = number(MINUS_INFINITY_ID);
        descriptor query =
            pointwise({CUDNN_POINTWISE_GEN_INDEX, 2}, x, nullptr, scores(CUDNN_DATA_INT32));
        descriptor key =
            pointwise({CUDNN_POINTWISE_GEN_INDEX, 3}, x, nullptr, scores(CUDNN_DATA_INT32));
        descriptor sees =
            pointwise(CUDNN_POINTWISE_CMP_GE, query, &key, scores(CUDNN_DATA_BOOLEAN));
        return pointwise(dnn_pointwise_attr{CUDNN_POINTWISE_BINARY_SELECT}, x, &nothing, scores(),
                         &sees);
    }
    // Computes the gradient `id` of k or v: a · b for each head of q, added up over those heads of
    // q that share a head of k and v.
    void sum_heads(const descriptor &a, const descriptor &b, int64_t id) {
        descriptor out = rows(id, p->kv_heads, p->keys);
        if (p->heads == p->kv_heads) {
            product(a, b, std::move(out));
            return;
        }
        descriptor each =
            product(a, b, virtual_tensor(dnn_type(p->type), p->heads, p->keys, p->width));
        reduce(CUDNN_REDUCE_TENSOR_ADD, each, std::move(out));
    }
};

descriptor forward_graph(cudnnHandle_t handle, const cuda_attention *p) {
    builder b = {p};
    auto row = [&] { return b.virtual_tensor(CUDNN_DATA_FLOAT, p->heads, p->queries, 1); };
    descriptor x = b.masked(b.scaled_scores(b.rows(K_ID, p->kv_heads, p->keys, true)));
    descriptor most = b.reduce(CUDNN_REDUCE_TENSOR_MAX, x, row());
    descriptor less = b.pointwise(CUDNN_POINTWISE_SUB, x, &most, b.scores());
    descriptor weights = b.pointwise(CUDNN_POINTWISE_EXP, less, nullptr, b.scores());
    descriptor sum = b.reduce(CUDNN_REDUCE_TENSOR_ADD, weights, row());
    descriptor logarithm = b.pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, row());
    b.pointwise(CUDNN_POINTWISE_ADD, most, &logarithm, b.sums(LOG_SUM_EXP_ID, 1));
    descriptor probabilities =
        b.pointwise(CUDNN_POINTWISE_DIV, weights, &sum, b.scores(dnn_type(p->type)));
    b.product(probabilities, b.rows(V_ID, p->kv_heads, p->keys),
              b.rows(Y_ID, p->heads, p->queries));
    return dnn_graph(handle, b.operations);
}

descriptor gradient_graph(cudnnHandle_t handle, const cuda_attention *p) {
    builder b = {p};
    auto row = [&] { return b.virtual_tensor(CUDNN_DATA_FLOAT, p->heads, p->queries, 1); };
    descriptor scale = b.number(SCALE_ID), one = b.number(ONE_ID);
    descriptor q = b.rows(Q_ID, p->heads, p->queries), dy = b.rows(DY_ID, p->heads, p->queries);
    descriptor y = b.rows(Y_ID, p->heads, p->queries);
    descriptor k_transposed = b.rows(K_ID, p->kv_heads, p->keys, true);
    descriptor log_sum_exp = b.sums(LOG_SUM_EXP_ID, 1);

    // dots = the scalar products of the rows of dy and y
    descriptor products =
        b.pointwise(CUDNN_POINTWISE_MUL, dy, &y,
                    b.virtual_tensor(CUDNN_DATA_FLOAT, p->heads, p->queries, p->width));
    descriptor added = b.reduce(CUDNN_REDUCE_TENSOR_ADD, products, row());
    descriptor dots = b.pointwise(CUDNN_POINTWISE_MUL, added, &one, b.sums(DOTS_ID, 1));

    // dv = probabilitiesᵀ · dy
    descriptor less =
        b.pointwise(CUDNN_POINTWISE_SUB, b.scaled_scores(k_transposed), &log_sum_exp, b.scores());
    descriptor probabilities =
        b.pointwise(CUDNN_POINTWISE_EXP, b.masked(std::move(less)), nullptr, b.scores());
    b.sum_heads(b.transpose(probabilities), dy, DV_ID);

    // ds = scale · probabilities · (dy · vᵀ - dots)
    descriptor dp = b.product(dy, b.rows(V_ID, p->kv_heads, p->keys, true), b.scores());
    descriptor without_mean = b.pointwise(CUDNN_POINTWISE_SUB, dp, &dots, b.scores());
    descriptor weighted =
        b.pointwise(CUDNN_POINTWISE_MUL, without_mean, &probabilities, b.scores());
    descriptor ds = b.pointwise(CUDNN_POINTWISE_MUL, weighted, &scale, b.scores());

    // dk = dsᵀ · q, and dq = ds · k
    b.sum_heads(b.transpose(ds), q, DK_ID);
    descriptor k =
        b.reshape(k_transposed, b.rows(b.next_id++, p->kv_heads, p->keys, false, DNN_VIRTUAL));
    descriptor dq_sums = b.product(ds, k, b.sums(DQ_SUMS_ID, p->width));
    b.pointwise(CUDNN_POINTWISE_IDENTITY, dq_sums, nullptr, b.rows(DQ_ID, p->heads, p->queries));
    return dnn_graph(handle, b.operations);
}

// The numbers on which the choice of a plan depends.
std::vector<int64_t> key_of(const cuda_attention *p) {
    return {p->type,  p->causal,   p->samples, p->queries,        p->keys,
            p->heads, p->kv_heads, p->width,   p->workspace_bytes};
}

bool is_aligned(std::initializer_list<const void *> addresses) {
    for (const void *address : addresses)
        if ((uintptr_t)address % DNN_ALIGNMENT) return false;
    return true;
}

// Adds the operands that forward and gradient share.
void add_operands(dnn_request *request, const cuda_attention *p) {
    static const float minus_infinity = -INFINITY;
    auto add = [=](int64_t id, const void *address) {
        request->ids.push_back(id);
        request->addresses.push_back(address);
    };
    add(Q_ID, p->q);
    add(K_ID, p->k);
    add(V_ID, p->v);
    add(Y_ID, p->y);
    add(LOG_SUM_EXP_ID, p->log_sum_exp);
    add(SCALE_ID, &p->scale);
    if (p->causal) add(MINUS_INFINITY_ID, &minus_infinity);
}

} // namespace

bool vendor_attention(cuda_stream *stream, const cuda_attention *p, tri_status *status, char *why) {
    if (!p->workspace_bytes || !dnn() || dnn()->GetVersion() < LEAST_VERSION ||
        !is_aligned({p->q, p->k, p->v, p->y, p->log_sum_exp}))
        return false;
    bool with_epilogue;
    dnn_request request = {};
    request.kind = "attention 1";
    request.key = key_of(p);
    request.in_type = p->type;
    request.graph = [p](cudnnHandle_t handle, bool) { return forward_graph(handle, p); };
    request.workspace = p->workspace;
    request.workspace_bytes = p->workspace_bytes;
    add_operands(&request, p);
    return dnn_compute(stream, request, &with_epilogue, status, why);
}

bool vendor_attention_grad(cuda_stream *stream, const cuda_attention_grad *p, tri_status *status,
                           char *why) {
    const cuda_attention *f = &p->forward;
    if (!p->dq_sums || !dnn() || dnn()->GetVersion() < LEAST_VERSION ||
        !is_aligned({f->q, f->k, f->v, f->y, f->log_sum_exp, p->dy, p->dq, p->dk, p->dv, p->dots,
                     p->dq_sums}))
        return false;
    static const float one = 1;
    bool with_epilogue;
    dnn_request request = {};
    request.kind = "gradient of attention 1";
    request.key = key_of(f);
    request.in_type = f->type;
    request.graph = [f](cudnnHandle_t handle, bool) { return gradient_graph(handle, f); };
    request.ids = {ONE_ID, DY_ID, DQ_ID, DK_ID, DV_ID, DOTS_ID, DQ_SUMS_ID};
    request.addresses = {&one, p->dy, p->dq, p->dk, p->dv, p->dots, p->dq_sums};
    request.workspace = f->workspace;
    request.workspace_bytes = f->workspace_bytes;
    add_operands(&request, f);
    return dnn_compute(stream, request, &with_epilogue, status, why);
}
#else // for HIP, or without cuDNN's header: our own kernels compute attention
bool vendor_attention(cuda_stream *, const cuda_attention *, tri_status *, char *) { return false; }
bool vendor_attention_grad(cuda_stream *, const cuda_attention_grad *, tri_status *, char *) {
    return false;
}
#endif
