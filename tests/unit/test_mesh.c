// Tests the mesh, which arranges the ranks along the axes pipeline, replicate, shard and tensor:
// the axis sizes that follow from a recipe, the coordinates of ranks, their groups (ranks that
// differ only along some axes), their replicas, and the mesh as text.
#include "base/status.h"
#include "mesh/mesh.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define P TRI_AXIS_PIPELINE
#define R TRI_AXIS_REPLICATE
#define S TRI_AXIS_SHARD

static void test_make(void **state) {
    static const struct {
        // The sizes that the recipe gives, of pipeline, replicate, shard and tensor; 0: none.
        int size[TRI_AXIS_COUNT];
        // If `size` has 0 for this axis, its size is `ranks` divided by the product of the other
        // sizes.
        tri_axis own;
        int ranks, want[TRI_AXIS_COUNT];
    } rows[] = {
        {{0, 0, 0, 0}, R, 1, {1, 1, 1, 1}},      {{0, 0, 0, 0}, R, 8, {1, 8, 1, 1}},
        {{0, 0, 0, 1}, S, 6, {1, 1, 6, 1}},      {{2, 2, 0, 2}, S, 8, {2, 2, 1, 2}},
        {{0, 2, 2, 1}, P, 12, {3, 2, 2, 1}},     {{2, 2, 2, 2}, R, 16, {2, 2, 2, 2}},
        {{16, 0, 8, 8}, R, 1024, {16, 1, 8, 8}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_mesh mesh;
        assert_int_equal(tri_mesh_make(rows[i].size, rows[i].own, rows[i].ranks, &mesh), TRI_OK);
        assert_memory_equal(mesh.size, rows[i].want, sizeof mesh.size);
        assert_int_equal(mesh.ranks, rows[i].ranks);
    }
}

// The message of a refusal proposes axis sizes that fit.
static void test_refusals(void **state) {
    static const struct {
        int size[TRI_AXIS_COUNT];
        tri_axis own;
        int ranks;
        const char *want;
    } rows[] = {
        {{0, 3, 0, 0},
         S,
         8,
         "8 ranks cannot be replicate 3 x shard auto; possible: replicate 2 or 4; or start 6 or 9 "
         "ranks"},
        {{0, 0, 0, 16}, R, 8, "replicate auto x tensor 16; possible: tensor 8; or start 16 ranks"},
        {{0, 2, 2, 1},
         R,
         8,
         "replicate 2 x shard 2; possible: replicate 4, or shard 4; or start 4 ranks"},
        {{2, 3, 0, 1}, R, 8, "pipeline 2 x replicate 3; possible: replicate 4; or start 6 ranks"},
        {{0, 2, 0, 0},
         R,
         1,
         "1 rank cannot be replicate 2; possible: replicate 1; or start 2 ranks"},
        {{3, 0, 5, 0}, R, 8, "pipeline 3 x replicate auto x shard 5; or start 15 ranks"},
        {{0, 1, 0, 0}, R, 4, "cannot be replicate 1; possible: replicate 4; or start 1 rank"},
        {{60000, 60000, 60000, 60000}, R, 8, "cannot be pipeline 60000 x replicate 60000"},
        {{0, -1, 0, 0}, R, 8, "strategy.mesh.replicate: -1 is not a number"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_mesh mesh;
        assert_int_equal(tri_mesh_make(rows[i].size, rows[i].own, rows[i].ranks, &mesh),
                         TRI_BAD_INPUT);
        if (!strstr(tri_error_message(), rows[i].want)) print_error("%s\n", tri_error_message());
        assert_non_null(strstr(tri_error_message(), rows[i].want));
    }
}

// Colours (as in MPI_Comm_split, equal for the ranks of one group) divide the ranks into groups of
// equal size, and keys number the ranks of a group in order. Members of a group differ only along
// the group's axes.
static void test_groups(void **state) {
    const int shapes[][TRI_AXIS_COUNT] = {{1, 1, 1, 1}, {2, 2, 2, 2}, {3, 1, 2, 4}, {1, 4, 2, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int ranks = shapes[i][0] * shapes[i][1] * shapes[i][2] * shapes[i][3];
        tri_mesh mesh;
        assert_int_equal(tri_mesh_make(shapes[i], R, ranks, &mesh), TRI_OK);
        for (unsigned axes = 0; axes < 1u << TRI_AXIS_COUNT; axes++) {
            int size = tri_mesh_size(&mesh, axes), seen[64] = {0};
            for (int r = 0; r < ranks; r++) {
                int colour = tri_mesh_colour(&mesh, r, axes), key = tri_mesh_key(&mesh, r, axes);
                assert_true(colour >= 0 && colour < ranks / size);
                assert_int_equal(key, seen[colour]++);
                assert_int_equal(tri_mesh_member(&mesh, r, axes, key), r);
                for (int k = 0; k < size; k++) {
                    int member = tri_mesh_member(&mesh, r, axes, k);
                    assert_int_equal(tri_mesh_colour(&mesh, member, axes), colour);
                    assert_int_equal(tri_mesh_key(&mesh, member, axes), k);
                    for (int a = 0; a < TRI_AXIS_COUNT; a++)
                        if (!(axes >> a & 1))
                            assert_int_equal(tri_mesh_coordinate(&mesh, member, (tri_axis)a),
                                             tri_mesh_coordinate(&mesh, r, (tri_axis)a));
                }
            }
            for (int c = 0; c < ranks / size; c++) assert_int_equal(seen[c], size);
        }
    }
}

static void test_replicas(void **state) {
    tri_mesh mesh;
    assert_int_equal(tri_mesh_make((int[]){2, 2, 3, 2}, R, 24, &mesh), TRI_OK);
    assert_int_equal(tri_mesh_replicas(&mesh), 6);
    for (int r = 0; r < 24; r++)
        assert_int_equal(tri_mesh_replica(&mesh, r),
                         tri_mesh_coordinate(&mesh, r, TRI_AXIS_REPLICATE) * 3 +
                             tri_mesh_coordinate(&mesh, r, TRI_AXIS_SHARD));
}

static void test_text(void **state) {
    static const struct {
        int size[TRI_AXIS_COUNT], ranks;
        const char *want;
    } rows[] = {
        {{1, 1, 1, 1}, 1, "1 rank"},
        {{1, 2, 2, 1}, 4, "replicate 2 (ranks 0 2) x shard 2 (ranks 0 1)"},
        {{2, 1, 4, 1}, 8, "pipeline 2 (ranks 0 4) x shard 4 (ranks 0 1 2 3)"},
        {{1, 5, 1, 2}, 10, "replicate 5 (ranks 0 2 4 ... 8) x tensor 2 (ranks 0 1)"},
        {{1, 1024, 1, 1}, 1024, "replicate 1024 (ranks 0 1 2 ... 1023)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_mesh mesh;
        char text[256];
        assert_int_equal(tri_mesh_make(rows[i].size, R, rows[i].ranks, &mesh), TRI_OK);
        assert_string_equal(tri_mesh_text(&mesh, text, sizeof text), rows[i].want);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_make),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_groups), cmocka_unit_test(test_replicas),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
