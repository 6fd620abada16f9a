// After a step whose loss or gradients were not finite: reads the samples of the step once more and
// looks for numbers that are not finite, because then not the training is to blame, but the data.
// train.c calls it. A step that succeeds costs nothing by this.
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
                            "%.160s: '%s' of training sample %lld has a number that is not finite; "
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

tri_status train_blame_inputs(train_loop *loop) {
    char why[TRI_MESSAGE_MAX_BYTES];
    snprintf(why, sizeof why, "%s", tri_error_message());
    // What the engine advises comes after the first semicolon, and does not help here.
    char cause[TRI_MESSAGE_MAX_BYTES];
    snprintf(cause, sizeof cause, "%.*s", (int)strcspn(why, ";"), why);
    tri_status status =
        tri_comm_agree(loop->session->comm, look_at_step(loop, cause), "look at a step's samples");
    return status == TRI_OK ? TRI_FAIL(TRI_NOT_FINITE, "%s", why) : status;
}
