// Random convolutions and their gradients, which op_compare runs on two devices.
#include "support/mapped_product.h"
#include "support/op_families.h"

static tri_value numbers(op_case *c, tri_shape shape) { return op_numbers(c, shape, -1, 1); }

// Draws a convolution. Many are as in the models: stride 1, dilation 1, one group. Those that are
// `regular` can be computed by Winograd's algorithm.
static void draw_conv(op_case *c, tri_conv2d_attr *a, tri_shape *x, tri_shape *weight,
                      tri_shape *y) {
    bool regular = op_chance(c, 30), plain = regular || op_chance(c, 50);
    int64_t kernel = regular ? 3 : op_draw(c, 1, 5), other = regular ? 3 : kernel;
    if (!plain) other = op_draw(c, 1, 5);
    *a = (tri_conv2d_attr){.groups = plain ? 1 : op_draw(c, 1, 2)};
    int64_t in = regular ? 16 * op_draw(c, 1, 2) : op_channels(c);
    int64_t out = regular ? 16 * op_draw(c, 1, 2) : op_channels(c);
    *x = op_image(c, op_draw(c, 1, 3), in * a->groups, regular ? 10 : 1);
    *weight = tri_shape_of(out * a->groups, in, kernel, other);
    a->direct = op_chance(c, 30);
    *y = tri_shape_of(x->dims[0], out * a->groups, 0, 0);
    for (int i = 0; i < 2; i++) {
        a->stride[i] = plain ? 1 : op_draw(c, 1, 3);
        a->dilation[i] = plain ? 1 : op_draw(c, 1, 2);
        a->padding[i] = op_draw(c, 0, 2);
        int64_t reach = a->dilation[i] * (weight->dims[2 + i] - 1) + 1;
        if (x->dims[2 + i] + 2 * a->padding[i] < reach) x->dims[2 + i] = reach;
        y->dims[2 + i] = op_window(x->dims[2 + i], weight->dims[2 + i], a->stride[i], a->padding[i],
                                   a->dilation[i]);
    }
}

void op_build_conv2d(op_case *c) {
    tri_conv2d_attr a;
    tri_shape x, w, y;
    draw_conv(c, &a, &x, &w, &y);
    tri_value in[] = {numbers(c, x), numbers(c, w), {0}};
    if (op_chance(c, 70)) in[2] = numbers(c, tri_shape_of(w.dims[0]));
    mapped_product(c->graph, &tri_op_conv2d, in, 3, &a, op_draw(c, 0, 2));
}

void op_build_conv2d_grad(op_case *c) {
    tri_conv2d_grad_attr a = {.has_bias = op_chance(c, 70)};
    tri_shape x, w, y;
    draw_conv(c, &a.conv, &x, &w, &y);
    tri_value xv = numbers(c, x), wv = numbers(c, w), dy = numbers(c, y);
    a.shape = w;
    op_add(c, &tri_op_conv2d_grad_weight, (tri_value[]){xv, dy}, &a);
    a.shape = x;
    a.has_bias = false;
    op_add(c, &tri_op_conv2d_grad_input, (tri_value[]){dy, wv}, &a);
}

// The first convolution of a network of images, whose input has few channels, and which computes
// the map that follows it.
void op_build_conv2d_first(op_case *c) {
    tri_conv2d_attr a = {.stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
    int64_t kernel = op_chance(c, 50) ? 3 : 5, out = 16 * op_draw(c, 1, 2);
    tri_shape x = tri_shape_of(op_draw(c, 1, 9), op_draw(c, 1, 3), op_draw(c, kernel, 12),
                               op_draw(c, kernel, 12));
    tri_shape y = x;
    tri_shape w = tri_shape_of(out, x.dims[1], kernel, kernel);
    y.dims[1] = out;
    for (int i = 0; i < 2; i++) {
        a.padding[i] = op_draw(c, 0, 1);
        y.dims[2 + i] = op_window(x.dims[2 + i], kernel, 1, a.padding[i], 1);
    }
    tri_value xv = numbers(c, x), dy = numbers(c, y);
    tri_value in[] = {xv, numbers(c, w), numbers(c, tri_shape_of(out))};
    mapped_product(c->graph, &tri_op_conv2d, in, 3, &a, op_draw(c, 0, 2));
    tri_conv2d_grad_attr grad = {.conv = a, .shape = w, .has_bias = true};
    op_add(c, &tri_op_conv2d_grad_weight, (tri_value[]){xv, dy}, &grad);
}

// Each channel has its own kernel. Some images are so large that they are computed in bands.
void op_build_depthwise(op_case *c) {
    int64_t channels = op_channels(c), size = op_chance(c, 20) ? 60 : op_draw(c, 1, 20);
    tri_conv2d_attr a = {.groups = channels};
    tri_shape x = tri_shape_of(op_draw(c, 1, 3), channels, size, op_draw(c, 1, size)), y = x;
    tri_shape w = tri_shape_of(channels, 1, op_draw(c, 1, 7), op_draw(c, 1, 7));
    for (int i = 0; i < 2; i++) {
        a.stride[i] = op_chance(c, 50) ? 1 : op_draw(c, 1, 4);
        a.dilation[i] = op_chance(c, 70) ? 1 : op_draw(c, 1, 3);
        a.padding[i] = op_draw(c, 0, 8);
        int64_t reach = a.dilation[i] * (w.dims[2 + i] - 1) + 1;
        if (x.dims[2 + i] + 2 * a.padding[i] < reach) x.dims[2 + i] = reach;
        y.dims[2 + i] =
            op_window(x.dims[2 + i], w.dims[2 + i], a.stride[i], a.padding[i], a.dilation[i]);
    }
    tri_value xv = numbers(c, x), wv = numbers(c, w), dy = numbers(c, y);
    tri_value in[] = {xv, wv,
                      op_chance(c, 50) ? numbers(c, tri_shape_of(channels)) : (tri_value){0}};
    mapped_product(c->graph, &tri_op_conv2d, in, 3, &a, op_draw(c, 0, 2));
    tri_conv2d_grad_attr grad = {.conv = a, .shape = w, .has_bias = op_chance(c, 50)};
    op_add(c, &tri_op_conv2d_grad_weight, (tri_value[]){xv, dy}, &grad);
    grad.shape = x;
    grad.has_bias = false;
    op_add(c, &tri_op_conv2d_grad_input, (tri_value[]){dy, wv}, &grad);
}

void op_build_interpolate(op_case *c) {
    tri_shape x = op_image(c, op_draw(c, 1, 3), op_channels(c), 1), y = x;
    tri_interpolate_attr a = {.axis = op_draw(c, 0, 3), .size = op_draw(c, 1, 30), .x_shape = x};
    a.kind = op_draw(c, 0, INTERPOLATE_KINDS - 1);
    bool smooth = a.kind >= INTERPOLATE_LINEAR;
    a.align_corners = smooth && op_chance(c, 50);
    a.antialias = smooth && op_chance(c, 30);
    if (op_chance(c, 30)) a.factor = (double)a.size / (double)x.dims[a.axis] * 1.03;
    y.dims[a.axis] = a.size;
    tri_value xv = numbers(c, x), dy = numbers(c, y);
    op_add(c, &tri_op_interpolate, &xv, &a);
    op_add(c, &tri_op_interpolate_grad, &dy, &a);
}
