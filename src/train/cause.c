// After a step whose loss or gradients were not finite, finds where that began. First it reads the
// samples of the step once more and looks for numbers that are not finite, because then not the
// training is to blame, but the data. Then it makes the step once more, and checks every value
// (engine/anomaly.c): all inputs of the step are as they were, so the same numbers come. train.c
// calls it. A step that succeeds costs nothing by this.
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

// TRI_NOT_FINITE: a field of the micro-batch has a number that is not finite.
static tri_status look_at(const train_loop *loop, const tri_data_batch *batch, const char *why) {
    const tri_session *s = loop->session;
    for (int f = 0; f < s->field_count; f++) {
        int64_t elements = tri_shape_count(&s->fields[f].shape);
        for (int64_t i = 0; i < batch->micro.size * elements; i++) {
            if (is_finite(s->fields[f].dtype, batch->fields[f], i)) continue;
            return TRI_FAIL(TRI_NOT_FINITE,
                            "%s: '%s' of training sample %lld has a number that is not finite; "
                            "`trireme data check` with this recipe lists such data",
                            why, s->fields[f].name, (long long)batch->samples[i / elements]);
        }
    }
    return TRI_OK;
}

static tri_status look_at_step(const train_loop *loop, const char *why) {
    const tri_progress *p = &loop->progress;
    tri_session *s = loop->session;
    tri_loader *loader;
    tri_status status = TRI_OK;
    // Fields of images that the device normalises are bytes here, which are always finite.
    if (s->model.image_scale) return TRI_OK;
    if (tri_session_train_loader(s, p->epoch, p->step_in_epoch, &loader) != TRI_OK) return TRI_OK;
    for (bool is_over = false; !is_over && status == TRI_OK;) {
        const tri_data_batch *batch;
        if (tri_loader_next(loader, &batch) != TRI_OK || !batch) break;
        is_over = batch->epoch != p->epoch || batch->step != p->step_in_epoch;
        if (!is_over) status = look_at(loop, batch, why);
        tri_loader_release(loader, batch);
    }
    tri_loader_destroy(loader);
    return status;
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
    TRI_TRY(
        tri_comm_agree(loop->session->comm, look_at_step(loop, fact), "look at a step's samples"));
    if (repeat_step(loop) != TRI_NOT_FINITE) return TRI_FAIL(TRI_NOT_FINITE, "%s", why);
    const char *where = strstr(tri_error_message(), ": ");
    snprintf(message, sizeof message, "%s%s%s", fact, where ? where : "", why + length);
    return TRI_FAIL(TRI_NOT_FINITE, "%s", message);
}
