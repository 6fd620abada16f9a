// Tests recipes: defaults, overrides, the resolved text, the keys that may not change when a run is
// continued, and every refusal.
#include "recipe/recipe.h"
#include "support/arena_fixture.h"

#include "base/option_manual.h"
#include "base/os.h"
#include "plan/schedule.h"
#include "recipe/alias.h"
#include "recipe/idle.h"
#include "support/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_OVERRIDES = 6 };

static tri_status parse(const char *text, const char *const overrides[MAX_OVERRIDES],
                        tri_recipe *out) {
    int count = 0;
    while (overrides && count < MAX_OVERRIDES && overrides[count]) count++;
    return tri_recipe_parse(arena, text, strlen(text), "r.yaml", overrides, count, NULL, out);
}

static tri_recipe recipe(const char *text, const char *const overrides[MAX_OVERRIDES]) {
    tri_recipe r;
    tri_status status = parse(text, overrides, &r);
    if (status != TRI_OK) print_error("%s\n", tri_error_message());
    assert_int_equal(status, TRI_OK);
    return r;
}

#define BASE "model: {name: net}\ndata: {name: idx, path: d}\n"
#define OVER(...) ((const char *const[MAX_OVERRIDES]){__VA_ARGS__})

static void has_the_documented_defaults(void **state) {
    tri_recipe r = recipe(BASE, NULL);
    assert_string_equal(r.name, "net");
    assert_int_equal(r.seed, 1);
    assert_null(r.init.path);
    assert_true(r.data.shuffle && !r.data.drop_last && r.data.workers == 2 && r.data.limit == 0);
    assert_true(r.batch.global == 64 && r.batch.micro == 0 && r.batch.eval == 0);
    assert_string_equal(r.optimizer.name, "adadelta");
    assert_true(r.optimizer.lr == 1.0 && r.optimizer.rho == 0.9 && r.optimizer.eps == 1e-6);
    assert_string_equal(r.schedule.name, "constant");
    assert_true(r.trainer.max_epochs == 3 && r.trainer.max_steps == -1 && r.trainer.max_time == 0);
    assert_true(r.trainer.precision == TRI_PRECISION_32_TRUE && r.trainer.gradient_clip_val == 0);
    assert_true(r.trainer.log_every_n_steps == 50 && r.trainer.num_sanity_val_steps == 0);
    assert_true(r.trainer.convolution == TRI_CONVOLUTION_AUTO && !r.trainer.deterministic);
    assert_null(r.trainer.early_stopping.monitor);
    assert_int_equal(r.strategy.name, TRI_STRATEGY_DDP);
    assert_true(r.strategy.mesh.replicate == TRI_AUTO && r.strategy.mesh.tensor == 1);
    assert_string_equal(tri_orders[r.strategy.schedule]->name, "1f1b");
    assert_true(r.checkpoint.every_n_epochs == 1 && r.checkpoint.save_last &&
                r.checkpoint.save_top_k == 1);
    assert_string_equal(r.checkpoint.monitor, "val_loss");
    assert_true(r.log.tensorboard);
}

static void has_pytorchs_optimizers(void **state) {
    tri_recipe r = recipe(BASE, OVER("optimizer.name=sgd"));
    assert_true(r.optimizer.momentum == 0 && r.optimizer.dampening == 0 && !r.optimizer.nesterov);
    r = recipe(BASE, OVER("optimizer.name=adam"));
    assert_true(r.optimizer.betas.items[0] == 0.9 && r.optimizer.betas.items[1] == 0.999);
    assert_true(r.optimizer.eps == 1e-8 && r.optimizer.weight_decay == 0 && r.optimizer.lr == 1e-3);
    r = recipe(BASE, OVER("optimizer.name=adamw"));
    assert_true(r.optimizer.weight_decay == 0.01);
}

static void renaming_discards_the_files_keys(void **state) {
    const char *text = BASE "optimizer: {name: adam, lr: 0.5, betas: [0.8, 0.9]}\n"
                            "schedule: {name: step, gamma: 0.5}\n";
    tri_recipe r = recipe(text, OVER("optimizer.momentum=0.9", "optimizer.name=sgd"));
    assert_true(r.optimizer.lr == 1e-3 && r.optimizer.momentum == 0.9 &&
                r.optimizer.betas.count == 0);
    r = recipe(text, OVER("optimizer.name=adam"));
    assert_true(r.optimizer.lr == 0.5 && r.optimizer.betas.items[0] == 0.8);
    r = recipe(text, OVER("optimizer.name='adam'", "optimizer.lr=2"));
    assert_true(r.optimizer.lr == 2 && r.optimizer.betas.items[0] == 0.8);
    r = recipe(text, OVER("schedule.name=cosine", "schedule.T_max=5"));
    assert_true(r.schedule.gamma == 0 && r.schedule.T_max == 5);
    r = recipe(text, OVER("data.name=synthetic", "data.samples=7"));
    assert_true(r.data.samples == 7 && !r.data.path);
    r = recipe(BASE "optimizer: {lr: 0.5}", OVER("optimizer.name=sgd"));
    // The recipe's 0.5 was meant for the default optimizer, adadelta, so it is dropped.
    assert_true(r.optimizer.lr == 1e-3);
    r = recipe(BASE "optimizer: {lr: 0.5}", OVER("optimizer.name=adadelta"));
    assert_true(r.optimizer.lr == 0.5);
}

static void takes_lists_and_model_options(void **state) {
    tri_recipe r = recipe(BASE "init: w.safetensors\n",
                          OVER("data.transform=[]", "model.dropout=0", "init=null", "name=my run",
                               "trainer.fast_dev_run=true", "trainer.max_time=00:01:00:00"));
    assert_int_equal(r.data.transform->count, 0);
    assert_string_equal(tri_tree_get(r.model.options, "dropout")->text, "0");
    assert_null(r.init.path);
    assert_string_equal(r.name, "my run");
    assert_true(r.trainer.fast_dev_run == 1 && r.trainer.max_time == 3600);
    r = recipe(BASE, OVER("model.name=./lib/two-layer.so"));
    assert_string_equal(r.name, "two-layer");
    const char *text = "data: {name: idx}";
    assert_int_equal(tri_recipe_parse(arena, text, strlen(text), "r.yaml", NULL, 0, "task", &r),
                     TRI_OK);
    assert_string_equal(r.model.name, "task");
    assert_int_equal(r.notes.count, 0);
    // The recipe's model wins over the program's own, and one note says so.
    assert_int_equal(tri_recipe_parse(arena, BASE, strlen(BASE), "r.yaml", NULL, 0, "task", &r),
                     TRI_OK);
    assert_string_equal(r.model.name, "net");
    assert_int_equal(r.notes.count, 1);
    assert_non_null(strstr(r.notes.items[0], "model.name=task"));
}

static void resolves_to_itself(void **state) {
    tri_recipe r =
        recipe(BASE "init: '12'\nname: \"a: #b\"\n",
               OVER("model.depth=[1, {a: 'x y'}]", "optimizer.name=adam", "schedule.name=onecycle",
                    "data.transform=[{normalize: {mean: [0.1], std: [0.2]}}]", "seed=9"));
    const char *text = tri_recipe_emit(arena, &r);
    tri_recipe again = recipe(text, NULL);
    assert_string_equal(tri_recipe_emit(arena, &again), text);
    assert_int_equal(tri_recipe_differences(arena, &r, &again).count, 0);
    assert_string_equal(again.init.path, "12");
    assert_non_null(strstr(text, "  betas: [0.9, 0.999]\n"));
    assert_null(strstr(text, "  momentum: "));
    assert_non_null(strstr(text, "init: \"12\"\n"));
    r = recipe(BASE "init: {path: a, ignore: [x]}\n", OVER("init.ignore=['fc.*', b]"));
    text = tri_recipe_emit(arena, &r);
    again = recipe(text, NULL);
    assert_string_equal(again.init.path, "a");
    assert_int_equal(again.init.ignore.count, 2);
    assert_string_equal(tri_recipe_emit(arena, &again), text);
    r = recipe(BASE "init: {path: a, ignore: [x]}\n", OVER("init=b"));
    assert_true(!strcmp(r.init.path, "b") && r.init.ignore.count == 0);
}

static void names_what_defines_a_run(void **state) {
    tri_recipe a = recipe(BASE, NULL);
    tri_recipe b =
        recipe(BASE, OVER("trainer.max_epochs=9", "trainer.max_steps=7", "log.tensorboard=false",
                          "data.workers=0", "checkpoint.every_n_steps=3", "strategy.name=single"));
    assert_int_equal(tri_recipe_differences(arena, &a, &b).count, 0);
    b = recipe(BASE, OVER("data.path=elsewhere", "batch.eval=5", "name=other"));
    assert_int_equal(tri_recipe_differences(arena, &a, &b).count, 0);
    b = recipe(BASE, OVER("seed=2", "model.dropout=0", "batch.global=32", "optimizer.lr=0.5",
                          "data.shuffle=false", "trainer.gradient_clip_val=1"));
    tri_strings keys = tri_recipe_differences(arena, &a, &b);
    static const char *const expected[] = {"seed",         "model.dropout",
                                           "data.shuffle", "batch.global",
                                           "optimizer.lr", "trainer.gradient_clip_val"};
    assert_int_equal(keys.count, 6);
    for (int i = 0; i < 6; i++) assert_string_equal(keys.items[i], expected[i]);
    b = recipe(BASE, OVER("optimizer.name=sgd"));
    assert_string_equal(tri_recipe_differences(arena, &a, &b).items[0], "optimizer.name");
}

// Checks that recipes may call strategies by the names that other systems give them.
static void accepts_names_of_other_systems(void **state) {
    static const struct {
        const char *alias, *name, *offload;
    } rows[] = {{"auto", "ddp", NULL},
                {"ddp_spawn", "ddp", NULL},
                {"NO_SHARD", "ddp", NULL},
                {"deepspeed", "zero2", NULL},
                {"deepspeed_stage_1", "zero1", NULL},
                {"deepspeed_stage_2_offload", "zero2", "optimizer"},
                {"deepspeed_stage_3_offload", "fsdp", "parameters"},
                {"deepspeed_stage_3_offload_nvme", "fsdp", "parameters"},
                {"FULL_SHARD", "fsdp", NULL},
                {"FSDP", "fsdp", NULL},
                {"DDP", "ddp", NULL},
                {"shard_grad_op", "zero2", NULL},
                {"fsdp", "fsdp", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *text = tri_arena_printf(arena, "strategy: {name: %s}", rows[i].alias);
        tri_tree *root;
        assert_int_equal(tri_yaml_parse(arena, text, strlen(text), "r.yaml", &root), TRI_OK);
        assert_int_equal(tri_recipe_settle_strategy(arena, root), TRI_OK);
        assert_string_equal(tri_tree_find(root, "strategy.name")->text, rows[i].name);
        const tri_tree *offload = tri_tree_find(root, "strategy.offload");
        assert_int_equal(!offload, !rows[i].offload);
        if (offload) assert_string_equal(offload->text, rows[i].offload);
    }
    tri_recipe r = recipe(BASE "strategy: {name: ddp_spawn}", NULL);
    assert_non_null(strstr(tri_recipe_emit(arena, &r), "name: ddp\n"));
}

typedef struct refusal {
    const char *text; // the recipe is BASE and this text; if it starts with '!', without BASE
    const char *override;
    const char *parts; // of the message, as message_check takes them
} refusal;

static const refusal refusals[] = {
    {"trainer: {max_epoch: 1}", NULL, "r.yaml:3|key|trainer.max_epoch|max_epochs"},
    {"", "trainer.max_epoch=1", "override|trainer.max_epoch=1|key|trainer.max_epoch|max_epochs"},
    {"optimiser: {name: sgd}", NULL, "r.yaml:3|key|optimiser|optimizer"},
    {"seed: one", NULL, "r.yaml:3|seed|0|one"},
    {"seed: -1", NULL, "r.yaml:3|seed|0|-1"},
    {"", "data.limit=281474976710657",
     "override|data.limit=281474976710657|data.limit|0|281474976710656|281474976710657"},
    {"batch: {global: 0}", NULL, "r.yaml:3|batch.global|auto|1|16777216|0"},
    {"batch: {global: 99999999999999999999}", NULL,
     "r.yaml:3|batch.global|auto|1|16777216|99999999999999999999"},
    {"batch:\n  global: 8\n  micro: 9\n", NULL, "r.yaml:5|batch.micro|9|batch.global|8"},
    {"batch: 64", NULL, "r.yaml:3|batch|mapping|keys|64"},
    {"", "strategy.mesh.replicate=0",
     "override|strategy.mesh.replicate=0|strategy.mesh.replicate|auto|1|65536|0"},
    {"", "batch.global=sixty", "override|batch.global=sixty|batch.global|auto|1|16777216|sixty"},
    {"optimizer: {<<: {lr: 1}}", NULL, "r.yaml:3|merge key|<<"},
    {"optimizer: {name: sdg}", NULL, "r.yaml:3|optimizer.name|sgd|adam|adamw|adadelta|sdg|sgd"},
    {"optimizer: {name: sgd, nesterov: true}", NULL,
     "r.yaml:3|optimizer.nesterov|momentum|dampening"},
    {"optimizer: {name: adam, betas: [0.9, 1]}", NULL, "r.yaml:3|optimizer.betas|1"},
    {"trainer: {max_epochs: -1}", NULL, "r.yaml:3|end|trainer.max_epochs|max_steps|max_time"},
    {"log: {mlflow: true}", NULL, "r.yaml:3|log.mlflow|log.tensorboard"},
    {"", "log.mlflow=true", "override|log.mlflow=true|log.mlflow"},
    {"strategy: {name: deepspeed_stage_2_offload, offload: none}", NULL,
     "r.yaml:3|strategy.offload: none|strategy.name: deepspeed_stage_2_offload"},
    {"strategy: {name: HYBRID_SHARD}", NULL, "r.yaml:3|strategy.name: HYBRID_SHARD|shards"},
    {"trainer: {loss_scale: {minimum: 4, initial: 2}}", NULL,
     "r.yaml:3|trainer.loss_scale.initial|minimum"},
    {"name: ../up", NULL, "r.yaml:3|name|name|folder|128"},
    {"seed: 1\nseed: 2", NULL, "r.yaml:4|key|seed|twice"},
    {"!data: {name: idx}\n", NULL, "r.yaml:1|model.name|object"},
    {"!model: {name: net}\n", NULL, "r.yaml:1|data.name"},
    {"!", NULL, "r.yaml|empty"},
    {"!- 1\n", NULL, "r.yaml:1|mapping|keys"},
    {"!\tx: 1\n", NULL, "r.yaml:1|YAML"},
    {"!a: &a [*a]\n", NULL, "r.yaml:1|alias"},
    {"", "seed", "override|seed|key.path=value"},
};

static void refuses_bad_recipes(void **state) {
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *r = &refusals[i];
        char text[256];
        bool alone = r->text[0] == '!';
        snprintf(text, sizeof text, "%s%s", alone ? "" : BASE, r->text + alone);
        tri_recipe out;
        tri_status status = parse(text, OVER(r->override), &out);
        assert_int_equal(tri_status_exit_code(status), 2);
        message_check(tri_error_message(), r->parts);
    }
}

static void loads_the_recipes(void **state) {
    static const struct {
        const char *name;
        int64_t batch;
        const char *optimizer, *schedule;
    } cases[] = {{"mnist-cnn", 64, "adadelta", "step"},
                 {"mnist-convnet", 100, "sgd", "constant"},
                 {"autoencoder", 64, "adam", "constant"},
                 {"denoise-cnn", 32, "adam", "cosine"},
                 {"mlp-jax", 128, "sgd", "constant"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path =
            tri_arena_printf(arena, TRIREME_SOURCE_DIR "/recipes/%s.yaml", cases[i].name);
        tri_recipe r;
        tri_status status = tri_recipe_load(arena, path, NULL, 0, NULL, &r);
        if (status != TRI_OK) print_error("%s\n", tri_error_message());
        assert_int_equal(status, TRI_OK);
        assert_string_equal(r.name, cases[i].name);
        assert_string_equal(r.model.name, cases[i].name);
        assert_int_equal(r.batch.global, cases[i].batch);
        assert_string_equal(r.optimizer.name, cases[i].optimizer);
        assert_string_equal(r.schedule.name, cases[i].schedule);
    }
    tri_recipe r;
    assert_int_equal(tri_recipe_load(arena, "/nonexistent.yaml", NULL, 0, NULL, &r), TRI_NOT_FOUND);
    message_check(tri_error_message(), "/nonexistent.yaml");
}

static void every_default_fits_its_row(void **state) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_true(tri_option_print(&tri_recipe_table, "", out));
    assert_false(tri_option_print(&tri_recipe_table, "optimzer", out));
    fclose(out);
    assert_non_null(strstr(text, "optimizer.name: adamw"));
    assert_non_null(strstr(text, "strategy.mesh.replicate = auto"));
    free(text);
    static const char *const names[] = {
        "optimizer.name=sgd",      "optimizer.name=adam",    "optimizer.name=adamw",
        "optimizer.name=adadelta", "schedule.name=constant", "schedule.name=step",
        "schedule.name=linear",    "schedule.name=cosine",   "schedule.name=onecycle"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) recipe(BASE, OVER(names[i]));
}

static void refuses_keys_that_cannot_be_read_back(void **state) {
    tri_recipe r;
    assert_int_equal(parse(BASE, OVER("model.hidden\xff_size=32"), &r), TRI_BAD_INPUT);
    message_check(tri_error_message(), "key|UTF-8");
}

// Each of these keys has no effect on one rank. It has one if the recipe has another setting too,
// or if there are more ranks.
static void reports_keys_without_effect(void **state) {
    static const struct {
        // Overrides: `idle` sets the key, which has an effect only together with `needs`. `needs`
        // NULL: the key has an effect only on more ranks, on a mesh of the sizes that follow.
        const char *idle, *needs;
        int pipeline, tensor, replicas;
    } cases[] = {
        {"strategy.schedule=gpipe", NULL, 2, 1, 1},
        {"strategy.stages_per_rank=3", "strategy.schedule=interleaved", 2, 1, 1},
        {"strategy.recompute_every=2", "strategy.recompute=block", 1, 1, 1},
        {"strategy.prefetch=2", "strategy.name=zero1", 1, 1, 1},
        {"strategy.reshard_after_forward=false", "strategy.name=fsdp", 1, 1, 1},
        {"strategy.persistent_bytes=1", "strategy.name=fsdp", 1, 1, 1},
        {"strategy.reduce_dtype=bfloat16", NULL, 1, 1, 2},
        {"strategy.offload_path=/tmp", "strategy.offload=optimizer", 1, 1, 1},
        {"strategy.sequence_parallel=true", NULL, 1, 2, 1},
        {"trainer.loss_scale.window=5", "trainer.precision=16-mixed", 1, 1, 1},
        {"trainer.early_stopping.patience=5", "trainer.early_stopping.monitor=val_loss", 1, 1, 1},
        {"checkpoint.mode=max", "checkpoint.save_top_k=2", 1, 1, 1},
        {"data.sequence=9", "data.name=tokens", 1, 1, 1},
        {"data.sequence=9", "data.name=jsonl", 1, 1, 1},
    };
    const tri_mesh one = {.size = {1, 1, 1, 1}, .ranks = 1};
    // The metric is a setting of the user; the mode that follows from it is none.
    tri_recipe rising =
        recipe(BASE, OVER("checkpoint.monitor=val_accuracy", "checkpoint.save_top_k=0"));
    tri_strings rising_lines = tri_recipe_idle_keys(arena, &rising, &one);
    assert_int_equal(rising_lines.count, 1);
    message_check(rising_lines.items[0], "checkpoint.monitor|checkpoint.save_top_k");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_mesh mesh = one;
        mesh.size[TRI_AXIS_PIPELINE] = cases[i].pipeline;
        mesh.size[TRI_AXIS_TENSOR_PARALLEL] = cases[i].tensor;
        mesh.size[TRI_AXIS_REPLICATE] = cases[i].replicas;
        mesh.ranks = cases[i].pipeline * cases[i].tensor * cases[i].replicas;
        const char *off = strstr(cases[i].idle, "mode") ? "checkpoint.save_top_k=0" : "seed=3";
        tri_recipe idle = recipe(BASE, OVER(cases[i].idle, off));
        tri_strings lines = tri_recipe_idle_keys(arena, &idle, &one);
        assert_int_equal(lines.count, 1);
        assert_non_null(strstr(lines.items[0], " has no effect: "));
        tri_recipe used = recipe(BASE, OVER(cases[i].idle, cases[i].needs));
        lines = tri_recipe_idle_keys(arena, &used, &mesh);
        if (lines.count) fail_msg("%s", lines.items[0]);
    }
    tri_recipe plain = recipe(BASE, OVER("optimizer.name=sgd", "schedule.name=triangle"));
    assert_int_equal(tri_recipe_idle_keys(arena, &plain, &one).count, 0);
}

static void follows_the_metric(void **state) {
    static const struct {
        const char *monitor;
        tri_monitor_mode mode;
    } cases[] = {{"val_loss", TRI_MONITOR_MIN},     {"train_loss", TRI_MONITOR_MIN},
                 {"val_accuracy", TRI_MONITOR_MAX}, {"val_top5_accuracy", TRI_MONITOR_MAX},
                 {"val_F1", TRI_MONITOR_MAX},       {"val_error", TRI_MONITOR_MIN},
                 {"val_dice", TRI_MONITOR_MAX},     {"val_dice_loss", TRI_MONITOR_MIN},
                 {"val_miou", TRI_MONITOR_MAX},     {"val_top_5", TRI_MONITOR_MAX},
                 {"val_top5", TRI_MONITOR_MAX},     {"val_top1_error", TRI_MONITOR_MIN},
                 {"val_mAP50", TRI_MONITOR_MAX},    {"val_word_error_rate", TRI_MONITOR_MIN},
                 {"val_f1score", TRI_MONITOR_MAX},  {"val_ssimLoss", TRI_MONITOR_MIN},
                 {"val_mcc", TRI_MONITOR_MAX},      {"val_l1", TRI_MONITOR_MIN},
                 {"perplexity", TRI_MONITOR_MIN},   {"val_rmse2", TRI_MONITOR_MIN}};
    tri_monitor_mode mode;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!tri_monitor_mode_known(cases[i].monitor, &mode)) fail_msg("%s", cases[i].monitor);
    static const char *const unclear[] = {"val_accurate", "val_m", "5", "val_error_recall", ""};
    for (size_t i = 0; i < sizeof unclear / sizeof *unclear; i++) {
        assert_false(tri_monitor_mode_known(unclear[i], &mode));
        assert_int_equal(mode, TRI_MONITOR_MIN);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(tri_monitor_mode_of(cases[i].monitor), cases[i].mode);
    tri_recipe r = recipe(BASE, OVER("checkpoint.monitor=val_accuracy",
                                     "trainer.early_stopping.monitor=val_accuracy",
                                     "trainer.early_stopping.mode=min"));
    assert_int_equal(r.checkpoint.mode, TRI_MONITOR_MAX);
    assert_int_equal(r.trainer.early_stopping.mode, TRI_MONITOR_MIN);
}

// What a recipe leaves open stays open in the resolved one, so that it follows another model or
// metric there; a mode that contradicts the metric's name is noted.
static void leaves_open_what_follows(void **state) {
    tri_recipe r = recipe(BASE, OVER("trainer.early_stopping.monitor=val_loss"));
    const char *text = tri_recipe_emit(arena, &r);
    tri_recipe again = recipe(text, OVER("model.name=other", "checkpoint.monitor=val_accuracy",
                                         "trainer.early_stopping.monitor=val_accuracy"));
    assert_string_equal(again.name, "other");
    assert_int_equal(again.checkpoint.mode, TRI_MONITOR_MAX);
    assert_int_equal(again.trainer.early_stopping.mode, TRI_MONITOR_MAX);
    assert_int_equal(again.notes.count, 0);
    static const char *const contradictions[][2] = {
        {"checkpoint.monitor=val_accuracy", "checkpoint.mode=min"},
        {"checkpoint.monitor=val_dice_loss", "checkpoint.mode=max"},
        {"trainer.early_stopping.monitor=val_F1", "trainer.early_stopping.mode=min"}};
    for (size_t i = 0; i < sizeof contradictions / sizeof *contradictions; i++) {
        r = recipe(BASE, OVER(contradictions[i][0], contradictions[i][1]));
        assert_int_equal(r.notes.count, 1);
        assert_non_null(strstr(r.notes.items[0], "mode is m"));
        assert_non_null(strstr(r.notes.items[0], strchr(contradictions[i][0], '=') + 1));
        r = recipe(tri_recipe_emit(arena, &r), NULL);
        assert_int_equal(r.notes.count, 1);
    }
    // A name that tells nothing: one note says what was taken.
    r = recipe(BASE, OVER("checkpoint.monitor=val_own"));
    assert_int_equal(r.notes.count, 1);
    assert_non_null(strstr(r.notes.items[0], "checkpoint.mode=max"));
    r = recipe(BASE, OVER("checkpoint.monitor=val_own", "checkpoint.mode=max",
                          "trainer.early_stopping.mode=max"));
    assert_int_equal(r.notes.count, 0);
    assert_non_null(strstr(tri_recipe_emit(arena, &r), "  monitor: val_own\n  mode: max\n"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_documented_defaults),
        cmocka_unit_test(reports_keys_without_effect),
        cmocka_unit_test(refuses_keys_that_cannot_be_read_back),
        cmocka_unit_test(has_pytorchs_optimizers),
        cmocka_unit_test(renaming_discards_the_files_keys),
        cmocka_unit_test(takes_lists_and_model_options),
        cmocka_unit_test(follows_the_metric),
        cmocka_unit_test(leaves_open_what_follows),
        cmocka_unit_test(resolves_to_itself),
        cmocka_unit_test(names_what_defines_a_run),
        cmocka_unit_test(accepts_names_of_other_systems),
        cmocka_unit_test(refuses_bad_recipes),
        cmocka_unit_test(loads_the_recipes),
        cmocka_unit_test(every_default_fits_its_row),
    };
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}
