// Gives the state of a run to a save (as a source) and takes it from a load (as a sink), and
// converts the run's progress to a map and back. Read next: checkpoint/save.c, which reads the
// source; for resuming, engine/state.c, to which the sink passes the tensors.
#include "train/state.h"

#include "tensor/half.h"
#include "train/numbering.h"

#include <math.h>

static tri_status read_state(void *context, int tensor, int64_t first, int64_t count, void *to) {
    const tri_state_view *view = context;
    tri_engine_read(view->engine, &view->tensors[tensor], first, count, to);
    return TRI_OK;
}

static int holder_count(void *context, int tensor, int *index) {
    const tri_state_view *view = context;
    return tri_engine_holders(view->engine, &view->tensors[tensor], index);
}

static tri_status fetch(void *context, int tensor) {
    const tri_state_view *view = context;
    return tri_engine_fetch(view->engine, &view->tensors[tensor]);
}

static tri_status write_state(void *context, int tensor, int64_t first, int64_t count,
                              const void *from) {
    tri_state_view *view = context;
    return tri_engine_write(view->engine, &view->tensors[tensor], first, count, from);
}

static tri_status map_state(void *context, int tensor, int fd, int64_t offset, bool *is_mapped) {
    tri_state_view *view = context;
    return tri_engine_map(view->engine, &view->tensors[tensor], fd, offset, is_mapped);
}

static int64_t next_wanted(void *context, int tensor, int64_t at, int64_t *count) {
    const tri_state_view *view = context;
    return tri_engine_next_held(view->engine, &view->tensors[tensor], at, count);
}

// Training can begin without running statistics, buffers and adapters, evaluation cannot; neither
// reads counters.
static bool may_lack(const tri_engine_tensor *tensor, bool evaluates) {
    bool is_buffer = tri_role_is_average(tensor->role) || tensor->role == TRI_ROLE_BUFFER;
    return tensor->role == TRI_ROLE_COUNTER || ((is_buffer || tensor->is_adapter) && !evaluates);
}

static void make_view(tri_arena *arena, tri_engine *engine, const tri_engine_tensor *tensors,
                      int count, bool evaluates, tri_state_view *out) {
    tri_state_tensor *described = TRI_NEW_ARRAY(arena, tri_state_tensor, count);
    for (int i = 0; i < count; i++)
        described[i] = (tri_state_tensor){
            .name = tensors[i].name,
            .dtype = tensors[i].dtype,
            .half = tri_dtype_is_half(tensors[i].kept) ? tensors[i].kept : TRI_F32,
            .shape = tensors[i].shape,
            .alias = tensors[i].alias,
            .may_lack = may_lack(&tensors[i], evaluates)};
    *out = (tri_state_view){.engine = engine, .tensors = tensors};
    out->source = (tri_state_source){.tensors = described,
                                     .count = count,
                                     .context = out,
                                     .read = read_state,
                                     .holder_count = holder_count,
                                     .fetch = fetch};
    out->sink = (tri_state_sink){.tensors = described,
                                 .count = count,
                                 .context = out,
                                 .write = write_state,
                                 .map = map_state,
                                 .next_wanted = next_wanted};
}

void tri_state_view_model(tri_arena *arena, tri_engine *engine, bool evaluates,
                          tri_state_view *out) {
    const tri_engine_tensor *tensors;
    int count = tri_engine_model_tensors(engine, &tensors);
    make_view(arena, engine, tensors, count, evaluates, out);
}

void tri_state_view_optimizer(tri_arena *arena, tri_engine *engine, tri_state_view *out) {
    const tri_engine_tensor *tensors;
    int count = tri_engine_optimizer_tensors(engine, &tensors);
    make_view(arena, engine, tensors, count, false, out);
}

void tri_state_view_average(tri_arena *arena, tri_engine *engine, tri_state_view *out) {
    const tri_engine_tensor *tensors;
    int count = tri_engine_average_tensors(engine, &tensors);
    make_view(arena, engine, tensors, count, false, out);
}

static void put_evaluation(tri_arena *arena, tri_tree *map, const char *key,
                           const tri_evaluation *e, const tri_graph *graph) {
    if (!e->is_known) return;
    tri_tree *entry = tri_tree_map(arena);
    tri_tree_put(arena, entry, "loss", tri_tree_double(arena, e->mean[0]));
    for (int i = 1; i < graph->metric_count; i++)
        if (graph->metrics[i].figures.rank == 0)
            tri_tree_put(arena, entry, graph->metrics[i].name, tri_tree_double(arena, e->mean[i]));
    tri_tree_put(arena, entry, "samples", tri_tree_int(arena, e->samples));
    tri_tree_put(arena, entry, "step", tri_tree_int(arena, e->step));
    tri_tree_put(arena, map, key, entry);
}

// What nothing but the graph tells of adapters: see TRI_ADAPTERS.
static void put_adapters(tri_arena *arena, tri_tree *map, const tri_graph *g) {
    const tri_lora *lora = &g->options.lora;
    if (lora->match.count == 0) return;
    tri_tree *entry = tri_tree_map(arena), *transposed = tri_tree_list(arena);
    tri_tree_put(arena, entry, "rank", tri_tree_int(arena, lora->rank));
    tri_tree_put(arena, entry, "alpha", tri_tree_double(arena, lora->alpha));
    tri_tree_put(arena, entry, "dropout", tri_tree_double(arena, lora->dropout));
    for (int i = 0; i < g->parameter_count; i++) {
        const tri_parameter_info *p = &g->parameters[i];
        const tri_parameter_info *weight = p->adapts ? &g->parameters[p->adapts - 1] : NULL;
        if (!weight || !weight->stored_transposed || p->follows != TRI_SPLIT_ROW) continue;
        int length = (int)tri_parameter_layer(weight->name);
        tri_tree_append(
            arena, transposed,
            tri_tree_string(arena, tri_arena_printf(arena, "%.*s", length, weight->name)));
    }
    tri_tree_put(arena, entry, "transposed", transposed);
    tri_tree_put(arena, map, TRI_ADAPTERS, entry);
}

static void put_watched(tri_arena *arena, tri_tree *map, const tri_watched *w) {
    if (w->has_best) {
        tri_tree_put(arena, map, "best", tri_tree_double(arena, w->best));
        if (w->best_of) tri_tree_put_string(arena, map, "best_of", w->best_of);
    }
    if (w->has_last) tri_tree_put(arena, map, "latest", tri_tree_double(arena, w->last));
    if (w->is_lost) tri_tree_put(arena, map, "lost", tri_tree_bool(arena, true));
    if (w->has_best || w->waited > 0)
        tri_tree_put(arena, map, "waited", tri_tree_int(arena, w->waited));
}

tri_tree *tri_progress_tree(tri_arena *arena, const tri_progress *p, const tri_graph *graph) {
    tri_tree *map = tri_tree_map(arena);
    tri_tree_put(arena, map, "step", tri_tree_int(arena, p->step));
    tri_tree_put(arena, map, "updates", tri_tree_int(arena, p->updates));
    if (p->scale.scale > 0) {
        tri_tree *scale = tri_tree_map(arena);
        tri_tree_put(arena, scale, "scale", tri_tree_double(arena, p->scale.scale));
        tri_tree_put(arena, scale, "good_steps", tri_tree_int(arena, p->scale.good_steps));
        tri_tree_put(arena, scale, "hysteresis_left",
                     tri_tree_int(arena, p->scale.hysteresis_left));
        tri_tree_put(arena, map, "loss_scale", scale);
    }
    tri_tree_put(arena, map, "epoch", tri_tree_int(arena, p->epoch));
    tri_tree_put(arena, map, "step_in_epoch", tri_tree_int(arena, p->step_in_epoch));
    tri_tree_put(arena, map, "samples", tri_tree_int(arena, p->samples));
    if (p->data_samples > 0)
        tri_tree_put(arena, map, "data_samples", tri_tree_int(arena, p->data_samples));
    if (p->data_names)
        tri_tree_put(arena, map, TRI_DATA_NAMES, tri_tree_copy(arena, p->data_names));
    put_watched(arena, map, &p->stopping);
    const tri_plateau *l = &p->plateau;
    if (l->factor > 0 || l->watched.has_best || l->watched.waited > 0) {
        tri_tree *plateau = tri_tree_map(arena);
        put_watched(arena, plateau, &l->watched);
        tri_tree_put(arena, plateau, "cooldown", tri_tree_int(arena, l->cooldown));
        if (l->factor > 0)
            tri_tree_put(arena, plateau, "factor", tri_tree_double(arena, l->factor));
        tri_tree_put(arena, map, "plateau", plateau);
    }
    if (p->averaged > 0) {
        tri_tree *average = tri_tree_map(arena);
        tri_tree_put_string(arena, average, "name", p->average_name);
        tri_tree_put(arena, average, "steps", tri_tree_int(arena, p->averaged));
        tri_tree_put(arena, average, "evaluates", tri_tree_bool(arena, p->evaluates_average));
        tri_tree_put(arena, map, TRI_CHECKPOINT_AVERAGE, average);
    }
    tri_tree *losses = tri_tree_map(arena);
    tri_tree_put(arena, losses, "sum", tri_tree_double(arena, p->loss_sum));
    tri_tree_put(arena, losses, "count", tri_tree_double(arena, p->loss_count));
    tri_tree_put(arena, map, "train_loss", losses);
    if (p->evaluation_due) tri_tree_put(arena, map, "evaluation_due", tri_tree_bool(arena, true));
    put_evaluation(arena, map, "val", &p->val, graph);
    put_evaluation(arena, map, "test", &p->test, graph);
    put_adapters(arena, map, graph);
    return map;
}

static tri_status need_int(const tri_tree *tree, const char *key, int64_t *out) {
    if (tri_tree_to_int(tri_tree_get(tree, key), out) && *out >= 0) return TRI_OK;
    return tri_tree_fail_as(TRI_CORRUPT, tree, "the training state has no whole number '%s'", key);
}

static tri_status read_watched(const tri_tree *tree, tri_watched *out) {
    out->has_best = tri_tree_to_double(tri_tree_get(tree, "best"), &out->best);
    out->has_last = tri_tree_to_double(tri_tree_get(tree, "latest"), &out->last);
    out->is_lost = tri_tree_get(tree, "lost") != NULL;
    const tri_tree *best_of = tri_tree_get(tree, "best_of");
    if (best_of && best_of->kind == TRI_TREE_SCALAR) out->best_of = best_of->text;
    bool has_waited = out->has_best || tri_tree_get(tree, "waited");
    return has_waited ? need_int(tree, "waited", &out->waited) : TRI_OK;
}

static tri_status read_average(const tri_tree *entry, tri_progress *out) {
    const tri_tree *name = tri_tree_get(entry, "name");
    if (!entry) return TRI_OK;
    if (name && name->kind == TRI_TREE_SCALAR) out->average_name = name->text;
    tri_tree_to_bool(tri_tree_get(entry, "evaluates"), &out->evaluates_average);
    return need_int(entry, "steps", &out->averaged);
}

static tri_status read_evaluation(const tri_tree *entry, const tri_graph *graph,
                                  tri_evaluation *out) {
    out->is_known = entry != NULL;
    if (!entry) return TRI_OK;
    for (int i = 0; i < graph->metric_count || i == 0; i++) {
        const tri_tree *mean = tri_tree_get(entry, i == 0 ? "loss" : graph->metrics[i].name);
        if (!tri_tree_to_double(mean, &out->mean[i])) out->mean[i] = (double)NAN;
    }
    TRI_TRY(need_int(entry, "step", &out->step));
    return need_int(entry, "samples", &out->samples);
}

tri_status tri_progress_read(const tri_tree *tree, const tri_graph *graph, tri_progress *out) {
    *out = (tri_progress){.step = 0};
    TRI_TRY(need_int(tree, "step", &out->step));
    // A checkpoint without `updates` was written by a version of the program that had no loss
    // scale, so that every step was an update.
    out->updates = out->step;
    if (tri_tree_get(tree, "updates")) TRI_TRY(need_int(tree, "updates", &out->updates));
    const tri_tree *scale = tri_tree_get(tree, "loss_scale");
    if (scale) {
        if (!tri_tree_to_double(tri_tree_get(scale, "scale"), &out->scale.scale) ||
            !(out->scale.scale > 0))
            return tri_tree_fail_as(TRI_CORRUPT, scale,
                                    "the training state has no loss scale above 0");
        TRI_TRY(need_int(scale, "good_steps", &out->scale.good_steps));
        TRI_TRY(need_int(scale, "hysteresis_left", &out->scale.hysteresis_left));
    }
    TRI_TRY(need_int(tree, "epoch", &out->epoch));
    TRI_TRY(need_int(tree, "step_in_epoch", &out->step_in_epoch));
    TRI_TRY(need_int(tree, "samples", &out->samples));
    // Older checkpoints lack `data_samples`.
    if (tri_tree_get(tree, "data_samples"))
        TRI_TRY(need_int(tree, "data_samples", &out->data_samples));
    out->data_names = tri_tree_get(tree, TRI_DATA_NAMES);
    TRI_TRY(read_average(tri_tree_get(tree, TRI_CHECKPOINT_AVERAGE), out));
    TRI_TRY(read_watched(tree, &out->stopping));
    const tri_tree *plateau = tri_tree_get(tree, "plateau");
    if (plateau) {
        TRI_TRY(read_watched(plateau, &out->plateau.watched));
        TRI_TRY(need_int(plateau, "cooldown", &out->plateau.cooldown));
        tri_tree_to_double(tri_tree_get(plateau, "factor"), &out->plateau.factor);
    }
    const tri_tree *evaluation_due = tri_tree_get(tree, "evaluation_due");
    out->evaluation_due = evaluation_due &&
                          tri_tree_to_bool(evaluation_due, &out->evaluation_due) &&
                          out->evaluation_due;
    // Older checkpoints lack `train_loss`: the mean is then that of the steps since.
    const tri_tree *losses = tri_tree_get(tree, "train_loss");
    if (!tri_tree_to_double(tri_tree_get(losses, "sum"), &out->loss_sum) ||
        !tri_tree_to_double(tri_tree_get(losses, "count"), &out->loss_count))
        out->loss_sum = out->loss_count = 0;
    TRI_TRY(read_evaluation(tri_tree_get(tree, "val"), graph, &out->val));
    return read_evaluation(tri_tree_get(tree, "test"), graph, &out->test);
}
