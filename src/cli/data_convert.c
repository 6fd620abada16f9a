// `trireme data convert`: writes the samples of a recipe as another kind of data.
#include "cli/cli.h"
#include "cli/data_verbs.h"
#include "data/target/target.h"

tri_status cli_data_convert(const cli_arguments *a, const char *path, const tri_recipe *recipe) {
    const char *to = cli_value(a, "to"), *out = cli_value(a, "out");
    if (!to) return TRI_FAIL(TRI_BAD_INPUT, "data convert: --to is missing: the kind to write");
    if (!out) return TRI_FAIL(TRI_BAD_INPUT, "data convert: --out is missing: the folder to write");
    return tri_data_convert(&recipe->data, to, out);
}
