// Elements by their numbers: indices of one or several tensors.
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

bool exported_counts(exported_build *b, exported_value index, const exported_value *x, int axis) {
    return read_index(b, index, 1, exported_size(b, x, axis)).is_count;
}

exported_value exported_from_zero(exported_call *c, exported_value index, int64_t size, int k) {
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
    index = exported_from_zero(c, index, exported_size(c->build, &x, axis), axis);
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
    index =
        exported_expand(b, exported_from_zero(c, index, exported_size(b, &x, 1), 1), sizes, rank);
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
        exported_value two[] = {number, exported_from_zero(c, index[k].value, (int64_t)size, k)};
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

// Puts numbers in the place of a mask that is constant: for each of its axes the places of what is
// set, as PyTorch does. Returns how many indices there are then.
static int of_mask(exported_call *c, exported_value mask, exported_value *out) {
    exported_build *b = c->build;
    int64_t at[EXPORTED_MAX_RANK] = {0}, count = 0, next = 0;
    double *data[EXPORTED_MAX_RANK];
    if (exported_count(b, &mask) > 0) do
            count += exported_host_at(&mask.host, at) != 0;
        while (exported_host_next(&mask.host, at));
    for (int i = 0; i < mask.host.rank; i++)
        out[i] = exported_host_new(b, &count, 1, TRI_PT2_LONG, &data[i]);
    if (count > 0) do {
            if (exported_host_at(&mask.host, at) == 0) continue;
            for (int i = 0; i < mask.host.rank; i++) data[i][next] = (double)at[i];
            next++;
        } while (exported_host_next(&mask.host, at));
    return mask.host.rank;
}

int exported_indices(exported_call *c, int k, exported_value *out) {
    exported_value given[EXPORTED_MAX_RANK];
    int count = exported_list(c, k, given, EXPORTED_MAX_RANK), used = 0;
    for (int i = 0; i < count && used <= EXPORTED_MAX_RANK; i++) {
        bool is_known = given[i].kind == EXPORTED_HOST && given[i].dtype == TRI_PT2_BOOLEAN;
        if (is_known)
            used += of_mask(c, given[i], out + used);
        else
            out[used++] = given[i];
    }
    return used;
}

// The axes that are indexed come first, as in PyTorch where they do not lie side by side.
static exported_value indexed_first(exported_call *c, exported_value x, exported_value *index,
                                    int count) {
    int order[EXPORTED_MAX_RANK], rank = exported_rank(c->build, &x), used = 0, next;
    for (int k = 0; k < count; k++) {
        if (index[k].kind == EXPORTED_NOTHING) continue;
        index[used] = index[k];
        order[used++] = k;
    }
    next = used;
    for (int i = 0; i < rank; i++) {
        bool is_used = false;
        for (int k = 0; k < used; k++) is_used = is_used || order[k] == i;
        if (!is_used) order[next++] = i;
    }
    return exported_permute(c->build, x, order);
}

static void index_by(exported_call *c) {
    exported_value x = exported_operand(c, 0), index[2 * EXPORTED_MAX_RANK];
    int count = exported_indices(c, 1, index), used = 0, first = -1, last = -1;
    bool is_host = x.kind == EXPORTED_HOST;
    if (count > exported_rank(c->build, &x)) {
        exported_fail(c, "%d indices do not fit %d axes", count, exported_rank(c->build, &x));
        return;
    }
    for (int k = 0; k < count; k++) {
        if (index[k].kind == EXPORTED_NOTHING) continue;
        index[k] = exported_refit_index(c, index[k], &x, k);
        if (first < 0) first = k;
        used++;
        last = k;
        is_host = is_host && index[k].kind == EXPORTED_HOST && index[k].dtype != TRI_PT2_BOOLEAN;
    }
    if (is_host && used == count && first == 0) {
        index_host(c, x, index, count);
    } else if (used > 0 && last - first + 1 == used) {
        index_graph(c, x, index + first, first, used);
    } else {
        x = indexed_first(c, x, index, count);
        index_graph(c, x, index, 0, used);
    }
}

const exported_row exported_index_rows[] = {
    ROW("aten.index", "self indices", index_by),
    {NULL, NULL, NULL, NULL, NULL, false},
};
