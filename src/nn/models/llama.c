// Llama, a decoder of a text's next token. Options and parameters have the names that Hugging
// Face's LlamaForCausalLM gives them.
#include "nn/models/models.h"

#include <trireme/nn.h>

typedef struct llama_config {
    int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers;
    int64_t num_attention_heads, num_key_value_heads, head_dim, max_position_embeddings;
    double rms_norm_eps, rope_theta, initializer_range;
    bool tie_word_embeddings, attention_bias;
} llama_config;

// Sizes that are not given are llama-tiny's; all else has Hugging Face's defaults.
static llama_config read_config(tri_graph *g) {
    llama_config c = {
        .vocab_size = tri_model_int(g, "vocab_size", 256),
        .hidden_size = tri_model_int(g, "hidden_size", 128),
        .num_hidden_layers = tri_model_int(g, "num_hidden_layers", 4),
        .num_attention_heads = tri_model_int(g, "num_attention_heads", 4),
        .max_position_embeddings = tri_model_int(g, "max_position_embeddings", 2048),
        .rms_norm_eps = tri_model_float(g, "rms_norm_eps", 1e-6),
        .rope_theta = tri_model_float(g, "rope_theta", 10000),
        .initializer_range = tri_model_float(g, "initializer_range", 0.02),
        .tie_word_embeddings = tri_model_bool(g, "tie_word_embeddings", false),
        .attention_bias = tri_model_bool(g, "attention_bias", false),
    };
    int64_t heads = c.num_attention_heads > 0 ? c.num_attention_heads : 1;
    c.intermediate_size = tri_model_int(g, "intermediate_size", 384);
    c.num_key_value_heads = tri_model_int(g, "num_key_value_heads", heads);
    c.head_dim = tri_model_int(g, "head_dim", c.hidden_size / heads);
    return c;
}

static void check_config(tri_graph *g, const llama_config *c, tri_shape ids) {
    const struct {
        const char *key;
        int64_t value;
    } positive[] = {{"vocab_size", c->vocab_size},
                    {"hidden_size", c->hidden_size},
                    {"intermediate_size", c->intermediate_size},
                    {"num_hidden_layers", c->num_hidden_layers},
                    {"num_attention_heads", c->num_attention_heads},
                    {"num_key_value_heads", c->num_key_value_heads},
                    {"head_dim", c->head_dim}};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i].value < 1 || positive[i].value > INT32_MAX) {
            tri_graph_fail(g, "model.%s must be at least 1, not %lld", positive[i].key,
                           (long long)positive[i].value);
            return;
        }
    if (c->num_attention_heads % c->num_key_value_heads)
        tri_graph_fail(g,
                       "model.num_attention_heads must be a multiple of num_key_value_heads, but "
                       "they are %lld and %lld",
                       (long long)c->num_attention_heads, (long long)c->num_key_value_heads);
    if (c->head_dim % 2)
        tri_graph_fail(g,
                       "model.head_dim is hidden_size / num_attention_heads and must be even, "
                       "not %lld",
                       (long long)c->head_dim);
    if (!(c->rms_norm_eps > 0) || !(c->rope_theta > 0) || !(c->initializer_range > 0))
        tri_graph_fail(g, "model.rms_norm_eps, rope_theta and initializer_range must be above 0");
    if (ids.rank == 2 && ids.dims[1] > c->max_position_embeddings)
        tri_graph_fail(g, "a sample has %lld tokens, but model.max_position_embeddings is %lld",
                       (long long)ids.dims[1], (long long)c->max_position_embeddings);
}

// Tensor parallelism divides the projections by heads, or by features of the MLP.
static tri_value project(tri_graph *g, const llama_config *c, const char *name, tri_value x,
                         int64_t features, bool bias, tri_split split) {
    x = tri_linear_with(
        g, name, x,
        (tri_linear_options){.features = features, .no_bias = !bias, .std = c->initializer_range});
    tri_split_layer(g, name, split);
    return x;
}

// [N, T, heads · D] as [N, T, heads, D].
static tri_value heads_of(tri_graph *g, const llama_config *c, tri_value x, int64_t heads) {
    tri_shape shape = tri_value_shape(g, x);
    return tri_reshape(g, x, tri_shape_of(shape.dims[0], shape.dims[1], heads, c->head_dim));
}

static tri_value self_attention(tri_graph *g, const llama_config *c, const char *name,
                                tri_value x) {
    int64_t heads = c->num_attention_heads, kv_heads = c->num_key_value_heads;
    bool bias = c->attention_bias;
    tri_shape shape = tri_value_shape(g, x);
    tri_value q = project(g, c, tri_name(g, "%s.q_proj", name), x, heads * c->head_dim, bias,
                          TRI_SPLIT_COLUMN);
    tri_value k = project(g, c, tri_name(g, "%s.k_proj", name), x, kv_heads * c->head_dim, bias,
                          TRI_SPLIT_COLUMN);
    tri_value v = project(g, c, tri_name(g, "%s.v_proj", name), x, kv_heads * c->head_dim, bias,
                          TRI_SPLIT_COLUMN);
    q = tri_rotary(g, heads_of(g, c, q, heads), c->rope_theta);
    k = tri_rotary(g, heads_of(g, c, k, kv_heads), c->rope_theta);
    v = heads_of(g, c, v, kv_heads);
    tri_value y = tri_attention(g, name, q, k, v, (tri_attention_options){.causal = true});
    y = tri_reshape(g, y, tri_shape_of(shape.dims[0], shape.dims[1], heads * c->head_dim));
    return project(g, c, tri_name(g, "%s.o_proj", name), y, c->hidden_size, bias, TRI_SPLIT_ROW);
}

static tri_value mlp(tri_graph *g, const llama_config *c, const char *name, tri_value x) {
    tri_value gate = project(g, c, tri_name(g, "%s.gate_proj", name), x, c->intermediate_size,
                             false, TRI_SPLIT_COLUMN);
    tri_value up = project(g, c, tri_name(g, "%s.up_proj", name), x, c->intermediate_size, false,
                           TRI_SPLIT_COLUMN);
    return project(g, c, tri_name(g, "%s.down_proj", name), tri_silu_mul(g, gate, up),
                   c->hidden_size, false, TRI_SPLIT_ROW);
}

static tri_value decoder_layer(tri_graph *g, const llama_config *c, const char *layer,
                               tri_value x) {
    const char *attention = tri_name(g, "%s.self_attn", layer), *ffn = tri_name(g, "%s.mlp", layer);
    tri_value y = tri_rms_norm(g, tri_name(g, "%s.input_layernorm", layer), x, c->rms_norm_eps);
    y = self_attention(g, c, attention, y);
    x = tri_add(g, x, tri_dropout(g, tri_name(g, "%s.dropout", attention), y, 0));
    y = tri_rms_norm(g, tri_name(g, "%s.post_attention_layernorm", layer), x, c->rms_norm_eps);
    y = mlp(g, c, ffn, y);
    return tri_add(g, x, tri_dropout(g, tri_name(g, "%s.dropout", ffn), y, 0));
}

static void llama(tri_graph *g, const tri_batch *batch) {
    llama_config c = read_config(g);
    check_config(g, &c, tri_value_shape(g, batch->input_ids));
    const char *message;
    if (tri_graph_status(g, &message) != TRI_OK) return;
    tri_block(g, "embed");
    tri_value x = tri_embedding(g, "model.embed_tokens", batch->input_ids,
                                (tri_embedding_options){.tokens = c.vocab_size,
                                                        .features = c.hidden_size,
                                                        .std = c.initializer_range});
    tri_split_layer(g, "model.embed_tokens", TRI_SPLIT_COLUMN);
    x = tri_dropout(g, "model.embed_tokens.dropout", x, 0);
    for (int64_t i = 0; i < c.num_hidden_layers; i++) {
        tri_block(g, tri_name(g, "layers.%lld", (long long)i));
        x = decoder_layer(g, &c, tri_name(g, "model.layers.%lld", (long long)i), x);
    }
    tri_block(g, "head");
    x = tri_rms_norm(g, "model.norm", x, c.rms_norm_eps);
    tri_value logits = tri_linear_with(
        g, "lm_head", x,
        (tri_linear_options){.features = c.vocab_size,
                             .no_bias = true,
                             .weight = c.tie_word_embeddings ? "model.embed_tokens.weight" : NULL,
                             .std = c.initializer_range});
    if (!c.tie_word_embeddings) tri_split_layer(g, "lm_head", TRI_SPLIT_COLUMN);
    tri_loss(g, tri_cross_entropy(g, logits, tri_next_token(g, batch->input_ids)));
}

// The length of a text is the data's; this one is where no data say it.
const tri_task tri_model_llama = {
    .name = "llama", .build = llama, .fields = {{"input_ids", TRI_I64, {1, {32}}}}};
