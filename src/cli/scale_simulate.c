// The simulated half of `trireme scale`: makes plans for all numbers of ranks, and simulates steps
// of them with speeds that are fitted to the measurements. A point of the sweep is the training
// with one number of ranks.
#include "cli/scale_view.h"

#include "recipe/batch.h"

#include <math.h>

// Sets the global batch of a point (a number of ranks of the sweep). The first point has a global
// batch of `global` samples. The others have the same or, with --weak, one in proportion to their
// ranks.
static tri_status choose_batch(const scale_view *v, int64_t global, scale_point *point) {
    int first = v->points[0].ranks;
    int64_t all = global * point->ranks;
    if (v->is_weak && all % first != 0)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "--weak: batch.global=%lld of %s does not grow to a whole number for %d",
                        (long long)global, tri_counted(first, "rank"), point->ranks);
    point->recipe.batch.global = v->is_weak ? all / first : global;
    return TRI_OK;
}

static tri_status plan_point(scale_view *v, scale_point *point, const cli_context *context,
                             const char *device) {
    point->plan = (plan_view){
        .arena = v->arena, .recipe = &point->recipe, .ranks = point->ranks, .device_name = device};
    tri_status status = plan_make(&point->plan, context);
    return status == TRI_OK ? TRI_OK
                            : tri_status_context(status, "%s", tri_counted(point->ranks, "rank"));
}

tri_status scale_plan(scale_view *v, const tri_recipe *recipe, const cli_context *context,
                      const char *device) {
    tri_mesh mesh;
    tri_batch_options first;
    TRI_TRY(tri_session_make_mesh(recipe, v->points[0].ranks, &mesh));
    TRI_TRY(tri_recipe_settle_batch(recipe, tri_mesh_replicas(&mesh), &first));
    for (int i = 0; i < v->count; i++) {
        v->points[i].recipe = *recipe;
        TRI_TRY(choose_batch(v, first.global, &v->points[i]));
        TRI_TRY(plan_point(v, &v->points[i], context, device));
    }
    v->strategy = v->points[0].plan.pipeline.plans[0]->strategy->name;
    return TRI_OK;
}

void scale_end_plans(scale_view *v) {
    for (int i = 0; i < v->count; i++) tri_pipeline_plans_destroy(&v->points[i].plan.pipeline);
}

int64_t scale_reduced_bytes(const scale_view *v) {
    int64_t most = 0;
    const tri_pipeline_plans *pipeline = &v->points[0].plan.pipeline;
    for (int p = 0; p < pipeline->count; p++) {
        const tri_flat *flat = &pipeline->plans[p]->flat;
        for (int u = 0; u < flat->unit_count; u++) {
            int64_t elements = 0;
            for (int k = 0; k < TRI_BUCKET_COUNT; k++)
                if (tri_bucket_has_gradients((tri_bucket_kind)k))
                    elements += flat->units[u].buckets[k].elements;
            if (elements > most) most = elements;
        }
    }
    return most * (int64_t)sizeof(float);
}

static double link_of(const scale_view *v, const scale_point *point) {
    return point->link_bytes_per_s > 0 ? point->link_bytes_per_s : v->rates.link_bytes_per_s;
}

double scale_simulate_point(const scale_view *v, scale_point *point, double factor) {
    tri_arena *arena = tri_arena_create(NULL, "simulation");
    tri_rates rates = v->rates;
    rates.flops_per_s *= factor;
    rates.half_flops_per_s *= factor;
    rates.memory_bytes_per_s *= factor;
    rates.link_bytes_per_s = link_of(v, point);
    if (point->link_bytes_per_s > 0) rates.network_bytes_per_s = 0; // the link is that of the point
    tri_estimate estimate;
    tri_estimate_step(arena, &point->plan.pipeline, &rates, NULL, &estimate);
    point->simulated_step_s = estimate.step_s;
    point->simulated_waiting = estimate.bubble;
    tri_arena_destroy(arena);
    return estimate.step_s;
}

// Finds by bisection a factor for the speeds of arithmetic and memory (v->rates), so that a
// simulated step of the point takes `wanted_s`. False: no factor achieves this, for example because
// the simulated communication alone takes longer, and v->rates is not changed.
static bool calibrate(scale_view *v, scale_point *point, double wanted_s) {
    enum { TURNS = 60 };
    double low = 1e-6, high = 1e6;
    if (scale_simulate_point(v, point, high) > wanted_s ||
        scale_simulate_point(v, point, low) < wanted_s)
        return false;
    for (int i = 0; i < TURNS; i++) {
        double middle = sqrt(low * high);
        if (scale_simulate_point(v, point, middle) > wanted_s)
            low = middle;
        else
            high = middle;
    }
    v->rates.flops_per_s *= high;
    v->rates.half_flops_per_s *= high;
    v->rates.memory_bytes_per_s *= high;
    v->is_calibrated = true;
    return true;
}

tri_status scale_calibrate_rank(scale_view *v, const scale_point *point, const cli_context *context,
                                const char *device, double samples_per_s) {
    scale_point one = {.ranks = 1, .recipe = point->recipe};
    int64_t replicas = tri_mesh_replicas(&point->plan.mesh);
    one.recipe.batch.global = (scale_batch(point) + replicas - 1) / replicas;
    tri_status status = plan_point(v, &one, context, device);
    double wanted_s = (double)one.recipe.batch.global / samples_per_s;
    if (status == TRI_OK && !calibrate(v, &one, wanted_s))
        status = TRI_FAIL(TRI_BAD_INPUT, "--rate: no speed of the device gives %g samples/s",
                          samples_per_s);
    else if (status != TRI_OK)
        status = tri_status_context(status, "--rate");
    tri_pipeline_plans_destroy(&one.plan.pipeline);
    return status;
}

void scale_simulate(scale_view *v) {
    v->rates = tri_rates_assumed;
    for (int i = 0; i < v->count; i++) {
        if (v->points[i].link_bytes_per_s <= 0) continue;
        v->rates.link_bytes_per_s = v->points[i].link_bytes_per_s;
        v->link_ranks = v->points[i].ranks;
        v->link_hosts = v->points[i].hosts;
    }
    calibrate(v, &v->points[0], scale_step_s(&v->points[0]));
    for (int i = 0; i < v->count; i++) scale_simulate_point(v, &v->points[i], 1);
}
