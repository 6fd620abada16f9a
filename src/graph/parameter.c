// The parameters, buffers and constants that models declare, and the rules of their initial values.
// Which numbers these are follows in engine/initial.c.
#include "graph/graph.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

// What the kinds of initial values are drawn as, and by which fans their spread is scaled.
typedef enum fan_rule { FAN_NONE, FAN_XAVIER, FAN_KAIMING } fan_rule;

static const struct {
    const char *name;    // torch.nn.init's
    tri_init_kind drawn; // one of those that tri_init_resolve results in
    fan_rule fan;
    int least_axes, most_axes;
} rows[] = {
    [TRI_INIT_DEFAULT] = {"zeros", TRI_INIT_CONSTANT, FAN_NONE, 0, TRI_MAX_RANK},
    [TRI_INIT_ZEROS] = {"zeros", TRI_INIT_CONSTANT, FAN_NONE, 0, TRI_MAX_RANK},
    [TRI_INIT_ONES] = {"ones", TRI_INIT_CONSTANT, FAN_NONE, 0, TRI_MAX_RANK},
    [TRI_INIT_CONSTANT] = {"constant", TRI_INIT_CONSTANT, FAN_NONE, 0, TRI_MAX_RANK},
    [TRI_INIT_VALUES] = {"values", TRI_INIT_VALUES, FAN_NONE, 0, TRI_MAX_RANK},
    [TRI_INIT_UNIFORM] = {"uniform", TRI_INIT_UNIFORM, FAN_NONE, 0, TRI_MAX_RANK},
    [TRI_INIT_NORMAL] = {"normal", TRI_INIT_NORMAL, FAN_NONE, 0, TRI_MAX_RANK},
    [TRI_INIT_TRUNC_NORMAL] = {"trunc_normal", TRI_INIT_TRUNC_NORMAL, FAN_NONE, 0, TRI_MAX_RANK},
    [TRI_INIT_XAVIER_UNIFORM] = {"xavier_uniform", TRI_INIT_UNIFORM, FAN_XAVIER, 2, TRI_MAX_RANK},
    [TRI_INIT_XAVIER_NORMAL] = {"xavier_normal", TRI_INIT_NORMAL, FAN_XAVIER, 2, TRI_MAX_RANK},
    [TRI_INIT_KAIMING_UNIFORM] = {"kaiming_uniform", TRI_INIT_UNIFORM, FAN_KAIMING, 2,
                                  TRI_MAX_RANK},
    [TRI_INIT_KAIMING_NORMAL] = {"kaiming_normal", TRI_INIT_NORMAL, FAN_KAIMING, 2, TRI_MAX_RANK},
    [TRI_INIT_ORTHOGONAL] = {"orthogonal", TRI_INIT_ORTHOGONAL, FAN_NONE, 1, TRI_MAX_RANK},
    [TRI_INIT_IDENTITY] = {"identity", TRI_INIT_DIRAC, FAN_NONE, 2, 2},
    [TRI_INIT_DIRAC] = {"dirac", TRI_INIT_DIRAC, FAN_NONE, 3, 5},
    [TRI_INIT_SPARSE] = {"sparse", TRI_INIT_SPARSE, FAN_NONE, 2, 2},
};
enum { KINDS = sizeof rows / sizeof *rows };

double tri_init_gain(tri_nonlinearity nonlinearity, double slope) {
    switch (nonlinearity) {
    case TRI_NONLINEARITY_LEAKY_RELU:
        return sqrt(2 / (1 + slope * slope));
    case TRI_NONLINEARITY_RELU:
        return sqrt(2);
    case TRI_NONLINEARITY_TANH:
        return 5.0 / 3;
    case TRI_NONLINEARITY_SELU:
        return 0.75;
    case TRI_NONLINEARITY_LINEAR:
    case TRI_NONLINEARITY_SIGMOID:
        break;
    }
    return 1;
}

// The standard deviation by a rule of fans.
static double spread_of(const tri_init *init, fan_rule rule, double gain, const tri_shape *shape) {
    double behind = 1;
    for (int i = 2; i < shape->rank; i++) behind *= (double)shape->dims[i];
    double fan_in = (double)shape->dims[1] * behind, fan_out = (double)shape->dims[0] * behind;
    double fan = rule == FAN_XAVIER ? (fan_in + fan_out) / 2 : init->fan_out ? fan_out : fan_in;
    if (rule == FAN_KAIMING) gain = tri_init_gain(init->nonlinearity, init->slope);
    return fan > 0 ? gain / sqrt(fan) : 0;
}

tri_status tri_init_resolve(const tri_init *init, const tri_shape *shape, tri_init *out) {
    if ((unsigned)init->kind >= KINDS)
        return TRI_FAIL(TRI_BAD_INPUT, "there is no initialiser %d", (int)init->kind);
    const char *name = rows[init->kind].name;
    int least = rows[init->kind].least_axes, most = rows[init->kind].most_axes;
    *out = *init;
    out->kind = rows[init->kind].drawn;
    if (init->kind != TRI_INIT_CONSTANT) out->value = init->kind == TRI_INIT_ONES;
    if (out->std == 0) out->std = out->kind == TRI_INIT_SPARSE ? 0.01 : 1;
    if (out->gain == 0) out->gain = 1;
    if (out->groups == 0) out->groups = 1;
    if (shape->rank < least || shape->rank > most)
        return TRI_FAIL(TRI_BAD_INPUT, "the initialiser %s needs %d axes%s, not %d", name, least,
                        most > least ? " or more" : "", shape->rank);
    if (init->kind == TRI_INIT_VALUES && !init->values)
        return TRI_FAIL(TRI_BAD_INPUT, "the initialiser values has none");
    double numbers[] = {out->value, out->low,  out->high,  out->mean,
                        out->std,   out->gain, out->slope, out->sparsity};
    for (int i = 0; i < (int)(sizeof numbers / sizeof *numbers); i++)
        if (!isfinite(numbers[i]))
            return TRI_FAIL(TRI_BAD_INPUT, "the initialiser %s has the number %g", name,
                            numbers[i]);
    if (out->low == 0 && out->high == 0) {
        out->low = out->kind == TRI_INIT_TRUNC_NORMAL ? -2 : 0;
        out->high = out->kind == TRI_INIT_TRUNC_NORMAL ? 2 : 1;
    }
    bool has_range = init->kind == TRI_INIT_UNIFORM || init->kind == TRI_INIT_TRUNC_NORMAL;
    if (out->std < 0 || (has_range && !(out->low < out->high)))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "the initialiser %s needs a standard deviation of at least 0 and low below "
                        "high, not %g and %g, %g",
                        name, out->std, out->low, out->high);
    if (out->kind == TRI_INIT_DIRAC && (out->groups < 1 || shape->dims[0] % out->groups != 0))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "the initialiser %s needs groups that divide the %" PRId64
                        " rows, not %" PRId64,
                        name, shape->dims[0], out->groups);
    if (out->sparsity < 0 || out->sparsity > 1)
        return TRI_FAIL(TRI_BAD_INPUT, "the initialiser %s needs a sparsity from 0 to 1, not %g",
                        name, out->sparsity);
    if (rows[init->kind].fan == FAN_NONE) return TRI_OK;
    double spread = spread_of(init, rows[init->kind].fan, out->gain, shape);
    out->mean = 0;
    out->std = spread;
    out->high = sqrt(3) * spread;
    out->low = -out->high;
    return TRI_OK;
}

tri_init tri_init_copy(tri_arena *arena, const tri_init *init, const tri_shape *shape) {
    tri_init copy = *init;
    if (init->kind != TRI_INIT_VALUES) return copy;
    size_t bytes = (size_t)tri_shape_count(shape) * sizeof *init->values;
    copy.values = memcpy(tri_arena_alloc(arena, bytes), init->values, bytes);
    return copy;
}

// Whether the graph has other values of this name, which a network could not tell apart.
static bool has_other_values(const tri_graph *g, const char *name, const tri_init *init,
                             const tri_shape *shape) {
    int known = tri_index_find(&g->parameter_index, name, strlen(name));
    if (known == TRI_NOT_IN_INDEX) return false;
    const tri_parameter_info *p = &g->parameters[known];
    if (p->role == TRI_ROLE_TRAINED || !tri_shape_equal(&p->shape, shape)) return false;
    if (p->init.kind != TRI_INIT_VALUES || init->kind != TRI_INIT_VALUES) return false;
    size_t bytes = (size_t)tri_shape_count(shape) * sizeof *init->values;
    return memcmp(p->init.values, init->values, bytes) != 0;
}

bool tri_role_is_average(tri_parameter_role role) {
    return role == TRI_ROLE_STATISTIC || role == TRI_ROLE_SAMPLE_STATISTIC ||
           role == TRI_ROLE_ITERATE;
}

static tri_value declare(tri_graph *g, const char *name, tri_shape shape, tri_init init,
                         tri_parameter_role role) {
    if (!tri_graph_takes_name(g, "parameter", name)) return (tri_value){0};
    tri_init resolved;
    if (shape.rank < 0 || shape.rank > TRI_MAX_RANK || tri_shape_count(&shape) < 1) {
        tri_graph_fail(g, "parameter %s: has no elements, or an impossible shape", name);
        return (tri_value){0};
    }
    if (tri_init_resolve(&init, &shape, &resolved) != TRI_OK) {
        tri_graph_fail(g, "parameter %s: %s", name, tri_error_message());
        return (tri_value){0};
    }
    if (has_other_values(g, name, &init, &shape)) {
        tri_graph_fail(g,
                       "parameter '%s' is declared twice with different values: give each a "
                       "name of its own",
                       name);
        return (tri_value){0};
    }
    init = tri_init_copy(g->arena, &init, &shape);
    return tri_parameter_of_role(g, name, g->options.dtype, shape, init, role, 0);
}

tri_value tri_parameter(tri_graph *graph, const char *name, tri_shape shape, tri_init init) {
    bool is_adapted = graph->options.lora.match.count > 0; // then only adapters are trained
    return declare(graph, name, shape, init, is_adapted ? TRI_ROLE_FROZEN : TRI_ROLE_TRAINED);
}

tri_value tri_parameter_of_norms(tri_graph *graph, const char *name, tri_value of, int axis) {
    tri_init ones = {.kind = TRI_INIT_ONES};
    tri_shape shape = {0};
    if (graph->status != TRI_OK) return (tri_value){0};
    const tri_parameter_info *other = &graph->parameters[tri_value_get(graph, of)->index];
    tri_parameter_info *copy =
        memcpy(tri_arena_alloc(graph->arena, sizeof *copy), other, sizeof *copy);
    if (axis >= 0) shape.rank = other->shape.rank;
    for (int i = 0; i < shape.rank; i++) shape.dims[i] = i == axis ? other->shape.dims[i] : 1;
    tri_value value = tri_parameter(graph, name, shape, ones);
    if (graph->status != TRI_OK) return value;
    graph->parameters[tri_value_get(graph, value)->index].norms_of = copy;
    return value;
}

tri_value tri_register_buffer(tri_graph *graph, const char *name, tri_shape shape, tri_init init) {
    return declare(graph, name, shape, init, TRI_ROLE_BUFFER);
}

tri_value tri_constant(tri_graph *graph, const char *name, tri_shape shape, const float *values) {
    tri_init init = {.kind = TRI_INIT_VALUES, .values = values};
    return declare(graph, name, shape, init, TRI_ROLE_CONSTANT);
}
