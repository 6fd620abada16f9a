// Numbers with units, as people write them: 64G, 1.5GB, 80GiB, 60e9.
#ifndef TRIREME_BASE_QUANTITY_H
#define TRIREME_BASE_QUANTITY_H

#include <stdbool.h>
#include <stdint.h>

// Reads a number. k, M, G, T and P are powers of 1000; Ki, Mi, … powers of 1024; a B at the end is
// ignored. False: `text` is not such a number, or it is negative.
bool tri_quantity_read(const char *text, double *out);
// Format numbers as "1,199,882", "4.8 MB" (10^6 bytes), "1 step" or "5,000 steps", "0.6931" (large
// values as "3.40282e+38"), and settings of time as "300 s", "0.5 s", "3 ms" or "40 us". The texts
// are in static buffers: each stays valid for at least seven more calls in the same thread.
const char *tri_grouped(double value);
const char *tri_bytes_text(double bytes);
const char *tri_counted(int64_t count, const char *noun);
const char *tri_decimal(double value);
const char *tri_seconds_text(double seconds);
// Format with three significant digits and the unit that suits: "4.20 ms", "1.67 s", "5.71 hours";
// and "312 TFLOP/s" for 3.12e14 and the unit "FLOP/s".
const char *tri_duration_text(double seconds);
const char *tri_rate_text(double value, const char *unit);

#endif
