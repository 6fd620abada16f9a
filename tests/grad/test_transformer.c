// Compares attention with projections and layers of transformers with PyTorch
// (transformer_tables.h), value and gradients, on `ref`, `cpu` and the emulated GPU; and checks the
// names and blocks of whole transformers, and what is refused.
#include "support/torch_check.h"

#include <trireme/transformer.h>

#include "grad/transformer_tables.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

// Attention of x to itself, to another value, or with a third one.
static tri_value attention(tri_graph *g, tri_value x, int others, bool no_bias, bool causal) {
    tri_multihead_options o = {.heads = 2, .no_bias = no_bias, .attention.causal = causal};
    tri_shape other = tri_shape_of(2, 5, 6);
    tri_value k = x, v = x;
    if (others > 0) k = v = tri_parameter(g, "k", other, (tri_init){0});
    if (others > 1) v = tri_parameter(g, "v", other, (tri_init){0});
    return tri_multihead_attention(g, "l", x, k, v, o);
}

// Which of the keys of x [2, 4, 6] are seen: those that are none of torch_check.h's holes.
static tri_value seen(tri_graph *g) {
    return tri_input(g, "holes", g->options.dtype, tri_shape_of(2, 1, 1, 4));
}

// Attention with keys behind those of the sequence.
static tri_value with_keys(tri_graph *g, tri_value x, tri_value k, tri_multihead_options o) {
    o.heads = 2;
    return tri_multihead_attention(g, "l", x, k, k, o);
}

// What each row of torch_transformer is here.
static tri_value layer(tri_graph *g, const char *name, tri_value x) {
#define CASE(text, value)                                                                          \
    if (!strcmp(name, text)) return value;
#define ENCODER(...)                                                                               \
    tri_transformer_encoder_layer(                                                                 \
        g, "l", x, (tri_transformer_options){.heads = 3, .feedforward = 5, __VA_ARGS__})
#define DECODER(...)                                                                               \
    tri_transformer_decoder_layer(                                                                 \
        g, "l", x, tri_parameter(g, "memory", tri_shape_of(2, 5, 4), (tri_init){0}),               \
        (tri_transformer_options){.heads = 2, .feedforward = 3, .causal = true, __VA_ARGS__})
    CASE("attention", attention(g, x, 0, false, false))
    CASE("attention without bias", attention(g, x, 0, true, false))
    CASE("attention causal", attention(g, x, 0, false, true))
    CASE("attention to another", attention(g, x, 1, false, false))
    CASE("attention of three", attention(g, x, 2, false, false))
#define KEYS(k, ...) with_keys(g, x, k, (tri_multihead_options){__VA_ARGS__})
#define OTHER(name, ...) tri_parameter(g, name, tri_shape_of(__VA_ARGS__), (tri_init){0})
    if (!strcmp(name, "attention of other widths")) {
        tri_value k = OTHER("k", 2, 5, 4), v = OTHER("v", 2, 5, 3);
        return tri_multihead_attention(g, "l", x, k, v, (tri_multihead_options){.heads = 2});
    }
    CASE("attention with an own key", KEYS(x, .own_key = true))
    CASE("attention with both keys",
         KEYS(x, .own_key = true, .zero_key = true, .attention.mask = seen(g)))
    CASE("attention with both keys, causal",
         KEYS(x, .own_key = true, .zero_key = true,
              .attention = {.mask = tri_mask(g, "x > 0", seen(g)), .causal = true}))
    CASE("attention with a zero key",
         KEYS(OTHER("k", 1, 5, 6), .zero_key = true, .attention.causal = true))
    CASE("encoder layer silu", ENCODER(.activation = tri_silu))
    CASE("encoder layer padded", ENCODER(.mask = seen(g)))
    CASE("encoder layer", ENCODER(.eps = 0))
    CASE("encoder layer gelu", ENCODER(.gelu = true))
    CASE("encoder layer norm first", ENCODER(.norm_first = true))
    CASE("encoder layer causal", ENCODER(.causal = true))
    CASE("decoder layer", DECODER(.eps = 0))
    CASE("decoder layer norm first", DECODER(.norm_first = true))
#undef CASE
    fail_msg("there is no case for %s", name);
    return x;
}

static void test_torch(void **state) {
    for (size_t i = 0; i < COUNT(torch_transformer); i++)
        torch_check_devices(&torch_transformer[i], layer, 1e-9, 1e-3);
}

static bool has(const tri_graph *g, const char *name) {
    for (int i = 0; i < g->parameter_count; i++)
        if (!strcmp(g->parameters[i].name, name)) return true;
    return false;
}

// An encoder and a decoder, as in PyTorch's Transformer, with dropout: each layer is a block.
static void test_whole(void **state) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(2, 5, 8));
    tri_value y = tri_input(g, "y", TRI_F32, tri_shape_of(2, 3, 8));
    tri_transformer_options o = {.heads = 2, .feedforward = 6, .dropout = 0.1};
    int blocks = g->block_count;
    tri_value memory = tri_transformer_encoder(g, "encoder", x, 2, true, o);
    o.memory_mask = tri_input(g, "mask", TRI_F32, tri_shape_of(2, 1, 1, 5));
    tri_value z = tri_transformer_decoder(g, "decoder", y, memory, 3, true, o);
    const char *message = "";
    if (tri_graph_status(g, &message) != TRI_OK) fail_msg("%s", message);
    tri_shape got = tri_value_shape(g, z), want = tri_shape_of(2, 3, 8);
    assert_true(tri_shape_equal(&got, &want));
    assert_int_equal(g->block_count, blocks + 5);
    assert_int_equal(g->parameter_count, 2 * 12 + 2 + 3 * 18 + 2);
    assert_true(has(g, "encoder.layers.1.self_attn.in_proj_weight"));
    assert_true(has(g, "encoder.layers.0.linear2.bias") && has(g, "encoder.norm.weight"));
    assert_true(has(g, "decoder.layers.2.multihead_attn.out_proj.bias"));
    assert_true(has(g, "decoder.layers.2.norm3.weight") && has(g, "decoder.norm.bias"));
    op_graph_close(g);
}

// See op_graph_check_refused.
#define REFUSED(words, call)                                                                       \
    do {                                                                                           \
        tri_graph *g = op_graph_open(TRI_F32);                                                     \
        tri_value x = tri_input(g, "x", TRI_F32, tri_shape_of(2, 4, 6));                           \
        tri_value y = tri_input(g, "y", TRI_F32, tri_shape_of(2, 4, 8));                           \
        (void)(call), (void)y;                                                                     \
        op_graph_check_refused(g, words);                                                          \
    } while (0)

static void test_refuses(void **state) {
    tri_multihead_options four = {.heads = 4}, two = {.heads = 2};
    tri_transformer_options o = {.heads = 3};
    REFUSED("multihead_attention l|[2, 4, 6]|4 heads",
            tri_multihead_attention(g, "l", x, x, x, four));
    tri_shape longer = tri_shape_of(2, 6, 4);
    REFUSED("multihead_attention l|[2, 6, 4]",
            tri_multihead_attention(g, "l", x, x, tri_reshape(g, x, longer), two));
    REFUSED("t.layers.0.multihead_attn",
            tri_transformer_decoder(g, "t", x, tri_flatten(g, y), 1, false, o));
    REFUSED("transformer t|layer", tri_transformer_encoder(g, "t", x, 0, false, o));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch),
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
