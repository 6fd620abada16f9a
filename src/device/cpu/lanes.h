// Vectors of CPU_LANES floats, for source files that are compiled for two instruction sets: for
// AVX-512 with 16 lanes, and for AVX2 with 8 lanes, by a file named …_avx2.c that defines CPU_LANES
// as 8 and includes the source file.
#ifndef TRIREME_DEVICE_CPU_LANES_H
#define TRIREME_DEVICE_CPU_LANES_H

#include "device/cpu/simd.h"

#ifndef CPU_LANES
#define CPU_LANES 16
#endif

// CPU_OP(add_ps) is the intrinsic _mm512_add_ps or _mm256_add_ps. CPU_FOR_LANES(name) is the
// function name_avx512 or name_avx2. CPU_LANES_TARGET marks the functions of such source files.
#if CPU_LANES == 16
typedef __m512 cpu_lanes;
#define CPU_OP(name) _mm512_##name
#define CPU_FOR_LANES(name) name##_avx512
#define CPU_LANES_TARGET CPU_AVX512
#else
typedef __m256 cpu_lanes;
#define CPU_OP(name) _mm256_##name
#define CPU_FOR_LANES(name) name##_avx2
#define CPU_LANES_TARGET __attribute__((target("avx2,fma")))
#endif
#define CPU_LANES_INLINE static inline CPU_LANES_TARGET __attribute__((always_inline))

static inline bool cpu_lanes_are_of(const tri_device_description *device) {
    bool avx512 = cpu_has(device, CPU_HAS_AVX512);
    return CPU_LANES == 16 ? avx512 : !avx512 && cpu_has(device, CPU_HAS_AVX2);
}

#if CPU_LANES == 8
// Transposes 4 × 4 floats in each half of four vectors.
CPU_LANES_INLINE void cpu_transpose_halves(const __m256 r[4], __m256 out[4]) {
    __m256 a = _mm256_unpacklo_ps(r[0], r[1]), b = _mm256_unpackhi_ps(r[0], r[1]);
    __m256 c = _mm256_unpacklo_ps(r[2], r[3]), d = _mm256_unpackhi_ps(r[2], r[3]);
    out[0] = _mm256_shuffle_ps(a, c, 0x44);
    out[1] = _mm256_shuffle_ps(a, c, 0xEE);
    out[2] = _mm256_shuffle_ps(b, d, 0x44);
    out[3] = _mm256_shuffle_ps(b, d, 0xEE);
}

// Makes a mask of four 32-bit vector lanes: all bits of lane i are set if bit i of `bits` is set.
CPU_LANES_INLINE __m128i cpu_mask4(unsigned bits) {
    const __m128i each = _mm_setr_epi32(1, 2, 4, 8);
    return _mm_cmpeq_epi32(_mm_and_si128(_mm_set1_epi32((int)bits), each), each);
}

// Loads four neighbouring pixels of each of eight planes (a plane is one channel of an image),
// which lie `plane` floats apart: out[i] gets pixel i of all planes. If `some`, reads only the
// pixels whose bit is set in `bits`; the others become 0.
CPU_LANES_INLINE void cpu_load_pixels4(const float *from, int64_t plane, bool some, unsigned bits,
                                       __m256 out[4]) {
    __m256 r[4];
    for (int i = 0; i < 4; i++) {
        const float *low = from + i * plane, *high = low + 4 * plane;
        __m128 a = some ? _mm_maskload_ps(low, cpu_mask4(bits)) : _mm_loadu_ps(low);
        __m128 b = some ? _mm_maskload_ps(high, cpu_mask4(bits)) : _mm_loadu_ps(high);
        r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(a), b, 1);
    }
    cpu_transpose_halves(r, out);
}

// Stores four neighbouring pixels of each of eight planes: the reverse of cpu_load_pixels4. Of the
// four it stores the first `count` (at least 1), or all four if `count` is larger than 4.
CPU_LANES_INLINE void cpu_store_pixels4(float *to, int64_t plane, const __m256 pixels[4],
                                        int64_t count) {
    __m256 r[4];
    cpu_transpose_halves(pixels, r);
    for (int i = 0; i < 4; i++) {
        __m128 a = _mm256_castps256_ps128(r[i]), b = _mm256_extractf128_ps(r[i], 1);
        float *low = to + i * plane, *high = low + 4 * plane;
        if (count >= 4) {
            _mm_storeu_ps(low, a);
            _mm_storeu_ps(high, b);
        } else {
            __m128i mask = cpu_mask4((1u << count) - 1);
            _mm_maskstore_ps(low, mask, a);
            _mm_maskstore_ps(high, mask, b);
        }
    }
}
#endif

#endif
