// Computes those of batch.global, batch.micro and trainer.accumulate_grad_batches that the recipe
// leaves open, from the others and the number of replicas.
#include "recipe/batch.h"

#include "base/limits.h"
#include "base/quantity.h"

tri_status tri_recipe_settle_batch(const tri_recipe *recipe, int64_t replicas,
                                   tri_batch_options *out) {
    *out = recipe->batch;
    long long rounds = recipe->trainer.accumulate_grad_batches, n = replicas;
    long long global = out->global, micro = out->micro;
    out->gives_rounds = out->global == TRI_AUTO || rounds > 1 || recipe->rounds != 0;
    if (out->global == TRI_AUTO) {
        if (rounds > TRI_MAX_BATCH || micro * rounds > TRI_MAX_BATCH / n)
            return TRI_FAIL(TRI_BAD_INPUT,
                            "batch.global: batch.micro=%lld x trainer.accumulate_grad_batches=%lld "
                            "x %s is more than %d",
                            micro, rounds, tri_counted(n, "replica"), TRI_MAX_BATCH);
        out->global = micro * rounds * n;
        return TRI_OK;
    }
    bool must_divide = recipe->rounds == TRI_AUTO;
    bool is_given = rounds > 1 || recipe->rounds == 1;
    if (must_divide && micro > 0 && global % (micro * n) != 0)
        return TRI_FAIL(
            TRI_BAD_INPUT,
            "batch.global=%lld (train_batch_size) is not a multiple of batch.micro=%lld "
            "(train_micro_batch_size_per_gpu) x %s, so that "
            "gradient_accumulation_steps is not a whole number",
            global, micro, tri_counted(n, "replica"));
    if (!is_given) return TRI_OK;
    if (micro > 0 && (rounds > global || micro * rounds * n != global))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "batch.global=%lld is not batch.micro=%lld x "
                        "trainer.accumulate_grad_batches=%lld x %s: change one of them, "
                        "or leave one out",
                        global, micro, rounds, tri_counted(n, "replica"));
    if (micro > 0 || rounds == 1) return TRI_OK;
    if (rounds > global || global % (rounds * n) != 0)
        return TRI_FAIL(
            TRI_BAD_INPUT,
            "batch.global=%lld is not a multiple of trainer.accumulate_grad_batches=%lld "
            "x %s",
            global, rounds, tri_counted(n, "replica"));
    out->micro = global / (rounds * n);
    out->micro_follows = true;
    // What is evaluated must not depend on the number of replicas.
    if (out->eval == 0) out->eval = out->micro * n;
    return TRI_OK;
}

tri_batch_options tri_recipe_batch_without_steps(const tri_recipe *recipe) {
    tri_batch_options batch = recipe->batch;
    if (batch.global == TRI_AUTO) batch.global = batch.micro;
    return batch;
}
