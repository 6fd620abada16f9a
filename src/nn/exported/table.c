// Finds how an operation of ATen is computed. The rows stand in the files of this folder, with the
// functions that compute them.
#include "nn/exported/build.h"

#include <string.h>
#include <trireme/functions.h>

static const exported_row *const tables[] = {
    exported_shape_rows,     exported_layer_rows,    exported_pool_rows, exported_recurrent_rows,
    exported_reduction_rows, exported_creation_rows, exported_loss_rows, exported_function_rows,
    exported_index_rows,     exported_fused_rows,
};

// Functions of one tensor, by their names in PyTorch: the list has others too, whose rows stand in
// the tables above and are found first.
#define X(name, declared, values, parameters, expression, doc)                                     \
    FORMULA("aten." #name, sizeof(#values) > sizeof("(x)") ? "self other" : "self", expression),
static const exported_row listed[] = {TRI_FUNCTION_LIST(X){NULL, NULL, NULL, NULL, NULL, false}};
#undef X

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
    const exported_row *row = row_of(name);
    if (row || !overload) return row;
    *overload = 0;
    return row_of(name);
}
