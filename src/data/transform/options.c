// Options that several transforms have: sizes, ranges and bytes that fill empty places.
#include "base/quantity.h"
#include "data/transform/kind.h"

#include <stdio.h>

int64_t tri_transform_height(tri_ints size) { return size.items[0]; }
int64_t tri_transform_width(tri_ints size) { return size.items[size.count - 1]; }

tri_status tri_transform_check_size(const char *name, tri_ints size) {
    if (size.count >= 1 && size.count <= 2) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s: size has %s: give one, or [height, width]", name,
                    tri_counted(size.count, "number"));
}

tri_range tri_transform_range(tri_doubles list, double middle) {
    if (list.count == 2) return (tri_range){list.items[0], list.items[1]};
    return (tri_range){middle - list.items[0], middle + list.items[0]};
}

tri_status tri_transform_check_range(const tri_tree *map, const char *key, tri_doubles list) {
    bool is_one = list.count == 1 && list.items[0] >= 0;
    bool is_two = list.count == 2 && list.items[0] <= list.items[1];
    if (is_one || is_two) return TRI_OK;
    return tri_tree_fail(tri_tree_get(map, key),
                         "'%s' has to be one number that is not negative, or two of which the "
                         "first is not the larger one",
                         key);
}

tri_status tri_transform_check_fill(const char *name, const char *key, tri_ints fill,
                                    const tri_shape *image) {
    long long channels = image->dims[0];
    if (fill.count == 1 || fill.count == channels) return TRI_OK;
    char wanted[32] = "1";
    if (channels != 1) snprintf(wanted, sizeof wanted, "1 or %lld", channels);
    return TRI_FAIL(TRI_BAD_INPUT, "%s: %s of '%s' for images of %s: give %s", name,
                    tri_counted(fill.count, "value"), key, tri_counted(channels, "channel"),
                    wanted);
}

tri_status tri_transform_check_colours(const char *name, const tri_shape *image) {
    if (image->dims[0] == 1 || image->dims[0] == 3) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "%s: images have %s, and it takes 1 or 3", name,
                    tri_counted(image->dims[0], "channel"));
}
