// Feeds micro-batches from a loader to the engine, which may look at some before it takes them.
#include "train/loop.h"

#include <string.h>

train_feed train_feed_make(tri_session *session, tri_loader *loader) {
    int64_t capacity = tri_plan_held_batches(session->plan);
    return (train_feed){.loader = loader,
                        .field_count = session->field_count,
                        .ahead = TRI_NEW_ARRAY(session->arena, const tri_data_batch *, capacity)};
}

static void release_current(train_feed *feed) {
    if (feed->current) tri_loader_release(feed->loader, feed->current);
    feed->current = NULL;
}

void train_feed_release(train_feed *feed) {
    release_current(feed);
    for (int64_t i = 0; i < feed->ahead_count; i++)
        tri_loader_release(feed->loader, feed->ahead[i]);
    feed->ahead_count = 0;
}

// The loader's next micro-batch that has samples: in the last step of an epoch, some rounds of a
// replica may be empty.
static tri_status take(const train_feed *feed, const tri_data_batch **out) {
    for (;;) {
        TRI_TRY(tri_loader_next(feed->loader, out));
        TRI_ASSERT(*out);
        if ((*out)->micro.size > 0) return TRI_OK;
        tri_loader_release(feed->loader, *out);
    }
}

static void describe(const train_feed *feed, const tri_data_batch *batch, tri_engine_batch *out) {
    out->size = batch->micro.size;
    for (int i = 0; i < feed->field_count; i++) out->fields[i] = batch->fields[i];
}

tri_status train_feed_next(void *context, tri_engine_batch *out) {
    train_feed *feed = context;
    release_current(feed);
    if (feed->ahead_count > 0) {
        feed->current = feed->ahead[0];
        feed->ahead_count--;
        memmove(feed->ahead, feed->ahead + 1, (size_t)feed->ahead_count * sizeof *feed->ahead);
    } else {
        TRI_TRY(take(feed, &feed->current));
    }
    describe(feed, feed->current, out);
    return TRI_OK;
}

tri_status train_feed_look_ahead(void *context, int64_t ahead, tri_engine_batch *out) {
    train_feed *feed = context;
    release_current(feed);
    while (feed->ahead_count <= ahead) {
        TRI_TRY(take(feed, &feed->ahead[feed->ahead_count]));
        feed->ahead_count++;
    }
    describe(feed, feed->ahead[ahead], out);
    return TRI_OK;
}
