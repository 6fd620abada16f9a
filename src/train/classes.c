// Compares the classes of labels and tokens in the data with those that the model knows.
#include "train/classes.h"

#include "nn/models/models.h"
#include "ops/ops.h"

#include <string.h>

// Finds the field of the data whose numbers (labels or tokens) the node reads, either directly or
// after ops that make labels from them; NULL: there is none. With this the numbers can be compared
// with the `known` classes of the model. NULL too if a number that is no class stands for labels
// that are left out: what the data have as their largest number says nothing then.
static const char *field_of_numbers(const tri_graph *g, const tri_node *node, int64_t known) {
    tri_value value = node->inputs[node->op->labels ? node->op->labels - 1 : 0];
    for (;;) {
        const tri_value_info *info = tri_value_get(g, value);
        if (info->kind == TRI_VALUE_INPUT) return g->inputs[info->index].name;
        const tri_node *maker = tri_value_node(g, value);
        if (!maker || !(maker->op->flags & TRI_OP_VIEW || maker->op->label_at)) return NULL;
        const tri_ignore_label_attr *ignores = maker->attr;
        if (maker->op == &tri_op_ignore_label && ignores->label >= known) return NULL;
        value = maker->inputs[0];
    }
}

// Returns what to do if the labels of the data have another number of classes than the model has
// outputs: text for a message; "" if the model has no option for it.
static const char *classes_advice(const train_classes *c, const tri_node *node, int64_t classes) {
    static const char option[] = "num_classes";
    const tri_option_table *table = NULL;
    for (const tri_option_table *const *t = tri_model_tables; *t; t++)
        if (!strcmp((*t)->section, c->task->name)) table = *t;
    for (int i = 0; node->op->labels && table && i < table->count; i++)
        if (!strcmp(table->rows[i].key, option))
            return tri_arena_printf(c->arena, "; set model.%s=%lld", option, (long long)classes);
    return "";
}

// Says that the model has outputs that no label of the data ever names: it learns that they are
// never right, which is rarely what is wanted. Not of tokens, of which few texts have all.
static const char *idle_outputs(const train_classes *c, const tri_node *node, int64_t classes) {
    const char *advice = classes_advice(c, node, classes);
    if (!*advice) return NULL;
    return tri_arena_printf(c->arena,
                            "data: the data has %s below %lld, but model %s has more outputs%s",
                            node->op->classes->of_data, (long long)classes, c->task->name, advice);
}

tri_status train_check_classes(const train_classes *c, const train_named_data *sets, int count,
                               const char **idle) {
    const tri_graph *g = c->graph;
    for (int i = 0; i < g->node_count; i++) {
        const tri_node *node = &g->nodes[i];
        const tri_op_classes *reads = node->op->classes;
        if (!reads) continue;
        tri_op_signature signature = tri_node_signature(g, node);
        int64_t known = reads->count(node->attr, &signature), most = 0;
        const char *field = field_of_numbers(g, node, known);
        if (!field) continue;
        for (int k = 0; k < count; k++) {
            int64_t classes = tri_dataset_classes(sets[k].data, field);
            bool has_ignored = tri_dataset_has_ignored(sets[k].data, field);
            if (has_ignored && !node->op->labels && !node->op->keeps_labels)
                return TRI_FAIL(TRI_BAD_INPUT,
                                "data: '%s' of the %s data has -100, which is for labels: model %s "
                                "looks these numbers up in a table (%s)",
                                field, sets[k].name, c->task->name, node->op->name);
            if (classes == 0 && has_ignored)
                return TRI_FAIL(
                    TRI_BAD_INPUT,
                    "data: every label of the %s data is -100, so that no sample counts "
                    "in the loss; give the samples their classes",
                    sets[k].name);
            if (classes > known)
                return TRI_FAIL(TRI_BAD_INPUT,
                                "data: the %s data has %s up to %lld, but model %s has %lld %s%s%s",
                                sets[k].name, reads->of_data, (long long)classes - 1, c->task->name,
                                (long long)known, reads->of_model, classes_advice(c, node, classes),
                                !node->op->labels ? ""
                                : classes == known + 1
                                    ? "; labels have to count from 0, and not from 1"
                                : classes == 256 ? "; if 255 stands for no class, write -100, "
                                                   "which the loss leaves out"
                                                 : "");
            if (classes > 0) TRI_TRY(train_fields_check_guess(sets[k].data, field, known));
            if (classes > most) most = classes;
        }
        const char *found = most > 0 && most < known ? idle_outputs(c, node, most) : NULL;
        if (found) *idle = found;
    }
    return TRI_OK;
}
