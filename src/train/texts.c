// How many tokens of texts that are generated a call takes.
#include "train/texts.h"

#include "nn/exported/exported.h"

tri_status train_settle_texts(const tri_task *task, train_texts *texts) {
    const nn_exported *network = nn_exported_of(task);
    if (!network) return TRI_OK;
    int64_t most, least = texts->length - 1, fixed = nn_exported_text_length(network, &most);
    if (most > 0 && most < least)
        return TRI_FAIL(
            TRI_BAD_INPUT,
            "%s: a text has at most %lld tokens, and the longest prompt with the tokens "
            "to come %lld: ask for fewer (--max-new-tokens), or export it for longer "
            "texts",
            nn_exported_file(network)->path, (long long)most, (long long)least);
    texts->are_whole = true;
    texts->piece = fixed > 0 ? fixed : least > 2 ? least : 2;
    return TRI_OK;
}
