// The attributes of the ops that work along one axis: elements by their numbers, order, running
// sums.
#ifndef TRIREME_OPS_AXIS_OPS_H
#define TRIREME_OPS_AXIS_OPS_H

#include "ops/index_axis.h"

#include <trireme/tensor.h>

// The attributes of gather. `index` names elements along the axis; its other axes have the sizes of
// x's, or those before the axis, or those behind it, have the size 1, so that all share the
// indices.
typedef struct tri_gather_attr {
    int64_t axis;
    // y is 0 where the same index is there again later: the gradient of scatter, of whose elements
    // for one place only the last one stays.
    bool last;
} tri_gather_attr;

typedef enum tri_scatter_kind {
    TRI_SCATTER_SET,
    TRI_SCATTER_ADD,
    TRI_SCATTER_MAX
} tri_scatter_kind;

typedef struct tri_scatter_attr {
    int64_t kind; // a tri_scatter_kind
    int64_t axis;
    tri_shape shape; // of y
} tri_scatter_attr;

// How the axis of x is indexed; and the cut of x along it.
index_axis ops_index_axis(int64_t axis, const tri_shape *x, const tri_shape *index);
axis_cut ops_axis_cut(const tri_shape *x, int64_t axis);

typedef struct tri_argmax_attr {
    int64_t axis;
    bool minimum; // the smallest element; false: the largest
} tri_argmax_attr;

typedef struct tri_sort_attr {
    int64_t axis;
    int64_t count; // how many elements of the sorted axis are kept
    bool descending;
} tri_sort_attr;

typedef enum tri_scan_kind {
    TRI_SCAN_SUM,
    TRI_SCAN_PROD,
    TRI_SCAN_MAX,
    TRI_SCAN_MIN,
    TRI_SCAN_LOGSUMEXP
} tri_scan_kind;

typedef struct tri_scan_attr {
    int64_t kind, axis; // kind: a tri_scan_kind
    bool reverse;       // from the end of the axis; only of a sum
} tri_scan_attr;

#endif
