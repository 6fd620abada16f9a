// A model as a shared object, for test_fields.py. Its samples have fields that no built-in model
// reads: for each token a mask, a position and a label; for each sample soft labels and the field
// "extra". The test's recipe declares the fields "positions" and "extra" (data.extra_fields).
#include <trireme/trireme.h>

static void fields_net(tri_graph *g, const tri_batch *batch) {
    tri_value mask = tri_batch_field(batch, "attention_mask");
    tri_shape shape = tri_value_shape(g, batch->input_ids);
    int64_t n = shape.dims[0], tokens = shape.dims[1];
    tri_block(g, "embed");
    tri_value x = tri_embedding(g, "ids", batch->input_ids, (tri_embedding_options){11, 6, 0});
    tri_value at = tri_batch_field(batch, "positions");
    x = tri_add(g, x, tri_embedding(g, "at", at, (tri_embedding_options){5, 6, 0}));
    tri_block(g, "mix");
    tri_value parts[] = {x, tri_reshape(g, mask, tri_shape_of(n, tokens, 1))};
    x = tri_relu(g, tri_linear(g, "mix", tri_concat(g, parts, 2, 2), 8));
    tri_block(g, "head");
    tri_value each = tri_cross_entropy(g, tri_linear(g, "each", x, 4), batch->labels);
    tri_value own[] = {tri_flatten(g, x), tri_batch_field(batch, "extra")};
    tri_value all = tri_linear(g, "all", tri_concat(g, own, 2, 1), 3);
    tri_value soft = tri_binary_cross_entropy(g, all, tri_batch_field(batch, "soft_labels"));
    tri_loss(g, tri_add(g, each, tri_weighted(g, soft, 0.5)));
}

static const tri_task fields = {.name = "fields", .build = fields_net};

TRI_EXPORT_TASK(fields)
