// Data sets that are opened, or refused, in tests. To be included after cmocka.h.
#ifndef TESTS_SUPPORT_DATASET_CASES_H
#define TESTS_SUPPORT_DATASET_CASES_H

#include "support/data_fixture.h"
#include "support/message.h"

// Opens a data set that has to be good.
static inline tri_dataset *opened(const tri_data_options *options, tri_data_split split) {
    tri_dataset *dataset;
    if (tri_dataset_open(options, split, 1, &dataset) != TRI_OK)
        fail_msg("%s", tri_error_message());
    return dataset;
}

// Checks that a data set is refused with `status` and a message that has `parts` (message.h).
static inline void refuse(const char *yaml, tri_data_split split, tri_status status,
                          const char *parts) {
    tri_data_options options = fixture_options(yaml);
    tri_dataset *dataset;
    assert_int_equal(tri_dataset_open(&options, split, 1, &dataset), status);
    assert_null(dataset);
    message_check(tri_error_message(), parts);
}

#endif
