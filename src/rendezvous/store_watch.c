// Keeps each rank's latest beat (sign of life), and finds ranks that are silent. A closed
// connection would not be enough to find lost ranks, because a host that loses its power closes
// none.
#include "rendezvous/store_watch.h"

#include "base/ledger.h"
#include "base/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t ms = 1000000;

void store_watch_create(store_watch *watch, int size) {
    *watch = (store_watch){.at = calloc((size_t)size, sizeof *watch->at), .size = size};
    TRI_ASSERT(watch->at);
    for (int r = 0; r < size; r++) watch->at[r].awaited = watch->at[r].follower = STORE_NO_RANK;
}

void store_watch_destroy(store_watch *watch) {
    for (int r = 0; r < watch->size; r++) free(watch->at[r].beat);
    free(watch->at);
}

void store_watch_begin(store_watch *watch, int rank, int64_t silence_ms, int64_t now_ns) {
    store_watched *w = &watch->at[rank];
    watch->watched += !w->is_watched;
    w->is_watched = true;
    w->heard_ns = now_ns;
    w->silence_ns = silence_ms * ms;
}

void store_watch_end(store_watch *watch, int rank) {
    watch->watched -= watch->at[rank].is_watched;
    watch->at[rank].is_watched = false;
}

bool store_watch_hear(store_watch *watch, int rank, const store_head *beat, const void *value,
                      int64_t now_ns) {
    store_watched *w = &watch->at[rank];
    if (beat->value_bytes > TRI_LEDGER_PACKED_BYTES || beat->number < STORE_NO_RANK ||
        beat->number >= watch->size)
        return false;
    w->heard_ns = now_ns;
    w->awaited = (int)beat->number;
    if (beat->value_bytes > w->beat_bytes) {
        w->beat = realloc(w->beat, beat->value_bytes);
        TRI_ASSERT(w->beat);
    }
    w->beat_bytes = beat->value_bytes;
    if (beat->value_bytes) memcpy(w->beat, value, beat->value_bytes);
    return true;
}

int store_watch_look(store_watch *watch, int64_t now_ns, int64_t *next_ns) {
    *next_ns = INT64_MAX;
    if (watch->watched == 0) return STORE_NO_RANK;
    // If this process was suspended or had no core, beats that arrived meanwhile have not been read
    // yet. So the ranks' silence in that time does not count.
    int64_t gap_ns = now_ns - watch->looked_ns;
    bool is_late = gap_ns > TRI_BEAT_LATE_MS * ms;
    watch->looked_ns = now_ns;
    *next_ns = now_ns + TRI_BEAT_MS * ms;
    int found = STORE_NO_RANK;
    for (int r = 0; r < watch->size; r++) {
        store_watched *w = &watch->at[r];
        if (!w->is_watched || w->is_lost) continue;
        if (is_late) w->heard_ns = w->heard_ns + gap_ns < now_ns ? w->heard_ns + gap_ns : now_ns;
        if (now_ns - w->heard_ns >= w->silence_ns && found < 0) found = r;
    }
    return found;
}

bool store_watch_lose(store_watch *watch, int rank, const char *what, const char *host) {
    store_watched *w = &watch->at[rank];
    if (w->is_lost) return false;
    w->is_lost = true;
    snprintf(w->loss.what, sizeof w->loss.what, "%s", what);
    snprintf(w->loss.host, sizeof w->loss.host, "%.63s", host);
    return true;
}

char *store_watch_loss(const store_watch *watch, int rank, size_t *size) {
    const store_watched *w = &watch->at[rank];
    *size = sizeof w->loss + w->beat_bytes;
    char *value = malloc(*size);
    TRI_ASSERT(value);
    memcpy(value, &w->loss, sizeof w->loss);
    if (w->beat_bytes) memcpy(value + sizeof w->loss, w->beat, w->beat_bytes);
    return value;
}
