// Finds how an operation of ATen is computed. The rows stand in the files of this folder, with the
// functions that compute them.
#include "nn/exported/build.h"

#include <string.h>
#include <trireme/functions.h>

static const exported_row *const tables[] = {
    exported_shape_rows,    exported_join_rows,    exported_product_rows,   exported_order_rows,
    exported_image_rows,    exported_scatter_rows, exported_table_rows,     exported_write_rows,
    exported_layer_rows,    exported_pool_rows,    exported_recurrent_rows, exported_reduction_rows,
    exported_creation_rows, exported_loss_rows,    exported_function_rows,  exported_index_rows,
    exported_linear_rows,   exported_fused_rows,   exported_own_loss_rows,
};

// Functions of one tensor, by their names in PyTorch: the list has others too, whose rows stand in
// the tables above and are found first.
#define X(name, declared, values, parameters, expression, doc)                                     \
    FORMULA("aten." #name, sizeof(#values) > sizeof("(x)") ? "self other" : "self", expression),
static const exported_row listed[] = {TRI_FUNCTION_LIST(X){NULL, NULL, NULL, NULL, NULL, false}};
#undef X

// Operations that are others by another name.
static const struct {
    const char *name, *is;
} others[] = {
    {"absolute", "abs"},
    {"adjoint", "mT"},
    {"arccos", "acos"},
    {"arccosh", "acosh"},
    {"arcsin", "asin"},
    {"arcsinh", "asinh"},
    {"arctan", "atan"},
    {"arctan2", "atan2"},
    {"arctanh", "atanh"},
    {"clip", "clamp"},
    {"divide", "div"},
    {"fix", "trunc"},
    {"ger", "outer"},
    {"greater", "gt"},
    {"greater_equal", "ge"},
    {"less", "lt"},
    {"less_equal", "le"},
    {"linalg_matmul", "matmul"},
    {"mH", "mT"},
    {"matrix_H", "mT"},
    {"moveaxis", "movedim"},
    {"multiply", "mul"},
    {"native_channel_shuffle", "channel_shuffle"},
    {"negative", "neg"},
    {"not_equal", "ne"},
    {"row_stack", "vstack"},
    {"sgn", "sign"},
    {"special_digamma", "digamma"},
    {"special_erf", "erf"},
    {"special_erfc", "erfc"},
    {"special_erfinv", "erfinv"},
    {"special_exp2", "exp2"},
    {"special_expit", "sigmoid"},
    {"special_expm1", "expm1"},
    {"special_gammaln", "lgamma"},
    {"special_log1p", "log1p"},
    {"special_log_softmax", "log_softmax"},
    {"special_logsumexp", "logsumexp"},
    {"special_ndtr", "normal_cdf"},
    {"special_sinc", "sinc"},
    {"special_softmax", "softmax"},
    {"special_xlogy", "xlogy"},
    {"subtract", "sub"},
    {"swapdims", "transpose"},
    {"true_divide", "div"},
    {"unsafe_chunk", "chunk"},
    {"unsafe_split", "split"},
    {"unsafe_split_with_sizes", "split_with_sizes"},
};

// The name of an operation, "aten.NAME.OVERLOAD", with its other name in its place.
static char *by_other_name(tri_arena *arena, const char *target) {
    const char *base = strchr(target, '.'), *end = base ? strchr(++base, '.') : NULL;
    size_t length = end ? (size_t)(end - base) : 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strlen(others[i].name) == length && !strncmp(others[i].name, base, length))
            return tri_arena_printf(arena, "aten.%s%s", others[i].is, end);
    return tri_arena_strdup(arena, target);
}

static const exported_row *row_of(const char *name) {
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const exported_row *row = tables[t]; row->name; row++)
            if (!strcmp(row->name, name)) return row;
    for (const exported_row *row = listed; row->name; row++)
        if (!strcmp(row->name, name)) return row;
    return NULL;
}

const exported_row *exported_find_row(tri_arena *arena, const char *target) {
    char *name = tri_arena_strdup(arena, target);
    char *base = strchr(name, '.'), *overload = base ? strchr(base + 1, '.') : NULL;
    // In place: "aten.add_.Tensor" is the row "aten.add.Tensor"; "aten.__and__.Tensor" is not.
    if (overload && overload[-1] == '_' && overload[-2] != '_') {
        memmove(overload - 1, overload, strlen(overload) + 1);
        overload--;
    }
    name = by_other_name(arena, name);
    overload = strchr(name, '.');
    if (overload) overload = strchr(overload + 1, '.');
    const exported_row *row = row_of(name);
    if (row || !overload) return row;
    *overload = 0;
    return row_of(name);
}
