// What reading and writing Parquet files share: failures of Arrow's library become a status and a
// reason of one line.
#ifndef TRIREME_FORMAT_PARQUET_INTERNAL_H
#define TRIREME_FORMAT_PARQUET_INTERNAL_H

#include "format/parquet/parquet.h"

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/util/io_util.h>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace parquet_module {

// A reason why something cannot be read; caught before it would leave the module.
struct refusal {
    tri_status status;
    std::string why;
};

[[noreturn]] inline void refuse(tri_status status, const std::string &why) {
    throw refusal{status, why};
}

inline void check(const arrow::Status &status) {
    if (status.ok()) return;
    // Damaged bytes are called errors of input, too, but have no number of the system's.
    bool is_system = arrow::internal::ErrnoFromStatus(status) != 0;
    refuse(status.IsOutOfMemory() ? TRI_NO_MEMORY
           : is_system            ? TRI_IO
                                  : TRI_CORRUPT,
           status.message());
}

template <typename T> T take(arrow::Result<T> result) {
    check(result.status());
    return std::move(result).ValueUnsafe();
}

// Runs `work`, and turns everything that it throws into a status and a reason of one line.
template <typename F> tri_status guarded(char *why, F work) {
    refusal found{TRI_OK, ""};
    try {
        work();
    } catch (const refusal &reason) {
        found = reason;
    } catch (const std::bad_alloc &) {
        found = {TRI_NO_MEMORY, "no memory"};
    } catch (const std::exception &other) {
        found = {TRI_CORRUPT, other.what()};
    }
    if (found.status == TRI_OK) return TRI_OK;
    std::snprintf(why, TRI_PARQUET_WHY_BYTES, "%s",
                  found.why.substr(0, found.why.find('\n')).c_str());
    return found.status;
}

// Functions of the interface that write.cpp has.
tri_status create(int fd, const tri_parquet_column *columns, int count, tri_parquet_writer **out,
                  char *why);
tri_status write(tri_parquet_writer *writer, const tri_parquet_cells *cells, char *why);
tri_status finish(tri_parquet_writer *writer, char *why);
void release(tri_parquet_writer *writer);

} // namespace parquet_module

#endif
