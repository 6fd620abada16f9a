// The interface of the module `parquet`, which reads and writes Parquet files by Arrow's C++
// library. Only a run that reads such files loads it. The module calls no function of the program.
#ifndef TRIREME_FORMAT_PARQUET_PARQUET_H
#define TRIREME_FORMAT_PARQUET_PARQUET_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <trireme/tensor.h>

enum {
    TRI_PARQUET_ABI = 3, // has to be raised with every change of this header
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
    bool *is_missing; // by row, of read_text: there is no text; NULL: all rows have one
    tri_dtype dtype;  // of numbers
    tri_shape shape;  // of the numbers of one row
} tri_parquet_cells;

typedef enum tri_parquet_type {
    TRI_PARQUET_NUMBERS, // a number, or lists of numbers of one shape
    TRI_PARQUET_IMAGE,   // a struct with the members `bytes` and `path`, which is missing
} tri_parquet_type;

// A column of a file that is written. dtype and shape are those of the numbers of a row.
typedef struct tri_parquet_column {
    const char *name;
    tri_parquet_type type;
    tri_dtype dtype; // not BF16, which the format does not have
    tri_shape shape;
} tri_parquet_column;

typedef struct tri_parquet_writer tri_parquet_writer;

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
    // Reads the cells of a column of text, of which some may be missing.
    tri_status (*read_text)(tri_parquet_file *file, int group, int column, tri_parquet_cells *out,
                            char *why);
    void (*free_cells)(tri_parquet_cells *cells);
    // Begins a file; the descriptor stays the caller's.
    tri_status (*create)(int fd, const tri_parquet_column *columns, int count,
                         tri_parquet_writer **out, char *why);
    // Writes a row group: cells[i] are those of column i. Only their rows, data and offsets count.
    tri_status (*write)(tri_parquet_writer *writer, const tri_parquet_cells *cells, char *why);
    // Completes the file. The writer is still to be released.
    tri_status (*finish)(tri_parquet_writer *writer, char *why);
    void (*release)(tri_parquet_writer *writer); // NULL allowed
} tri_parquet;

#endif
