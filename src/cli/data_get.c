// `trireme data get`: gets a file over HTTPS.
#include "data/get.h"

#include "cli/cli.h"
#include "cli/data_verbs.h"

#include <stdio.h>

tri_status cli_data_get(const cli_arguments *a) {
    const char *sha256 = cli_value(a, "sha256"), *out = cli_value(a, "out");
    bool was_there;
    if (a->count != 2) return TRI_FAIL(TRI_BAD_INPUT, "data get: name one address: https://…");
    if (!sha256)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "data get: --sha256 is missing: the file's hash, which its page gives");
    if (!out) return TRI_FAIL(TRI_BAD_INPUT, "data get: --out is missing: the file to write");
    TRI_TRY(tri_data_get(a->words[1], sha256, out, &was_there));
    printf("%s: %s\n", out, was_there ? "is there already" : "complete");
    return TRI_OK;
}
