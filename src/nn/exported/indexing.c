// Elements by their numbers: indices of one or several tensors, and what is written where an index
// says.
#include "nn/exported/build.h"

#include <trireme/functions.h>
#include <trireme/more_functions.h>
#include <trireme/nn.h>

// How many elements an index of several axes has, and what is read at each: all on the host.
static void index_host(exported_call *c, exported_value x, exported_value *index, int axes) {
    exported_build *b = c->build;
    int64_t sizes[EXPORTED_MAX_RANK], at[EXPORTED_MAX_RANK] = {0};
    exported_value zero = exported_of_number(0, TRI_PT2_LONG), all = index[0];
    for (int k = 1; k < axes; k++) {
        exported_value two[] = {all, index[k]};
        all = exported_map_text(b, "a, b -> 0 * (a + b)", NULL, two, 2, TRI_PT2_LONG);
    }
    if (all.kind != EXPORTED_HOST) return;
    // Repeated axes stay repeated, so that the batch is no part of a constant.
    exported_value y = {.kind = EXPORTED_HOST, .dtype = x.dtype};
    int count = all.host.rank, rest = x.host.rank - axes;
    bool repeats[EXPORTED_MAX_RANK] = {false};
    for (int i = 0; i < count; i++) sizes[i] = all.host.sizes[i];
    for (int k = 0; k < axes; k++) {
        exported_value two[] = {index[k], all, zero};
        index[k] = exported_map_text(b, "a, b, c -> a + 0 * b + c", NULL, two, 3, TRI_PT2_LONG);
    }
    for (int i = 0; i < count; i++) {
        repeats[i] = true;
        for (int k = 0; k < axes; k++)
            repeats[i] = repeats[i] && (index[k].host.strides[i] == 0 || x.host.strides[k] == 0);
    }
    if (count + rest > EXPORTED_MAX_RANK) return;
    int64_t stored[EXPORTED_MAX_RANK];
    double *data;
    for (int i = 0; i < rest; i++) sizes[count + i] = x.host.sizes[axes + i];
    for (int i = 0; i < count + rest; i++) stored[i] = i < count && repeats[i] ? 1 : sizes[i];
    y = exported_host_new(b, stored, count + rest, x.dtype, &data);
    if (y.kind != EXPORTED_HOST || exported_count(b, &y) == 0) return;
    int64_t next = 0;
    do {
        int64_t from[EXPORTED_MAX_RANK];
        for (int k = 0; k < axes; k++) {
            int64_t number = (int64_t)exported_host_at(&index[k].host, at);
            from[k] = number < 0 ? number + x.host.sizes[k] : number;
            if (from[k] < 0 || from[k] >= x.host.sizes[k]) {
                exported_fail(c, "an index is out of range");
                return;
            }
        }
        for (int i = 0; i < rest; i++) from[axes + i] = at[count + i];
        data[next++] = exported_host_at(&x.host, from);
    } while (exported_host_next(&y.host, at));
    for (int i = 0; i < count; i++)
        if (repeats[i]) y.host.sizes[i] = sizes[i], y.host.strides[i] = 0;
    exported_give(c, y);
}

// How an index is read: on the host an index that counts the elements of its axis, 0, 1, 2, …,
// along one axis of its own is no choice.
typedef struct one_index {
    exported_value value;
    int along;     // the only axis of the result along which it varies; -1: none, -2: several
    bool is_count; // 0, 1, 2, … up to the axis's size
} one_index;

static one_index read_index(exported_build *b, exported_value value, int rank, int64_t size) {
    one_index found = {value, -1, false};
    int own = exported_rank(b, &value);
    for (int i = 0; i < own; i++)
        if (exported_size(b, &value, i) != 1) found.along = found.along == -1 ? i + rank - own : -2;
    if (value.kind != EXPORTED_HOST || exported_count(b, &value) != size || found.along == -2)
        return found;
    int64_t at[EXPORTED_MAX_RANK] = {0}, next = 0;
    found.is_count = true;
    do found.is_count = found.is_count && exported_host_at(&value.host, at) == (double)next++;
    while (exported_host_next(&value.host, at));
    return found;
}

// The numbers of an index counted from 0.
static exported_value from_zero(exported_call *c, exported_value index, int64_t size, int k) {
    double wide = (double)size;
    index = exported_map_text(c->build, "i, n = 1 -> i < 0 ? i + n : i", &wide, &index, 1,
                              TRI_PT2_LONG);
    index.name = tri_name(c->build->graph, "%s.index%d", exported_result_name(c), k);
    return index;
}

// Elements of x, whose axes are `sizes`, along an axis by an index of any shape, which is flat in
// the result.
static exported_value take(exported_call *c, exported_value x, int axis, exported_value index) {
    tri_graph *g = c->build->graph;
    index = from_zero(c, index, exported_size(c->build, &x, axis), axis);
    tri_value flat = tri_reshape(g, exported_as_graph(c->build, &index), tri_shape_of(-1));
    return exported_of_graph(tri_index_select(g, exported_as_graph(c->build, &x), axis, flat),
                             x.dtype);
}

// Each index varies along an axis of its own, so one axis after the other is chosen from: what
// masks are made of. x has only the axes that are indexed, then others.
static exported_value index_outer(exported_call *c, exported_value x, const one_index *index,
                                  int used, const int64_t *sizes, int rank) {
    exported_build *b = c->build;
    int order[EXPORTED_MAX_RANK], all = exported_rank(b, &x), count = 0;
    int64_t result[2 * EXPORTED_MAX_RANK];
    for (int k = 0; k < used; k++)
        if (!index[k].is_count) x = take(c, x, k, index[k].value);
    for (int i = -1; i < rank; i++)
        for (int k = 0; k < used; k++)
            if (index[k].along == i || (i < 0 && index[k].along < 0)) order[count++] = k;
    for (int i = used; i < all; i++) order[count++] = i;
    x = exported_permute(b, x, order);
    for (int i = 0; i < rank; i++) result[i] = sizes[i];
    for (int i = used; i < all; i++) result[rank + i - used] = exported_size(b, &x, i);
    return exported_reshape(b, x, result, rank + all - used);
}

// Of each sample other elements: x[arange(N), index], where the index has the samples first.
static exported_value index_samples(exported_call *c, exported_value x, exported_value index,
                                    const int64_t *sizes, int rank) {
    exported_build *b = c->build;
    int all = exported_rank(b, &x);
    int64_t wide[EXPORTED_MAX_RANK], result[2 * EXPORTED_MAX_RANK], count = 1;
    for (int i = 1; i < rank; i++) count *= sizes[i];
    index = exported_expand(b, from_zero(c, index, exported_size(b, &x, 1), 1), sizes, rank);
    for (int i = 0; i < all; i++) wide[i] = i == 0 ? sizes[0] : i == 1 ? count : 1;
    index = exported_reshape(b, index, wide, all);
    for (int i = 2; i < all; i++) wide[i] = exported_size(b, &x, i);
    index = exported_expand(b, index, wide, all);
    tri_value y = tri_gather(b->graph, exported_as_graph(b, &x), 1, exported_as_graph(b, &index));
    for (int i = 0; i < rank; i++) result[i] = sizes[i];
    for (int i = 2; i < all; i++) result[rank + i - 2] = wide[i];
    return exported_reshape(b, exported_of_graph(y, x.dtype), result, rank + all - 2);
}

// The axes that are indexed as one, and the index in it.
static exported_value index_flat(exported_call *c, exported_value x, const one_index *index,
                                 int used, const int64_t *sizes, int rank) {
    exported_build *b = c->build;
    int all = exported_rank(b, &x);
    int64_t result[2 * EXPORTED_MAX_RANK], flat[EXPORTED_MAX_RANK] = {1};
    exported_value number = exported_of_number(0, TRI_PT2_LONG);
    for (int k = 0; k < used; k++) {
        double size = (double)exported_size(b, &x, k);
        exported_value two[] = {number, from_zero(c, index[k].value, (int64_t)size, k)};
        number = exported_map_text(b, "a, i, n = 1 -> n * a + i", &size, two, 2, TRI_PT2_LONG);
        flat[0] *= (int64_t)size;
    }
    for (int i = used; i < all; i++) flat[1 + i - used] = exported_size(b, &x, i);
    x = take(c, exported_reshape(b, x, flat, 1 + all - used), 0, number);
    for (int i = 0; i < rank; i++) result[i] = sizes[i];
    for (int i = used; i < all; i++) result[rank + i - used] = flat[1 + i - used];
    return exported_reshape(b, x, result, rank + all - used);
}

// x[…, a, b, …] with index tensors, which are broadcast, along the axes from `first`. In the
// result their axes stand where the indexed ones stood.
static void index_graph(exported_call *c, exported_value x, const exported_value *given, int first,
                        int used) {
    exported_build *b = c->build;
    int rank = 0, all = exported_rank(b, &x), order[EXPORTED_MAX_RANK];
    int64_t sizes[EXPORTED_MAX_RANK];
    one_index index[EXPORTED_MAX_RANK];
    for (int k = 0; k < used; k++) {
        int own = exported_rank(b, &given[k]);
        rank = own > rank ? own : rank;
        if (given[k].dtype == TRI_PT2_BOOLEAN) {
            exported_fail(c, "an index by a mask has a result of no known size");
            return;
        }
    }
    for (int i = 0; i < rank; i++) sizes[i] = 1;
    bool is_outer = true;
    for (int k = 0; k < used; k++) {
        int own = exported_rank(b, &given[k]);
        index[k] = read_index(b, given[k], rank, exported_size(b, &x, first + k));
        for (int i = 0; i < own; i++)
            if (exported_size(b, &given[k], i) != 1)
                sizes[i + rank - own] = exported_size(b, &given[k], i);
        is_outer = is_outer && (index[k].along != -2 || used == 1);
        for (int j = 0; j < k; j++)
            is_outer = is_outer && (index[j].along < 0 || index[j].along != index[k].along);
    }
    if (rank + all - used > EXPORTED_MAX_RANK) {
        exported_fail(c, "the result has more than %d axes", EXPORTED_MAX_RANK);
        return;
    }
    // The indexed axes go to the front, and the result's back.
    for (int i = 0; i < all; i++) order[i] = i < used ? first + i : i < used + first ? i - used : i;
    x = exported_permute(b, x, order);
    bool is_of_samples = used == 2 && index[0].is_count && index[0].along == 0 && rank > 0;
    x = is_outer        ? index_outer(c, x, index, used, sizes, rank)
        : is_of_samples ? index_samples(c, x, index[1].value, sizes, rank)
                        : index_flat(c, x, index, used, sizes, rank);
    all = rank + all - used;
    for (int i = 0; i < all; i++)
        order[i] = i < first ? rank + i : i < first + rank ? i - first : i;
    if (b->graph->status == TRI_OK) exported_give(c, exported_permute(b, x, order));
}

static void index_by(exported_call *c) {
    exported_value x = exported_operand(c, 0), index[EXPORTED_MAX_RANK];
    int count = exported_list(c, 1, index, EXPORTED_MAX_RANK), used = 0, first = -1, last = -1;
    bool is_host = x.kind == EXPORTED_HOST;
    for (int k = 0; k < count; k++) {
        if (index[k].kind == EXPORTED_NOTHING) continue;
        if (first < 0) first = k;
        used++;
        last = k;
        is_host = is_host && index[k].kind == EXPORTED_HOST && index[k].dtype != TRI_PT2_BOOLEAN;
    }
    if (is_host && used == count && first == 0)
        index_host(c, x, index, count);
    else if (used > 0 && last - first + 1 == used)
        index_graph(c, x, index + first, first, used);
    else
        exported_fail(c, "an index whose tensors are not side by side is not supported");
}

static tri_value as_is(exported_call *c, int k) {
    exported_value index = exported_operand(c, k);
    return exported_as_graph(c->build, &index);
}

static void index_select(exported_call *c) {
    exported_give_graph(
        c, tri_index_select(c->build->graph, as_is(c, 0), exported_axis_of(c, 1), as_is(c, 2)));
}

static void gather(exported_call *c) {
    exported_give_graph(
        c, tri_gather(c->build->graph, as_is(c, 0), exported_axis_of(c, 1), as_is(c, 2)));
}

// What of x an index with smaller axes does not name stays as it is, which tri_scatter does not do.
static void scatter(exported_call *c) {
    exported_give_graph(c, tri_scatter(c->build->graph, as_is(c, 0), exported_axis_of(c, 1),
                                       as_is(c, 2), as_is(c, 3)));
}

static void scatter_add(exported_call *c) {
    exported_give_graph(c, tri_scatter_add(c->build->graph, as_is(c, 0), exported_axis_of(c, 1),
                                           as_is(c, 2), as_is(c, 3)));
}

static void index_add(exported_call *c) {
    if (exported_real(c, 4) != 1) exported_fail(c, "alpha is not supported");
    exported_give_graph(c, tri_index_add(c->build->graph, as_is(c, 0), exported_axis_of(c, 1),
                                         as_is(c, 2), as_is(c, 3)));
}

// x with one value where an index along an axis says.
static void index_fill(exported_call *c) {
    exported_build *b = c->build;
    exported_value x = exported_operand(c, 0), index = exported_operand(c, 2);
    int axis = exported_axis_of(c, 1), rank = exported_rank(b, &x);
    int64_t size = exported_size(b, &x, axis), sizes[EXPORTED_MAX_RANK];
    if (index.kind == EXPORTED_GRAPH) {
        index = from_zero(c, index, size, axis);
        exported_give_graph(c, tri_index_fill(b->graph, exported_as_graph(b, &x), axis, index.graph,
                                              exported_real(c, 3)));
        return;
    }
    double *data;
    for (int i = 0; i < rank; i++) sizes[i] = i == axis ? size : 1;
    exported_value in[] = {x, exported_host_new(b, sizes, rank, TRI_PT2_BOOLEAN, &data),
                           exported_operand(c, 3)};
    index = from_zero(c, index, size, axis);
    if (in[1].kind != EXPORTED_HOST || index.kind != EXPORTED_HOST) return;
    // All of an axis is filled with one number, so that the batch is no part of a constant.
    if (read_index(b, index, 1, size).is_count) in[1] = exported_of_number(1, TRI_PT2_BOOLEAN);
    for (int64_t i = 0; i < exported_count(b, &index); i++) {
        int64_t at = (int64_t)exported_host_at(&index.host, &i);
        if (at >= 0 && at < size) data[at] = 1;
    }
    in[1].name = tri_name(b->graph, "%s.filled", exported_result_name(c));
    exported_give(c, exported_map_text(b, "x, m, v -> m ? v : x", NULL, in, 3, x.dtype));
}

// x with values where an index says, which are added there or replace what is there: a mask with
// one value, or tensors of numbers along the first axes.
static void index_put(exported_call *c) {
    exported_build *b = c->build;
    exported_value index[EXPORTED_MAX_RANK],
        in[] = {exported_operand(c, 0), {0}, exported_operand(c, 2)};
    int used = exported_list(c, 1, index, EXPORTED_MAX_RANK), rank = exported_rank(b, &in[0]);
    bool adds = exported_bool(c, 3), is_mask = used == 1 && index[0].dtype == TRI_PT2_BOOLEAN;
    int64_t sizes[2 * EXPORTED_MAX_RANK], rows[EXPORTED_MAX_RANK] = {-1};
    if (is_mask && exported_count(b, &in[2]) == 1) {
        for (int i = 0; i < rank; i++)
            sizes[i] = i < exported_rank(b, &index[0]) ? exported_size(b, &index[0], i) : 1;
        in[1] = exported_reshape(b, index[0], sizes, rank);
        in[2] = exported_reshape(b, in[2], NULL, 0);
        const char *formula = adds ? "x, m, v -> m ? x + v : x" : "x, m, v -> m ? v : x";
        exported_give(c, exported_map_text(b, formula, NULL, in, 3, in[0].dtype));
        return;
    }
    exported_value number = exported_of_number(0, TRI_PT2_LONG);
    for (int k = 0; k < used; k++) {
        if (index[k].kind == EXPORTED_NOTHING || index[k].dtype == TRI_PT2_BOOLEAN) {
            exported_fail(c, "a write is supported by a mask with one value, and by tensors of "
                             "integers for the first axes");
            return;
        }
        double size = (double)exported_size(b, &in[0], k);
        exported_value two[] = {number, from_zero(c, index[k], (int64_t)size, k)};
        number = exported_map_text(b, "a, i, n = 1 -> n * a + i", &size, two, 2, TRI_PT2_LONG);
    }
    number.name = tri_name(b->graph, "%s.places", exported_result_name(c));
    int places = exported_rank(b, &number), wide = places;
    for (int i = 0; i < places; i++) sizes[i] = exported_size(b, &number, i);
    for (int i = used; i < rank; i++) {
        rows[1 + i - used] = exported_size(b, &in[0], i);
        sizes[wide++] = rows[1 + i - used];
    }
    tri_value to, place, source;
    exported_value flat = exported_reshape(b, in[0], rows, 1 + rank - used);
    in[2] = exported_expand(b, in[2], sizes, wide);
    in[2] = exported_reshape(b, in[2], rows, 1 + rank - used);
    number = exported_reshape(b, number, rows, 1);
    to = exported_as_graph(b, &flat);
    place = exported_as_graph(b, &number);
    source = exported_as_graph(b, &in[2]);
    to = adds ? tri_index_add(b->graph, to, 0, place, source)
              : tri_index_copy(b->graph, to, 0, place, source);
    for (int i = 0; i < rank; i++) sizes[i] = exported_size(b, &in[0], i);
    exported_give(c, exported_reshape(b, exported_of_graph(to, in[0].dtype), sizes, rank));
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

const exported_row exported_index_rows[] = {
    ROW("aten.index_fill", "self dim index value", index_fill),
    ROW("aten.index_put", "self indices values accumulate=False", index_put),
    ROW("aten.copy", "self src", copy),
    // What a view's base becomes when the view is written (views.c).
    ROW("write.slice", "self source dim=0 start=None end=None step=1", write_slice),
    ROW("write.narrow", "self source dim start length", write_narrow),
    ROW("write.select", "self source dim index", write_select),
    ROW("write.transpose", "self source dim0 dim1", write_transpose),
    ROW("write.permute", "self source dims", write_permute),
    ROW("write.view", "self source", write_whole),
    ROW("write.view_as", "self source", write_whole),
    ROW("write.reshape", "self source", write_whole),
    ROW("write.reshape_as", "self source", write_whole),
    ROW("write.flatten", "self source", write_whole),
    ROW("write.unflatten", "self source", write_whole),
    ROW("write.unsqueeze", "self source", write_whole),
    ROW("write.squeeze", "self source", write_whole),
    ROW("write.alias", "self source", write_whole),
    ROW("write.detach", "self source", write_whole),
    ROW("write.contiguous", "self source", write_whole),
    ROW("write.to", "self source", write_whole),
    ROW("write.type_as", "self source", write_whole),
    ROW("write.float", "self source", write_whole),
    ROW("aten.index", "self indices", index_by),
    ROW("aten.index_select", "self dim index", index_select),
    ROW("aten.gather", "self dim index", gather),
    ROW("aten.scatter.src", "self dim index src", scatter),
    ROW("aten.scatter_add", "self dim index src", scatter_add),
    ROW("aten.index_add", "self dim index source alpha=1", index_add),
    {NULL, NULL, NULL, NULL, NULL, false},
};
