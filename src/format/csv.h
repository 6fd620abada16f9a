// Tables as text (CSV, RFC 4180): a record a line, fields between delimiters. A field that begins
// with a quote ends with one, and may contain delimiters, line ends, and quotes that are doubled.
// As Python's csv does, a quote within another field is taken as it is, and blank lines are
// skipped. Lines end with LF or CR LF.
#ifndef TRIREME_FORMAT_CSV_H
#define TRIREME_FORMAT_CSV_H

#include "base/status.h"

#include <stdbool.h>

#include <stdint.h>

enum {
    TRI_CSV_MAX_RECORD_BYTES = 64 << 20,
    TRI_CSV_MAX_COLUMNS = 1 << 20,
};

// A record in a file. `text` is followed by a NUL, may be written to, and is valid until the next
// record is read. It has the record's line end; blank lines may follow it up to the next record,
// and do not matter when it is split.
typedef struct tri_csv_record {
    char *text;
    int64_t size, offset;
    int64_t line; // number of its first line, from 1
} tri_csv_record;

// Calls `visit` for the first `most` records of the open file, in order, until one call fails.
// TRI_IO; TRI_CORRUPT: a record does not end within TRI_CSV_MAX_RECORD_BYTES, or its quote is never
// closed; TRI_NO_MEMORY. Messages begin with `path`.
tri_status tri_csv_list(int fd, const char *path, char delimiter, int64_t most,
                        tri_status (*visit)(void *context, const tri_csv_record *record),
                        void *context);

// Splits a record at `text`, which has size + 1 bytes and is overwritten, into texts without
// quotes. *count: how many fields it has, of which fields[most] gets the first `most`. Returns
// NULL, or what is wrong with the record.
const char *tri_csv_split(char *text, int64_t size, char delimiter, char **fields, int most,
                          int *count);

// Reads a decimal number, with blanks around it. False: the text is no finite number.
bool tri_csv_number(const char *text, double *out);
// True if a field stands for a value that is missing: it is empty or blank, or one of NA, N/A, NaN,
// nan, null, NULL and None.
bool tri_csv_is_missing(const char *text);

#endif
