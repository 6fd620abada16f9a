// mixup and cutmix: mix the samples of a training step. They do not change an image by itself;
// mix.h does the mixing, after all other transforms.
#include "base/limits.h"
#include "data/transform/kind.h"

static const tri_option rows[] = {
    TRI_OPTION_FLOAT(tri_mixing_options, alpha, "1", 1e-3, 1000,
                     "of the Beta distribution of a sample's own weight"),
    TRI_OPTION_FLOAT(tri_mixing_options, probability, "1", 0, 1, "of a training step to be mixed"),
    TRI_OPTION_INT(tri_mixing_options, classes, "0", 0, TRI_MAX_CLASSES,
                   "classes of the model, for soft labels made of `labels`"),
};

const tri_option_table tri_transform_mixup_table = TRI_OPTION_TABLE(
    "mixup", tri_mixing_options, rows, "adds a part of another image of the step, as MixUp");
const tri_option_table tri_transform_cutmix_table =
    TRI_OPTION_TABLE("cutmix", tri_mixing_options, rows,
                     "puts a rectangle of another image of the step into the image, as CutMix");

const tri_transform_kind tri_transform_mixup = {.role = TRI_TRANSFORM_STEP,
                                                .options = &tri_transform_mixup_table};
const tri_transform_kind tri_transform_cutmix = {.role = TRI_TRANSFORM_STEP,
                                                 .options = &tri_transform_cutmix_table};
