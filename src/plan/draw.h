// Pictures of a step: what each lane of each rank (computation, each communicator, …) does at what
// time, and how much memory is in use.
#ifndef TRIREME_PLAN_DRAW_H
#define TRIREME_PLAN_DRAW_H

#include "plan/estimate.h"

#include <stdio.h>

typedef struct tri_drawing {
    const tri_pipeline_plans *pipeline;
    const tri_estimate *estimate;
    const char *title; // title of the SVG picture
    int columns;       // width of the terminal's picture, in characters
    bool colour;       // true: the terminal's picture uses ANSI colours
} tri_drawing;

// Draws one row for each lane (compute, each communicator, storage, …) of each pipeline rank. With
// a pipeline, a letter stands for a micro-batch, because readers want to see how micro-batches pass
// from rank to rank; without one, it stands for a block. If there are more than letters, each
// stands for several successive ones. A key below the chart lists them. Small letters are forward,
// capital letters backward.
void tri_draw_gantt(const tri_drawing *drawing, FILE *out);
// Writes the same picture as an SVG document.
void tri_draw_svg(const tri_drawing *drawing, FILE *out);
// Draws a bar chart of the bytes that are in use on the heaps of `plan` (memory that a step uses
// again and again), from the first action of a step to the last, so that readers see which actions
// make the peak. It has at most `columns` bars; if there are more actions, each bar shows the
// largest number of bytes in several successive ones.
void tri_draw_memory(const tri_plan *plan, int columns, FILE *out);

#endif
