// The limits that decide whether a measured value means go or no-go, and how a user sets them.
#include "preflight/limits.h"

#include "base/option.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const preflight_limit_row rows[] = {
#define X(name, value, what, why) {#name, what, why, value},
    PREFLIGHT_LIMIT_LIST(X)
#undef X
};

static const size_t offsets[] = {
#define X(name, value, what, why) offsetof(preflight_limits, name),
    PREFLIGHT_LIMIT_LIST(X)
#undef X
};

enum { ROWS = sizeof rows / sizeof *rows };

const preflight_limit_row *preflight_limit(int index) { return index < ROWS ? &rows[index] : NULL; }

preflight_limits preflight_limits_default(void) {
    return (preflight_limits){
#define X(name, value, what, why) .name = (value),
        PREFLIGHT_LIMIT_LIST(X)
#undef X
    };
}

static int find(const char *name, size_t length) {
    for (int i = 0; i < ROWS; i++)
        if (strlen(rows[i].name) == length && !strncmp(rows[i].name, name, length)) return i;
    return -1;
}

tri_status preflight_limits_set(preflight_limits *limits, const char *word) {
    const char *equals = strchr(word, '='), *known[ROWS];
    if (!equals)
        return TRI_FAIL(TRI_BAD_INPUT,
                        "'%.60s' is not a limit as space_gb=100; --limits lists them", word);
    size_t length = (size_t)(equals - word);
    int row = find(word, length);
    if (row < 0) {
        char name[64] = "";
        if (length < sizeof name) memcpy(name, word, length);
        for (int i = 0; i < ROWS; i++) known[i] = rows[i].name;
        const char *near = tri_option_nearest(name, known, ROWS);
        return TRI_FAIL(TRI_BAD_INPUT, "there is no limit '%.*s'%s%s%s; --limits lists them",
                        length < 60 ? (int)length : 60, word, near ? " (did you mean '" : "",
                        near ? near : "", near ? "'?)" : "");
    }
    char *end;
    double value = strtod(equals + 1, &end);
    if (end == equals + 1 || *end || !(value >= 0 && value <= 1e12))
        return TRI_FAIL(TRI_BAD_INPUT, "%s: '%.40s' is not a number from 0", rows[row].name,
                        equals + 1);
    memcpy((char *)limits + offsets[row], &value, sizeof value);
    return TRI_OK;
}
