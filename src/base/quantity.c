#include "base/quantity.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool tri_quantity_read(const char *text, double *out) {
    static const char prefixes[] = "kmgtp";
    char *end;
    double value = strtod(text, &end);
    if (end == text || !isfinite(value) || value < 0) return false;
    const char *prefix = *end ? strchr(prefixes, tolower((unsigned char)*end)) : NULL;
    if (prefix) {
        bool binary = end[1] == 'i';
        end += binary ? 2 : 1;
        for (const char *p = prefixes; p <= prefix; p++) value *= binary ? 1024 : 1000;
    }
    if (*end == 'B') end++;
    *out = value;
    return *end == 0;
}
