// The environment variables that change how the program works, as one table: it bounds what they
// may be, and the manual page lists it.
#ifndef TRIREME_BASE_VARIABLE_H
#define TRIREME_BASE_VARIABLE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum tri_variable_kind {
    TRI_VARIABLE_TEXT,   // anything
    TRI_VARIABLE_CHOICE, // one of `values`
    TRI_VARIABLE_WHOLE,  // a whole number from 0 to `most`
    TRI_VARIABLE_RATE,   // a number above 0, such as 60G or 1.1e11
} tri_variable_kind;

typedef struct tri_variable {
    const char *name;
    tri_variable_kind kind;
    const char *values; // what may be set: for a choice "auto|none"; else a word for people
    int64_t most;
    const char *help;
} tri_variable;

// The table. Ends with a NULL name.
extern const tri_variable tri_variables[];

// Reads variables. `get` returns the value of a name; NULL: of the process's environment. A
// variable that is empty counts as not set, and then *out keeps its value. TRI_BAD_INPUT: it is set
// to something else than its row in the table allows; the message names it.
typedef const char *(*tri_get_variable)(const char *name);
tri_status tri_variable_choice(tri_get_variable get, const char *name, const char **out);
tri_status tri_variable_whole(tri_get_variable get, const char *name, int64_t *out);
tri_status tri_variable_rate(tri_get_variable get, const char *name, double *out);
// Checks all variables of the table, so that a command refuses a wrong one before it does anything.
tri_status tri_variables_check(tri_get_variable get);

#endif
