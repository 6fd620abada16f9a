// Finds the fields of a sample without the data: from the data's options, else from what the task
// declares, with the targets of the recipe's losses.
#include "train/known_fields.h"

#include "base/limits.h"
#include "data/dataset.h"
#include "nn/models/models.h"
#include "nn/recipe_loss.h"
#include "plan/program.h"
#include "train/task.h"

#include <string.h>

// A network that PyTorch has exported declares what it takes, and no targets: these have the shapes
// that its outputs ask for. If a loss does not tell them, no fields are known.
static tri_status add_targets(tri_arena *arena, const tri_recipe *recipe, const tri_task *task,
                              tri_field *fields, int *count) {
    tri_task_options asked;
    tri_graph *graph;
    tri_model_request model = {.task = task, .fields = fields, .field_count = *count};
    TRI_TRY(tri_task_graph_options(arena, recipe, &asked, &model.options));
    if (model.options.loss_count == 0) return TRI_OK;
    model.options.predicts = true;
    if (tri_model_build(arena, &model, 1, &graph) != TRI_OK) return TRI_OK; // the plan says why
    if (!tri_recipe_loss_add_targets(graph, fields, count, TRI_MAX_DATA_FIELDS)) *count = 0;
    return TRI_OK;
}

tri_status train_known_fields(tri_arena *arena, const tri_recipe *recipe, const tri_task *task,
                              tri_field *fields, int *count) {
    tri_data_field described[TRI_MAX_DATA_FIELDS];
    bool is_guess;
    TRI_TRY(tri_data_describe(&recipe->data, described, count, &is_guess));
    for (int i = 0; i < *count; i++)
        fields[i] = (tri_field){described[i].name, described[i].dtype, described[i].shape};
    // The fields that the task declares are used only if the data's options tell no fields, or only
    // guess them. Those of a built-in model are never used: such a model accepts samples of any
    // size, so the fields that it declares do not describe the data.
    if ((*count > 0 && !is_guess) || tri_model_find(task->name) == task || !task->fields[0].name)
        return TRI_OK;
    for (*count = 0; *count < TRI_TASK_MAX_FIELDS && task->fields[*count].name; ++*count)
        fields[*count] = task->fields[*count];
    return add_targets(arena, recipe, task, fields, count);
}

tri_status train_describe_fields(tri_arena *arena, const tri_recipe *recipe, const tri_task *task,
                                 tri_field *fields, int *count) {
    TRI_TRY(train_known_fields(arena, recipe, task, fields, count));
    if (*count > 0) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "data.shapes is not set: only the files of kind %s contain the shapes of their "
                    "samples, and this command does not open them; set it to what `trireme data "
                    "check` prints, such as data.shapes='{images: [3, 32, 32], labels: []}'",
                    recipe->data.name);
}
