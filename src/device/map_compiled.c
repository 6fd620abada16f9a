// Finds the formulas of map_compiled.h by their texts.
#include "device/map_compiled.h"

#include <string.h>

#define NUMBER(x) x
#define AS(text, same) text
#define TEXT(...) #__VA_ARGS__
#define EXPANDED(...) TEXT(__VA_ARGS__)
#define PART(name, value) ", " #name " = " EXPANDED(value)
enum { DEFAULT_SLOPE = 2 }; // in the texts below
#define ONE(name, a, parts, y) #a ", slope = 2" parts " -> " EXPANDED(y),
#define TWO(name, a, b, parts, y) #a ", " #b ", slope = 2" parts " -> " EXPANDED(y),
#define PAIR(name, a, b, c, parts, y, z)                                                           \
#a ", " #b ", " #c ", slope = 2" parts " -> " EXPANDED(y) ", " EXPANDED(z),
static const char *const texts[] = {TRI_COMPILED_LIST(ONE, TWO, PAIR)};

static bool is(const tri_formula *formula, const char *text, double slope) {
    tri_formula parsed;
    return tri_formula_parse(text, &slope, &parsed) == TRI_OK &&
           !memcmp(&parsed, formula, sizeof parsed);
}

// The slope is one of the formula's constants, if the text has it at all.
tri_compiled tri_compiled_find(const tri_formula *formula, double *slope) {
    for (int row = 0; row < TRI_COMPILED_COUNT; row++) {
        tri_formula parsed;
        bool parses = tri_formula_parse(texts[row], NULL, &parsed) == TRI_OK;
        if (!parses || memcmp(parsed.steps, formula->steps, sizeof parsed.steps) != 0) continue;
        *slope = DEFAULT_SLOPE;
        if (!memcmp(&parsed, formula, sizeof parsed)) return (tri_compiled)row;
        for (int k = 0; k < formula->constant_count; k++) {
            *slope = formula->constants[k];
            if (is(formula, texts[row], *slope)) return (tri_compiled)row;
        }
    }
    return TRI_COMPILED_COUNT;
}
