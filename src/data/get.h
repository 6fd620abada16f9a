// `trireme data get`: gets a file over HTTPS.
#ifndef TRIREME_DATA_GET_H
#define TRIREME_DATA_GET_H

#include "base/status.h"

#include <stdbool.h>

// Gets the file at `url` (https://…), checks that the SHA-256 of its bytes is `sha256` (64
// hexadecimal digits) and puts it at `path`. Until then the bytes lie at PATH.part; an interrupted
// download goes on from there. *was_there: the file was there already, so nothing was done. The
// environment variable SSL_CERT_FILE names a file of certificates to trust in place of the
// system's. TRI_BAD_INPUT: the address or the hash is malformed, or another file is at `path`;
// TRI_NOT_FOUND: the address cannot be reached; TRI_CORRUPT: the hash is another one (the bytes are
// removed); TRI_IO: the download or the writing was interrupted.
tri_status tri_data_get(const char *url, const char *sha256, const char *path, bool *was_there);

#endif
