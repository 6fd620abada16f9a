// Finds validation and training samples by index: see split.h for the rule.
#include "data/split.h"

#include "base/philox.h"
#include "base/status.h"

#include <stdbool.h>

__extension__ typedef unsigned __int128 wide; // holds a product of two counts of samples

tri_validation_split tri_validation_split_make(uint64_t seed, int64_t total, double fraction) {
    int64_t rounded = (int64_t)((double)total * fraction + 0.5);
    return (tri_validation_split){.total = total,
                                  .validation_samples = rounded > 0 ? rounded : 1,
                                  .key = tri_philox_key(seed, "data/split")};
}

// Finds the first sample of group `group` of `groups`. Groups differ in size by one sample at most.
static int64_t group_start(const tri_validation_split *split, int64_t groups, int64_t group) {
    return (int64_t)((wide)group * (wide)split->total / (wide)groups);
}

// Finds the sample that is drawn from a group for the smaller one of the two subsets, training and
// validation. The random number depends on the seed and the group alone, so that no other group
// needs to be drawn first.
static int64_t drawn_sample(const tri_validation_split *split, int64_t groups, int64_t group) {
    const uint32_t counter[4] = {(uint32_t)group, (uint32_t)((uint64_t)group >> 32), 0, 0};
    tri_philox_block block = tri_philox(split->key, counter);
    uint64_t word = (uint64_t)block.word[1] << 32 | block.word[0];
    int64_t start = group_start(split, groups, group);
    int64_t length = group_start(split, groups, group + 1) - start;
    return start + (int64_t)((wide)word * (wide)length >> 64);
}

// Finds the index-th of the samples that are not drawn.
static int64_t remaining_sample(const tri_validation_split *split, int64_t groups, int64_t index) {
    int64_t remaining = split->total - groups;
    TRI_ASSERT(index >= 0 && index < remaining);
    // First estimates the group of the wanted sample. Before group g lie group_start(g) samples, of
    // which g are drawn (one from each group), so group_start(g) - g remain. As the groups have
    // nearly equal sizes, the proportional estimate is wrong by one at most, and the loops correct
    // it.
    int64_t group = (int64_t)((wide)index * (wide)groups / (wide)remaining);
    while (group > 0 && group_start(split, groups, group) - group > index) group--;
    while (group_start(split, groups, group + 1) - (group + 1) <= index) group++;
    int64_t sample = index + group;
    return sample < drawn_sample(split, groups, group) ? sample : sample + 1;
}

// Finds the index-th sample of the wanted subset, which has `count` samples. `is_drawn`: it is the
// smaller subset, whose samples are drawn.
static int64_t subset_sample(const tri_validation_split *split, int64_t count, bool is_drawn,
                             int64_t index) {
    if (!is_drawn) return remaining_sample(split, split->total - count, index);
    TRI_ASSERT(index >= 0 && index < count);
    return drawn_sample(split, count, index);
}

int64_t tri_validation_sample(const tri_validation_split *split, int64_t index) {
    int64_t training = split->total - split->validation_samples;
    return subset_sample(split, split->validation_samples, split->validation_samples <= training,
                         index);
}

int64_t tri_training_sample(const tri_validation_split *split, int64_t index) {
    int64_t training = split->total - split->validation_samples;
    return subset_sample(split, training, training < split->validation_samples, index);
}
