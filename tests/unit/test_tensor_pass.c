// Checks the tensor-parallel pass, which rewrites a model's graph into that of one of several ranks
// that share layers: which ops it adds, what it leaves as it is, and which models it refuses. A
// layer that is split by columns makes some of the outputs on each rank; one that is split by rows
// reads some of the inputs.
#include "nn/models/models.h"
#include "pass/pass.h"
#include "plan/program.h"
#include "support/message.h"
#include "support/op_session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/functions.h>
#include <trireme/nn.h>

#include <cmocka.h>

static const tri_tensor_parallel_options as_annotated = {0};

// Returns the graph as text. Values are numbered in the order in which the text first names them.
static char *text_of(const tri_graph *g) {
    char *printed = NULL, *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&printed, &size);
    tri_graph_print(g, out);
    fclose(out);
    int *number = calloc((size_t)g->value_count, sizeof *number), count = 0;
    out = open_memstream(&text, &size);
    for (char *at = printed; *at;) {
        if (*at != '%') {
            fputc(*at++, out);
            continue;
        }
        int *mine = &number[strtoul(at + 1, &at, 10)];
        if (!*mine) *mine = ++count;
        fprintf(out, "%%%d", *mine);
    }
    fclose(out);
    free(printed);
    free(number);
    return text;
}

static tri_mesh mesh_of(int slices) {
    return (tri_mesh){.size = {[TRI_AXIS_PIPELINE] = 1,
                               [TRI_AXIS_REPLICATE] = 1,
                               [TRI_AXIS_SHARD] = 1,
                               [TRI_AXIS_TENSOR_PARALLEL] = slices},
                      .ranks = slices};
}

static tri_graph *small(int64_t hidden) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 6));
    tri_value y = tri_input(g, "targets", TRI_F32, tri_shape_of(4, 3));
    x = tri_relu(g, tri_linear(g, "fc1", x, hidden));
    tri_split_layer(g, "fc1", TRI_SPLIT_COLUMN);
    x = tri_linear(g, "fc2", x, 3);
    tri_split_layer(g, "fc2", TRI_SPLIT_ROW);
    tri_loss(g, tri_mse_loss(g, x, y));
    assert_int_equal(tri_graph_status(g, NULL), TRI_OK);
    return g;
}

// Checks what the pass makes of a layer split by columns that is followed by one split by rows.
// Before the two layers it adds one copy_to, which passes on its input, and sums the input's
// gradient over the ranks. After them it adds one all_reduce and then the bias.
static void test_print(void **state) {
    static const char want[] =
        "forward test:\n"
        "  %1 F32[4, 6] = copy_to @inputs group=0 slices=2 index=1 dim=0 maximum=false "
        "partial=false\n"
        "  %2 F32[4, 4] = linear 'fc1' %1 fc1.weight fc1.bias axes=1 wide=false\n"
        "  %3 F32[4, 4] = map %2 formula=t0=relu(in0) -> t0 mask=false\n"
        "  %4 F32[4, 3] = linear 'fc2' %3 fc2.weight axes=1 wide=true\n"
        "  %5 F32[4, 3] = all_reduce %4 group=0 slices=2 index=1 dim=0 maximum=false "
        "partial=false\n"
        "  %6 F32[4, 3] = add_bias 'fc2' %5 fc2.bias\n"
        "  %7 F64[2] = mse_loss %6 @targets\n";
    tri_graph *g = small(8), *out;
    tri_mesh mesh = mesh_of(2);
    assert_int_equal(tri_pass_tensor_parallel(NULL, g, &mesh, 1, &as_annotated, &out), TRI_OK);
    char *text = text_of(out);
    assert_string_equal(text, want);
    free(text);
    static const struct {
        int axis;
        tri_shape shape;
    } slices[] = {{0, {2, {4, 6}}}, {0, {1, {4}}}, {1, {2, {3, 4}}}, {-1, {1, {3}}}};
    for (int i = 0; i < 4; i++) {
        const tri_parameter_info *p = &out->parameters[i];
        assert_true(tri_shape_equal(&p->shape, &slices[i].shape));
        assert_int_equal(p->slice.count, slices[i].axis < 0 ? 0 : 2);
        if (slices[i].axis < 0) continue;
        assert_int_equal(p->slice.axis, slices[i].axis);
        assert_int_equal(p->slice.index, 1);
        assert_true(tri_shape_equal(&p->slice.full, &g->parameters[i].shape));
    }
    tri_graph_destroy(out);
    op_graph_close(g);
}

// With one tensor-parallel rank the graph stays the same, to the letter.
static void test_one_slice(void **state) {
    tri_mesh mesh = mesh_of(1);
    for (int m = 0; tri_models[m]; m++)
        for (int training = 0; training < 2; training++) {
            const tri_task *task = tri_models[m];
            tri_arena *arena = tri_arena_create(NULL, "test");
            tri_model_request request = {
                .task = task, .fields = task->fields, .options.training = training};
            while (request.field_count < TRI_TASK_MAX_FIELDS &&
                   task->fields[request.field_count].name)
                request.field_count++;
            tri_graph *g, *out;
            assert_int_equal(tri_model_build(arena, &request, 4, &g), TRI_OK);
            assert_int_equal(tri_pass_tensor_parallel(arena, g, &mesh, 0, &as_annotated, &out),
                             TRI_OK);
            assert_int_equal(g->gradient_count, out->gradient_count);
            if (training) {
                assert_int_equal(tri_pass_autodiff(g), TRI_OK);
                assert_int_equal(tri_pass_autodiff(out), TRI_OK);
            }
            char *a = text_of(g), *b = text_of(out);
            assert_string_equal(a, b);
            free(a);
            free(b);
            tri_arena_destroy(arena);
        }
}

static void refused(tri_graph *g, int slices, const char *layers, bool sequence,
                    const char *parts) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_tree *tree = NULL;
    tri_graph *out;
    tri_mesh mesh = mesh_of(slices);
    if (layers) assert_int_equal(tri_yaml_parse_value(arena, layers, "override", &tree), TRI_OK);
    tri_tensor_parallel_options options = {.layers = tree, .sequence_parallel = sequence};
    for (int rank = 0; rank < slices; rank++) {
        tri_status status = tri_pass_tensor_parallel(arena, g, &mesh, rank, &options, &out);
        if (status == TRI_OK) fail_msg("not refused: %s", parts);
        message_check(tri_error_message(), parts);
    }
    tri_arena_destroy(arena);
    op_graph_close(g);
}

static int count_op(const tri_graph *g, const tri_op *op) {
    int count = 0;
    for (int i = 0; i < g->node_count; i++) count += g->nodes[i].op == op;
    return count;
}

// If each rank has the scores of its own slice of the classes, the scores are not gathered. In
// training the ranks exchange three numbers for each row (the maximum and two sums), in evaluation
// one more, for the accuracy.
static void test_classes(void **state) {
    tri_graph_options evaluation = {0};
    for (int training = 0; training < 2; training++) {
        evaluation.training = training;
        tri_graph *g = tri_graph_create(NULL, &evaluation), *out;
        tri_block(g, "test");
        tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 6));
        x = tri_linear(g, "head", x, 10);
        tri_split_layer(g, "head", TRI_SPLIT_COLUMN);
        tri_loss(g, tri_cross_entropy(g, x, tri_input(g, "labels", TRI_I64, tri_shape_of(4))));
        tri_mesh mesh = mesh_of(2);
        assert_int_equal(tri_pass_tensor_parallel(NULL, g, &mesh, 1, &as_annotated, &out), TRI_OK);
        if (training) assert_int_equal(tri_pass_autodiff(out), TRI_OK);
        assert_int_equal(count_op(out, &tri_op_vocab_parallel_cross_entropy), 1);
        assert_int_equal(count_op(out, &tri_op_vocab_parallel_accuracy), !training);
        assert_int_equal(count_op(out, &tri_op_row_max), 1);
        assert_int_equal(count_op(out, &tri_op_all_reduce), training ? 2 : 3);
        assert_int_equal(count_op(out, &tri_op_all_gather), 0);
        tri_graph_destroy(g);
        tri_graph_destroy(out);
    }
}

// The output of a norm, which is cheap to compute again, is not kept for the gradient of the next
// layer's weight, whether that weight is sliced or not: the norm is computed a second time.
static void test_again(void **state) {
    tri_graph *g = op_graph_open(TRI_F32), *out;
    tri_value x = tri_linear(g, "in", tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 6)), 6);
    x = tri_rms_norm(g, "norm", x, 1e-5);
    x = tri_linear(g, "fc", x, 10);
    tri_split_layer(g, "fc", TRI_SPLIT_COLUMN);
    tri_loss(g, tri_cross_entropy(g, x, tri_input(g, "labels", TRI_I64, tri_shape_of(4))));
    tri_mesh mesh = mesh_of(2);
    assert_int_equal(tri_pass_tensor_parallel(NULL, g, &mesh, 0, &as_annotated, &out), TRI_OK);
    assert_int_equal(tri_pass_autodiff(g), TRI_OK);
    assert_int_equal(tri_pass_autodiff(out), TRI_OK);
    assert_int_equal(count_op(g, &tri_op_rms_norm), 2);
    assert_int_equal(count_op(out, &tri_op_rms_norm), 2);
    tri_graph_destroy(out);
    op_graph_close(g);
}

static tri_graph *attention(int64_t heads, int64_t keys, int64_t tokens) {
    tri_graph *g = op_graph_open(TRI_F32);
    static const char *const names[] = {"q", "k", "v"};
    tri_attention_attr attr = {.scale = 1};
    tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(2, tokens, 12)), in[3];
    for (int i = 0; i < 3; i++) {
        int64_t count = i == 0 ? heads : keys;
        in[i] = tri_linear(g, names[i], x, count * 12);
        tri_split_layer(g, names[i], TRI_SPLIT_COLUMN);
        in[i] = tri_reshape(g, in[i], tri_shape_of(2, tokens, count, 12));
    }
    x = tri_node_add(g, &tri_op_attention, in, 3, &attr, "attention");
    x = tri_linear(g, "o", tri_reshape(g, x, tri_shape_of(2, tokens, heads * 12)), 3);
    tri_split_layer(g, "o", TRI_SPLIT_ROW);
    tri_loss(g, tri_mse_loss(g, x, tri_input(g, "targets", TRI_F32, tri_value_shape(g, x))));
    assert_int_equal(tri_graph_status(g, NULL), TRI_OK);
    return g;
}

// Queries of one head that a whole layer makes of what a sliced layer has made: a reshape between
// the two gathers that, and every rank computes the attention.
static void test_gathered(void **state) {
    tri_graph *g = op_graph_open(TRI_F32), *out;
    tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(2, 4)), in[3];
    x = tri_linear(g, "up", x, 18);
    tri_split_layer(g, "up", TRI_SPLIT_COLUMN);
    x = tri_reshape(g, x, tri_shape_of(2, 3, 6));
    for (int i = 0; i < 3; i++)
        in[i] =
            tri_reshape(g, tri_linear(g, tri_name(g, "in%d", i), x, 4), tri_shape_of(2, 3, 1, 4));
    x = tri_attention(g, "attention", in[0], in[1], in[2], (tri_attention_options){0});
    tri_loss(g, tri_mse_loss(g, x, tri_input(g, "targets", TRI_F32, tri_value_shape(g, x))));
    tri_mesh mesh = mesh_of(2);
    assert_int_equal(tri_pass_tensor_parallel(NULL, g, &mesh, 1, &as_annotated, &out), TRI_OK);
    assert_int_equal(count_op(out, &tri_op_all_gather), 1);
    tri_graph_destroy(out);
    op_graph_close(g);
}

// Rows that are parts of samples, behind slices along the sequence: for one sample their axis
// begins where the sequence did, and the layer of the rows is still whole on every rank, as for
// several.
static void test_one_sample(void **state) {
    tri_tensor_parallel_options options = {.sequence_parallel = true};
    tri_mesh mesh = mesh_of(2);
    for (int64_t n = 1; n <= 3; n++) {
        tri_graph *g = op_graph_open(TRI_F32), *out;
        tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(n, 6, 4));
        x = tri_linear(g, "down", x, 4);
        tri_split_layer(g, "down", TRI_SPLIT_ROW);
        x = tri_linear(g, "rows", tri_reshape(g, x, tri_shape_of(n * 6, 4)), 2);
        x = tri_reshape(g, x, tri_shape_of(n, 6, 2));
        tri_loss(g, tri_mse_loss(g, x, tri_input(g, "targets", TRI_F32, tri_value_shape(g, x))));
        assert_int_equal(tri_pass_tensor_parallel(NULL, g, &mesh, 1, &options, &out), TRI_OK);
        assert_int_equal(count_op(out, &tri_op_all_gather), 1);
        for (int i = 0; i < out->parameter_count; i++)
            if (!strncmp(out->parameters[i].name, "rows", 4))
                assert_false(out->parameters[i].has_partial_gradient);
        tri_graph_destroy(out);
        op_graph_close(g);
    }
}

// Layers that share a weight, of which only the first two read slices along the sequence: as the
// third one reads whole tensors, all do. So does a bias of a row layer.
static void test_shared(void **state) {
    tri_tensor_parallel_options options = {.sequence_parallel = true};
    tri_mesh mesh = mesh_of(2);
    for (int others = 0; others < 2; others++) {
        tri_graph *g = op_graph_open(TRI_F32), *out;
        tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(3, 6, 4));
        tri_share_layer(g, "shared");
        tri_share_layer(g, "down");
        tri_value y = tri_linear(g, "down", x, 4);
        tri_split_layer(g, "down", TRI_SPLIT_ROW);
        for (int i = 0; i < 2; i++) y = tri_linear(g, "shared", y, 4);
        y = tri_reshape(g, y, tri_shape_of(3, 24));
        if (others) {
            tri_value flat = tri_reshape(g, x, tri_shape_of(18, 4));
            flat = tri_linear(g, "shared", tri_linear(g, "down", flat, 4), 4);
            y = tri_add(g, y, tri_reshape(g, flat, tri_shape_of(3, 24)));
        }
        tri_loss(g, tri_mse_loss(g, y, tri_input(g, "targets", TRI_F32, tri_shape_of(3, 24))));
        assert_int_equal(tri_pass_tensor_parallel(NULL, g, &mesh, 1, &options, &out), TRI_OK);
        for (int i = 0; i < out->parameter_count; i++) {
            const tri_parameter_info *p = &out->parameters[i];
            bool follows = strcmp(p->name, "down.weight") != 0; // that one is sliced
            assert_int_equal(p->has_partial_gradient, follows && !others);
        }
        tri_graph_destroy(out);
        op_graph_close(g);
    }
}

// A layer of `parts` parts of `size` features, the softmax of which is taken apart.
static tri_graph *fused(int parts, int64_t size, bool on_parts) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(2, 5, 6)), sum = {0};
    x = tri_linear(g, "qkv", x, parts * size);
    tri_split_fused_layer(g, "qkv", parts);
    x = on_parts ? tri_gelu(g, x) : tri_softmax(g, x, -1);
    for (int i = 0; i < parts; i++) {
        tri_value part =
            i % 2 ? tri_slice(g, x, 2, i * size, (i + 1) * size, 1) : tri_chunk(g, x, 2, parts, i);
        sum = i ? tri_add(g, sum, part) : part;
    }
    x = tri_linear(g, "o", sum, 3);
    tri_split_layer(g, "o", TRI_SPLIT_ROW);
    tri_loss(g, tri_mse_loss(g, x, tri_input(g, "targets", TRI_F32, tri_value_shape(g, x))));
    assert_int_equal(tri_graph_status(g, NULL), TRI_OK);
    return g;
}

// Each rank has its slice of every part of a fused layer, and what a chunk of its output is made of
// stays there. An op that reads whole rows gathers the parts.
static void test_fused(void **state) {
    tri_mesh mesh = mesh_of(2);
    for (int parts = 2; parts <= 3; parts++)
        for (int on_parts = 0; on_parts < 2; on_parts++) {
            tri_graph *g = fused(parts, 4, on_parts), *out;
            assert_int_equal(tri_pass_tensor_parallel(NULL, g, &mesh, 1, &as_annotated, &out),
                             TRI_OK);
            assert_int_equal(count_op(out, &tri_op_all_gather), !on_parts);
            assert_int_equal(count_op(out, &tri_op_all_reduce), 1);
            for (int i = 0; i < 2; i++) { // weight and bias
                const tri_parameter_info *p = &out->parameters[i];
                assert_int_equal(p->shape.dims[0], parts * 2);
                assert_true(p->slice.axis == 0 && p->slice.count == 2 && p->slice.parts == parts);
                assert_int_equal(tri_parameter_full_index(&p->slice, &p->shape, 0),
                                 i == 0 ? 2 * 6 : 2);
            }
            tri_graph_destroy(out);
            op_graph_close(g);
        }
}

static tri_graph *fused_embedding(void) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value ids = tri_input(g, "input_ids", TRI_I64, tri_shape_of(2, 3));
    tri_value x = tri_embedding(g, "wte", ids, (tri_embedding_options){.tokens = 8, .features = 4});
    tri_split_fused_layer(g, "wte", 2);
    tri_loss(g, tri_mse_loss(g, x, tri_input(g, "targets", TRI_F32, tri_value_shape(g, x))));
    return g;
}

// A weight that files have transposed: the message shows their shape and axis.
static tri_graph *transposed(void) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value x = tri_input(g, "inputs", TRI_F32, tri_shape_of(4, 6));
    x = tri_linear_with(g, "fc", x, (tri_linear_options){.features = 9, .stored_transposed = true});
    tri_split_layer(g, "fc", TRI_SPLIT_COLUMN);
    tri_loss(g, tri_mse_loss(g, x, tri_input(g, "targets", TRI_F32, tri_shape_of(4, 9))));
    return g;
}

static tri_graph *convolution(void) {
    tri_graph *g = op_graph_open(TRI_F32);
    tri_value x = tri_input(g, "images", TRI_F32, tri_shape_of(2, 2, 4, 4));
    x = tri_conv2d(g, "conv", x, (tri_conv2d_options){.channels = 4, .kernel = 1});
    tri_loss(g, tri_mse_loss(g, x, tri_input(g, "targets", TRI_F32, tri_value_shape(g, x))));
    return g;
}

static void test_refusals(void **state) {
    refused(small(8), 3, NULL, false, "fc1.weight|[8, 6]|3|axis 0");
    refused(small(9), 3, "{fc1: none, fc2: column, fc3: row}", false,
            "override|strategy.tensor|fc3");
    refused(small(8), 2, "{fc1: both}", false, "fc1|none|column|row");
    refused(small(8), 2, "[fc1]", false, "layers|none|column|row");
    refused(small(8), 2, "{fc1: [row]}", false, "fc1|none|column|row");
    refused(small(8), 2, "{fc2: column}", false, "fc2.weight|[3, 8]|2|axis 0");
    refused(small(8), 2, "{'fc?': none}", false, "no layer");
    refused(convolution(), 2, NULL, false, "tri_split_layer");
    refused(convolution(), 2, "{conv: column}", false, "conv.weight|conv2d|column");
    refused(attention(3, 3, 4), 2, NULL, false, "2 ranks|attention|3|3");
    refused(attention(6, 3, 4), 2, NULL, false, "2 ranks|attention|6|3");
    refused(fused(3, 6, true), 4, NULL, false,
            "qkv.weight|[18, 6]|4 equal slices of each of 3 parts|axis 0");
    refused(fused_embedding(), 2, NULL, false, "wte.weight|embedding|column");
    refused(transposed(), 2, NULL, false, "fc.weight|[6, 9]|2 equal slices along|axis 1");
    refused(attention(2, 2, 5), 2, NULL, true,
            "strategy.sequence_parallel|5 tokens|strategy.mesh.tensor: 2");
    tri_graph *g = small(8);
    tri_split_layer(g, "fc", TRI_SPLIT_ROW);
    const char *message = "";
    assert_int_equal(tri_graph_status(g, &message), TRI_BAD_INPUT);
    message_check(message, "tri_split_layer|fc");
    op_graph_close(g);
}

// Every element of a parameter is in exactly one slice, at the index that tri_parameter_full_index
// and tri_parameter_locate give.
static void check_slices(int axis, int slices, int parts) {
    tri_shape full = tri_shape_of(4, 6, 2);
    int64_t inner = axis == 0 ? 12 : axis == 1 ? 2 : 1, size = full.dims[axis] / slices / parts;
    int seen[48] = {0};
    for (int index = 0; index < slices; index++) {
        tri_shape shape = full;
        shape.dims[axis] /= slices;
        tri_parameter_slice slice = {
            .axis = axis, .count = slices, .index = index, .parts = parts, .full = full};
        int64_t run = tri_parameter_run(&slice, &shape), from = 0;
        assert_int_equal(run, size * inner);
        for (int64_t i = 0; i < tri_shape_count(&shape); i++) {
            int64_t at = tri_parameter_full_index(&slice, &shape, i), local, count;
            assert_int_equal(tri_parameter_locate(&slice, &shape, at, &local, &count), index);
            assert_int_equal(local, i);
            assert_int_equal(count, run - i % run);
            seen[at]++;
            assert_int_equal(at / inner % full.dims[axis] / size % slices, index);
            if (i % run == 0) from = at;
            assert_int_equal(at, from + i % run);
        }
    }
    for (int i = 0; i < 48; i++) assert_int_equal(seen[i], 1);
}

static void test_slices(void **state) {
    tri_shape full = tri_shape_of(4, 6, 2);
    for (int axis = 0; axis < 3; axis++)
        for (int slices = 1; slices <= (int)full.dims[axis]; slices++)
            for (int parts = 1; parts <= 3; parts++)
                if (full.dims[axis] % (slices * parts) == 0) check_slices(axis, slices, parts);
    tri_parameter_slice whole = {0};
    assert_int_equal(tri_parameter_full_index(&whole, &full, 47), 47);
    assert_int_equal(tri_parameter_run(&whole, &full), 48);
    int64_t local, count;
    assert_int_equal(tri_parameter_locate(&whole, &full, 7, &local, &count), 0);
    assert_true(local == 7 && count == 41);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_print),    cmocka_unit_test(test_classes),
        cmocka_unit_test(test_again),    cmocka_unit_test(test_one_slice),
        cmocka_unit_test(test_gathered), cmocka_unit_test(test_one_sample),
        cmocka_unit_test(test_shared),   cmocka_unit_test(test_fused),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_slices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
