// `trireme bench`: measures kernels (bench_kernels.c), operations between ranks, data loading
// (bench_data.c), training, or generation of text. Most of the measuring is done elsewhere
// (comm/bench.c, data/bench.c, train/bench.c); this file reads the command line and prints the
// results.
#include "cli/cli.h"
#include "cli/generate_model.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/quantity.h"
#include "comm/bench.h"
#include "comm/options.h"
#include "train/bench.h"
#include "train/generate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_SIZES = 64 };

// Reads a list of sizes in bytes, such as "8,1M,256M", with k, M or G for powers of 1024.
static tri_status read_sizes(const char *text, size_t *sizes, int *count) {
    const char *at = text;
    for (*count = 0; *at; (*count)++) {
        char *end;
        double value = strtod(at, &end), unit = 1;
        if (*end == 'k' || *end == 'K') unit = 1 << 10;
        if (*end == 'm' || *end == 'M') unit = 1 << 20;
        if (*end == 'g' || *end == 'G') unit = 1 << 30;
        if (unit > 1) end++;
        bool fits = value >= 1 && value * unit <= 64.0 * (1 << 30) && *count < MAX_SIZES;
        if (end == at || (*end && *end != ',') || !fits)
            return TRI_FAIL(TRI_BAD_INPUT, "--sizes: '%s' is not a list such as 8,1M,256M", text);
        sizes[*count] = (size_t)(value * unit);
        at = *end ? end + 1 : end;
    }
    if (*count == 0) return TRI_FAIL(TRI_BAD_INPUT, "--sizes: the list is empty");
    return TRI_OK;
}

// Besides the operations that a communicator knows (all_reduce, send, …) there is `fold`: a
// reduce-scatter that adds the sums to the old contents of its result (tri_comm_op.accumulate).
const char *cli_bench_operation(int index) {
    if (index > TRI_COMM_KIND_COUNT) return NULL;
    return index < TRI_COMM_KIND_COUNT ? tri_comm_kind_name((tri_comm_kind)index) : "fold";
}

// Finds the kind of operation by its name.
static tri_status find_kind(const char *name, tri_comm_bench_options *out) {
    const char *known[TRI_COMM_KIND_COUNT + 1];
    for (int i = 0; i <= TRI_COMM_KIND_COUNT; i++) known[i] = cli_bench_operation(i);
    for (int i = 0; i <= TRI_COMM_KIND_COUNT; i++) {
        if (strcmp(known[i], name) != 0) continue;
        out->accumulate = i == TRI_COMM_KIND_COUNT;
        out->kind = out->accumulate ? TRI_COMM_REDUCE_SCATTER : (tri_comm_kind)i;
        return TRI_OK;
    }
    const char *near = tri_option_nearest(name, known, TRI_COMM_KIND_COUNT + 1);
    return TRI_FAIL(TRI_BAD_INPUT, "--op: there is no operation '%s'%s%s%s", name,
                    near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

static tri_status find_type(const char *name, tri_comm_bench_options *out) {
    const tri_dtype types[] = {TRI_F32, TRI_F64, TRI_BF16, TRI_F16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        out->dtype = types[i];
        if (!strcasecmp(tri_dtype_name(types[i]), name)) break;
        if (i == sizeof types / sizeof *types - 1)
            return TRI_FAIL(TRI_BAD_INPUT, "--type: '%s' is not one of f32, f64, bf16, f16", name);
    }
    bool wide = out->dtype == TRI_F32 || out->dtype == TRI_F64;
    if (out->accumulate && !wide)
        return TRI_FAIL(TRI_BAD_INPUT, "--type: a fold sums f32 or f64, not '%s'", name);
    return TRI_OK;
}

static tri_status find_backend(const char *name, tri_comm_choice *out) {
    const tri_comm_choice choices[] = {TRI_COMM_AUTO, TRI_COMM_SHM, TRI_COMM_MPI, TRI_COMM_UCX};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        *out = choices[i];
        if (!strcmp(tri_comm_choice_name(*out), name)) return TRI_OK;
    }
    return TRI_FAIL(TRI_BAD_INPUT, "--backend: '%s' is not one of auto, shm, mpi, ucx", name);
}

static tri_status bench_comm(const cli_arguments *a, bool json) {
    const char *op = cli_value(a, "op"), *type = cli_value(a, "type");
    const char *sizes_text = cli_value(a, "sizes"), *backend = cli_value(a, "backend");
    size_t sizes[MAX_SIZES];
    tri_comm_bench_options options = {.json = json};
    tri_comm_options connect = {.timeout_s = TRI_DEFAULT_TIMEOUT_MS / 1000};
    tri_identity identity;
    tri_comm *comm;
    tri_health *health = NULL;
    if (backend) TRI_TRY(find_backend(backend, &connect.backend));
    if (sizes_text) {
        TRI_TRY(read_sizes(sizes_text, sizes, &options.size_count));
        options.sizes_bytes = sizes;
    }
    if (op) TRI_TRY(find_kind(op, &options));
    if (type) TRI_TRY(find_type(type, &options));
    TRI_TRY(tri_identity_read((const char *(*)(const char *))getenv, &identity));
    if (identity.size == 1)
        TRI_TRY(tri_comm_self_open(&comm));
    else
        TRI_TRY(cli_backends.open_comm(&identity, &connect, &comm, &health));
    tri_status status = tri_comm_barrier(comm, "start of the measurement");
    tri_log_stage("first barrier");
    if (status == TRI_OK) status = tri_comm_bench(comm, &options, stdout);
    if (status != TRI_OK && comm->size > 1) comm->backend->abort(comm, tri_error_message());
    // tri_comm_close frees the record of this rank's actions (its ring), so `health`, which reads
    // the record, stops reading first.
    tri_health_drop_ring(health);
    tri_comm_close(comm);
    tri_health_stop(health);
    return status;
}

tri_status cli_read_seconds(const char *text, double otherwise, double *out) {
    char *end = NULL;
    *out = text ? strtod(text, &end) : otherwise;
    if (*out > 0 && *out <= 86400 && !(end && *end)) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "--seconds: '%s' is not a number of seconds from above 0 to 86400", text);
}

static tri_status bench_data(const cli_context *context, tri_arena *arena, const cli_arguments *a) {
    tri_recipe recipe;
    double seconds;
    char **words = a->words + 1;
    TRI_TRY(cli_read_seconds(cli_value(a, "seconds"), 1, &seconds));
    TRI_TRY(tri_recipe_load(arena, words[0], (const char *const *)words + 1, a->count - 2,
                            context->task ? context->task->name : NULL, &recipe));
    return cli_bench_data(arena, &recipe, seconds, cli_value(a, "formats"), cli_has(a, "json"));
}

static void print_training(tri_arena *arena, const char *name, const tri_bench_result *r,
                           bool json) {
    double gflops = r->samples_per_s * r->flops_per_sample * 1e-9;
    double actions_per_s = r->samples_per_s * r->actions / (double)r->step_samples;
    double action_us = actions_per_s > 0 ? 1e6 / actions_per_s : 0;
    if (!json) {
        printf("%s: ranks %d, threads of each %d: %.1f samples/s (p10 %.1f, p90 %.1f, %d chunks, "
               "%d rejected%s), %.1f GFLOP/s, first step done after %s, %.0f MB, %lld steps of "
               "%d actions of %s, loss %.4f scaled by %g\n",
               name, r->ranks, r->threads, r->samples_per_s, r->samples_per_s_low,
               r->samples_per_s_high, r->chunks, r->rejected, r->disturbed ? ", all disturbed" : "",
               gflops, tri_duration_text(r->first_step_s), r->max_rss_mb, (long long)r->steps,
               r->actions, tri_duration_text(action_us * 1e-6), r->loss, r->loss_scale);
        return;
    }
    tri_tree *map = tri_tree_map(arena);
    tri_tree_put_string(arena, map, "name", name);
    tri_tree_put_int(arena, map, "ranks", r->ranks);
    tri_tree_put_int(arena, map, "threads", r->threads);
    tri_tree_put_digits(arena, map, "samples_per_s", r->samples_per_s, 6);
    tri_tree_put_digits(arena, map, "samples_per_s_low", r->samples_per_s_low, 6);
    tri_tree_put_digits(arena, map, "samples_per_s_high", r->samples_per_s_high, 6);
    tri_tree_put_digits(arena, map, "cpu_s_per_sample", r->cpu_s_per_sample, 6);
    tri_tree_put_int(arena, map, "chunks", r->chunks);
    tri_tree_put_int(arena, map, "rejected", r->rejected);
    tri_tree_put(arena, map, "disturbed", tri_tree_bool(arena, r->disturbed));
    tri_tree_put_digits(arena, map, "gflops", gflops, 6);
    tri_tree_put_digits(arena, map, "first_step_s", r->first_step_s, 6);
    tri_tree_put_digits(arena, map, "max_rss_mb", r->max_rss_mb, 6);
    tri_tree_put_int(arena, map, "steps", r->steps);
    tri_tree_put_int(arena, map, "actions", r->actions);
    tri_tree_put_digits(arena, map, "action_us", action_us, 6);
    tri_tree_put_digits(arena, map, "loss", r->loss, 9);
    tri_tree_put_digits(arena, map, "loss_scale", r->loss_scale, 9);
    printf("%s\n", tri_json_emit(arena, map));
}

static tri_status bench_train(const cli_context *context, tri_arena *arena, int count, char **words,
                              const char *seconds_text, const char *device, const char *trace,
                              bool json) {
    tri_recipe recipe;
    double seconds;
    TRI_TRY(cli_read_seconds(seconds_text, 10, &seconds));
    TRI_TRY(tri_recipe_load(arena, words[0], (const char *const *)words + 1, count - 1,
                            context->task ? context->task->name : NULL, &recipe));
    TRI_TRY(cli_check_output("trace", trace, words[0]));
    tri_bench_result r;
    TRI_TRY(tri_bench_train(&(tri_session_request){.backends = &cli_backends,
                                                   .recipe = &recipe,
                                                   .task = context->task,
                                                   .device = device,
                                                   .train = true},
                            seconds, trace, &r));
    if (r.rank != 0) return TRI_OK;
    print_training(arena, recipe.name, &r, json);
    return TRI_OK;
}

static tri_status read_tokens(const cli_arguments *a, const char *flag, int64_t otherwise,
                              int64_t *out) {
    const char *text = cli_value(a, flag);
    char *end = NULL;
    long long value = text ? strtoll(text, &end, 10) : otherwise;
    *out = value;
    if (value >= 1 && value <= 1 << 20 && !(end && (*end || end == text))) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "--%s: must be a whole number from 1 to %d, not '%s'", flag,
                    1 << 20, text);
}

static void print_generation(tri_arena *arena, const char *name, const tri_generate_speed *s,
                             bool json) {
    double gb_per_s = s->decode_s > 0 ? (double)s->weight_bytes / s->decode_s * 1e-9 : 0;
    if (!json) {
        printf("%s: ranks %d, threads of each %d: prefill %.1f tokens/s (%lld a call), decode %.2f "
               "tokens/s (%s a call, %.1f GB/s of weights)\n",
               name, s->ranks, s->threads, s->prefill_tokens_per_s, (long long)s->prefill_tokens,
               s->decode_tokens_per_s, tri_duration_text(s->decode_s), gb_per_s);
        return;
    }
    tri_tree *map = tri_tree_map(arena);
    tri_tree_put_string(arena, map, "name", name);
    tri_tree_put_int(arena, map, "ranks", s->ranks);
    tri_tree_put_int(arena, map, "threads", s->threads);
    tri_tree_put_int(arena, map, "prefill_tokens", s->prefill_tokens);
    tri_tree_put_digits(arena, map, "prefill_tokens_per_s", s->prefill_tokens_per_s, 6);
    tri_tree_put_digits(arena, map, "decode_tokens_per_s", s->decode_tokens_per_s, 6);
    tri_tree_put_digits(arena, map, "decode_s", s->decode_s, 6);
    tri_tree_put_digits(arena, map, "weights_gb_per_s", gb_per_s, 6);
    printf("%s\n", tri_json_emit(arena, map));
}

// Continues texts whose tokens mean nothing.
static tri_status bench_generate(const cli_context *context, tri_arena *arena,
                                 const cli_arguments *a, const char *device, bool json) {
    cli_arguments rest = *a;
    cli_text_model model;
    tri_generate_speed speed;
    int64_t prompt, texts, most;
    int rank;
    rest.words++, rest.count--;
    TRI_TRY(read_tokens(a, "prompt-tokens", 512, &prompt));
    TRI_TRY(read_tokens(a, "max-new-tokens", 32, &most));
    TRI_TRY(read_tokens(a, "texts", 1, &texts));
    TRI_TRY(cli_find_text_weights(arena, context, &rest, &model));
    int64_t *zeros = TRI_NEW_ARRAY(arena, int64_t, prompt);
    tri_generated_text *items = TRI_NEW_ARRAY(arena, tri_generated_text, texts);
    for (int64_t i = 0; i < texts; i++)
        items[i] = (tri_generated_text){
            .prompt = zeros, .prompt_count = prompt, .ids = TRI_NEW_ARRAY(arena, int64_t, most)};
    TRI_TRY(tri_generate(&(tri_generate_request){.backends = &cli_backends,
                                                 .recipe = &model.recipe,
                                                 .task = context->task,
                                                 .device = device,
                                                 .checkpoint = model.checkpoint,
                                                 .texts = items,
                                                 .text_count = texts,
                                                 .max_new_tokens = most,
                                                 .draw = {.top_p = 1, .repetition_penalty = 1},
                                                 .speed = &speed},
                         &rank));
    if (rank == 0) print_generation(arena, model.recipe.name, &speed, json);
    return TRI_OK;
}

static tri_status bench_kernels(const cli_context *context, const char *device, tri_arena *arena,
                                int count, char **words, const char *seconds_text, bool json) {
    double seconds;
    TRI_TRY(cli_read_seconds(seconds_text, 1, &seconds));
    return cli_bench_kernels(context, device, arena, count, words, seconds, json);
}

static const cli_flag flags[] = {
    {"op", "NAME", "comm: all_reduce (default), all_gather, reduce_scatter, fold, send, ...", 0},
    {"type", "f32|f64|bf16|f16", "comm: type of the elements (f32)", 0},
    {"sizes", "LIST", "comm: sizes in bytes, such as 8,1M,256M", 0},
    {"backend", "auto|shm|mpi|ucx", "comm: what connects the ranks (auto)", 0},
    {"formats", "all|KIND,...", "data: as other kinds, too, as which a part of the data is written",
     0},
    {"seconds", "S", "time: kernels, per model (1); data, per row (1); train, in total (10)", 0},
    {"checkpoint", "PATH", "generate: the weights, if a recipe is named", 0},
    {"prompt-tokens", "N", "generate: tokens of a prompt (512)", 0},
    {"max-new-tokens", "N", "generate: tokens that a text gets (32)", 0},
    {"texts", "N", "generate: texts together (1)", 0},
    CLI_DEVICE_FLAG("kernels (cpu), train, generate (auto): the device that computes"),
    {"trace", "FILE", "train: write the actions of all ranks for ui.perfetto.dev", 0},
    {"json", NULL, "one JSON object per line", 0},
    {0}};
static const cli_verb verbs[] = {
    {"kernels", "[MODEL ... | RECIPE ...]", "each kernel's time, and its percentage of the peak"},
    {"comm", "", "a collective operation over all ranks: time and bandwidth by size"},
    {"data", "RECIPE [key.path=value ...]", "loading and transforming, by number of workers"},
    {"train", "RECIPE [key.path=value ...]", "training steps: samples and FLOP per second"},
    {"generate", "DIR|RECIPE [key.path=value ...]", "prefill and decode: tokens per second"},
    {0}};

static const cli_verb_flags verb_flags[] = {{"kernels", "seconds device json"},
                                            {"comm", "op type sizes backend json"},
                                            {"data", "formats seconds json"},
                                            {"train", "seconds device trace json"},
                                            {"generate", "checkpoint prompt-tokens max-new-tokens "
                                                         "texts device json"},
                                            {0}};

static int run(const cli_context *context, int argc, char **argv) {
    cli_arguments a;
    int code = cli_parse(&cli_bench, argc, argv, &a);
    if (code >= 0) return code;
    const char *what = a.count ? a.words[0] : "", *seconds = cli_value(&a, "seconds");
    const char *device = cli_has(&a, "device") ? cli_value(&a, "device") : "auto";
    bool json = cli_has(&a, "json"), known = true;
    bool on_ranks = !strcmp(what, "comm") || !strcmp(what, "train") || !strcmp(what, "generate");
    int cores;
    tri_status status = on_ranks ? cli_bind_rank(&cores) : TRI_OK;
    tri_arena *arena = tri_arena_create(NULL, "command");
    if (status != TRI_OK)
        known = true;
    else if (!strcmp(what, "comm") && a.count == 1)
        status = bench_comm(&a, json);
    else if (!strcmp(what, "kernels"))
        status = bench_kernels(context, cli_has(&a, "device") ? device : "cpu", arena, a.count - 1,
                               a.words + 1, seconds, json);
    else if (!strcmp(what, "data") && a.count >= 2)
        status = bench_data(context, arena, &a);
    else if (!strcmp(what, "train") && a.count >= 2)
        status = bench_train(context, arena, a.count - 1, a.words + 1, seconds, device,
                             cli_value(&a, "trace"), json);
    else if (!strcmp(what, "generate") && a.count >= 2)
        status = bench_generate(context, arena, &a, device, json);
    else
        known = false;
    tri_arena_destroy(arena);
    if (!known)
        return cli_usage(&cli_bench,
                         "bench: kernels [MODEL ... | RECIPE], comm, data RECIPE, train RECIPE or "
                         "generate DIR");
    return status == TRI_OK ? 0 : cli_fail(status);
}

const cli_command cli_bench = {
    .name = "bench",
    .arguments = "kernels [MODEL ... | RECIPE] | comm | data RECIPE | train RECIPE | generate DIR",
    .help = "Measure kernels, collectives, loading, training or generation.",
    .flags = flags,
    .verbs = verbs,
    .verb_flags = verb_flags,
    .examples = "trireme bench kernels mnist-cnn\n"
                "trireme run --standalone --nproc-per-node 2 trireme bench comm --sizes 8,1M,64M\n"
                "trireme bench data recipes/mnist-cnn.yaml --seconds 2\n"
                "trireme bench data recipes/mnist-cnn.yaml --formats npy,lmdb,webdataset\n"
                "trireme bench train recipes/mnist-cnn.yaml batch.global=128 --json\n"
                "trireme bench generate models/tiny-llama --prompt-tokens 128\n",
    .run = run};
