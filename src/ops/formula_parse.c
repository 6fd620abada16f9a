// Makes the formula of an expression, by recursive descent: one function for each level of
// precedence, from the conditional a ? b : c down to names, numbers and calls.
#include "ops/formula.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAMES = TRI_FORMULA_INPUTS + TRI_FORMULA_CONSTANTS, MOST_DEPTH = 64 };

typedef struct name {
    const char *at;
    size_t length;
    int operand;
    bool used;
} name;

typedef struct parser {
    const char *text, *at; // the whole expression, and where the parser is
    tri_formula_maker maker;
    name names[MOST_NAMES];
    int name_count, depth;
    const char *error, *error_at;
} parser;

static int conditional(parser *p);

static void fail(parser *p, const char *error) {
    if (p->error) return;
    p->error = error;
    p->error_at = p->at;
}

static void skip_space(parser *p) {
    while (isspace((unsigned char)*p->at)) p->at++;
}

static bool takes(parser *p, const char *token) {
    skip_space(p);
    size_t length = strlen(token);
    if (p->error || strncmp(p->at, token, length) != 0) return false;
    p->at += length;
    return true;
}

// As `takes`, unless the token is the begin of a longer one, such as < of <=.
static bool takes_alone(parser *p, const char *token, char next) {
    skip_space(p);
    return p->at[0] == token[0] && p->at[1] != next && takes(p, token);
}

static int step(parser *p, tri_step_kind kind, int a, int b, int c) {
    int made = tri_formula_step_add(&p->maker, kind, a, b, c);
    if (p->maker.error) fail(p, p->maker.error);
    return made;
}

static int constant(parser *p, double value) {
    int made = tri_formula_constant(&p->maker, value);
    if (p->maker.error) fail(p, p->maker.error);
    return made;
}

static size_t name_length(const char *at) {
    size_t length = 0;
    if (!isalpha((unsigned char)*at) && *at != '_') return 0;
    while (isalnum((unsigned char)at[length]) || at[length] == '_') length++;
    return length;
}

static bool is(const char *at, size_t length, const char *text) {
    return strlen(text) == length && !strncmp(at, text, length);
}

static name *find_name(parser *p, const char *at, size_t length) {
    for (int i = 0; i < p->name_count; i++)
        if (p->names[i].length == length && !strncmp(p->names[i].at, at, length))
            return &p->names[i];
    return NULL;
}

static void add_name(parser *p, const char *at, size_t length, int operand) {
    if (find_name(p, at, length)) fail(p, "this name is there twice");
    if (p->name_count == MOST_NAMES) fail(p, "there are too many names");
    if (p->error) return;
    p->names[p->name_count++] = (name){at, length, operand, false};
}

static double number(parser *p) {
    skip_space(p);
    const char *begin = p->at;
    char digits[64];
    size_t length = 0;
    while (isdigit((unsigned char)*p->at) || *p->at == '.' ||
           ((*p->at == 'e' || *p->at == 'E') && p->at > begin) ||
           ((*p->at == '-' || *p->at == '+') && p->at > begin &&
            (p->at[-1] == 'e' || p->at[-1] == 'E')))
        p->at++;
    length = (size_t)(p->at - begin);
    if (length == 0 || length >= sizeof digits) {
        fail(p, "a number is missing here");
        return 0;
    }
    memcpy(digits, begin, length);
    digits[length] = 0;
    char *end;
    double value = strtod(digits, &end);
    if (*end) {
        p->at = begin;
        fail(p, "this is no number");
    }
    return value;
}

static int call(parser *p, const char *function, size_t length) {
    int operands[3] = {0}, count = 0, kind = 0;
    do {
        if (count == 3) break;
        operands[count++] = conditional(p);
    } while (takes(p, ","));
    if (!takes(p, ")")) fail(p, "a ) is missing here");
    while (kind < TRI_STEP_KIND_COUNT && !is(function, length, tri_step_name((tri_step_kind)kind)))
        kind++;
    if (p->error) return operands[0];
    p->at = kind == TRI_STEP_KIND_COUNT ? function : p->at;
    if (kind == TRI_STEP_KIND_COUNT)
        fail(p, "there is no such function");
    else if (tri_step_arity((tri_step_kind)kind) != count)
        fail(p, "the function before it takes another number of values");
    if (p->error) return operands[0];
    return step(p, (tri_step_kind)kind, operands[0], operands[1], operands[2]);
}

static int primary(parser *p) {
    skip_space(p);
    if (takes(p, "(")) {
        int made = conditional(p);
        if (!takes(p, ")")) fail(p, "a ) is missing here");
        return made;
    }
    size_t length = name_length(p->at);
    if (length == 0) return constant(p, number(p));
    const char *at = p->at;
    name *known = find_name(p, at, length);
    p->at += length;
    if (!known && takes(p, "(")) return call(p, at, length);
    if (known) {
        known->used = true;
        return known->operand;
    }
    if (is(at, length, "pi")) return constant(p, 3.14159265358979323846);
    p->at = at;
    if (p->name_count == 0 && !p->error) { // the only input, which has no name before an arrow
        p->maker.formula->input_count = 1;
        add_name(p, at, length, TRI_OPERAND_INPUT);
        p->names[0].used = true;
        p->at += length;
        return TRI_OPERAND_INPUT;
    }
    fail(p, "this name is no input: name several inputs first, as in \"x, y -> x * y\"");
    return 0;
}

static int unary(parser *p) {
    int made = 0;
    if (++p->depth > MOST_DEPTH) fail(p, "it is nested too deeply");
    if (p->error) return 0;
    if (takes(p, "-"))
        made = step(p, TRI_STEP_neg, unary(p), 0, 0);
    else if (takes_alone(p, "!", '='))
        made = step(p, TRI_STEP_not, unary(p), 0, 0);
    else if (takes(p, "~"))
        made = step(p, TRI_STEP_bit_xor, unary(p), constant(p, -1), 0);
    else {
        made = primary(p);
        if (takes(p, "^")) made = step(p, TRI_STEP_pow, made, unary(p), 0);
    }
    p->depth--;
    return made;
}

static int product(parser *p) {
    int made = unary(p);
    for (;;) {
        if (takes(p, "*"))
            made = step(p, TRI_STEP_mul, made, unary(p), 0);
        else if (takes(p, "//"))
            made = step(p, TRI_STEP_floor_div, made, unary(p), 0);
        else if (takes(p, "/"))
            made = step(p, TRI_STEP_div, made, unary(p), 0);
        else if (takes(p, "%"))
            made = step(p, TRI_STEP_remainder, made, unary(p), 0);
        else
            return made;
    }
}

static int sum(parser *p) {
    int made = product(p);
    for (;;) {
        if (takes(p, "+"))
            made = step(p, TRI_STEP_add, made, product(p), 0);
        else if (takes_alone(p, "-", '>')) // not the arrow
            made = step(p, TRI_STEP_sub, made, product(p), 0);
        else
            return made;
    }
}

static int shift(parser *p) {
    int made = sum(p);
    for (;;) {
        if (takes(p, "<<"))
            made = step(p, TRI_STEP_shift_left, made, sum(p), 0);
        else if (takes(p, ">>"))
            made = step(p, TRI_STEP_shift_right, made, sum(p), 0);
        else
            return made;
    }
}

static int common_bits(parser *p) {
    int made = shift(p);
    while (takes_alone(p, "&", '&')) made = step(p, TRI_STEP_bit_and, made, shift(p), 0);
    return made;
}

static int bits(parser *p) {
    int made = common_bits(p);
    while (takes_alone(p, "|", '|')) made = step(p, TRI_STEP_bit_or, made, common_bits(p), 0);
    return made;
}

static int comparison(parser *p) {
    int made = bits(p);
    if (takes(p, "<=")) return step(p, TRI_STEP_less_equal, made, bits(p), 0);
    if (takes(p, ">=")) return step(p, TRI_STEP_less_equal, bits(p), made, 0);
    if (takes(p, "==")) return step(p, TRI_STEP_equal, made, bits(p), 0);
    if (takes(p, "!="))
        return step(p, TRI_STEP_not, step(p, TRI_STEP_equal, made, bits(p), 0), 0, 0);
    if (takes(p, "<")) return step(p, TRI_STEP_less, made, bits(p), 0);
    if (takes(p, ">")) return step(p, TRI_STEP_less, bits(p), made, 0);
    return made;
}

static int truth(parser *p, int a) {
    return step(p, TRI_STEP_not, step(p, TRI_STEP_not, a, 0, 0), 0, 0);
}

static int conjunction(parser *p) {
    int made = comparison(p);
    while (takes(p, "&&")) {
        int right = truth(p, comparison(p));
        made = step(p, TRI_STEP_mul, truth(p, made), right, 0);
    }
    return made;
}

static int disjunction(parser *p) {
    int made = conjunction(p);
    while (takes(p, "||")) {
        int right = truth(p, conjunction(p));
        made = step(p, TRI_STEP_max, truth(p, made), right, 0);
    }
    return made;
}

static int conditional(parser *p) {
    if (++p->depth > MOST_DEPTH) fail(p, "it is nested too deeply");
    if (p->error) return 0;
    int made = disjunction(p);
    if (takes(p, "?")) {
        int yes = conditional(p);
        if (!takes(p, ":")) fail(p, "a : is missing here");
        int no = conditional(p);
        made = step(p, TRI_STEP_select, made, yes, no);
    }
    p->depth--;
    return made;
}

// Reads the names before the arrow.
static void head(parser *p, const double *values) {
    int parameters = 0;
    do {
        skip_space(p);
        const char *at = p->at;
        size_t length = name_length(at);
        if (length == 0) fail(p, "a name is missing here");
        p->at += length;
        if (takes(p, "=")) {
            double value;
            int made = conditional(p);
            bool is_parameter = tri_formula_is_constant(p->maker.formula, made, &value);
            if (is_parameter && values) made = constant(p, values[parameters++]);
            add_name(p, at, length, made);
            if (p->name_count) p->names[p->name_count - 1].used = true;
        } else {
            if (p->maker.formula->input_count == TRI_FORMULA_INPUTS)
                fail(p, "there are too many inputs");
            if (p->error) return;
            add_name(p, at, length, TRI_OPERAND_INPUT + p->maker.formula->input_count++);
        }
    } while (takes(p, ","));
    if (!takes(p, "->")) fail(p, "-> is missing here");
}

tri_status tri_formula_parse(const char *expression, const double *values, tri_formula *out) {
    int uses[TRI_FORMULA_INPUTS];
    *out = (tri_formula){0};
    parser p = {.text = expression,
                .at = expression,
                .maker = {.formula = out, .most_steps = TRI_EXPRESSION_STEPS}};
    if (strstr(expression, "->")) head(&p, values);
    do {
        int made = conditional(&p);
        if (out->output_count == TRI_FORMULA_OUTPUTS) fail(&p, "there are too many expressions");
        if (!p.error) out->outputs[out->output_count++] = (uint8_t)made;
    } while (takes(&p, ","));
    skip_space(&p);
    if (*p.at) fail(&p, "the expression should end here");
    for (int i = 0; i < p.name_count; i++)
        if (!p.names[i].used) fail(&p, "an input is not used");
    if (!p.error && out->input_count == 0) fail(&p, "it has no input");
    if (p.error)
        return TRI_FAIL(TRI_BAD_INPUT, "map \"%s\", column %d: %s", expression,
                        (int)(p.error_at - expression) + 1, p.error);
    int inputs = out->input_count;
    tri_formula_sweep(out, 0, uses);
    if (out->input_count != inputs)
        return TRI_FAIL(TRI_BAD_INPUT, "map \"%s\": its value does not depend on every input",
                        expression);
    return TRI_OK;
}
