// A run as a table of comma-separated values (RFC 4180): a row for each kind and step, a column for
// each key. An empty field: the line has no such figure. What is not finite is NaN, Infinity or
// -Infinity.
#ifndef TRIREME_VIEWS_CSV_H
#define TRIREME_VIEWS_CSV_H

#include "observe/observe.h"
#include "views/run.h"

// Writes all curves of the run into the file, which is replaced. The columns are kind, step, wall_s
// (seconds of training up to there, in all processes of the run) and the keys, in the order in
// which they come first.
tri_status views_csv_write(const views_run *run, const char *path);

// The sink of `log.csv`: FOLDER/metrics.csv, which grows with metrics.jsonl. A resumed run
// first writes the file again, so that repeated steps are in it once.
extern const tri_event_sink views_sink_csv;

#endif
