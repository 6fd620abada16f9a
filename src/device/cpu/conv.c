// Convolutions by oneDNN, and the rules that choose between these and our own kernels.
//
// The home layout of a weight [O, C/groups, kh, kw], in which the weight and its gradient are kept,
// is a function of its shape (C input channels, O output channels). Each line has the shape, the
// home layout with the layouts of x and y, and the kernel that uses them or the kernel's file:
//   groups 1, C and O multiples of 16   OIhw16i16o, x and y nChw16c            ("blocked")
//   groups 1, C ≤ 3, O a multiple of 16 Ohwi16o, x plain, y nChw16c            ("blocked")
//   groups 1, C a multiple of 16, O = 1 plain, x nChw16c, y plain              (conv_one_output.c)
//   more groups, not one for each channel: weight plain, x and y nChw16c where C and O are
//     multiples of 16; oneDNN computes in layouts of its choice                ("grouped")
//   everything else                     plain, by im2col and GEMM              ("plain")
// Blocked convolutions need AVX-512; without it everything is plain.
//
// Convolutions use Winograd's F(4×4, 3×3) if the kernel is 3×3 with stride and dilation 1, one
// group and padding at most 1, C and O are multiples of 16 and the output is at least 8×8, unless
// the attribute `direct` forbids it. The kernels for this are our own (winograd.c,
// winograd_grad_weight.c), for AVX-512, with blocked layouts, and for AVX2, with plain ones. There
// is one exception: with AVX-512 and an oneDNN that has Winograd (oneDNN 2), the gradient of a
// weight with C · O > 96 · 96 is computed by oneDNN, because it is up to a fifth faster there.
//
// In a deterministic run our own kernels always compute Winograd's algorithm.
//
// BF16 needs AVX512_BF16. Winograd's products of BF16 are F32, which is faster than direct products
// of BF16 unless the CPU has AMX; there BF16 never uses Winograd. The weights of direct
// convolutions have the layouts above with pairs of input channels innermost or, for the gradient
// of the input, pairs of output channels. The gradient of a weight is F32, in the home layout.
#include "device/cpu/conv.h"
#include "device/cpu/product_map.h"

#include <stdlib.h>
#include <string.h>

enum { WINOGRAD_MIN_OUTPUT = 8 }; // least height and width of an output for which Winograd is used

static conv_shape shape_of(const tri_conv2d_attr *attr, const tri_shape *x, const tri_shape *weight,
                           const tri_shape *y) {
    conv_shape s = {.groups = attr->groups};
    s.n = x->dims[0];
    s.c = x->dims[1];
    s.o = y->dims[1];
    for (int i = 0; i < 2; i++) {
        s.in[i] = x->dims[2 + i];
        s.out[i] = y->dims[2 + i];
        s.kernel[i] = weight->dims[2 + i];
        s.stride[i] = attr->stride[i];
        s.padding[i] = attr->padding[i];
        s.dilation[i] = attr->dilation[i];
    }
    s.direct = attr->direct;
    return s;
}

conv_shape conv_shape_of_node(const tri_graph *graph, const tri_node *node) {
    const tri_conv2d_grad_attr *attr = node->attr;
    const tri_shape *a = cpu_in_shape(graph, node, 0), *b = cpu_in_shape(graph, node, 1);
    conv_shape s;
    if (node->op == &tri_op_conv2d)
        s = shape_of(node->attr, a, b, cpu_out_shape(graph, node, 0));
    else if (node->op == &tri_op_conv2d_grad_input)
        s = shape_of(&attr->conv, &attr->shape, b, a);
    else
        s = shape_of(&attr->conv, a, &attr->shape, b);
    s.dtype = tri_value_get(graph, node->inputs[0])->dtype;
    return s;
}

bool conv_is_winograd(const conv_shape *s) {
    bool fits = !s->direct && (s->dtype == TRI_F32 || s->dtype == TRI_BF16) && s->groups == 1 &&
                s->c % CPU_BLOCK == 0 && s->o % CPU_BLOCK == 0;
    for (int i = 0; i < 2; i++)
        fits = fits && s->kernel[i] == 3 && s->stride[i] == 1 && s->dilation[i] == 1 &&
               s->padding[i] <= 1 && s->out[i] >= WINOGRAD_MIN_OUTPUT;
    return fits;
}

bool conv_node_is_winograd(const tri_graph *graph, const tri_node *node) {
    conv_shape s = conv_shape_of_node(graph, node);
    return conv_is_winograd(&s);
}

conv_formats conv_formats_of(const conv_shape *s) {
    if (s->groups != 1 || s->o % CPU_BLOCK) return (conv_formats){0};
    if (s->c % CPU_BLOCK == 0) return (conv_formats){CPU_NCHW16C, CPU_OIHW16I16O, CPU_NCHW16C};
    if (s->c <= 3) return (conv_formats){CPU_PLAIN, CPU_OHWI16O, CPU_NCHW16C};
    return (conv_formats){0};
}

// Describes the tensors of a convolution to oneDNN. Weight and bias are F32 in the task that
// computes their gradient; in other tasks they have the type of x. The caller releases the
// descriptions with mds_release, also after a failure.
static tri_status mds_of(const conv_request *request, onednn_convolution *out) {
    static const conv_formats any = {CPU_ANY, CPU_ANY, CPU_ANY};
    const conv_shape *s = &request->shape;
    conv_formats formats = request->any ? any : request->formats;
    int64_t x[] = {s->n, s->c, s->in[0], s->in[1]}, y[] = {s->n, s->o, s->out[0], s->out[1]};
    int64_t grouped[] = {s->groups, s->o / s->groups, s->c / s->groups, s->kernel[0], s->kernel[1]};
    int64_t plain[] = {s->o, s->c, s->kernel[0], s->kernel[1]};
    tri_dtype weight_dtype = request->task == CONV_GRAD_WEIGHT ? TRI_F32 : s->dtype;
    TRI_TRY(cpu_format_md(formats.x, s->dtype, 4, x, &out->x));
    TRI_TRY(cpu_format_md(formats.y, s->dtype, 4, y, &out->y));
    if (s->groups > 1)
        TRI_TRY(cpu_format_md(formats.weight, weight_dtype, 5, grouped, &out->weight));
    else
        TRI_TRY(cpu_format_md(formats.weight, weight_dtype, 4, plain, &out->weight));
    if (s->groups > 1)
        TRI_TRY(cpu_format_md(CPU_ANY, s->dtype, 5, grouped, &out->forward_weight));
    else
        TRI_TRY(cpu_format_md(CPU_ANY, s->dtype, 4, plain, &out->forward_weight));
    if (request->bias) TRI_TRY(cpu_format_md(CPU_PLAIN, weight_dtype, 1, &s->o, &out->bias));
    return TRI_OK;
}

static void mds_release(onednn_convolution *c) {
    onednn_md all[] = {c->x, c->weight, c->forward_weight, c->bias, c->y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) onednn_md_destroy(all[i]);
}

tri_status conv_outer_md(const conv_request *request, int i, onednn_md *out) {
    conv_request outer = *request;
    onednn_convolution c = {0};
    outer.any = false;
    tri_status status = mds_of(&outer, &c);
    onednn_md *const mds[][3] = {[CONV_FORWARD] = {&c.x, &c.weight, &c.y},
                                 [CONV_GRAD_INPUT] = {&c.y, &c.weight, &c.x},
                                 [CONV_GRAD_WEIGHT] = {&c.x, &c.y, &c.weight}};
    *out = *mds[request->task][i];
    *mds[request->task][i] = NULL;
    mds_release(&c);
    return status;
}

static void set_steps(const conv_shape *s, onednn_convolution *out) {
    for (int i = 0; i < 2; i++) {
        out->stride[i] = s->stride[i];
        out->dilation[i] = s->dilation[i] - 1;
        out->before[i] = s->padding[i];
        // How far the window of the last output pixel reaches beyond the input. With a stride this
        // may be less than `padding`.
        out->after[i] = (s->out[i] - 1) * s->stride[i] + (s->kernel[i] - 1) * s->dilation[i] + 1 -
                        s->in[i] - s->padding[i];
    }
}

// Whether oneDNN computes a convolution with a weight in this layout by Winograd's algorithm.
static bool onednn_is_winograd(const conv_shape *s, cpu_format weight) {
    return s->dtype == TRI_F32 && weight == CPU_OIHW16I16O && onednn_has_winograd() &&
           conv_is_winograd(s);
}

tri_status conv_describe(const conv_request *request, dnnl_primitive_desc_t *out) {
    const conv_shape *s = &request->shape;
    onednn_convolution c = {.algorithm = onednn_is_winograd(s, request->formats.weight)
                                             ? dnnl_convolution_winograd
                                             : dnnl_convolution_direct};
    dnnl_engine_t engine;
    TRI_TRY(cpu_engine(&engine));
    set_steps(s, &c);
    tri_status status = mds_of(request, &c);
    dnnl_status_t made = dnnl_success;
    if (status == TRI_OK) status = cpu_primitive_attr(&c.attr);
    if (status == TRI_OK) {
        made = onednn_convolution_describe(engine, request->task, &c, out);
        dnnl_primitive_attr_destroy(c.attr);
    }
    mds_release(&c);
    if (made == dnnl_success) return status;
    return TRI_FAIL(TRI_UNSUPPORTED, "oneDNN has no such convolution: status %d", made);
}

cpu_primitive_facts conv_ask(const tri_device_description *device, const conv_request *request) {
    const conv_shape *s = &request->shape;
    const conv_formats *f = &request->formats;
    const int64_t key[] = {
        device->threads, request->task,  request->bias,  request->any, f->x,
        f->weight,       f->y,           s->n,           s->c,         s->o,
        s->groups,       s->in[0],       s->in[1],       s->out[0],    s->out[1],
        s->kernel[0],    s->kernel[1],   s->stride[0],   s->stride[1], s->padding[0],
        s->padding[1],   s->dilation[0], s->dilation[1], s->direct,    s->dtype};
    cpu_primitive_facts facts = {0};
    if (cpu_facts_find(key, sizeof key, &facts)) return facts;
    cpu_use_threads(device); // the scratchpad's size depends on the number of threads
    if (conv_chain_ask(request, &facts) != TRI_OK) facts.exists = false;
    cpu_facts_keep(key, sizeof key, facts);
    return facts;
}

static conv_task task_of(const tri_node *node) {
    if (node->op == &tri_op_conv2d) return CONV_FORWARD;
    return node->op == &tri_op_conv2d_grad_input ? CONV_GRAD_INPUT : CONV_GRAD_WEIGHT;
}

// The layouts for one task. For the gradient of the input, direct convolutions (no Winograd) need
// each block of the weight transposed.
static conv_formats formats_of_task(const conv_shape *s, conv_task task) {
    conv_formats formats = conv_formats_of(s);
    if (s->dtype == TRI_BF16 && task != CONV_GRAD_WEIGHT) {
        if (formats.weight == CPU_OHWI16O) formats.weight = CPU_OHWI16O2I;
        if (formats.weight == CPU_OIHW16I16O)
            formats.weight = task == CONV_FORWARD ? CPU_OIHW8I16O2I : CPU_OIHW8O16I2O;
        return formats;
    }
    if (task == CONV_GRAD_INPUT && formats.weight == CPU_OIHW16I16O && !conv_is_winograd(s))
        formats.weight = CPU_OIHW16O16I;
    return formats;
}

static bool has_bias(const tri_node *node) {
    if (node->op == &tri_op_conv2d) return tri_value_is(node->inputs[2]);
    if (node->op == &tri_op_conv2d_grad_input) return false;
    return ((const tri_conv2d_grad_attr *)node->attr)->has_bias;
}

// The kernels of this file.
typedef enum conv_form { FORM_PLAIN, FORM_BLOCKED, FORM_GROUPED } conv_form;

static conv_formats formats_of_groups(const tri_device_description *device, const conv_shape *s) {
    bool blocks = cpu_has(device, CPU_HAS_AVX512);
    return (conv_formats){.x = blocks && s->c % CPU_BLOCK == 0 ? CPU_NCHW16C : CPU_PLAIN,
                          .y = blocks && s->o % CPU_BLOCK == 0 ? CPU_NCHW16C : CPU_PLAIN};
}

static conv_request request_of(const tri_device_description *device, const tri_graph *graph,
                               const tri_node *node, conv_form form) {
    conv_request r = {.task = task_of(node),
                      .shape = conv_shape_of_node(graph, node),
                      .bias = has_bias(node),
                      .deterministic = graph->options.deterministic};
    r.any = form == FORM_GROUPED;
    if (form == FORM_BLOCKED) r.formats = formats_of_task(&r.shape, r.task);
    if (form == FORM_GROUPED) r.formats = formats_of_groups(device, &r.shape);
    return r;
}

static bool supports_formats(const tri_device_description *device, const tri_graph *graph,
                             const tri_node *node, conv_form form) {
    conv_request r = request_of(device, graph, node, form);
    tri_dtype dtype = r.shape.dtype;
    if (dtype != TRI_F32 && !(dtype == TRI_BF16 && cpu_has(device, CPU_HAS_BF16))) return false;
    if (form == FORM_BLOCKED && (!cpu_has(device, CPU_HAS_AVX512) || r.formats.weight == CPU_PLAIN))
        return false;
    if (form == FORM_GROUPED && r.shape.groups == 1) return false;
    return r.shape.n > 0 && conv_facts(device, &r).fast;
}

static tri_status workspace_of(const tri_device_description *device, const tri_graph *graph,
                               const tri_node *node, conv_form form, size_t *out) {
    conv_request r = request_of(device, graph, node, form);
    cpu_primitive_facts facts = conv_facts(device, &r);
    if (!facts.exists) return TRI_FAIL(TRI_UNSUPPORTED, "oneDNN has no such convolution");
    *out = facts.scratchpad_bytes;
    return TRI_OK;
}

void conv_set_layouts(const tri_node *node, conv_formats formats, tri_layout *in, tri_layout *out) {
    tri_layout x = cpu_format_layout(formats.x), y = cpu_format_layout(formats.y);
    tri_layout weight = cpu_format_layout(formats.weight);
    switch (task_of(node)) {
    case CONV_FORWARD:
        in[0] = x;
        in[1] = weight;
        if (node->input_count > 2) in[2] = TRI_LAYOUT_PLAIN;
        out[0] = y;
        break;
    case CONV_GRAD_INPUT:
        in[0] = y;
        in[1] = weight;
        out[0] = x;
        break;
    case CONV_GRAD_WEIGHT:
        in[0] = x;
        in[1] = y;
        out[0] = weight;
        out[1] = TRI_LAYOUT_PLAIN;
        break;
    }
}

static bool is_winograd_blocked(const tri_graph *graph, const tri_node *node) {
    conv_shape s = conv_shape_of_node(graph, node);
    return onednn_is_winograd(&s, formats_of_task(&s, task_of(node)).weight);
}

static void layouts_blocked(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, tri_layout *in, tri_layout *out) {
    conv_shape s = conv_shape_of_node(graph, node);
    conv_set_layouts(node, formats_of_task(&s, task_of(node)), in, out);
}

static void layouts_grouped(const tri_device_description *device, const tri_graph *graph,
                            const tri_node *node, tri_layout *in, tri_layout *out) {
    conv_shape s = conv_shape_of_node(graph, node);
    conv_set_layouts(node, formats_of_groups(device, &s), in, out);
}

typedef struct conv_state {
    conv_primitives *primitives;
    conv_task task;
    bool bias;
} conv_state;

static tri_status prepare_formats(tri_device *device, const tri_graph *graph, const tri_node *node,
                                  tri_kernel *kernel, conv_form form) {
    conv_request r = request_of(&device->description, graph, node, form);
    conv_state *state = calloc(1, sizeof *state);
    if (!state) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a convolution");
    *state = (conv_state){.task = r.task, .bias = r.bias};
    kernel->state = state;
    TRI_TRY(conv_primitives_make(cpu_of(device), &r, &state->primitives));
    kernel->workspace_bytes = conv_primitives_workspace(state->primitives);
    return TRI_OK;
}

#define CONV_FORM(name, form)                                                                      \
    static tri_status workspace_##name(const tri_device_description *device,                       \
                                       const tri_graph *graph, const tri_node *node,               \
                                       size_t *out) {                                              \
        return workspace_of(device, graph, node, form, out);                                       \
    }                                                                                              \
    static bool supports_##name(const tri_device_description *device, const tri_graph *graph,      \
                                const tri_node *node) {                                            \
        return supports_formats(device, graph, node, form);                                        \
    }                                                                                              \
    static tri_status prepare_##name(tri_device *device, const tri_graph *graph,                   \
                                     const tri_node *node, tri_kernel *kernel) {                   \
        return prepare_formats(device, graph, node, kernel, form);                                 \
    }
CONV_FORM(blocked, FORM_BLOCKED)
CONV_FORM(grouped, FORM_GROUPED)
CONV_FORM(plain, FORM_PLAIN)

tri_status cpu_conv_compute(const tri_kernel *kernel, const tri_kernel_args *args,
                            const cpu_finish *finish) {
    conv_state *state = kernel->state;
    void *data[] = {args->in[0], args->in[1], args->out[0], NULL};
    if (state->bias) data[3] = state->task == CONV_FORWARD ? args->in[2] : args->out[1];
    return conv_primitives_run(state->primitives, data, args->workspace, finish);
}

static tri_status conv_run(const tri_kernel *kernel, const tri_kernel_args *args) {
    return cpu_conv_compute(kernel, args, NULL);
}

static void conv_release(tri_kernel *kernel) {
    conv_state *state = kernel->state;
    if (!state) return;
    conv_primitives_release(state->primitives);
    free(state);
}

#define CONV_KERNEL(identifier, form)                                                              \
    const tri_kernel_def cpu_##identifier##_##form = {                                             \
        .op = &tri_op_##identifier,                                                                \
        .name = "onednn-" #form,                                                                   \
        .supports = supports_##form,                                                               \
        .layouts = layouts_##form,                                                                 \
        .workspace = workspace_##form,                                                             \
        .prepare = prepare_##form,                                                                 \
        .run = conv_run,                                                                           \
        .is_winograd = is_winograd_##form,                                                         \
        .release = conv_release,                                                                   \
    };
#define layouts_plain NULL
#define is_winograd_plain NULL
#define is_winograd_grouped NULL
CONV_KERNEL(conv2d, blocked)
CONV_KERNEL(conv2d, grouped)
CONV_KERNEL(conv2d, plain)
CONV_KERNEL(conv2d_grad_input, blocked)
CONV_KERNEL(conv2d_grad_input, grouped)
CONV_KERNEL(conv2d_grad_input, plain)
CONV_KERNEL(conv2d_grad_weight, blocked)
CONV_KERNEL(conv2d_grad_weight, grouped)
CONV_KERNEL(conv2d_grad_weight, plain)
