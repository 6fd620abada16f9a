// Shows the curve of `trireme lr-find` in the terminal and as SVG.
#ifndef TRIREME_CLI_LR_DRAW_H
#define TRIREME_CLI_LR_DRAW_H

#include "train/lr_rule.h"

#include <stdio.h>

typedef struct lr_drawing {
    const char *name; // of the recipe
    const tri_lr_curve *curve;
    int chosen; // index of the suggested point; -1: there is none
} lr_drawing;

// The rates rise from left to right by equal factors. Losses above 1.25 times the first one are cut
// off, so that the fall can be seen beside the end.
void lr_print(const lr_drawing *drawing, FILE *out);
void lr_draw(const lr_drawing *drawing, FILE *out);

#endif
