// Reads arbitrary bytes as a file of tokens, once for each type that tokens may have.
#include "base/status.h"
#include "format/tokens.h"

#include <string.h>

#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = memory_file(data, size);
    for (tri_token_type type = TRI_TOKENS_AUTO; type <= TRI_TOKENS_U32; type++) {
        tri_tokens tokens;
        if (tri_tokens_open(path, type, &tokens) != TRI_OK) {
            TRI_ASSERT(strstr(tri_error_message(), path) && !tokens.path);
            continue;
        }
        size_t bytes = (size_t)tokens.count * tri_dtype_bytes(tokens.dtype);
        TRI_ASSERT(tokens.count > 0 && bytes <= size);
        TRI_ASSERT((size_t)tokens.offset + bytes == size);
        uint32_t most, last;
        TRI_ASSERT(tri_tokens_largest(&tokens, 0, tokens.count, &most) == TRI_OK);
        TRI_ASSERT(tri_tokens_largest(&tokens, tokens.count - 1, 1, &last) == TRI_OK);
        TRI_ASSERT(last <= most);
        tri_tokens_hint(&tokens, tokens.count / 2, tokens.count - tokens.count / 2);
        tri_tokens_close(&tokens);
    }
    return 0;
}
