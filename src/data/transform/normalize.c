// normalize: (x - mean) / std of each channel.
#include "base/quantity.h"
#include "data/transform/kind.h"

#include <stdio.h>

typedef struct normalize_options {
    tri_doubles mean, std;
} normalize_options;

static const tri_option rows[] = {
    TRI_OPTION_FLOATS(normalize_options, mean, "[0.5]", -1e6, 1e6, 0,
                      "subtracted from each channel; one value for all, or C values"),
    TRI_OPTION_FLOATS(normalize_options, std, "[0.5]", 1e-30, 1e6, 0,
                      "divides each channel; one value for all, or C values"),
};

const tri_option_table tri_transform_normalize_table =
    TRI_OPTION_TABLE("normalize", normalize_options, rows, "(x - mean) / std per channel");

static tri_status output_shape(const void *params, tri_shape *image) {
    const normalize_options *options = params;
    const tri_doubles *lists[] = {&options->mean, &options->std};
    long long channels = image->dims[0];
    for (int i = 0; i < 2; i++) {
        if (lists[i]->count == 1 || lists[i]->count == channels) continue;
        char wanted[32] = "1";
        if (channels != 1) snprintf(wanted, sizeof wanted, "1 or %lld", channels);
        return TRI_FAIL(TRI_BAD_INPUT, "normalize: %s of '%s' for images of %s: give %s",
                        tri_counted(lists[i]->count, "value"), i ? "std" : "mean",
                        tri_counted(channels, "channel"), wanted);
    }
    return TRI_OK;
}

static void affine(const void *params, int channel, float *shift, float *divisor) {
    const normalize_options *options = params;
    *shift = (float)options->mean.items[options->mean.count > 1 ? channel : 0];
    *divisor = (float)options->std.items[options->std.count > 1 ? channel : 0];
}

// Normalises values. Like torchvision it uses single precision and divisions (instead of
// multiplications by 1 / std), so that the bits are the same.
static void map_values(const void *params, int channel, float *values, int64_t count) {
    float mean, std;
    affine(params, channel, &mean, &std);
    for (int64_t i = 0; i < count; i++) values[i] = (values[i] - mean) / std;
}

const tri_transform_kind tri_transform_normalize = {.role = TRI_TRANSFORM_VALUE,
                                                    .options = &tri_transform_normalize_table,
                                                    .output_shape = output_shape,
                                                    .map_values = map_values,
                                                    .affine = affine};
