// Products of matrices over batch axes.
#include "device/matmul_plan.h"
#include "device/ref/node.h"

REF_BODY tri_status matmul_body(const ref_node *node, const tri_kernel_args *args, bool f64) {
    tri_matmul_plan p = tri_matmul_plan_of((const void *)node->attr, &node->s.in[0], &node->s.in[1],
                                           &node->s.out[0]);
    ref_array y = ref_output(args, 0, f64);
    for (int64_t item = 0; item < p.items; item++) {
        ref_array a = ref_from(ref_input(args, p.swapped, f64), tri_matmul_offset(&p, &p.a, item));
        ref_array b = ref_from(ref_input(args, !p.swapped, f64), tri_matmul_offset(&p, &p.b, item));
        int64_t at = tri_matmul_offset(&p, &p.c, item);
        for (int64_t i = 0; i < p.m; i++)
            for (int64_t j = 0; j < p.n; j++) {
                double sum = 0;
                for (int64_t k = 0; k < p.k; k++)
                    sum +=
                        get(a, i * p.a.row + k * p.a.column) * get(b, k * p.b.row + j * p.b.column);
                put(y, at + i * p.c.row + j, sum);
            }
    }
    return TRI_OK;
}

REF_KERNEL(matmul)
