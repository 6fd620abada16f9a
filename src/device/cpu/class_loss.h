// Computes cross-entropy, accuracy and the gradient of cross-entropy for rows of scores. A row has
// one score for each class; its label is the number of its class, or TRI_IGNORED_LABEL.
#ifndef TRIREME_DEVICE_CPU_CLASS_LOSS_H
#define TRIREME_DEVICE_CPU_CLASS_LOSS_H

#include "device/cpu/internal.h"

// Rows of scores [rows, classes], F32 or BF16, and a label for each row.
typedef struct cpu_class_rows {
    const void *scores;
    const int64_t *labels;
    int64_t rows, classes;
    bool bf16;
} cpu_class_rows;

// Checks the labels of all rows. Returns TRI_BAD_INPUT if one of them is neither a class nor
// TRI_IGNORED_LABEL.
tri_status cpu_class_check_labels(const cpu_class_rows *rows);
// Computes losses[n], the cross-entropy of each row n, which is 0 if its label is ignored.
void cpu_class_losses(const cpu_device *device, const cpu_class_rows *rows, double *losses);
// Computes hits[n]: 1 if the label of row n is the predicted class, which is the first class with
// the row's largest score; else 0.
void cpu_class_hits(const cpu_device *device, const cpu_class_rows *rows, double *hits);
// How many floats the caller has to provide as scratch memory `terms` of cpu_class_gradient; 0:
// `terms` is not used.
int64_t cpu_class_terms(const tri_device_description *device, int64_t classes, bool bf16);
// Computes the gradient of `seed` times the sum of the losses. `gradient` has the type of the
// scores and may be the scores' own memory. Also computes `losses` as cpu_class_losses does, with
// the same bits, unless `losses` is NULL.
void cpu_class_gradient(const cpu_device *device, const cpu_class_rows *rows, float seed,
                        float *terms, void *gradient, double *losses);
// Sets pair[0] to the sum of of_row[n] (a loss, or 1 for a hit) over the rows n, in their order,
// and pair[1] to the number of labels that are not ignored.
void cpu_class_sum(const cpu_class_rows *rows, const double *of_row, double *pair);

#endif
