// The data set "tokens" (data.name): a text as a sequence of tokens, in windows of data.sequence.
#include "data/content.h"
#include "data/largest.h"
#include "data/windows.h"

// Where zeros lie if a file has numbers of another type than it is read as: bit k of `filled` is
// set if a token i with i % 4 = k is not 0. F32 and F64 are those of small whole numbers.
static const struct {
    tri_dtype read_as;
    unsigned filled;
    const char *which, *like;
} patterns[] = {
    {TRI_U16, 0x5, "every second u16 is 0", "u32: set data.dtype to u32"},
    {TRI_U16, 0x1, "three of four u16 are 0", "64-bit numbers: write its tokens as u16 or u32"},
    {TRI_U16, 0xA, "every second u16 is 0", "F32: write its tokens as u16 or u32"},
    {TRI_U16, 0x8, "three of four u16 are 0", "F64: write its tokens as u16 or u32"},
    {TRI_U32, 0x5, "every second u32 is 0", "64-bit numbers: write its tokens as u16 or u32"},
    {TRI_U32, 0xA, "every second u32 is 0", "F64: write its tokens as u16 or u32"},
};

// Looks at the begin of a file for what contradicts the type that it is read as, which is an error
// if the type was guessed by the file's name, and a doubt if it was given. Text may be any bytes.
static tri_status check_type(tri_dataset *dataset, const tri_tokens *tokens, bool is_guessed) {
    enum { LOOK = 1 << 15, FEWEST = 32 };
    int64_t count = tokens->count < LOOK ? tokens->count : LOOK;
    bool is_wide = tokens->dtype == TRI_U32;
    uint32_t *wide = tri_arena_alloc(dataset->arena, (size_t)LOOK * sizeof *wide);
    const uint16_t *words = (const uint16_t *)wide;
    if ((tokens->dtype != TRI_U16 && !is_wide) || count < FEWEST) return TRI_OK;
    TRI_TRY(tri_tokens_read(tokens, 0, count, wide));
    unsigned filled = 0;
    for (int64_t i = 0; i < count; i++) filled |= (is_wide ? wide[i] : words[i]) ? 1u << i % 4 : 0;
    for (size_t k = 0; k < sizeof patterns / sizeof *patterns; k++) {
        if (patterns[k].read_as != tokens->dtype || patterns[k].filled != filled) continue;
        const char *line = tri_arena_printf(dataset->arena, "%s: %s, as in a file of %s",
                                            tokens->path, patterns[k].which, patterns[k].like);
        if (is_guessed)
            return TRI_FAIL(TRI_BAD_INPUT, "%s, or set data.dtype to %s if these are its tokens",
                            line, is_wide ? "u32" : "u16");
        dataset->facts.doubt = line;
    }
    return TRI_OK;
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
    bool is_guessed = tokens->is_guessed && options->dtype == TRI_TOKENS_AUTO;
    TRI_TRY(check_type(dataset, tokens, is_guessed));
    if (is_guessed) dataset->facts.guessed = path;
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
