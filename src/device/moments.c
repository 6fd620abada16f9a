// Joins means and variances.
#include "device/moments.h"

tri_moments tri_moments_join(tri_moments a, tri_moments b) {
    double count = a.count + b.count, delta = b.mean - a.mean;
    return (tri_moments){
        .count = count,
        .mean = a.mean + delta * b.count / count,
        .squares = a.squares + b.squares + delta * delta * a.count * b.count / count,
    };
}
