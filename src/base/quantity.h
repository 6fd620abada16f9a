// Numbers with units, as people type them: 64G, 1.5GB, 80GiB, 60e9.
#ifndef TRIREME_BASE_QUANTITY_H
#define TRIREME_BASE_QUANTITY_H

#include <stdbool.h>

// k, M, G, T and P are powers of 1000; Ki, Mi, … powers of 1024; a B at the end is ignored.
// False: `text` is not such a number, or negative.
bool tri_quantity_read(const char *text, double *out);
// "1,199,882" and "4.8 MB". The text is valid until the thread's eighth call from then.
const char *tri_grouped(double value);
const char *tri_bytes_text(double bytes);

#endif
