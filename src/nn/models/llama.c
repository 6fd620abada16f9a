// The model llama, a decoder that predicts a text's next token. It builds a graph in which the
// embedding, each decoder layer and the head are a block: a group of layers that is scheduled as
// one. Options and parameters are named as in Hugging Face's LlamaForCausalLM.
#include "nn/models/models.h"

#include "base/limits.h"

#include <trireme/caches.h>
#include <trireme/more_layers.h>
#include <trireme/nn.h>

enum { ROPE_DEFAULT, ROPE_LLAMA3 };

typedef struct llama_rope_scaling {
    int rope_type;
    double factor, low_freq_factor, high_freq_factor;
    int64_t original_max_position_embeddings;
} llama_rope_scaling;

typedef struct llama_config {
    int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers;
    int64_t num_attention_heads, num_key_value_heads, head_dim, max_position_embeddings;
    double rms_norm_eps, rope_theta, initializer_range, attention_dropout, dropout;
    int64_t sliding_window, pad_token_id;
    bool tie_word_embeddings, attention_bias, qkv_bias, mlp_bias, qk_norm;
    llama_rope_scaling rope_scaling;
    const char *config;
    tri_rotary_options rope; // as tri_rotary_with takes it, and with it the tokens' spans, if any
} llama_config;

static const char *const rope_types[] = {"default", "llama3", NULL};

#define R llama_rope_scaling
static const tri_option rope_rows[] = {
    TRI_OPTION_CHOICE(R, rope_type, "default", rope_types,
                      "default: none; llama3: slow rotations become slower, for long sequences"),
    TRI_OPTION_FLOAT(R, factor, NULL, 0, 1e300, "by how much the slowest ones become slower"),
    TRI_OPTION_FLOAT(R, low_freq_factor, NULL, 0, 1e300,
                     "rotations with fewer turns within the original positions are the slow ones"),
    TRI_OPTION_FLOAT(R, high_freq_factor, NULL, 0, 1e300,
                     "rotations with more turns within them stay"),
    TRI_OPTION_INT(R, original_max_position_embeddings, NULL, 0, 1e15,
                   "tokens of a sample in the first training"),
};
#undef R

static tri_status check_rope(const void *options, const tri_tree *map) {
    const llama_rope_scaling *r = options;
    if (r->rope_type == ROPE_DEFAULT &&
        (r->factor > 0 || r->low_freq_factor > 0 || r->high_freq_factor > 0))
        return tri_tree_fail(map, "model.rope_scaling: needs a rope_type: llama3");
    if (r->rope_type == ROPE_DEFAULT ||
        (r->factor > 0 && r->low_freq_factor > 0 && r->original_max_position_embeddings > 0 &&
         r->high_freq_factor > r->low_freq_factor))
        return TRI_OK;
    return tri_tree_fail(map, "model.rope_scaling: llama3 needs factor, low_freq_factor, a larger "
                              "high_freq_factor, and original_max_position_embeddings");
}

static const tri_option_table rope_table =
    TRI_OPTION_TABLE("rope_scaling", llama_rope_scaling, rope_rows,
                     "the rotary embedding's scaling", .check = check_rope);

#define C llama_config
static const tri_option llama_rows[] = {
    TRI_OPTION_INT(C, vocab_size, "256", 1, INT32_MAX, "rows of the embedding"),
    TRI_OPTION_INT(C, hidden_size, "128", 1, INT32_MAX, "features of a token"),
    TRI_OPTION_INT(C, intermediate_size, "384", 1, INT32_MAX, "features between the MLP's layers"),
    TRI_OPTION_INT(C, num_hidden_layers, "4", 1, INT32_MAX, "layers"),
    TRI_OPTION_INT(C, num_attention_heads, "4", 1, INT32_MAX, "heads of the queries"),
    TRI_OPTION_INT(C, num_key_value_heads, "0", 0, INT32_MAX,
                   "heads of keys and values; 0: as many as of the queries"),
    TRI_OPTION_INT(C, head_dim, "0", 0, INT32_MAX,
                   "features of a head; 0: hidden_size / num_attention_heads"),
    TRI_OPTION_INT(C, max_position_embeddings, "2048", 1, 1e15, "maximal tokens per sample"),
    TRI_OPTION_FLOAT(C, rms_norm_eps, "1e-6", 1e-300, 1e300, "added under the root of a norm"),
    TRI_OPTION_FLOAT(C, rope_theta, "10000", 1e-300, 1e300, "base of the rotary embedding"),
    TRI_OPTION_FLOAT(C, initializer_range, "0.02", 1e-300, 1e300,
                     "standard deviation of the initial weights"),
    TRI_OPTION_BOOL(C, tie_word_embeddings, "false", "use the embedding as the head's weight too"),
    TRI_OPTION_BOOL(C, attention_bias, "false", "biases of the attention's projections"),
    TRI_OPTION_BOOL(C, qkv_bias, "false", "biases of q, k and v alone, as Qwen2 has them"),
    TRI_OPTION_BOOL(C, mlp_bias, "false", "biases of the MLP's layers"),
    TRI_OPTION_BOOL(C, qk_norm, "false", "RMS norms of each head's q and k, as Qwen3 has them"),
    TRI_OPTION_FLOAT(
        C, attention_dropout, "0", 0, 1,
        "rate at which the attention's probabilities are dropped, less than 1; where a "
        "recipe sets dropout to 0, this is 0, too"),
    TRI_OPTION_INT(C, sliding_window, "0", 0, 1e15,
                   "a token sees so many tokens, itself and those before it; 0: all"),
    TRI_OPTION_INT(C, pad_token_id, "-1", -1, INT32_MAX,
                   "a token whose embedding begins as 0 and is not trained; -1: none"),
    TRI_OPTION_NESTED(C, rope_scaling, llama_rope_scaling, &rope_table,
                      "the rotary embedding's scaling, for longer sequences than those of the "
                      "first training"),
    MODEL_CONFIG(C),
    MODEL_DROPOUT(C),
};
#undef C

// The options have the names of Hugging Face's config.json, so that values can be copied from
// there into a recipe. The defaults of the five sizes from vocab_size to num_attention_heads are
// the values of recipes/llama-tiny.yaml; all other defaults are Hugging Face's.
const tri_option_table model_llama_options = TRI_OPTION_TABLE(
    "llama", llama_config, llama_rows, "a decoder of text, with Hugging Face's names");

void model_llama_complete(void *options) {
    llama_config *c = options;
    if (c->num_key_value_heads == 0) c->num_key_value_heads = c->num_attention_heads;
    if (c->head_dim == 0 && c->num_attention_heads > 0)
        c->head_dim = c->hidden_size / c->num_attention_heads;
}

static llama_config read_config(tri_graph *g, tri_value spans) {
    llama_config c = {0};
    if (!model_read_options(g, &model_llama_options, &c)) return c;
    bool divides =
        c.head_dim > 0 || c.num_attention_heads < 1 || c.hidden_size % c.num_attention_heads == 0;
    model_llama_complete(&c);
    c.rope = (tri_rotary_options){.theta = c.rope_theta, .spans = spans};
    if (c.rope_scaling.rope_type == ROPE_LLAMA3) {
        c.rope.factor = c.rope_scaling.factor;
        c.rope.low_freq_factor = c.rope_scaling.low_freq_factor;
        c.rope.high_freq_factor = c.rope_scaling.high_freq_factor;
        c.rope.original_positions = c.rope_scaling.original_max_position_embeddings;
    }
    if (!divides)
        tri_graph_fail(g,
                       "model.hidden_size (%lld) must be a multiple of num_attention_heads (%lld), "
                       "unless model.head_dim is set",
                       (long long)c.hidden_size, (long long)c.num_attention_heads);
    return c;
}

static void check_config(tri_graph *g, const llama_config *c, tri_shape ids) {
    if (tri_graph_status(g, NULL) != TRI_OK) return;
    if (c->head_dim < 1) {
        tri_graph_fail(g, "model.head_dim is hidden_size / num_attention_heads and must be at "
                          "least 1");
        return;
    }
    if (c->num_hidden_layers > TRI_MAX_MODEL_BLOCKS - 2) // embedding and head are blocks too
        tri_graph_fail(g, "model.num_hidden_layers must be at most %d, not %lld",
                       TRI_MAX_MODEL_BLOCKS - 2, (long long)c->num_hidden_layers);
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
    int64_t longest = tri_cache_length(g) ? tri_cache_length(g) : ids.rank == 2 ? ids.dims[1] : 0;
    if (longest > c->max_position_embeddings)
        tri_graph_fail(g, "%s %lld tokens, but model.max_position_embeddings is %lld",
                       tri_cache_length(g) ? MODEL_TEXT_HAS : "a sample has", (long long)longest,
                       (long long)c->max_position_embeddings);
}

// Adds a linear layer, and tells by `split` how tensor-parallel ranks divide it. With column and
// row splits in turn, each rank has some heads of attention, or some hidden features of the MLP.
static tri_value project(tri_graph *g, const llama_config *c, const char *name, tri_value x,
                         int64_t features, bool bias, tri_split split) {
    x = tri_linear_with(
        g, name, x,
        (tri_linear_options){.features = features, .no_bias = !bias, .std = c->initializer_range});
    tri_split_layer(g, name, split);
    return x;
}

// Reshapes [N, T, heads · D] to [N, T, heads, D].
static tri_value heads_of(tri_graph *g, const llama_config *c, tri_value x, int64_t heads) {
    tri_shape shape = tri_value_shape(g, x);
    return tri_reshape(g, x, tri_shape_of(shape.dims[0], shape.dims[1], heads, c->head_dim));
}

// Attention to all tokens of the call or, if there are caches, of the sequences so far.
static tri_value attend(tri_graph *g, const llama_config *c, const char *name, tri_value q,
                        tri_value k, tri_value v) {
    q = tri_rotary_with(g, q, c->rope);
    k = tri_rotary_with(g, k, c->rope);
    if (tri_cache_length(g) == 0) {
        return tri_attention(g, name, q, k, v,
                             (tri_attention_options){.causal = true,
                                                     .window = c->sliding_window,
                                                     .dropout = c->attention_dropout,
                                                     .own_rate = true});
    }
    return tri_cached_attention(g, name, q, k, v, c->rope.spans,
                                (tri_cached_attention_options){.window = c->sliding_window});
}

static tri_value self_attention(tri_graph *g, const llama_config *c, const char *name,
                                tri_value x) {
    int64_t heads = c->num_attention_heads, kv_heads = c->num_key_value_heads;
    bool bias = c->attention_bias || c->qkv_bias;
    tri_shape shape = tri_value_shape(g, x);
    tri_value q = project(g, c, tri_name(g, "%s.q_proj", name), x, heads * c->head_dim, bias,
                          TRI_SPLIT_COLUMN);
    tri_value k = project(g, c, tri_name(g, "%s.k_proj", name), x, kv_heads * c->head_dim, bias,
                          TRI_SPLIT_COLUMN);
    tri_value v = project(g, c, tri_name(g, "%s.v_proj", name), x, kv_heads * c->head_dim, bias,
                          TRI_SPLIT_COLUMN);
    q = heads_of(g, c, q, heads);
    k = heads_of(g, c, k, kv_heads);
    if (c->qk_norm) {
        q = tri_rms_norm(g, tri_name(g, "%s.q_norm", name), q, c->rms_norm_eps);
        k = tri_rms_norm(g, tri_name(g, "%s.k_norm", name), k, c->rms_norm_eps);
    }
    tri_value y = attend(g, c, name, q, k, heads_of(g, c, v, kv_heads));
    y = tri_reshape(g, y, tri_shape_of(shape.dims[0], shape.dims[1], heads * c->head_dim));
    return project(g, c, tri_name(g, "%s.o_proj", name), y, c->hidden_size, c->attention_bias,
                   TRI_SPLIT_ROW);
}

static tri_value mlp(tri_graph *g, const llama_config *c, const char *name, tri_value x) {
    tri_value gate = project(g, c, tri_name(g, "%s.gate_proj", name), x, c->intermediate_size,
                             c->mlp_bias, TRI_SPLIT_COLUMN);
    tri_value up = project(g, c, tri_name(g, "%s.up_proj", name), x, c->intermediate_size,
                           c->mlp_bias, TRI_SPLIT_COLUMN);
    return project(g, c, tri_name(g, "%s.down_proj", name), tri_silu_mul(g, gate, up),
                   c->hidden_size, c->mlp_bias, TRI_SPLIT_ROW);
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

static tri_value embed(tri_graph *g, const llama_config *c, tri_value ids) {
    const tri_embedding_options table = {
        .tokens = c->vocab_size, .features = c->hidden_size, .std = c->initializer_range};
    // A text is generated without gradients.
    if (c->pad_token_id < 0 || tri_cache_length(g) > 0)
        return tri_embedding(g, "model.embed_tokens", ids, table);
    return tri_embedding_padded(g, "model.embed_tokens", ids, c->pad_token_id, table);
}

static void llama(tri_graph *g, const tri_batch *batch) {
    llama_config c = read_config(g, tri_batch_field(batch, "spans"));
    check_config(g, &c, tri_value_shape(g, batch->input_ids));
    const char *message;
    if (tri_graph_status(g, &message) != TRI_OK) return;
    tri_block(g, "embed");
    tri_value x = embed(g, &c, batch->input_ids);
    tri_split_layer(g, "model.embed_tokens", TRI_SPLIT_COLUMN);
    x = tri_dropout(g, "model.embed_tokens.dropout", x, 0);
    for (int64_t i = 0; i < c.num_hidden_layers; i++) {
        tri_block(g, tri_name(g, "layers.%lld", (long long)i));
        if (tri_graph_status(g, &message) != TRI_OK) return;
        x = decoder_layer(g, &c, tri_name(g, "model.layers.%lld", (long long)i), x);
    }
    tri_block(g, "head");
    // Of a text that is generated, only the scores of the next token are asked for.
    if (tri_cache_length(g) > 0) x = tri_last_token(g, x, c.rope.spans);
    x = tri_rms_norm(g, "model.norm", x, c.rms_norm_eps);
    tri_value logits = tri_linear_with(
        g, "lm_head", x,
        (tri_linear_options){.features = c.vocab_size,
                             .no_bias = true,
                             .weight = c.tie_word_embeddings ? "model.embed_tokens.weight" : NULL,
                             .std = c.initializer_range});
    if (!c.tie_word_embeddings) tri_split_layer(g, "lm_head", TRI_SPLIT_COLUMN);
    tri_output(g, "logits", logits);
    model_decoder_loss(g, batch, logits);
}

// The number of tokens of a text follows from the data. A plan that is made without opening the
// data assumes 32 tokens.
const tri_task tri_model_llama = {
    .name = "llama", .build = llama, .fields = {{"input_ids", TRI_I64, {1, {32}}}}};
