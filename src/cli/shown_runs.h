// The runs that a command shows (report, compare, export), with the defaults of their recipes.
#ifndef TRIREME_CLI_SHOWN_RUNS_H
#define TRIREME_CLI_SHOWN_RUNS_H

#include "views/report.h"

// Opens the run folders of a command line. Warns of lines that could not be read. TRI_BAD_INPUT and
// others: one of them is no run folder.
tri_status cli_open_runs(tri_arena *arena, char **paths, int count, views_report_run **out);

#endif
