// Checks how a configuration of DeepSpeed becomes a recipe: files from practice, the examples of
// DeepSpeed's documentation, batch arithmetic, keys without effect, and every refusal.
#include "recipe/batch.h"
#include "recipe/deepspeed.h"
#include "recipe/recipe.h"
#include "support/arena_fixture.h"
#include "support/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static tri_status try_parse(const char *json, tri_deepspeed *out) {
    char *text = tri_arena_strdup(arena, json);
    return tri_deepspeed_parse(arena, text, strlen(text), "ds.json", out);
}

static tri_deepspeed parse(const char *json) {
    tri_deepspeed d;
    tri_status status = try_parse(json, &d);
    if (status != TRI_OK) print_error("%s\n", tri_error_message());
    assert_int_equal(status, TRI_OK);
    return d;
}

// Lists the settings in order, as "key=value". DeepSpeed's defaults (is_fallback) are written
// "key?=value", and settings that follow from others (is_derived) "key:=value".
static const char *settings(const tri_deepspeed *d) {
    const char *text = "";
    for (int i = 0; i < d->count; i++)
        if (!d->settings[i].is_auto)
            text = tri_arena_printf(arena, "%s%s%s%s%s", text, *text ? " " : "", d->settings[i].key,
                                    d->settings[i].is_fallback  ? "?="
                                    : d->settings[i].is_derived ? ":="
                                                                : "=",
                                    tri_yaml_flow(arena, d->settings[i].value));
    return text;
}

typedef struct example {
    const char *json, *settings;
} example;

static const example examples[] = {
    // The file of LUMI's documentation, which has a comma after each last entry.
    {"{\n  \"train_batch_size\": 32,\n  \"steps_per_print\": 100,\n"
     "  \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.001,},},\n"
     "  \"zero_optimization\": {\"stage\": 1,},\n  \"fp16\": {\"enabled\": false,},\n"
     "  \"gradient_clipping\": 1.0,\n}\n",
     "trainer.log_every_n_steps=100 optimizer.name=adamw "
     "optimizer.weight_decay?=0 optimizer.lr=0.001 strategy.name=zero1 "
     "trainer.gradient_clip_val=1.0 batch.global=32"},
    // The example in the documentation of CSC, a supercomputing centre.
    {"{\"train_batch_size\": 400, \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.001,"
     "\"betas\": [0.8, 0.999], \"eps\": 1e-8, \"weight_decay\": 3e-7}}, \"scheduler\": {\"type\": "
     "\"WarmupLR\", \"params\": {\"warmup_min_lr\": 0, \"warmup_max_lr\": 0.001,"
     "\"warmup_num_steps\": 1000}}, \"gradient_clipping\": 1.0, \"wall_clock_breakdown\": false}",
     "optimizer.name=adamw optimizer.lr=0.001 optimizer.betas=[0.8, 0.999] optimizer.eps=1e-08 "
     "optimizer.weight_decay=3e-07 schedule.name=warmup schedule.warmup_steps?=1000 "
     "schedule.warmup_min_lr=0 schedule.max_lr=0.001 schedule.warmup_steps=1000 "
     "trainer.gradient_clip_val=1.0 batch.global=400"},
    // DeepSpeed's page "Getting started".
    {"{\"train_batch_size\": 8, \"gradient_accumulation_steps\": 1, \"optimizer\": {\"type\": "
     "\"Adam\", \"params\": {\"lr\": 0.00015}}, \"fp16\": {\"enabled\": true},"
     "\"zero_optimization\": true}",
     "optimizer.name=adamw optimizer.weight_decay?=0 optimizer.lr=0.00015 strategy.name=zero1 "
     "batch.global=8 trainer.accumulate_grad_batches=1 trainer.precision=16-mixed"},
    // DeepSpeed's section "FP16 training options".
    {"{\"fp16\": {\"enabled\": true, \"auto_cast\": false, \"loss_scale\": 0, "
     "\"initial_scale_power\": 16, \"loss_scale_window\": 1000, \"hysteresis\": 2, "
     "\"consecutive_hysteresis\": false, \"min_loss_scale\": 1, "
     "\"fp16_master_weights_and_grads\": false}}",
     "trainer.loss_scale.fixed=0 trainer.loss_scale.initial=65536.0 "
     "trainer.loss_scale.window=1000 trainer.loss_scale.hysteresis=2 "
     "trainer.loss_scale.consecutive_hysteresis=false trainer.loss_scale.minimum=1 "
     "trainer.precision=16-mixed"},
    // DeepSpeed's section "ZeRO": stage 3 with offload to host memory.
    {"{\"zero_optimization\": {\"stage\": 3, \"overlap_comm\": true, \"contiguous_gradients\": "
     "true, \"sub_group_size\": 1e9, \"reduce_bucket_size\": \"auto\", \"offload_optimizer\": "
     "{\"device\": \"cpu\", \"pin_memory\": true}, \"offload_param\": {\"device\": \"cpu\"}},"
     "\"bf16\": {\"enabled\": true}}",
     "strategy.name=fsdp trainer.precision=bf16-mixed strategy.offload=parameters"},
    {"{\"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true}}",
     "strategy.name=zero2 strategy.offload=optimizer"},
    {"{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"nvme\", "
     "\"nvme_path\": \"/local_nvme\"}, \"offload_param\": {\"device\": \"nvme\", "
     "\"nvme_path\": \"/local_nvme\"}}}",
     "strategy.name=fsdp strategy.offload=parameters strategy.offload_path=/local_nvme"},
    {"{\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\", "
     "\"nvme_path\": \"/local_nvme\"}}}",
     "strategy.name=zero2 strategy.offload=optimizer"},
    // A file for Hugging Face's trainer: every value is auto, and so comes from the recipe.
    {"{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\", "
     "\"gradient_accumulation_steps\": \"auto\", \"gradient_clipping\": \"auto\", "
     "\"bf16\": {\"enabled\": \"auto\"}, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
     "{\"lr\": \"auto\", \"betas\": \"auto\", \"eps\": \"auto\", \"weight_decay\": \"auto\"}},"
     "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": \"auto\", "
     "\"warmup_min_lr\": \"auto\", \"warmup_max_lr\": \"auto\", \"warmup_num_steps\": \"auto\"}}}",
     "optimizer.name=adamw optimizer.weight_decay?=0 schedule.name=warmup-decay "
     "schedule.warmup_steps?=1000"},
    {"{\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 8}",
     "batch.global:=auto batch.micro=4 trainer.accumulate_grad_batches=8"},
    {"{\"communication_data_type\": \"bfp16\"}", "strategy.reduce_dtype=bfloat16"},
    {"{\"communication_data_type\": \"fp32\"}", "strategy.reduce_dtype=float32"},
    {"{\"communication_data_type\": null}", ""},
    {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false}}}",
     "optimizer.name=adam optimizer.weight_decay?=0"},
    {"{\"optimizer\": {\"type\": \"adamw\", \"params\": {\"torch_adam\": true}}}",
     "optimizer.name=adamw"},
    {"{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.1, \"momentum\": 0.9, "
     "\"nesterov\": true}}, \"scheduler\": {\"type\": \"OneCycle\", \"params\": {"
     "\"cycle_min_lr\": 0.01, \"cycle_max_lr\": 0.1, \"cycle_first_step_size\": 100, "
     "\"cycle_second_step_size\": null}}}",
     "optimizer.name=sgd optimizer.lr=0.1 optimizer.momentum=0.9 optimizer.nesterov=true "
     "schedule.name=triangle schedule.min_lr=0.01 schedule.max_lr=0.1 schedule.first_steps=100"},
    {"{\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": 500, "
     "\"warmup_min_ratio\": 0.1, \"warmup_num_steps\": 50, \"cos_min_ratio\": 0.01, "
     "\"warmup_type\": \"linear\"}}}",
     "schedule.name=warmup-cosine schedule.warmup_steps?=1000 schedule.total_steps=500 "
     "schedule.warmup_min_ratio=0.1 schedule.warmup_steps=50 schedule.cos_min_ratio=0.01 "
     "schedule.warmup_type=linear"},
    {"{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 500}}}",
     "schedule.name=warmup-decay schedule.warmup_steps?=1000 schedule.max_lr?=0.001 "
     "schedule.total_steps=500"},
    {"{\"torch_autocast\": {\"enabled\": true, \"dtype\": \"float16\"}, \"dataloader_drop_last\": "
     "true, \"tensorboard\": {\"enabled\": true}}",
     "data.drop_last=true log.tensorboard=true trainer.precision=16-mixed"},
    // Sections that are switched off set nothing.
    {"{\"amp\": {\"enabled\": false, \"opt_level\": \"O1\"}, \"fp16\": {\"enabled\": false, "
     "\"loss_scale_window\": 5, \"fp16_master_weights_and_grads\": true}, "
     "\"tensor_parallel\": {\"autotp_size\": 1}, \"gradient_allreduce_op\": \"mean\", "
     "\"curriculum_learning\": {\"enabled\": false}, \"zero_optimization\": "
     "{\"mics_shard_size\": -1, \"offload_param\": {\"device\": \"none\"}}}",
     ""},
};

static void test_examples(void **state) {
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        tri_deepspeed d = parse(examples[i].json);
        assert_string_equal(settings(&d), examples[i].settings);
    }
}

// Checks that all keys without effect share one warning, and that another warning tells of commas
// that JSON does not allow.
static void test_notes(void **state) {
    tri_deepspeed d = parse(examples[0].json);
    assert_int_equal(d.notes.count, 1);
    assert_non_null(strstr(d.notes.items[0], "comments or commas"));
    d = parse(examples[1].json);
    assert_int_equal(d.notes.count, 1);
    assert_string_equal(d.notes.items[0], "ds.json: without effect here: wall_clock_breakdown");
    d = parse(examples[4].json);
    assert_int_equal(d.notes.count, 1);
    assert_string_equal(d.notes.items[0],
                        "ds.json: without effect here: zero_optimization.overlap_comm, "
                        "zero_optimization.contiguous_gradients, zero_optimization.sub_group_size, "
                        "zero_optimization.offload_optimizer.pin_memory");
    d = parse(examples[7].json);
    assert_int_equal(d.notes.count, 1);
    assert_string_equal(
        d.notes.items[0],
        "ds.json: without effect here: zero_optimization.offload_optimizer.nvme_path");
    assert_int_equal(parse(examples[8].json).notes.count, 0);
    d = parse("{\"flops_profiler\": {\"enabled\": true, \"profile_step\": 1}, # why\n"
              "\"aio\": {\"block_size\": 1048576}, \"wandb\": {\"enabled\": false}}");
    assert_int_equal(d.notes.count, 2);
    assert_string_equal(d.notes.items[1], "ds.json: without effect here: flops_profiler, aio");
}

static const struct {
    const char *json, *parts;
} refusals[] = {
    {"[1]", "ds.json|DeepSpeed|object"},
    {"{\"a\": 1", "ds.json:1: not valid JSON: "},
    {"{\"train_batch_sise\": 1}",
     "ds.json: unknown key 'train_batch_sise' (did you mean 'train_batch_size'?)"},
    {"{\"zero_optimisation\": {\"stage\": 1}}",
     "ds.json: unknown key 'zero_optimisation' (did you mean 'zero_optimization'?)"},
    {"{\"zero_optimization\": {\"stag\": 1}}",
     "ds.json: unknown key 'zero_optimization.stag' (did you mean 'stage'?)"},
    {"{\"zero_optimization\": {\"offload_param\": {\"devise\": 1}}}",
     "ds.json: unknown key 'zero_optimization.offload_param.devise' (did you mean 'device'?)"},
    {"{\"fp16\": {\"enabled\": false, \"hysteresys\": 1}}",
     "ds.json: unknown key 'fp16.hysteresys' (did you mean 'hysteresis'?)"},
    {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"learning_rate\": 1}}}",
     "ds.json: unknown key 'optimizer.params.learning_rate'"},
    {"{\"optimizer\": {\"typ\": \"Adam\"}}",
     "ds.json: unknown key 'optimizer.typ' (did you mean 'type'?)"},
    {"{\"optimizer\": {\"type\": \"Adm\"}}", "ds.json|optimizer.type|Adm|Adam"},
    {"{\"optimizer\": {\"type\": \"Shampoo\"}}",
     "ds.json|optimizer.type|Shampoo|Adam|AdamW|SGD|Adadelta"},
    {"{\"communication_data_type\": \"int8\"}",
     "ds.json|communication_data_type|fp32|fp16|bfp16|int8"},
    {"{\"optimizer\": {\"type\": \"OneBitAdam\", \"params\": {\"freeze_step\": 400}}}",
     "ds.json|optimizer.type|OneBitAdam|AdamW"},
    {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"amsgrad\": true}}}",
     "ds.json|optimizer.params.amsgrad|false"},
    {"{\"optimizer\": 3}", "ds.json|optimizer|object"},
    {"{\"scheduler\": {\"type\": \"LRRangeTest\"}}", "ds.json|scheduler.type|LRRangeTest"},
    {"{\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_max_lr\": 1}}}",
     "ds.json|scheduler.params.cycle_momentum|true"},
    {"{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 0.5}}}",
     "ds.json|scheduler.params.warmup_num_steps|1"},
    {"{\"zero_optimization\": {\"stage\": 4}}", "ds.json|zero_optimization.stage|0|1|2|3|4"},
    {"{\"zero_optimization\": {\"offload_param\": {\"device\": \"gpu\"}}}",
     "ds.json|zero_optimization.offload_param.device|none|cpu|nvme"},
    {"{\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": "
     "\"/a\"}, \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/b\"}}}",
     "ds.json|zero_optimization.offload_param.nvme_path|zero_optimization.offload_optimizer.nvme_"
     "path|same|folder"},
    {"{\"zero_optimization\": {\"mics_shard_size\": 8}}",
     "ds.json|zero_optimization.mics_shard_size|strategy.mesh.shard"},
    {"{\"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}}",
     "ds.json|bf16.enabled|fp16.enabled|true"},
    {"{\"fp16\": {\"enabled\": true, \"initial_scale_power\": 200}}",
     "ds.json|fp16.initial_scale_power|0|99"},
    {"{\"fp16\": {\"enabled\": 1}}", "ds.json|fp16.enabled|true|false|1"},
    {"{\"fp16\": true}", "ds.json|fp16|object"},
    {"{\"amp\": {\"enabled\": true}}", "ds.json|amp"},
    {"{\"train_batch_size\": 0}", "ds.json|train_batch_size|1|0"},
    {"{\"train_batch_size\": 1.5}", "ds.json|train_batch_size"},
    {"{\"tensor_parallel\": {\"autotp_size\": 4}}",
     "ds.json|tensor_parallel.autotp_size|strategy.mesh.tensor"},
};

static void test_refusals(void **state) {
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        tri_deepspeed d;
        assert_int_equal(tri_status_exit_code(try_parse(refusals[i].json, &d)), 2);
        message_check(tri_error_message(), refusals[i].parts);
    }
}

enum { MAX_OVERRIDES = 4 };
#define OVER(...) ((const char *const[MAX_OVERRIDES]){__VA_ARGS__})
#define BASE "model: {name: net}\ndata: {name: idx, path: d}\n"

static tri_status load(const char *yaml, const char *const overrides[MAX_OVERRIDES],
                       tri_recipe *out) {
    int count = 0;
    while (overrides && count < MAX_OVERRIDES && overrides[count]) count++;
    const char *text = tri_arena_printf(arena, "%s%s", BASE, yaml);
    return tri_recipe_parse(arena, text, strlen(text), "r.yaml", overrides, count, NULL, out);
}

static tri_recipe loaded(const char *yaml, const char *const overrides[MAX_OVERRIDES]) {
    tri_recipe r;
    tri_status status = load(yaml, overrides, &r);
    if (status != TRI_OK) print_error("%s\n", tri_error_message());
    assert_int_equal(status, TRI_OK);
    return r;
}

#define DS                                                                                         \
    "deepspeed: {train_batch_size: 32, gradient_clipping: 2, optimizer: {type: Adam, params: "     \
    "{lr: 0.5}}}\n"

// The configuration's settings become part of the recipe, and the recipe's other settings stay. If
// an override sets the same key, the override's value counts.
static void test_becomes_the_recipe(void **state) {
    tri_recipe r = loaded(DS "optimizer: {eps: 0.25}\nbatch: {global: 32.0}", NULL);
    assert_int_equal(r.batch.global, 32);
    assert_true(r.trainer.gradient_clip_val == 2 && r.optimizer.lr == 0.5);
    assert_true(r.optimizer.eps == 0.25 && r.optimizer.weight_decay == 0);
    assert_string_equal(r.optimizer.name, "adamw");
    const char *text = tri_recipe_emit(arena, &r);
    assert_null(strstr(text, "deepspeed"));
    tri_recipe again;
    assert_int_equal(tri_recipe_parse(arena, text, strlen(text), "again", NULL, 0, NULL, &again),
                     TRI_OK);
    assert_string_equal(tri_recipe_emit(arena, &again), text);
    assert_int_equal(tri_recipe_differences(arena, &r, &again).count, 0);
    r = loaded(DS "optimizer: {lr: 1, weight_decay: 3}", OVER("optimizer.lr=7"));
    assert_true(r.optimizer.lr == 7 && r.optimizer.weight_decay == 3);
    r = loaded(DS "optimizer: {name: sgd, momentum: 0.9}", OVER("optimizer.name=sgd"));
    assert_true(r.optimizer.momentum == 0 && r.optimizer.lr == 1e-3 && r.batch.global == 32);
    r = loaded(DS, OVER("deepspeed.train_batch_size=64", "batch.micro=4"));
    assert_true(r.batch.global == 64 && r.batch.micro == 4);
    r = loaded("deepspeed: {scheduler: {type: WarmupDecayLR, params: {warmup_num_steps: 50}}}\n"
               "schedule: {max_lr: 0.25}",
               NULL);
    assert_true(r.schedule.warmup_steps.value == 50 && r.schedule.max_lr == 0.25);
    // A configuration that an override gives replaces the file's values, and other overrides
    // replace values of the configuration.
    r = loaded("optimizer: {name: sgd, momentum: 0.9}\nbatch: {global: 100}",
               OVER("batch.micro=5", "deepspeed={train_batch_size: 20, optimizer: {type: AdamW}}"));
    assert_string_equal(r.optimizer.name, "adamw");
    assert_true(r.optimizer.momentum == 0 && r.batch.global == 20 && r.batch.micro == 5);
    static const char micro[] = "deepspeed={train_micro_batch_size_per_gpu: 5}";
    assert_int_equal(loaded("batch: {global: 100}", OVER(micro)).batch.global, TRI_AUTO);
    assert_int_equal(loaded("batch: {global: 9}", OVER(micro, "batch.global=10")).batch.global, 10);
    r = loaded("batch: {global: 100}\ndeepspeed: {train_micro_batch_size_per_gpu: 5}", NULL);
    assert_int_equal(r.batch.global, 100);
    r = loaded(DS, OVER("deepspeed=null"));
    assert_true(r.batch.global == 64 && r.trainer.gradient_clip_val == 0);
    r = loaded("deepspeed: {zero_optimization: {stage: 0}}\nstrategy: {name: deepspeed}", NULL);
    assert_int_equal(r.strategy.name, TRI_STRATEGY_DDP);
    r = loaded("deepspeed: {zero_optimization: {stage: 0}}\nstrategy: {name: ddp_spawn}", NULL);
    assert_int_equal(r.strategy.name, TRI_STRATEGY_DDP);
}

static void test_contradictions(void **state) {
    static const struct {
        const char *yaml, *parts;
    } rows[] = {
        {DS "batch: {global: 64}", "r.yaml:4|batch.global|64|32|r.yaml|train_batch_size|override"},
        {DS "optimizer: {name: sgd}", "r.yaml:4|optimizer.name|sgd|adamw"},
        {"deepspeed: {zero_optimization: {stage: 0}}\nstrategy: {name: deepspeed_stage_2}",
         "r.yaml:4|strategy.name|zero2|ddp"},
        {"deepspeed: {gradient_clipping: -1}",
         "r.yaml|gradient_clipping|trainer.gradient_clip_val"},
        {"deepspeed: {optimizer: {type: Adam, params: {betas: [1]}}}",
         "r.yaml|optimizer.params.betas|optimizer.betas|list|2"},
        {"deepspeed: {}\noptimizer: 3", "r.yaml:4|optimizer|mapping"},
        {DS "optimizer: 3", "r.yaml:4|optimizer|mapping"},
        {"deepspeed: [1]", "r.yaml:3|deepspeed|name|mapping"},
        {"deepspeed: nowhere.json", "nowhere.json: "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_recipe r;
        assert_int_equal(tri_status_exit_code(load(rows[i].yaml, NULL, &r)), 2);
        message_check(tri_error_message(), rows[i].parts);
    }
}

// In each row: train_batch_size, the size of a micro-batch and gradient_accumulation_steps (0: not
// given), the number of replicas, and the batch.global and batch.micro that result from these.
static const struct {
    int64_t train, micro, rounds, replicas;
    int64_t global, micro_size; // of the resulting batch; 0: refused
} batches[] = {
    {32, 2, 8, 2, 32, 2}, // all three are given, and agree
    {32, 2, 4, 2, 0, 0},  // all three are given, and contradict each other
    {8, 2, 1, 2, 0, 0},   // an accumulation of 1 that is given must agree too
    {4, 2, 1, 2, 4, 2},
    {32, 4, 0, 2, 32, 4}, // an accumulation of 4 follows
    {32, 5, 0, 2, 0, 0},  // the accumulation would not be a whole number
    {32, 0, 4, 2, 32, 4}, // a micro-batch of 4 follows
    {32, 0, 5, 2, 0, 0},
    {0, 4, 8, 2, 64, 4}, // batch.global follows: 4 × 8 × 2 = 64
    {0, 4, 0, 3, 12, 4},
    {400, 0, 0, 4, 400, 0}, // batch.micro 0: each replica has one micro-batch
    {400, 0, 1, 4, 400, 0},
    {400, 0, 0, 3, 400, 0}, // the replicas' micro-batches need not be of equal size
    {0, 0, 4, 2, 64, 8},    // only accumulation is given: divides the recipe's own batch.global, 64
    {0, 1 << 20, 1 << 20, 2, 0, 0},
};

// "auto" stands for the recipe's value, also under an optimizer or schedule of another name.
static void test_auto(void **state) {
#define AUTO                                                                                       \
    "deepspeed={optimizer: {type: AdamW, params: {lr: auto, betas: auto, weight_decay: auto}}, "   \
    "scheduler: {type: WarmupDecayLR, params: {warmup_num_steps: auto, warmup_max_lr: auto, "      \
    "total_num_steps: auto}}}"
    tri_recipe r = loaded("optimizer: {name: sgd, lr: 0.4, weight_decay: 0.25, momentum: 0.9}\n"
                          "schedule: {name: cosine, warmup_steps: 4, T_max: 7}",
                          OVER(AUTO));
    assert_string_equal(r.optimizer.name, "adamw");
    assert_true(r.optimizer.lr == 0.4 && r.optimizer.weight_decay == 0.25);
    assert_true(r.optimizer.betas.items[1] == 0.999 && r.optimizer.momentum == 0);
    assert_string_equal(r.schedule.name, "warmup-decay");
    assert_true(r.schedule.warmup_steps.value == 4 && r.schedule.max_lr == 0);
    assert_int_equal(r.notes.count, 1);
    assert_non_null(strstr(r.notes.items[0], "betas: [0.9, 0.999], DeepSpeed's default"));
    assert_non_null(strstr(r.notes.items[0], "warmup_max_lr: optimizer.lr, as with Hugging Face"));
    assert_null(strstr(r.notes.items[0], "warmup_num_steps"));
    r = loaded("", OVER(AUTO, "optimizer.lr=0.5"));
    assert_true(r.optimizer.lr == 0.5 && r.optimizer.weight_decay == 0);
    assert_int_equal((int64_t)r.schedule.warmup_steps.value, 1000);
    assert_int_equal(r.notes.count, 1);
    assert_non_null(strstr(r.notes.items[0], "warmup_num_steps: 1000, DeepSpeed's default"));
    assert_null(strstr(r.notes.items[0], "params.lr"));
}

// How often lines are printed changes nothing, so that the recipe's value holds with a note.
static void test_print_interval(void **state) {
    tri_recipe r =
        loaded("deepspeed: {steps_per_print: 10}\ntrainer: {log_every_n_steps: 5}", NULL);
    assert_int_equal(r.trainer.log_every_n_steps, 5);
    assert_int_equal(r.notes.count, 1);
    assert_non_null(strstr(r.notes.items[0], "steps_per_print is 10, but "));
    r = loaded("deepspeed: {steps_per_print: 10}", NULL);
    assert_true(r.trainer.log_every_n_steps == 10 && r.notes.count == 0);
    r = loaded("trainer: {log_every_n_steps: 5}", OVER("deepspeed={steps_per_print: 10}"));
    assert_true(r.trainer.log_every_n_steps == 10 && r.notes.count == 0);
}

static void test_batch_arithmetic(void **state) {
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        const char *text = "deepspeed: {";
        if (batches[i].train)
            text = tri_arena_printf(arena, "%strain_batch_size: %d,", text, (int)batches[i].train);
        if (batches[i].micro)
            text = tri_arena_printf(arena, "%strain_micro_batch_size_per_gpu: %d,", text,
                                    (int)batches[i].micro);
        if (batches[i].rounds)
            text = tri_arena_printf(arena, "%sgradient_accumulation_steps: %d,", text,
                                    (int)batches[i].rounds);
        tri_recipe r = loaded(tri_arena_printf(arena, "%s}", text), NULL);
        tri_batch_options batch;
        tri_status status = tri_recipe_settle_batch(&r, batches[i].replicas, &batch);
        if ((status == TRI_OK) != (batches[i].global > 0) ||
            (status == TRI_OK &&
             (batch.global != batches[i].global || batch.micro != batches[i].micro_size)))
            fail_msg("row %zu: status %d, global %d, micro %d", i, status, (int)batch.global,
                     (int)batch.micro);
    }
    tri_recipe r = loaded("deepspeed: {train_batch_size: 32, train_micro_batch_size_per_gpu: 2, "
                          "gradient_accumulation_steps: 4}",
                          NULL);
    tri_batch_options batch;
    assert_int_equal(tri_recipe_settle_batch(&r, 2, &batch), TRI_BAD_INPUT);
    message_check(tri_error_message(),
                  "batch.global=32|batch.micro=2|trainer.accumulate_grad_batches=4|2|replicas");
    r = loaded("trainer: {accumulate_grad_batches: 4}\nbatch: {global: 48}", NULL);
    assert_int_equal(tri_recipe_settle_batch(&r, 3, &batch), TRI_OK);
    assert_int_equal(batch.micro, 4);
    assert_int_equal(tri_recipe_settle_batch(&r, 5, &batch), TRI_BAD_INPUT);
    tri_recipe bad;
    assert_int_equal(load("batch: {global: auto}", NULL, &bad), TRI_BAD_INPUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),       cmocka_unit_test(test_notes),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_becomes_the_recipe),
        cmocka_unit_test(test_contradictions), cmocka_unit_test(test_batch_arithmetic),
        cmocka_unit_test(test_print_interval), cmocka_unit_test(test_auto),
    };
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}
