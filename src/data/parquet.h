// The module that reads and writes Parquet files.
#ifndef TRIREME_DATA_PARQUET_H
#define TRIREME_DATA_PARQUET_H

#include "format/parquet/parquet.h"

// TRI_BAD_INPUT: this build is without it; `what` needs it, such as "data.name=parquet".
tri_status tri_data_parquet_load(const char *what, const tri_parquet **out);
// Opens a file. TRI_BAD_INPUT, TRI_NOT_FOUND, TRI_IO, TRI_CORRUPT: the message names it.
tri_status tri_data_parquet_open(const tri_parquet *module, const char *path,
                                 tri_parquet_file **out);

#endif
