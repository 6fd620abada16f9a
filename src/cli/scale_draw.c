// The picture of `trireme scale` as SVG: samples per second and efficiency over the number of
// ranks, measured, ideal and simulated.
#include "cli/scale_view.h"

#include "base/xml.h"

#include <math.h>
#include <string.h>

enum {
    WIDTH = 1040,
    HEIGHT = 500,
    TOP = 96,
    BOTTOM = 400,
    MARGIN = 28,
    RATE_LEFT = 112,
    RATE_RIGHT = 560,
    EFFICIENCY_LEFT = 660,
    EFFICIENCY_RIGHT = 1010,
    LETTER = 7 // approximate width of a letter in pixels
};

#define COLOUR_IDEAL "#8a8a8a"
#define COLOUR_MEASURED "#1f5fa8"
#define COLOUR_SIMULATED "#c8641e"

// A plot. The axis of the number of ranks, from left to right, is logarithmic, because sweeps
// double this number; values grow upwards.
typedef struct plot {
    int left, right;
    double fewest, most; // range of the numbers of ranks
    double low, high;    // range of the values
    bool is_log;         // the axis of the values is logarithmic too
    int title_gap;       // pixels between the axis and its title
} plot;

static double x_of(const plot *p, double ranks) {
    double span = log2(p->most / p->fewest);
    double at = span > 0 ? log2(ranks / p->fewest) / span : 0.5;
    return p->left + 15 + at * (p->right - p->left - 30);
}

static double y_of(const plot *p, double value) {
    double at = p->is_log ? log(value / p->low) / log(p->high / p->low)
                          : (value - p->low) / (p->high - p->low);
    return BOTTOM - at * (BOTTOM - TOP);
}

static void put_tick(const plot *p, double value, const char *text, FILE *out) {
    double y = y_of(p, value);
    fprintf(out,
            "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>"
            "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
            p->left, y, p->right, y, p->left - 8, y + 4, text);
}

static void put_ranks(const scale_view *v, const plot *p, FILE *out) {
    double free_from = 0;
    for (int i = 0; i < v->count; i++) {
        double x = x_of(p, v->points[i].ranks);
        fprintf(out, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#444\"/>", x,
                BOTTOM, x, BOTTOM + 5);
        if (x < free_from) continue;
        fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", x, BOTTOM + 20,
                v->points[i].ranks);
        free_from = x + 5 * LETTER;
    }
}

static void put_frame(const plot *p, const char *value, FILE *out) {
    int x = p->left - p->title_gap, y = (TOP + BOTTOM) / 2;
    fprintf(out,
            "<path d=\"M%d %d V%d H%d\" fill=\"none\" stroke=\"#444\"/>"
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" font-size=\"13\">ranks</text>"
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" font-size=\"13\" "
            "transform=\"rotate(-90 %d %d)\">%s</text>\n",
            p->left, TOP, BOTTOM, p->right, (p->left + p->right) / 2, BOTTOM + 42, x, y, x, y,
            value);
}

typedef double value_of(const scale_view *v, int point);

static double simulated_rate(const scale_view *v, int i) {
    return (double)scale_batch(&v->points[i]) / v->points[i].simulated_step_s;
}
static double measured_rate(const scale_view *v, int i) {
    return v->points[i].measured.samples_per_s;
}
static double per_rank(const scale_view *v, int i, double rate) {
    double first = scale_samples_per_s(&v->points[0]) / v->points[0].ranks;
    return 100 * rate / v->points[i].ranks / first;
}
static double simulated_percent(const scale_view *v, int i) {
    return per_rank(v, i, simulated_rate(v, i));
}
static double measured_percent(const scale_view *v, int i) {
    return per_rank(v, i, measured_rate(v, i));
}

static void put_line(const scale_view *v, const plot *p, value_of *value, int count,
                     const char *style, FILE *out) {
    fprintf(out, "<polyline fill=\"none\" %s points=\"", style);
    for (int i = 0; i < count; i++)
        fprintf(out, "%s%.1f,%.1f", i ? " " : "", x_of(p, v->points[i].ranks),
                y_of(p, value(v, i)));
    fputs("\"/>\n", out);
}

static void put_mark(const scale_view *v, const plot *p, int i, value_of *value, const char *what,
                     const char *style, FILE *out) {
    fprintf(out,
            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" %s><title>%s, %s: %.4g%s</title></circle>\n",
            x_of(p, v->points[i].ranks), y_of(p, value(v, i)), style, what,
            tri_counted(v->points[i].ranks, "rank"), value(v, i), p->is_log ? " samples/s" : "%");
}

// Draws the spread of a point's measurements, from the tenth to the ninetieth percentile, so that
// readers see which differences are only noise.
static void put_spread(const scale_view *v, const plot *p, int i, FILE *out) {
    const tri_bench_result *m = &v->points[i].measured;
    double low = m->samples_per_s_low, high = m->samples_per_s_high, x;
    if (!p->is_log) low = per_rank(v, i, low), high = per_rank(v, i, high);
    x = x_of(p, v->points[i].ranks);
    fprintf(out, "<path d=\"M%.1f %.1f V%.1f\" stroke=\"" COLOUR_MEASURED "\"/>\n", x, y_of(p, low),
            y_of(p, high));
}

static int measured_count(const scale_view *v) {
    int count = 0;
    while (count < v->count && v->points[count].is_measured) count++;
    return count;
}

static void put_series(const scale_view *v, const plot *p, value_of *measured, value_of *simulated,
                       FILE *out) {
    int count = measured_count(v);
    put_line(v, p, simulated, v->count,
             "stroke=\"" COLOUR_SIMULATED "\" stroke-width=\"1.5\" stroke-dasharray=\"2 4\"", out);
    put_line(v, p, measured, count, "stroke=\"" COLOUR_MEASURED "\" stroke-width=\"2\"", out);
    for (int i = 0; i < v->count; i++)
        put_mark(v, p, i, simulated, "simulated", "fill=\"#fff\" stroke=\"" COLOUR_SIMULATED "\"",
                 out);
    for (int i = 0; i < count; i++) {
        put_spread(v, p, i, out);
        put_mark(v, p, i, measured, "measured", "fill=\"" COLOUR_MEASURED "\"", out);
    }
}

static double ideal_rate(const scale_view *v, int i) {
    return scale_samples_per_s(&v->points[0]) * v->points[i].ranks / v->points[0].ranks;
}

static double ideal_percent(const scale_view *v, int i) {
    (void)v, (void)i;
    return 100;
}

#define IDEAL "stroke=\"" COLOUR_IDEAL "\" stroke-width=\"1.5\" stroke-dasharray=\"7 4\""

static void draw_rates(const scale_view *v, plot p, FILE *out) {
    p.left = RATE_LEFT;
    p.right = RATE_RIGHT;
    p.is_log = true;
    p.title_gap = RATE_LEFT - MARGIN;
    p.low = INFINITY;
    for (int i = 0; i < v->count; i++) {
        const scale_point *point = &v->points[i];
        p.low = fmin(p.low, fmin(simulated_rate(v, i), ideal_rate(v, i)));
        p.high = fmax(p.high, fmax(simulated_rate(v, i), ideal_rate(v, i)));
        if (!point->is_measured) continue;
        p.low = fmin(p.low, point->measured.samples_per_s_low);
        p.high = fmax(p.high, point->measured.samples_per_s_high);
    }
    p.low /= 1.25;
    p.high *= 1.25;
    bool is_wide = p.high / p.low > 8;
    for (double decade = pow(10, floor(log10(p.low))); decade <= p.high; decade *= 10)
        for (int k = 1; k < 10; k++) {
            bool is_tick = k == 1 || k == 2 || k == 5 || !is_wide;
            double value = k * decade;
            if (is_tick && value >= p.low && value <= p.high)
                put_tick(&p, value,
                         value < 10 ? tri_arena_printf(v->arena, "%.4g", value)
                                    : tri_grouped(value),
                         out);
        }
    put_ranks(v, &p, out);
    put_frame(&p, "samples per second", out);
    put_line(v, &p, ideal_rate, v->count, IDEAL, out);
    put_series(v, &p, measured_rate, simulated_rate, out);
}

static void draw_efficiency(const scale_view *v, plot p, FILE *out) {
    p.left = EFFICIENCY_LEFT;
    p.right = EFFICIENCY_RIGHT;
    p.high = 105;
    p.title_gap = 54;
    for (int i = 0; i < v->count; i++) {
        p.high = fmax(p.high, simulated_percent(v, i) + 5);
        if (v->points[i].is_measured)
            p.high = fmax(p.high, per_rank(v, i, v->points[i].measured.samples_per_s_high) + 5);
    }
    int step = p.high > 210 ? 50 : 20;
    for (int percent = 0; percent <= p.high; percent += step)
        put_tick(&p, percent, tri_arena_printf(v->arena, "%d%%", percent), out);
    put_ranks(v, &p, out);
    put_frame(&p, "efficiency", out);
    put_line(v, &p, ideal_percent, v->count, IDEAL, out);
    put_series(v, &p, measured_percent, simulated_percent, out);
}

static void put_legend(FILE *out) {
    static const struct {
        const char *text, *style;
        bool is_filled;
    } rows[] = {
        {"ideal", IDEAL, false},
        {"measured (p10 to p90)", "stroke=\"" COLOUR_MEASURED "\" stroke-width=\"2\"", true},
        {"simulated",
         "stroke=\"" COLOUR_SIMULATED "\" stroke-width=\"1.5\" stroke-dasharray=\"2 4\"", false},
    };
    int x = RATE_LEFT, y = 66;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fprintf(out, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" %s/>", x, y, x + 36, y,
                rows[i].style);
        if (i > 0)
            fprintf(out, "<circle cx=\"%d\" cy=\"%d\" r=\"4\" fill=\"%s\" stroke=\"%s\"/>", x + 18,
                    y, rows[i].is_filled ? COLOUR_MEASURED : "#fff",
                    rows[i].is_filled ? COLOUR_MEASURED : COLOUR_SIMULATED);
        fprintf(out, "<text x=\"%d\" y=\"%d\">%s</text>\n", x + 44, y + 4, rows[i].text);
        x += 44 + LETTER * (int)strlen(rows[i].text) + 40;
    }
}

// Writes the text that tells how points were simulated, broken into lines at blanks.
static void put_method(const char *text, FILE *out) {
    enum { LINE = 150 };
    for (int y = BOTTOM + 68; *text; y += 16) {
        size_t length = strlen(text);
        if (length > LINE)
            for (length = LINE; length > 0 && text[length] != ' '; length--) {
            }
        if (length == 0) length = strlen(text);
        char line[TRI_MESSAGE_MAX_BYTES];
        snprintf(line, sizeof line, "%.*s", (int)length, text);
        fprintf(out, "<text x=\"%d\" y=\"%d\" fill=\"#555\">", MARGIN - 8, y);
        tri_xml_put(line, out);
        fputs("</text>\n", out);
        text += length;
        while (*text == ' ') text++;
    }
}

void scale_draw(const scale_view *v, FILE *out) {
    plot p = {.fewest = v->points[0].ranks, .most = v->points[v->count - 1].ranks};
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
            "<text x=\"%d\" y=\"34\" font-size=\"17\">",
            WIDTH, HEIGHT, WIDTH, HEIGHT, MARGIN - 8);
    tri_xml_put(scale_title(v), out);
    fputs("</text>\n", out);
    put_legend(out);
    draw_rates(v, p, out);
    draw_efficiency(v, p, out);
    put_method(scale_method(v), out);
    fputs("</svg>\n", out);
}
