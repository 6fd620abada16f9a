// More functions of tensors by PyTorch's names, made of those of functions.h: sums of products by
// letters, parts and diagonals, order and places. Shapes and rules are PyTorch's. A negative axis
// counts from the last.
#ifndef TRIREME_MORE_FUNCTIONS_H
#define TRIREME_MORE_FUNCTIONS_H

#include <trireme/api.h>
#include <trireme/functions.h>
#include <trireme/graph.h>

TRI_API_BEGIN

// A sum of products, as torch.einsum: each letter names an axis, the same in all values, and what
// is not in the result is summed: "bqd,bkd->bqk". A letter that a value has twice takes its
// diagonal; "..." are all other axes, broadcast. Without "->" the result has the letters that stand
// there once, in the alphabet's order, behind "...". Values are multiplied from the left to the
// right, as products of matrices.
tri_value tri_einsum_values(tri_graph *graph, const char *equation, const tri_value *values,
                            int count);
// The same, with the values as arguments: tri_einsum(g, "ij,jk->ik", a, b).
#ifdef __cplusplus
#define tri_einsum(graph, equation, ...)                                                           \
    [&](std::initializer_list<tri_value> list) {                                                   \
        return tri_einsum_values(graph, equation, list.begin(), (int)list.size());                 \
    }({__VA_ARGS__})
#else
#define tri_einsum(graph, equation, ...)                                                           \
    tri_einsum_values(graph, equation, (const tri_value[]){__VA_ARGS__},                           \
                      (int)(sizeof((const tri_value[]){__VA_ARGS__}) / sizeof(tri_value)))
#endif

// beta · c + alpha · a @ b, as torch.addmm, baddbmm and addmv; c is broadcast. With
// beta 0 it is not read.
tri_value tri_addmm(tri_graph *graph, tri_value c, tri_value a, tri_value b, double beta,
                    double alpha);
// All products of an element of a [M] and one of b [N]: [M, N].
tri_value tri_outer(tri_graph *graph, tri_value a, tri_value b);
// The cross product of vectors of 3 numbers along an axis.
tri_value tri_cross(tri_graph *graph, tri_value a, tri_value b, int axis);
// The distances of all rows of a [.., P, D] from all rows of b [.., R, D] by the p-norm: [.., P,
// R]. p 0 means 2, INFINITY the largest difference. Where a distance is 0, so is its gradient.
tri_value tri_cdist(tri_graph *graph, tri_value a, tri_value b, double p);
// The p-norm over axes, which are given as for tri_sum; p 0 means 2, INFINITY the largest size.
// Where it is 0, so is its gradient.
tri_value tri_vector_norm(tri_graph *graph, tri_value x, double p, const int *axes, int count,
                          bool keep);
// x divided by its p-norm along an axis, or by `eps` (0: 1e-12) where that is larger, as
// torch.nn.functional.normalize.
tri_value tri_normalize_by(tri_graph *graph, tri_value x, double p, int axis, double eps);

// Axis `from` becomes number `to`; the others keep their order.
tri_value tri_movedim(tri_graph *graph, tri_value x, int from, int to);
// Parts of the given sizes along an axis, whose sum is its size: parts[i] becomes number i.
void tri_split_with_sizes(tri_graph *graph, tri_value x, int axis, const int64_t *sizes, int count,
                          tri_value *parts);
// grids[i] becomes the vector i, repeated to the shape of all their sizes, as torch.meshgrid with
// indexing="ij".
void tri_meshgrid(tri_graph *graph, const tri_value *vectors, int count, tri_value *grids);
// The lower triangle of the last two axes, up to the diagonal number `diagonal` (0 is the main one,
// those above are positive), and 0 elsewhere.
tri_value tri_tril(tri_graph *graph, tri_value x, int64_t diagonal);
// The upper triangle, from the diagonal number `diagonal`.
tri_value tri_triu(tri_graph *graph, tri_value x, int64_t diagonal);
// The elements x[i][i + offset] of two axes, as torch.diagonal; their axis becomes the last.
tri_value tri_diagonal(tri_graph *graph, tri_value x, int64_t offset, int axis1, int axis2);
// Matrices whose diagonal number `offset` is the last axis of x, and which are 0 elsewhere.
tri_value tri_diag_embed(tri_graph *graph, tri_value x, int64_t offset);
// The sum of the diagonal of the last two axes.
tri_value tri_trace(tri_graph *graph, tri_value x);
// 1 at the place of each id, of `classes` along a new last axis, else 0: F32.
tri_value tri_one_hot(tri_graph *graph, tri_value ids, int64_t classes);
// The differences of neighbours along an axis, `times` over.
tri_value tri_diff(tri_graph *graph, tri_value x, int64_t times, int axis);
// The integral over an axis by trapezoids of width `dx`.
tri_value tri_trapezoid(tri_graph *graph, tri_value y, double dx, int axis);

// x with `value` at what a vector of indices [K] names along an axis, as torch.index_fill.
tri_value tri_index_fill(tri_graph *graph, tri_value x, int axis, tri_value index, double value);
// x with elements of the source there, as torch.index_copy.
tri_value tri_index_copy(tri_graph *graph, tri_value x, int axis, tri_value index,
                         tri_value source);
// The k-th smallest element along an axis, k from 1, which goes unless `keep`; *index becomes its
// place, of equal ones the first, if it is not NULL.
tri_value tri_kthvalue(tri_graph *graph, tri_value x, int64_t k, int axis, bool keep,
                       tri_value *index);
// The median along an axis, of an even number of elements the lower one; *index as there. NaN where
// an element is NaN, as in PyTorch; *index is its place.
tri_value tri_median(tri_graph *graph, tri_value x, int axis, bool keep, tri_value *index);
// The quantile q, 0 to 1, along an axis, with linear interpolation, as torch.quantile. NaN where
// an element is NaN.
tri_value tri_quantile(tri_graph *graph, tri_value x, double q, int axis, bool keep);
// How many numbers of a sorted last axis are below each value, or with `right` at most as large:
// I64. NaN counts as the largest, as in NumPy. sorted [.., K] and values [.., V] → [.., V].
tri_value tri_searchsorted(tri_graph *graph, tri_value sorted, tri_value values, bool right);
// The same with one row of boundaries [K] for all elements of x.
tri_value tri_bucketize(tri_graph *graph, tri_value x, tri_value boundaries, bool right);

TRI_API_END

#endif
