#include "data/split.h"

#include "base/philox.h"
#include "base/status.h"

__extension__ typedef unsigned __int128 wide; // products of two counts of samples

tri_split tri_split_make(uint64_t seed, int64_t total, double fraction) {
    int64_t held = (int64_t)((double)total * fraction + 0.5);
    return (tri_split){
        .total = total, .held = held > 0 ? held : 1, .key = tri_philox_key(seed, "data/split")};
}

// The first sample of run `run` of `runs`.
static int64_t run_start(const tri_split *split, int64_t runs, int64_t run) {
    return (int64_t)((wide)run * (wide)split->total / (wide)runs);
}

// The sample that the smaller part takes of a run.
static int64_t taken_of(const tri_split *split, int64_t runs, int64_t run) {
    const uint32_t counter[4] = {(uint32_t)run, (uint32_t)((uint64_t)run >> 32), 0, 0};
    tri_philox_block block = tri_philox(split->key, counter);
    uint64_t word = (uint64_t)block.word[1] << 32 | block.word[0];
    int64_t start = run_start(split, runs, run);
    int64_t length = run_start(split, runs, run + 1) - start;
    return start + (int64_t)((wide)word * (wide)length >> 64);
}

int64_t tri_split_at(const tri_split *split, bool validation, int64_t index) {
    int64_t trained = split->total - split->held;
    bool held_is_smaller = split->held <= trained;
    int64_t runs = held_is_smaller ? split->held : trained, others = split->total - runs;
    if (validation == held_is_smaller) {
        TRI_ASSERT(index >= 0 && index < runs);
        return taken_of(split, runs, index);
    }
    TRI_ASSERT(index >= 0 && index < others);
    // Before run r lie run_start(r) − r samples of the larger part; the estimate is one off at
    // most.
    int64_t run = (int64_t)((wide)index * (wide)runs / (wide)others);
    while (run > 0 && run_start(split, runs, run) - run > index) run--;
    while (run_start(split, runs, run + 1) - (run + 1) <= index) run++;
    int64_t sample = index + run;
    return sample < taken_of(split, runs, run) ? sample : sample + 1;
}
