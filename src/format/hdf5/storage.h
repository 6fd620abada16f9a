// What of an array lies in files. The library reads as zeros what is not there.
#ifndef TRIREME_FORMAT_HDF5_STORAGE_H
#define TRIREME_FORMAT_HDF5_STORAGE_H

#include "base/status.h"

#include <hdf5.h>

// TRI_BAD_INPUT: a part of the array was never written, and has no fill value that somebody chose;
// or it is virtual or has raw data elsewhere, of which a part is not there. Writes the reason to
// why[TRI_HDF5_WHY_BYTES].
tri_status hdf5_check_storage(hid_t array, char *why);

#endif
