// Checks that no result depends on how a step is divided into micro-batches, as the number of ranks
// decides that: builds the model's graph for several sizes, and looks for nodes that mix samples,
// or that are others for another size.
#include "plan/mixing.h"
#include "plan/plan.h"

#include "data/sampler.h"

#include <string.h>

static bool begins_alike(const tri_init *a, const tri_init *b) {
    return a->kind == b->kind && a->value == b->value && a->low == b->low && a->high == b->high &&
           a->mean == b->mean && a->std == b->std && a->gain == b->gain && a->slope == b->slope &&
           a->fan_out == b->fan_out && a->nonlinearity == b->nonlinearity &&
           a->groups == b->groups && a->sparsity == b->sparsity && a->zero_row == b->zero_row;
}

// The values of constants are compared too, as no rank would notice otherwise.
const char *tri_plan_other_parameter(const tri_graph *a, const tri_graph *b) {
    for (int i = 0; i < a->parameter_count && i < b->parameter_count; i++) {
        const tri_parameter_info *p = &a->parameters[i], *q = &b->parameters[i];
        size_t bytes = (size_t)tri_shape_count(&p->shape) * sizeof *p->init.values;
        bool alike = !strcmp(p->name, q->name) && p->role == q->role && p->block == q->block &&
                     tri_shape_equal(&p->shape, &q->shape) &&
                     p->stored_transposed == q->stored_transposed &&
                     begins_alike(&p->init, &q->init);
        if (alike && p->init.kind == TRI_INIT_VALUES)
            alike = memcmp(p->init.values, q->init.values, bytes) == 0;
        if (!alike) return p->name;
    }
    return NULL;
}

// Builds the model's graph for a number of samples. NULL: it can have no such number.
static const tri_graph *graph_of(const tri_plan *plan, const tri_plan_request *request,
                                 int64_t samples) {
    tri_model_request model = *request->model;
    tri_graph *graph;
    model.options.training = true;
    if (samples < 1 || tri_model_build(plan->arena, &model, samples, &graph) != TRI_OK) return NULL;
    return tri_pass_sweep(graph) == TRI_OK ? graph : NULL; // without what only metrics read
}

// Builds it for a number of samples that is hardly the size of another axis, so that axes can be
// told apart: a multiple of `prime`, as some models need an even number, or one that 3 divides.
static const tri_graph *graph_of_many(const tri_plan *plan, const tri_plan_request *request,
                                      int64_t prime, int64_t *samples) {
    static const int factors[] = {1, 2, 8, 64, 3};
    const tri_graph *graph = NULL;
    for (size_t i = 0; !graph && i < sizeof factors / sizeof *factors; i++)
        graph = graph_of(plan, request, *samples = factors[i] * prime);
    return graph;
}

// Builds it for a number of samples that is another one than `samples`, but not much larger: a
// parameter that is cut to the number of samples has no more rows than it has.
static const tri_graph *graph_of_few(const tri_plan *plan, const tri_plan_request *request,
                                     int64_t samples) {
    const int64_t others[] = {2 * samples, samples + 1, samples - 1, samples / 2, samples / 3};
    const tri_graph *graph = NULL;
    for (size_t i = 0; !graph && i < sizeof others / sizeof *others; i++)
        if (others[i] > 1) graph = graph_of(plan, request, others[i]);
    return graph;
}

// Finds a node whose result depends on how a step is divided into micro-batches, and *how it does;
// NULL: there is none. `samples`: those of `graph`; `other` may be NULL.
static const tri_node *find_dependent(const tri_plan *plan, const tri_graph *graph, int64_t samples,
                                      const tri_graph *other, const char **how) {
    const tri_node *node = tri_plan_find_mixing(plan->arena, graph, samples);
    *how = "mixes samples";
    if (node || !other) return node;
    *how = "computes with a number made of the batch size";
    if ((node = tri_plan_find_sized(graph, other))) return node;
    *how = "takes rows of a parameter or constant by the places of samples in a micro-batch";
    return tri_plan_find_rows(plan->arena, graph, other, samples);
}

tri_status tri_plan_check_division(const tri_plan *plan, const tri_plan_request *request) {
    bool is_given = request->micro > 0 && !request->micro_follows;
    // The micro-batches of an evaluation are the same on any number of replicas.
    if (plan->replicas == 1 || is_given) return TRI_OK;
    const int64_t step = request->step_samples[TRI_STEP_FULL]
                             ? request->step_samples[TRI_STEP_FULL]
                             : request->step_samples[TRI_STEP_TAIL];
    const int64_t micro = tri_micro_batch_largest(step, request->micro, plan->replicas);
    int64_t samples, others;
    const tri_graph *graph = graph_of_many(plan, request, 1009, &samples);
    const tri_graph *other = graph_of_many(plan, request, 997, &others);
    if (!graph && (graph = graph_of(plan, request, samples = micro > 1 ? micro : 2)))
        other = graph_of_few(plan, request, samples);
    if (!graph) {
        samples = plan->programs[0]->batch;
        graph = plan->graph;
    }
    const char *parameter = other ? tri_plan_other_parameter(graph, other) : NULL;
    if (parameter)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "the parameter %s is another one for another batch size: the model's build "
                        "function must not do that",
                        parameter);
    const char *how;
    const tri_node *node = find_dependent(plan, graph, samples, other, &how);
    // A model may also be another one from some size on, between one rank's and this number's.
    for (int shape = TRI_STEP_FULL; shape <= TRI_STEP_TAIL; shape++) {
        const int64_t all = request->step_samples[shape], least = all / plan->replicas;
        const int64_t sizes[] = {
            all, all > 0 ? tri_micro_batch_largest(all, request->micro, plan->replicas) : 0, least};
        for (int i = 0; !node && i < 3; i++) {
            const tri_graph *real = sizes[i] > 1 ? graph_of(plan, request, sizes[i]) : NULL;
            if (real && (node = tri_plan_find_sized(graph, real)))
                how = "is another one for another batch size";
        }
    }
    if (!node) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "block %s %s (%s), so on several replicas batch.micro has to be set, else the "
                    "result would depend on how many there are",
                    graph->blocks[node->block], how, node->op->name);
}
