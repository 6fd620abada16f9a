// Finds the token that ends a document.
#include "base/tree.h"
#include "format/tokenizer/parts.h"

#include <stdlib.h>
#include <string.h>

// The special tokens that usually end a document, the most specific names first.
static const char *const usual[] = {"<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>",
                                    "<|eos|>",         "[EOS]",         "[SEP]"};

tri_status tokenizer_read_beside(const tri_tokenizer *t, tri_arena *arena, const char *name,
                                 tri_tree **out) {
    const char *slash = strrchr(t->path, '/');
    int folder = slash ? (int)(slash + 1 - t->path) : 0;
    tri_status status =
        tri_json_read_file(arena, tri_arena_printf(arena, "%.*s%s", folder, t->path, name), out);
    if (status == TRI_NOT_FOUND) *out = NULL;
    return status == TRI_NOT_FOUND ? TRI_OK : status;
}

// eos_token is a text or {"content": text}; eos_token_id a number or a list of numbers.
static tri_status read_files(const tri_tokenizer *t, tri_arena *arena, uint32_t *id, bool *found) {
    tri_tree *root;
    int64_t number;
    TRI_TRY(tokenizer_read_beside(t, arena, "tokenizer_config.json", &root));
    const tri_tree *token = tri_tree_get(root, "eos_token");
    if (token && token->kind == TRI_TREE_MAP) token = tri_tree_get(token, "content");
    if (token && token->kind == TRI_TREE_SCALAR) {
        *found = tri_tokenizer_find(t, token->text, id);
        if (*found) return TRI_OK;
        return tri_tree_fail(token, "its eos_token '%s' is no token of %s", token->text, t->path);
    }
    TRI_TRY(tokenizer_read_beside(t, arena, "config.json", &root));
    token = tri_tree_get(root, "eos_token_id");
    if (token && token->kind == TRI_TREE_LIST && token->count > 0) token = token->items[0];
    if (!token || !tri_tree_to_int(token, &number)) return TRI_OK;
    *found = number >= 0 && number < t->size;
    *id = (uint32_t)number;
    if (*found) return TRI_OK;
    return tri_tree_fail(token, "its eos_token_id %lld is no token of %s", (long long)number,
                         t->path);
}

static bool find_usual(const tri_tokenizer *t, uint32_t *id) {
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        for (int j = 0; j < t->added_count; j++) {
            tokenizer_string text = t->added[j].text;
            *id = t->added[j].id;
            if (t->added[j].is_special && text.size == strlen(usual[i]) &&
                !memcmp(text.data, usual[i], text.size))
                return true;
        }
    return false;
}

tri_status tri_tokenizer_end(const tri_tokenizer *t, uint32_t *id) {
    bool found = t->end >= 0;
    *id = (uint32_t)t->end;
    if (found) return TRI_OK;
    if (!t->sentencepiece) {
        tri_arena *arena = tri_arena_create(NULL, "configuration");
        tri_status status = read_files(t, arena, id, &found);
        tri_arena_destroy(arena);
        TRI_TRY(status);
        if (found || find_usual(t, id)) return TRI_OK;
    }
    return TRI_FAIL(TRI_NOT_FOUND,
                    "%s: no token is known to end a document: tokenizer_config.json beside it has "
                    "to name the eos_token",
                    t->path);
}
