// Mixes the samples of a training step (mixup and cutmix of data.transform), as torchvision does:
// sample p of a step is mixed with its partner, sample p - 1, the first with the last. MixUp adds a
// part of the partner's image, CutMix puts a rectangle of it into the image; the soft labels are
// mixed in the same proportion.
//
// All samples of a step are mixed in the same way, which is drawn from the seed, the epoch and the
// step. Partners are neighbours, so a micro-batch needs one sample beside its own, which its loader
// reads once more. So the result does not depend on how a step is divided, and no rank needs
// anything from another.
#ifndef TRIREME_DATA_MIX_H
#define TRIREME_DATA_MIX_H

#include "data/dataset.h"

// How a step is mixed.
typedef struct tri_mix_draw {
    double own; // weight of a sample's own label, and of its own image if is_cut is false
    bool is_cut;
    // With is_cut, the rectangle that becomes the partner's.
    int64_t top, left, bottom, right;
} tri_mix_draw;

// Draws how a step is mixed, for images of this shape [C, H, W]. False: it is not mixed.
bool tri_mix_of_step(const tri_mix_options *options, uint64_t seed, int64_t epoch, int64_t step,
                     const tri_shape *image, tri_mix_draw *out);
// Mixes a sample with its partner, which both are as tri_reader_read made them. A sample that was
// left out, or whose partner was, stays as it is. `dataset` has the fields images and soft_labels.
void tri_mix_sample(const tri_dataset *dataset, const tri_mix_draw *draw, void *const *sample,
                    void *const *partner);

#endif
