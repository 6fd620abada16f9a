// The model gpt2, a decoder that predicts a text's next token (Radford and others 2019). Embedding,
// layers and head are a block each. Options, parameters and initial weights are those of Hugging
// Face's GPT2LMHeadModel.
#include "nn/models/models.h"

#include "base/limits.h"

#include <math.h>
#include <trireme/caches.h>
#include <trireme/functions.h>
#include <trireme/nn.h>

typedef struct gpt2_config {
    int64_t vocab_size, n_positions, n_embd, n_layer, n_head, n_inner;
    double resid_pdrop, embd_pdrop, attn_pdrop, layer_norm_epsilon, initializer_range, dropout;
    int activation_function;
    bool scale_attn_weights, scale_attn_by_inverse_layer_idx, tie_word_embeddings;
    const char *config;
    tri_value spans; // where the tokens stand in their sequences, if the graph has caches
} gpt2_config;

enum { GELU_NEW, GELU, RELU, GELU_PYTORCH_TANH };
static const char *const activations[] = {"gelu_new", "gelu", "relu", "gelu_pytorch_tanh", NULL};

#define C gpt2_config
static const tri_option rows[] = {
    TRI_OPTION_INT(C, vocab_size, "50257", 1, INT32_MAX, "rows of the embedding"),
    TRI_OPTION_INT(C, n_positions, "1024", 1, INT32_MAX, "maximal tokens per sample"),
    TRI_OPTION_INT(C, n_embd, "768", 1, INT32_MAX / 4, "features of a token"),
    TRI_OPTION_INT(C, n_layer, "12", 1, TRI_MAX_MODEL_BLOCKS - 2, "layers"),
    TRI_OPTION_INT(C, n_head, "12", 1, INT32_MAX, "heads of the attention"),
    TRI_OPTION_INT(C, n_inner, "0", 0, INT32_MAX,
                   "features between the MLP's layers; 0 or null: 4 * n_embd"),
    TRI_OPTION_CHOICE(C, activation_function, "gelu_new", activations,
                      "between the MLP's layers; gelu_new and gelu_pytorch_tanh: GELU by tanh"),
    TRI_OPTION_FLOAT(C, resid_pdrop, "0.1", 0, 1,
                     "rate at which what a layer adds to its input is dropped; less than 1"),
    TRI_OPTION_FLOAT(C, embd_pdrop, "0.1", 0, 1,
                     "rate at which the sum of the embeddings is dropped; less than 1"),
    TRI_OPTION_FLOAT(C, attn_pdrop, "0.1", 0, 1,
                     "rate at which the attention's probabilities are dropped; less than 1"),
    TRI_OPTION_FLOAT(C, layer_norm_epsilon, "1e-5", 1e-300, 1e300,
                     "added under the root of a norm"),
    TRI_OPTION_FLOAT(C, initializer_range, "0.02", 1e-300, 1e300,
                     "standard deviation of the initial weights; of the last weights of attention "
                     "and MLP, this / sqrt(2 * n_layer)"),
    TRI_OPTION_BOOL(C, scale_attn_weights, "true",
                    "divide scores by the root of a head's features"),
    TRI_OPTION_BOOL(C, scale_attn_by_inverse_layer_idx, "false",
                    "divide scores by the number of the layer, from 1, too"),
    TRI_OPTION_BOOL(C, tie_word_embeddings, "true", "use the embedding as the head's weight too"),
    MODEL_DROPOUT(C),
    MODEL_CONFIG(C),
};
#undef C

const tri_option_table model_gpt2_options =
    TRI_OPTION_TABLE("gpt2", gpt2_config, rows,
                     "a decoder of text, with Hugging Face's names; the defaults are GPT-2 small");

void model_gpt2_complete(void *options) {
    gpt2_config *c = options;
    if (c->n_inner == 0) c->n_inner = 4 * c->n_embd;
    if (c->activation_function == GELU_PYTORCH_TANH) c->activation_function = GELU_NEW;
}

static bool fits(tri_graph *g, const gpt2_config *c, tri_shape ids) {
    if (c->n_embd % c->n_head)
        tri_graph_fail(g, "model.n_embd (%lld) must be a multiple of model.n_head (%lld)",
                       (long long)c->n_embd, (long long)c->n_head);
    int64_t longest = tri_cache_length(g) ? tri_cache_length(g) : ids.rank == 2 ? ids.dims[1] : 0;
    if (longest > c->n_positions)
        tri_graph_fail(g, "%s %lld tokens, but model.n_positions is %lld",
                       tri_cache_length(g) ? MODEL_TEXT_HAS : "a sample has", (long long)longest,
                       (long long)c->n_positions);
    return tri_graph_status(g, NULL) == TRI_OK;
}

static tri_value norm(tri_graph *g, const gpt2_config *c, const char *name, tri_value x) {
    return tri_layer_norm(g, name, x, (tri_layer_norm_options){.eps = c->layer_norm_epsilon});
}

// A layer that Hugging Face calls Conv1D: a linear one whose weight files have transposed.
static tri_value conv1d(tri_graph *g, const char *name, tri_value x, int64_t features, double std) {
    return tri_linear_with(
        g, name, x,
        (tri_linear_options){.features = features, .std = std, .stored_transposed = true});
}

static double last_std(const gpt2_config *c) {
    return c->initializer_range / sqrt(2 * (double)c->n_layer);
}

// Attention to all tokens of the call or, if there are caches, of the sequences so far.
static tri_value attend(tri_graph *g, const gpt2_config *c, const char *name, int64_t number,
                        const tri_value qkv[3]) {
    double scale = c->scale_attn_weights ? 1 / sqrt((double)(c->n_embd / c->n_head)) : 1;
    if (c->scale_attn_by_inverse_layer_idx) scale /= (double)(number + 1);
    if (tri_cache_length(g) > 0)
        return tri_cached_attention(g, name, qkv[0], qkv[1], qkv[2], c->spans,
                                    (tri_cached_attention_options){.scale = scale});
    return tri_attention(
        g, name, qkv[0], qkv[1], qkv[2],
        (tri_attention_options){.causal = true, .scale = scale, .dropout = c->attn_pdrop});
}

static tri_value self_attention(tri_graph *g, const gpt2_config *c, const char *name,
                                int64_t number, tri_value x) {
    const char *qkv = tri_name(g, "%s.c_attn", name), *proj = tri_name(g, "%s.c_proj", name);
    tri_shape shape = tri_value_shape(g, x);
    tri_value y = conv1d(g, qkv, x, 3 * c->n_embd, c->initializer_range), heads[3];
    tri_split_fused_layer(g, qkv, 3);
    for (int i = 0; i < 3; i++)
        heads[i] = tri_reshape(
            g, tri_chunk(g, y, 2, 3, i),
            tri_shape_of(shape.dims[0], shape.dims[1], c->n_head, c->n_embd / c->n_head));
    y = tri_reshape(g, attend(g, c, name, number, heads), shape);
    y = conv1d(g, proj, y, c->n_embd, last_std(c));
    tri_split_layer(g, proj, TRI_SPLIT_ROW);
    return tri_dropout(g, tri_name(g, "%s.resid_dropout", name), y, c->resid_pdrop);
}

static tri_value mlp(tri_graph *g, const gpt2_config *c, const char *name, tri_value x) {
    static tri_value (*const functions[])(tri_graph *, tri_value) = {
        [GELU_NEW] = tri_gelu_tanh, [GELU] = tri_gelu, [RELU] = tri_relu};
    const char *fc = tri_name(g, "%s.c_fc", name), *proj = tri_name(g, "%s.c_proj", name);
    x = functions[c->activation_function](g, conv1d(g, fc, x, c->n_inner, c->initializer_range));
    x = conv1d(g, proj, x, c->n_embd, last_std(c));
    tri_split_layer(g, fc, TRI_SPLIT_COLUMN);
    tri_split_layer(g, proj, TRI_SPLIT_ROW);
    return tri_dropout(g, tri_name(g, "%s.dropout", name), x, c->resid_pdrop);
}

static tri_value decoder_layer(tri_graph *g, const gpt2_config *c, int64_t number, tri_value x) {
    const char *name = tri_name(g, "transformer.h.%lld", (long long)number);
    tri_value y = norm(g, c, tri_name(g, "%s.ln_1", name), x);
    x = tri_add(g, x, self_attention(g, c, tri_name(g, "%s.attn", name), number, y));
    y = norm(g, c, tri_name(g, "%s.ln_2", name), x);
    return tri_add(g, x, mlp(g, c, tri_name(g, "%s.mlp", name), y));
}

// The sum of the embeddings of the tokens and of their positions. Padding behind the last position
// that there is has that one.
static tri_value embed(tri_graph *g, const gpt2_config *c, tri_value ids) {
    tri_embedding_options table = {.features = c->n_embd, .std = c->initializer_range};
    table.tokens = c->vocab_size;
    tri_value x = tri_embedding(g, "transformer.wte", ids, table);
    // The vocabulary of OpenAI's models, 50257 tokens, divides by no usual number of ranks.
    if (c->vocab_size % 2 == 0) tri_split_layer(g, "transformer.wte", TRI_SPLIT_COLUMN);
    // The constant has one size for calls with any number of tokens.
    tri_value positions =
        tri_slice(g, tri_arange(g, c->n_positions), 0, 0, tri_value_shape(g, ids).dims[1], 1);
    if (tri_cache_length(g) > 0)
        positions = tri_map(
            g, tri_name(g, "first, i -> min(first + i, %lld)", (long long)c->n_positions - 1),
            tri_slice(g, c->spans, 1, 0, 1, 1), positions);
    table.tokens = c->n_positions;
    x = tri_add(g, x, tri_embedding(g, "transformer.wpe", positions, table));
    return tri_dropout(g, "transformer.drop", x, c->embd_pdrop);
}

static void gpt2(tri_graph *g, const tri_batch *batch) {
    gpt2_config c = {0};
    if (!model_read_options(g, &model_gpt2_options, &c)) return;
    model_gpt2_complete(&c);
    c.spans = tri_batch_field(batch, "spans");
    if (!fits(g, &c, tri_value_shape(g, batch->input_ids))) return;
    tri_block(g, "embed");
    tri_value x = embed(g, &c, batch->input_ids);
    for (int64_t i = 0; i < c.n_layer && tri_graph_status(g, NULL) == TRI_OK; i++) {
        tri_block(g, tri_name(g, "h.%lld", (long long)i));
        x = decoder_layer(g, &c, i, x);
    }
    tri_block(g, "head");
    // Of a text that is generated, only the scores of the next token are asked for.
    if (tri_cache_length(g) > 0) x = tri_last_token(g, x, c.spans);
    x = norm(g, &c, "transformer.ln_f", x);
    tri_value logits = tri_linear_with(
        g, "lm_head", x,
        (tri_linear_options){.features = c.vocab_size,
                             .no_bias = true,
                             .weight = c.tie_word_embeddings ? "transformer.wte.weight" : NULL,
                             .std = c.initializer_range});
    if (!c.tie_word_embeddings && c.vocab_size % 2 == 0)
        tri_split_layer(g, "lm_head", TRI_SPLIT_COLUMN);
    tri_output(g, "logits", logits);
    model_decoder_loss(g, batch, logits);
}

const tri_task tri_model_gpt2 = {
    .name = "gpt2", .build = gpt2, .fields = {{"input_ids", TRI_I64, {1, {32}}}}};
