// Defines the ops that compute the numbers of a step itself, not of the model:
// - sum_of_squares and sum_rows add up the squares of gradients and the metrics of micro-batches;
// - step_numbers computes from these sums what updates read (the step scalars, such as the learning
//   rate) and what the next step needs (the carried numbers, such as the loss scale);
// - first_not_finite finds where the gradients have a number that is not finite, in a step that
//   halts. A step halts if its loss is not finite, or if its gradients are not and there is no loss
//   scale or it is already the smallest allowed one: the step and all steps after it then change no
//   parameter;
// - loss_seeds computes the gradients of the losses with respect to their sums, with which the
//   backward pass begins.
// Only the engine uses these ops (engine/numbers.c and engine/update.c). It runs them once a step.
#include "ops/rules.h"

static tri_status sum_of_squares_shape(const void *attr, tri_op_signature *s) {
    const tri_sum_of_squares_attr *a = attr;
    int64_t count = tri_shape_count(&s->in[0]);
    TRI_TRY(ops_want_rank("sum_of_squares", "x", &s->in[0], 1));
    TRI_TRY(ops_want_wide("sum_of_squares", "x", s->in_type[0]));
    if (a->chunk < 0 || (a->chunk > 0 && count % a->chunk))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "sum_of_squares: %" PRId64 " numbers are not divided by chunks of %" PRId64,
                        count, a->chunk);
    s->out[0] = tri_shape_of(a->chunk > 0 ? count / a->chunk : 1);
    s->out_type[0] = TRI_F64;
    return TRI_OK;
}

static tri_cost sum_of_squares_cost(const void *attr, const tri_op_signature *s) {
    (void)attr;
    return ops_cost_per_input(s, 2);
}

static const tri_attr_field sum_of_squares_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_sum_of_squares_attr, chunk),
    {0},
};

const tri_op tri_op_sum_of_squares = {
    .name = "sum_of_squares",
    .doc =
        "x -> the sum of x * x in F64, or of each `chunk` numbers of x, in an order that depends "
        "on nothing else",
    .input_count = 1,
    .output_count = 1,
    .flags = TRI_OP_STEP,
    .attr_bytes = sizeof(tri_sum_of_squares_attr),
    .attr_fields = sum_of_squares_fields,
    .shape = sum_of_squares_shape,
    .cost = sum_of_squares_cost,
};

static tri_status sum_rows_shape(const void *attr, tri_op_signature *s) {
    (void)attr;
    TRI_TRY(ops_want_rank("sum_rows", "x", &s->in[0], 2));
    TRI_TRY(ops_want_type("sum_rows", "x", s->in_type[0], TRI_F64));
    s->out[0] = tri_shape_of(s->in[0].dims[1]);
    s->out_type[0] = TRI_F64;
    return TRI_OK;
}

static tri_cost sum_rows_cost(const void *attr, const tri_op_signature *s) {
    (void)attr;
    return ops_cost_per_input(s, 1);
}

const tri_op tri_op_sum_rows = {
    .name = "sum_rows",
    .doc =
        "x [rows, width] F64 -> the sum of the rows [width], each added to those before it; it may "
        "lie over the first row",
    .input_count = 1,
    .output_count = 1,
    .flags = TRI_OP_STEP,
    .shape = sum_rows_shape,
    .cost = sum_rows_cost,
};

static tri_status step_numbers_shape(const void *attr, tri_op_signature *s) {
    const tri_step_numbers_attr *a = attr;
    TRI_TRY(ops_want_shape("step_numbers", "carried", &s->in[0], tri_shape_of(TRI_CARRIED_COUNT)));
    TRI_TRY(
        ops_want_shape("step_numbers", "control", &s->in[1], tri_shape_of(TRI_STEP_CONTROL_COUNT)));
    TRI_TRY(ops_want_rank("step_numbers", "sums", &s->in[2], 1));
    TRI_TRY(ops_want_shape("step_numbers", "squares", &s->in[3], tri_shape_of(1)));
    for (int i = 0; i < 4; i++)
        TRI_TRY(ops_want_type("step_numbers", "an input", s->in_type[i], TRI_F64));
    int64_t width = s->in[2].dims[0];
    if (a->loss < 0 || a->losses < 1 || a->stride < 2 ||
        a->loss + (a->losses - 1) * a->stride + 2 > width || a->count >= width)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "step_numbers: there are no %" PRId64 " losses from %" PRId64
                        " on among %" PRId64 " sums",
                        a->losses, a->loss, width);
    s->out[0] = s->in[0];
    s->out[1] = tri_shape_of(TRI_STEP_SCALAR_COUNT);
    s->out_type[0] = s->out_type[1] = TRI_F64;
    return TRI_OK;
}

static const tri_attr_field step_numbers_fields[] = {
    OPS_FIELD(TRI_ATTR_INT, tri_step_numbers_attr, loss),
    OPS_FIELD(TRI_ATTR_INT, tri_step_numbers_attr, losses),
    OPS_FIELD(TRI_ATTR_INT, tri_step_numbers_attr, stride),
    OPS_FIELD(TRI_ATTR_INT, tri_step_numbers_attr, count),
    OPS_FIELD(TRI_ATTR_INT, tri_step_numbers_attr, loss_scale.window),
    OPS_FIELD(TRI_ATTR_INT, tri_step_numbers_attr, loss_scale.hysteresis),
    OPS_FIELD(TRI_ATTR_BOOL, tri_step_numbers_attr, loss_scale.consecutive_hysteresis),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_step_numbers_attr, loss_scale.minimum),
    OPS_FIELD(TRI_ATTR_FLOAT, tri_step_numbers_attr, loss_scale.fixed),
    {0},
};

const tri_op tri_op_step_numbers = {
    .name = "step_numbers",
    .doc =
        "carried, control, sums, squares -> carried, step scalars: the norm of the mean gradient, "
        "the factor of gradients with clipping as torch.nn.utils.clip_grad_norm_ does it, the "
        "learning rate of this update, and whether the step is skipped because a loss or a "
        "gradient is not finite, or because no label counts; the loss scale and the count of "
        "updates for the next step, by "
        "the rule of ops/loss_scale.h. A loss that is not finite halts, as do gradients without "
        "a scale or at the smallest one: this step and all later ones are skipped",
    .input_count = 4,
    .output_count = 2,
    .flags = TRI_OP_STEP,
    .in_place = 1,
    .attr_bytes = sizeof(tri_step_numbers_attr),
    .attr_fields = step_numbers_fields,
    .shape = step_numbers_shape,
};

static tri_status first_not_finite_shape(const void *attr, tri_op_signature *s) {
    (void)attr;
    TRI_TRY(ops_want_rank("first_not_finite", "x", &s->in[0], 1));
    TRI_TRY(ops_want_wide("first_not_finite", "x", s->in_type[0]));
    TRI_TRY(ops_want_rank("first_not_finite", "ranges", &s->in[1], 2));
    TRI_TRY(
        ops_want_shape("first_not_finite", "ranges", &s->in[1], tri_shape_of(s->in[1].dims[0], 2)));
    TRI_TRY(ops_want_type("first_not_finite", "ranges", s->in_type[1], TRI_I64));
    TRI_TRY(ops_want_type("first_not_finite", "the step scalars", s->in_type[2], TRI_F64));
    TRI_TRY(ops_want_shape("first_not_finite", "the step scalars", &s->in[2],
                           tri_shape_of(TRI_STEP_SCALAR_COUNT)));
    s->out[0] = tri_shape_of(1);
    s->out_type[0] = TRI_F64;
    return TRI_OK;
}

const tri_op tri_op_first_not_finite = {
    .name = "first_not_finite",
    .doc = "x, ranges [n, 2] I64 (first element, end), step scalars -> in a step that halts, the "
           "number from 1 of the first range of x with a number that is not finite; else 0",
    .input_count = 3,
    .output_count = 1,
    .flags = TRI_OP_STEP,
    .shape = first_not_finite_shape,
};

static tri_status loss_seeds_shape(const void *attr, tri_op_signature *s) {
    (void)attr;
    TRI_TRY(ops_want_shape("loss_seeds", "carried", &s->in[0], tri_shape_of(TRI_CARRIED_COUNT)));
    TRI_TRY(ops_want_rank("loss_seeds", "losses", &s->in[1], 2));
    TRI_TRY(ops_want_shape("loss_seeds", "losses", &s->in[1], tri_shape_of(s->in[1].dims[0], 2)));
    for (int i = 0; i < 2; i++)
        TRI_TRY(ops_want_type("loss_seeds", "an input", s->in_type[i], TRI_F64));
    s->out[0] = tri_shape_of(s->in[1].dims[0]);
    s->out_type[0] = TRI_F32;
    return TRI_OK;
}

const tri_op tri_op_loss_seeds = {
    .name = "loss_seeds",
    .doc = "carried, losses [n, 2] F64 (weight, count) -> loss scale * weight / count [n], the "
           "gradient of each loss's sum; 0 where nothing counts",
    .input_count = 2,
    .output_count = 1,
    .flags = TRI_OP_STEP,
    .shape = loss_seeds_shape,
};
