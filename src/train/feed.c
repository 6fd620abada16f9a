// Feeds micro-batches from a loader to the engine, which calls train_feed_next, train_feed_release
// and train_feed_look_ahead while it issues a step. With train_feed_look_ahead the engine counts
// the labels of micro-batches before it takes them. With train_feed_release it tells that it no
// longer reads a micro-batch, so that the loader may reuse the memory.
#include "train/loop.h"

#include <stdio.h>
#include <string.h>

train_feed train_feed_make(tri_arena *arena, tri_session *session, tri_loader *loader) {
    int64_t capacity = tri_plan_held_batches(session->plan);
    return (train_feed){.loader = loader,
                        .engine = session->engine,
                        .field_count = session->field_count,
                        .held = TRI_NEW_ARRAY(arena, const tri_data_batch *, capacity)};
}

static void release_oldest(train_feed *feed) {
    tri_loader_release(feed->loader, feed->held[0]);
    feed->held_count--;
    memmove(feed->held, feed->held + 1, (size_t)feed->held_count * sizeof *feed->held);
}

tri_status train_feed_end(train_feed *feed, tri_status status) {
    char why[TRI_MESSAGE_MAX_BYTES];
    snprintf(why, sizeof why, "%s", status == TRI_OK ? "" : tri_error_message());
    // After TRI_NOT_FINITE the engine's work has ended as after any step, so its micro-batches can
    // be returned. After any other failure the work may never end, so the engine is abandoned.
    bool is_whole = status == TRI_OK || status == TRI_NOT_FINITE;
    tri_status released = TRI_OK;
    if (is_whole)
        released = tri_engine_release_batches(feed->engine);
    else
        tri_engine_abandon(feed->engine);
    while (feed->held_count > 0) release_oldest(feed);
    feed->given = 0;
    return status == TRI_OK ? released : TRI_FAIL(status, "%s", why);
}

// Appends the loader's next micro-batch to feed->held.
static tri_status hold_next(train_feed *feed) {
    const tri_data_batch *batch;
    TRI_TRY(tri_loader_next(feed->loader, &batch));
    TRI_ASSERT(batch);
    feed->held[feed->held_count++] = batch;
    return TRI_OK;
}

static void describe(const train_feed *feed, const tri_data_batch *batch, tri_engine_batch *out) {
    out->size = batch->micro.size;
    for (int i = 0; i < feed->field_count; i++) out->fields[i] = batch->fields[i];
}

tri_status train_feed_next(void *context, tri_engine_batch *out) {
    train_feed *feed = context;
    if (feed->given == feed->held_count) TRI_TRY(hold_next(feed));
    const tri_data_batch *batch = feed->held[feed->given++];
    train_sample_log_note(feed->log, feed->step, batch);
    feed->left_out += batch->left_out;
    describe(feed, batch, out);
    return TRI_OK;
}

void train_feed_release(void *context) {
    train_feed *feed = context;
    release_oldest(feed);
    feed->given--;
}

tri_status train_feed_look_ahead(void *context, int64_t ahead, tri_engine_batch *out) {
    train_feed *feed = context;
    while (feed->held_count <= feed->given + ahead) TRI_TRY(hold_next(feed));
    describe(feed, feed->held[feed->given + ahead], out);
    return TRI_OK;
}

tri_step_shape train_step_shape(const tri_session *s, int64_t step_in_epoch) {
    bool tail =
        step_in_epoch == s->train_sampler.steps - 1 && s->plan->steps[TRI_STEP_TAIL].samples > 0;
    return tail ? TRI_STEP_TAIL : TRI_STEP_FULL;
}

tri_step_input train_step_input(const tri_session *s, train_feed *feed, int64_t step,
                                int64_t step_in_epoch) {
    return (tri_step_input){.shape = train_step_shape(s, step_in_epoch),
                            .step = step,
                            .clip = s->recipe->trainer.gradient_clip_val,
                            .next = train_feed_next,
                            .release = train_feed_release,
                            .look = train_feed_look_ahead,
                            .context = feed};
}
