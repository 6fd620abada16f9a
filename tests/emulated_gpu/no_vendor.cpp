// An emulated GPU without the vendor's libraries, where their headers are not installed: every
// product is computed by our own kernel.
#include "device/cuda/module/vendor.h"

bool vendor_has_products() { return false; }
bool vendor_product(cuda_stream *, const cuda_product *, tri_status *, char *) { return false; }
