// Values while a graph is built: of the graph, of the host, or numbers; and the functions of shapes
// and elements, which take all of them.
#include "nn/exported/build.h"
#include "ops/ops.h"

#include <math.h>
#include <string.h>
#include <trireme/nn.h>

bool exported_type_is_float(int dtype) {
    return dtype == TRI_PT2_HALF || dtype == TRI_PT2_FLOAT32 || dtype == TRI_PT2_DOUBLE ||
           dtype == TRI_PT2_BFLOAT16;
}

bool exported_type_is_int(int dtype) { return dtype >= TRI_PT2_BYTE && dtype <= TRI_PT2_LONG; }

exported_value exported_of_graph(tri_value value, int dtype) {
    return (exported_value){.kind = EXPORTED_GRAPH, .graph = value, .dtype = dtype};
}

exported_value exported_of_number(double value, int dtype) {
    // 2^63 and above have no integer.
    bool fits = value >= -0x1p63 && value < 0x1p63;
    return (exported_value){.kind = EXPORTED_NUMBER,
                            .real = value,
                            .integer = fits ? (int64_t)value : 0,
                            .dtype = dtype};
}

int exported_rank(exported_build *b, const exported_value *v) {
    if (v->kind == EXPORTED_GRAPH) return tri_value_shape(b->graph, v->graph).rank;
    return v->kind == EXPORTED_HOST ? v->host.rank : 0;
}

int64_t exported_size(exported_build *b, const exported_value *v, int axis) {
    if (v->kind == EXPORTED_GRAPH) return tri_value_shape(b->graph, v->graph).dims[axis];
    return v->kind == EXPORTED_HOST ? v->host.sizes[axis] : 1;
}

int64_t exported_count(exported_build *b, const exported_value *v) {
    int64_t count = 1;
    for (int i = 0; i < exported_rank(b, v); i++) count *= exported_size(b, v, i);
    return count;
}

// A host's tensor without the axes along which it is repeated.
static exported_value unrepeated(const exported_value *v) {
    exported_value x = *v;
    for (int i = 0; i < x.host.rank; i++)
        if (x.host.strides[i] == 0) x.host.sizes[i] = 1;
    return x;
}

// Whether the elements of a tensor without repeated axes are equally far from each other.
static bool is_progression(const exported_host *x) {
    int64_t count = 1;
    for (int i = 0; i < x->rank; i++) count *= x->sizes[i];
    for (int64_t i = 2; i < count; i++)
        if (x->data[i] - x->data[i - 1] != x->data[1] - x->data[0]) return false;
    return count > 1;
}

// Equally distant numbers as the running sum of ones, so that no constant has the batch in it.
static tri_value counted(exported_build *b, const exported_value *x, tri_shape shape) {
    tri_graph *g = b->graph;
    bool is_float = exported_type_is_float(x->dtype);
    const float number = 1;
    tri_value one = tri_constant(g, "exported.one", tri_shape_of(1), &number);
    int64_t count = tri_shape_count(&shape);
    one = tri_expand(g, is_float ? one : tri_cast(g, one, TRI_I64), tri_shape_of(count));
    const char *formula = tri_name(g, "n -> %.17g + %.17g * (n - 1)", x->host.data[0],
                                   x->host.data[1] - x->host.data[0]);
    return tri_reshape(g, tri_map(g, formula, tri_cumsum(g, one, 0)), shape);
}

static tri_value constant_of(exported_build *b, const exported_value *v) {
    tri_graph *g = b->graph;
    exported_value refit = *v, x;
    // Rows that are all alike, as many as a fixed batch has, are those of the samples.
    int64_t fixed = exported_fixed_batch(b);
    if (fixed > 1 && v->host.rank > 1 && v->host.strides[0] == 0 && v->host.sizes[0] == fixed)
        refit.host.sizes[0] = tri_graph_samples(g);
    v = &refit;
    x = unrepeated(v);
    x = exported_host_row_major(b, &x);
    tri_shape stored = {0}, shape = {0};
    if (x.host.rank > TRI_MAX_RANK) {
        tri_graph_fail(g, "a constant has %d axes; at most %d are supported", x.host.rank,
                       TRI_MAX_RANK);
        return (tri_value){0};
    }
    stored.rank = shape.rank = x.host.rank;
    for (int i = 0; i < x.host.rank; i++)
        stored.dims[i] = x.host.sizes[i], shape.dims[i] = v->host.sizes[i];
    int64_t count = tri_shape_count(&stored);
    if (v->is_sized && v->dtype != TRI_PT2_BOOLEAN && is_progression(&x.host)) {
        tri_value value = counted(b, &x, stored);
        return tri_shape_equal(&stored, &shape) ? value : tri_expand(g, value, shape);
    }
    float *values = TRI_NEW_ARRAY(g->arena, float, count);
    for (int64_t i = 0; i < count; i++) {
        values[i] = (float)x.host.data[i];
        if (exported_type_is_int(v->dtype) && (double)values[i] != x.host.data[i])
            tri_graph_fail(g, "the constant %.0f is too large", x.host.data[i]);
    }
    const char *begin = b->network->trained ? "evaluation" : "exported";
    const char *name = tri_name(g, "%s.%s", begin, v->name ? v->name : "constant");
    if (!v->name) name = tri_name(g, "%s.%lld", name, (long long)tri_layer_count(g, name));
    tri_value value = tri_constant(g, name, stored, values);
    if (v->dtype == TRI_PT2_BOOLEAN)
        value = tri_cast(g, value, TRI_U8);
    else if (!exported_type_is_float(v->dtype))
        value = tri_cast(g, value, TRI_I64);
    return tri_shape_equal(&stored, &shape) ? value : tri_expand(g, value, shape);
}

tri_value exported_as_graph(exported_build *b, const exported_value *v) {
    if (v->kind == EXPORTED_GRAPH) return v->graph;
    if (v->kind == EXPORTED_HOST) return constant_of(b, v);
    if (v->kind == EXPORTED_NOTHING) return (tri_value){0};
    exported_value one = exported_host_fill(b, NULL, 0, v->real, v->dtype);
    one.name = tri_name(b->graph, "number.%.17g", v->real);
    return constant_of(b, &one);
}

tri_value exported_as_float(exported_build *b, const exported_value *v) {
    tri_value value = exported_as_graph(b, v);
    if (!tri_value_is(value) || exported_type_is_float(v->dtype)) return value;
    return tri_cast(b->graph, value, TRI_F32);
}

static bool check_rank(exported_build *b, int rank) {
    if (rank <= TRI_MAX_RANK) return true;
    tri_graph_fail(b->graph, "a tensor has %d axes; at most %d are supported", rank, TRI_MAX_RANK);
    return false;
}

static tri_shape shape_of(exported_build *b, const int64_t *sizes, int rank) {
    tri_shape shape = {.rank = rank};
    if (!check_rank(b, rank)) return (tri_shape){0};
    for (int i = 0; i < rank; i++) shape.dims[i] = sizes[i];
    return shape;
}

// Puts the size that one -1 stands for in its place. False: there is none.
static bool complete_sizes(const int64_t *given, int rank, int64_t count, int64_t *out) {
    int64_t known = 1;
    int open = -1;
    for (int i = 0; i < rank; i++) {
        out[i] = given[i];
        if (given[i] < 0)
            open = i;
        else if (__builtin_mul_overflow(known, given[i], &known))
            return false;
    }
    if (open < 0) return known == count;
    if (known == 0 || count % known) return false;
    out[open] = count / known;
    return true;
}

// Whether a view of the host's tensor is possible where sizes of 1 come or go.
static bool host_view(const exported_host *x, const int64_t *sizes, int rank, exported_host *out) {
    *out = (exported_host){.rank = rank, .data = x->data};
    int from = 0;
    for (int i = 0; i < rank; i++) {
        out->sizes[i] = sizes[i];
        if (sizes[i] == 1) continue;
        while (from < x->rank && x->sizes[from] == 1) from++;
        if (from == x->rank || x->sizes[from] != sizes[i]) return false;
        out->strides[i] = x->strides[from++];
    }
    while (from < x->rank && x->sizes[from] == 1) from++;
    return from == x->rank;
}

exported_value exported_reshape(exported_build *b, exported_value x, const int64_t *given,
                                int rank) {
    int64_t sizes[EXPORTED_MAX_RANK];
    if (x.kind == EXPORTED_NUMBER) x = exported_host_fill(b, NULL, 0, x.real, x.dtype);
    if (rank > EXPORTED_MAX_RANK || !complete_sizes(given, rank, exported_count(b, &x), sizes)) {
        tri_graph_fail(b->graph, "a tensor of %lld elements has no such shape",
                       (long long)exported_count(b, &x));
        return x;
    }
    if (x.kind == EXPORTED_GRAPH)
        return check_rank(b, rank) ? exported_view_reshaped(b, &x, sizes, rank) : x;
    exported_host view;
    if (!host_view(&x.host, sizes, rank, &view)) {
        x = exported_host_row_major(b, &x);
        view = (exported_host){.rank = rank, .data = x.host.data};
        int64_t step = 1;
        for (int i = rank - 1; i >= 0; i--) {
            view.sizes[i] = sizes[i];
            view.strides[i] = sizes[i] == 1 ? 0 : step;
            step *= sizes[i];
        }
    }
    x.host = view;
    return x;
}

exported_value exported_permute(exported_build *b, exported_value x, const int *order) {
    exported_value y = x;
    int rank = exported_rank(b, &x);
    if (x.kind == EXPORTED_HOST) {
        for (int i = 0; i < rank; i++) {
            y.host.sizes[i] = x.host.sizes[order[i]];
            y.host.strides[i] = x.host.strides[order[i]];
        }
        return y;
    }
    if (x.kind != EXPORTED_GRAPH) return x;
    return exported_view_permuted(b, &x, order);
}

exported_value exported_slice(exported_build *b, exported_value x, int axis, int64_t first,
                              int64_t end, int64_t step) {
    int64_t size = exported_size(b, &x, axis);
    if (first < 0) first += size;
    if (end < 0) end += size;
    first = first < 0 ? 0 : first > size ? size : first;
    end = end < first ? first : end > size ? size : end;
    if (first == 0 && end == size && step == 1) return x;
    if (x.kind == EXPORTED_HOST) {
        x.host.data += first * x.host.strides[axis];
        x.host.sizes[axis] = (end - first + step - 1) / step;
        x.host.strides[axis] *= step;
        return x;
    }
    if (end <= first) {
        // No elements: nothing of the graph, but tensors may be joined with it.
        int64_t sizes[EXPORTED_MAX_RANK];
        double *data;
        for (int i = 0; i < exported_rank(b, &x); i++)
            sizes[i] = i == axis ? 0 : exported_size(b, &x, i);
        return exported_host_new(b, sizes, exported_rank(b, &x), x.dtype, &data);
    }
    return exported_view_sliced(b, &x, axis, first, end, step);
}

exported_value exported_expand(exported_build *b, exported_value x, const int64_t *given,
                               int rank) {
    int from = exported_rank(b, &x);
    int64_t sizes[EXPORTED_MAX_RANK];
    bool is_same = rank == from, fits = rank >= from && rank <= EXPORTED_MAX_RANK;
    for (int i = 0; fits && i < rank; i++) {
        int64_t old = i < rank - from ? 1 : exported_size(b, &x, i - (rank - from));
        sizes[i] = given[i] < 0 ? old : given[i];
        is_same = is_same && sizes[i] == old;
        fits = old == 1 || old == sizes[i];
    }
    if (!fits) tri_graph_fail(b->graph, "a tensor cannot be expanded to these sizes");
    if (!fits || is_same) return x;
    if (x.kind == EXPORTED_GRAPH)
        return exported_of_graph(tri_expand(b->graph, x.graph, shape_of(b, sizes, rank)), x.dtype);
    if (x.kind == EXPORTED_NUMBER) x = exported_host_fill(b, NULL, 0, x.real, x.dtype);
    exported_value y = x;
    y.host.rank = rank;
    for (int i = 0; i < rank; i++) {
        int old = i - (rank - from);
        bool repeats = old < 0 || (x.host.sizes[old] == 1 && sizes[i] != 1);
        y.host.sizes[i] = sizes[i];
        y.host.strides[i] = repeats ? 0 : x.host.strides[old];
    }
    return y;
}

static exported_value host_concat(exported_build *b, const exported_value *values, int count,
                                  int axis) {
    exported_value first = values[0];
    int64_t sizes[EXPORTED_MAX_RANK], total = 0, at = 0;
    double *data;
    // Axes along which all are repeated stay so, so that the batch is no part of a constant.
    int64_t whole[EXPORTED_MAX_RANK];
    exported_value *parts = TRI_NEW_ARRAY(b->graph->arena, exported_value, count);
    for (int k = 0; k < count; k++) parts[k] = values[k];
    values = parts;
    for (int i = 0; i < first.host.rank; i++) {
        bool repeats = i != axis;
        for (int k = 0; k < count; k++) repeats = repeats && values[k].host.strides[i] == 0;
        whole[i] = first.host.sizes[i];
        sizes[i] = repeats ? 1 : whole[i];
        for (int k = 0; k < count && repeats; k++) parts[k].host.sizes[i] = 1;
    }
    for (int k = 0; k < count; k++) total += values[k].host.sizes[axis];
    sizes[axis] = total;
    exported_value y = exported_host_new(b, sizes, first.host.rank, first.dtype, &data);
    for (int k = 0; k < count && y.kind == EXPORTED_HOST; k++) {
        int64_t index[EXPORTED_MAX_RANK] = {0};
        const exported_host *x = &values[k].host;
        if (exported_count(b, &values[k]) == 0) continue;
        do {
            int64_t to = at * y.host.strides[axis];
            for (int i = 0; i < x->rank; i++) to += index[i] * y.host.strides[i];
            data[to] = exported_host_at(x, index);
        } while (exported_host_next(x, index));
        at += x->sizes[axis];
    }
    whole[axis] = total;
    return y.kind == EXPORTED_HOST ? exported_expand(b, y, whole, first.host.rank) : y;
}

exported_value exported_concat(exported_build *b, const exported_value *values, int count,
                               int axis) {
    tri_value *parts = TRI_NEW_ARRAY(b->graph->arena, tri_value, count);
    bool is_host = true;
    for (int k = 0; k < count; k++) is_host = is_host && values[k].kind == EXPORTED_HOST;
    if (is_host) return host_concat(b, values, count, axis);
    bool is_float = false;
    for (int k = 0; k < count; k++) is_float = is_float || exported_type_is_float(values[k].dtype);
    for (int k = 0; k < count; k++)
        parts[k] = is_float ? exported_as_float(b, &values[k]) : exported_as_graph(b, &values[k]);
    return exported_of_graph(tri_concat(b->graph, parts, count, axis), values[0].dtype);
}

// Puts a constant in the place of the formula's input k.
static void bind(tri_formula *f, int k, double value) {
    int input = TRI_OPERAND_INPUT + k, constant = -1;
    for (int i = 0; i < f->constant_count; i++)
        if (f->constants[i] == value && signbit(f->constants[i]) == signbit(value)) constant = i;
    if (constant < 0 && f->constant_count < TRI_FORMULA_CONSTANTS)
        f->constants[constant = f->constant_count++] = value;
    constant += TRI_OPERAND_CONSTANT;
#define MOVE(o)                                                                                    \
    (o) = (uint8_t)((o) == input                                ? constant                         \
                    : (o) > input && (o) < TRI_OPERAND_CONSTANT ? (o)-1                            \
                                                                : (o))
    for (int i = 0; i < f->step_count; i++) {
        MOVE(f->steps[i].a);
        MOVE(f->steps[i].b);
        MOVE(f->steps[i].c);
    }
    for (int i = 0; i < f->output_count; i++) MOVE(f->outputs[i]);
#undef MOVE
    f->input_count--;
}

// The number that a value is, if it is a single one whose axes do not count among `rank`.
static bool is_number(exported_build *b, const exported_value *v, int rank, double *out) {
    *out = v->real;
    if (v->kind == EXPORTED_NUMBER) return true;
    if (v->kind != EXPORTED_HOST || v->host.rank > rank || exported_count(b, v) != 1) return false;
    *out = v->host.data[0];
    return true;
}

static exported_value map_graph(exported_build *b, tri_formula formula, const exported_value *in,
                                int count, int dtype) {
    tri_value values[TRI_FORMULA_INPUTS];
    tri_map_attr attr = {.mask = dtype == TRI_PT2_BOOLEAN};
    int kept = 0, rank = 0;
    bool is_float = exported_type_is_float(dtype), has_int = false;
    for (int k = 0; k < count; k++) {
        int own = in[k].kind == EXPORTED_GRAPH ? exported_rank(b, &in[k]) : 0;
        if (own > rank) rank = own;
        is_float = is_float || exported_type_is_float(in[k].dtype);
        has_int = has_int || (in[k].kind != EXPORTED_NUMBER && exported_type_is_int(in[k].dtype));
    }
    for (int k = 0; k < count; k++) {
        double number;
        if (is_number(b, &in[k], rank, &number)) {
            bind(&formula, kept, number);
            continue;
        }
        bool is_mask = in[k].dtype == TRI_PT2_BOOLEAN && (has_int || is_float || attr.mask);
        values[kept++] =
            is_float && !is_mask ? exported_as_float(b, &in[k]) : exported_as_graph(b, &in[k]);
    }
    // Masks alone are computed in the type of the result.
    for (int k = 0; k < kept && !attr.mask && !has_int; k++)
        if (tri_value_is(values[k]) && tri_value_get(b->graph, values[k])->dtype == TRI_U8 &&
            kept == 1)
            values[k] = tri_cast(b->graph, values[k], is_float ? TRI_F32 : TRI_I64);
    attr.formula = formula;
    return exported_of_graph(tri_node_add(b->graph, &tri_op_map, values, kept, &attr, ""), dtype);
}

exported_value exported_map(exported_build *b, const tri_formula *formula,
                            const exported_value *given, int count, int dtype) {
    bool is_host = true, is_number = true;
    exported_value in[TRI_FORMULA_INPUTS];
    for (int k = 0; k < count; k++) in[k] = given[k];
    exported_refit_repeated(b, in, count, -1);
    for (int k = 0; k < count; k++) {
        is_host = is_host && (in[k].kind == EXPORTED_HOST || in[k].kind == EXPORTED_NUMBER);
        is_number = is_number && in[k].kind == EXPORTED_NUMBER;
    }
    if (!is_host) return map_graph(b, *formula, in, count, dtype);
    exported_value y = exported_host_map(b, formula, in, count, dtype);
    if (is_number && y.kind == EXPORTED_HOST) return exported_of_number(y.host.data[0], dtype);
    return y;
}

exported_value exported_map_text(exported_build *b, const char *text, const double *parameters,
                                 const exported_value *in, int count, int dtype) {
    tri_formula formula;
    if (tri_formula_parse(text, parameters, &formula) == TRI_OK)
        return exported_map(b, &formula, in, count, dtype);
    tri_graph_fail(b->graph, "%s", tri_error_message());
    return (exported_value){0};
}
