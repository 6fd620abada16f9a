// What is written where an index says, and what a view's base becomes when the view is written.
#include "nn/exported/build.h"

#include <trireme/functions.h>
#include <trireme/more_functions.h>
#include <trireme/nn.h>

// x with one value where an index along an axis says.
static void index_fill(exported_call *c) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0), index = exported_operand(c, 2);
    int axis = exported_axis_of(c, 1), rank = exported_rank(b, &x);
    int64_t size = exported_size(b, &x, axis), sizes[EXPORTED_MAX_RANK];
    if (index.kind == EXPORTED_GRAPH) {
        index = exported_from_zero(c, index, size, axis);
        exported_give_graph(c, tri_index_fill(b->graph, exported_as_graph(b, &x), axis, index.graph,
                                              exported_real(c, 3)));
        return;
    }
    double *data;
    for (int i = 0; i < rank; i++) sizes[i] = i == axis ? size : 1;
    exported_value in[] = {x, exported_host_new(b, sizes, rank, TRI_PT2_BOOLEAN, &data),
                           exported_operand(c, 3)};
    index = exported_from_zero(c, index, size, axis);
    if (in[1].kind != EXPORTED_HOST || index.kind != EXPORTED_HOST) return;
    // All of an axis is filled with one number, so that the batch is no part of a constant.
    if (exported_counts(b, index, &x, axis)) in[1] = exported_of_number(1, TRI_PT2_BOOLEAN);
    for (int64_t i = 0; i < exported_count(b, &index); i++) {
        int64_t at = (int64_t)exported_host_at(&index.host, &i);
        if (at >= 0 && at < size) data[at] = 1;
    }
    in[1].name = tri_name(b->graph, "%s.filled", exported_result_name(c));
    exported_give(c, exported_map_text(b, "x, m, v -> m ? v : x", NULL, in, 3, x.dtype));
}

static bool is_mask(const exported_value *index) { return index->dtype == TRI_PT2_BOOLEAN; }

// Where a mask is set, `source`, which is the same for all of these places, in place of x or added
// to it. False: it is not the same.
static bool put_by_mask(exported_call *c, exported_value mask, exported_value source, bool adds) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0);
    int rank = exported_rank(b, &x), places = exported_rank(b, &mask),
        own = exported_rank(b, &source);
    int64_t sizes[EXPORTED_MAX_RANK];
    if (exported_count(b, &source) == 1) {
        source = exported_reshape(b, source, NULL, 0);
    } else if (own > 0 && own == rank - places + 1 && exported_size(b, &source, 0) == 1) {
        for (int i = 1; i < own; i++) sizes[i - 1] = exported_size(b, &source, i);
        source = exported_reshape(b, source, sizes, own - 1);
    } else if (own > rank - places) {
        return false;
    }
    for (int i = 0; i < rank; i++) sizes[i] = i < places ? exported_size(b, &mask, i) : 1;
    exported_value in[] = {x, exported_reshape(b, mask, sizes, rank), source};
    const char *formula = adds ? "x, m, v -> m ? x + v : x" : "x, m, v -> m ? v : x";
    exported_give(c, exported_map_text(b, formula, NULL, in, 3, x.dtype));
    return true;
}

static tri_value put_along(exported_call *c, exported_value x, int axis, exported_value index,
                           exported_value source, bool adds) {
    tri_graph *g = c->build->graph;
    tri_value to = exported_as_graph(c->build, &x), at = exported_as_graph(c->build, &index),
              from = exported_type_is_float(x.dtype) ? exported_as_float(c->build, &source)
                                                     : exported_as_graph(c->build, &source);
    return adds ? tri_index_add(g, to, axis, at, from)
                : exported_set_along(g, tri_index_copy, to, axis, at, from);
}

// x[arange(N), index]: in each sample elsewhere. index and source are [N, places, …].
static tri_value put_of_samples(exported_call *c, exported_value x, exported_value index,
                                exported_value source, bool adds) {
    exported_build *b = c->build;
    int rank = exported_rank(b, &x);
    int64_t sizes[EXPORTED_MAX_RANK];
    for (int i = 0; i < rank; i++) sizes[i] = i < 2 ? exported_size(b, &index, i) : 1;
    index = exported_reshape(b, index, sizes, rank);
    for (int i = 2; i < rank; i++) sizes[i] = exported_size(b, &x, i);
    index = exported_expand(b, index, sizes, rank);
    tri_value to = exported_as_graph(b, &x), at = exported_as_graph(b, &index),
              from = exported_type_is_float(x.dtype) ? exported_as_float(b, &source)
                                                     : exported_as_graph(b, &source);
    return adds ? tri_scatter_add(b->graph, to, 1, at, from)
                : exported_set_along(b->graph, tri_scatter, to, 1, at, from);
}

// The axes of x that are indexed come first, then the others; of the source the axes of the index.
static void to_front(exported_call *c, int first, int used, int places, exported_value *x,
                     exported_value *source, int *back) {
    exported_build *b = c->build;
    int rank = exported_rank(b, x), order[EXPORTED_MAX_RANK];
    for (int i = 0; i < rank; i++)
        order[i] = i < used ? first + i : i < used + first ? i - used : i;
    for (int i = 0; i < rank; i++) back[order[i]] = i;
    *x = exported_permute(b, *x, order);
    rank += places - used;
    for (int i = 0; i < rank; i++)
        order[i] = i < places ? first + i : i < places + first ? i - places : i;
    *source = exported_permute(b, *source, order);
}

// A number expanded to the larger sizes of its own and of another index of at least its rank.
static exported_value widened(exported_build *b, exported_value number,
                              const exported_value *other) {
    int64_t sizes[EXPORTED_MAX_RANK];
    int wide = exported_rank(b, other), more = wide - exported_rank(b, &number);
    for (int i = 0; i < wide; i++) {
        int64_t own = i < more ? 1 : exported_size(b, &number, i - more);
        sizes[i] = own > exported_size(b, other, i) ? own : exported_size(b, other, i);
    }
    return exported_expand(b, number, sizes, wide);
}

// x with values where an index says, which are added there or replace what is there: a mask, or
// tensors of numbers along axes that are side by side.
static void index_put(exported_call *c) {
    exported_build *b = c->build;
    exported_value index[2 * EXPORTED_MAX_RANK], x = exported_operand(c, 0),
                                                 source = exported_operand(c, 2);
    int count = exported_indices(c, 1, index), rank = exported_rank(b, &x), first = 0;
    bool adds = exported_bool(c, 3);
    int64_t sizes[2 * EXPORTED_MAX_RANK], own[EXPORTED_MAX_RANK];
    while (first < count && index[first].kind == EXPORTED_NOTHING) first++;
    int used = count - first;
    if (used < 1 || count > rank) {
        exported_fail(c, "%d indices do not fit %d axes", used, rank);
        return;
    }
    for (int k = first; k < count; k++) index[k] = exported_refit_index(c, index[k], &x, k);
    if (first == 0 && used == 1 && is_mask(index)) {
        if (!put_by_mask(c, index[0], source, adds))
            exported_fail(c, "what is written by a mask has to be the same everywhere");
        return;
    }
    exported_value number = exported_of_number(0, TRI_PT2_LONG);
    bool is_of_samples = used == 2 && first == 0 && !is_mask(&index[1]) &&
                         exported_rank(b, &index[0]) >= exported_rank(b, &index[1]) &&
                         exported_size(b, &index[0], 0) == exported_size(b, &x, 0) &&
                         exported_counts(b, index[0], &x, 0);
    for (int k = first; k < count; k++) {
        if (index[k].kind == EXPORTED_NOTHING || is_mask(&index[k])) {
            exported_fail(c, "a write is supported by a mask with one value, and by tensors of "
                             "integers for axes that are side by side");
            return;
        }
        double size = (double)exported_size(b, &x, k);
        exported_value two[] = {number, exported_from_zero(c, index[k], (int64_t)size, k)};
        if (is_of_samples && k == 0) continue;
        number = exported_map_text(b, "a, i, n = 1 -> n * a + i", &size, two, 2, TRI_PT2_LONG);
    }
    if (is_of_samples) number = widened(b, number, &index[0]);
    number.name = tri_name(b->graph, "%s.places", exported_result_name(c));
    int places = exported_rank(b, &number), wide = 0, back[EXPORTED_MAX_RANK];
    for (int i = 0; i < first; i++) sizes[wide++] = exported_size(b, &x, i);
    for (int i = 0; i < places; i++) sizes[wide++] = exported_size(b, &number, i);
    for (int i = count; i < rank; i++) sizes[wide++] = exported_size(b, &x, i);
    for (int i = 0; i < rank; i++) own[i] = exported_size(b, &x, i);
    source = exported_expand(b, source, sizes, wide);
    if (is_of_samples) {
        int64_t flat[EXPORTED_MAX_RANK] = {own[0], -1};
        for (int i = 2; i < rank; i++) flat[i] = own[i];
        source = exported_reshape(b, source, flat, rank);
        number = exported_reshape(b, number, flat, 2);
        exported_give_graph(c, put_of_samples(c, x, number, source, adds));
        return;
    }
    if (used == 1 && places == 1) {
        exported_give_graph(c, put_along(c, x, first, number, source, adds));
        return;
    }
    to_front(c, first, used, places, &x, &source, back);
    int64_t rows[EXPORTED_MAX_RANK] = {-1}, sized[EXPORTED_MAX_RANK] = {0};
    for (int i = 0; i < rank; i++) sized[i] = exported_size(b, &x, i);
    for (int i = used; i < rank; i++) rows[1 + i - used] = sized[i];
    x = exported_reshape(b, x, rows, 1 + rank - used);
    source = exported_reshape(b, source, rows, 1 + rank - used);
    number = exported_reshape(b, number, (const int64_t[]){-1}, 1);
    exported_value y = exported_of_graph(put_along(c, x, 0, number, source, adds), x.dtype);
    exported_give(c, exported_permute(b, exported_reshape(b, y, sized, rank), back));
}

// Writes `source` over every step-th element from `first` to `end` along an axis.
static void write_part(exported_call *c, int axis, int64_t first, int64_t end, int64_t step) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0), source = exported_operand(c, 1),
                   *parts = TRI_NEW_ARRAY(b->graph->arena, exported_value, EXPORTED_MAX_PARTS);
    int64_t size = exported_size(b, &x, axis), at = 0, taken = 0, width = step == 1 ? INT64_MAX : 1;
    int count = 0;
    if (first < 0) first += size;
    if (end < 0) end += size;
    first = first < 0 ? 0 : first;
    end = end > size ? size : end;
    if (step < 1 || (end - first) / (step == 1 ? size + 1 : step) > EXPORTED_MAX_PARTS / 2 - 2) {
        exported_fail(c, "a write into more than %d parts", EXPORTED_MAX_PARTS / 2 - 2);
        return;
    }
    for (int64_t i = first; i < end; i += step == 1 ? size : step) {
        if (i > at) parts[count++] = exported_slice(b, x, axis, at, i, 1);
        parts[count++] =
            step == 1 ? source : exported_slice(b, source, axis, taken, taken + width, 1);
        taken++;
        at = step == 1 ? end : i + 1;
    }
    if (at < size) parts[count++] = exported_slice(b, x, axis, at, size, 1);
    exported_give(c, count == 1 ? parts[0] : exported_concat(b, parts, count, axis));
}

// self source dim start end step
static void write_slice(exported_call *c) {
    int64_t first = exported_is_none(c, 3) ? 0 : exported_int(c, 3),
            end = exported_is_none(c, 4) ? INT64_MAX : exported_int(c, 4);
    write_part(c, exported_axis_of(c, 2), first, end, exported_int(c, 5));
}

static void write_narrow(exported_call *c) {
    int64_t first = exported_int(c, 3);
    write_part(c, exported_axis_of(c, 2), first, first + exported_int(c, 4), 1);
}

// The source as the tensor that it is written into is shaped.
static exported_value shaped(exported_call *c, exported_value source) {
    exported_value x = exported_operand(c, 0);
    int64_t sizes[EXPORTED_MAX_RANK];
    int rank = exported_rank(c->build, &x);
    for (int i = 0; i < rank; i++) sizes[i] = exported_size(c->build, &x, i);
    return exported_reshape(c->build, source, sizes, rank);
}

static void write_whole(exported_call *c) { exported_give(c, shaped(c, exported_operand(c, 1))); }

static void write_select(exported_call *c) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0), source = exported_operand(c, 1);
    int axis = exported_axis_of(c, 2);
    int64_t sizes[EXPORTED_MAX_RANK], size = exported_size(b, &x, axis), at = exported_int(c, 3);
    if (at < 0) at += size;
    for (int i = 0; i < exported_rank(b, &x); i++)
        sizes[i] = i == axis ? 1 : exported_size(b, &x, i);
    exported_value parts[3];
    int count = 0;
    if (at > 0) parts[count++] = exported_slice(b, x, axis, 0, at, 1);
    parts[count++] = exported_reshape(b, source, sizes, exported_rank(b, &x));
    if (at + 1 < size) parts[count++] = exported_slice(b, x, axis, at + 1, size, 1);
    exported_give(c, count == 1 ? parts[0] : exported_concat(b, parts, count, axis));
}

static void write_transpose(exported_call *c) {
    exported_value source = exported_operand(c, 1);
    int rank = exported_rank(c->build, &source), order[EXPORTED_MAX_RANK],
        one = exported_axis_of(c, 2), two = exported_axis_of(c, 3);
    for (int i = 0; i < rank; i++) order[i] = i == one ? two : i == two ? one : i;
    exported_give(c, exported_permute(c->build, source, order));
}

static void write_permute(exported_call *c) {
    exported_value source = exported_operand(c, 1);
    int64_t axes[EXPORTED_MAX_RANK];
    int rank = exported_rank(c->build, &source), order[EXPORTED_MAX_RANK] = {0},
        count = exported_ints(c, 2, axes, EXPORTED_MAX_RANK);
    for (int i = 0; i < count && i < rank; i++) order[exported_axis(c, axes[i], rank)] = i;
    exported_give(c, exported_permute(c->build, source, order));
}

// The second tensor in the first one's shape and type.
static void copy(exported_call *c) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0), source = exported_operand(c, 1);
    int64_t sizes[EXPORTED_MAX_RANK];
    int rank = exported_rank(b, &x);
    for (int i = 0; i < rank; i++) sizes[i] = exported_size(b, &x, i);
    if (exported_type_is_float(x.dtype) && source.kind == EXPORTED_GRAPH)
        source = exported_of_graph(exported_as_float(b, &source), x.dtype);
    exported_give(c, exported_expand(b, source, sizes, rank));
}

const exported_row exported_write_rows[] = {
    ROW("aten.index_fill", "self dim index value", index_fill),
    ROW("aten.index_put", "self indices values accumulate=False", index_put),
    ROW("aten.copy", "self src", copy),
    // What a view's base becomes when the view is written (views.c).
    ROW("write.slice", "self source dim=0 start=None end=None step=1", write_slice),
    ROW("write.narrow", "self source dim start length", write_narrow),
    ROW("write.select", "self source dim index", write_select),
    ROW("aten.select_scatter", "self src dim index", write_select),
    ROW("aten.slice_scatter", "self src dim=0 start=None end=None step=1", write_slice),
    ROW("write.transpose", "self source dim0 dim1", write_transpose),
    ROW("write.permute", "self source dims", write_permute),
    ROW("write.whole", "self source", write_whole),
    {NULL, NULL, NULL, NULL, NULL, false},
};
