// Compares what the ranks of a run have planned, before any of them prepares a kernel. Each rank
// makes its own plan, and the plans have to match. session.c calls tri_compare_plans when a session
// (ranks, data, device, plan and engine of a command) is opened.
#include "train/compare.h"

#include "train/tell.h"

#include <trireme/trireme.h>

static const uint64_t HASH_OF_NOTHING = 0xcbf29ce484222325u;

// What ranks compare, as hashes.
typedef struct plan_hashes {
    // Hash of the recipe, the program's version, and the names and home layouts of all parameters.
    // A home layout is the order of elements in which a parameter is kept in memory; it depends on
    // the device. This hash has to be equal on all ranks.
    int64_t run;
    // Hash of the layouts of the values that pipeline stages send each other. It has to be equal on
    // the ranks of one pipeline. Another pipeline may have micro-batches of another size, for which
    // kernels with other layouts are chosen.
    int64_t edges;
} plan_hashes;
enum { HASHES = sizeof(plan_hashes) / sizeof(int64_t) };

static uint64_t hash_text(uint64_t hash, const char *text) {
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_layout(uint64_t hash, const tri_layout *layout, const tri_shape *shape) {
    char text[64];
    return hash_text(hash, tri_layout_text(layout, shape, text, sizeof text));
}

static int64_t hash_of_run(const tri_plan *plan, const tri_recipe *recipe) {
    uint64_t hash = hash_text(HASH_OF_NOTHING, tri_recipe_emit(plan->arena, recipe));
    hash = hash_text(hash, tri_version());
    for (int i = 0; i < plan->graph->parameter_count; i++) {
        const tri_parameter_info *p = &plan->graph->parameters[i];
        hash = hash_layout(hash_text(hash, p->name), &p->layout, &p->shape);
    }
    return (int64_t)hash;
}

static int64_t hash_of_edges(const tri_plan *plan) {
    uint64_t hash = HASH_OF_NOTHING;
    for (int shape = 0; shape < TRI_STEP_SHAPE_COUNT; shape++)
        for (int i = 0; i < plan->steps[shape].rounds; i++) {
            const tri_step_round *round = &plan->steps[shape].round_items[i];
            for (int k = 0; k < round->edge_value_count; k++) {
                tri_value value = round->edge_values[k].value;
                const tri_value_info *info = tri_value_get(round->program->graph, value);
                hash = hash_layout(hash, &info->layout, &info->shape);
            }
        }
    return (int64_t)hash;
}

// Fails if the ranks differ in the recipe, the program's version, or the home layouts.
static tri_status check_runs(const plan_hashes *all, int ranks, const tri_host_claim *claims) {
    int other = 1;
    while (other < ranks && all[other].run == all[0].run) other++;
    if (other == ranks) return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT,
                    "rank %d (host %.63s) differs from rank 0 (host %.63s) in recipe, program "
                    "or CPU; start them with the same files on machines of the same kind",
                    other, claims[other].host, claims[0].host);
}

// Compares the layouts of the values that pipeline stages send each other. They travel as mere
// bytes, so a rank that expected another order of the elements would compute with garbage.
static tri_status check_edges(const plan_hashes *all, const tri_mesh *mesh,
                              const tri_host_claim *claims) {
    for (int other = 1; other < mesh->ranks; other++) {
        int first = tri_mesh_member(mesh, other, 1u << TRI_AXIS_PIPELINE, 0);
        if (all[other].edges == all[first].edges) continue;
        return TRI_FAIL(TRI_BAD_INPUT,
                        "rank %d (host %.63s) and rank %d (host %.63s) of one pipeline would send "
                        "each other activations in different layouts, because their devices or the "
                        "devices' libraries (cuDNN) differ; start them with the same libraries on "
                        "machines of the same kind",
                        other, claims[other].host, first, claims[first].host);
    }
    return TRI_OK;
}

tri_status tri_compare_plans(const tri_plan *plan, const tri_recipe *recipe, tri_comm *comm,
                             const tri_host_claim *claims) {
    if (comm->size == 1) return TRI_OK;
    plan_hashes own = {hash_of_run(plan, recipe), hash_of_edges(plan)};
    plan_hashes *all = TRI_NEW_ARRAY(plan->arena, plan_hashes, comm->size);
    tri_comm_op op = {.kind = TRI_COMM_ALL_GATHER,
                      .dtype = TRI_I64,
                      .count = HASHES,
                      .send = &own,
                      .recv = all,
                      .label = "comparison of the ranks' plans"};
    TRI_TRY(tri_comm_run(comm, &op));
    tri_status status = check_runs(all, comm->size, claims);
    if (status == TRI_OK) status = check_edges(all, &plan->mesh, claims);
    return tri_tell_and_agree(comm, status, op.label);
}
