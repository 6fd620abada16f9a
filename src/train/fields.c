// Checks the fields of the data when a session is opened: whether training, validation and test
// data have the same ones, and whether the model reads them all.
#include "train/fields.h"

#include "base/log.h"
#include "base/quantity.h"
#include "data/ordered.h"
#include "data/padding.h"
#include "data/repeated.h"
#include "graph/metric.h"
#include "nn/models/models.h"
#include "ops/ops.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

static tri_status compare_two(const train_named_data *a, const train_named_data *b) {
    int count = tri_dataset_field_count(a->data);
    if (tri_dataset_field_count(b->data) != count)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "data: %s and %s samples have different numbers of fields: %d and %d",
                        a->name, b->name, count, tri_dataset_field_count(b->data));
    for (int i = 0; i < count; i++) {
        const tri_data_field *f = tri_dataset_field(a->data, i), *g = tri_dataset_field(b->data, i);
        char one[128], other[128];
        if (strcmp(f->name, g->name) != 0 || !tri_shape_equal(&f->shape, &g->shape))
            return TRI_FAIL(TRI_BAD_INPUT, "data: %s samples have %s %s, %s samples %s %s", a->name,
                            f->name, tri_shape_text(&f->shape, one, sizeof one), b->name, g->name,
                            tri_shape_text(&g->shape, other, sizeof other));
    }
    return TRI_OK;
}

tri_status train_fields_compare(const train_named_data *sets, int count) {
    for (int i = 1; i < count; i++) TRI_TRY(compare_two(&sets[0], &sets[i]));
    return TRI_OK;
}

void train_fields_warn_of_rest(const train_named_data *sets, int count) {
    for (int i = 0; i < count; i++) {
        bool is_usual;
        const char *rest = tri_dataset_rest(sets[i].data, &is_usual);
        if (rest && !is_usual)
            tri_log_line(TRI_LOG_WARNING, "data: not used as %s samples: %s", sets[i].name, rest);
        int64_t documents = tri_dataset_documents_left_out(sets[i].data);
        if (documents > 0)
            tri_log_line(TRI_LOG_WARNING, "data: %s of the %s text left out (data.on_error)",
                         tri_counted(documents, "damaged document"), sets[i].name);
    }
}

// Warns of files that splits share, and of classes that data.limit leaves out.
static void warn_of_samples(const train_named_data *sets, int count) {
    tri_arena *arena = tri_arena_create(NULL, "warnings");
    const tri_dataset **opened = TRI_NEW_ARRAY(arena, const tri_dataset *, count);
    for (int i = 0; i < count; i++) opened[i] = sets[i].data;
    const char *found[] = {tri_dataset_find_repeated(arena, opened, count),
                           tri_dataset_find_ordered(arena, sets[0].data)};
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        if (found[i]) tri_log_line(TRI_LOG_WARNING, "%s", found[i]);
    tri_arena_destroy(arena);
}

void train_fields_warn(const train_named_data *sets, int count) {
    warn_of_samples(sets, count);
    for (int i = 0; i < count; i++) {
        const char *doubt = tri_dataset_doubt(sets[i].data);
        bool is_said = false; // of another split of the same files
        for (int k = 0; doubt && k < i; k++) {
            const char *other = tri_dataset_doubt(sets[k].data);
            is_said |= other && !strcmp(doubt, other);
        }
        if (doubt && !is_said) tri_log_line(TRI_LOG_WARNING, "%s", doubt);
    }
    int images = tri_dataset_find(sets[0].data, "images");
    if (images == TRI_NO_FIELD) return;
    tri_dtype first = tri_dataset_stored(sets[0].data, images);
    for (int i = 1; i < count; i++) {
        tri_dtype other = tri_dataset_stored(sets[i].data, images);
        if ((first == TRI_U8) == (other == TRI_U8)) continue;
        tri_log_line(
            TRI_LOG_WARNING,
            "data: the images of the %s data are %s, those of the %s data %s: bytes (U8) are "
            "divided by 255, other numbers are not",
            sets[0].name, tri_dtype_name(first), sets[i].name, tri_dtype_name(other));
    }
}

static bool is_read(const tri_graph *g, int input) {
    tri_value value = g->inputs[input].value;
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].input_count; k++)
            if (g->nodes[i].inputs[k].id == value.id) return true;
    return false;
}

// Whether the model reads the field where tri_training says that it trains.
static bool is_read_in_training(const tri_model_request *model, const tri_graph *graph, int input) {
    tri_model_request training = *model;
    tri_graph *built;
    training.options.training = true;
    return tri_model_build(graph->arena, &training, tri_graph_samples(graph), &built) == TRI_OK &&
           is_read(built, input);
}

static bool declares(const tri_task *task, const char *field) {
    for (int i = 0; i < TRI_TASK_MAX_FIELDS && task->fields[i].name; i++)
        if (!strcmp(task->fields[i].name, field)) return true;
    return false;
}

static bool reads_labels(const tri_dataset *data, const tri_graph *graph) {
    for (int i = 0; i < tri_dataset_field_count(data); i++)
        if (tri_dataset_has_ignored(data, tri_dataset_field(data, i)->name) && is_read(graph, i))
            return true;
    return false;
}

// The value of a step. NaN stands for an operand that is not known, and then for the value, except
// that a product with 0 is 0, and that a known condition chooses one operand. The numbers of a
// sample that is left out count as finite.
static double step_of_known(tri_step_kind kind, double a, double b, double c) {
    int arity = tri_step_arity(kind);
    if (kind == TRI_STEP_mul && (a == 0 || b == 0)) return 0;
    if (kind == TRI_STEP_div && a == 0 && b != 0 && !isnan(b)) return 0;
    if (kind == TRI_STEP_select && !isnan(a)) return a != 0 ? b : c;
    if (isnan(a) || (arity > 1 && isnan(b)) || (arity > 2 && isnan(c))) return (double)NAN;
    return tri_step_value(kind, a, b, c);
}

// What the map makes of the values `found`.
static double value_of_map(const tri_node *node, const double *found) {
    const tri_map_attr *map = node->attr;
    const tri_formula *f = &map->formula;
    double values[UINT8_MAX + 1] = {0};
    for (int k = 0; k < f->input_count; k++)
        values[TRI_OPERAND_INPUT + k] = found[node->inputs[k].id];
    for (int k = 0; k < f->constant_count; k++) values[TRI_OPERAND_CONSTANT + k] = f->constants[k];
    for (int t = 0; t < f->step_count; t++) {
        const tri_formula_step *s = &f->steps[t];
        values[t] = step_of_known((tri_step_kind)s->kind, values[s->a], values[s->b], values[s->c]);
    }
    double value = values[f->outputs[0]];
    return map->mask && !isnan(value) ? value != 0 : value;
}

// What the node makes of `found`, what its inputs are for a sample that is left out. NaN: it is not
// known.
static double value_behind(const tri_node *node, const double *found) {
    const tri_op *op = node->op;
    double label = found[node->inputs[0].id];
    const tri_reduce_attr *reduce = node->attr;
    if (op == &tri_op_map) return value_of_map(node, found);
    if (op == &tri_op_reduce) // zeros add nothing
        return reduce->kind == TRI_REDUCTION_SUM && label == 0 ? 0 : (double)NAN;
    if (op == &tri_op_matmul && (label == 0 || found[node->inputs[1].id] == 0)) return 0;
    if (op == &tri_op_top_class) return label == 0 ? TRI_IGNORED_LABEL : (double)NAN;
    if (op->keeps_labels) return label == TRI_IGNORED_LABEL ? 0 : (double)NAN;
    if (op->flags & TRI_OP_VIEW || op->label_at || op == &tri_op_cast) return label;
    return (double)NAN;
}

// What a loss leaves out of labels or soft labels.
static double ignored_of(const tri_graph *g, tri_value labels) {
    return tri_dtype_is_float(tri_value_get(g, labels)->dtype) ? 0 : TRI_IGNORED_LABEL;
}

// Finds for each value what it has for a sample that is left out, whose label is -100, or whose
// soft labels are 0; NaN: it is not known, or another number for each sample.
static double *find_left_out_values(const tri_dataset *data, const tri_graph *g) {
    double *found = TRI_NEW_ARRAY(g->arena, double, g->value_count);
    for (int i = 0; i < g->value_count; i++) found[i] = (double)NAN;
    for (int i = 0; i < tri_dataset_field_count(data); i++)
        if (tri_dataset_has_ignored(data, tri_dataset_field(data, i)->name))
            found[g->inputs[i].value.id] = ignored_of(g, g->inputs[i].value);
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i].output_count > 0)
            found[g->nodes[i].outputs[0].id] = value_behind(&g->nodes[i], found);
    return found;
}

// Finds a loss or metric of a graph that no pass has changed which may count samples that are left
// out; NULL: there is none, or no graph.
static const char *find_uncounted(const tri_dataset *data, const tri_graph *g) {
    if (!g) return NULL;
    const double *found = find_left_out_values(data, g);
    for (int i = 0; i < g->metric_count; i++) {
        const tri_node *node = tri_value_node(g, g->metrics[i].value);
        bool adds_up = node && node->op == &tri_op_metric_sums;
        if (!node || (!node->op->count && !node->op->labels && !adds_up)) continue;
        int labels = adds_up ? 1 : node->op->labels - 1;
        if (labels < 0) return g->metrics[i].name;
        bool is_error = adds_up && g->metrics[i].tally == TRI_TALLY_ERRORS;
        double ignored = adds_up ? TRI_IGNORED_LABEL : ignored_of(g, node->inputs[labels]);
        bool counts = found[node->inputs[labels].id] == ignored && !is_error;
        // Terms that are divided by a sum are added up whatever their counts are.
        if (node->op->sums_labels) counts = counts && found[node->inputs[0].id] == 0;
        if (!counts) return g->metrics[i].name;
    }
    return NULL;
}

static bool has_statistics(const tri_graph *g) {
    for (int i = 0; i < g->parameter_count; i++)
        if (g->parameters[i].role == TRI_ROLE_STATISTIC ||
            g->parameters[i].role == TRI_ROLE_SAMPLE_STATISTIC)
            return true;
    return false;
}

// Rejects data whose damaged samples are left out by their labels, if the model takes something
// from them nevertheless: they would count as images of zeros.
static tri_status check_left_out(const tri_dataset *data, bool trains, const tri_task *task,
                                 const tri_graph *graph, const tri_graph *const plain[2]) {
    const char *why = NULL, *uncounted = find_uncounted(data, plain[true]);
    if (!uncounted) uncounted = find_uncounted(data, plain[false]);
    // Without a loss, the rows of these samples mean nothing, which the caller says.
    if (!tri_dataset_leaves_out(data) || graph->options.predicts) return TRI_OK;
    if (!reads_labels(data, graph))
        why = "reads no labels, so that its loss cannot leave out a damaged sample";
    else if (uncounted)
        why = tri_arena_printf(graph->arena,
                               "may count a sample that is left out, whose label is -100, in '%s'",
                               uncounted);
    else if (trains && has_statistics(graph))
        why = "has running statistics, which would count the zeros in place of a damaged sample";
    if (!why) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "data.on_error=skip: model %s %s; use data.on_error=refuse, and remove what "
                    "`trireme data check` names",
                    task->name, why);
}

static tri_status refuse_unread(const tri_dataset *data, const char *model, const char *field) {
    const char *choice = tri_dataset_choice_of_fields(data);
    return TRI_FAIL(TRI_BAD_INPUT,
                    "data: model %s does not read '%s': %s%sleave this one out of the files, or "
                    "use a model that reads it",
                    model, field, choice ? choice : "", choice ? ", " : "");
}

// Rejects a field that the model does not read, unless it changes nothing: the model reads it in
// training alone, the model's task declares it (as autoencoder its labels), the data set always has
// it, or it marks tokens as padding that no other token of a causal model sees.
tri_status train_fields_check(const train_named_data *sets, int count, bool trains,
                              const tri_model_request *model, const tri_graph *graph,
                              const tri_graph *const plain[2]) {
    const tri_task *task = model->task;
    for (int i = 0; i < tri_dataset_field_count(sets[0].data); i++) {
        // The graph's first inputs are the data's fields.
        const char *name = tri_dataset_field(sets[0].data, i)->name;
        if (is_read(graph, i) || graph->inputs[i].is_measured || declares(task, name)) continue;
        if (tri_dataset_has_fixed_fields(sets[0].data)) continue;
        bool is_padding = !strcmp(name, "attention_mask") && tri_model_is_causal(task);
        // A graph without losses need not read what the model's losses read.
        if (graph->options.predicts && !is_padding) continue;
        if (!is_padding && !trains && is_read_in_training(model, graph, i)) continue;
        if (!is_padding) return refuse_unread(sets[0].data, task->name, name);
        bool predicts = graph->options.predicts; // rows of outputs keep the positions of the data
        for (int k = 0; k < count; k++) {
            if (!predicts) tri_dataset_move_padding(sets[k].data);
            TRI_TRY(tri_padding_check(sets[k].data, sets[k].name, task->name, predicts));
        }
    }
    return check_left_out(sets[0].data, trains, task, graph, plain);
}

tri_status train_fields_check_guess(const tri_dataset *data, const char *field, int64_t tokens) {
    const char *path = tri_dataset_guessed(data);
    int index = tri_dataset_find(data, field);
    if (!path || index == TRI_NO_FIELD || tokens <= UINT16_MAX + 1) return TRI_OK;
    tri_dtype type = tri_dataset_stored(data, index);
    if (tri_dtype_bytes(type) > 2) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: by its name, its tokens would be %s, into which the model's %lld tokens "
                    "do not fit: set data.dtype to u32, or to what they are",
                    path, tri_dtype_name(type), (long long)tokens);
}
