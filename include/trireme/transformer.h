// Attention with its projections, and layers of transformers, as torch.nn has them. Parameters have
// PyTorch's names and sizes, so that its state dicts fit. Sequences are [N, T, E], as in PyTorch
// with batch_first.
#ifndef TRIREME_TRANSFORMER_H
#define TRIREME_TRANSFORMER_H

#include <trireme/api.h>
#include <trireme/graph.h>
#include <trireme/nn.h>

TRI_API_BEGIN

typedef struct tri_multihead_options {
    int64_t heads; // must divide E
    bool no_bias;
    tri_attention_options attention; // mask, causal, dropout and others, of all heads
    bool own_key;  // PyTorch's add_bias_kv: a key and a value that are learned, of no element
    bool zero_key; // PyTorch's add_zero_attn: a key and a value of zeros
} tri_multihead_options;

// PyTorch's MultiheadAttention. q [N, T, E], k [N, S, kdim] and v [N, S, vdim] → [N, T, E].
// Parameters: in_proj_weight [3 · E, E], or where k or v have another width than E q_proj_weight,
// k_proj_weight [E, kdim] and v_proj_weight [E, vdim]; in_proj_bias [3 · E], out_proj.weight [E, E]
// and out_proj.bias [E]; with own_key bias_k and bias_v [1, 1, E], which all queries see. Of a
// mask, 0 hides a key, where PyTorch's True does: a key_padding_mask is one of [N, 1, 1, S]. Ranks
// that divide layers share the heads if q, k and v are one value (tri_split_fused_layer) and there
// is no further key; otherwise each computes all of them.
tri_value tri_multihead_attention(tri_graph *graph, const char *name, tri_value q, tri_value k,
                                  tri_value v, tri_multihead_options options);

typedef struct tri_transformer_options {
    int64_t heads;
    int64_t feedforward; // features between the two linear layers; 0 means 2048
    double dropout;      // of probabilities, between the linear layers, and of what is added to x
    double eps;          // of the norms; 0 means 1e-5
    bool gelu;           // in place of ReLU
    // Another activation, such as tri_silu; NULL: ReLU, or GELU.
    tri_value (*activation)(tri_graph *graph, tri_value x);
    bool norm_first; // norms stand before attention and linear layers, and not behind the sums
    bool causal;     // self-attention sees no later elements
    // Masks of self-attention, and in a decoder of attention to `memory`, as those of
    // tri_attention.
    tri_value mask, memory_mask;
} tri_transformer_options;

// PyTorch's TransformerEncoderLayer: self_attn, linear1, linear2, norm1, norm2. x [N, T, E].
tri_value tri_transformer_encoder_layer(tri_graph *graph, const char *name, tri_value x,
                                        tri_transformer_options options);
// PyTorch's TransformerDecoderLayer: self_attn, multihead_attn, linear1, linear2, norm1, norm2,
// norm3. x [N, T, E]; memory [N, S, E], what the encoder made.
tri_value tri_transformer_decoder_layer(tri_graph *graph, const char *name, tri_value x,
                                        tri_value memory, tri_transformer_options options);

// PyTorch's TransformerEncoder: `layers` layers, NAME.layers.0 and so on, each a block of this name
// (tri_block). final_norm: a layer norm NAME.norm follows, as in PyTorch's Transformer.
tri_value tri_transformer_encoder(tri_graph *graph, const char *name, tri_value x, int64_t layers,
                                  bool final_norm, tri_transformer_options options);
// PyTorch's TransformerDecoder.
tri_value tri_transformer_decoder(tri_graph *graph, const char *name, tri_value x, tri_value memory,
                                  int64_t layers, bool final_norm, tri_transformer_options options);

TRI_API_END

#endif
