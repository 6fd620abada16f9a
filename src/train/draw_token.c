// Draws the token that follows a text; see draw_token.h.
#include "train/draw_token.h"

#include "base/philox.h"

#include <math.h>
#include <stdlib.h>

// The likelier first.
static int by_score(const void *left, const void *right) {
    const train_candidate *a = left, *b = right;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return a->token < b->token ? -1 : 1;
}

static bool find_penalized(train_candidate *room, int64_t count, const int64_t *text,
                           int64_t length, double penalty) {
    for (int64_t i = 0; penalty != 1 && i < length; i++) {
        train_candidate *c = text[i] >= 0 && text[i] < count ? &room[text[i]] : NULL;
        if (!c || c->token < 0) continue;
        c->score = c->score < 0 ? c->score * penalty : c->score / penalty;
        c->token = -1; // a token that stands there twice is penalized once
    }
    bool found = false;
    for (int64_t i = 0; i < count; i++) {
        room[i].token = i;
        if (isnan(room[i].score)) return false;
        found = found || isfinite(room[i].score);
    }
    return found;
}

// How many of the sorted candidates may be drawn. Their scores become probabilities, of which the
// first is 1 and *sum gets the sum.
static int64_t weigh(const train_draw_options *o, train_candidate *room, int64_t count,
                     double *sum) {
    double largest = room[0].score, all = 0;
    int64_t most = count;
    if (o->top_k > 0 && o->top_k < count) count = o->top_k;
    while (count < most && room[count].score == room[count - 1].score) count++; // as likely
    for (int64_t i = 0; i < count; i++)
        all += room[i].score = exp((room[i].score - largest) / o->temperature);
    *sum = 0;
    for (int64_t i = 0; i < count; i++) {
        *sum += room[i].score;
        if (*sum >= o->top_p * all) return i + 1;
    }
    return count;
}

int64_t train_draw_token(const train_draw_options *o, const float *scores, int64_t count,
                         int64_t number, const int64_t *text, int64_t length,
                         train_candidate *room) {
    for (int64_t i = 0; i < count; i++) room[i] = (train_candidate){(double)scores[i], i};
    if (!find_penalized(room, count, text, length, o->repetition_penalty)) return -1;
    if (o->temperature == 0) {
        const train_candidate *best = room;
        for (int64_t i = 1; i < count; i++)
            if (by_score(&room[i], best) < 0) best = &room[i];
        return best->token;
    }
    double sum;
    qsort(room, (size_t)count, sizeof *room, by_score);
    count = weigh(o, room, count, &sum);
    uint32_t word =
        tri_philox_at(tri_philox_key(o->seed, "generate"), (uint64_t)length, (uint32_t)number, 0);
    double at = ((double)word + 0.5) * 0x1p-32 * sum;
    int64_t i = 0;
    while (i + 1 < count && at >= room[i].score) at -= room[i++].score;
    return room[i].token;
}
