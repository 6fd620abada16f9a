// Numbers with units, as people type them: 64G, 1.5GB, 80GiB, 60e9.
#ifndef TRIREME_BASE_QUANTITY_H
#define TRIREME_BASE_QUANTITY_H

#include <stdbool.h>

// k, M, G, T and P are powers of 1000, and of 1024 as Ki, Mi, … ; a B behind them changes nothing.
// False: `text` is no such number, or a negative one.
bool tri_quantity_read(const char *text, double *out);
// "1,199,882" and "4.8 MB", in one of a few static buffers of the thread.
const char *tri_grouped(double value);
const char *tri_bytes_text(double bytes);

#endif
