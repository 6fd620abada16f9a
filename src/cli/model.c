// trireme model: what a model is made of, and what stands in the way of training an exported
// network.
#include "cli/cli.h"
#include "graph/graph.h"
#include "nn/exported/exported.h"
#include "recipe/recipe.h"
#include "train/known_fields.h"
#include "train/session.h"
#include "train/task.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// A model that is looked at.
typedef struct view {
    tri_arena *arena;
    const char *name;
    const nn_exported *network; // NULL: it is another model
    const tri_graph *graph;     // NULL: shapes are not known, or something stands in the way
    int samples;                // of which the graph is
    const char *refusal;        // why the graph cannot be built; NULL: it can, or is not tried
} view;

// Builds the graph for one sample; for two if the network takes no single one.
static void build_graph(view *v, const tri_task *task, const tri_field *fields, int count,
                        const tri_graph_options *options) {
    tri_model_request model = {
        .task = task, .fields = fields, .field_count = count, .options = *options};
    tri_graph *graph;
    for (v->samples = 1; v->samples <= 2; v->samples++)
        for (int predicts = 1; predicts >= 0; predicts--) { // it may have a loss and no outputs
            model.options.predicts = predicts;
            if (tri_model_build(v->arena, &model, v->samples, &graph) == TRI_OK) {
                v->graph = graph;
                v->refusal = NULL;
                return;
            }
            if (!v->refusal || predicts)
                v->refusal = tri_arena_strdup(v->arena, tri_error_message());
        }
}

// `has_data`: the recipe names the data, whose samples may have the sizes that the program leaves
// open.
static tri_status view_network(view *v, const tri_recipe *recipe, bool has_data) {
    nn_exported *network;
    int refusals;
    TRI_TRY(nn_exported_open(v->arena, recipe->model.options, &network));
    v->network = network;
    (void)nn_exported_refusals(network, &refusals);
    const tri_task *task = nn_exported_task(network);
    tri_task_options asked;
    tri_graph_options options;
    tri_field known[TRI_MAX_DATA_FIELDS];
    const tri_field *fields = known;
    int count = 0;
    if (has_data && train_known_fields(v->arena, recipe, task, known, &count) != TRI_OK) count = 0;
    if (count == 0)
        for (fields = task->fields; count < TRI_TASK_MAX_FIELDS && fields[count].name;) count++;
    TRI_TRY(tri_task_graph_options(v->arena, recipe, &asked, &options));
    if (refusals > 0) return TRI_OK;
    if (count == 0) return TRI_OK; // building is what reads the options
    build_graph(v, task, fields, count, &options);
    return v->graph ? tri_task_check_options(&asked, task->name) : TRI_OK;
}

// Whether the word is a network's file, which need not be a whole one.
static bool is_network(const char *word) {
    size_t length = strlen(word);
    return (length > 4 && !strcmp(word + length - 4, ".pt2")) || tri_pt2_probe(word);
}

// The file of a network, with options of the command line, as if a recipe named it.
static tri_status view_file(view *v, const cli_arguments *a) {
    static const char text[] = "{data: {name: tensors}, optimizer: {name: sgd}, model: {}}";
    const char *path = a->words[0];
    tri_recipe recipe;
    tri_tree *root;
    TRI_TRY(tri_yaml_parse(v->arena, text, strlen(text), path, &root));
    tri_tree *model = tri_tree_get(root, "model");
    tri_tree_put_string(v->arena, model, "name", NN_EXPORTED_NAME);
    tri_tree_put_string(v->arena, model, NN_EXPORTED_FILE_KEY, path);
    const char *made = tri_yaml_emit(v->arena, root);
    TRI_TRY(tri_recipe_parse(v->arena, made, strlen(made), path, (const char *const *)a->words + 1,
                             a->count - 1, NULL, &recipe));
    return view_network(v, &recipe, false);
}

static tri_status view_recipe(view *v, const cli_context *context, const cli_arguments *a) {
    tri_recipe recipe;
    tri_field fields[TRI_MAX_DATA_FIELDS];
    tri_task_options asked;
    tri_graph_options options;
    const tri_task *task;
    int count;
    TRI_TRY(tri_recipe_load(v->arena, a->words[0], (const char *const *)a->words + 1, a->count - 1,
                            context->task ? context->task->name : NULL, &recipe));
    v->name = recipe.model.name;
    if (!strcmp(v->name, NN_EXPORTED_NAME)) return view_network(v, &recipe, true);
    TRI_TRY(tri_task_find(v->arena, &recipe, context->task, &task));
    TRI_TRY(train_describe_fields(v->arena, &recipe, task, fields, &count));
    TRI_TRY(tri_task_graph_options(v->arena, &recipe, &asked, &options));
    build_graph(v, task, fields, count, &options);
    return TRI_OK;
}

typedef struct row {
    const char *name;
    int nodes;
    int64_t parameters;
    double flops; // of a sample, forward; below 0: not known
} row;

static int64_t parameters_of(const tri_graph *g, int block) {
    int64_t count = 0;
    for (int i = 0; i < g->parameter_count; i++)
        if (g->parameters[i].block == block && g->parameters[i].role == TRI_ROLE_TRAINED)
            count += tri_shape_count(&tri_value_get(g, g->parameters[i].value)->shape);
    return count;
}

static int rows_of(const view *v, row *out, int most) {
    int count = v->graph     ? v->graph->block_count
                : v->network ? nn_exported_block_count(v->network)
                             : 0;
    for (int i = 0; i < count && i < most; i++) {
        out[i] = (row){.flops = -1};
        if (!v->graph) {
            out[i].name = nn_exported_block(v->network, i, &out[i].nodes);
            continue;
        }
        out[i].name = v->graph->blocks[i];
        out[i].parameters = parameters_of(v->graph, i);
        out[i].flops = 0;
        for (int k = 0; k < v->graph->node_count; k++) {
            const tri_node *node = &v->graph->nodes[k];
            if (node->block != i) continue;
            out[i].nodes++;
            out[i].flops += tri_node_cost(v->graph, node).flops / v->samples;
        }
    }
    return count < most ? count : most;
}

static void print_table(const view *v, const row *rows, int count) {
    int64_t parameters = 0;
    double flops = 0;
    int nodes = 0;
    printf("%-40s %8s %14s %14s\n", "block", "nodes", "parameters", "flop/sample");
    for (int i = 0; i < count; i++) {
        printf("%-40s %8d ", rows[i].name, rows[i].nodes);
        if (v->graph)
            printf("%14" PRId64 " %14.4g\n", rows[i].parameters, rows[i].flops);
        else
            printf("%14s %14s\n", "-", "-");
        nodes += rows[i].nodes;
        parameters += rows[i].parameters;
        flops += rows[i].flops;
    }
    printf("%-40s %8d ", tri_counted(count, "block"), nodes);
    if (v->graph)
        printf("%14" PRId64 " %14.4g\n", parameters, flops);
    else
        printf("%14s %14s\n", "-", "-");
}

// Which operations one operation computes together.
static void print_fused(const view *v) {
    int count = v->network ? nn_exported_fused_count(v->network) : 0;
    for (int i = 0; i < count; i++) {
        int times;
        const char *name = nn_exported_fused(v->network, i, &times);
        printf("%s%s %d", i ? ", " : "fused: ", name, times);
    }
    if (count > 0) printf("\n");
}

static tri_tree *fused_tree(const view *v) {
    tri_tree *fused = tri_tree_map(v->arena);
    for (int i = 0; v->network && i < nn_exported_fused_count(v->network); i++) {
        int times;
        const char *name = nn_exported_fused(v->network, i, &times);
        tri_tree_put_int(v->arena, fused, name, times);
    }
    return fused;
}

static void print_json(const view *v, const row *rows, int count, const char *const *lines,
                       int line_count) {
    tri_arena *arena = v->arena;
    tri_tree *root = tri_tree_map(arena), *blocks = tri_tree_list(arena),
             *refusals = tri_tree_list(arena);
    for (int i = 0; i < count; i++) {
        tri_tree *block = tri_tree_map(arena);
        tri_tree_put_string(arena, block, "name", rows[i].name);
        tri_tree_put_int(arena, block, "nodes", rows[i].nodes);
        if (v->graph) tri_tree_put_int(arena, block, "parameters", rows[i].parameters);
        if (v->graph) tri_tree_put(arena, block, "flops", tri_tree_double(arena, rows[i].flops));
        tri_tree_append(arena, blocks, block);
    }
    for (int i = 0; i < line_count; i++)
        tri_tree_append(arena, refusals, tri_tree_string(arena, lines[i]));
    tri_tree_put(arena, root, "blocks", blocks);
    if (v->network) tri_tree_put(arena, root, "fused", fused_tree(v));
    tri_tree_put(arena, root, "refusals", refusals);
    printf("%s\n", tri_json_emit(arena, root));
}

static const cli_flag model_flags[] = {{"json", NULL, "print JSON", 0}, {0}};

static int look(const cli_context *context, cli_arguments *a, bool checks) {
    tri_arena *arena = tri_arena_create(NULL, "command");
    view v = {.arena = arena, .name = NN_EXPORTED_NAME};
    row *rows = TRI_NEW_ARRAY(arena, row, TRI_MAX_MODEL_BLOCKS);
    const char *const *lines = NULL;
    int line_count = 0;
    tri_status status = is_network(a->words[0]) ? view_file(&v, a) : view_recipe(&v, context, a);
    if (status != TRI_OK) {
        int code = cli_fail(status);
        tri_arena_destroy(arena);
        return code;
    }
    if (v.network) lines = nn_exported_refusals(v.network, &line_count);
    if (line_count == 0 && v.refusal) lines = &v.refusal, line_count = 1;
    int count = rows_of(&v, rows, TRI_MAX_MODEL_BLOCKS);
    if (cli_has(a, "json"))
        print_json(&v, rows, count, lines, line_count);
    else if (!checks)
        print_table(&v, rows, count), print_fused(&v);
    else if (line_count == 0)
        printf("%s: %s\n", a->words[0],
               v.graph ? "nothing stands in the way of training"
                       : "all operations are known; what else there is depends on sizes that the "
                         "program leaves open: name a recipe, whose data have them");
    for (int i = 0; i < line_count && !cli_has(a, "json"); i++)
        fprintf(stderr, "trireme: %s\n", lines[i]);
    tri_arena_destroy(arena);
    return checks && line_count > 0 ? 2 : 0;
}

static int run_model(const cli_context *context, int argc, char **argv) {
    cli_arguments a;
    int code = cli_parse(&cli_model, argc, argv, &a);
    if (code >= 0) return code;
    bool shows = a.count > 0 && !strcmp(a.words[0], "show"),
         checks = a.count > 0 && !strcmp(a.words[0], "check");
    if (!shows && !checks) return cli_usage(&cli_model, "model: say show or check");
    if (a.count < 2) return cli_usage(&cli_model, "model: a network (.pt2) or a recipe is missing");
    a.words++;
    a.count--;
    return look(context, &a, checks);
}

const cli_command cli_model = {
    .name = "model",
    .arguments = "show|check PROGRAM.pt2|RECIPE [key.path=value ...]",
    .help = "Show a model's blocks, or what stands in the way of training an exported network.",
    .flags = model_flags,
    .more =
        "show prints the blocks into which the model is cut, with their nodes, parameters and "
        "floating-point\noperations for a sample (forward), and which groups of operations of an "
        "exported network one\noperation computes. check prints a line for each "
        "operation of a network that\ntorch.export.save wrote and that is not supported, with how "
        "often and where it occurs, and\nwhat else would be refused when training begins; it ends "
        "with code 2 if "
        "there is anything.\n",
    .examples = "trireme model show net.pt2\n"
                "trireme model show net.pt2 'model.blocks=[layers.*, head]'\n"
                "trireme model check net.pt2\n"
                "trireme model show recipes/cifar-resnet18.yaml\n",
    .run = run_model};
