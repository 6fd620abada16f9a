// Searches settings with which a run fits into the memory of its ranks. It makes a complete plan
// for each attempt, because the most bytes that a rank holds at one time (its peak) are known only
// from a plan. fit.h lists what is tried.
#include "plan/fit.h"

#include "base/free_memory.h"
#include "data/sampler.h"

#include <stdlib.h>
#include <string.h>

// One way of sharing the training state that the search tries: a strategy and the sizes of two axes
// of the mesh, from which the size of the axis replicate follows. `as_given`: the recipe's own
// strategy and mesh; the other members are not used.
typedef struct sharing {
    tri_strategy_kind name;
    int shard, pipeline;
    bool as_given;
} sharing;

typedef struct search {
    tri_arena *arena;
    const tri_device_description *device;
    const tri_plan_request *request;
    const tri_rates *rates;
    const tri_measured *measured;
    int64_t memory_bytes;
    bool micro_is_fixed; // the model has batch norm, so another micro-batch gives another result
    tri_candidate *found;
    int count;
    tri_candidate *least;
} search;

bool tri_fit_keeps_micro(const tri_plan *plan) {
    for (int i = 0; i < plan->graph->parameter_count; i++)
        if (plan->graph->parameters[i].role == TRI_ROLE_STATISTIC) return true;
    return false;
}

// Finds the peak of memory and the time of a step for one set of settings. False: the settings
// contradict each other, so that no plan can be made.
static bool try_settings(search *s, const tri_plan_request *request, const char *overrides,
                         tri_candidate *out) {
    tri_arena *arena = tri_arena_create(NULL, "candidate");
    tri_pipeline_plans plans;
    tri_estimate estimate;
    bool possible = tri_pipeline_plans_create(arena, s->device, request, &plans) == TRI_OK;
    if (possible) {
        tri_estimate_step(arena, &plans, s->rates, s->measured, &estimate);
        *out = (tri_candidate){overrides, tri_pipeline_plans_fullest(&plans)->memory.peak,
                               estimate.step_s};
        if (!s->least->overrides || out->peak_bytes < s->least->peak_bytes) *s->least = *out;
        tri_pipeline_plans_destroy(&plans);
    }
    tri_arena_destroy(arena);
    return possible;
}

static const char *sharing_text(const search *s, const sharing *how, const tri_mesh *mesh) {
    if (how->as_given) return "";
    int pipeline = mesh->size[TRI_AXIS_PIPELINE];
    bool say_pipeline = pipeline > 1 || s->request->mesh.size[TRI_AXIS_PIPELINE] > 1;
    const char *last =
        say_pipeline ? tri_arena_printf(s->arena, " strategy.mesh.pipeline=%d", pipeline) : "";
    return tri_arena_printf(s->arena,
                            "strategy.name=%s strategy.mesh.replicate=%d strategy.mesh.shard=%d%s",
                            tri_strategy_names[how->name], mesh->size[TRI_AXIS_REPLICATE],
                            mesh->size[TRI_AXIS_SHARD], last);
}

static const char *join(tri_arena *arena, const char *a, const char *b) {
    return tri_arena_printf(arena, "%s%s%s", a, *a && *b ? " " : "", b);
}

// Writes the settings that give a micro-batch `micro` samples. If the recipe gives the number of
// micro-batches that a replica accumulates, the settings also give that number and the global
// batch, because the global batch must be micro-batch × that number × replicas. NULL: the global
// batch cannot be divided into micro-batches of this size.
static const char *micro_text(const search *s, const tri_plan_request *request, int64_t micro) {
    long long global = request->step_samples[TRI_STEP_FULL];
    long long round_samples = micro * tri_mesh_replicas(&request->mesh);
    if (!request->gives_rounds)
        return tri_arena_printf(s->arena, "batch.micro=%lld", (long long)micro);
    if (global == 0 || global % round_samples) return NULL;
    return tri_arena_printf(s->arena,
                            "batch.global=%lld trainer.accumulate_grad_batches=%lld "
                            "batch.micro=%lld",
                            global, global / round_samples, (long long)micro);
}

// Finds the largest micro-batch that fits, for one way of sharing and recomputing, because larger
// micro-batches run faster. It begins with the recipe's micro-batch or, if the recipe gives none,
// with all samples of a replica (with a pipeline, half of them). It halves the micro-batch until
// the run fits or until the micro-batch has one sample. A model with batch norm gets at most the
// first attempt, because its results depend on the micro-batch.
static void try_micros(search *s, tri_plan_request request, const char *overrides) {
    int64_t replicas = tri_mesh_replicas(&request.mesh);
    // If the data do not fill one step, an epoch has only its last step, which is smaller.
    const int64_t *samples = request.step_samples;
    int64_t global = samples[samples[TRI_STEP_FULL] ? TRI_STEP_FULL : TRI_STEP_TAIL];
    bool pipeline = request.mesh.size[TRI_AXIS_PIPELINE] > 1;
    int64_t given = request.micro, whole = (global + replicas - 1) / replicas;
    int64_t micro = given ? given : pipeline ? (whole + 1) / 2 : whole;
    bool other = request.gives_rounds && replicas != tri_mesh_replicas(&s->request->mesh);
    if (s->micro_is_fixed && pipeline && !given) return;
    for (bool first = true; micro >= 1; first = false) {
        bool is_given = first && (given || !pipeline);
        const char *words = "";
        if (!is_given) request.micro = micro;
        if (!is_given || (given && other)) words = micro_text(s, &request, micro);
        bool reduces = request.eval_micro > micro && !is_given && words;
        if (reduces) {
            request.eval_micro = micro;
            request.step_samples[TRI_STEP_EVALUATE] = micro * replicas;
            // The evaluation of test data is not planned: with this batch.eval its batches are no
            // larger than those of validation data, so it needs no more memory.
            request.step_samples[TRI_STEP_TEST] = 0;
        }
        // With a micro-batch of its own, the recipe would have another batch.eval by default.
        if (reduces || (request.micro_follows && words && *words))
            words = tri_arena_printf(s->arena, "%s batch.eval=%lld", words,
                                     (long long)request.eval_micro);
        tri_candidate one;
        bool possible = words &&
                        tri_sampler_check_step(global, request.micro, replicas) == TRI_OK &&
                        try_settings(s, &request, join(s->arena, overrides, words), &one);
        if (possible && one.peak_bytes <= s->memory_bytes && s->count < TRI_MAX_CANDIDATES) {
            s->found[s->count++] = one;
            return;
        }
        if (micro == 1 || s->micro_is_fixed) return;
        micro /= 2;
    }
}

// Tries first the recomputation of the recipe (mostly none), then that of every fourth block, of
// every second one, and of all, because each recomputed block takes time.
static void try_recomputing(search *s, tri_plan_request request, const char *overrides) {
    // n: every n-th block is recomputed; 0: as the recipe says.
    static const int every[] = {0, 4, 2, 1};
    tri_strategy_options options = *request.options;
    request.options = &options;
    int found = s->count;
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
        const char *again = "";
        if (every[i]) {
            options.recompute = TRI_RECOMPUTE_BLOCK;
            options.recompute_every = every[i];
            again = every[i] == 1 ? "strategy.recompute=block"
                                  : tri_arena_printf(s->arena,
                                                     "strategy.recompute=block "
                                                     "strategy.recompute_every=%d",
                                                     every[i]);
        }
        int before = s->count;
        try_micros(s, request, join(s->arena, overrides, again));
        // Stops early if the run already fits without smaller micro-batches, or if three settings
        // were found: recomputing more blocks would only take longer.
        bool whole = s->count > before && !strstr(s->found[before].overrides, "batch.micro");
        if (whole || (i > 0 && s->count > found + 2)) return;
    }
}

static void try_sharing(search *s, const sharing *how) {
    static const char *const moved[] = {"", "strategy.offload=optimizer",
                                        "strategy.offload=parameters"};
    tri_plan_request request = *s->request;
    tri_strategy_options options = *request.options;
    request.options = &options;
    if (!how->as_given) {
        int ranks = request.mesh.ranks / request.mesh.size[TRI_AXIS_TENSOR_PARALLEL];
        int rest = ranks / (how->shard * how->pipeline);
        options.name = how->name;
        if (rest * how->shard * how->pipeline != ranks) return;
        request.mesh.size[TRI_AXIS_REPLICATE] = rest;
        request.mesh.size[TRI_AXIS_SHARD] = how->shard;
        request.mesh.size[TRI_AXIS_PIPELINE] = how->pipeline;
        if (!memcmp(&request.mesh, &s->request->mesh, sizeof request.mesh) &&
            options.name == s->request->options->name)
            return;
    }
    const char *shared = sharing_text(s, how, &request.mesh);
    int found = s->count;
    tri_offload given = options.offload;
    // Offload is slow, so it is tried only where nothing else fits.
    for (int i = 0; i < 3 && s->count == found; i++) {
        bool as_given = i == 0 || (tri_offload)i <= given;
        if (as_given && i > 0) continue;
        options.offload = as_given ? given : (tri_offload)i;
        try_recomputing(s, request, join(s->arena, shared, as_given ? "" : moved[i]));
    }
}

static int by_time(const void *left, const void *right) {
    const tri_candidate *a = left, *b = right;
    if (a->step_s != b->step_s) return a->step_s < b->step_s ? -1 : 1;
    return (a->peak_bytes > b->peak_bytes) - (a->peak_bytes < b->peak_bytes);
}

int tri_fit_search(tri_arena *arena, const tri_device_description *device,
                   const tri_plan_request *request, const tri_rates *rates,
                   const tri_measured *measured, int64_t memory_bytes, tri_candidate *candidates,
                   tri_candidate *least) {
    search s = {.arena = arena,
                .device = device,
                .request = request,
                .rates = rates,
                .measured = measured,
                .memory_bytes = memory_bytes,
                .found = candidates,
                .least = least};
    *least = (tri_candidate){0};
    tri_plan *plan;
    tri_plan_request first = *request;
    first.rank = 0;
    if (tri_plan_create(arena, device, &first, &plan) != TRI_OK) return 0;
    s.micro_is_fixed = tri_fit_keeps_micro(plan);
    int blocks = plan->block_count;
    tri_plan_destroy(plan);
    int ranks = request->mesh.ranks / request->mesh.size[TRI_AXIS_TENSOR_PARALLEL];
    const sharing ways[] = {{.as_given = true},
                            {TRI_STRATEGY_ZERO1, ranks, 1, false},
                            {TRI_STRATEGY_ZERO2, ranks, 1, false},
                            {TRI_STRATEGY_FSDP, ranks, 1, false},
                            {TRI_STRATEGY_FSDP, ranks / 2, 1, false},
                            {TRI_STRATEGY_PIPELINE, 1, 2, false},
                            {TRI_STRATEGY_PIPELINE, 1, 4, false}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        bool possible =
            ways[i].as_given || (ranks > 1 && ways[i].shard * ways[i].pipeline > 1 &&
                                 ways[i].pipeline <= blocks && ways[i].pipeline <= ranks);
        if (possible) try_sharing(&s, &ways[i]);
    }
    qsort(candidates, (size_t)s.count, sizeof *candidates, by_time);
    return s.count;
}

static const char *bytes_text(tri_arena *arena, int64_t bytes) {
    bool giga = bytes >= 1000000000;
    return tri_arena_printf(arena, "%.1f %s", (double)bytes * (giga ? 1e-9 : 1e-6),
                            giga ? "GB" : "MB");
}

tri_device_memory tri_fit_memory(const tri_plan_request *request, const tri_device_memory *there) {
    int64_t given = tri_strategy_memory(request->options);
    if (given == 0 || (there->is_own && there->bytes && there->bytes <= given)) return *there;
    return (tri_device_memory){
        .bytes = given, .is_own = there->is_own, .whose = "of strategy.memory"};
}

tri_status tri_fit_check(const tri_device_description *device, const tri_plan_request *request,
                         int64_t peak_bytes, const tri_device_memory *memory) {
    enum { SHOWN = 3 };
    if (memory->bytes == 0 || peak_bytes <= memory->bytes) return TRI_OK;
    tri_arena *arena = tri_arena_create(NULL, "refusal");
    tri_candidate found[TRI_MAX_CANDIDATES], least;
    tri_rates rates = tri_rates_of(device, NULL);
    int count = tri_fit_search(arena, device, request, &rates, NULL, memory->bytes, found, &least);
    const char *way =
        count == 0 && least.overrides
            ? tri_arena_printf(arena, "nothing tried would fit, the least is %s with %s",
                               bytes_text(arena, least.peak_bytes),
                               *least.overrides ? least.overrides : "the recipe as it is")
            : "none of the settings tried is possible";
    for (int i = 0; i < count && i < SHOWN; i++)
        way = tri_arena_printf(arena, "%s%s%s (%s)",
                               i ? way : "would fit, the fastest first: ", i ? ", or " : "",
                               found[i].overrides, bytes_text(arena, found[i].peak_bytes));
    tri_status status =
        TRI_FAIL(TRI_BAD_INPUT, "a rank needs %s of memory, %s more than the %s %s; %s",
                 bytes_text(arena, peak_bytes), bytes_text(arena, peak_bytes - memory->bytes),
                 bytes_text(arena, memory->bytes), memory->whose, way);
    tri_arena_destroy(arena);
    return status;
}

tri_status tri_fit_check_host(const tri_plan *plan, int sharers) {
    int64_t bytes = plan->memory.offloaded;
    if (!plan->offload.in_host_memory || bytes == 0) return TRI_OK;
    const char *whose;
    int64_t has = tri_free_memory(sharers, &whose);
    if (has == 0 || bytes <= has) return TRI_OK;
    tri_arena *arena = tri_arena_create(NULL, "refusal");
    tri_status status =
        TRI_FAIL(TRI_BAD_INPUT,
                 "strategy.offload: %s of a rank's state are more than the %s %s; give "
                 "strategy.offload_path, a folder of a disk, or use more ranks that shard it",
                 bytes_text(arena, bytes), bytes_text(arena, has), whose);
    tri_arena_destroy(arena);
    return status;
}
