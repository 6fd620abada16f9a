// The index that Megatron writes beside a file of tokens: NAME.idx beside NAME.bin.
#ifndef TRIREME_FORMAT_MEGATRON_H
#define TRIREME_FORMAT_MEGATRON_H

#include "base/status.h"
#include "format/token_type.h"

#include <stdbool.h>
#include <stdint.h>

// Reads the type of the tokens in `path`, which has `file_bytes` bytes, from the index beside it,
// and checks that the lengths and places of all sequences in the index are those of the file. The
// index begins with "MMIDIDX", two 0 bytes, a version (I64), a code of the type (U8) and the
// numbers of sequences and documents (I64); the length (I32) and the place in bytes (I64) of each
// sequence follow, then the documents (I64) and perhaps a mode (I8) of each sequence. fairseq's
// index has no documents. *is_there: there is an index. TRI_UNSUPPORTED: another version or type;
// TRI_CORRUPT: the index is cut off, or belongs to another file; TRI_IO.
tri_status tri_megatron_read_index(const char *path, int64_t file_bytes, tri_token_type *type,
                                   bool *is_there);

#endif
