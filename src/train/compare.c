// Compares what the ranks of a run have found, before any of them prepares a kernel or computes
// with it. Each rank reads its own recipe, data and weights, which may lie on its host's own disk,
// and makes its own plan; all have to match. session.c calls train_compare_ranks when a session
// (ranks, data, device, plan and engine of a command) is opened.
#include "train/compare.h"

#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "train/tell.h"

#include <string.h>
#include <trireme/trireme.h>

// Something that has to be equal on all ranks.
typedef struct fact {
    const char *what; // text that completes "rank 1 differs from rank 0 in …"
    int64_t value;    // the value itself, or a hash
    const char *unit; // what `value` counts, for the message; NULL: it is a hash
    const char *advice;
} fact;

enum { MOST_FACTS = 32 };
typedef struct facts {
    fact items[MOST_FACTS];
    int count;
} facts;

#define SAME_FILES "give all ranks the same files"
#define SAME_KIND "start them with the same files on machines of the same kind"

static void add(facts *all, fact one) {
    TRI_ASSERT(all->count < MOST_FACTS);
    all->items[all->count++] = one;
}

static uint64_t hash_layout(uint64_t hash, const tri_layout *layout, const tri_shape *shape) {
    char text[64];
    return tri_hash_text(hash, tri_layout_text(layout, shape, text, sizeof text));
}

static int64_t hash_of_recipe(tri_arena *arena, const tri_recipe *recipe) {
    uint64_t hash = tri_hash_text(TRI_HASH_OF_NOTHING, tri_recipe_emit(arena, recipe));
    return (int64_t)tri_hash_text(hash, tri_version());
}

static int64_t hash_of_parameters(const tri_plan *plan) {
    uint64_t hash = TRI_HASH_OF_NOTHING;
    for (int i = 0; i < plan->graph->parameter_count; i++) {
        const tri_parameter_info *p = &plan->graph->parameters[i];
        hash = hash_layout(tri_hash_text(hash, p->name), &p->layout, &p->shape);
    }
    return (int64_t)hash;
}

// Hash of the layouts of the values that pipeline stages send each other. It has to be equal on the
// ranks of one pipeline. Another pipeline may have micro-batches of another size, for which kernels
// with other layouts are chosen.
static int64_t hash_of_edges(const tri_plan *plan) {
    uint64_t hash = TRI_HASH_OF_NOTHING;
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

static uint64_t hash_names(uint64_t hash, const tri_strings *names) {
    // With the 0 byte, so that other names of the same letters have another hash.
    for (int i = 0; i < names->count; i++)
        hash = tri_hash_bytes(hash, names->items[i], strlen(names->items[i]) + 1);
    return hash;
}

static tri_status add_data(tri_arena *arena, const train_named_data *set, facts *out) {
    uint64_t names = TRI_HASH_OF_NOTHING, fields = names, files = names;
    for (int i = 0; i < tri_dataset_field_count(set->data); i++) {
        const tri_data_field *f = tri_dataset_field(set->data, i);
        const int64_t types[] = {f->dtype, tri_dataset_stored(set->data, i), f->shape.rank};
        int64_t classes = tri_dataset_classes(set->data, f->name);
        names = hash_names(names, &tri_dataset_names(set->data, i)->classes);
        names = hash_names(names, &tri_dataset_names(set->data, i)->columns);
        fields = tri_hash_bytes(tri_hash_text(fields, f->name), types, sizeof types);
        fields =
            tri_hash_bytes(fields, f->shape.dims, (size_t)f->shape.rank * sizeof *f->shape.dims);
        fields = tri_hash_bytes(fields, &classes, sizeof classes);
    }
    TRI_TRY(tri_dataset_hash_files(set->data, &files));
    add(out, (fact){tri_arena_printf(arena, "the %s data", set->name),
                    tri_dataset_samples(set->data), "samples", SAME_FILES});
    add(out,
        (fact){tri_arena_printf(arena, "the names of classes or columns of the %s data", set->name),
               (int64_t)names, NULL, SAME_FILES});
    add(out, (fact){tri_arena_printf(arena, "the fields of the %s data (types, shapes, classes)",
                                     set->name),
                    (int64_t)fields, NULL, SAME_FILES});
    add(out, (fact){tri_arena_printf(arena, "the files of the %s data", set->name), (int64_t)files,
                    NULL, SAME_FILES});
    return TRI_OK;
}

// Finds the facts of a session. The recipe comes first: if it is the same, all ranks have the same
// list.
static tri_status facts_of(tri_arena *arena, const train_findings *found, facts *out) {
    *out = (facts){.count = 0};
    add(out, (fact){"recipe or program", hash_of_recipe(arena, found->recipe), NULL,
                    "start them with the same recipe, settings and version of the program"});
    const char *file = tri_task_file(found->recipe, found->task);
    if (file) {
        uint64_t hash = TRI_HASH_OF_NOTHING;
        TRI_TRY(tri_hash_file(file, TRI_HASH_FILE_BLOCKS, &hash));
        add(out, (fact){tri_arena_printf(arena, "the file of the model, %s", file), (int64_t)hash,
                        NULL, SAME_FILES});
    }
    for (int i = 0; i < found->data_count; i++) TRI_TRY(add_data(arena, &found->data[i], out));
    add(out, (fact){"the parameters or their order in memory, as CPU or devices demand it",
                    hash_of_parameters(found->plan), NULL, SAME_KIND});
    return TRI_OK;
}

static tri_status check(const train_ranks *ranks, const facts *own, const int64_t *all) {
    const tri_host_claim *claims = ranks->claims;
    for (int i = 0; i < own->count; i++)
        for (int other = 1; other < ranks->comm->size; other++) {
            const fact *f = &own->items[i];
            int64_t here = all[other * MOST_FACTS + i], there = all[i];
            if (here == there) continue;
            const char *numbers =
                !f->unit ? ""
                         : tri_arena_printf(ranks->arena, ": %lld %s, not %lld", (long long)here,
                                            f->unit, (long long)there);
            return TRI_FAIL(TRI_BAD_INPUT,
                            "rank %d (host %.63s) differs from rank 0 (host %.63s) in %s%s; %s",
                            other, claims[other].host, claims[0].host, f->what, numbers, f->advice);
        }
    return TRI_OK;
}

// Compares the layouts of the values that pipeline stages send each other. They travel as mere
// bytes, so a rank that expected another order of the elements would compute with garbage.
static tri_status check_edges(const train_ranks *ranks, const tri_mesh *mesh,
                              const int64_t *edges) {
    const tri_host_claim *claims = ranks->claims;
    for (int other = 1; other < mesh->ranks; other++) {
        int first = tri_mesh_member(mesh, other, 1u << TRI_AXIS_PIPELINE, 0);
        if (edges[other] == edges[first]) continue;
        return TRI_FAIL(TRI_BAD_INPUT,
                        "rank %d (host %.63s) and rank %d (host %.63s) of one pipeline would send "
                        "each other activations in different layouts, because their devices or the "
                        "devices' libraries (cuDNN) differ; start them with the same libraries on "
                        "machines of the same kind",
                        other, claims[other].host, first, claims[first].host);
    }
    return TRI_OK;
}

static tri_status gather(const train_ranks *ranks, const int64_t *own, int count, int64_t **all) {
    *all = TRI_NEW_ARRAY(ranks->arena, int64_t, ranks->comm->size * count);
    return tri_comm_run(ranks->comm, &(tri_comm_op){.kind = TRI_COMM_ALL_GATHER,
                                                    .dtype = TRI_I64,
                                                    .count = count,
                                                    .send = own,
                                                    .recv = *all,
                                                    .label = "comparison of the ranks"});
}

// Ranks that have found different facts may have lists of different lengths, so all send as many.
static tri_status compare(const train_ranks *ranks, const facts *own) {
    int64_t values[MOST_FACTS] = {0}, *all;
    for (int i = 0; i < own->count; i++) values[i] = own->items[i].value;
    TRI_TRY(gather(ranks, values, MOST_FACTS, &all));
    return tri_tell_and_agree(ranks->comm, check(ranks, own, all), "comparison of the ranks");
}

tri_status train_compare_ranks(const train_ranks *ranks, const train_findings *found) {
    facts own;
    if (ranks->comm->size == 1) return TRI_OK;
    TRI_TRY(tri_tell_and_agree(ranks->comm, facts_of(ranks->arena, found, &own),
                               "comparison of the ranks"));
    TRI_TRY(compare(ranks, &own));
    int64_t edges = hash_of_edges(found->plan), *all;
    TRI_TRY(gather(ranks, &edges, 1, &all));
    return tri_tell_and_agree(ranks->comm, check_edges(ranks, &found->plan->mesh, all),
                              "comparison of the ranks' plans");
}

tri_status train_compare_weights(const train_ranks *ranks, const char *path, const char *option) {
    uint64_t hash = TRI_HASH_OF_NOTHING;
    if (ranks->comm->size == 1) return TRI_OK;
    tri_status status = tri_status_context(tri_checkpoint_hash_weights(path, &hash), "%s", option);
    TRI_TRY(tri_tell_and_agree(ranks->comm, status, option));
    facts own = {.count = 0};
    add(&own, (fact){tri_arena_printf(ranks->arena, "the weights of %s: %s", option, path),
                     (int64_t)hash, NULL, SAME_FILES});
    return compare(ranks, &own);
}
