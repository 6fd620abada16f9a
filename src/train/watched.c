// Follows a monitored metric. watched.h explains this.
#include "train/watched.h"

#include <math.h>

double tri_gain(tri_monitor_mode mode, double a, double b) {
    return mode == TRI_MONITOR_MIN ? b - a : a - b;
}

void tri_watch(tri_watched *w, tri_monitor_mode mode, double margin, const double *value,
               const char *of) {
    w->has_last = value != NULL;
    w->is_lost = !value;
    if (value) w->last = *value;
    if (value && (!w->has_best || tri_gain(mode, *value, w->best) > margin)) {
        w->has_best = true;
        w->best = *value;
        w->best_of = of;
        w->waited = 0;
    } else {
        w->waited++;
    }
}

bool tri_plateau_follow(tri_plateau *p, tri_rate *rate, const double *value, const char *of) {
    const tri_schedule_options *o = rate->schedule;
    tri_watched *w = &p->watched;
    double margin = o->threshold * (o->threshold_mode == TRI_THRESHOLD_REL ? w->best : 1);
    tri_watch(w, o->mode, margin, value, of);
    if (p->cooldown > 0) {
        p->cooldown--;
        w->waited = 0;
    }
    if (w->waited <= o->patience) return false;
    p->cooldown = o->cooldown;
    w->waited = 0;
    double before = tri_rate_lowered(rate), after = fmax(before * o->factor, o->min_lr);
    if (!(before - after > o->eps)) return false;
    p->factor = rate->factor = after / rate->lr;
    return true;
}
