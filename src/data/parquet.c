// Loads the module `parquet`.
#include "data/parquet.h"

#include "base/module.h"

tri_status tri_data_parquet_load(const char *what, const tri_parquet **out) {
    const void *table;
    if (!tri_module_is_installed("parquet"))
        return TRI_FAIL(TRI_BAD_INPUT,
                        "%s: this build is without Arrow's library: run scripts/install-deps "
                        "--parquet and build again, or convert the files",
                        what);
    TRI_TRY(tri_module_load("parquet", TRI_PARQUET_INTERFACE, TRI_PARQUET_ABI, &table));
    *out = table;
    return TRI_OK;
}
