// Operations that join tensors, cut them into parts, and take triangles and diagonals of them.
#include "nn/exported/build.h"

#include <trireme/functions.h>
#include <trireme/more_functions.h>
#include <trireme/nn.h>

static void concat(exported_call *c) {
    exported_value *values =
        TRI_NEW_ARRAY(c->build->graph->arena, exported_value, EXPORTED_MAX_PARTS);
    int count = exported_list(c, 0, values, EXPORTED_MAX_PARTS), kept = 0;
    // What has no elements is left out, a tensor [0] whatever the shape of the others.
    for (int k = 0; k < count; k++)
        if (exported_count(c->build, &values[k]) > 0 || (k == count - 1 && kept == 0))
            values[kept++] = values[k];
    if (kept == 0) {
        exported_fail(c, "there is nothing to join");
        return;
    }
    int axis = exported_axis(c, exported_int(c, 1), exported_rank(c->build, &values[0]));
    exported_refit_repeated(c->build, values, kept, axis);
    exported_give(c, exported_concat(c->build, values, kept, axis));
}

static void stack(exported_call *c) {
    exported_build *b = c->build;
    exported_value *values = TRI_NEW_ARRAY(b->graph->arena, exported_value, EXPORTED_MAX_PARTS);
    int count = exported_list(c, 0, values, EXPORTED_MAX_PARTS);
    int rank = count ? exported_rank(b, &values[0]) : 0,
        axis = exported_axis(c, exported_int(c, 1), rank + 1);
    for (int k = 0; k < count; k++) {
        int64_t sizes[EXPORTED_MAX_RANK + 1];
        for (int i = 0; i <= rank; i++)
            sizes[i] = i == axis ? 1 : exported_size(b, &values[k], i - (i > axis));
        values[k] = exported_reshape(b, values[k], sizes, rank + 1);
    }
    exported_refit_repeated(b, values, count, axis);
    exported_give(c, exported_concat(b, values, count, axis));
}

// Joins tensors along an axis, each with at least `least` axes: new ones come in front, or behind a
// vector where it is a column or stands for a depth.
static void join_along(exported_call *c, int axis, int least, bool is_behind) {
    exported_build *b = c->build;
    exported_value *values = TRI_NEW_ARRAY(b->graph->arena, exported_value, EXPORTED_MAX_PARTS);
    int count = exported_list(c, 0, values, EXPORTED_MAX_PARTS);
    for (int k = 0; k < count; k++) {
        int64_t sizes[EXPORTED_MAX_RANK];
        int rank = exported_rank(b, &values[k]);
        for (int i = 0; i < rank || i < least; i++) sizes[i] = 1;
        int first = rank >= least ? 0 : is_behind ? (least == 3 && rank < 2 ? 1 : 0) : least - rank;
        for (int i = 0; i < rank; i++) sizes[first + i] = exported_size(b, &values[k], i);
        if (rank < least) values[k] = exported_reshape(b, values[k], sizes, least);
    }
    if (count == 0) return;
    if (axis >= exported_rank(b, &values[0])) axis = 0; // vectors side by side
    exported_give(c, exported_concat(b, values, count, axis));
}

static void hstack(exported_call *c) { join_along(c, 1, 1, false); }
static void vstack(exported_call *c) { join_along(c, 0, 2, false); }
static void dstack(exported_call *c) { join_along(c, 2, 3, true); }
static void column_stack(exported_call *c) { join_along(c, 1, 2, true); }

// Parts along an axis that begin at the numbers of a list, or of nearly equal size: the first ones
// are larger by 1.
static void cut_at(exported_call *c, int axis, const int64_t *ends, int count) {
    exported_value x = exported_operand(c, 0);
    int64_t first = 0, size = exported_size(c->build, &x, axis);
    for (int k = 0; k <= count; k++) {
        int64_t end = k == count ? size : ends[k] < 0 ? ends[k] + size : ends[k];
        end = end > size ? size : end;
        exported_give_at(c, k,
                         exported_slice(c->build, x, axis, first, end < first ? first : end, 1));
        first = end;
    }
}

static void tensor_split(exported_call *c) {
    int64_t *ends = TRI_NEW_ARRAY(c->build->graph->arena, int64_t, EXPORTED_MAX_PARTS);
    exported_value x = exported_operand(c, 0);
    int axis = exported_axis_of(c, 2), count = 0;
    if (c->arguments[1].kind == TRI_PT2_LIST) {
        count = exported_ints(c, 1, ends, EXPORTED_MAX_PARTS);
    } else {
        int64_t parts = exported_int(c, 1), size = exported_size(c->build, &x, axis), end = 0;
        if (parts < 1 || parts > EXPORTED_MAX_PARTS) {
            exported_fail(c, "a tensor is cut into 1 to %d parts", EXPORTED_MAX_PARTS);
            return;
        }
        for (; count < parts - 1; count++)
            ends[count] = end += size / parts + (count < size % parts);
    }
    cut_at(c, axis, ends, count);
}

// Each vector repeated to the sizes of all.
static void meshgrid(exported_call *c) {
    exported_build *b = c->build;
    exported_value values[EXPORTED_MAX_RANK];
    int64_t sizes[EXPORTED_MAX_RANK], own[EXPORTED_MAX_RANK];
    int count = exported_list(c, 0, values, EXPORTED_MAX_RANK), order[EXPORTED_MAX_RANK];
    bool turns = exported_text(c, 1)[0] == 'x' && count > 1; // "xy": the first two axes exchanged
    for (int k = 0; k < count; k++) sizes[k] = exported_count(b, &values[k]);
    for (int k = 0; k < count; k++) {
        for (int i = 0; i < count; i++) own[i] = i == k ? sizes[k] : 1;
        exported_value grid = exported_reshape(b, values[k], own, count);
        grid = exported_expand(b, grid, sizes, count);
        for (int i = 0; i < count; i++) order[i] = turns && i < 2 ? 1 - i : i;
        exported_give_at(c, k, turns ? exported_permute(b, grid, order) : grid);
    }
}

// 1 in the lower triangle of the last two axes, or in the upper one.
static void triangle(exported_call *c, const char *formula) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0);
    double diagonal = (double)exported_int(c, 1), *row, *column;
    int rank = exported_rank(b, &x);
    int64_t rows = exported_size(b, &x, rank - 2), columns = exported_size(b, &x, rank - 1);
    exported_value in[] = {x, exported_host_new(b, (int64_t[]){rows, 1}, 2, TRI_PT2_LONG, &row),
                           exported_host_new(b, (int64_t[]){columns}, 1, TRI_PT2_LONG, &column)};
    if (in[1].kind != EXPORTED_HOST || in[2].kind != EXPORTED_HOST) return;
    for (int64_t i = 0; i < rows; i++) row[i] = (double)i;
    for (int64_t i = 0; i < columns; i++) column[i] = (double)i;
    exported_value mask = exported_map_text(b, formula, &diagonal, in + 1, 2, TRI_PT2_BOOLEAN);
    mask.name = tri_name(b->graph, "%s.mask", x.name ? x.name : "triangle");
    exported_value both[] = {x, mask};
    exported_give(c, exported_map_text(b, "x, m -> m ? x : 0", NULL, both, 2, x.dtype));
}

static void tril(exported_call *c) { triangle(c, "i, j, d = 0 -> j <= i + d"); }
static void triu(exported_call *c) { triangle(c, "i, j, d = 0 -> j >= i + d"); }

static void diff(exported_call *c) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0);
    int axis = exported_axis_of(c, 2);
    exported_value parts[3];
    int count = 0;
    if (!exported_is_none(c, 3)) parts[count++] = exported_operand(c, 3);
    parts[count++] = x;
    if (!exported_is_none(c, 4)) parts[count++] = exported_operand(c, 4);
    if (count > 1) x = exported_concat(b, parts, count, axis);
    for (int64_t k = exported_int(c, 1); k > 0; k--) {
        int64_t size = exported_size(b, &x, axis);
        exported_value two[] = {exported_slice(b, x, axis, 1, size, 1),
                                exported_slice(b, x, axis, 0, size - 1, 1)};
        x = exported_map_text(b, "a, b -> a - b", NULL, two, 2, x.dtype);
    }
    exported_give(c, x);
}

// Matrices along the diagonal, with zeros elsewhere.
static void block_diag(exported_call *c) {
    exported_build *b = c->build;
    exported_value *values = TRI_NEW_ARRAY(b->graph->arena, exported_value, EXPORTED_MAX_PARTS);
    int count = exported_list(c, 0, values, EXPORTED_MAX_PARTS);
    int64_t width = 0, at = 0;
    for (int k = 0; k < count; k++) {
        int rank = exported_rank(b, &values[k]);
        if (rank < 2)
            values[k] = exported_reshape(
                b, values[k], (int64_t[]){1, rank ? exported_size(b, &values[k], 0) : 1}, 2);
        width += exported_size(b, &values[k], 1);
    }
    for (int k = 0; k < count; k++) {
        int64_t own = exported_size(b, &values[k], 1);
        tri_value part = exported_as_graph(b, &values[k]);
        values[k] =
            exported_of_graph(tri_pad(b->graph, part, 1, at, width - at - own), values[k].dtype);
        at += own;
    }
    if (count > 0) exported_give(c, exported_concat(b, values, count, 0));
}

// The integral along an axis by trapezoids of one width.
static void trapezoid(exported_call *c) {
    exported_give_graph(c, tri_trapezoid(c->build->graph, exported_tensor(c, 0),
                                         exported_real(c, 1), exported_axis_of(c, 2)));
}

static tri_value as_is(exported_call *c, int k) {
    exported_value x = exported_operand(c, k);
    return exported_as_graph(c->build, &x);
}

static void diagonal(exported_call *c) {
    exported_give_graph(c, tri_diagonal(c->build->graph, as_is(c, 0), exported_int(c, 1),
                                        (int)exported_int(c, 2), (int)exported_int(c, 3)));
}

static void diag_embed(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    int rank = exported_rank(c->build, &x) + 1, one = exported_axis(c, exported_int(c, 2), rank),
        two = exported_axis(c, exported_int(c, 3), rank);
    if (one != rank - 2 || two != rank - 1)
        exported_fail(c, "a diagonal of other axes than the last two is not supported");
    exported_give_graph(c, tri_diag_embed(c->build->graph, as_is(c, 0), exported_int(c, 1)));
}

// The diagonal of a matrix, or the matrix of a diagonal.
static void diag(exported_call *c) {
    exported_value x = exported_operand(c, 0);
    tri_graph *g = c->build->graph;
    tri_value value = exported_as_graph(c->build, &x);
    exported_give_graph(c, exported_rank(c->build, &x) == 1
                               ? tri_diag_embed(g, value, exported_int(c, 1))
                               : tri_diagonal(g, value, exported_int(c, 1), 0, 1));
}

static void trace(exported_call *c) {
    exported_give_graph(c, tri_trace(c->build->graph, exported_tensor(c, 0)));
}

const exported_row exported_join_rows[] = {
    ROW("aten.cat", "tensors dim=0", concat),
    ROW("aten.concat", "tensors dim=0", concat),
    ROW("aten.concatenate", "tensors dim=0", concat),
    ROW("aten.stack", "tensors dim=0", stack),
    ROW("aten.hstack", "tensors", hstack),
    ROW("aten.vstack", "tensors", vstack),
    ROW("aten.dstack", "tensors", dstack),
    ROW("aten.column_stack", "tensors", column_stack),
    ROW("aten.tensor_split.sections", "self sections dim=0", tensor_split),
    ROW("aten.tensor_split.indices", "self indices dim=0", tensor_split),
    ROW("aten.meshgrid", "tensors indexing='ij'", meshgrid),
    ROW("aten.block_diag", "tensors", block_diag),
    ROW("aten.trapezoid.dx", "y dx=1 dim=-1", trapezoid),
    ROW("aten.tril", "self diagonal=0", tril),
    ROW("aten.triu", "self diagonal=0", triu),
    ROW("aten.diff", "self n=1 dim=-1 prepend=None append=None", diff),
    ROW("aten.diagonal", "self offset=0 dim1=0 dim2=1", diagonal),
    ROW("aten.linalg_diagonal", "A offset=0 dim1=-2 dim2=-1", diagonal),
    ROW("aten.diag_embed", "self offset=0 dim1=-2 dim2=-1", diag_embed),
    ROW("aten.diag", "self diagonal=0", diag),
    ROW("aten.trace", "self", trace),
    {NULL, NULL, NULL, NULL, NULL, false},
};
