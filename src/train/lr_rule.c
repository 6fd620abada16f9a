// The rules by which `trireme lr-find` smooths losses, ends, and chooses a learning rate. They are
// functions of numbers alone, so that tests compare them with Lightning and fastai.
#include "train/lr_rule.h"

#include "base/arena.h"

#include <math.h>

static const double WEIGHT = 0.98; // of the mean so far; both Lightning's and fastai's
static const double WORSE = 4;     // how many times the best loss ends the search

enum { SKIPPED_FIRST = 10, SKIPPED_LAST = 1, VALLEY_SKIPPED_LAST = 5 };

double tri_lr_of_step(double least, double most, int steps, int step) {
    return step >= steps - 1 ? most : least * pow(most / least, (double)step / (steps - 1));
}

bool tri_lr_curve_add(tri_lr_curve *curve, double lr, double loss) {
    if (!isfinite(loss)) return true;
    curve->average = WEIGHT * curve->average + (1 - WEIGHT) * loss;
    double smoothed = curve->average / (1 - pow(WEIGHT, curve->count + 1));
    bool ends = curve->count > 0 && curve->best > 0 && smoothed > WORSE * curve->best;
    if (curve->count == 0 || smoothed < curve->best) curve->best = smoothed;
    curve->points[curve->count++] = (tri_lr_point){lr, smoothed};
    return ends;
}

int tri_lr_steepest(const tri_lr_curve *curve, int steps) {
    const tri_lr_point *p = curve->points;
    int first = SKIPPED_FIRST, last = curve->count - SKIPPED_LAST - 1, best = -1;
    double steepest = INFINITY;
    for (int i = first; i <= last && first < last; i++) {
        int before = i > first ? i - 1 : i, after = i < last ? i + 1 : i;
        double slope = (p[after].loss - p[before].loss) / (after - before);
        if (slope >= steepest) continue;
        steepest = slope;
        best = i;
    }
    return best;
}

int tri_lr_valley(const tri_lr_curve *curve, int steps) {
    int first = steps / 10, count = curve->count - VALLEY_SKIPPED_LAST - first, end = 0;
    if (count < 2) return -1;
    const tri_lr_point *p = curve->points + first;
    tri_arena *arena = tri_arena_create(NULL, "valley");
    // length[i]: that of the longest decreasing subsequence that ends at i.
    int *length = TRI_NEW_ARRAY(arena, int, count);
    for (int i = 0; i < count; i++) {
        length[i] = 1;
        for (int k = 0; k < i; k++)
            if (p[i].loss < p[k].loss && length[i] <= length[k]) length[i] = length[k] + 1;
        if (length[i] > length[end]) end = i;
    }
    int valley = length[end], start = end > 0 ? end - valley : 0;
    tri_arena_destroy(arena);
    int third = (end - start) / 3, sixth = (end - start) / 6, chosen = start + third + sixth;
    return first + (chosen > 0 ? chosen : 0);
}
