// After a step whose loss or gradients were not finite, finds where that began. First it reads the
// samples of the step once more and looks for numbers that are not finite, because then not the
// training is to blame, but the data. Then it makes the step once more, and checks every value
// (engine/anomaly.c): all inputs of the step are as they were, so the same numbers come. train.c
// calls it. A step that succeeds costs nothing by this.
#include "base/log.h"
#include "tensor/half.h"
#include "train/loop.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_finite(tri_dtype dtype, const void *values, int64_t i) {
    if (dtype == TRI_F32) return isfinite(((const float *)values)[i]);
    if (dtype == TRI_F64) return isfinite(((const double *)values)[i]);
    if (tri_dtype_is_float(dtype))
        return isfinite(tri_half_to_float(dtype, ((const uint16_t *)values)[i]));
    return true;
}

// TRI_NOT_FINITE: a field of the micro-batch has a number that is not finite. `data`: whose samples
// they are, for the message, which begins with `why`.
static tri_status look_at(const tri_session *s, const tri_data_batch *batch, const char *data,
                          const char *why) {
    for (int f = 0; f < s->field_count; f++) {
        int64_t elements = tri_shape_count(&s->fields[f].shape);
        for (int64_t i = 0; i < batch->micro.size * elements; i++) {
            if (is_finite(s->fields[f].dtype, batch->fields[f], i)) continue;
            return TRI_FAIL(TRI_NOT_FINITE,
                            "%s: '%s' of %s sample %lld has a number that is not finite; "
                            "`trireme data check` with this recipe lists such data",
                            why, s->fields[f].name, data, (long long)batch->samples[i / elements]);
        }
    }
    return TRI_OK;
}

// Looks at the micro-batches of one step of the loader, which begins with them.
static tri_status look_at_step(const tri_session *s, tri_loader *loader, int64_t epoch,
                               int64_t step, const char *data, const char *why) {
    tri_status status = TRI_OK;
    for (bool is_over = false; !is_over && status == TRI_OK;) {
        const tri_data_batch *batch;
        if (tri_loader_next(loader, &batch) != TRI_OK || !batch) break;
        is_over = batch->epoch != epoch || batch->step != step;
        if (!is_over) status = look_at(s, batch, data, why);
        tri_loader_release(loader, batch);
    }
    tri_loader_destroy(loader);
    return status;
}

static tri_status look_at_training(const train_loop *loop, const char *why) {
    const tri_progress *p = &loop->progress;
    tri_session *s = loop->session;
    tri_loader *loader;
    // Fields of images that the device normalises are bytes here, which are always finite.
    if (s->model.image_scale ||
        tri_session_train_loader(s, p->epoch, p->step_in_epoch, &loader) != TRI_OK)
        return TRI_OK;
    return look_at_step(s, loader, p->epoch, p->step_in_epoch, "training", why);
}

tri_status train_warn_not_finite(tri_session *s, tri_step_shape shape, double loss) {
    const char *data = tri_val_source_names[shape == TRI_STEP_TEST ? TRI_VAL_TEST : s->val_source];
    char why[80];
    tri_loader *loader;
    tri_status status = TRI_OK;
    snprintf(why, sizeof why, "the loss of the %s data is %g", data, loss);
    if (!s->model.image_scale &&
        (shape == TRI_STEP_TEST ? tri_session_test_loader(s, &loader)
                                : tri_session_val_loader(s, &loader)) == TRI_OK)
        status = look_at_step(s, loader, 0, 0, data, why);
    status = tri_comm_agree(s->comm, status, "look at the samples of an evaluation");
    if (status != TRI_OK && status != TRI_NOT_FINITE) return status;
    if (s->identity.rank != 0) return TRI_OK;
    if (status == TRI_NOT_FINITE)
        tri_log_line(TRI_LOG_WARNING, "%s", tri_error_message());
    else
        tri_log_line(TRI_LOG_WARNING, "%s, although the data are finite: the weights make it so",
                     why);
    return TRI_OK;
}

// Makes the step once more. TRI_NOT_FINITE: the message says where it began; TRI_OK: it was not
// found, as the reduction between ranks is not searched, nor a backward pass with a loss scale.
static tri_status repeat_step(train_loop *loop) {
    tri_session *s = loop->session;
    tri_loader *loader;
    loop->in_flight = 0; // the engine has given up the steps behind the one that failed
    tri_status status =
        tri_session_train_loader(s, loop->progress.epoch, loop->progress.step_in_epoch, &loader);
    TRI_TRY(tri_comm_agree(s->comm, status, "repeat a step"));
    train_feed feed = train_feed_make(s->arena, s, loader);
    tri_step_input input = train_next_step(loop, &feed);
    tri_step_output unused;
    tri_engine_detect_anomaly(s->engine);
    status = tri_engine_issue(s->engine, &input);
    if (status == TRI_OK) {
        status = tri_engine_collect(s->engine, &unused);
        if (status == TRI_NOT_FINITE) status = TRI_OK; // the message is the one of before
    }
    status = train_feed_end(&feed, status);
    tri_loader_destroy(loader);
    return status;
}

tri_status train_name_cause(train_loop *loop) {
    char why[TRI_MESSAGE_MAX_BYTES], fact[160], message[TRI_MESSAGE_MAX_BYTES];
    snprintf(why, sizeof why, "%s", tri_error_message());
    // Behind the first semicolon is advice.
    size_t length = strcspn(why, ";");
    snprintf(fact, sizeof fact, "%.*s", (int)length, why);
    TRI_TRY(tri_comm_agree(loop->session->comm, look_at_training(loop, fact),
                           "look at a step's samples"));
    if (repeat_step(loop) != TRI_NOT_FINITE) return TRI_FAIL(TRI_NOT_FINITE, "%s", why);
    const char *where = strstr(tri_error_message(), ": ");
    const char *advice = why + length;
    // Before the first update, the training is not to blame for the weights.
    if (loop->progress.step == 0 && where && strstr(where, "reads the parameter"))
        advice = loop->recipe->init.path ? "; the weights of init have it" : "";
    snprintf(message, sizeof message, "%s%s%s", fact, where ? where : "", advice);
    return TRI_FAIL(TRI_NOT_FINITE, "%s", message);
}
