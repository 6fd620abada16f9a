// Reads arbitrary bytes as a table, with and without a header, by each rule for damaged records.
#include "base/tree.h"

#include <string.h>

#include "memory_file.h"
#include "read_dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tri_tree train = {.kind = TRI_TREE_SCALAR, .text = memory_file(data, size)};
    tri_tree zero = {.kind = TRI_TREE_SCALAR, .text = "0"};
    for (int way = 0; way < 8; way++) {
        const tri_data_options options = {.name = "csv",
                                          .train = &train,
                                          .header = way & 1,
                                          .delimiter = way & 2 ? ";" : ",",
                                          .missing = way & 2 ? &zero : NULL,
                                          .on_error = way & 4 ? TRI_DATA_SKIP : TRI_DATA_REFUSE};
        if (!read_dataset(&options)) TRI_ASSERT(strlen(tri_error_message()) > 0);
    }
    return 0;
}
