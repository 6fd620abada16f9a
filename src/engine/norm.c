#include "engine/engine_internal.h"

#include <math.h>
#include <string.h>

// Sums over the replicas what every replica counted, the caller's numbers, and one number more.
tri_status engine_sum_metrics(tri_engine *e, double *extra) {
    int metrics = e->plan->graph->metric_count;
    if (e->replicas->size == 1) {
        memcpy(e->output->shared, e->input->shared, sizeof e->output->shared);
        return TRI_OK;
    }
    double values[2 * TRI_MAX_METRICS + TRI_MAX_SHARED + 1];
    double *counts = values + metrics, *shared = counts + metrics, *last = shared + TRI_MAX_SHARED;
    memcpy(values, e->output->sum, (size_t)metrics * sizeof *values);
    memcpy(counts, e->output->count, (size_t)metrics * sizeof *values);
    memcpy(shared, e->input->shared, TRI_MAX_SHARED * sizeof *values);
    *last = *extra;
    tri_comm_op op = {.kind = TRI_COMM_ALL_REDUCE,
                      .reduction = TRI_REDUCE_SUM,
                      .dtype = TRI_F64,
                      .count = last + 1 - values,
                      .send = values,
                      .recv = values,
                      .label = "NORM"};
    TRI_TRY(tri_comm_run(e->replicas, &op));
    memcpy(e->output->sum, values, (size_t)metrics * sizeof *values);
    memcpy(e->output->count, counts, (size_t)metrics * sizeof *values);
    memcpy(e->output->shared, shared, TRI_MAX_SHARED * sizeof *values);
    *extra = *last;
    return TRI_OK;
}

// This rank's part of the sum of squares of all gradients: every replica has the same ones after
// REDUCE and takes its part of each block.
static double squares(const tri_engine *e) {
    const tri_flat *flat = &e->plan->flat;
    int64_t rank = e->replicas->rank, size = e->replicas->size;
    double sum = 0;
    for (int b = 0; b < flat->block_count; b++) {
        int64_t units = flat->blocks[b].trained / TRI_FLAT_ALIGNMENT;
        int64_t first = units * rank / size * TRI_FLAT_ALIGNMENT;
        int64_t end = units * (rank + 1) / size * TRI_FLAT_ALIGNMENT;
        if (end > first)
            sum += e->device->backend->sum_of_squares(
                e->device, e->gradients + flat->blocks[b].offset + first, end - first);
    }
    return sum;
}

static tri_status name_not_finite(const tri_engine *e) {
    const tri_graph *g = e->plan->graph;
    long long step = (long long)e->input->update;
    if (!isfinite(e->output->sum[0]))
        return TRI_FAIL(TRI_NOT_FINITE,
                        "step %lld: the loss is %g; try a smaller optimizer.lr or "
                        "trainer.gradient_clip_val",
                        step, isnan(e->output->sum[0]) ? NAN : e->output->sum[0]); // never -nan
    for (int i = 0; i < g->parameter_count; i++) {
        const tri_flat_parameter *p = &e->plan->flat.parameters[i];
        if (g->parameters[i].role != TRI_ROLE_TRAINED) continue;
        double sum =
            e->device->backend->sum_of_squares(e->device, e->gradients + p->offset, p->elements);
        if (!isfinite(sum))
            return TRI_FAIL(TRI_NOT_FINITE,
                            "step %lld: the gradient of %s is not finite; try a smaller "
                            "optimizer.lr or trainer.gradient_clip_val",
                            step, g->parameters[i].name);
    }
    return TRI_FAIL(TRI_NOT_FINITE, "step %lld: the norm of the gradients is not finite", step);
}

// Learns the true counts and the norm, and writes the step scalars.
tri_status engine_norm(tri_engine *e) {
    double sum = squares(e);
    TRI_TRY(engine_sum_metrics(e, &sum));
    if (!isfinite(sum) || !isfinite(e->output->sum[0])) return name_not_finite(e);
    double nominal = (double)e->step->samples, count = e->output->count[0];
    double scale = count > 0 ? nominal / count : 0;
    double norm = sqrt(sum) * scale;
    e->output->gradient_norm = norm;
    // As torch.nn.utils.clip_grad_norm_ does.
    if (e->input->clip > 0 && norm > 0) {
        double factor = e->input->clip / (norm + 1e-6);
        if (factor < 1) scale *= factor;
    }
    double scalars[TRI_STEP_SCALAR_COUNT] = {
        [TRI_STEP_LR] = e->input->lr,
        [TRI_STEP_GRADIENT_SCALE] = scale,
        [TRI_STEP_STATISTIC_SCALE] = 1 / nominal,
        [TRI_STEP_UPDATE] = (double)e->input->update,
    };
    e->device->backend->copy_in(e->device, e->scalars[TRI_SCALAR_STEP], scalars, sizeof scalars);
    return TRI_OK;
}
