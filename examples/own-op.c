// A network with an op of its own: sparsemax, a softmax that makes most weights exactly 0 (Martins
// and Astudillo, 2016). It weights the parts of the hidden layer, each an expert.
//     cc own-op.c -o own-op $(pkg-config --cflags --libs trireme)
//     ./own-op check
//     ./own-op train two-layer.yaml
// As a shared object, it is a model that a recipe can name, as two-layer.c is.
#include <stdio.h>
#include <string.h>
#include <trireme/trireme.h>

enum { EXPERTS = 8, WIDTH = 64, CLASSES = 10 };

// Each row of x less a threshold, and 0 below it, so that the row adds up to 1. The threshold
// follows from the elements above it: all at first, and fewer each time, until they stay the same.
static void sparsemax(const tri_own_call *call) {
    const tri_own_tensor *x = &call->in[0];
    int64_t size = x->shape.dims[x->shape.rank - 1];
    for (int64_t row = 0; row < x->count; row += size) {
        double threshold = -1e300;
        for (int64_t above = size + 1, before = 0; above > 0 && above != before;) {
            double sum = 0;
            before = above;
            above = 0;
            for (int64_t i = row; i < row + size; i++) {
                if (tri_own_get(x, i) <= threshold) continue;
                sum += tri_own_get(x, i);
                above++;
            }
            threshold = (sum - 1) / (double)above;
        }
        for (int64_t i = row; i < row + size; i++) {
            double y = tri_own_get(x, i) - threshold;
            tri_own_put(&call->out[0], i, y > 0 ? y : 0);
        }
    }
}

// Among the elements that are not 0: dx = dy - the mean of dy.
static void sparsemax_gradient(const tri_own_call *call) {
    const tri_own_tensor *y = &call->out[0], *dy = &call->out_grad[0];
    int64_t size = y->shape.dims[y->shape.rank - 1];
    for (int64_t row = 0; row < y->count; row += size) {
        double sum = 0, count = 0;
        for (int64_t i = row; i < row + size; i++) {
            if (tri_own_get(y, i) == 0) continue;
            sum += tri_own_get(dy, i);
            count++;
        }
        for (int64_t i = row; i < row + size; i++)
            if (tri_own_get(y, i) != 0)
                tri_own_put(&call->in_grad[0], i, tri_own_get(dy, i) - sum / count);
    }
}

static const tri_own_op op = {.name = "sparsemax",
                              .inputs = 1,
                              .keeps_outputs = true,
                              .compute = sparsemax,
                              .gradient = sparsemax_gradient};

static void experts_net(tri_graph *g, const tri_batch *batch) {
    if (tri_op_register(&op) != TRI_OK) tri_graph_fail(g, "%s", tri_error_message());
    tri_block(g, "hidden");
    tri_value x = tri_flatten(g, batch->images);
    tri_value hidden = tri_relu(g, tri_linear(g, "experts", x, EXPERTS * WIDTH));
    tri_value scores = tri_linear(g, "gate", x, EXPERTS);
    tri_value weights = tri_op_apply(g, "sparsemax", &scores, NULL, NULL);
    hidden = tri_reshape(g, hidden, tri_shape_of(batch->size, EXPERTS, WIDTH));
    hidden = tri_mul(g, hidden, tri_unsqueeze(g, weights, 2));
    tri_block(g, "head");
    x = tri_linear(g, "fc2", tri_flatten(g, hidden), CLASSES);
    tri_output(g, "logits", x);
    tri_loss(g, tri_cross_entropy(g, x, batch->labels));
}

static const tri_task experts = {.name = "experts", .build = experts_net};

TRI_EXPORT_TASK(experts)

static int check(void) {
    tri_shape shape = tri_shape_of(5, EXPERTS);
    tri_op_worst worst = {0};
    tri_status status = tri_op_register(&op);
    if (status == TRI_OK)
        status = tri_op_check("sparsemax", &shape, (tri_op_check_options){0}, &worst);
    if (status != TRI_OK) {
        fprintf(stderr, "%s\n", tri_error_message());
        return tri_status_exit_code(status);
    }
    printf("sparsemax: the worst gradient is %.9g, and finite differences say %.9g\n",
           worst.gradient, worst.difference);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "check")) return check();
    return tri_main(argc, argv, &experts);
}
