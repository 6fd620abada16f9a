// Decides what of the training state is offloaded (to a file or to the host's memory), and whether
// the device or the CPU of its host runs the optimizer on it. docs/decisions/0024 compares the two.
// Masters are the F32 weights that the optimizer updates. A unit is parameters that are updated
// together; a bucket is a range of a unit's parameters that are handled alike. Read next: step.c.
#include "plan/estimate.h"
#include "plan/plan.h"

// Decides which state is offloaded. Masters can be offloaded only if kernels read a copy of them:
// one in a half type (BF16 or F16), or one that GATHER makes and RELEASE drops. Masters that
// kernels read directly have to stay in memory, because every compute action of the block needs
// them.
void tri_plan_find_offload_set(tri_plan *plan, const tri_plan_request *request) {
    tri_offload offload = request->options->offload;
    plan->optimizer_states = request->optimizer_states;
    const char *path = request->options->offload_path;
    plan->offload.path = path;
    plan->offload.in_host_memory =
        offload != TRI_OFFLOAD_NONE && plan->device.backend->alloc_host && !(path && *path);
    if (offload != TRI_OFFLOAD_NONE) plan->offload.set.states = plan->optimizer_states;
    for (int k = 0; k < TRI_BUCKET_COUNT; k++)
        plan->offload.set.masters[k] =
            offload == TRI_OFFLOAD_PARAMETERS &&
            (tri_bucket_is_half((tri_bucket_kind)k) ? plan->trains : plan->sharing.releases);
}

// Adds the bytes that are moved if the host runs the optimizer on a bucket. The optimizer's kernel
// reads the gradient, and reads and writes the master and the states. A cast reads the master again
// and writes the half type. The copies from and to the device use the host's memory as well.
static void add_bucket(const tri_plan *plan, int unit, tri_bucket_kind bucket,
                       tri_host_step_bytes *sum) {
    const int64_t f32 = (int64_t)sizeof(float),
                  half = (int64_t)tri_dtype_bytes(plan->flat.half_dtype);
    int64_t own = plan->flat.units[unit].buckets[bucket].own;
    if (!tri_bucket_has_gradients(bucket)) return;
    int states = tri_bucket_is_trained(bucket) ? plan->optimizer_states : 0;
    bool is_half = tri_bucket_is_half(bucket);
    // UPLOAD copies nothing for offloaded masters that are gathered in F32: FETCH brings them to
    // the device, and GATHER sends them.
    int64_t up = is_half ? half * own : plan->offload.set.masters[bucket] ? 0 : f32 * own;
    sum->down += f32 * own;
    sum->up += up;
    sum->memory +=
        f32 * own * (3 + 2 * states) + (is_half ? (f32 + half) * own : 0) + f32 * own + up;
}

tri_host_step_bytes tri_plan_host_step_bytes(const tri_plan *plan, int unit) {
    tri_host_step_bytes sum = {0};
    int first = unit < 0 ? 0 : unit, end = unit < 0 ? plan->flat.unit_count : unit + 1;
    for (int u = first; u < end; u++)
        for (int k = 0; k < TRI_BUCKET_COUNT && plan->flat.units[u].here; k++)
            add_bucket(plan, u, (tri_bucket_kind)k, &sum);
    return sum;
}

// How long it takes to copy the offloaded state if the device runs the optimizer: LOAD copies it to
// the device and EVICT back, one after the other. The slower of two rates decides: that of the
// connection between host and device, and that of the host's memory (`memory`).
static double copying_seconds(const tri_plan *plan, const tri_rates *rates, double memory) {
    double bytes = 0;
    for (int u = 0; u < plan->flat.unit_count; u++)
        if (plan->flat.units[u].here)
            bytes +=
                2 * (double)tri_offload_bytes(&plan->offload.set, &plan->flat,
                                              &(tri_action){.kind = TRI_ACTION_LOAD, .subject = u});
    return bytes / (rates->host_bytes_per_s < memory ? rates->host_bytes_per_s : memory);
}

static double host_seconds(const tri_plan *plan, const tri_rates *rates, double memory) {
    tri_host_step_bytes bytes = tri_plan_host_step_bytes(plan, -1);
    // The copies in the two directions run at the same time, and at the same time as the CPU. So
    // the slowest of the three decides.
    int64_t most = bytes.down > bytes.up ? bytes.down : bytes.up;
    double link_s = (double)most / rates->host_bytes_per_s;
    double cpu_s = (double)bytes.memory / memory;
    return link_s > cpu_s ? link_s : cpu_s;
}

// Whether the optimizer runs faster on the host's CPU than on the device. Ranks that hold copies of
// the same state must change it in the same way, so all ranks have to get the same answer. They do,
// because the rates depend only on the kind of device. But the answer depends on the number of
// ranks, which share the host's memory, and the kernels of host and device may round differently.
// With trainer.deterministic, bits must not depend on the number of ranks, so the answer is always
// false.
static bool is_faster_on_host(const tri_plan *plan) {
    if (plan->deterministic) return false;
    tri_rates rates = tri_rates_of(&plan->device, NULL);
    double memory = tri_rates_of_host_memory(&rates, plan->mesh.ranks);
    return host_seconds(plan, &rates, memory) < copying_seconds(plan, &rates, memory);
}

void tri_plan_choose_optimizer_side(tri_plan *plan, const tri_strategy_options *options) {
    bool can = plan->trains && plan->offload.in_host_memory && plan->device.backend->host &&
               plan->optimizer_states > 0 && options->offload_step != TRI_OFFLOAD_STEP_DEVICE;
    plan->offload.steps_on_host =
        can && (options->offload_step == TRI_OFFLOAD_STEP_HOST || is_faster_on_host(plan));
    for (int k = 0; k < TRI_BUCKET_COUNT && plan->offload.steps_on_host; k++)
        if (tri_bucket_is_half((tri_bucket_kind)k)) plan->offload.set.masters[k] = true;
}

int64_t tri_plan_offloaded_bytes(const tri_plan *plan) {
    const tri_flat *flat = &plan->flat;
    const bool *masters = plan->offload.set.masters;
    bool on_host = plan->offload.steps_on_host;
    int64_t half = (int64_t)tri_dtype_bytes(flat->half_dtype);
    int64_t elements =
        flat->state_elements * plan->offload.set.states +
        (masters[TRI_BUCKET_TRAINED_HALF] ? flat->own_elements[TRI_FLAT_HALF] : 0) +
        (masters[TRI_BUCKET_TRAINED] || on_host ? flat->own_elements[TRI_FLAT_STORED] : 0) +
        (on_host ? flat->gradient_own_elements : 0);
    return elements * (int64_t)sizeof(float) +
           (on_host ? flat->own_elements[TRI_FLAT_HALF] * half : 0);
}
