// `trireme data dump --png`: the images of some samples on one sheet, to look at.
#ifndef TRIREME_DATA_SHEET_H
#define TRIREME_DATA_SHEET_H

#include "data/dataset.h"

enum { TRI_MAX_SHEET_IMAGES = 1024 };

// What a sheet shows, to find a sample by its place.
typedef struct tri_data_sheet {
    int64_t columns; // images in a row
    // True if the images have no bytes to show: then black and white are the smallest and the
    // largest of all their values.
    bool has_range;
    double black, white;
} tri_data_sheet;

// Writes the field `images` of samples first to first + count - 1 of the split, as in epoch 0,
// beside each other to a PNG file at `path`, row after row: after all transforms but normalize.
// Small images are enlarged. TRI_BAD_INPUT: the split has no images or fewer samples, or the images
// are more than TRI_MAX_SHEET_IMAGES or too large for one sheet.
tri_status tri_data_sheet_write(const tri_data_options *options, tri_data_split split,
                                uint64_t seed, int64_t first, int64_t count, const char *path,
                                tri_data_sheet *out);

#endif
