// How views of tensors of the graph lie in the tensors of which they are views. Chains of
// transpositions, reshapes and slices, as PyTorch's attention has them, often come back to the
// order in which they began. So a view is made of the tensor at the chain's beginning, in as few
// steps as possible, and the views before it are dropped where nothing else reads them.
//
// A layout is a list of factors, the outermost first. Each axis consists of some of them, one
// behind the other, and an axis of size 1 of none: [N, T, H, D], transposed to [T, N, H, D] and
// reshaped to [T, N·H, D], has the factors T | N, H | D, each with its step in the base.
#include "nn/exported/build.h"

#include <string.h>
#include <trireme/functions.h>
#include <trireme/nn.h>

static bool add_factor(exported_layout *l, int axis, int64_t size, int64_t step) {
    exported_factor *last = l->count ? &l->factors[l->count - 1] : NULL;
    if (size == 1) return true;
    if (last && last->axis == axis && last->step == step * size) {
        last->size *= size;
        last->step = step;
        return true;
    }
    if (l->count == EXPORTED_MAX_FACTORS) return false;
    l->factors[l->count++] = (exported_factor){axis, size, step};
    return true;
}

// The layout of a value; that of one without a base is row-major.
static exported_layout layout_of(exported_build *b, const exported_value *x) {
    exported_layout l = {.count = 0};
    if (tri_value_is(x->base)) return *x->layout;
    int64_t step = exported_count(b, x);
    for (int i = 0; i < exported_rank(b, x); i++) {
        int64_t size = exported_size(b, x, i);
        if (step > 0) step /= size;
        add_factor(&l, i, size, step);
    }
    return l;
}

static bool permuted(const exported_layout *x, const int *order, int rank, exported_layout *y) {
    *y = (exported_layout){.offset = x->offset};
    for (int i = 0; i < rank; i++)
        for (int k = 0; k < x->count; k++)
            if (x->factors[k].axis == order[i] &&
                !add_factor(y, i, x->factors[k].size, x->factors[k].step))
                return false;
    return true;
}

// False: some axis begins within a factor that cannot be divided there.
static bool reshaped(const exported_layout *x, const int64_t *sizes, int rank, exported_layout *y) {
    int64_t rest = 1; // of the factor x->factors[k - 1], its inner part
    int k = 0;
    *y = (exported_layout){.offset = x->offset};
    for (int i = 0; i < rank; i++)
        for (int64_t need = sizes[i]; need > 1;) {
            if (rest == 1) {
                if (k == x->count) return false;
                rest = x->factors[k++].size;
            }
            int64_t part = need < rest ? need : rest;
            if (need % part || rest % part) return false;
            rest /= part;
            need /= part;
            if (!add_factor(y, i, part, x->factors[k - 1].step * rest)) return false;
        }
    return true;
}

static bool sliced(const exported_layout *x, int axis, int64_t first, int64_t count, int64_t step,
                   exported_layout *y) {
    int of_axis = 0;
    *y = (exported_layout){.offset = x->offset};
    for (int k = 0; k < x->count; k++) {
        exported_factor f = x->factors[k];
        if (f.axis == axis) {
            if (of_axis++) return false;
            y->offset += first * f.step;
            f.step *= step;
            f.size = count;
        }
        if (!add_factor(y, f.axis, f.size, f.step)) return false;
    }
    return true;
}

// A base with an axis for each step of a layout, so that the layout is a slice and a permutation of
// these axes.
typedef struct steps {
    tri_shape full;                                          // of the base
    int64_t first[TRI_MAX_RANK + 1], size[TRI_MAX_RANK + 1]; // of the slices
    int order[TRI_MAX_RANK + 1]; // by axis of what is made, the factors in their order
    tri_shape flat;              // a size for each factor
    bool is_plain;               // the base as it lies
} steps;

// Finds the axes. False: the layout has no such axes, or too many.
static bool find_steps(const exported_layout *l, int64_t total, steps *s) {
    exported_layout all = {.count = 0};
    int sorted[EXPORTED_MAX_FACTORS], count;
    for (int k = 0; k < l->count; k++)
        if (!add_factor(&all, 0, l->factors[k].size, l->factors[k].step)) return false;
    *s = (steps){.is_plain = true};
    count = all.count;
    if (count >= TRI_MAX_RANK) return false;
    for (int k = 0; k < count; k++) {
        int at = k;
        for (; at > 0 && all.factors[sorted[at - 1]].step < all.factors[k].step; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = k;
    }
    int64_t before = total, offset = l->offset;
    for (int i = 0; i <= count; i++) {
        exported_factor f = i < count ? all.factors[sorted[i]] : (exported_factor){0, 1, 1};
        if (i == count && before == 1) break; // no rest behind the last factor
        if (f.step < 1 || before % f.step) return false;
        int axis = s->full.rank++;
        s->full.dims[axis] = before / f.step;
        s->first[axis] = offset / f.step;
        s->size[axis] = f.size;
        if (s->first[axis] + f.size > s->full.dims[axis]) return false;
        offset %= f.step;
        before = f.step;
        if (i < count) s->order[sorted[i]] = axis;
        s->is_plain = s->is_plain && i < count && sorted[i] == i && f.size == s->full.dims[axis];
    }
    if (s->full.rank > count) s->order[count] = count;
    s->flat.rank = count;
    for (int k = 0; k < count; k++) s->flat.dims[k] = all.factors[k].size;
    return true;
}

static tri_shape shape_of(const int64_t *sizes, int rank) {
    tri_shape shape = {.rank = rank};
    for (int i = 0; i < rank; i++) shape.dims[i] = sizes[i];
    return shape;
}

static tri_value as_shape(tri_graph *g, tri_value x, tri_shape shape) {
    tri_shape from = tri_value_shape(g, x);
    return tri_shape_equal(&from, &shape) ? x : tri_reshape(g, x, shape);
}

// Makes a view of the base. False: it has to be made in another way.
static bool make_view(exported_build *b, tri_value base, const exported_layout *l,
                      const int64_t *sizes, int rank, exported_value *y) {
    tri_graph *g = b->graph;
    tri_shape shape = tri_value_shape(g, base);
    steps s;
    if (rank > TRI_MAX_RANK || !find_steps(l, tri_shape_count(&shape), &s)) return false;
    if (s.is_plain) {
        *y = exported_of_graph(as_shape(g, base, shape_of(sizes, rank)), y->dtype);
        return true;
    }
    tri_value v = as_shape(g, base, s.full);
    for (int i = 0; i < s.full.rank; i++)
        if (s.size[i] != s.full.dims[i])
            v = tri_slice(g, v, i, s.first[i], s.first[i] + s.size[i], 1);
    bool is_ordered = true;
    for (int i = 0; i < s.full.rank; i++) is_ordered = is_ordered && s.order[i] == i;
    if (!is_ordered) v = tri_permute(g, v, s.order);
    y->graph = as_shape(g, v, shape_of(sizes, rank));
    return true;
}

// What all views have in common: the layout `to` of the sizes, which is NULL if there is none.
// False: the view is still to be made of x itself.
static bool view(exported_build *b, const exported_value *x, const exported_layout *to,
                 const int64_t *sizes, int rank, exported_value *y) {
    bool is_first = !tri_value_is(x->base);
    steps s;
    *y = exported_of_graph(x->graph, x->dtype);
    if (!to || b->graph->status != TRI_OK) return false;
    tri_shape shape = tri_value_shape(b->graph, is_first ? x->graph : x->base);
    y->base = is_first ? x->graph : x->base;
    exported_layout *kept = TRI_NEW(b->graph->arena, exported_layout);
    *kept = *to;
    y->layout = kept;
    // A slice or an order of the axes of a plain value is made as such.
    if (is_first && !(find_steps(to, tri_shape_count(&shape), &s) && s.is_plain)) return false;
    bool is_made = make_view(b, y->base, to, sizes, rank, y);
    if (!is_made) *y = exported_of_graph(x->graph, x->dtype);
    return is_made;
}

exported_value exported_view_permuted(exported_build *b, const exported_value *x,
                                      const int *order) {
    exported_layout from = layout_of(b, x), to;
    exported_value y;
    int64_t sizes[EXPORTED_MAX_RANK];
    int rank = exported_rank(b, x);
    for (int i = 0; i < rank; i++) sizes[i] = exported_size(b, x, order[i]);
    bool has_layout = permuted(&from, order, rank, &to);
    if (!view(b, x, has_layout ? &to : NULL, sizes, rank, &y))
        y.graph = tri_permute(b->graph, x->graph, order);
    return y;
}

exported_value exported_view_reshaped(exported_build *b, const exported_value *x,
                                      const int64_t *sizes, int rank) {
    exported_layout from = layout_of(b, x), to;
    exported_value y = exported_of_graph(x->graph, x->dtype);
    bool has_layout = tri_value_is(x->base) && reshaped(&from, sizes, rank, &to);
    if (!has_layout || !view(b, x, &to, sizes, rank, &y))
        y.graph = as_shape(b->graph, x->graph, shape_of(sizes, rank));
    return y;
}

exported_value exported_view_sliced(exported_build *b, const exported_value *x, int axis,
                                    int64_t first, int64_t end, int64_t step) {
    exported_layout from = layout_of(b, x), to;
    exported_value y;
    int64_t sizes[EXPORTED_MAX_RANK];
    int rank = exported_rank(b, x);
    for (int i = 0; i < rank; i++) sizes[i] = exported_size(b, x, i);
    sizes[axis] = (end - first + step - 1) / step;
    bool has_layout = sliced(&from, axis, first, sizes[axis], step, &to);
    if (!view(b, x, has_layout ? &to : NULL, sizes, rank, &y))
        y.graph = tri_slice(b->graph, x->graph, axis, first, end, step);
    return y;
}

// Whether the value has all rows of its base, of the last axis, in an order that two groups of them
// have exchanged: what is computed of each row alone may be computed of the base.
bool exported_has_rows(exported_build *b, const exported_value *x, tri_shape *rows) {
    steps s;
    if (x->kind != EXPORTED_GRAPH || !tri_value_is(x->base)) return false;
    tri_shape base = tri_value_shape(b->graph, x->base);
    int rank = exported_rank(b, x);
    exported_layout l = *x->layout;
    const exported_factor *last = l.count ? &l.factors[l.count - 1] : NULL;
    if (!last || last->axis != rank - 1 || last->step != 1 ||
        last->size != exported_size(b, x, rank - 1) ||
        !find_steps(&l, tri_shape_count(&base), &s) || s.full.rank != 3)
        return false;
    for (int i = 0; i < 3; i++)
        if (s.size[i] != s.full.dims[i]) return false;
    *rows = s.full;
    return s.order[2] == 2;
}

exported_value exported_of_rows(exported_build *b, const exported_value *x, tri_value y,
                                int dtype) {
    int rank = exported_rank(b, x);
    tri_shape shape = tri_value_shape(b->graph, y);
    int64_t sizes[EXPORTED_MAX_RANK], old = exported_size(b, x, rank - 1),
                                      width = shape.dims[shape.rank - 1];
    exported_layout l = *x->layout;
    exported_value base = exported_of_graph(y, dtype), made;
    // A base that is its own layout, of which the view is made.
    base.base = y;
    for (int i = 0; i < rank; i++) sizes[i] = i == rank - 1 ? width : exported_size(b, x, i);
    for (int k = 0; k < l.count - 1; k++) l.factors[k].step = l.factors[k].step / old * width;
    l.factors[l.count - 1].size = width;
    if (width == 1) l.count--;
    bool is_made = view(b, &base, &l, sizes, rank, &made);
    TRI_ASSERT(is_made || b->graph->status != TRI_OK);
    return made;
}
