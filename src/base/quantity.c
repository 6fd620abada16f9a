// Reads and writes numbers with units, for recipes and messages.
#include "base/quantity.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_BUFFERS = 16, BUFFER_BYTES = 48 };

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

static char *next_buffer(void) {
    static _Thread_local char buffers[NUMBER_BUFFERS][BUFFER_BYTES];
    static _Thread_local int next;
    next = (next + 1) % NUMBER_BUFFERS;
    return buffers[next];
}

const char *tri_grouped(double value) {
    char digits[32], *out = next_buffer();
    snprintf(digits, sizeof digits, "%.0f", value);
    int length = (int)strlen(digits), used = 0;
    for (int i = 0; i < length; i++) {
        out[used++] = digits[i];
        int left = length - 1 - i;
        if (left > 0 && left % 3 == 0 && digits[i] != '-') out[used++] = ',';
    }
    out[used] = 0;
    return out;
}

const char *tri_bytes_text(double bytes) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    int unit = 0;
    while (bytes >= 999.5 && unit < 5) {
        bytes /= 1000;
        unit++;
    }
    char *out = next_buffer();
    snprintf(out, BUFFER_BYTES, unit && bytes < 99.95 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return out;
}

// The text of a number of at least 0, with three significant digits and without an exponent.
static const char *three_digits(double value) {
    if (value >= 999.5) return tri_grouped(value);
    char *out = next_buffer();
    snprintf(out, BUFFER_BYTES, value < 9.995 ? "%.2f" : value < 99.95 ? "%.1f" : "%.0f", value);
    return out;
}

const char *tri_duration_text(double seconds) {
    static const struct {
        double seconds, most; // how long the unit is, and until which number of it it is used
        const char *name;
    } units[] = {{1e-6, 999.5, "us"}, {1e-3, 999.5, "ms"},   {1, 119.5, "s"},
                 {60, 119.5, "min"},  {3600, 71.5, "hours"}, {86400, INFINITY, "days"}};
    int unit = 0;
    while (seconds / units[unit].seconds >= units[unit].most) unit++;
    const char *number = three_digits(seconds / units[unit].seconds);
    char *out = next_buffer();
    snprintf(out, BUFFER_BYTES, "%s %s", number, units[unit].name);
    return out;
}

const char *tri_rate_text(double value, const char *unit) {
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
    int prefix = 0;
    for (; value >= 999.5 && prefix < 6; prefix++) value /= 1000;
    const char *number = three_digits(value);
    char *out = next_buffer();
    snprintf(out, BUFFER_BYTES, "%s %s%s", number, prefixes[prefix], unit);
    return out;
}

const char *tri_counted(int64_t count, const char *noun) {
    const char *number = tri_grouped((double)count);
    char *out = next_buffer();
    int stem = (int)strlen(noun);
    bool in_is = stem > 2 && !strcmp(noun + stem - 2, "is"); // one axis, two axes
    const char *ending = count == 1 ? "" : in_is ? "es" : "s";
    snprintf(out, BUFFER_BYTES, "%s %.*s%s", number, count != 1 && in_is ? stem - 2 : stem, noun,
             ending);
    return out;
}

const char *tri_decimal(double value) {
    char *out = next_buffer();
    if (isnan(value)) value = (double)NAN; // a NaN without a sign
    snprintf(out, BUFFER_BYTES, fabs(value) < 1e6 ? "%.4f" : "%.6g", value);
    return out;
}

const char *tri_seconds_text(double seconds) {
    char *out = next_buffer();
    if (seconds >= 1000)
        snprintf(out, BUFFER_BYTES, "%.0f s", seconds);
    else if (seconds >= 0.0995 || seconds <= 0)
        snprintf(out, BUFFER_BYTES, "%.4g s", seconds);
    else if (seconds >= 0.9995e-3)
        snprintf(out, BUFFER_BYTES, "%.3g ms", seconds * 1e3);
    else
        snprintf(out, BUFFER_BYTES, "%.3g us", seconds * 1e6);
    return out;
}
