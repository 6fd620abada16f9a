// Shows progress on standard error: on a terminal by one line that is redrawn, otherwise by a plain
// line every log_every_n_steps steps.
#include "observe/observe.h"

#include "base/log.h"
#include "base/os.h"
#include "base/quantity.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { TEXT_BYTES = 512, BAR_CELLS = 24, LEAST_BAR_CELLS = 6 };
static const double REDRAW_S = 0.1;

typedef struct progress {
    tri_run_info info;
    bool is_terminal, has_colour, has_utf8;
    double start_s, drawn_s;
    atomic_bool is_drawn; // the progress line is on the screen
} progress;

static void put(const char *text, size_t size) {
    // If standard error cannot be written, there is nothing else to which this could be reported.
    while (size > 0) {
        ssize_t done = tri_os.write(STDERR_FILENO, text, size);
        if (done <= 0) return;
        text += done;
        size -= (size_t)done;
    }
}

static void wipe(void *context) {
    progress *p = context;
    if (atomic_exchange(&p->is_drawn, false)) put("\r\x1b[K", 4);
}

// Prints a line that stays on the screen, above the progress line.
__attribute__((format(printf, 2, 3))) static void print_line(progress *p, const char *format, ...) {
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text - 1, format, arguments);
    va_end(arguments);
    if (size < 0) return;
    if (size > TEXT_BYTES - 2) size = TEXT_BYTES - 2;
    text[size++] = '\n';
    wipe(p);
    put(text, (size_t)size);
}

static bool locale_is_utf8(void) {
    static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(variables[i]);
        if (value && *value) return strstr(value, "UTF-8") || strstr(value, "utf8");
    }
    return false;
}

static tri_status progress_open(const tri_run_info *info, void **state) {
    progress *p = calloc(1, sizeof *p);
    if (!p) return TRI_FAIL(TRI_NO_MEMORY, "progress: no memory");
    p->info = *info;
    p->is_terminal = tri_log_is_terminal();
    p->has_colour = tri_log_has_colour();
    p->has_utf8 = locale_is_utf8();
    p->start_s = tri_os_seconds();
    if (p->is_terminal) tri_log_set_status_line(wipe, p);
    *state = p;
    return TRI_OK;
}

// Writes a time as "1:02:03" or "02:03".
static void write_time(char *text, size_t size, double seconds) {
    long long s = (long long)(seconds + 0.5);
    if (s >= 3600)
        snprintf(text, size, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, size, "%02lld:%02lld", s / 60, s % 60);
}

// Writes "  eta 02:03", from the mean time of this process's steps; "" if the end is not known.
static void write_eta(const progress *p, int64_t step, char *text, size_t size) {
    int64_t done = step - p->info.first_step, left = p->info.total_steps - step;
    text[0] = 0;
    if (p->info.total_steps < 0 || done <= 0 || left < 0) return;
    char time[32];
    write_time(time, sizeof time, (tri_os_seconds() - p->start_s) / (double)done * (double)left);
    snprintf(text, size, "  eta %s", time);
}

// Writes "  data 3%  MFU 52.0%  memory 31.0%": how much of the time training waited for data, from
// 1% on, and the fractions of the device's peak of arithmetic and of memory bandwidth, each if it
// is known.
static void write_use(const tri_train_event *e, char *text, size_t size) {
    int used = 0;
    text[0] = 0;
    if (e->data_share >= 0.01) used = snprintf(text, size, "  data %.0f%%", 100 * e->data_share);
    if (e->mfu > 0)
        used += snprintf(text + used, size - (size_t)used, "  MFU %.1f%%", 100 * e->mfu);
    if (e->mbu > 0) snprintf(text + used, size - (size_t)used, "  memory %.1f%%", 100 * e->mbu);
}

static void write_count(char *text, size_t size, int64_t value, int64_t total) {
    if (total >= 0)
        snprintf(text, size, "%lld/%lld", (long long)value, (long long)total);
    else
        snprintf(text, size, "%lld", (long long)value);
}

static int screen_columns(void) {
    struct winsize window;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0) return window.ws_col;
    return 80;
}

// Writes a progress bar of which `fraction` is full: full cells, then empty ones, which are grey on
// a colour terminal.
static void write_bar(const progress *p, double fraction, int cells, char *text, size_t size) {
    int full = (int)(fraction * cells + 0.5);
    if (full > cells) full = cells;
    if (full < 0) full = 0;
    size_t used = 0;
    for (int i = 0; i < cells; i++) {
        const char *colour = "";
        if (p->has_colour && i == 0 && full > 0) colour = "\x1b[32m";
        if (p->has_colour && i == full) colour = "\x1b[90m";
        const char *cell = p->has_utf8 ? "\u2501" : i < full ? "#" : ".";
        if (p->has_utf8 && !p->has_colour && i >= full) cell = "\u2500";
        used += (size_t)snprintf(text + used, size - used, "%s%s", colour, cell);
    }
    if (p->has_colour) snprintf(text + used, size - used, "\x1b[0m");
}

// Finds how much of the text fits into `columns` without cutting a field, because half a number
// would be wrong. Fields are separated by two spaces.
static int whole_fields(const char *text, int columns) {
    if (columns <= 0) return 0;
    for (int i = columns; i > 0; i--)
        if (text[i] == ' ' && text[i + 1] == ' ') return i;
    return columns;
}

static void draw(progress *p, const tri_train_event *e) {
    double now = tri_os_seconds();
    bool is_last = e->step == p->info.total_steps;
    if (now - p->drawn_s < REDRAW_S && !is_last) return;
    p->drawn_s = now;
    char epoch[48], step[48], eta[48], use[48], bar[BAR_CELLS * 12 + 32] = "", text[TEXT_BYTES],
                                                                     line[1024];
    write_count(epoch, sizeof epoch, e->epoch + 1, p->info.total_epochs);
    write_count(step, sizeof step, e->step, p->info.total_steps);
    write_eta(p, e->step, eta, sizeof eta);
    write_use(e, use, sizeof use);
    int size = snprintf(text, sizeof text, "  epoch %s  step %s  loss %s  %.0f samples/s%s%s",
                        epoch, step, tri_decimal(e->loss), e->samples_per_s, eta, use);
    int columns = screen_columns() - 1;
    int64_t in_epoch = p->info.steps_per_epoch > 0 ? p->info.steps_per_epoch : e->step;
    double fraction = (double)((e->step - 1) % in_epoch + 1) / (double)in_epoch;
    if (p->info.total_steps > 0) fraction = (double)e->step / (double)p->info.total_steps;
    int cells = columns - size < BAR_CELLS ? columns - size : BAR_CELLS;
    if (cells >= LEAST_BAR_CELLS) write_bar(p, fraction, cells, bar, sizeof bar);
    if (!bar[0] && size > columns) size = whole_fields(text, columns);
    int length = snprintf(line, sizeof line, "\r\x1b[K%s%.*s", bar, size, text);
    put(line, (size_t)length);
    atomic_store(&p->is_drawn, true);
}

static void print_train(progress *p, const tri_train_event *e) {
    char epoch[48], step[48], eta[48], use[48];
    write_count(epoch, sizeof epoch, e->epoch + 1, p->info.total_epochs);
    write_count(step, sizeof step, e->step, p->info.total_steps);
    write_eta(p, e->step, eta, sizeof eta);
    write_use(e, use, sizeof use);
    print_line(p, "epoch %s  step %s  loss %.6g  lr %.4g  %.0f samples/s%s%s", epoch, step, e->loss,
               e->lr, e->samples_per_s, eta, use);
}

static void print_val(progress *p, const char *what, const tri_val_event *e) {
    char metrics[256] = "";
    size_t used = 0;
    for (int i = 0; i < e->metric_count && used < sizeof metrics; i++)
        if (!e->metrics[i].figures)
            used += (size_t)snprintf(metrics + used, sizeof metrics - used, "  %s %s",
                                     e->metrics[i].name, tri_decimal(e->metrics[i].value));
    print_line(p, "epoch %lld  %s  loss %.6g%s  (%s)", (long long)e->epoch + 1, what, e->loss,
               metrics, tri_counted(e->samples, "sample"));
}

static void print_change(progress *p, const tri_change_event *e) {
    tri_arena *arena = tri_arena_create(NULL, "change");
    print_line(p, "from step %lld on: %s is %s, was %s", (long long)e->step, e->key,
               tri_yaml_flow(arena, e->to), tri_yaml_flow(arena, e->from));
    tri_arena_destroy(arena);
}

static tri_status progress_event(void *state, const tri_run_event *event) {
    progress *p = state;
    char time[32];
    switch (event->kind) {
    case TRI_EVENT_TRAIN:
        if (p->is_terminal)
            draw(p, &event->train);
        else if (event->train.is_logged)
            print_train(p, &event->train);
        break;
    case TRI_EVENT_VAL:
        print_val(p, "evaluation", &event->val);
        break;
    case TRI_EVENT_TEST:
        print_val(p, "test", &event->val);
        break;
    case TRI_EVENT_CHANGE:
        print_change(p, &event->change);
        break;
    case TRI_EVENT_WARNING: // it was printed
        break;
    case TRI_EVENT_MESSAGE:
        print_line(p, "%s", event->message);
        break;
    case TRI_EVENT_END:
        write_time(time, sizeof time, event->end.wall_s);
        print_line(p, "%s after %s, %s", event->end.status, tri_counted(event->end.steps, "step"),
                   time);
        break;
    }
    return TRI_OK;
}

static void progress_close(void *state) {
    progress *p = state;
    wipe(p);
    if (p->is_terminal) tri_log_set_status_line(NULL, NULL);
    free(p);
}

const tri_event_sink tri_sink_progress = {
    .name = "progress",
    .open = progress_open,
    .event = progress_event,
    .close = progress_close,
};
