// Reads arbitrary bytes as a tokenizer.json or tokenizer.model, and uses it on a text: the second
// half of the bytes, and words that repeat a character.
#include "base/status.h"
#include "format/tokenizer/tokenizer.h"

#include <string.h>

#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const tri_tokenizer *tokenizer, const char *text, size_t size) {
    tri_token_encoder *encoder;
    tri_token_ids ids = {0};
    const char *decoded;
    TRI_ASSERT(tri_token_encoder_create(tokenizer, &encoder) == TRI_OK);
    if (tri_token_encode(encoder, text, size, &ids) == TRI_OK) {
        for (size_t i = 0; i < ids.count; i++)
            TRI_ASSERT(ids.ids[i] < tri_tokenizer_size(tokenizer));
        // A vocabulary may leave out numbers that its other parts name.
        (void)tri_token_decode(encoder, ids.ids, ids.count, &decoded, &size);
    }
    free(ids.ids);
    tri_token_encoder_destroy(encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { LONG = 4096 };
    const char *path = memory_file(data, size);
    tri_tokenizer *tokenizer;
    char word[LONG];
    if (tri_tokenizer_open(path, &tokenizer) != TRI_OK) {
        TRI_ASSERT(!tokenizer && *tri_error_message());
        return 0;
    }
    size_t half = size / 2;
    use(tokenizer, (const char *)data + half, size - half < LONG ? size - half : LONG);
    memset(word, 'a', sizeof word);
    use(tokenizer, word, sizeof word);
    tri_tokenizer_close(tokenizer);
    return 0;
}
