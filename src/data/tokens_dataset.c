// The data set "tokens" (data.name): a text as a sequence of tokens, in windows of data.sequence.
#include "data/content.h"
#include "data/largest.h"
#include "data/windows.h"

// Looks at the begin of a file whose type was guessed by its name for what contradicts the guess:
// u32 that are read as u16 have a 0 at every second place. Text may be any bytes.
static tri_status check_guess(tri_arena *arena, const tri_tokens *tokens) {
    enum { LOOK = 1 << 15, FEWEST = 32 };
    int64_t count = tokens->count < LOOK ? tokens->count : LOOK;
    uint16_t *words = tri_arena_alloc(arena, (size_t)LOOK * sizeof *words);
    if (tokens->dtype != TRI_U16) return TRI_OK;
    TRI_TRY(tri_tokens_read(tokens, 0, count, words));
    bool odd = false, even = false; // a token there is not 0
    for (int64_t i = 0; i < count; i++) *(i % 2 ? &odd : &even) |= words[i] != 0;
    if (odd || !even || count < FEWEST) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "%s: every second u16 is 0, as in a file of u32: set data.dtype to u32, or to "
                    "u16 if these are its tokens",
                    tokens->path);
}

static tri_status tokens_open(tri_dataset *dataset) {
    const tri_data_options *options = dataset->options;
    tri_tokens *tokens = TRI_NEW(dataset->arena, tri_tokens);
    dataset->state = tokens;
    bool training = dataset->file_split == TRI_DATA_TRAIN;
    const char *name = tri_dataset_file(dataset);
    if (!name && training) name = options->path;
    if (!name)
        return TRI_FAIL(training ? TRI_BAD_INPUT : TRI_NOT_FOUND,
                        "data.%s is not set: the file with the tokens",
                        training ? "train" : "test");
    const char *path = name == options->path ? name : tri_dataset_path(dataset, name);
    TRI_TRY(tri_tokens_open(path, (tri_token_type)options->dtype, tokens));
    // Any file can be read as bytes, so known formats that are not text are rejected here.
    if (tokens->dtype == TRI_U8 && options->dtype == TRI_TOKENS_AUTO)
        TRI_TRY(tri_content_check(path, "tokens"));
    if (tokens->is_guessed && options->dtype == TRI_TOKENS_AUTO) {
        TRI_TRY(check_guess(dataset->arena, tokens));
        dataset->facts.guessed = path;
    }
    tri_dataset_note_file(dataset, path);
    tri_dataset_note_source(dataset, path);
    // With data.limit only a part is read.
    int64_t largest = -1;
    if (!training || options->limit == 0)
        TRI_TRY(tri_largest_token(dataset->arena, options->cache, tokens, &largest));
    return tri_windows_open(dataset, path, tokens, largest);
}

const tri_dataset_kind tri_dataset_tokens = {
    .open = tokens_open,
    .close = tri_windows_close,
    .read = tri_windows_read,
    .hint = tri_windows_hint,
    .is_text = tri_windows_is_text,
    .describe = tri_windows_describe,
};
