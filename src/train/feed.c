// Micro-batches from a loader to the engine, and those that it looks at before it takes them.
#include "train/loop.h"

#include <string.h>

loop_feed loop_feed_of(tri_session *session, tri_loader *loader) {
    int64_t most = tri_plan_held_batches(session->plan);
    return (loop_feed){.loader = loader,
                       .field_count = session->field_count,
                       .ahead = TRI_NEW_ARRAY(session->arena, const tri_data_batch *, most)};
}

static void release_held(loop_feed *feed) {
    if (feed->held) tri_loader_release(feed->loader, feed->held);
    feed->held = NULL;
}

void loop_release(loop_feed *feed) {
    release_held(feed);
    for (int64_t i = 0; i < feed->ahead_count; i++)
        tri_loader_release(feed->loader, feed->ahead[i]);
    feed->ahead_count = 0;
}

// The loader's next one, but for those of rounds in which this replica has no samples.
static tri_status take(const loop_feed *feed, const tri_data_batch **out) {
    for (;;) {
        TRI_TRY(tri_loader_next(feed->loader, out));
        TRI_ASSERT(*out);
        if ((*out)->micro.size > 0) return TRI_OK;
        tri_loader_release(feed->loader, *out);
    }
}

static void give(const loop_feed *feed, const tri_data_batch *batch, tri_engine_batch *out) {
    out->size = batch->micro.size;
    for (int i = 0; i < feed->field_count; i++) out->fields[i] = batch->fields[i];
}

tri_status loop_next(void *context, tri_engine_batch *out) {
    loop_feed *feed = context;
    release_held(feed);
    if (feed->ahead_count > 0) {
        feed->held = feed->ahead[0];
        feed->ahead_count--;
        memmove(feed->ahead, feed->ahead + 1, (size_t)feed->ahead_count * sizeof *feed->ahead);
    } else {
        TRI_TRY(take(feed, &feed->held));
    }
    give(feed, feed->held, out);
    return TRI_OK;
}

tri_status loop_look(void *context, int64_t ahead, tri_engine_batch *out) {
    loop_feed *feed = context;
    release_held(feed);
    while (feed->ahead_count <= ahead) {
        TRI_TRY(take(feed, &feed->ahead[feed->ahead_count]));
        feed->ahead_count++;
    }
    give(feed, feed->ahead[ahead], out);
    return TRI_OK;
}
