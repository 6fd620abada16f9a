// Draws random numbers for initial weights: one at a time, which defines them, and many at a time,
// with the same bits.
//
// The bits of a normal number depend on how the C library rounds log, sin and cos, and these take
// most of the time. But only the bits that a float has are needed. So the numbers are first
// computed by short formulas in double, which the compiler vectorises and whose error has a known
// bound. If both ends of the interval in which the exact result lies round to the same float, so
// does the result of the C library, which is in the interval too. Otherwise (about one number in
// 3,000 if the mean is 0) the C library computes the number.
#include "base/philox.h"

#include <math.h>
#include <string.h>

enum { TILE_BLOCKS = 32, TILE_PAIRS = 2 * TILE_BLOCKS, TILE_NUMBERS = 4 * TILE_BLOCKS };

// The random words of several blocks, of which each has two pairs of words. A pair makes two normal
// numbers: one word gives their radius, the other one their angle.
typedef struct tile {
    int pairs;
    uint32_t radius[TILE_PAIRS], angle[TILE_PAIRS];
} tile;

static tri_philox_block init_block(uint64_t key, uint64_t block) {
    uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0};
    return tri_philox(key, counter);
}

float tri_philox_init_uniform(uint64_t key, uint64_t element, float low, float high) {
    uint32_t word = init_block(key, element / 4).word[element % 4];
    return low + (high - low) * tri_philox_uniform(word);
}

// Makes number 0 (of the cosine) or 1 (of the sine) of a pair of words, by the C library.
static float normal(uint32_t radius_word, uint32_t angle_word, int number, float mean, float std) {
    double u = ((double)radius_word + 1.0) * 0x1p-32;
    double angle = (double)angle_word * 0x1p-32 * 2.0 * M_PI;
    double radius = sqrt(-2.0 * log(u));
    return (float)(mean + std * radius * (number ? sin(angle) : cos(angle)));
}

float tri_philox_init_normal(uint64_t key, uint64_t element, float mean, float std) {
    tri_philox_block block = init_block(key, element / 4);
    const uint32_t *pair = &block.word[element % 4 / 2 * 2];
    return normal(pair[0], pair[1], (int)(element % 2), mean, std);
}

static uint64_t bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Converts a word to double. SSE2 has an instruction for signed words only.
static double from_word(uint32_t word) { return (double)(int32_t)(word ^ 0x80000000u) + 0x1p31; }

// sqrt(-2 log u) for the u of a word, with a relative error below 2^-48. u is m · 2^k with m
// between sqrt(1/2) and sqrt(2), and log m = 2 artanh((m - 1) / (m + 1)), whose series converges
// fast.
static double quick_radius(uint32_t word) {
    const uint64_t half = 0x3fe6a09e667f3bcdu, one = 0x3ff0000000000000u; // bits of sqrt(1/2), of 1
    uint64_t bits = bits_of((from_word(word) + 1.0) * 0x1p-32) + (one - half);
    double k = double_of((bits >> 52) | 0x4330000000000000u) - (0x1p52 + 1023.0);
    double m = double_of((bits & 0x000fffffffffffffu) + half);
    double f = (m - 1.0) / (m + 1.0), s = f * f;
    double sum = 1.0 / 19;
#pragma GCC unroll 9
    for (int i = 17; i > 0; i -= 2) sum = sum * s + 1.0 / i;
    return sqrt(-2.0 * (k * M_LN2 + 2.0 * f * sum));
}

// The cosine and sine of the angle of a word, with an absolute error below 2^-48. The angle is
// a number of right angles, and x, between -pi/4 and pi/4. Series of sine and cosine of x.
static void quick_angle(uint32_t word, double *cosine, double *sine) {
    uint32_t right = (word + 0x20000000u) >> 30;
    double x = (double)(int32_t)(word - (right << 30)) * (0x1p-31 * M_PI), s = x * x;
    double odd = 1.0, even = 1.0;
#pragma GCC unroll 7
    for (int i = 14; i > 0; i -= 2) {
        odd = 1.0 - odd * s * (1.0 / (i * (i + 1)));
        even = 1.0 - even * s * (1.0 / (i * (i - 1)));
    }
    // An odd number of right angles exchanges the two; then the signs are set.
    uint64_t a = bits_of(even), b = bits_of(odd * x);
    uint64_t exchanged = (a ^ b) & (0 - (uint64_t)(right & 1));
    *cosine = double_of(a ^ exchanged ^ (uint64_t)((right + 1) & 2) << 62);
    *sine = double_of(b ^ exchanged ^ (uint64_t)(right & 2) << 62);
}

// Rounds mean + x to float if that is certain, although x has an error of up to `error`. If not,
// returns 0.
static float round_if_certain(double mean, double x, double error) {
    float low = (float)(mean + (x - error)), high = (float)(mean + (x + error));
    return low == high ? low : 0;
}

static void draw_tile(uint64_t key, uint64_t first_block, int blocks, tile *t) {
    t->pairs = 2 * blocks;
    for (int i = 0; i < blocks; i++) {
        tri_philox_block block = init_block(key, first_block + (uint64_t)i);
        for (int pair = 0; pair < 2; pair++) {
            t->radius[2 * i + pair] = block.word[2 * pair];
            t->angle[2 * i + pair] = block.word[2 * pair + 1];
        }
    }
}

static void uniform_tile(const tile *t, float low, float high, float out[TILE_NUMBERS]) {
    for (int i = 0; i < t->pairs; i++) {
        out[2 * i] = low + (high - low) * tri_philox_uniform(t->radius[i]);
        out[2 * i + 1] = low + (high - low) * tri_philox_uniform(t->angle[i]);
    }
}

static void normal_tile(const tile *t, float mean, float std, float out[TILE_NUMBERS]) {
    for (int i = 0; i < t->pairs; i++) {
        double cosine, sine, scale = std * quick_radius(t->radius[i]);
        // This bound is hundreds of times the errors of the formulas, the C library and roundings.
        double error = fabs(scale) * 0x1p-39;
        quick_angle(t->angle[i], &cosine, &sine);
        out[2 * i] = round_if_certain(mean, scale * cosine, error);
        out[2 * i + 1] = round_if_certain(mean, scale * sine, error);
    }
    for (int i = 0; i < 2 * t->pairs; i++)
        if (out[i] == 0) out[i] = normal(t->radius[i / 2], t->angle[i / 2], i % 2, mean, std);
}

typedef void (*tile_rule)(const tile *t, float a, float b, float out[TILE_NUMBERS]);

static void draw(tile_rule make, uint64_t key, uint64_t first, int64_t count, float a, float b,
                 float *out) {
    float numbers[TILE_NUMBERS];
    tile t;
    for (int64_t at = 0, some; at < count; at += some) {
        uint64_t element = first + (uint64_t)at;
        int skipped = (int)(element % 4);
        some = TILE_NUMBERS - skipped < count - at ? TILE_NUMBERS - skipped : count - at;
        draw_tile(key, element / 4, (skipped + (int)some + 3) / 4, &t);
        make(&t, a, b, numbers);
        memcpy(out + at, numbers + skipped, (size_t)some * sizeof *out);
    }
}

void tri_philox_init_uniforms(uint64_t key, uint64_t first, int64_t count, float low, float high,
                              float *out) {
    draw(uniform_tile, key, first, count, low, high, out);
}

void tri_philox_init_normals(uint64_t key, uint64_t first, int64_t count, float mean, float std,
                             float *out) {
    draw(normal_tile, key, first, count, mean, std, out);
}
