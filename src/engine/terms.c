// The loss, and the counts by which gradients are divided. A loss is a mean: the sum of its values
// over the step, divided by their count. In a weighted sum of losses, each loss (a term) is a mean
// with its own count.
//
// BACKWARD adds the gradients of all losses, which cannot be separated afterwards. So the gradient
// of each loss must be divided by the loss's count before BACKWARD adds it. If a count depends on
// labels, the labels are counted before the step.
//
// If all losses have the same count, one division is enough, and it can wait. BACKWARD divides by
// the number of all labels in the step (the nominal count), which is known in advance. The action
// NORM learns the true count, without labels that are ignored, and STEP multiplies by nominal /
// true count. So what BACKWARD computes, and ranks send each other, is close to the gradient of the
// mean: a loss scale multiplies that mean, as elsewhere, and not a sum over a sample's labels.
//
// A loss seed is the gradient with which BACKWARD begins, for each loss: weight × loss scale /
// count.
#include "engine/engine_internal.h"
#include "graph/loss.h"

// Whether this rank counts labels: one rank of each replica does, because all ranks of a replica
// have the same labels.
static bool counts_labels(const tri_engine *e) {
    const tri_plan *plan = e->plan;
    return e->groups.tensor_parallel->rank == 0 &&
           tri_mesh_coordinate(&plan->mesh, plan->rank, TRI_AXIS_PIPELINE) == 0;
}

static tri_status count_labels(tri_engine *e, double *counts) {
    const tri_graph *g = e->plan->graph;
    int64_t ahead = 0;
    // The loader has memory only for the micro-batches of one step. Those of the previous step have
    // to be released before the loader can show those of this step.
    if (counts_labels(e)) TRI_TRY(tri_engine_release_batches(e));
    for (int r = 0; r < e->run.step->rounds && counts_labels(e); r++) {
        tri_engine_batch batch;
        if (e->run.step->round_items[r].size == 0) continue;
        TRI_TRY(e->run.input->look(e->run.input->context, ahead++, &batch));
        TRI_ASSERT(batch.size == e->run.step->round_items[r].size);
        for (int i = 0; i < g->term_count; i++) {
            const tri_loss_term *term = &g->metrics[g->first_term + i].term;
            // term->labels is an index into the graph's inputs. It is also the index of the field,
            // because the graph's first inputs are the data's fields.
            if (term->has_labels)
                counts[i] += tri_loss_count_labels(g, term, batch.size, batch.fields[term->labels]);
        }
    }
    return TRI_OK;
}

// Finds the count by which each loss is divided, over the whole step and all ranks: the number of
// its labels that are not ignored or, for a loss without labels, what the plan has counted.
static tri_status find_counts(tri_engine *e, double *counts) {
    const tri_graph *g = e->plan->graph;
    for (int i = 0; i < g->term_count; i++) counts[i] = 0;
    if (g->counting == TRI_COUNT_AHEAD) {
        TRI_TRY(count_labels(e, counts));
        TRI_TRY(engine_sum_over_ranks(e, "COUNT", counts, g->term_count));
    }
    for (int i = 0; i < g->term_count; i++) {
        const tri_loss_term *term = &g->metrics[g->first_term + i].term;
        if (!term->has_labels) counts[i] = e->run.step->term_counts[i];
    }
    return TRI_OK;
}

double engine_nominal_count(const tri_engine *e) {
    double count = e->run.step->term_counts[0];
    return count > 0 ? count : (double)e->run.step->samples;
}

tri_status engine_write_seeds(tri_engine *e) {
    const tri_graph *g = e->plan->graph;
    const engine_numbers *n = &e->numbers;
    double nominal = engine_nominal_count(e), counts[TRI_MAX_LOSS_TERMS];
    double losses[1 + TRI_MAX_LOSS_TERMS][2] = {{1, nominal}};
    if (g->term_count > 0 && g->counting != TRI_COUNT_BEHIND) TRI_TRY(find_counts(e, counts));
    for (int i = 0; i < g->term_count; i++) {
        losses[1 + i][0] = g->metrics[g->first_term + i].term.weight;
        losses[1 + i][1] = g->counting == TRI_COUNT_BEHIND ? nominal : counts[i];
    }
    TRI_TRY(e->device->backend->copy_in(e->queue, n->losses, losses,
                                        (size_t)(1 + g->term_count) * sizeof losses[0]));
    void *in[] = {n->carried, n->losses}, *out[] = {n->seeds};
    return engine_run_numbers(e, &n->make_seeds, in, out);
}

// Computes the value of a weighted sum of losses from the means of its terms. A loss whose labels
// are all ignored adds nothing, because its mean would be 0 / 0. If that holds for all, the count
// of the sum is 0, as that of a single loss.
void engine_sum_terms(const tri_engine *e, tri_step_output *out) {
    const tri_graph *g = e->plan->graph;
    if (g->term_count == 0) return;
    double loss = 0;
    bool is_empty = true;
    for (int i = g->first_term; i < g->first_term + g->term_count; i++) {
        if (out->count[i] <= 0) continue;
        loss += g->metrics[i].term.weight * out->sum[i] / out->count[i];
        is_empty = false;
    }
    out->sum[0] = loss;
    out->count[0] = !is_empty;
}
