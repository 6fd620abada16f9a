// Which operations of PyTorch give a result that shares memory with their first argument, so that
// what is written into one of the two is seen in the other. Some do so only where the argument lies
// in memory as they need it: the file has sizes and strides of every tensor.
#include "nn/exported/build.h"
#include "nn/exported/lower.h"

#include <string.h>

typedef enum kind {
    VIEW,      // always
    RESHAPED,  // if the strides allow the new sizes
    ROW_MAJOR, // if the argument's elements lie one after the other
    SAME_TYPE, // if the type is the same and no copy is asked for
    DROPPED,   // if nothing is dropped
    UNSURE,    // now and then
} kind;

// `write`: the row that puts what has become of the result into the argument (writes.c); NULL:
// there is none.
static const struct sharing_row {
    const char *name;
    kind kind;
    const char *write;
} rows[] = {
    {"alias", VIEW, "write.whole"},
    {"atleast_1d", VIEW, "write.whole"},
    {"atleast_2d", VIEW, "write.whole"},
    {"atleast_3d", VIEW, "write.whole"},
    {"conj", VIEW, "write.whole"},
    {"conj_physical", VIEW, "write.whole"},
    {"detach", VIEW, "write.whole"},
    {"lift_fresh", VIEW, "write.whole"},
    {"positive", VIEW, "write.whole"},
    {"real", VIEW, "write.whole"},
    {"resolve_conj", VIEW, "write.whole"},
    {"resolve_neg", VIEW, "write.whole"},
    {"squeeze", VIEW, "write.whole"},
    {"unflatten", VIEW, "write.whole"},
    {"unsqueeze", VIEW, "write.whole"},
    {"view", VIEW, "write.whole"},
    {"view_as", VIEW, "write.whole"},
    {"_reshape_alias", VIEW, "write.whole"},
    {"_unsafe_view", VIEW, "write.whole"},
    {"flatten", RESHAPED, "write.whole"},
    {"ravel", RESHAPED, "write.whole"},
    {"reshape", RESHAPED, "write.whole"},
    {"reshape_as", RESHAPED, "write.whole"},
    {"contiguous", ROW_MAJOR, "write.whole"},
    {"_autocast_to_full_precision", SAME_TYPE, "write.whole"},
    {"_autocast_to_reduced_precision", SAME_TYPE, "write.whole"},
    {"bfloat16", SAME_TYPE, "write.whole"},
    {"bool", SAME_TYPE, "write.whole"},
    {"byte", SAME_TYPE, "write.whole"},
    {"char", SAME_TYPE, "write.whole"},
    {"double", SAME_TYPE, "write.whole"},
    {"float", SAME_TYPE, "write.whole"},
    {"half", SAME_TYPE, "write.whole"},
    {"int", SAME_TYPE, "write.whole"},
    {"long", SAME_TYPE, "write.whole"},
    {"short", SAME_TYPE, "write.whole"},
    {"to", SAME_TYPE, "write.whole"},
    {"type_as", SAME_TYPE, "write.whole"},
    {"alpha_dropout", DROPPED, "write.whole"},
    {"dropout", DROPPED, "write.whole"},
    {"feature_alpha_dropout", DROPPED, "write.whole"},
    {"feature_dropout", DROPPED, "write.whole"},
    {"narrow", VIEW, "write.narrow"},
    {"permute", VIEW, "write.permute"},
    {"select", VIEW, "write.select"},
    {"slice", VIEW, "write.slice"},
    {"transpose", VIEW, "write.transpose"},
    {"adjoint", VIEW, NULL},
    {"as_strided", VIEW, NULL},
    {"broadcast_to", VIEW, NULL},
    {"chunk", VIEW, NULL},
    {"diagonal", VIEW, NULL},
    {"dsplit", VIEW, NULL},
    {"expand", VIEW, NULL},
    {"expand_as", VIEW, NULL},
    {"hsplit", VIEW, NULL},
    {"imag", VIEW, NULL},
    {"linalg_diagonal", VIEW, NULL},
    {"mH", VIEW, NULL},
    {"mT", VIEW, NULL},
    {"matrix_H", VIEW, NULL},
    {"moveaxis", VIEW, NULL},
    {"movedim", VIEW, NULL},
    {"numpy_T", VIEW, NULL},
    {"split", VIEW, NULL},
    {"split_with_sizes", VIEW, NULL},
    {"swapaxes", VIEW, NULL},
    {"swapdims", VIEW, NULL},
    {"t", VIEW, NULL},
    {"tensor_split", VIEW, NULL},
    {"unbind", VIEW, NULL},
    {"unfold", VIEW, NULL},
    {"unsafe_chunk", VIEW, NULL},
    {"unsafe_split", VIEW, NULL},
    {"unsafe_split_with_sizes", VIEW, NULL},
    {"view_as_complex", VIEW, NULL},
    {"view_as_real", VIEW, NULL},
    {"vsplit", VIEW, NULL},
    {"broadcast_tensors", UNSURE, NULL},
    {"cartesian_prod", UNSURE, NULL},
    {"channel_shuffle", UNSURE, NULL},
    {"einsum", UNSURE, NULL},
    {"meshgrid", UNSURE, NULL},
    {"native_channel_shuffle", UNSURE, NULL},
    {"sum_to_size", UNSURE, NULL},
};

static const struct sharing_row *row_of(const char *target) {
    if (strncmp(target, "aten.", 5) != 0) return NULL;
    target += 5;
    size_t length = strcspn(target, ".");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strlen(rows[i].name) == length && !strncmp(rows[i].name, target, length))
            return &rows[i];
    return NULL;
}

const char *exported_write_row(const char *target) {
    const struct sharing_row *row = row_of(target);
    return row ? row->write : NULL;
}

static const tri_pt2_argument *argument_of(const tri_pt2_node *node, const char *name) {
    for (int i = 0; i < node->argument_count; i++)
        if (!strcmp(node->arguments[i].name, name)) return &node->arguments[i];
    return NULL;
}

static bool is_given(const tri_pt2_node *node, const char *name) {
    const tri_pt2_argument *a = argument_of(node, name);
    return a && a->kind != TRI_PT2_NONE;
}

// Products wrap: the sizes of a damaged file may be any numbers.
static uint64_t count_of(const tri_pt2_value *v) {
    uint64_t count = 1;
    for (int i = 0; i < v->rank; i++) count *= (uint64_t)v->examples[i];
    return count;
}

static bool is_row_major(const tri_pt2_value *v) {
    uint64_t step = 1;
    bool is = true;
    if (count_of(v) == 0) return true;
    for (int i = v->rank - 1; i >= 0; i--) {
        is = is && (v->examples[i] == 1 || (uint64_t)v->strides[i] == step);
        step *= (uint64_t)v->examples[i];
    }
    return is;
}

// Whether sizes and strides of `from` allow a view with the sizes of `to`: axes that lie one in the
// other make a chunk, and each axis of `to` has to be within a chunk (PyTorch: computeStride).
static bool fits(const tri_pt2_value *from, const tri_pt2_value *to) {
    const int64_t *sizes = from->examples, *strides = from->strides;
    int at = to->rank - 1;
    uint64_t count = 1, made = 1, step = from->rank ? (uint64_t)strides[from->rank - 1] : 1;
    if (count_of(from) == 0) return true;
    for (int i = from->rank - 1; i >= 0; i--) {
        count *= (uint64_t)sizes[i];
        if (i > 0 && (sizes[i - 1] == 1 || (uint64_t)strides[i - 1] == count * step)) continue;
        for (; at >= 0 && (made < count || to->examples[at] == 1); at--)
            made *= (uint64_t)to->examples[at];
        if (made != count) return false;
        if (i > 0) step = (uint64_t)strides[i - 1];
        count = made = 1;
    }
    return at < 0 || from->rank == 0;
}

// Whether an axis of size 1 lies as it would not if it were longer and the tensor in row-major
// order.
static bool is_loose(const tri_pt2_value *v) {
    for (int i = 0; i < v->rank; i++) {
        uint64_t step =
            i + 1 < v->rank ? (uint64_t)v->examples[i + 1] * (uint64_t)v->strides[i + 1] : 1;
        if (v->examples[i] == 1 && (uint64_t)v->strides[i] != step) return true;
    }
    return false;
}

// Whether the network was exported with one sample and not with dynamic_shapes: of more samples,
// what it reshapes may be a copy.
static bool has_one_sample(const tri_pt2 *file) {
    for (int i = 0; i < file->input_count; i++) {
        const tri_pt2_port *port = &file->inputs[i];
        if (port->role != TRI_PT2_INPUT || port->argument.kind != TRI_PT2_VALUE) continue;
        const tri_pt2_value *v = &file->values[port->argument.number];
        if (v->rank > 0 && v->sizes[0] == 1) return true;
    }
    return false;
}

static exported_sharing sure(bool shares) { return shares ? EXPORTED_SHARES : EXPORTED_OWN; }

static exported_sharing of_dropout(const tri_pt2_node *node) {
    const tri_pt2_argument *p = argument_of(node, "p"), *train = argument_of(node, "train");
    if (!p || !train || train->kind != TRI_PT2_BOOL) return EXPORTED_MAY_SHARE;
    return sure(p->real == 0 || !train->number);
}

exported_sharing exported_sharing_of(const tri_pt2 *file, const tri_pt2_node *node) {
    const struct sharing_row *row = row_of(node->target);
    const tri_pt2_argument *in = node->arguments, *out = node->outputs, *copy;
    if (!row) return EXPORTED_OWN;
    bool is_of_one = node->argument_count > 0 && in->kind == TRI_PT2_VALUE;
    if (row->kind == UNSURE || !is_of_one) return EXPORTED_MAY_SHARE;
    if (row->kind == VIEW) return EXPORTED_SHARES;
    if (row->kind == DROPPED) return of_dropout(node);
    if (node->output_count != 1 || out->kind != TRI_PT2_VALUE) return EXPORTED_MAY_SHARE;
    const tri_pt2_value *from = &file->values[in->number], *to = &file->values[out->number];
    if (row->kind != SAME_TYPE && (!from->strides || (is_loose(from) && has_one_sample(file))))
        return EXPORTED_MAY_SHARE;
    switch (row->kind) {
    case RESHAPED:
        if (!to->strides || count_of(from) != count_of(to)) return EXPORTED_MAY_SHARE;
        return sure(fits(from, to));
    case ROW_MAJOR:
        return is_given(node, "memory_format") ? EXPORTED_MAY_SHARE : sure(is_row_major(from));
    default:
        copy = argument_of(node, "copy");
        if (from->dtype != to->dtype || (copy && copy->kind == TRI_PT2_BOOL && copy->number))
            return EXPORTED_OWN;
        return is_given(node, "memory_format") ? EXPORTED_MAY_SHARE : EXPORTED_SHARES;
    }
}
