// `trireme lr-find`: trains a few steps at a rising learning rate and suggests one
// (train/lr_find.h); this file reads the command line and prints the result.
#include "train/lr_find.h"
#include "cli/cli.h"
#include "cli/lr_draw.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    tri_lr_rule *rule;
} rules[] = {{"steepest", tri_lr_steepest}, {"valley", tri_lr_valley}};
enum { RULES = sizeof rules / sizeof *rules, LEAST_STEPS = 20, MOST_STEPS = 100000 };

typedef struct lr_finder {
    tri_lr_search search;
    int rule;
    const char *device, *svg;
} lr_finder;

static tri_status read_rate(const cli_arguments *a, const char *flag, double *out) {
    const char *text = cli_value(a, flag);
    char *end = NULL;
    if (!text) return TRI_OK;
    *out = strtod(text, &end);
    if (*out > 0 && isfinite(*out) && !*end) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "--%s: '%s' is not a learning rate above 0", flag, text);
}

static tri_status read_arguments(const cli_arguments *a, lr_finder *out) {
    const char *rule = cli_value(a, "rule");
    int64_t steps = 100;
    *out = (lr_finder){.search = {.least = 1e-8, .most = 1},
                       .device = cli_has(a, "device") ? cli_value(a, "device") : "auto",
                       .svg = cli_value(a, "svg")};
    TRI_TRY(read_rate(a, "min", &out->search.least));
    TRI_TRY(read_rate(a, "max", &out->search.most));
    if (out->search.least >= out->search.most)
        return TRI_FAIL(TRI_BAD_INPUT, "--min: %g is not less than --max: %g", out->search.least,
                        out->search.most);
    TRI_TRY(cli_read_whole(a, "steps", LEAST_STEPS, MOST_STEPS, &steps));
    out->search.steps = (int)steps;
    while (rule && out->rule < RULES && strcmp(rules[out->rule].name, rule) != 0) out->rule++;
    if (out->rule == RULES)
        return TRI_FAIL(TRI_BAD_INPUT, "--rule: '%s' is not one of steepest, valley", rule);
    return cli_check_svg(out->svg, a->words[0]);
}

static void print_json(tri_arena *arena, const tri_lr_found *found, const lr_drawing *d,
                       const char *rule) {
    tri_tree *map = tri_tree_map(arena), *points = tri_tree_list(arena);
    tri_tree_put(arena, map, "suggestion",
                 tri_tree_double(arena, found->curve.points[d->chosen].lr));
    tri_tree_put_string(arena, map, "rule", rule);
    tri_tree_put(arena, map, "ended_early", tri_tree_bool(arena, found->ended));
    for (int i = 0; i < found->curve.count; i++) {
        tri_tree *point = tri_tree_map(arena);
        tri_tree_put(arena, point, "lr", tri_tree_double(arena, found->curve.points[i].lr));
        tri_tree_put(arena, point, "loss", tri_tree_double(arena, found->curve.points[i].loss));
        tri_tree_append(arena, points, point);
    }
    tri_tree_put(arena, map, "curve", points);
    printf("%s\n", tri_json_emit(arena, map));
}

static void print_text(const cli_context *context, const cli_arguments *a, const lr_finder *f,
                       const tri_lr_found *found, const lr_drawing *d) {
    const tri_lr_curve *curve = &found->curve;
    char setting[64];
    printf("%s: loss by learning rate, %s%s\n", d->name, tri_counted(curve->count, "step"),
           found->ended ? "; then the loss grew beyond four times its best" : "");
    lr_print(d, stdout);
    for (int i = 0; i < RULES; i++) {
        int chosen = rules[i].rule(curve, f->search.steps);
        if (i == f->rule)
            printf("%-10s %.3g (#, by the rule %s)\n", "suggestion", curve->points[chosen].lr,
                   rules[i].name);
        else if (chosen >= 0)
            printf("%-10s %.3g\n", rules[i].name, curve->points[chosen].lr);
    }
    snprintf(setting, sizeof setting, "optimizer.lr=%.3g", curve->points[d->chosen].lr);
    printf("%-10s ", "next");
    cli_print_training(context, a, setting);
}

static void draw(const void *drawing, FILE *out) { lr_draw(drawing, out); }

static tri_status show(const cli_context *context, const cli_arguments *a, const lr_finder *f,
                       tri_arena *arena, const char *name, const tri_lr_found *found) {
    const tri_lr_curve *c = &found->curve;
    lr_drawing d = {name, c, rules[f->rule].rule(c, f->search.steps)};
    if (d.chosen < 0)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "lr-find: the loss grew to four times its best or beyond all numbers after "
                        "%s, too early for a suggestion: give more --steps, or a smaller --min",
                        tri_counted(c->count, "step"));
    if (c->best >= c->points[0].loss)
        cli_warn("lr-find: the loss fell at no learning rate, so that the suggestion means little");
    if (f->svg) TRI_TRY(cli_write_svg(f->svg, draw, &d));
    if (cli_has(a, "json"))
        print_json(arena, found, &d, rules[f->rule].name);
    else
        print_text(context, a, f, found, &d);
    return TRI_OK;
}

static tri_status find(const cli_context *context, tri_arena *arena, const cli_arguments *a) {
    lr_finder f;
    tri_recipe recipe;
    tri_lr_found found;
    int cores;
    TRI_TRY(read_arguments(a, &f));
    TRI_TRY(tri_recipe_load(arena, a->words[0], (const char *const *)a->words + 1, a->count - 1,
                            context->task ? context->task->name : NULL, &recipe));
    TRI_TRY(cli_bind_rank(&cores));
    TRI_TRY(tri_lr_find(arena,
                        &(tri_session_request){.backends = &cli_backends,
                                               .recipe = &recipe,
                                               .task = context->task,
                                               .device = f.device,
                                               .train = true},
                        &f.search, &found));
    if (found.rank != 0) return TRI_OK;
    cli_warn_of_null(a, "the losses mean nothing");
    return show(context, a, &f, arena, recipe.name, &found);
}

static const cli_flag flags[] = {
    {"min", "LR", "the first step's learning rate (1e-8)", 0},
    {"max", "LR", "the last step's (1)", 0},
    {"steps", "N", "how many steps are trained (100)", 0},
    {"rule", "steepest|valley", "how the rate is chosen (steepest)", 0},
    {"svg", "FILE", "draw the loss over the learning rate", 0},
    CLI_DEVICE_FLAG("the device that computes"),
    {"json", NULL, "print the suggestion and the curve as one JSON object", 0},
    {0}};

static int run(const cli_context *context, int argc, char **argv) {
    cli_arguments a;
    int code = cli_parse(&cli_lr_find, argc, argv, &a);
    if (code >= 0) return code;
    if (a.count < 1) return cli_usage(&cli_lr_find, "lr-find: which recipe?");
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_status status = find(context, arena, &a);
    code = status == TRI_OK ? 0 : cli_fail(status);
    tri_arena_destroy(arena);
    return code;
}

const cli_command cli_lr_find = {
    .name = "lr-find",
    .arguments = "RECIPE [key.path=value ...]",
    .help = "Suggest a learning rate, from a few steps at a rising one.",
    .flags = flags,
    .more =
        "Trains from the weights with which a run would begin, and saves nothing. The rate rises\n"
        "by equal factors in place of the recipe's rate and schedule, until the smoothed loss is\n"
        "above four times its best. steepest is Lightning's rule: where that loss falls most from\n"
        "step to step; valley is fastai's: in the middle of its longest fall.\n",
    .examples = "trireme lr-find recipes/mnist-cnn.yaml optimizer.name=adam\n"
                "trireme lr-find recipes/mnist-cnn.yaml --rule valley --svg lr.svg\n"
                "trireme run --standalone --nproc-per-node 2 trireme lr-find "
                "recipes/mlp-jax.yaml --json\n",
    .run = run};
