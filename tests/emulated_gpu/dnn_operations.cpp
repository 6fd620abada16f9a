// Computes graphs of operations for the test double of cuDNN, from their descriptors alone: one
// function for each type of operation, in a table. Nothing here knows for what a graph is used. A
// graph that the double cannot compute, or whose description contradicts itself, ends the program
// with a message.
//
// A tensor's elements are kept as F32 where its strides say, and are rounded to the tensor's type
// when an operation has computed them. Tensors are told apart by their unique ids. A tensor in
// memory is read again by each operation that uses it.
#include "emulated_gpu/dnn_double.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace dnn_double {

bool has(const descriptor *x, cudnnBackendAttributeName_t name) {
    return x->values.count(name) > 0;
}

namespace {

enum { AXES = 4, MOST_INPUTS = 3 };

// A tensor, and its elements as they are between operations; empty: they are not known yet.
struct tensor {
    int64_t id, dims[AXES], strides[AXES];
    cudnnDataType_t type;
    bool is_virtual, is_by_value;
    bool is_output = false; // an operation of the graph computes it
    char *data;             // NULL: it is virtual
    std::vector<float> numbers;
};

// Ends the program if what a description has to fulfil is false.
void demand(bool is_true, const char *what, const tensor &x) {
    if (is_true) return;
    fprintf(stderr, "the emulated cuDNN: %s (tensor %lld: [%lld, %lld, %lld, %lld])\n", what,
            (long long)x.id, (long long)x.dims[0], (long long)x.dims[1], (long long)x.dims[2],
            (long long)x.dims[3]);
    abort();
}

int64_t offset_of(const tensor &x, int64_t a, int64_t b, int64_t c, int64_t d) {
    return a * x.strides[0] + b * x.strides[1] + c * x.strides[2] + d * x.strides[3];
}

// Calls f(a, b, c, d) for each element of the tensor.
template <typename F> void for_elements(const tensor &x, F f) {
    for (int64_t a = 0; a < x.dims[0]; a++)
        for (int64_t b = 0; b < x.dims[1]; b++)
            for (int64_t c = 0; c < x.dims[2]; c++)
                for (int64_t d = 0; d < x.dims[3]; d++) f(a, b, c, d);
}

float rounded_to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (std::isnan(value)) return NAN;
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float rounded(cudnnDataType_t type, float value, const tensor &x) {
    switch (type) {
    case CUDNN_DATA_FLOAT:
        return value;
    case CUDNN_DATA_HALF:
        return (float)(_Float16)value;
    case CUDNN_DATA_BFLOAT16:
        return rounded_to_bf16(value);
    case CUDNN_DATA_INT32:
        return (float)(int32_t)value;
    case CUDNN_DATA_BOOLEAN:
        return value != 0;
    default:
        demand(false, "this type is not emulated", x);
        return 0;
    }
}

float read(const tensor &x, int64_t i) {
    if (x.type == CUDNN_DATA_FLOAT) return ((const float *)x.data)[i];
    if (x.type == CUDNN_DATA_HALF) return (float)((const _Float16 *)x.data)[i];
    demand(x.type == CUDNN_DATA_BFLOAT16, "this type is not emulated in memory", x);
    uint32_t bits = (uint32_t)((const uint16_t *)x.data)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// Writes a number that is already rounded to the tensor's type.
void write(const tensor &x, int64_t i, float value) {
    demand(x.type == CUDNN_DATA_FLOAT || x.type == CUDNN_DATA_HALF || x.type == CUDNN_DATA_BFLOAT16,
           "this type is not emulated in memory", x);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (x.type == CUDNN_DATA_FLOAT)
        ((float *)x.data)[i] = value;
    else if (x.type == CUDNN_DATA_HALF)
        ((_Float16 *)x.data)[i] = (_Float16)value;
    else
        ((uint16_t *)x.data)[i] = (uint16_t)(bits >> 16);
}

// The strides and lengths of the axes that have more than one element, sorted by stride.
std::vector<std::pair<int64_t, int64_t>> axes_of(const tensor &x) {
    std::vector<std::pair<int64_t, int64_t>> axes;
    for (int i = 0; i < AXES; i++)
        if (x.dims[i] > 1) axes.emplace_back(x.strides[i], x.dims[i]);
    std::sort(axes.begin(), axes.end());
    return axes;
}

// How many elements of memory the tensor spans, gaps included.
size_t span_of(const tensor &x) {
    return (size_t)offset_of(x, x.dims[0] - 1, x.dims[1] - 1, x.dims[2] - 1, x.dims[3] - 1) + 1;
}

// Fills in x.numbers from memory.
void load(tensor *x) {
    x->numbers.resize(span_of(*x));
    for_elements(*x, [=](int64_t a, int64_t b, int64_t c, int64_t d) {
        int64_t i = offset_of(*x, a, b, c, d);
        x->numbers[(size_t)i] = read(*x, i);
    });
}

tensor tensor_of(const descriptor *x) {
    tensor t;
    t.id = get<int64_t>(x, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    t.type = get<cudnnDataType_t>(x, CUDNN_ATTR_TENSOR_DATA_TYPE);
    t.is_virtual = get<bool>(x, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    t.is_by_value =
        has(x, CUDNN_ATTR_TENSOR_IS_BY_VALUE) && get<bool>(x, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    t.data = nullptr;
    for (int i = 0; i < AXES; i++) {
        t.dims[i] = get<int64_t>(x, CUDNN_ATTR_TENSOR_DIMENSIONS, i);
        t.strides[i] = get<int64_t>(x, CUDNN_ATTR_TENSOR_STRIDES, i);
        demand(t.dims[i] > 0, "an axis is empty", t);
    }
    demand(!(t.is_virtual && t.is_by_value), "a by-value tensor is virtual", t);
    int64_t least = 1;
    for (auto [stride, dim] : axes_of(t)) {
        demand(stride >= least, "two elements have one place", t);
        least = stride * dim;
    }
    return t;
}

// Finds the tensor's memory, and reads it if it is passed by value.
void find_memory(tensor *t, const descriptor *x, const descriptor *pack) {
    if (t->is_virtual) return;
    int i = 0;
    while (get<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i) != t->id) i++;
    t->data = get<char *>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
    int64_t alignment = get<int64_t>(x, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    demand(t->data, "its address is NULL", *t);
    demand(t->is_by_value || (uintptr_t)t->data % (uintptr_t)alignment == 0,
           "its address is not aligned as described", *t);
    if (t->is_by_value) load(t);
}

// An operation that is about to be computed. An input that the operation does not have is NULL.
struct step {
    const descriptor *op;
    const tensor *inputs[MOST_INPUTS];
    tensor *output;
    int64_t first;         // see engine_rules
    float (*round)(float); // what the engine does with each factor
};

// Multiplies matrices. A tensor of fewer heads or samples than the output is read several times:
// neighbours share one.
void multiply(const step &s) {
    const tensor &a = *s.inputs[0], &b = *s.inputs[1];
    tensor &c = *s.output;
    int64_t rows = c.dims[2], columns = c.dims[3], depth = a.dims[3];
    const descriptor *what = get<descriptor *>(s.op, CUDNN_ATTR_OPERATION_MATMUL_DESC);
    cudnnDataType_t precision = get<cudnnDataType_t>(what, CUDNN_ATTR_MATMUL_COMP_TYPE);
    for (const tensor *x : {&a, &b})
        demand(c.dims[0] % x->dims[0] == 0 && c.dims[1] % x->dims[1] == 0,
               "a factor's samples or heads do not divide those of the product", *x);
    demand(a.dims[2] == rows, "the left factor has other rows than the product", a);
    demand(b.dims[2] == depth, "the right factor's rows are not the left one's columns", b);
    demand(b.dims[3] == columns, "the right factor has other columns than the product", b);
    std::vector<float> right((size_t)(depth * columns)), sums((size_t)columns);
    for (int64_t matrix = 0; matrix < c.dims[0] * c.dims[1]; matrix++) {
        int64_t sample = matrix / c.dims[1], head = matrix % c.dims[1];
        auto start_in = [&](const tensor &x) {
            return offset_of(x, sample / (c.dims[0] / x.dims[0]), head / (c.dims[1] / x.dims[1]), 0,
                             0);
        };
        int64_t in_a = start_in(a), in_b = start_in(b), in_c = start_in(c);
        for (int64_t k = 0; k < depth; k++)
            for (int64_t j = 0; j < columns; j++)
                right[(size_t)(k * columns + j)] =
                    s.round(b.numbers[(size_t)(in_b + k * b.strides[2] + j * b.strides[3])]);
        for (int64_t i = 0; i < rows; i++) {
            std::fill(sums.begin(), sums.end(), 0.0f);
            for (int64_t n = 0; n < depth; n++) {
                int64_t k = (n + s.first) % depth;
                float x = s.round(a.numbers[(size_t)(in_a + i * a.strides[2] + k * a.strides[3])]);
                const float *row = &right[(size_t)(k * columns)];
                for (size_t j = 0; j < sums.size(); j++) sums[j] += x * row[j];
            }
            for (int64_t j = 0; j < columns; j++)
                c.numbers[(size_t)(in_c + i * c.strides[2] + j * c.strides[3])] =
                    rounded(precision, sums[(size_t)j], c);
        }
    }
}

// Reduces each axis to its length in the output, which divides that in the input: neighbours become
// one element.
void reduce(const step &s) {
    const tensor &x = *s.inputs[0];
    tensor &y = *s.output;
    const descriptor *what = get<descriptor *>(s.op, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    auto mode = get<cudnnReduceTensorOp_t>(what, CUDNN_ATTR_REDUCTION_OPERATOR);
    cudnnDataType_t precision = get<cudnnDataType_t>(what, CUDNN_ATTR_REDUCTION_COMP_TYPE);
    demand(mode == CUDNN_REDUCE_TENSOR_ADD || mode == CUDNN_REDUCE_TENSOR_MAX,
           "this reduction is not emulated", y);
    int64_t group[AXES];
    for (int i = 0; i < AXES; i++) {
        demand(x.dims[i] % y.dims[i] == 0, "a reduced axis does not divide the input's", y);
        group[i] = x.dims[i] / y.dims[i];
    }
    bool adds = mode == CUDNN_REDUCE_TENSOR_ADD;
    std::fill(y.numbers.begin(), y.numbers.end(), adds ? 0.0f : -INFINITY);
    for_elements(x, [&](int64_t a, int64_t b, int64_t c, int64_t d) {
        float value = x.numbers[(size_t)offset_of(x, a, b, c, d)];
        float &out =
            y.numbers[(size_t)offset_of(y, a / group[0], b / group[1], c / group[2], d / group[3])];
        if (adds)
            out += value;
        else if (value > out || std::isnan(value))
            out = value;
    });
    for (float &value : y.numbers) value = rounded(precision, value, y);
}

// Sees the same memory with other axes. Only a new order of the axes is emulated.
void reshape(const step &s) {
    const tensor &x = *s.inputs[0];
    demand(axes_of(x) == axes_of(*s.output), "reshaped to other memory than the input's", x);
    s.output->numbers = x.numbers;
}

// What a pointwise operation has of one element.
struct element {
    float x, b, t;
    float index; // of the element, on the axis that the operation names
};

const struct pointwise_mode {
    cudnnPointwiseMode_t mode;
    int inputs;
    float (*result)(const element &e);
} pointwise_modes[] = {
    {CUDNN_POINTWISE_IDENTITY, 1, [](const element &e) { return e.x; }},
    {CUDNN_POINTWISE_EXP, 1, [](const element &e) { return expf(e.x); }},
    {CUDNN_POINTWISE_LOG, 1, [](const element &e) { return logf(e.x); }},
    {CUDNN_POINTWISE_RELU_FWD, 1, [](const element &e) { return e.x <= 0 ? 0 : e.x; }},
    {CUDNN_POINTWISE_GEN_INDEX, 1, [](const element &e) { return e.index; }},
    {CUDNN_POINTWISE_ADD, 2, [](const element &e) { return e.x + e.b; }},
    {CUDNN_POINTWISE_SUB, 2, [](const element &e) { return e.x - e.b; }},
    {CUDNN_POINTWISE_MUL, 2, [](const element &e) { return e.x * e.b; }},
    {CUDNN_POINTWISE_DIV, 2, [](const element &e) { return e.x / e.b; }},
    {CUDNN_POINTWISE_CMP_GE, 2, [](const element &e) { return (float)(e.x >= e.b); }},
    {CUDNN_POINTWISE_BINARY_SELECT, 3, [](const element &e) { return e.t != 0 ? e.x : e.b; }},
};

const pointwise_mode &mode_of(const descriptor *what, const step &s) {
    auto wanted = get<cudnnPointwiseMode_t>(what, CUDNN_ATTR_POINTWISE_MODE);
    for (const pointwise_mode &mode : pointwise_modes)
        if (mode.mode == wanted) {
            int inputs = (int)(std::find(s.inputs, s.inputs + MOST_INPUTS, nullptr) - s.inputs);
            demand(inputs == mode.inputs, "a pointwise operation has a wrong number of inputs",
                   *s.output);
            return mode;
        }
    demand(false, "this pointwise operation is not emulated", *s.output);
    abort();
}

// Computes each element from the same element of each input. An axis of length 1 serves for all
// elements of the output's axis.
void compute_pointwise(const step &s) {
    const descriptor *what = get<descriptor *>(s.op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const pointwise_mode &mode = mode_of(what, s);
    cudnnDataType_t precision = get<cudnnDataType_t>(what, CUDNN_ATTR_POINTWISE_MATH_PREC);
    tensor &y = *s.output;
    int64_t strides[MOST_INPUTS][AXES], axis = 0;
    element e = {};
    for (int i = 0; i < mode.inputs; i++)
        for (int k = 0; k < AXES; k++) {
            const tensor &x = *s.inputs[i];
            demand(x.dims[k] == 1 || x.dims[k] == y.dims[k], "cannot be broadcast", x);
            strides[i][k] = x.dims[k] == 1 ? 0 : x.strides[k];
        }
    if (mode.mode == CUDNN_POINTWISE_GEN_INDEX) {
        axis = get<int64_t>(what, CUDNN_ATTR_POINTWISE_AXIS);
        demand(axis >= 0 && axis < AXES, "an index of an axis that does not exist", y);
    }
    float *const values[] = {&e.x, &e.b, &e.t};
    for_elements(y, [&](int64_t a, int64_t b, int64_t c, int64_t d) {
        for (int i = 0; i < mode.inputs; i++) {
            const int64_t *at = strides[i];
            *values[i] =
                s.inputs[i]->numbers[(size_t)(a * at[0] + b * at[1] + c * at[2] + d * at[3])];
        }
        e.index = (float)(axis == 0 ? a : axis == 1 ? b : axis == 2 ? c : d);
        y.numbers[(size_t)offset_of(y, a, b, c, d)] = rounded(precision, mode.result(e), y);
    });
}

struct window {
    int64_t padding[2], stride[2], dilation[2];
};

window window_of(const descriptor *x) {
    window w;
    for (int i = 0; i < 2; i++) {
        w.padding[i] = get<int64_t>(x, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i);
        w.stride[i] = get<int64_t>(x, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i);
        w.dilation[i] = get<int64_t>(x, CUDNN_ATTR_CONVOLUTION_DILATIONS, i);
    }
    return w;
}

// Calls product(i, j, k) for every product of the convolution, where i, j and k are the offsets of
// its elements of x, weight and y. Begins with sample and tap number `first`, so that `first`
// decides in which order sums are added.
template <typename F>
void for_products(int64_t first, const window &w, const tensor &x, const tensor &weight,
                  const tensor &y, F product) {
    int64_t features = weight.dims[0] / (x.dims[1] / weight.dims[1]); // output channels of a group
    int64_t taps = weight.dims[1] * weight.dims[2] * weight.dims[3];
    for_elements(y, [&](int64_t sample, int64_t f, int64_t i, int64_t j) {
        for (int64_t at = 0; at < taps; at++) {
            int64_t n = (sample + first) % y.dims[0], tap = (at + first) % taps;
            int64_t k = tap / weight.dims[3] % weight.dims[2], l = tap % weight.dims[3];
            int64_t c = tap / (weight.dims[2] * weight.dims[3]);
            int64_t row = i * w.stride[0] - w.padding[0] + k * w.dilation[0];
            int64_t column = j * w.stride[1] - w.padding[1] + l * w.dilation[1];
            if (row < 0 || row >= x.dims[2] || column < 0 || column >= x.dims[3]) continue;
            int64_t channel = f / features * weight.dims[1] + c;
            product((size_t)offset_of(x, n, channel, row, column),
                    (size_t)offset_of(weight, f, c, k, l), (size_t)offset_of(y, n, f, i, j));
        }
    });
}

#define ATTRIBUTE(PASS, NAME) CUDNN_ATTR_OPERATION_CONVOLUTION_##PASS##_##NAME

void convolve(const step &s) {
    const tensor &x = *s.inputs[0], &weight = *s.inputs[1];
    tensor &y = *s.output;
    window w = window_of(get<descriptor *>(s.op, ATTRIBUTE(FORWARD, CONV_DESC)));
    for_products(s.first, w, x, weight, y, [&](size_t i, size_t j, size_t k) {
        y.numbers[k] += s.round(x.numbers[i]) * s.round(weight.numbers[j]);
    });
}

void convolve_to_input(const step &s) {
    const tensor &y = *s.inputs[0], &weight = *s.inputs[1];
    tensor &x = *s.output;
    window w = window_of(get<descriptor *>(s.op, ATTRIBUTE(BWD_DATA, CONV_DESC)));
    for_products(s.first, w, x, weight, y, [&](size_t i, size_t j, size_t k) {
        x.numbers[i] += s.round(y.numbers[k]) * s.round(weight.numbers[j]);
    });
}

void convolve_to_weight(const step &s) {
    const tensor &x = *s.inputs[0], &y = *s.inputs[1];
    tensor &weight = *s.output;
    window w = window_of(get<descriptor *>(s.op, ATTRIBUTE(BWD_FILTER, CONV_DESC)));
    for_products(s.first, w, x, weight, y, [&](size_t i, size_t j, size_t k) {
        weight.numbers[j] += s.round(x.numbers[i]) * s.round(y.numbers[k]);
    });
}

// Marks an input that operations of a type do not have: this attribute is never one of a tensor.
const cudnnBackendAttributeName_t NO_INPUT = CUDNN_ATTR_OPERATIONGRAPH_OPS;

// What cuDNN calls the tensors of each type of operation, and the function that computes it.
const struct operation {
    cudnnBackendDescriptorType_t type;
    void (*compute)(const step &s);
    cudnnBackendAttributeName_t inputs[MOST_INPUTS], output;
} all_operations[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     convolve,
     {ATTRIBUTE(FORWARD, X), ATTRIBUTE(FORWARD, W), NO_INPUT},
     ATTRIBUTE(FORWARD, Y)},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     convolve_to_input,
     {ATTRIBUTE(BWD_DATA, DY), ATTRIBUTE(BWD_DATA, W), NO_INPUT},
     ATTRIBUTE(BWD_DATA, DX)},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     convolve_to_weight,
     {ATTRIBUTE(BWD_FILTER, X), ATTRIBUTE(BWD_FILTER, DY), NO_INPUT},
     ATTRIBUTE(BWD_FILTER, DW)},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
     multiply,
     {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC, NO_INPUT},
     CUDNN_ATTR_OPERATION_MATMUL_CDESC},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
     reduce,
     {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, NO_INPUT, NO_INPUT},
     CUDNN_ATTR_OPERATION_REDUCTION_YDESC},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
     reshape,
     {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, NO_INPUT, NO_INPUT},
     CUDNN_ATTR_OPERATION_RESHAPE_YDESC},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
     compute_pointwise,
     {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
      CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
     CUDNN_ATTR_OPERATION_POINTWISE_YDESC},
};

const operation &operation_of(const descriptor *op) {
    for (const operation &x : all_operations)
        if (x.type == op->type) return x;
    fprintf(stderr, "the emulated cuDNN: operations of type %d are not emulated\n", (int)op->type);
    abort();
}

std::vector<const descriptor *> operations_of(const descriptor *graph) {
    size_t bytes = graph->values.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).size();
    std::vector<const descriptor *> found;
    found.reserve(bytes / sizeof(void *));
    for (int i = 0; i < (int)(bytes / sizeof(void *)); i++)
        found.push_back(get<descriptor *>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, i));
    return found;
}

// The tensors of a graph by their ids, with their memory.
typedef std::map<int64_t, tensor> tensor_map;

tensor *find(tensor_map *all, const descriptor *op, cudnnBackendAttributeName_t name) {
    if (!has(op, name)) return nullptr;
    return &all->at(get<int64_t>(get<descriptor *>(op, name), CUDNN_ATTR_TENSOR_UNIQUE_ID));
}

tensor_map tensors_of(const descriptor *graph, const descriptor *pack) {
    tensor_map all;
    auto add = [&](const descriptor *op, cudnnBackendAttributeName_t name) {
        if (!has(op, name)) return;
        const descriptor *x = get<descriptor *>(op, name);
        tensor found = tensor_of(x);
        auto [at, is_new] = all.try_emplace(found.id, found);
        const tensor &known = at->second;
        demand(found.type == known.type && found.is_virtual == known.is_virtual &&
                   found.is_by_value == known.is_by_value &&
                   std::equal(found.dims, found.dims + AXES, known.dims) &&
                   std::equal(found.strides, found.strides + AXES, known.strides),
               "two tensors have one unique id", found);
        if (is_new) find_memory(&at->second, x, pack);
    };
    for (const descriptor *op : operations_of(graph)) {
        for (cudnnBackendAttributeName_t name : operation_of(op).inputs) add(op, name);
        add(op, operation_of(op).output);
        find(&all, op, operation_of(op).output)->is_output = true;
    }
    return all;
}

void compute(const descriptor *op, tensor_map *all, const engine_rules &rules) {
    const operation &what = operation_of(op);
    tensor *y = find(all, op, what.output);
    step s = {op, {}, y, rules.first, [](float value) { return value; }};
    if (rules.rounds_to_tf32) s.round = emulated_tf32;
    for (int i = 0; i < MOST_INPUTS; i++) {
        tensor *x = find(all, op, what.inputs[i]);
        bool is_known = x && (!x->is_output || !x->numbers.empty());
        if (is_known && x->data && !x->is_by_value) load(x);
        demand(!x || !x->numbers.empty(), "used before it is computed", x ? *x : *y);
        s.inputs[i] = x;
    }
    demand(!y->is_by_value, "an operation's output is passed by value", *y);
    demand(y->numbers.empty(), "two operations compute it", *y);
    y->numbers.assign(span_of(*y), 0);
    what.compute(s);
    for_elements(*y, [=](int64_t a, int64_t b, int64_t c, int64_t d) {
        int64_t i = offset_of(*y, a, b, c, d);
        float &value = y->numbers[(size_t)i];
        value = rounded(y->type, value, *y);
        if (y->data) write(*y, i, value);
    });
}

bool is_supported(const descriptor *op, bool is_alone) {
    const operation &what = operation_of(op);
    if (what.inputs[1] == NO_INPUT || what.compute == compute_pointwise) return true;
    tensor a = tensor_of(get<descriptor *>(op, what.inputs[0]));
    tensor b = tensor_of(get<descriptor *>(op, what.inputs[1]));
    tensor out = tensor_of(get<descriptor *>(op, what.output));
    if (what.compute == multiply)
        return (a.is_virtual || a.type != CUDNN_DATA_FLOAT) &&
               (b.is_virtual || b.type != CUDNN_DATA_FLOAT);
    if (b.type != a.type || (!out.is_virtual && out.type != a.type)) return false;
    return is_alone || a.dims[1] / b.dims[1] % 2; // forward: the channels of x and of the weight
}

} // namespace

bool is_supported(const descriptor *graph) {
    std::vector<const descriptor *> operations = operations_of(graph);
    for (const descriptor *op : operations)
        if (!is_supported(op, operations.size() == 1)) return false;
    return true;
}

std::function<void()> computation_of(const descriptor *graph, const descriptor *pack,
                                     const engine_rules &rules) {
    tensor_map tensors = tensors_of(graph, pack);
    std::vector<const descriptor *> operations = operations_of(graph);
    tensor *last = find(&tensors, operations.back(), operation_of(operations.back()).output);
    demand(!last->is_virtual, "the last operation's output is not in memory", *last);
    return [=] {
        tensor_map all = tensors;
        for (const descriptor *op : operations) {
            memset(rules.workspace, 0xff, rules.workspace_bytes);
            compute(op, &all, rules);
        }
        memset(rules.workspace, 0xff, rules.workspace_bytes);
    };
}

} // namespace dnn_double
