// Which elements of x an element of an interpolated tensor is computed from, along one axis, and
// how much of each, as PyTorch's interpolate has it. The functions are inline, so that the host and
// kernels of a GPU use the same code.
#ifndef TRIREME_OPS_INTERPOLATE_AXIS_H
#define TRIREME_OPS_INTERPOLATE_AXIS_H

#include "base/kernel_inline.h"

#include <stdbool.h>
#include <stdint.h>

// From which elements around its place an element is computed.
typedef enum interpolate_kind {
    INTERPOLATE_NEAREST,       // the one at its place, rounded down
    INTERPOLATE_NEAREST_EXACT, // the one in which its middle lies
    INTERPOLATE_LINEAR,        // the two neighbours
    INTERPOLATE_CUBIC,         // four neighbours, of which those outside are the ones at the border
    INTERPOLATE_KINDS
} interpolate_kind;

// One axis that is resized from `in` to `out` elements.
typedef struct interpolate_axis {
    int64_t in, out, kind; // an interpolate_kind
    bool align_corners;    // the first and the last elements keep their places
    bool antialias;        // where the axis shrinks, all elements that are merged count
    double factor;         // how many elements lie where one was; 0: out / in
} interpolate_axis;

// An element is computed from x[first] to x[last]. `place`: where it lies among x's elements; of
// kinds with antialiasing, where its middle lies among their borders.
typedef struct interpolate_source {
    int64_t first, last;
    double place, scale; // scale: the distance of two neighbours, in elements of x
} interpolate_source;

TRI_KERNEL_INLINE int64_t interpolate_inside(const interpolate_axis *a, int64_t at) {
    return at < 0 ? 0 : at < a->in ? at : a->in - 1;
}

TRI_KERNEL_INLINE int64_t interpolate_floor(double place) {
    int64_t whole = (int64_t)place;
    return (double)whole > place ? whole - 1 : whole;
}

// Antialiased: all elements that lie less than the filter's width, stretched by `scale`, away.
TRI_KERNEL_INLINE void interpolate_wide(const interpolate_axis *a, int64_t at,
                                        interpolate_source *s) {
    double width = (a->kind == INTERPOLATE_LINEAR ? 1 : 2) * (s->scale > 1 ? s->scale : 1);
    s->place = s->scale * ((double)at + 0.5);
    s->first = interpolate_inside(a, interpolate_floor(s->place - width + 0.5));
    s->last = interpolate_inside(a, interpolate_floor(s->place + width + 0.5) - 1);
    if (s->last < s->first) s->last = s->first;
}

TRI_KERNEL_INLINE interpolate_source interpolate_from(const interpolate_axis *a, int64_t at) {
    interpolate_source s = {at, at, (double)at, 1};
    if (a->in == a->out && a->factor == 0) return s;
    if (a->kind <= INTERPOLATE_NEAREST_EXACT) { // in single precision, as PyTorch rounds it
        float scale = a->factor != 0 ? (float)(1 / a->factor) : (float)a->in / (float)a->out;
        bool exact = a->kind == INTERPOLATE_NEAREST_EXACT;
        float place = exact ? (float)(((double)at + 0.5) * (double)scale) : (float)at * scale;
        s.first = s.last = interpolate_inside(a, (int64_t)place);
        return s;
    }
    s.scale = a->align_corners ? (a->out > 1 ? (double)(a->in - 1) / (double)(a->out - 1) : 0)
              : a->factor != 0 ? 1 / a->factor
                               : (double)a->in / (double)a->out;
    if (a->antialias) {
        interpolate_wide(a, at, &s);
        return s;
    }
    s.place = a->align_corners ? (double)at * s.scale : ((double)at + 0.5) * s.scale - 0.5;
    if (a->kind == INTERPOLATE_LINEAR) {
        if (s.place < 0) s.place = 0;
        s.first = interpolate_inside(a, (int64_t)s.place);
        s.last = interpolate_inside(a, s.first + 1);
        return s;
    }
    s.first = interpolate_inside(a, interpolate_floor(s.place) - 1);
    s.last = interpolate_inside(a, interpolate_floor(s.place) + 2);
    return s;
}

// The first element of the result that reads x[at] or an element behind it; `out` if there is none.
TRI_KERNEL_INLINE int64_t interpolate_reader(const interpolate_axis *a, int64_t at) {
    int64_t low = 0, high = a->out;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (interpolate_from(a, middle).last >= at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

// The filter of cubic interpolation with its parameter, at a distance.
TRI_KERNEL_INLINE double interpolate_cubic(double distance, double parameter) {
    double x = distance < 0 ? -distance : distance, a = parameter;
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

// How much of an element comes from x[at], before the division by interpolate_total.
TRI_KERNEL_INLINE double interpolate_weight(const interpolate_axis *a, const interpolate_source *s,
                                            int64_t at) {
    if (s->first == s->last) return 1;
    if (a->antialias) {
        double far = ((double)at + 0.5 - s->place) / (s->scale > 1 ? s->scale : 1);
        if (a->kind == INTERPOLATE_CUBIC) return interpolate_cubic(far, -0.5);
        far = far < 0 ? -far : far;
        return far < 1 ? 1 - far : 0;
    }
    if (a->kind == INTERPOLATE_LINEAR) {
        double weight = s->place - (double)s->first;
        return at == s->first ? 1 - weight : weight;
    }
    int64_t middle = interpolate_floor(s->place);
    double sum = 0;
    for (int64_t i = middle - 1; i <= middle + 2; i++)
        if (interpolate_inside(a, i) == at) sum += interpolate_cubic(s->place - (double)i, -0.75);
    return sum;
}

// By what the weights of an element are divided, so that they add up to 1 at the borders too.
TRI_KERNEL_INLINE double interpolate_total(const interpolate_axis *a, const interpolate_source *s) {
    double sum = 0;
    if (!a->antialias || s->first == s->last) return 1;
    for (int64_t i = s->first; i <= s->last; i++) sum += interpolate_weight(a, s, i);
    return sum;
}

#endif
