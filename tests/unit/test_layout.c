// Checks that tensor/layout.h stores each element where the layout says, whatever range is copied.
#include "tensor/layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_known_offsets(void **state) {
    // A matrix in blocks of 4 rows by 2 columns. In a block, each column is contiguous. Of the
    // blocks, those of the first two columns come first, from top to bottom.
    tri_layout layout = {
        .order = {1, 0}, .block_count = 2, .block_axis = {1, 0}, .block_size = {2, 4}};
    tri_shape shape = tri_shape_of(6, 5);
    assert_int_equal(tri_layout_elements(&layout, &shape), 8 * 6);
    assert_int_equal(tri_layout_offset(&layout, &shape, (int64_t[]){0, 0}), 0);
    assert_int_equal(tri_layout_offset(&layout, &shape, (int64_t[]){3, 1}), 7);
    assert_int_equal(tri_layout_offset(&layout, &shape, (int64_t[]){5, 0}), 8 + 1);
    assert_int_equal(tri_layout_offset(&layout, &shape, (int64_t[]){5, 4}), 32 + 8 + 1);
}

static int below(unsigned *seed, int limit) {
    return (int)((unsigned)rand_r(seed) % (unsigned)limit);
}

static tri_layout random_layout(unsigned *seed, int rank) {
    tri_layout layout = {.block_count = below(seed, TRI_MAX_BLOCKS + 1)};
    for (int i = 0; i < TRI_MAX_RANK; i++) layout.order[i] = (int8_t)i;
    for (int i = rank - 1; i > 0; i--) {
        int other = below(seed, i + 1);
        int8_t axis = layout.order[i];
        layout.order[i] = layout.order[other];
        layout.order[other] = axis;
    }
    for (int i = 0; i < layout.block_count; i++) {
        layout.block_axis[i] = (int8_t)below(seed, rank);
        layout.block_size[i] = 1 + below(seed, 5);
    }
    return layout;
}

static void check_range(const tri_layout *layout, const tri_shape *shape, size_t bytes,
                        const char *memory, int64_t first, int64_t count) {
    char *plain = malloc((size_t)count * bytes + 1), *back;
    size_t size = (size_t)tri_layout_elements(layout, shape) * bytes;
    back = malloc(size);
    assert_true(plain && back);
    memcpy(back, memory, size);
    tri_layout_to_plain(layout, shape, bytes, memory, plain, first, count);
    for (int64_t k = 0; k < count; k++) {
        int64_t index[TRI_MAX_RANK] = {0}, rest = first + k;
        for (int i = shape->rank - 1; i >= 0; i--) {
            index[i] = rest % shape->dims[i];
            rest /= shape->dims[i];
        }
        size_t at = (size_t)tri_layout_offset(layout, shape, index) * bytes;
        assert_memory_equal(plain + (size_t)k * bytes, memory + at, bytes);
        memset(back + at, 0, bytes);
    }
    tri_layout_from_plain(layout, shape, bytes, plain, back, first, count);
    assert_memory_equal(back, memory, size);
    free(plain);
    free(back);
}

static void test_ranges(void **state) {
    unsigned seed = 11;
    for (int round = 0; round < 300; round++) {
        tri_shape shape = {.rank = 1 + below(&seed, 4)};
        for (int i = 0; i < shape.rank; i++) shape.dims[i] = 1 + below(&seed, 9);
        if (round % 10 == 0) shape.dims[shape.rank - 1] = 1000 + below(&seed, 2000);
        tri_layout layout = random_layout(&seed, shape.rank);
        const size_t bytes = (const size_t[]){2, 4, 8}[below(&seed, 3)];
        size_t size = (size_t)tri_layout_elements(&layout, &shape) * bytes;
        char *memory = malloc(size);
        assert_non_null(memory);
        for (size_t i = 0; i < size; i++) memory[i] = (char)rand_r(&seed);
        int total = (int)tri_shape_count(&shape);
        check_range(&layout, &shape, bytes, memory, 0, total);
        for (int k = 0; k < 5; k++) {
            int first = below(&seed, total);
            check_range(&layout, &shape, bytes, memory, first, below(&seed, total - first + 1));
        }
        free(memory);
    }
}

// The transpose of a matrix lies in the same memory; copies of many columns at once, too.
static void test_transposed(void **state) {
    unsigned seed = 12;
    for (int round = 0; round < 100; round++) {
        tri_shape shape = tri_shape_of(1 + below(&seed, 50), 1 + below(&seed, 50));
        tri_shape other = tri_shape_of(shape.dims[1], shape.dims[0]);
        tri_layout layout = round % 2 ? random_layout(&seed, 2) : TRI_LAYOUT_PLAIN;
        tri_layout transposed = tri_layout_transposed(&layout);
        assert_int_equal(tri_layout_elements(&layout, &shape),
                         tri_layout_elements(&transposed, &other));
        for (int64_t i = 0; i < shape.dims[0]; i++)
            for (int64_t j = 0; j < shape.dims[1]; j++)
                assert_int_equal(tri_layout_offset(&layout, &shape, (int64_t[]){i, j}),
                                 tri_layout_offset(&transposed, &other, (int64_t[]){j, i}));
        size_t size = (size_t)tri_layout_elements(&layout, &shape) * 4;
        char *memory = malloc(size);
        assert_non_null(memory);
        for (size_t i = 0; i < size; i++) memory[i] = (char)rand_r(&seed);
        int total = (int)tri_shape_count(&shape), first = below(&seed, total);
        check_range(&transposed, &other, 4, memory, 0, total);
        check_range(&transposed, &other, 4, memory, first, below(&seed, total - first + 1));
        free(memory);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_offsets),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_transposed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
