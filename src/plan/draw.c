// Draws a step, in the terminal or as SVG: what each lane (computation, each communicator, …) does
// over time, and how much memory is in use. `trireme plan` shows these pictures.
#include "plan/draw.h"

#include "base/limits.h"
#include "base/quantity.h"
#include "base/xml.h"

#include <stdlib.h>
#include <string.h>

// Classes of actions: the kinds of one class are drawn alike, so that a picture has few colours.
// X(class, text, SVG colour, ANSI background)
#define CLASS_LIST(X)                                                                              \
    X(FORWARD, "forward", "#4c8fd6", 44)                                                           \
    X(BACKWARD, "backward", "#5fb35f", 42)                                                         \
    X(WEIGHT, "backward, weights", "#b9c94b", 43)                                                  \
    X(AGAIN, "forward again", "#9a78c9", 45)                                                       \
    X(UPDATE, "optimizer", "#d9773f", 41)                                                          \
    X(MOVE, "between ranks", "#59b5b8", 46)                                                        \
    X(STORE, "storage", "#9b9b9b", 47)                                                             \
    X(TAKE, "batches", "#d98fb5", 105)

typedef enum class {
#define X(class, words, svg, ansi) CLASS_##class,
    CLASS_LIST(X)
#undef X
        CLASS_COUNT
} class;

static const struct {
    const char *words, *svg;
    int ansi;
} classes[] = {
#define X(class, words, svg, ansi) [CLASS_##class] = {words, svg, ansi},
    CLASS_LIST(X)
#undef X
};

static class class_of(tri_action_kind kind) {
    switch (kind) {
    case TRI_ACTION_FORWARD:
        return CLASS_FORWARD;
    case TRI_ACTION_RECOMPUTE:
        return CLASS_AGAIN;
    case TRI_ACTION_BACKWARD:
    case TRI_ACTION_BACKWARD_INPUT:
        return CLASS_BACKWARD;
    case TRI_ACTION_BACKWARD_WEIGHT:
        return CLASS_WEIGHT;
    case TRI_ACTION_HOST_STEP:
        return CLASS_UPDATE;
    case TRI_ACTION_DOWNLOAD:
    case TRI_ACTION_UPLOAD:
        return CLASS_STORE;
    default:
        if (tri_action_lane(kind) == TRI_LANE_STORE) return CLASS_STORE;
        if (tri_action_lane(kind) == TRI_LANE_TAKE) return CLASS_TAKE;
        return tri_action_lane(kind) == TRI_LANE_COMPUTE ? CLASS_UPDATE : CLASS_MOVE;
    }
}

enum { LETTERS = 26 };

static const tri_schedule *schedule_of(const tri_drawing *d, int pipeline_rank) {
    return &d->pipeline->plans[pipeline_rank]->steps[TRI_STEP_FULL].schedule;
}

static bool is_drawn(const tri_drawing *d, int pipeline_rank, int action, tri_lane lane) {
    const tri_moment *m = &d->estimate->moments[pipeline_rank][action];
    return tri_action_lane(schedule_of(d, pipeline_rank)->actions[action].kind) == lane &&
           m->end_s > m->start_s;
}

// The number of what letters stand for: with a pipeline micro-batches, else blocks.
static int lettered_count(const tri_drawing *d) {
    const tri_plan *plan = d->pipeline->plans[0];
    return d->pipeline->count > 1 ? plan->steps[TRI_STEP_FULL].rounds : plan->graph->block_count;
}

// How many successive ones share a letter, so that no letter stands for two that are far apart.
static int lettered_each(const tri_drawing *d) {
    return (lettered_count(d) + LETTERS - 1) / LETTERS;
}

// The number that an action's letter in the picture stands for.
static int number_of(const tri_drawing *d, const tri_action *a) {
    return d->pipeline->count > 1 && a->round >= 0 ? a->round : a->subject;
}

static char letter(const tri_drawing *d, int number, bool capital) {
    if (number < 0 || number >= lettered_count(d)) return '=';
    return (char)((capital ? 'A' : 'a') + number / lettered_each(d));
}

static char mark_of(const tri_drawing *d, const tri_action *a) {
    bool capital = a->kind == TRI_ACTION_BACKWARD || a->kind == TRI_ACTION_BACKWARD_INPUT ||
                   a->kind == TRI_ACTION_SEND_BACK || a->kind == TRI_ACTION_RECV_BACK;
    if (a->kind == TRI_ACTION_BACKWARD_WEIGHT) return '+';
    if (class_of(a->kind) == CLASS_UPDATE) return '=';
    return letter(d, number_of(d, a), capital);
}

static void print_row(const tri_drawing *d, const char *marks, const signed char *colours,
                      FILE *out) {
    int now = -1;
    for (int c = 0; c < d->columns; c++) {
        int next = d->colour ? colours[c] : -1;
        if (next != now && now >= 0) fputs("\033[0m", out);
        if (next != now && next >= 0) fprintf(out, "\033[%d;30m", classes[next].ansi);
        now = next;
        fputc(marks[c], out);
    }
    if (now >= 0) fputs("\033[0m", out);
    fputc('\n', out);
}

static bool fill_row(const tri_drawing *d, int pipeline_rank, tri_lane lane, char *marks,
                     signed char *colours) {
    const tri_schedule *s = schedule_of(d, pipeline_rank);
    bool any = false;
    memset(marks, '.', (size_t)d->columns);
    memset(colours, -1, (size_t)d->columns);
    for (int i = 0; i < s->count; i++) {
        if (!is_drawn(d, pipeline_rank, i, lane)) continue;
        const tri_moment *m = &d->estimate->moments[pipeline_rank][i];
        any = true;
        int from = (int)(m->start_s / d->estimate->step_s * d->columns);
        int to = (int)(m->end_s / d->estimate->step_s * d->columns);
        for (int c = from; c < d->columns && (c < to || c == from); c++) {
            marks[c] = mark_of(d, &s->actions[i]);
            colours[c] = (signed char)class_of(s->actions[i].kind);
        }
    }
    return any;
}

// Prints what letter `index` stands for, and returns how many characters that is.
static int print_letter(const tri_drawing *d, int index, FILE *out) {
    const tri_graph *g = d->pipeline->plans[0]->graph;
    int each = lettered_each(d), first = index * each, last = first + each - 1;
    if (last >= lettered_count(d)) last = lettered_count(d) - 1;
    if (d->pipeline->count > 1)
        return fprintf(out, each > 1 ? "  %c %d-%d" : "  %c %d", 'a' + index, first, last);
    if (first == last) return fprintf(out, "  %c %s", 'a' + index, g->blocks[first]);
    return fprintf(out, "  %c %s to %s", 'a' + index, g->blocks[first], g->blocks[last]);
}

// Prints what the marks of the chart mean, in lines of about its width.
static void print_key(const tri_drawing *d, FILE *out) {
    int each = lettered_each(d), used = 0;
    fprintf(out, "  forward a, b, c, ..., backward A, B, C, ...%s; =: optimizer; .: nothing\n",
            d->pipeline->count > 1 ? "; +: backward of weights" : "");
    used = fprintf(out, "  %s:", d->pipeline->count > 1 ? "micro-batches" : "blocks");
    for (int i = 0; i * each < lettered_count(d); i++) {
        if (used > d->columns) used = fprintf(out, "\n         ") - 1;
        used += print_letter(d, i, out);
    }
    fputc('\n', out);
}

void tri_draw_gantt(const tri_drawing *d, FILE *out) {
    if (d->estimate->step_s <= 0) return;
    tri_arena *arena = tri_arena_create(NULL, "drawing");
    char *marks = TRI_NEW_ARRAY(arena, char, d->columns);
    signed char *colours = TRI_NEW_ARRAY(arena, signed char, d->columns);
    for (int pipeline_rank = 0; pipeline_rank < d->pipeline->count; pipeline_rank++)
        for (tri_lane lane = 0; lane < TRI_LANE_COUNT; lane++) {
            if (!fill_row(d, pipeline_rank, lane, marks, colours)) continue;
            fprintf(out, "  rank %-4d %-9s ", pipeline_rank * d->pipeline->ranks_each,
                    tri_lane_name(lane));
            print_row(d, marks, colours, out);
        }
    print_key(d, out);
    tri_arena_destroy(arena);
}

enum {
    SVG_LEFT = 130,
    SVG_WIDTH = 1100,
    SVG_ROW = 22,
    SVG_TOP = 74,
    SVG_LETTER = 7,
    SVG_RIGHT = 20
};

// Writes the text inside an action's bar: with a pipeline its micro-batch, else its block or its
// unit (parameters that are gathered and reduced together).
static void bar_name(const tri_drawing *d, int pipeline_rank, const tri_action *a, char *out,
                     size_t size) {
    const tri_plan *plan = d->pipeline->plans[pipeline_rank];
    tri_subject subject = tri_action_subject(a->kind);
    bool named = subject == TRI_SUBJECT_BLOCK || subject == TRI_SUBJECT_UNIT;
    if (d->pipeline->count > 1 && a->round >= 0)
        snprintf(out, size, "%d", a->round);
    else
        snprintf(out, size, "%s", named ? plan->flat.units[a->subject].name : "");
}

static void put_bar(const tri_drawing *d, int pipeline_rank, int i, int y, FILE *out) {
    const tri_plan *plan = d->pipeline->plans[pipeline_rank];
    const tri_action *a = &schedule_of(d, pipeline_rank)->actions[i];
    const tri_moment *m = &d->estimate->moments[pipeline_rank][i];
    double scale = SVG_WIDTH / d->estimate->step_s;
    double x = SVG_LEFT + m->start_s * scale, width = (m->end_s - m->start_s) * scale;
    char name[TRI_MAX_NAME_BYTES];
    tri_subject subject = tri_action_subject(a->kind);
    bool named = subject == TRI_SUBJECT_BLOCK || subject == TRI_SUBJECT_UNIT;
    fprintf(out, "<g><title>%s ", tri_action_name(a->kind));
    if (named) tri_xml_put(plan->flat.units[a->subject].name, out);
    if (subject == TRI_SUBJECT_EDGE) fprintf(out, "stage %d to %d", a->from_stage, a->to_stage);
    if (a->round >= 0) fprintf(out, ", micro-batch %d", a->round);
    fprintf(out,
            ": %s to %s</title><rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" "
            "fill=\"%s\" stroke=\"#fff\" stroke-width=\"%.1f\"/>",
            tri_duration_text(m->start_s), tri_duration_text(m->end_s), x, y, width, SVG_ROW - 4,
            classes[class_of(a->kind)].svg, width > 3 ? 0.5 : 0.0);
    bar_name(d, pipeline_rank, a, name, sizeof name);
    if (*name && width > SVG_LETTER * (double)(strlen(name) + 1)) {
        fprintf(out, "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\">", x + width / 2,
                y + SVG_ROW - 9);
        tri_xml_put(name, out);
        fputs("</text>", out);
    }
    fputs("</g>\n", out);
}

static void put_axis(const tri_drawing *d, int bottom, FILE *out) {
    double step = 1e-9, end = d->estimate->step_s;
    // The distance between two marks of the time axis: the first of 1, 2, 5, 10, 20, … ns that
    // divides the axis into at most ten intervals.
    for (int k = 0; end / step > 10; k++) step *= k % 3 == 1 ? 2.5 : 2;
    for (int i = 0; i * step <= end; i++) {
        double x = SVG_LEFT + i * step / end * SVG_WIDTH;
        fprintf(out,
                "<line x1=\"%.2f\" y1=\"%d\" x2=\"%.2f\" y2=\"%d\" stroke=\"#ddd\"/>"
                "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                x, SVG_TOP - 4, x, bottom, x, bottom + 14, i ? tri_duration_text(i * step) : "0");
    }
}

static void put_legend(FILE *out) {
    int x = SVG_LEFT;
    for (int k = 0; k < CLASS_COUNT; k++) {
        fprintf(out,
                "<rect x=\"%d\" y=\"42\" width=\"12\" height=\"12\" fill=\"%s\"/>"
                "<text x=\"%d\" y=\"52\">%s</text>\n",
                x, classes[k].svg, x + 17, classes[k].words);
        x += 40 + SVG_LETTER * (int)strlen(classes[k].words);
    }
}

static int count_rows(const tri_drawing *d) {
    int rows = 0;
    for (int pipeline_rank = 0; pipeline_rank < d->pipeline->count; pipeline_rank++)
        for (tri_lane lane = 0; lane < TRI_LANE_COUNT; lane++) {
            bool any = false;
            for (int i = 0; i < schedule_of(d, pipeline_rank)->count && !any; i++)
                any = is_drawn(d, pipeline_rank, i, lane);
            rows += any;
        }
    return rows;
}

void tri_draw_svg(const tri_drawing *d, FILE *out) {
    int bottom = SVG_TOP + count_rows(d) * SVG_ROW, y = SVG_TOP;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"11\" fill=\"#222\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
            "<text x=\"%d\" y=\"26\" font-size=\"15\">",
            SVG_LEFT + SVG_WIDTH + SVG_RIGHT, bottom + 30, SVG_LEFT + SVG_WIDTH + SVG_RIGHT,
            bottom + 30, SVG_LEFT);
    tri_xml_put(d->title, out);
    fprintf(out, "</text>\n");
    put_legend(out);
    if (d->estimate->step_s > 0) put_axis(d, bottom, out);
    for (int pipeline_rank = 0; pipeline_rank < d->pipeline->count; pipeline_rank++)
        for (tri_lane lane = 0; lane < TRI_LANE_COUNT; lane++) {
            bool any = false;
            for (int i = 0; i < schedule_of(d, pipeline_rank)->count; i++) {
                if (!is_drawn(d, pipeline_rank, i, lane)) continue;
                if (!any)
                    fprintf(out, "<text x=\"8\" y=\"%d\">rank %d %s</text>\n", y + SVG_ROW - 9,
                            pipeline_rank * d->pipeline->ranks_each, tri_lane_name(lane));
                any = true;
                put_bar(d, pipeline_rank, i, y, out);
            }
            y += any ? SVG_ROW : 0;
        }
    fputs("</svg>\n", out);
}

void tri_draw_memory(const tri_plan *plan, int columns, FILE *out) {
    enum { HEIGHT = 8 };
    const tri_step_plan *step = &plan->steps[TRI_STEP_FULL];
    int actions = step->schedule.count;
    if (columns > actions) columns = actions;
    tri_arena *arena = tri_arena_create(NULL, "drawing");
    int64_t *bars = TRI_NEW_ARRAY(arena, int64_t, columns), most = 0;
    for (int i = 0; i < actions; i++) {
        int64_t live = 0;
        for (int k = 0; k < TRI_HEAP_COUNT; k++) live += step->memory.live_bytes[k][i];
        int64_t *bar = &bars[(int64_t)i * columns / actions];
        if (live > *bar) *bar = live;
        if (live > most) most = live;
    }
    for (int row = HEIGHT; most && row > 0; row--) {
        fprintf(out, "  %11s |", tri_bytes_text((double)most * row / HEIGHT));
        for (int c = 0; c < columns; c++)
            fputc((double)bars[c] > (double)most * (row - 0.5) / HEIGHT ? '#' : ' ', out);
        fputc('\n', out);
    }
    fprintf(out, "%15s", "+");
    for (int c = 0; c < columns; c++) fputc('-', out);
    fprintf(out, "\n%15s of %d actions\n", "", actions);
    tri_arena_destroy(arena);
}
