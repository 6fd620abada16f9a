// Divides an epoch into steps, and a step into the micro-batches of the replicas: see sampler.h.
// Everything is computed from the epoch and the number of the step in it, so a resumed run
// continues with the right samples.
#include "data/sampler.h"

#include "base/limits.h"
#include "base/quantity.h"

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t tri_micro_batch_count(int64_t step_size, int64_t micro, int64_t replicas) {
    return micro == 0 ? smaller(step_size, replicas) : ceil_div(step_size, micro);
}

int64_t tri_micro_batch_rounds(int64_t step_size, int64_t micro, int64_t replicas) {
    return micro == 0 ? 1 : ceil_div(ceil_div(step_size, micro), replicas);
}

tri_micro_batch tri_micro_batch_of(int64_t step_size, int64_t micro, int64_t replicas,
                                   int64_t replica, int64_t round) {
    TRI_ASSERT(replica >= 0 && replica < replicas && round >= 0);
    tri_micro_batch batch = {.index = round * replicas + replica};
    if (micro == 0) {
        TRI_ASSERT(round == 0);
        int64_t size = step_size / replicas, larger = step_size % replicas;
        batch.first = replica * size + smaller(replica, larger);
        batch.size = size + (replica < larger);
    } else {
        batch.first = smaller(batch.index * micro, step_size);
        batch.size = smaller(micro, step_size - batch.first);
    }
    return batch;
}

int64_t tri_micro_batch_largest(int64_t step_size, int64_t micro, int64_t replicas) {
    return micro == 0 ? ceil_div(step_size, replicas) : smaller(micro, step_size);
}

tri_status tri_sampler_check_step(int64_t global, int64_t micro, int64_t replicas) {
    if (tri_micro_batch_count(global, micro, replicas) >= replicas) return TRI_OK;
    if (global < replicas)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "batch.global=%lld is less than one sample for each of %lld replicas: set "
                        "batch.global to %lld or more, or run on at most %s",
                        (long long)global, (long long)replicas, (long long)replicas,
                        tri_counted(global, "rank"));
    return TRI_FAIL(
        TRI_BAD_INPUT,
        "batch.global=%lld in micro-batches of batch.micro=%lld gives %lld for %lld replicas: "
        "set batch.micro to %lld or less, or batch.global to %lld or more",
        (long long)global, (long long)micro, (long long)ceil_div(global, micro),
        (long long)replicas, (long long)((global - 1) / (replicas - 1)),
        (long long)((replicas - 1) * micro + 1));
}

tri_status tri_sampler_make(const tri_sampler_options *options, tri_sampler *out) {
    *out = (tri_sampler){.options = *options};
    if (out->options.replicas == 0) out->options.replicas = 1;
    TRI_ASSERT(options->samples >= 0 && options->micro >= 0);
    if (options->global < 1) return TRI_FAIL(TRI_BAD_INPUT, "batch.global must be 1 or more");
    TRI_TRY(tri_sampler_check_step(options->global, options->micro, out->options.replicas));
    if (options->samples == 0) return TRI_FAIL(TRI_BAD_INPUT, "the training data has no samples");
    out->steps = options->drop_last ? options->samples / options->global
                                    : ceil_div(options->samples, options->global);
    if (out->steps == 0)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "data.drop_last leaves no step: there are %s, fewer than batch.global=%lld",
                        tri_counted(options->samples, "sample"), (long long)options->global);
    return TRI_OK;
}

tri_status tri_sampler_make_evaluation(int64_t samples, int64_t eval, int64_t global, int64_t micro,
                                       int64_t replicas, tri_sampler *out) {
    TRI_ASSERT(samples >= 0 && eval >= 0 && replicas >= 1);
    if (samples == 0) return TRI_FAIL(TRI_BAD_INPUT, "the test data has no samples");
    if (eval == 0) eval = micro > 0 ? micro : smaller(global, TRI_EVAL_BATCH);
    *out = (tri_sampler){
        .options = {.samples = samples,
                    .global = samples,
                    .micro = smaller(eval, samples),
                    .replicas = replicas,
                    .keep_order = true},
        .steps = 1,
    };
    return TRI_OK;
}

int64_t tri_sampler_step_size(const tri_sampler *sampler, int64_t step) {
    TRI_ASSERT(step >= 0 && step < sampler->steps);
    return smaller(sampler->options.global,
                   sampler->options.samples - step * sampler->options.global);
}

tri_permutation tri_sampler_order(const tri_sampler *sampler, int64_t epoch) {
    return tri_permutation_make(sampler->options.seed, epoch, sampler->options.samples);
}

int64_t tri_sampler_at(const tri_sampler *sampler, const tri_permutation *order, int64_t step,
                       int64_t position) {
    int64_t index = step * sampler->options.global + position;
    return sampler->options.keep_order ? index : tri_permutation_at(order, index);
}
