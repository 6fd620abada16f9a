// Where the gradients go that a compute action makes although earlier ones are there, of an earlier
// micro-batch or of another block. Most kernels overwrite their outputs. So these gradients go into
// memory of their own, the round gradients, and are added afterwards. Kernels that can add
// (tri_kernel_def.adds) do so directly, which spares a write and a read of each gradient, and the
// memory. docs/decisions/0028-what-products-take-over.md says more.
#ifndef TRIREME_PLAN_ROUND_GRADIENTS_H
#define TRIREME_PLAN_ROUND_GRADIENTS_H

#include "plan/plan.h"

// A range of gradients that is made in the round gradients, and then added to those that are there:
// a whole bucket, or one parameter of a bucket in which kernels add others directly.
typedef struct tri_round_range {
    int unit;
    tri_bucket_kind bucket;
    int parameter;        // -1: the whole bucket
    int64_t first;        // elements from the start of the bucket
    int64_t elements, at; // `at`: elements from the start of the round gradients
    bool drop;            // of RECOMPUTE: statistics that FORWARD has made already; not added
} tri_round_range;

// Lists the action's ranges. Returns how many elements the round gradients need. `ranges` has room
// for tri_round_range_limit(plan); NULL: they are only counted.
int64_t tri_round_gradients(const tri_plan *plan, const tri_step_plan *step, const tri_action *a,
                            tri_round_range *ranges, int *count);
int tri_round_range_limit(const tri_plan *plan);
// Whether the program's kernels add the gradient, which one of the block's nodes makes, directly.
bool tri_round_adds(const tri_program *program, const tri_gradient_info *gradient);

#endif
