// Says which of the vendor's libraries cannot be used. Without them a run goes on, many times
// slower.
#include "device/cuda/module/vendor.h"

#include <stdio.h>

void vendor_list_missing(char text[CUDA_WHY_BYTES]) {
    std::string list;
#if !defined(__HIP__) // AMD's libraries are not called yet
    const struct {
        const char *name, *file;
        bool is_there;
    } libraries[] = {{"cuBLASLt", "cublasLt", vendor_has_products()},
                     {"cuDNN", "cudnn", vendor_has_dnn()}};
    for (const auto &library : libraries)
        if (!library.is_there)
            list += (list.empty() ? "" : " and ") + std::string(library.name) + " (" +
                    vendor_reason(library.file) + ")";
#endif
    snprintf(text, CUDA_WHY_BYTES, "%s", list.c_str());
}
