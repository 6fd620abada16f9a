// Implements the option trainer.detect_anomaly, which checks every value that the forward and
// backward passes make (only the forward pass if there is a loss scale), and reports the first one
// that is not finite together with the op that made it. Without this option, the step whose loss or
// gradients are not finite is made once more with these checks (train/cause.c). Ranks exchange
// their findings before the update (in NORM, which sums losses and squares of gradients over all
// ranks) or at the end of an evaluation batch, so that all of them stop with the same message.
#include "engine/engine_internal.h"
#include "ops/product_map.h"
#include "tensor/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 8 };

static double number_at(tri_dtype dtype, const void *values, int64_t i) {
    if (dtype == TRI_F64) return ((const double *)values)[i];
    if (dtype == TRI_F32) return (double)((const float *)values)[i];
    return (double)tri_half_to_float(dtype, ((const uint16_t *)values)[i]);
}

// Whether the model means some elements of the value to be infinite: those of a tensor that it
// gives itself, of a formula with such a constant, and what formulas make of them. So it hides what
// attention or a softmax shall not see. `depth` bounds the search, as formulas may share values.
static bool has_infinity(const tri_graph *g, tri_value value, int depth) {
    const tri_value_info *info = tri_value_get(g, value);
    if (info->kind == TRI_VALUE_PARAMETER) {
        const tri_parameter_info *p = &g->parameters[info->index];
        return p->role != TRI_ROLE_TRAINED && p->init.kind == TRI_INIT_VALUES;
    }
    const tri_node *node = tri_value_node(g, value);
    if (!node || depth == 0) return false;
    const tri_op *op = node->op;
    const tri_product_map_attr *both = op == &tri_op_product_map ? node->attr : NULL;
    const tri_map_attr *map = both ? &both->map : op == &tri_op_map ? node->attr : NULL;
    bool hands_on = map || op == &tri_op_add || op->flags & TRI_OP_VIEW || op == &tri_op_cast ||
                    op == &tri_op_reorder || op == &tri_op_log_softmax;
    const tri_formula *formula = map ? &map->formula : NULL;
    for (int i = 0; formula && i < formula->constant_count; i++)
        if (isinf(formula->constants[i])) return true;
    for (int i = both ? (int)both->product_inputs : 0; hands_on && i < node->input_count; i++)
        if (tri_value_is(node->inputs[i]) && has_infinity(g, node->inputs[i], depth - 1))
            return true;
    return false;
}

// Finds the first element of a value, in row-major order, that is not finite. *at is its index, and
// *found is the number; *at is -1 if all elements are finite. Padding, with which a layout fills up
// its blocks, is not checked, because no result depends on it.
static tri_status find_in(const tri_engine *e, const tri_graph *g, tri_value value,
                          const void *memory, int64_t *at, double *found) {
    const tri_value_info *info = tri_value_get(g, value);
    *at = -1;
    if (!memory || !tri_dtype_is_float(info->dtype)) return TRI_OK;
    size_t bytes = (size_t)tri_value_bytes(g, value), element = tri_dtype_bytes(info->dtype);
    int64_t count = tri_shape_count(&info->shape);
    bool may_be_infinite = has_infinity(g, value, MOST_DEPTH);
    char *stored = malloc(bytes + (size_t)count * element + 1), *plain = stored + bytes;
    if (!stored) return TRI_FAIL(TRI_NO_MEMORY, "no memory for trainer.detect_anomaly");
    tri_status status = tri_queue_read(e->queue, stored, memory, bytes);
    if (status == TRI_OK)
        tri_layout_to_plain(&info->layout, &info->shape, element, stored, plain, 0, count);
    for (int64_t i = 0; status == TRI_OK && i < count && *at < 0; i++) {
        *found = number_at(info->dtype, plain, i);
        if (isnan(*found) || (isinf(*found) && !may_be_infinite)) *at = i;
    }
    free(stored);
    return status;
}

static void describe(tri_engine *e, const tri_graph *g, const tri_node *node, tri_value value,
                     int64_t element, double number) {
    static const char *const passes[TRI_PHASE_COUNT] = {"forward", "backward", "backward", "step"};
    const tri_value_info *info = tri_value_get(g, value);
    char shape[160], source[TRI_MAX_NAME_BYTES + 64];
    if (info->kind == TRI_VALUE_PARAMETER)
        snprintf(source, sizeof source, "reads the parameter %s, which is",
                 g->parameters[info->index].name);
    else if (info->kind == TRI_VALUE_INPUT)
        snprintf(source, sizeof source, "reads the data's %s, which are",
                 g->inputs[info->index].name);
    else
        snprintf(source, sizeof source, "%s%s%s made", node->op->name, *node->name ? " " : "",
                 node->name);
    char when[48] = "evaluation";
    if (e->run.step->request.training)
        snprintf(when, sizeof when, "step %lld", (long long)e->run.input->step + 1);
    const char *word = isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
    e->run.anomaly_phase = node->phase;
    snprintf(e->run.anomaly, sizeof e->run.anomaly,
             "%s: the %s pass of block %s: %s %s at element %lld of %s", when, passes[node->phase],
             g->blocks[node->block], source, word, (long long)element,
             tri_shape_text(&info->shape, shape, sizeof shape));
}

static tri_status look_at(tri_engine *e, const tri_graph *g, const tri_node *node, tri_value value,
                          const void *memory) {
    int64_t element;
    double number;
    TRI_TRY(find_in(e, g, value, memory, &element, &number));
    if (element >= 0 && !*e->run.anomaly) describe(e, g, node, value, element, number);
    return TRI_OK;
}

tri_status engine_look_for_anomaly(tri_engine *e, const tri_graph *g, const tri_node *node,
                                   void *const *in, void *const *out) {
    // With a loss scale, overflow in the backward pass is normal (the step is then skipped and the
    // scale shrinks), so only the forward pass is checked.
    bool is_scaled = e->carried.scale.scale > 0 && node->phase != TRI_PHASE_FORWARD;
    if (!e->detects_anomaly || *e->run.anomaly || is_scaled) return TRI_OK;
    for (int k = 0; k < node->input_count; k++) {
        tri_value_kind kind = tri_value_get(g, node->inputs[k])->kind;
        if (kind == TRI_VALUE_INPUT || kind == TRI_VALUE_PARAMETER)
            TRI_TRY(look_at(e, g, node, node->inputs[k], in[k]));
    }
    for (int k = 0; k < node->output_count; k++)
        TRI_TRY(look_at(e, g, node, node->outputs[k], out[k]));
    return TRI_OK;
}

void tri_engine_detect_anomaly(tri_engine *e) {
    TRI_ASSERT(e->flights.count == 0);
    e->detects_anomaly = true;
    engine_forget_parts(e);
}

// Chooses the rank whose finding comes first: in the forward pass, which leads to higher stages of
// a pipeline, the lowest rank; else in the backward pass, which leads to lower ones, the highest.
// found[r]: 0: rank r found nothing; else 1 + the phase. Returns `ranks` if none found anything.
static int first_of(const double *found, int ranks) {
    int last = ranks;
    for (int r = 0; r < ranks; r++) {
        if (found[r] == 1 + TRI_PHASE_FORWARD) return r;
        if (found[r] > 0) last = r;
    }
    return last;
}

// Makes all ranks fail if one of them found a value that is not finite. All of them get the message
// of the same rank, so that they report the same cause.
tri_status engine_agree_on_anomaly(tri_engine *e) {
    if (!e->detects_anomaly) return TRI_OK;
    int ranks = e->groups.world->size;
    double *found = calloc((size_t)ranks + sizeof e->run.anomaly, sizeof *found),
           *text = found + ranks;
    if (!found) return TRI_FAIL(TRI_NO_MEMORY, "no memory for trainer.detect_anomaly");
    if (*e->run.anomaly) found[e->groups.world->rank] = 1 + (int)e->run.anomaly_phase;
    tri_status status = engine_sum_over_ranks(e, "ANOMALY", found, ranks);
    int first = first_of(found, ranks);
    for (size_t i = 0; first == e->groups.world->rank && i < sizeof e->run.anomaly; i++)
        text[i] = (unsigned char)e->run.anomaly[i];
    if (status == TRI_OK && first < ranks)
        status = engine_sum_over_ranks(e, "ANOMALY", text, (int64_t)sizeof e->run.anomaly);
    for (size_t i = 0; i < sizeof e->run.anomaly; i++)
        e->run.anomaly[i] = (char)(unsigned char)text[i];
    free(found);
    TRI_TRY(status);
    return first < ranks ? TRI_FAIL(TRI_NOT_FINITE, "%s", e->run.anomaly) : TRI_OK;
}
