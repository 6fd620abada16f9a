// Pictures of a step: what each lane of each rank does at what time, and how much memory is in use.
#ifndef TRIREME_PLAN_DRAW_H
#define TRIREME_PLAN_DRAW_H

#include "plan/estimate.h"

#include <stdio.h>

typedef struct tri_drawing {
    const tri_pipeline_plans *pipeline;
    const tri_estimate *estimate;
    const char *title; // of the SVG
    int columns;       // width in characters, in the terminal
    bool colour;       // ANSI colours in the terminal
} tri_drawing;

// Draws one row for each lane of each pipeline rank. A letter is a micro-batch if there is a
// pipeline, because there the interest is where each micro-batch is; else it is a block. Small
// letters are forward, capital ones backward.
void tri_draw_gantt(const tri_drawing *drawing, FILE *out);
// Writes the same picture as an SVG document.
void tri_draw_svg(const tri_drawing *drawing, FILE *out);
// Draws how many bytes are in use on the heaps of a step, over its actions, for one plan: it shows
// which action makes the peak.
void tri_draw_memory(const tri_plan *plan, int columns, FILE *out);

#endif
