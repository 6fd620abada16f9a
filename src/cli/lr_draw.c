// Shows the curve of `trireme lr-find` in the terminal and as SVG.
#include "cli/lr_draw.h"

#include "base/quantity.h"
#include "base/xml.h"

#include <math.h>
#include <string.h>

typedef struct range {
    double least, most;
} range;

static double place(const range *r, double value) {
    return r->most > r->least ? (value - r->least) / (r->most - r->least) : 0.5;
}

static range range_of_losses(const tri_lr_curve *c) {
    range all = {c->points[0].loss, c->points[0].loss};
    for (int i = 1; i < c->count; i++) {
        all.least = fmin(all.least, c->points[i].loss);
        all.most = fmax(all.most, c->points[i].loss);
    }
    if (all.least >= 0) all.most = fmin(all.most, 1.25 * c->points[0].loss);
    return all;
}

static range range_of_rates(const tri_lr_curve *c) {
    return (range){log10(c->points[0].lr), log10(c->points[c->count - 1].lr)};
}

void lr_print(const lr_drawing *d, FILE *out) {
    enum { COLUMNS = 64, ROWS = 10 };
    char rows[ROWS][COLUMNS + 1];
    range losses = range_of_losses(d->curve), rates = range_of_rates(d->curve);
    for (int r = 0; r < ROWS; r++) snprintf(rows[r], sizeof rows[r], "%*s", COLUMNS, "");
    for (int i = 0; i < d->curve->count; i++) {
        const tri_lr_point *p = &d->curve->points[i];
        int column = (int)lround((COLUMNS - 1) * place(&rates, log10(p->lr)));
        int row = (int)lround((ROWS - 1) * (1 - place(&losses, fmin(p->loss, losses.most))));
        if (rows[row][column] != '#') rows[row][column] = i == d->chosen ? '#' : '*';
    }
    for (int r = 0; r < ROWS; r++) {
        bool is_end = r == 0 || r == ROWS - 1;
        double loss = r == 0 ? losses.most : losses.least;
        int used = COLUMNS;
        while (used > 0 && rows[r][used - 1] == ' ') used--;
        fprintf(out, "%10s |%.*s\n", is_end ? tri_decimal(loss) : "", used, rows[r]);
    }
    fprintf(out, "%10s  %-*.3g%.3g\n", "", COLUMNS - 6, d->curve->points[0].lr,
            d->curve->points[d->curve->count - 1].lr);
}

enum { WIDTH = 720, HEIGHT = 420, LEFT = 80, RIGHT = 690, TOP = 60, BOTTOM = 350, LEVELS = 5 };

#define GRID "stroke=\"#ddd\""

static double x_of(const range *rates, double lr) {
    return LEFT + place(rates, log10(lr)) * (RIGHT - LEFT);
}

static double y_of(const range *losses, double loss) {
    return BOTTOM - place(losses, fmin(loss, losses->most)) * (BOTTOM - TOP);
}

static void put_axes(const range *rates, const range *losses, FILE *out) {
    for (int power = (int)ceil(rates->least); power <= rates->most; power++) {
        double x = x_of(rates, pow(10, power));
        fprintf(out,
                "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" " GRID "/>"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">1e%d</text>\n",
                x, TOP, x, BOTTOM, x, BOTTOM + 20, power);
    }
    for (int i = 0; i < LEVELS; i++) {
        double loss = losses->least + i * (losses->most - losses->least) / (LEVELS - 1);
        fprintf(out,
                "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" " GRID "/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                LEFT, y_of(losses, loss), RIGHT, y_of(losses, loss), LEFT - 8,
                y_of(losses, loss) + 4, tri_decimal(loss));
    }
    fprintf(out,
            "<path d=\"M%d %d V%d H%d\" fill=\"none\" stroke=\"#444\"/>"
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">learning rate</text>"
            "<text x=\"20\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 20 %d)\">"
            "smoothed loss</text>\n",
            LEFT, TOP, BOTTOM, RIGHT, (LEFT + RIGHT) / 2, BOTTOM + 48, (TOP + BOTTOM) / 2,
            (TOP + BOTTOM) / 2);
}

void lr_draw(const lr_drawing *d, FILE *out) {
    const tri_lr_curve *c = d->curve;
    range losses = range_of_losses(c), rates = range_of_rates(c);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
            "<text x=\"%d\" y=\"34\" font-size=\"17\">",
            WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
    tri_xml_put(d->name, out);
    fputs(": loss by learning rate</text>\n", out);
    put_axes(&rates, &losses, out);
    fputs("<polyline fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"2\" points=\"", out);
    for (int i = 0; i < c->count; i++)
        fprintf(out, "%s%.1f,%.1f", i ? " " : "", x_of(&rates, c->points[i].lr),
                y_of(&losses, c->points[i].loss));
    fputs("\"/>\n", out);
    if (d->chosen >= 0) {
        const tri_lr_point *p = &c->points[d->chosen];
        fprintf(out,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"#c8641e\"><title>suggestion: %.3g"
                "</title></circle>\n",
                x_of(&rates, p->lr), y_of(&losses, p->loss), p->lr);
    }
    fputs("</svg>\n", out);
}
