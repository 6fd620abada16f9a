// The report of one or several runs: everything that a page shows, as one JSON object, and the page
// itself, which has this object inside and draws it.
#ifndef TRIREME_VIEWS_REPORT_H
#define TRIREME_VIEWS_REPORT_H

#include "views/run.h"

#include <stdio.h>

// A run of a report.
typedef struct views_report_run {
    const views_run *run;
    // The recipe with which a run of the same model, data set, optimizer … would begin if nothing
    // else were set; NULL: not known.
    const tri_tree *defaults;
} views_report_run;

// Writes the data of the report as one line of JSON. Numbers of curves have the fewest digits that
// read back as the same value, those that are not finite are strings.
void views_report_write_data(FILE *out, const views_report_run *runs, int count);
// Writes the page, which needs no network and nothing beside it: a content security policy allows
// its own script and style by their hashes and forbids everything else.
tri_status views_report_write_page(FILE *out, const views_report_run *runs, int count);

// Writes a number with the fewest digits, 9 or 17, that read back as the same value; without
// quotes. What is not finite is NaN, Infinity or -Infinity.
enum { VIEWS_NUMBER_BYTES = 32 };
const char *views_number(double value, char text[VIEWS_NUMBER_BYTES]);
// Reads a number of a line of metrics.jsonl, also one that is not finite. False: it is none.
bool views_read_number(const tri_tree *value, double *out);

#endif
