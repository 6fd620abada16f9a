// The transforms of Winograd's convolution F(4×4, 3×3): a square of 4×4 results of a 3×3
// correlation is y = Aᵀ[(G g Gᵀ) ∘ (Bᵀ d B)]A, where d is the 6×6 pixels that it reads, g the taps,
// and ∘ multiplies number by number: 36 multiplications instead of 144. (Lavin and Gray, "Fast
// algorithms for convolutional neural networks", CVPR 2016, section 4; its section 4.3 has these
// sizes.)
//
// The matrices follow from the points at which the polynomials of Toom and Cook are evaluated: 0,
// ±5/8, ±3/2 and infinity. With these the results are about half as far from the exact ones as with
// Lavin and Gray's 0, ±1, ±2 and infinity, because the matrices' numbers are less different in
// size. All numbers of A and B are exact in F32.
//
// The gradient of the taps is Gᵀ[Σ (Bᵀ d B) ∘ (A dy Aᵀ)]G, summed over all squares of results: the
// same formula, differentiated.
//
// Each function transforms one row or column of CPU_LANES channels at once: x[i · step] is element
// i of the row, a vector with one number for each channel, and y[i] is element i of the result.
#ifndef TRIREME_DEVICE_CPU_WINOGRAD_TRANSFORM_H
#define TRIREME_DEVICE_CPU_WINOGRAD_TRANSFORM_H

#include "device/cpu/conv.h"
#include "device/cpu/lanes.h"

enum {
    WINOGRAD_OUT = 4,                               // results on a side of a tile (a 4×4 square)
    WINOGRAD_TAPS = 3,                              // taps on a side of the kernel
    WINOGRAD_IN = 6,                                // pixels on a side of what a tile reads
    WINOGRAD_POSITIONS = WINOGRAD_IN * WINOGRAD_IN, // numbers of a transformed tile
    // Floats from one pixel of an image to the next: in nChw16c, or in the plain layout.
    WINOGRAD_PIXEL = CPU_LANES == 16 ? CPU_BLOCK : 1,
};

// The layouts of images and weights.
#if CPU_LANES == 16
#define WINOGRAD_FORMATS ((conv_formats){CPU_NCHW16C, CPU_OIHW16I16O, CPU_NCHW16C})

// Loads and stores the vector of elements from number `at` on, BF16 or F32.
CPU_LANES_INLINE cpu_lanes winograd_load(const void *from, bool bf16, int64_t at) {
    if (bf16) return cpu_widen(_mm256_loadu_si256((const void *)((const uint16_t *)from + at)));
    return _mm512_loadu_ps((const float *)from + at);
}
CPU_LANES_INLINE void winograd_store(void *to, bool bf16, int64_t at, cpu_lanes x) {
    if (bf16)
        _mm256_storeu_si256((void *)((uint16_t *)to + at), cpu_narrow(x));
    else
        _mm512_storeu_ps((float *)to + at, x);
}
#else
#define WINOGRAD_FORMATS ((conv_formats){CPU_PLAIN, CPU_PLAIN, CPU_PLAIN})
#endif

// Whether the kernels of these lanes compute a convolution. A CPU with AMX multiplies BF16 faster
// than Winograd's products are in F32.
static inline bool winograd_computes(const tri_device_description *device, const conv_shape *s) {
    bool typed = s->dtype == TRI_F32 || (CPU_LANES == 16 && cpu_has(device, CPU_HAS_BF16) &&
                                         !cpu_has(device, CPU_HAS_AMX));
    return typed && cpu_lanes_are_of(device) && s->n > 0 && conv_is_winograd(s);
}

// The evaluation points a = 5/8 and b = 3/2 of the polynomials (see above), and their squares.
#define WINOGRAD_A 0.625f
#define WINOGRAD_B 1.5f
#define WINOGRAD_A2 (WINOGRAD_A * WINOGRAD_A)
#define WINOGRAD_B2 (WINOGRAD_B * WINOGRAD_B)
// The factors of the rows of G that belong to the points 0, ±a and ±b.
#define WINOGRAD_G0 (1 / (WINOGRAD_A2 * WINOGRAD_B2))
#define WINOGRAD_GA (1 / (2 * WINOGRAD_A2 * (WINOGRAD_A2 - WINOGRAD_B2)))
#define WINOGRAD_GB (1 / (2 * WINOGRAD_B2 * (WINOGRAD_B2 - WINOGRAD_A2)))

// The transform of pixels: y[6] = Bᵀ x[6].
CPU_LANES_INLINE void winograd_pixels(const cpu_lanes *x, int step, cpu_lanes *y) {
    const cpu_lanes a = CPU_OP(set1_ps)(WINOGRAD_A), a2 = CPU_OP(set1_ps)(WINOGRAD_A2);
    const cpu_lanes b = CPU_OP(set1_ps)(WINOGRAD_B), b2 = CPU_OP(set1_ps)(WINOGRAD_B2);
    const cpu_lanes sum = CPU_OP(set1_ps)(WINOGRAD_A2 + WINOGRAD_B2);
    const cpu_lanes product = CPU_OP(set1_ps)(WINOGRAD_A2 * WINOGRAD_B2);
    const cpu_lanes x0 = x[0], x1 = x[step], x2 = x[2 * step], x3 = x[3 * step], x4 = x[4 * step];
    const cpu_lanes x5 = x[5 * step];
    const cpu_lanes even_a = CPU_OP(fnmadd_ps)(b2, x2, x4), odd_a = CPU_OP(fnmadd_ps)(b2, x1, x3);
    const cpu_lanes even_b = CPU_OP(fnmadd_ps)(a2, x2, x4), odd_b = CPU_OP(fnmadd_ps)(a2, x1, x3);
    y[0] = CPU_OP(fmadd_ps)(product, x0, CPU_OP(fnmadd_ps)(sum, x2, x4));
    y[1] = CPU_OP(fmadd_ps)(a, odd_a, even_a);
    y[2] = CPU_OP(fnmadd_ps)(a, odd_a, even_a);
    y[3] = CPU_OP(fmadd_ps)(b, odd_b, even_b);
    y[4] = CPU_OP(fnmadd_ps)(b, odd_b, even_b);
    y[5] = CPU_OP(fmadd_ps)(product, x1, CPU_OP(fnmadd_ps)(sum, x3, x5));
}

// The transform of products to results: y[4] = Aᵀ x[6].
CPU_LANES_INLINE void winograd_results(const cpu_lanes *x, int step, cpu_lanes *y) {
    const cpu_lanes a = CPU_OP(set1_ps)(WINOGRAD_A), a2 = CPU_OP(set1_ps)(WINOGRAD_A2);
    const cpu_lanes b = CPU_OP(set1_ps)(WINOGRAD_B), b2 = CPU_OP(set1_ps)(WINOGRAD_B2);
    const cpu_lanes a3 = CPU_OP(set1_ps)(WINOGRAD_A2 * WINOGRAD_A);
    const cpu_lanes b3 = CPU_OP(set1_ps)(WINOGRAD_B2 * WINOGRAD_B);
    const cpu_lanes even_a = CPU_OP(add_ps)(x[step], x[2 * step]);
    const cpu_lanes odd_a = CPU_OP(sub_ps)(x[step], x[2 * step]);
    const cpu_lanes even_b = CPU_OP(add_ps)(x[3 * step], x[4 * step]);
    const cpu_lanes odd_b = CPU_OP(sub_ps)(x[3 * step], x[4 * step]);
    y[0] = CPU_OP(add_ps)(x[0], CPU_OP(add_ps)(even_a, even_b));
    y[1] = CPU_OP(fmadd_ps)(a, odd_a, CPU_OP(mul_ps)(b, odd_b));
    y[2] = CPU_OP(fmadd_ps)(a2, even_a, CPU_OP(mul_ps)(b2, even_b));
    y[3] = CPU_OP(fmadd_ps)(a3, odd_a, CPU_OP(fmadd_ps)(b3, odd_b, x[5 * step]));
}

// The transform of taps: y[6] = G x[3].
CPU_LANES_INLINE void winograd_taps(const cpu_lanes *x, int step, cpu_lanes *y) {
    const cpu_lanes zero = CPU_OP(set1_ps)(WINOGRAD_G0);
    const cpu_lanes half_a = CPU_OP(set1_ps)(WINOGRAD_GA);
    const cpu_lanes half_b = CPU_OP(set1_ps)(WINOGRAD_GB);
    const cpu_lanes a = CPU_OP(set1_ps)(WINOGRAD_A), a2 = CPU_OP(set1_ps)(WINOGRAD_A2);
    const cpu_lanes b = CPU_OP(set1_ps)(WINOGRAD_B), b2 = CPU_OP(set1_ps)(WINOGRAD_B2);
    const cpu_lanes even_a = CPU_OP(fmadd_ps)(a2, x[2 * step], x[0]),
                    odd_a = CPU_OP(mul_ps)(a, x[step]);
    const cpu_lanes even_b = CPU_OP(fmadd_ps)(b2, x[2 * step], x[0]),
                    odd_b = CPU_OP(mul_ps)(b, x[step]);
    y[0] = CPU_OP(mul_ps)(zero, x[0]);
    y[1] = CPU_OP(mul_ps)(half_a, CPU_OP(add_ps)(even_a, odd_a));
    y[2] = CPU_OP(mul_ps)(half_a, CPU_OP(sub_ps)(even_a, odd_a));
    y[3] = CPU_OP(mul_ps)(half_b, CPU_OP(add_ps)(even_b, odd_b));
    y[4] = CPU_OP(mul_ps)(half_b, CPU_OP(sub_ps)(even_b, odd_b));
    y[5] = x[2 * step];
}

// The transform of the results' gradients: y[6] = A x[4].
CPU_LANES_INLINE void winograd_gradients(const cpu_lanes *x, int step, cpu_lanes *y) {
    const cpu_lanes a = CPU_OP(set1_ps)(WINOGRAD_A), a2 = CPU_OP(set1_ps)(WINOGRAD_A2);
    const cpu_lanes b = CPU_OP(set1_ps)(WINOGRAD_B), b2 = CPU_OP(set1_ps)(WINOGRAD_B2);
    const cpu_lanes x0 = x[0], x1 = x[step], x2 = x[2 * step], x3 = x[3 * step];
    const cpu_lanes even_a = CPU_OP(fmadd_ps)(a2, x2, x0), odd_a = CPU_OP(fmadd_ps)(a2, x3, x1);
    const cpu_lanes even_b = CPU_OP(fmadd_ps)(b2, x2, x0), odd_b = CPU_OP(fmadd_ps)(b2, x3, x1);
    y[0] = x0;
    y[1] = CPU_OP(fmadd_ps)(a, odd_a, even_a);
    y[2] = CPU_OP(fnmadd_ps)(a, odd_a, even_a);
    y[3] = CPU_OP(fmadd_ps)(b, odd_b, even_b);
    y[4] = CPU_OP(fnmadd_ps)(b, odd_b, even_b);
    y[5] = x3;
}

// The transform of sums of products to gradients of the taps: y[3] = Gᵀ x[6].
CPU_LANES_INLINE void winograd_tap_gradients(const cpu_lanes *x, int step, cpu_lanes *y) {
    const cpu_lanes zero = CPU_OP(set1_ps)(WINOGRAD_G0);
    const cpu_lanes half_a = CPU_OP(set1_ps)(WINOGRAD_GA), half_b = CPU_OP(set1_ps)(WINOGRAD_GB);
    const cpu_lanes a = CPU_OP(set1_ps)(WINOGRAD_A), a2 = CPU_OP(set1_ps)(WINOGRAD_A2);
    const cpu_lanes b = CPU_OP(set1_ps)(WINOGRAD_B), b2 = CPU_OP(set1_ps)(WINOGRAD_B2);
    const cpu_lanes even_a = CPU_OP(mul_ps)(half_a, CPU_OP(add_ps)(x[step], x[2 * step]));
    const cpu_lanes odd_a = CPU_OP(mul_ps)(half_a, CPU_OP(sub_ps)(x[step], x[2 * step]));
    const cpu_lanes even_b = CPU_OP(mul_ps)(half_b, CPU_OP(add_ps)(x[3 * step], x[4 * step]));
    const cpu_lanes odd_b = CPU_OP(mul_ps)(half_b, CPU_OP(sub_ps)(x[3 * step], x[4 * step]));
    y[0] = CPU_OP(fmadd_ps)(zero, x[0], CPU_OP(add_ps)(even_a, even_b));
    y[1] = CPU_OP(fmadd_ps)(a, odd_a, CPU_OP(mul_ps)(b, odd_b));
    y[2] = CPU_OP(fmadd_ps)(a2, even_a, CPU_OP(fmadd_ps)(b2, even_b, x[5 * step]));
}

#endif
