// Loads the module `parquet`, and opens files by it.
#include "data/parquet.h"

#include "base/module.h"
#include "base/os.h"
#include "data/content.h"

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

tri_status tri_data_parquet_open(const tri_parquet *module, const char *path,
                                 tri_parquet_file **out) {
    char why[TRI_PARQUET_WHY_BYTES];
    int fd;
    TRI_TRY(tri_os_check_file(path));
    TRI_TRY(tri_content_check(path, "parquet"));
    TRI_TRY(tri_os_open_input(path, &fd)); // the library says less about what is wrong
    tri_os.close(fd);
    tri_status status = module->open(path, out, why);
    return status == TRI_OK ? TRI_OK : TRI_FAIL(status, "%s: %s", path, why);
}
