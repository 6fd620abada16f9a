// Defines the op metric_sums, which makes the numbers that a metric adds up over samples. This file
// has the op's shape rule; graph/metric.h says what the numbers are.
#include "graph/metric.h"
#include "ops/rules.h"

static tri_status want_attr(const tri_metric_sums_attr *a, int64_t width) {
    bool is_known = a->tally > TRI_TALLY_PAIR && a->tally < TRI_TALLY_COUNT;
    if (is_known && a->classes > 0 && width % a->classes == 0 && a->bins > 0 && a->k > 0)
        return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "metric_sums: no tally %" PRId64 " of %" PRId64 " classes, %" PRId64
                    " bins and k %" PRId64,
                    a->tally, a->classes, a->bins, a->k);
}

static tri_status metric_sums_shape(const void *attr, tri_op_signature *s) {
    const tri_metric_sums_attr *a = attr;
    TRI_TRY(ops_want_float("metric_sums", "the prediction", s->in_type[0]));
    TRI_TRY(want_attr(a, tri_shape_count(&s->in[0])));
    tri_tally tally = (tri_tally)a->tally;
    if (tri_tally_has_labels(tally)) {
        TRI_TRY(ops_want_labels("metric_sums", &s->in[0], &s->in[1], s->in_type[1]));
        if (a->classes != s->in[0].dims[s->in[0].rank - 1]) TRI_TRY(want_attr(a, -1));
    } else {
        TRI_TRY(ops_want_shape("metric_sums", "the target", &s->in[1], s->in[0]));
        if (s->in_type[1] != TRI_I64)
            TRI_TRY(ops_want_float("metric_sums", "the target", s->in_type[1]));
    }
    s->out[0] = tri_shape_of(tri_tally_numbers(tally, a->classes, a->bins));
    s->out_type[0] = TRI_F64;
    return TRI_OK;
}

static tri_cost metric_sums_cost(const void *attr, const tri_op_signature *s) {
    return ops_cost_per_input(s, 10);
}

static const tri_attr_field metric_sums_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_metric_sums_attr, tally),
    OPS_FIELD(TRI_ATTR_INT, tri_metric_sums_attr, classes),
    OPS_FIELD(TRI_ATTR_INT, tri_metric_sums_attr, bins),
    OPS_FIELD(TRI_ATTR_INT, tri_metric_sums_attr, k),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_metric_sums_attr, threshold),
    {0},
};

const tri_op tri_op_metric_sums = {
    .name = "metric_sums",
    .doc = "prediction, labels [..] or targets -> F64 [..]: the numbers that a metric adds up over "
           "samples (graph/metric.h); -100 is left out",
    .input_count = 2,
    .output_count = 1,
    .attr_bytes = sizeof(tri_metric_sums_attr),
    .attr_fields = metric_sums_fields,
    .shape = metric_sums_shape,
    .cost = metric_sums_cost,
};
