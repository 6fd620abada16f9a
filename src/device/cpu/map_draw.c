// Random numbers that a map reads on the device cpu. `ref` draws the same ones, one at a time.
#include "device/cpu/map.h"
#include "device/cpu/scalar.h"

enum { DRAWS = 32 }; // how many blocks of four random words are drawn at a time

// Neighbouring elements of one sample.
typedef struct draw_span {
    tri_draw_stream draws;
    uint64_t step;
    uint32_t sample;
    uint64_t first; // the number of the first element in its sample
    float *to;
} draw_span;

CPU_BODY draw_body(void *context, int64_t begin, int64_t end) {
    const draw_span span = *(const draw_span *)context;
    uint32_t words[4 * DRAWS];
    for (int64_t done = begin; done < end;) {
        uint64_t first = span.first + (uint64_t)done;
        int64_t skipped = (int64_t)(first % 4), count = 4 * DRAWS - skipped;
        for (uint32_t i = 0; i < DRAWS; i++) {
            tri_philox_block drawn =
                tri_philox_quad(span.draws.key, span.step, span.sample, first / 4 + i);
            for (int w = 0; w < 4; w++) words[4 * i + w] = drawn.word[w];
        }
        if (count > end - done) count = end - done;
        for (int64_t i = 0; i < count; i++)
            span.to[done + i] = tri_draw_number(&span.draws, words[skipped + i]);
        done += count;
    }
}
CPU_RANGES(draw)

cpu_range cpu_map_draws_of(const cpu_device *device) { return draw_range(device); }

void cpu_map_draw(cpu_range range, const tri_draw_stream *draws, const int64_t *position,
                  int64_t index, int64_t stride, int64_t count, float *to) {
    if (stride != 1) {
        for (int64_t i = 0; i < count; i++)
            to[i] = i && stride == 0 ? to[0] : tri_draw_at(draws, position, index + i * stride);
        return;
    }
    while (count > 0) {
        int64_t sample = index / draws->elements, element = index % draws->elements;
        int64_t run = draws->elements - element < count ? draws->elements - element : count;
        draw_span span = {.draws = *draws,
                          .step = (uint64_t)position[0],
                          .sample = (uint32_t)position[1] + (uint32_t)sample,
                          .first = (uint64_t)element,
                          .to = to};
        range(&span, 0, run, 0);
        index += run;
        count -= run;
        to += run;
    }
}
