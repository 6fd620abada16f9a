// Reads arbitrary bytes as the index that Megatron writes beside a file of tokens, for a file of
// the size that the last sequence asks for.
#include "base/little_endian.h"
#include "base/status.h"
#include "format/megatron.h"

#include <string.h>

#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 34, CODE_AT = 17 };

// Where the last sequence of an index with documents ends.
static int64_t end_of(const uint8_t *data, size_t size) {
    uint64_t sequences = size >= HEAD ? tri_le64(data + 18) : 0;
    if (sequences == 0 || sequences > (size - HEAD) / 12) return 0;
    uint64_t length = tri_le32(data + HEAD + (sequences - 1) * 4);
    uint64_t place = tri_le64(data + HEAD + sequences * 4 + (sequences - 1) * 8);
    uint64_t width = data[CODE_AT] == 8 ? 2 : data[CODE_AT] == 4 ? 4 : 1;
    return place < 1u << 31 ? (int64_t)(place + length * width) : 0;
}

static char folder[] = "/tmp/trireme-fuzz-XXXXXX", index_path[64], path[64];

static void remove_folder(void) {
    unlink(index_path);
    rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *bytes = memory_file(data, size);
    if (!*path) {
        TRI_ASSERT(mkdtemp(folder));
        snprintf(index_path, sizeof index_path, "%s/t.idx", folder);
        snprintf(path, sizeof path, "%s/t.bin", folder);
        TRI_ASSERT(symlink(bytes, index_path) == 0 && atexit(remove_folder) == 0);
    }
    const int64_t sizes[] = {0, end_of(data, size)};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        tri_token_type type = TRI_TOKENS_AUTO;
        bool is_there;
        tri_status status = tri_megatron_read_index(path, sizes[i], &type, &is_there);
        TRI_ASSERT(status == TRI_OK || strstr(tri_error_message(), index_path));
        TRI_ASSERT(status != TRI_OK || is_there == (type != TRI_TOKENS_AUTO));
    }
    return 0;
}
