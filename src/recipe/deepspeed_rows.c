// The keys of DeepSpeed's configuration, by section, and what each of them becomes in a recipe.
#include "recipe/deepspeed_tables.h"

#include <math.h>
#include <string.h>

static tri_status read_count(deepspeed_reader *reader, const char *path, const tri_tree *node,
                             int64_t *out) {
    if (tri_tree_to_int(node, out) && *out >= 1) return TRI_OK;
    return deepspeed_fail(reader, path, "has to be a whole number of at least 1, not %.60s",
                          tri_yaml_flow(reader->arena, node));
}

static tri_status read_bool(deepspeed_reader *reader, const char *path, const tri_tree *node,
                            bool *out) {
    *out = false;
    if (deepspeed_is_auto(node) || tri_tree_to_bool(node, out)) return TRI_OK;
    return deepspeed_fail(reader, path, "has to be true or false, not %.60s",
                          tri_yaml_flow(reader->arena, node));
}

static tri_status train(deepspeed_reader *reader, const deepspeed_row *row, const char *path,
                        tri_tree *node) {
    reader->has_auto_train = deepspeed_is_auto(node);
    return reader->has_auto_train ? TRI_OK : read_count(reader, path, node, &reader->train);
}

static tri_status micro(deepspeed_reader *reader, const deepspeed_row *row, const char *path,
                        tri_tree *node) {
    return deepspeed_is_auto(node) ? TRI_OK : read_count(reader, path, node, &reader->micro);
}

static tri_status accumulation(deepspeed_reader *reader, const deepspeed_row *row, const char *path,
                               tri_tree *node) {
    return deepspeed_is_auto(node) ? TRI_OK : read_count(reader, path, node, &reader->accumulation);
}

// Sets the number of steps between two lines of metrics. DeepSpeed's 0, which means never, sets
// nothing.
static tri_status print_interval(deepspeed_reader *reader, const deepspeed_row *row,
                                 const char *path, tri_tree *node) {
    int64_t steps;
    if (deepspeed_is_auto(node) || (tri_tree_to_int(node, &steps) && steps == 0)) return TRI_OK;
    TRI_TRY(read_count(reader, path, node, &steps));
    tri_tree *value = tri_tree_int(reader->arena, steps);
    value->file = tri_arena_printf(reader->arena, "%s: %s", reader->file, path);
    deepspeed_add(reader, (tri_deepspeed_setting){
                              .key = "trainer.log_every_n_steps", .value = value, .yields = true});
    return TRI_OK;
}

static tri_status set_precision(deepspeed_reader *reader, const char *path, const char *name) {
    if (reader->is_disabled) return TRI_OK;
    if (reader->precision && strcmp(reader->precision, name) != 0)
        return deepspeed_fail(reader, path, "and '%s' are both true: enable one of them",
                              reader->precision_key);
    reader->precision = name;
    reader->precision_key = path;
    return TRI_OK;
}

static tri_status fp16(deepspeed_reader *reader, const deepspeed_row *row, const char *path,
                       tri_tree *node) {
    bool enabled;
    TRI_TRY(read_bool(reader, path, node, &enabled));
    return enabled ? set_precision(reader, path, "16-mixed") : TRI_OK;
}

static tri_status bf16(deepspeed_reader *reader, const deepspeed_row *row, const char *path,
                       tri_tree *node) {
    bool enabled;
    TRI_TRY(read_bool(reader, path, node, &enabled));
    return enabled ? set_precision(reader, path, "bf16-mixed") : TRI_OK;
}

static tri_status autocast_type(deepspeed_reader *reader, const deepspeed_row *row,
                                const char *path, tri_tree *node) {
    if (deepspeed_is_auto(node)) return TRI_OK;
    if (node->kind == TRI_TREE_SCALAR && !strcmp(node->text, "bfloat16"))
        return set_precision(reader, path, "bf16-mixed");
    if (node->kind == TRI_TREE_SCALAR && !strcmp(node->text, "float16"))
        return set_precision(reader, path, "16-mixed");
    return deepspeed_fail(reader, path, "has to be bfloat16 or float16");
}

static tri_status autocast(deepspeed_reader *reader, const deepspeed_row *row, const char *path,
                           tri_tree *node) {
    bool enabled;
    TRI_TRY(read_bool(reader, path, node, &enabled));
    bool typed = tri_tree_find(reader->root, "torch_autocast.dtype") != NULL;
    return enabled && !typed ? set_precision(reader, path, "bf16-mixed") : TRI_OK;
}

// Sets the type in which gradients travel between ranks. DeepSpeed's default, null, is the type in
// which the model computes. This program's default is at least as precise, so null sets nothing.
static tri_status communication(deepspeed_reader *reader, const deepspeed_row *row,
                                const char *path, tri_tree *node) {
    static const char *const names[][2] = {
        {"fp32", "float32"}, {"fp16", "float16"}, {"bfp16", "bfloat16"}, {"bf16", "bfloat16"}};
    if (deepspeed_is_auto(node)) return TRI_OK;
    for (size_t i = 0; node->kind == TRI_TREE_SCALAR && i < sizeof names / sizeof *names; i++) {
        if (strcmp(node->text, names[i][0]) != 0) continue;
        deepspeed_set(reader, "strategy.reduce_dtype", path,
                      tri_tree_string(reader->arena, names[i][1]));
        return TRI_OK;
    }
    return deepspeed_fail(reader, path, "has to be fp32, fp16 or bfp16, not %.100s",
                          tri_yaml_flow(reader->arena, node));
}

static tri_status scale_power(deepspeed_reader *reader, const deepspeed_row *row, const char *path,
                              tri_tree *node) {
    int64_t power;
    if (deepspeed_is_auto(node)) return TRI_OK;
    if (!tri_tree_to_int(node, &power) || power < 0 || power > 99)
        return deepspeed_fail(reader, path, "has to be a whole number from 0 to 99");
    deepspeed_set(reader, "trainer.loss_scale.initial", path,
                  tri_tree_double(reader->arena, ldexp(1, (int)power)));
    return TRI_OK;
}

static tri_status stage(deepspeed_reader *reader, const deepspeed_row *row, const char *path,
                        tri_tree *node) {
    static const char *const names[] = {"ddp", "zero1", "zero2", "fsdp"};
    int64_t number;
    if (deepspeed_is_auto(node)) return TRI_OK;
    if (!tri_tree_to_int(node, &number) || number < 0 || number > 3)
        return deepspeed_fail(reader, path, "has to be 0, 1, 2 or 3, not %.60s",
                              tri_yaml_flow(reader->arena, node));
    deepspeed_set(reader, "strategy.name", path, tri_tree_string(reader->arena, names[number]));
    return TRI_OK;
}

// Reads zero_optimization, which is a section or, in an older form, `true` for stage 1.
static tri_status zero_section(deepspeed_reader *reader, const deepspeed_row *row, const char *path,
                               tri_tree *node) {
    bool enabled;
    if (node->kind == TRI_TREE_MAP)
        return deepspeed_walk(reader, &deepspeed_top, "zero_optimization.", "zero_optimization.",
                              node);
    TRI_TRY(read_bool(reader, path, node, &enabled));
    if (enabled)
        deepspeed_set(reader, "strategy.name", path, tri_tree_string(reader->arena, "zero1"));
    return TRI_OK;
}

static void offload(deepspeed_reader *reader, const char *path, bool parameters) {
    if (reader->is_disabled) return;
    if (parameters || !reader->offload_key) reader->offload_key = path;
    if (parameters) reader->offloads_parameters = true;
}

static tri_status read_device(deepspeed_reader *reader, const char *path, const tri_tree *node,
                              bool parameters) {
    const char *device = node->kind == TRI_TREE_SCALAR ? node->text : "";
    if (deepspeed_is_auto(node) || !strcmp(device, "none")) return TRI_OK;
    bool is_file = !strcmp(device, "nvme");
    if (!is_file && strcmp(device, "cpu") != 0)
        return deepspeed_fail(reader, path, "has to be none, cpu or nvme");
    if (!reader->is_disabled) reader->offloads_to_file = reader->offloads_to_file || is_file;
    offload(reader, path, parameters);
    return TRI_OK;
}

static tri_status optimizer_device(deepspeed_reader *reader, const deepspeed_row *row,
                                   const char *path, tri_tree *node) {
    return read_device(reader, path, node, false);
}

static tri_status parameter_device(deepspeed_reader *reader, const deepspeed_row *row,
                                   const char *path, tri_tree *node) {
    return read_device(reader, path, node, true);
}

// Handles the folders of the two offload sections. Both must name the same folder, since there is
// only one strategy.offload_path for all offloaded state. If neither section offloads to the device
// "nvme", nothing goes to files, and the key is reported as unused.
static tri_status nvme_path(deepspeed_reader *reader, const deepspeed_row *row, const char *path,
                            tri_tree *node) {
    if (reader->is_disabled || deepspeed_is_auto(node)) return TRI_OK;
    if (node->kind != TRI_TREE_SCALAR) return deepspeed_fail(reader, path, "has to be a path");
    if (reader->nvme_path && strcmp(reader->nvme_path, node->text) != 0)
        return deepspeed_fail(reader, path, "and '%s' have to be the same folder",
                              reader->nvme_key);
    reader->nvme_path = node->text;
    reader->nvme_key = path;
    return TRI_OK;
}

static tri_status old_offload(deepspeed_reader *reader, const deepspeed_row *row, const char *path,
                              tri_tree *node) {
    bool enabled;
    TRI_TRY(read_bool(reader, path, node, &enabled));
    if (enabled) offload(reader, path, strstr(row->key, "param") != NULL);
    return TRI_OK;
}

#define Z "zero_optimization."
static const char leave_it_out[] = "leave it out";

static const deepspeed_row rows[] = {
    {.key = "train_batch_size", .convert = train},
    {.key = "train_micro_batch_size_per_gpu", .convert = micro},
    {.key = "gradient_accumulation_steps", .convert = accumulation},
    {.key = "managed_gradient_accumulation", .refusal = "set it to true", .harmless = "true"},
    {.key = "optimizer", .convert = deepspeed_optimizer},
    {.key = "scheduler", .convert = deepspeed_scheduler},
    {.key = "gradient_clipping", .to = "trainer.gradient_clip_val"},
    {.key = "steps_per_print", .convert = print_interval},
    {.key = "dataloader_drop_last", .to = "data.drop_last"},
    {.key = "gradient_allreduce_op", .refusal = "set it to mean", .harmless = "mean"},
    {.key = "communication_data_type", .convert = communication},
    {.key = "seq_parallel_communication_data_type"},
    {.key = "prescale_gradients"},
    {.key = "gradient_predivide_factor"},
    {.key = "sparse_gradients"},
    {.key = "disable_allgather"},

    {.key = "fp16.enabled", .convert = fp16},
    {.key = "fp16.auto_cast"},
    {.key = "fp16.loss_scale", .to = "trainer.loss_scale.fixed"},
    {.key = "fp16.initial_scale_power", .convert = scale_power},
    {.key = "fp16.loss_scale_window", .to = "trainer.loss_scale.window"},
    {.key = "fp16.hysteresis", .to = "trainer.loss_scale.hysteresis"},
    {.key = "fp16.consecutive_hysteresis", .to = "trainer.loss_scale.consecutive_hysteresis"},
    {.key = "fp16.min_loss_scale", .to = "trainer.loss_scale.minimum"},
    {.key = "fp16.fp16_master_weights_and_grads",
     .refusal = "master weights are F32",
     .harmless = "false"},
    {.key = "bf16.enabled", .convert = bf16},
    {.key = "bf16.immediate_grad_update"},
    {.key = "bf16.check_grad_overflow"},
    {.key = "bf16.bf16_master_weights_and_grads",
     .refusal = "master weights are F32, with trainer.precision: bf16-true, too",
     .harmless = "false"},
    {.key = "bf16.bf16_optimizer_states", .refusal = "they are F32", .harmless = "false"},
    {.key = "bfloat16.enabled", .convert = bf16},
    {.key = "amp", .refusal = "enable fp16 or bf16"},
    {.key = "torch_autocast.enabled", .convert = autocast},
    {.key = "torch_autocast.dtype", .convert = autocast_type},
    {.key = "torch_autocast.lower_precision_safe_modules"},

    {.key = "zero_optimization", .convert = zero_section},
    {.key = Z "stage", .convert = stage},
    {.key = Z "offload_optimizer.device", .convert = optimizer_device},
    {.key = Z "offload_optimizer.nvme_path", .convert = nvme_path},
    {.key = Z "offload_optimizer.buffer_count"},
    {.key = Z "offload_optimizer.pin_memory"},
    {.key = Z "offload_optimizer.pipeline"},
    {.key = Z "offload_optimizer.pipeline_read"},
    {.key = Z "offload_optimizer.pipeline_write"},
    {.key = Z "offload_optimizer.fast_init"},
    {.key = Z "offload_optimizer.ratio"},
    {.key = Z "offload_optimizer.super_offload"},
    {.key = Z "offload_optimizer.cpuadam_cores_perc"},
    {.key = Z "offload_param.device", .convert = parameter_device},
    {.key = Z "offload_param.nvme_path", .convert = nvme_path},
    {.key = Z "offload_param.buffer_count"},
    {.key = Z "offload_param.buffer_size"},
    {.key = Z "offload_param.max_in_cpu"},
    {.key = Z "offload_param.pin_memory"},
    {.key = Z "cpu_offload", .convert = old_offload},
    {.key = Z "cpu_offload_params", .convert = old_offload},
    {.key = Z "cpu_offload_param", .convert = old_offload},
    {.key = Z "cpu_offload_use_pin_memory"},
    {.key = Z "overlap_comm"},
    {.key = Z "contiguous_gradients"},
    {.key = Z "reduce_scatter"},
    {.key = Z "reduce_bucket_size"},
    {.key = Z "allgather_partitions"},
    {.key = Z "allgather_bucket_size"},
    {.key = Z "use_multi_rank_bucket_allreduce"},
    {.key = Z "load_from_fp32_weights"},
    {.key = Z "elastic_checkpoint"},
    {.key = Z "grad_hooks"},
    {.key = Z "legacy_stage1"},
    {.key = Z "round_robin_gradients"},
    {.key = Z "ignore_unused_parameters"},
    {.key = Z "sub_group_size"},
    {.key = Z "stage3_prefetch_bucket_size"},
    {.key = Z "prefetch_bucket_size"},
    {.key = Z "stage3_param_persistence_threshold"},
    {.key = Z "param_persistence_threshold"},
    {.key = Z "stage3_model_persistence_threshold"},
    {.key = Z "model_persistence_threshold"},
    {.key = Z "stage3_max_live_parameters"},
    {.key = Z "max_live_parameters"},
    {.key = Z "stage3_max_reuse_distance"},
    {.key = Z "max_reuse_distance"},
    {.key = Z "stage3_gather_16bit_weights_on_model_save"},
    {.key = Z "gather_16bit_weights_on_model_save"},
    {.key = Z "stage3_gather_fp16_weights_on_model_save"},
    {.key = Z "stage3_module_granularity_threshold"},
    {.key = Z "stage3_use_all_reduce_for_fetch_params"},
    {.key = Z "stage3_allgather_sequential"},
    {.key = Z "memory_efficient_linear"},
    {.key = Z "pipeline_loading_checkpoint"},
    {.key = Z "override_module_apply"},
    {.key = Z "log_trace_cache_warnings"},
    {.key = Z "enable_sanity_checks"},
    {.key = Z "save_muon_momentum_buffer_in_memory"},
    {.key = Z "leaf_module.*"},
    {.key = Z "zero_hpz_partition_size", .refusal = "set it to 1", .harmless = "1"},
    {.key = Z "zero_quantized_weights", .refusal = "set it to false", .harmless = "false"},
    {.key = Z "zero_quantized_nontrainable_weights",
     .refusal = "set it to false",
     .harmless = "false"},
    {.key = Z "zero_quantized_gradients", .refusal = "set it to false", .harmless = "false"},
    {.key = Z "zeropp_loco_param", .refusal = leave_it_out},
    {.key = Z "mics_shard_size",
     .refusal = "set strategy.mesh.shard and strategy.mesh.replicate in the recipe",
     .harmless = "-1"},
    {.key = Z "mics_hierarchical_params_gather"},
    {.key = Z "zenflow", .refusal = leave_it_out},
    {.key = "zero_allow_untested_optimizer"},
    {.key = "zero_force_ds_cpu_optimizer"},

    {.key = "tensor_parallel.autotp_size",
     .refusal = "set strategy.mesh.tensor in the recipe",
     .harmless = "1"},
    {.key = "tensor_parallel.*"},
    {.key = "pipeline.stages",
     .refusal = "set strategy.mesh.pipeline in the recipe",
     .harmless = "1"},
    {.key = "pipeline.*"},
    {.key = "sequence_parallel_size", .refusal = "set it to 1", .harmless = "1"},
    {.key = "expert_parallel", .refusal = leave_it_out},
    {.key = "elasticity",
     .refusal = "set train_batch_size, train_micro_batch_size_per_gpu and "
                "gradient_accumulation_steps"},

    {.key = "tensorboard.enabled", .to = "log.tensorboard"},
    {.key = "tensorboard.output_path"},
    {.key = "tensorboard.job_name"},
    {.key = "wandb"},
    {.key = "comet"},
    {.key = "csv_monitor"},
    {.key = "wall_clock_breakdown"},
    {.key = "memory_breakdown"},
    {.key = "dump_state"},
    {.key = "flops_profiler"},
    {.key = "comms_logger"},
    {.key = "autotuning"},
    {.key = "activation_checkpointing.partition_activations"},
    {.key = "activation_checkpointing.cpu_checkpointing"},
    {.key = "activation_checkpointing.contiguous_memory_optimization"},
    {.key = "activation_checkpointing.number_checkpoints"},
    {.key = "activation_checkpointing.synchronize_checkpoint_boundary"},
    {.key = "activation_checkpointing.profile"},
    {.key = "aio"},
    {.key = "checkpoint"},
    {.key = "data_types"},
    {.key = "compile"},
    {.key = "hybrid_engine"},
    {.key = "nebula"},
    {.key = "timers"},
    {.key = "graph_harvesting"},
    {.key = "use_data_before_expert_parallelism"},
    {.key = "sparse_attention", .refusal = leave_it_out},
    {.key = "data_efficiency", .refusal = leave_it_out},
    {.key = "curriculum_learning", .refusal = leave_it_out},
    {.key = "progressive_layer_drop", .refusal = leave_it_out},
    {.key = "eigenvalue", .refusal = leave_it_out},
    {.key = "quantize_training", .refusal = leave_it_out},
    {.key = "compression_training", .refusal = leave_it_out},
};

const deepspeed_table deepspeed_top = {rows, TRI_OPTION_COUNT(rows)};
