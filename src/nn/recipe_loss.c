// The recipe's losses: one table of their names, options and builders. Each takes an output of the
// model and a field of the data.
#include "nn/recipe_loss.h"

#include "base/quantity.h"
#include "graph/loss.h"
#include "nn/options.h"
#include "ops/ops.h"
#include "tensor/half.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/functions.h>
#include <trireme/losses.h>
#include <trireme/more_functions.h>
#include <trireme/nn.h>
#include <trireme/parameters.h>

#define S tri_loss_options

static const char *const class_axes[] = {"auto", "second", "last", NULL};
enum { AXIS_AUTO, AXIS_SECOND, AXIS_LAST };
static const char *const shift_words[] = {"auto", "false", "true", NULL};
enum { SHIFT_AUTO, SHIFT_NEVER };

static const tri_option common_rows[] = {
    TRI_OPTION_NAME(S, name, "model",
                    "the loss, in place of the model's own; `loss: [{name: …, weight: …}, …]` is "
                    "the weighted sum of several"),
    TRI_OPTION_STRING(S, output, NULL,
                      "the model's output that the loss takes, by name or by number from 0; not "
                      "set: the first"),
    TRI_OPTION_STRING(S, target, NULL,
                      "the field of the data that the loss takes; not set: the first of labels, "
                      "soft_labels and targets that the data have, or for cross_entropy and nll "
                      "the next of input_ids"),
    TRI_OPTION_FLOAT(S, weight, "1", -1e300, 1e300, "factor of the loss"),
};

static const tri_option model_rows[] = {
    TRI_OPTION_FLOAT(S, label_smoothing, "0", 0, 1,
                     "of cross-entropies: how much of each label all classes share evenly, in "
                     "training and evaluation"),
};

static const tri_option class_rows[] = {
    TRI_OPTION_FLOAT(S, label_smoothing, "0", 0, 1,
                     "how much of each label all classes share evenly, in training and evaluation"),
    TRI_OPTION_FLOATS(S, class_weights, "[]", 0, 1e30, 0,
                      "a weight for each class, by whose sum over the labels the loss is divided; "
                      "[]: all 1"),
    TRI_OPTION_INT(S, ignore, "-100", -1e300, 1e300,
                   "the label that is left out, as -100 always is"),
    TRI_OPTION_CHOICE(S, class_axis, "auto", class_axes,
                      "which axis of the output has the classes; auto: as the labels' shape says; "
                      "where it says nothing, the second of 4 axes or more, else the last"),
    TRI_OPTION_CHOICE(S, next_token, "auto", shift_words,
                      "the label of each token is the one at the token after it; auto: if the "
                      "target is input_ids, or the model's own loss takes it so"),
};

static const tri_option bce_rows[] = {
    TRI_OPTION_FLOATS(S, pos_weight, "[]", 0, 1e30, 0,
                      "what a target of 1 counts, for each class or one for all; []: 1"),
};

static const tri_option huber_rows[] = {
    TRI_OPTION_FLOAT(S, delta, "1", 1e-9, 1e300, "errors above it count by their absolute value"),
};

static const tri_option smooth_l1_rows[] = {
    TRI_OPTION_FLOAT(S, beta, "1", 1e-9, 1e300, "errors above it count by their absolute value"),
};

static const tri_option kl_rows[] = {
    TRI_OPTION_BOOL(S, log_target, "false", "the target has logarithms, too"),
    TRI_OPTION_BOOL(S, batch_mean, "false", "the mean over samples, and not over elements"),
};

static const tri_option ctc_rows[] = {
    TRI_OPTION_INT(S, blank, "0", 0, 9e15, "the class that stands for no label"),
    TRI_OPTION_STRING(S, input_lengths, "input_lengths",
                      "the field with each sample's length of the output, [N]; none: all have all "
                      "times"),
    TRI_OPTION_STRING(S, target_lengths, "target_lengths",
                      "the field with each target's length, [N]; none: a target ends before its "
                      "first -100"),
    TRI_OPTION_BOOL(S, zero_infinity, "false",
                    "what cannot be aligned, because the output is too short, counts 0"),
};

static const tri_option sum_rows[] = {
    TRI_OPTION_TREE(S, terms, NULL,
                    "the losses that are added, each as in this section; `loss: [...]` is short "
                    "for {name: sum, terms: [...]}"),
};

// One loss that is being built.
typedef struct term {
    tri_graph *graph;
    const tri_batch *batch;
    const char *model, *key; // for messages: "loss", or "loss[1]" of a sum
    int index;
    const tri_loss_options *options;
    const char *output_name, *target_name;
    tri_value output, target;
    int own_nodes; // of the model
} term;

// A message that begins with the term's key.
#define REFUSE(t, format, ...) TRI_FAIL(TRI_BAD_INPUT, "%s" format, (t)->key, __VA_ARGS__)

// The shape, with N for the samples, of which ranks may have different numbers.
static const char *shape_text(const term *t, tri_value value) {
    char text[160];
    tri_shape shape = tri_value_shape(t->graph, value);
    tri_shape_text(&shape, text, sizeof text);
    return tri_name(t->graph, "[N%s", text + strcspn(text, ",]"));
}

// Says of which shapes output and target are.
static const char *both_text(const term *t) {
    bool is_float = tri_dtype_is_float(tri_value_get(t->graph, t->target)->dtype);
    return tri_name(t->graph, "the target '%s' is %s %s, the output '%s' %s", t->target_name,
                    is_float ? "F32" : "I64", shape_text(t, t->target), t->output_name,
                    shape_text(t, t->output));
}

static tri_shape without_axis(tri_shape shape, int axis) {
    for (int i = axis; i + 1 < shape.rank; i++) shape.dims[i] = shape.dims[i + 1];
    shape.rank--;
    return shape;
}

// Chooses the second or the last of the output's axes, of those that fit. -1: none does.
static int choose_axis(const term *t, int rank, bool second_fits, bool last_fits) {
    int asked = t->options->class_axis;
    bool prefers_second = asked == AXIS_SECOND || (asked == AXIS_AUTO && rank >= 4);
    if (second_fits && (prefers_second || (asked == AXIS_AUTO && !last_fits))) return 1;
    return last_fits && asked != AXIS_SECOND ? rank - 1 : -1;
}

// Makes the axis of the classes the last one.
static tri_status settle_classes(term *t, bool are_soft) {
    tri_shape x = tri_value_shape(t->graph, t->output), y = tri_value_shape(t->graph, t->target);
    bool fits[2] = {false, false};
    for (int k = 0; k < 2 && x.rank >= 2; k++) {
        tri_shape wanted = are_soft ? x : without_axis(x, k ? x.rank - 1 : 1);
        fits[k] = tri_shape_equal(&wanted, &y);
    }
    int axis = choose_axis(t, x.rank, fits[0], fits[1]);
    if (axis < 0)
        return REFUSE(t,
                      ": %s: labels are I64 of the output's shape without %s, or F32 of its "
                      "shape",
                      both_text(t),
                      t->options->class_axis == AXIS_AUTO
                          ? "the axis of classes, its last or its second one"
                          : "the axis that class_axis says");
    if (axis != x.rank - 1) t->output = tri_movedim(t->graph, t->output, axis, x.rank - 1);
    if (are_soft && axis != x.rank - 1)
        t->target = tri_movedim(t->graph, t->target, axis, x.rank - 1);
    int64_t classes = x.dims[axis];
    const tri_doubles *weights = &t->options->class_weights;
    if (weights->count == 0 || weights->count == classes) return TRI_OK;
    return REFUSE(t, ".class_weights has %s, and the output '%s' %" PRId64 " classes",
                  tri_counted(weights->count, "number"), t->output_name, classes);
}

static const float *to_floats(tri_graph *g, const tri_doubles *numbers) {
    float *out = TRI_NEW_ARRAY(g->arena, float, numbers->count + 1);
    for (int i = 0; i < numbers->count; i++) out[i] = (float)numbers->items[i];
    return numbers->count ? out : NULL;
}

// Whether the labels are those of the next tokens, as the model's own loss or the field tells.
static bool is_shifted(const term *t) {
    bool shifts = !strcmp(t->target_name, "input_ids");
    for (int i = 0; i < t->own_nodes; i++) {
        const tri_node *node = &t->graph->nodes[i];
        shifts = shifts || (node->op == &tri_op_next_token && node->inputs[0].id == t->target.id);
    }
    return shifts;
}

static bool has_metric(const tri_graph *g, const char *name) {
    for (int i = 0; i < g->metric_count; i++)
        if (!strcmp(g->metrics[i].name, name)) return true;
    return false;
}

typedef tri_value label_loss(tri_graph *g, tri_value scores, tri_value labels,
                             tri_label_loss_options options);

// A loss of classes, with the metric accuracy; those of later ones are accuracy_2 and so on.
static tri_status build_classes(term *t, label_loss *loss, tri_value *out) {
    tri_graph *g = t->graph;
    const tri_loss_options *o = t->options;
    bool are_soft = tri_dtype_is_float(tri_value_get(g, t->target)->dtype);
    bool shifts = o->next_token == SHIFT_AUTO ? is_shifted(t) : o->next_token != SHIFT_NEVER;
    TRI_TRY(settle_classes(t, are_soft));
    if (are_soft && (o->next_token > SHIFT_NEVER || o->ignore != TRI_IGNORED_LABEL))
        return REFUSE(t, ".%s has no effect on soft labels, and the target '%s' is F32",
                      o->next_token > SHIFT_NEVER ? "next_token" : "ignore", t->target_name);
    if (o->ignore != TRI_IGNORED_LABEL) t->target = tri_ignore_label(g, t->target, o->ignore);
    if (shifts && !are_soft) t->target = tri_next_token(g, t->target);
    const char *name = "accuracy";
    bool is_later = t->index > 0 && has_metric(g, name);
    for (int again = 2; has_metric(g, name); again++) name = tri_name(g, "accuracy_%d", again);
    *out = loss(g, t->output, t->target,
                (tri_label_loss_options){.class_weights = to_floats(g, &o->class_weights),
                                         .label_smoothing = o->label_smoothing});
    if (is_later) tri_metric(g, name, tri_accuracy(g, t->output, t->target));
    return TRI_OK;
}

static tri_status build_cross_entropy(term *t, tri_value *out) {
    return build_classes(t, tri_cross_entropy_with, out);
}

static tri_status build_nll(term *t, tri_value *out) {
    return build_classes(t, tri_nll_loss_with, out);
}

// The shape without its axes of size 1, the first one excepted.
static tri_shape squeezed(tri_shape shape) {
    for (int i = shape.rank - 1; i > 0; i--)
        if (shape.dims[i] == 1) shape = without_axis(shape, i);
    return shape;
}

// Gives the target the output's type, and its shape where both differ by axes of size 1, or where
// one of them has all elements of a sample in one axis.
static tri_status settle_numbers(term *t) {
    tri_graph *g = t->graph;
    tri_shape x = tri_value_shape(g, t->output), y = tri_value_shape(g, t->target);
    tri_shape short_x = squeezed(x), short_y = squeezed(y);
    bool are_flat = (x.rank == 2 || y.rank == 2) && tri_shape_count(&x) == tri_shape_count(&y);
    if (!tri_shape_equal(&short_x, &short_y) && !are_flat)
        return REFUSE(t, ": %s: their shapes have to be equal", both_text(t));
    tri_dtype dtype = tri_value_get(g, t->output)->dtype;
    if (tri_value_get(g, t->target)->dtype != dtype) t->target = tri_cast(g, t->target, dtype);
    if (!tri_shape_equal(&x, &y)) t->target = tri_reshape(g, t->target, x);
    return TRI_OK;
}

static tri_status build_bce(term *t, tri_value *out) {
    tri_graph *g = t->graph;
    TRI_TRY(settle_numbers(t));
    const tri_doubles *weights = &t->options->pos_weight;
    tri_shape x = tri_value_shape(g, t->output), shape = tri_shape_of(weights->count);
    if (weights->count == 0) {
        *out = tri_binary_cross_entropy(g, t->output, t->target);
        return TRI_OK;
    }
    int last = x.rank - 1;
    int axis = choose_axis(t, x.rank, last > 0 && x.dims[1] == weights->count,
                           x.dims[last] == weights->count);
    if (axis < 0 && weights->count > 1)
        return REFUSE(t,
                      ".pos_weight has %s, and the output '%s' is %s: write one number, or one "
                      "for each class, of the last or the second axis",
                      tri_counted(weights->count, "number"), t->output_name,
                      shape_text(t, t->output));
    for (int i = axis; i >= 0 && i < last; i++) shape.dims[shape.rank++] = 1;
    const char *name = tri_name(g, "%s.pos_weight", t->key);
    tri_value constant = tri_constant(g, name, shape, to_floats(g, weights));
    *out = tri_binary_cross_entropy_with(g, t->output, t->target,
                                         (tri_binary_options){.pos_weight = constant});
    return TRI_OK;
}

// A loss of two tensors of one shape, without options.
#define PAIR_LOSS(word, call)                                                                      \
    static tri_status build_##word(term *t, tri_value *out) {                                      \
        TRI_TRY(settle_numbers(t));                                                                \
        *out = call;                                                                               \
        return TRI_OK;                                                                             \
    }
PAIR_LOSS(mse, tri_mse_loss(t->graph, t->output, t->target))
PAIR_LOSS(l1, tri_l1_loss(t->graph, t->output, t->target))
PAIR_LOSS(huber, tri_huber_loss(t->graph, t->output, t->target, t->options->delta))
PAIR_LOSS(smooth_l1, tri_smooth_l1_loss(t->graph, t->output, t->target, t->options->beta))
PAIR_LOSS(relative_l2, tri_relative_l2_loss(t->graph, t->output, t->target))
PAIR_LOSS(kl, tri_kl_div_loss_with(t->graph, t->output, t->target,
                                   (tri_kl_div_options){.log_target = t->options->log_target,
                                                        .batch_mean = t->options->batch_mean}))

static const char *fields_text(const term *t) {
    const tri_graph *g = t->graph;
    const char *text = "";
    for (int i = 0; i < g->input_count; i++)
        if (tri_value_is(tri_batch_field(t->batch, g->inputs[i].name)))
            text = tri_name(t->graph, "%s%s%s", text, *text ? ", " : "", g->inputs[i].name);
    return *text ? text : "no fields";
}

static const char *near_text(const term *t, const char *word, const char *const *known, int count) {
    const char *near = tri_option_nearest(word, known, count);
    return near ? tri_name(t->graph, " (did you mean '%s'?)", near) : "";
}

// Finds a field by its name, which the key KEY.`option` has.
static tri_status find_field(const term *t, const char *option, const char *name, tri_value *out) {
    const tri_graph *g = t->graph;
    *out = tri_batch_field(t->batch, name);
    if (tri_value_is(*out)) return TRI_OK;
    const char **known = TRI_NEW_ARRAY(g->arena, const char *, g->input_count + 1);
    for (int i = 0; i < g->input_count; i++) known[i] = g->inputs[i].name;
    return REFUSE(t, ".%s: the data have no field '%s'%s; they have %s", option, name,
                  near_text(t, name, known, g->input_count), fields_text(t));
}

// Finds a field of lengths. `otherwise` says what "none" means.
static tri_status find_lengths(const term *t, const char *option, const char *name,
                               const char *otherwise, tri_value *out) {
    *out = (tri_value){0};
    if (!strcmp(name, "none")) return TRI_OK;
    *out = tri_batch_field(t->batch, name);
    if (tri_value_is(*out)) return TRI_OK;
    return REFUSE(t,
                  ".%s: the data have no field '%s', only %s: name the one with the lengths, "
                  "or write none, if %s",
                  option, name, fields_text(t), otherwise);
}

static tri_status build_ctc(term *t, tri_value *out) {
    const tri_loss_options *o = t->options;
    tri_ctc_options ctc = {.blank = o->blank, .zero_infinity = o->zero_infinity};
    TRI_TRY(find_lengths(t, "input_lengths", o->input_lengths, "all samples have all times",
                         &ctc.input_lengths));
    TRI_TRY(find_lengths(t, "target_lengths", o->target_lengths, "targets end with -100",
                         &ctc.target_lengths));
    *out = tri_ctc_loss(t->graph, t->output, t->target, ctc);
    return TRI_OK;
}

#define ROWS(array) (array), TRI_OPTION_COUNT(array)
#define NO_ROWS NULL, 0

// The losses: X(name, options, help, builder).
#define LOSS_LIST(X)                                                                               \
    X(model, ROWS(model_rows), "the model's own loss", NULL)                                       \
    X(cross_entropy, ROWS(class_rows),                                                             \
      "cross-entropy of softmax(output) and labels, or soft labels (F32, a number for each "       \
      "class)",                                                                                    \
      build_cross_entropy)                                                                         \
    X(nll, ROWS(class_rows), "the same of logarithms of probabilities", build_nll)                 \
    X(bce, ROWS(bce_rows),                                                                         \
      "binary cross-entropy of sigmoid(output) and targets from 0 to 1, for each element",         \
      build_bce)                                                                                   \
    X(mse, NO_ROWS, "mean squared error", build_mse)                                               \
    X(l1, NO_ROWS, "mean absolute error", build_l1)                                                \
    X(huber, ROWS(huber_rows), "Huber loss: squares of small errors, absolute values of others",   \
      build_huber)                                                                                 \
    X(smooth_l1, ROWS(smooth_l1_rows), "huber with delta: beta, divided by beta", build_smooth_l1) \
    X(relative_l2, NO_ROWS, "each sample's norm of the error, divided by that of the target",      \
      build_relative_l2)                                                                           \
    X(kl, ROWS(kl_rows),                                                                           \
      "Kullback-Leibler divergence of logarithms of probabilities and probabilities", build_kl)    \
    X(ctc, ROWS(ctc_rows),                                                                         \
      "connectionist temporal classification of log-probabilities [N, T, K], labels I64 [N, S]",   \
      build_ctc)                                                                                   \
    X(sum, ROWS(sum_rows), "a weighted sum of losses", NULL)

static const tri_option_variant variants[] = {
#define X(word, options, words, build) {#word, options, words},
    LOSS_LIST(X)
#undef X
};

typedef tri_status builder(term *t, tri_value *out);

static builder *builder_of(const char *name) {
    static builder *const builders[] = {
#define X(word, options, words, build) build,
        LOSS_LIST(X)
#undef X
    };
    int i = 0;
    while (strcmp(variants[i].name, name) != 0) i++;
    return builders[i];
}

static const char TERM_NEEDED[] =
    "each loss of the list 'loss' has to be a map with a name: {name: mse, output: heat, weight: "
    "0.5}";

static tri_status read_terms(tri_arena *arena, const tri_tree *list, tri_loss_options *out) {
    for (int i = 0; i < list->count; i++) {
        const tri_tree *entry = list->items[i], *name = tri_tree_get(entry, "name");
        const char *key = tri_arena_printf(arena, "loss[%d]", i);
        if (entry->kind != TRI_TREE_MAP || tri_tree_is_null(name))
            return tri_tree_fail(entry, TERM_NEEDED);
        bool is_loss = name->kind != TRI_TREE_SCALAR ||
                       (strcmp(name->text, "model") != 0 && strcmp(name->text, "sum") != 0);
        if (!is_loss)
            return tri_tree_fail(name, "'%s.name: %s' cannot be one loss of a list", key,
                                 name->text);
        TRI_TRY(tri_option_decode_under(arena, key, &tri_loss_table, entry, &out[i]));
    }
    return TRI_OK;
}

tri_status tri_losses_read(tri_arena *arena, const tri_loss_options *section,
                           const tri_loss_options **out, int *count) {
    tri_loss_options *losses = TRI_NEW_ARRAY(arena, tri_loss_options, TRI_MAX_LOSS_TERMS);
    *out = losses;
    *count = 0;
    if (!section->name || !strcmp(section->name, "model")) return TRI_OK;
    if (strcmp(section->name, "sum") != 0) {
        losses[(*count)++] = *section;
        return TRI_OK;
    }
    const tri_tree *list = section->terms;
    if (tri_tree_is_null(list) || list->kind != TRI_TREE_LIST || list->count == 0 ||
        list->count > TRI_MAX_LOSS_TERMS)
        return tri_tree_fail(list, "'loss' has to be a list of 1 to %d losses", TRI_MAX_LOSS_TERMS);
    TRI_TRY(read_terms(arena, list, losses));
    *count = list->count;
    return TRI_OK;
}

static tri_status check_loss(const void *options, const tri_tree *map) {
    const tri_loss_options *o = options;
    static const char *const of_one[] = {"output", "target", "weight"};
    if (builder_of(o->name)) return TRI_OK;
    for (int i = 0; i < 3; i++) {
        const tri_tree *node = tri_tree_get(map, of_one[i]);
        bool is_default = tri_tree_is_null(node) || (i == 2 && o->weight == 1);
        if (!is_default)
            return tri_tree_fail(node, "'loss.%s' has no effect on 'loss.name: %s': %s", of_one[i],
                                 o->name,
                                 o->terms ? "each loss of the list has its own"
                                          : "name a loss, such as cross_entropy");
    }
    const tri_loss_options *losses;
    int count;
    tri_arena *arena = tri_arena_create(NULL, "losses");
    tri_status status = tri_losses_read(arena, o, &losses, &count);
    tri_arena_destroy(arena);
    return status;
}

const tri_option_table tri_loss_table =
    TRI_OPTION_TABLE("loss", S, common_rows, "the loss and its settings", .variants = variants,
                     .variant_count = TRI_OPTION_COUNT(variants), .check = check_loss);

// Finds the output by its name or, if none has that name, by its number.
static tri_status find_output(term *t) {
    const tri_graph *g = t->graph;
    const char *name = t->options->output;
    char *end = NULL;
    long index = name ? strtol(name, &end, 10) : 0;
    if (g->output_count == 0)
        return REFUSE(t, ": model %s names no outputs: its build function must call tri_output",
                      t->model);
    const char **known = TRI_NEW_ARRAY(g->arena, const char *, g->output_count), *list = "";
    for (int i = 0; i < g->output_count; i++) {
        known[i] = g->outputs[i].name;
        list = tri_name(t->graph, "%s%s%s", list, i ? ", " : "", known[i]);
    }
    bool is_number = !name || (*name >= '0' && *name <= '9' && !*end);
    int found = is_number && index < g->output_count ? (int)index : -1;
    for (int i = 0; name && i < g->output_count; i++)
        if (!strcmp(known[i], name)) found = i;
    if (found < 0)
        return REFUSE(t, ".output: model %s has no output '%s'%s; it has %s", t->model, name,
                      near_text(t, name, known, g->output_count), list);
    t->output = g->outputs[found].value;
    t->output_name = known[found];
    return TRI_OK;
}

static const char *const usual_targets[] = {"labels", "soft_labels", "targets", "input_ids"};

static bool is_of_classes(builder *build) {
    return build == build_cross_entropy || build == build_nll;
}

static tri_status find_target(term *t) {
    const char *name = t->options->target;
    bool of_classes = is_of_classes(builder_of(t->options->name));
    t->target_name = name;
    if (name) return find_field(t, "target", name, &t->target);
    for (int i = 0; i < 3 + of_classes; i++) {
        t->target_name = usual_targets[i];
        t->target = tri_batch_field(t->batch, usual_targets[i]);
        if (tri_value_is(t->target)) return TRI_OK;
    }
    return REFUSE(t,
                  ".target: name the field that the loss takes: the data have no labels, "
                  "soft_labels or targets, but %s",
                  fields_text(t));
}

static tri_status build_term(term *t, tri_value *out) {
    tri_graph *g = t->graph;
    TRI_TRY(find_output(t));
    TRI_TRY(find_target(t));
    TRI_TRY(builder_of(t->options->name)(t, out));
    if (g->status != TRI_OK) return TRI_FAIL(g->status, "%s: %s", t->key, g->message);
    // What evaluation calls the loss, if it is one of several.
    g->nodes[tri_value_get(g, *out)->node].name = t->options->name;
    if (t->options->weight != 1) *out = tri_weighted(g, *out, t->options->weight);
    return TRI_OK;
}

static bool has_one_of(const tri_field *fields, int count, const char *const *names, int known) {
    for (int i = 0; i < count; i++)
        for (int k = 0; k < known; k++)
            if (!strcmp(fields[i].name, names[k])) return true;
    return false;
}

bool tri_recipe_loss_add_targets(tri_graph *graph, tri_field *fields, int *count, int most) {
    for (int i = 0; i < graph->options.loss_count && *count < most; i++) {
        const tri_loss_options *o = &graph->options.losses[i];
        term t = {.graph = graph, .model = "", .key = "loss", .options = o};
        builder *build = builder_of(o->name);
        bool of_classes = is_of_classes(build);
        bool is_there = o->target ? has_one_of(fields, *count, &o->target, 1)
                                  : has_one_of(fields, *count, usual_targets, 3 + of_classes);
        if (is_there) continue;
        if (build == build_ctc) return false;
        if (find_output(&t) != TRI_OK) continue;
        tri_shape shape = tri_value_shape(graph, t.output);
        const char *name = o->target ? o->target : of_classes ? "labels" : "targets";
        bool are_labels = of_classes && strcmp(name, "soft_labels") != 0;
        int axis = are_labels ? choose_axis(&t, shape.rank, true, true) : 0;
        if (shape.rank < 1 + are_labels || axis < 0) continue;
        shape = without_axis(shape, axis);
        if (are_labels) shape = without_axis(shape, 0);
        fields[(*count)++] = (tri_field){name, are_labels ? TRI_I64 : TRI_F32, shape};
    }
    return true;
}

tri_status tri_recipe_loss_build(tri_graph *graph, const tri_batch *batch, const char *model) {
    int count = graph->options.loss_count, own_nodes = graph->node_count;
    tri_value sum = {0}, loss;
    tri_loss_drop(graph);
    graph->drops_losses = false;
    for (int i = 0; i < count; i++) {
        term t = {.graph = graph,
                  .batch = batch,
                  .model = model,
                  .key = count > 1 ? tri_name(graph, "loss[%d]", i) : "loss",
                  .index = i,
                  .options = &graph->options.losses[i],
                  .own_nodes = own_nodes};
        TRI_TRY(build_term(&t, &loss));
        sum = i > 0 ? tri_add(graph, sum, loss) : loss;
    }
    tri_loss(graph, sum);
    return graph->status == TRI_OK ? TRI_OK : TRI_FAIL(graph->status, "loss: %s", graph->message);
}
