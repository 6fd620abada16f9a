// The interface of the module `parquet`, which reads Parquet files by Arrow's C++ library. Only a
// run that reads such files loads it. The module calls no function of the program.
#ifndef TRIREME_FORMAT_PARQUET_PARQUET_H
#define TRIREME_FORMAT_PARQUET_PARQUET_H

#include "base/status.h"

#include <stdint.h>
#include <trireme/tensor.h>

enum {
    TRI_PARQUET_ABI = 1, // has to be raised with every change of this header
    TRI_PARQUET_WHY_BYTES = 512,
};
#define TRI_PARQUET_INTERFACE "parquet"

typedef struct tri_parquet_file tri_parquet_file;

// The cells of a column in one row group. Cells are numbers, or lists of numbers of one shape, or
// bytes: binary, text, or the member `bytes` of a struct, as Hugging Face stores images.
typedef struct tri_parquet_cells {
    int64_t rows;
    void *data;       // numbers: row after row; bytes: those of all rows
    int64_t *offsets; // bytes: where those of each row begin in `data`, [rows + 1]; NULL: numbers
    tri_dtype dtype;  // of numbers
    tri_shape shape;  // of the numbers of one row
} tri_parquet_cells;

// A call that fails writes the reason to why[TRI_PARQUET_WHY_BYTES]: TRI_CORRUPT (no Parquet file,
// damaged, or cells without a value), TRI_UNSUPPORTED (cells of another type, or lists of several
// shapes), TRI_IO, TRI_NO_MEMORY. One thread at a time may use a file.
typedef struct tri_parquet {
    tri_status (*open)(const char *path, tri_parquet_file **out, char *why);
    void (*close)(tri_parquet_file *file);
    int (*columns)(const tri_parquet_file *file);
    const char *(*name)(const tri_parquet_file *file, int column);
    int (*groups)(const tri_parquet_file *file);
    int64_t (*rows)(const tri_parquet_file *file, int group);
    // Reads the cells of one column and row group. `out` is released by free_cells.
    tri_status (*read)(tri_parquet_file *file, int group, int column, tri_parquet_cells *out,
                       char *why);
    void (*free_cells)(tri_parquet_cells *cells);
} tri_parquet;

#endif
