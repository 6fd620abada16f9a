// Pictures of a step: what each rank and lane does when, and how much memory is in use.
#ifndef TRIREME_PLAN_DRAW_H
#define TRIREME_PLAN_DRAW_H

#include "plan/estimate.h"

#include <stdio.h>

typedef struct tri_drawing {
    const tri_pipeline_plans *pipeline;
    const tri_estimate *estimate;
    const char *title; // of the SVG
    int columns;       // of characters in the terminal
    bool colour;       // ANSI colours in the terminal
} tri_drawing;

// One row for each place along the pipeline and lane. A letter is a micro-batch where there is a
// pipeline, else a block: small forward, capital backward.
void tri_draw_gantt(const tri_drawing *drawing, FILE *out);
// The same as a picture that needs no other file.
void tri_draw_svg(const tri_drawing *drawing, FILE *out);
// The bytes in use in the stretches of a step, over its actions, for one plan.
void tri_draw_memory(const tri_plan *plan, int columns, FILE *out);

#endif
