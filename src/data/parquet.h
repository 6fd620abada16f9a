// The module that reads and writes Parquet files.
#ifndef TRIREME_DATA_PARQUET_H
#define TRIREME_DATA_PARQUET_H

#include "format/parquet/parquet.h"

// TRI_BAD_INPUT: this build is without it; `what` needs it, such as "data.name=parquet".
tri_status tri_data_parquet_load(const char *what, const tri_parquet **out);

#endif
