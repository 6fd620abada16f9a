// Searches sorted lists by bisection. The caller supplies the comparison, so that one function
// serves all lists.
#include "base/search.h"

int tri_lower_bound(int count, bool (*is_below)(const void *context, int index, int64_t key),
                    const void *context, int64_t key) {
    int first = 0, end = count;
    while (first < end) {
        int middle = first + (end - first) / 2;
        if (is_below(context, middle, key))
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}
