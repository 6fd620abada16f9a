// Tests the sinks, which write or show a run's events: the exact lines of metrics.jsonl and their
// repair, TensorBoard's files, the progress line on a pipe and on a terminal; and that a sink that
// fails stops nothing else.
#include "observe/observe.h"

#include "base/log.h"
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];
static int64_t now_ns;
static bool disk_is_full;
static int failed_writes;

static int64_t fake_clock(void) { return now_ns; }

static ssize_t full_disk_write(int fd, const void *data, size_t size) {
    if (!disk_is_full || fd == STDERR_FILENO) return write(fd, data, size);
    failed_writes++;
    if (failed_writes % 2 && size > 4) return write(fd, data, 4); // some of the data still fits
    errno = ENOSPC;
    return -1;
}

static int make_folder(void **state) {
    snprintf(folder, sizeof folder, "/tmp/trireme-observe-XXXXXX");
    assert_non_null(mkdtemp(folder));
    now_ns = 1000000000;
    tri_os.monotonic_ns = fake_clock;
    tri_os.write = full_disk_write;
    disk_is_full = false;
    return 0;
}

static int drop_folder(void **state) {
    tri_os = tri_os_system;
    return tri_os_remove_tree(folder) == TRI_OK ? 0 : -1;
}

static const char *path_of(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static char *contents(const char *name) {
    char *text = NULL;
    size_t size;
    assert_int_equal(tri_os_read_file(path_of(name), 1 << 20, &text, &size), TRI_OK);
    return text;
}

static void append(const char *name, const char *text) {
    FILE *file = fopen(path_of(name), "a");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
}

static tri_run_info info(void) {
    return (tri_run_info){.name = "net",
                          .folder = folder,
                          .total_steps = 20,
                          .steps_per_epoch = 10,
                          .total_epochs = 2,
                          .log_every_n_steps = 2};
}

static void train(tri_observer *o, int64_t step, double loss, double seconds) {
    now_ns += (int64_t)(seconds * 1e9);
    tri_observe_train(o, (tri_train_event){.step = step,
                                           .epoch = (step - 1) / 10,
                                           .loss = loss,
                                           .lr = 1,
                                           .grad_norm = 0.25,
                                           .samples = 64 * step});
}

static void writes_the_documented_lines(void **state) {
    tri_run_info run = info();
    const tri_event_sink *sinks[] = {&tri_sink_jsonl};
    tri_observer *o = tri_observer_create(&run, sinks, 1);
    train(o, 1, 2.5, 0.5);
    train(o, 2, 0.1234567891, 0.5);
    char *text = contents("metrics.jsonl"); // written before the observer ends
    assert_string_equal(text, "{\"kind\":\"train\",\"step\":2,\"epoch\":0,\"loss\":0.123456789,"
                              "\"lr\":1.0,\"grad_norm\":0.25,"
                              "\"samples\":128,\"samples_per_s\":128.0,\"wall_s\":1.0}\n");
    free(text);
    train(o, 3, 1, 1);
    const double matrix[] = {3, 0, NAN, 4};
    tri_metric_value metrics[] = {
        {.name = "accuracy", .value = 0.8824},
        {.name = "recalls",
         .figures = matrix,
         .shape = tri_shape_of(3),
         .names = {(const char *[]){"cat", "dog"}, 2}},
        {.name = "confusion", .figures = matrix, .shape = tri_shape_of(2, 2), .are_counts = true}};
    now_ns += 7000000000; // the evaluation takes 7 s
    tri_observe_val(o, (tri_val_event){.step = 3,
                                       .epoch = 0,
                                       .loss = 0.3301,
                                       .metrics = metrics,
                                       .metric_count = 3,
                                       .samples = 10000});
    tri_observe_message(o, "a word");
    train(o, 4, 1.0 / 0.0, 0.5);
    tri_observe_end(o, TRI_OK, NULL, 4, NULL);
    tri_observer_destroy(o);
    text = contents("metrics.jsonl");
    const char *rest = strchr(text, '\n') + 1;
    assert_string_equal(
        rest, "{\"kind\":\"val\",\"step\":3,\"epoch\":0,\"loss\":0.3301,\"accuracy\":0.8824,"
              "\"recalls\":[3.0,0.0,\"NaN\"],\"confusion\":[[3,0],[\"NaN\",4]],"
              "\"classes\":[\"cat\",\"dog\"],"
              "\"samples\":10000}\n"
              "{\"kind\":\"train\",\"step\":4,\"epoch\":0,\"loss\":\"Infinity\",\"lr\":1.0,\"grad_"
              "norm\":0.25,"
              "\"samples\":256,\"samples_per_s\":128.0,\"wall_s\":9.5}\n"
              "{\"kind\":\"end\",\"status\":\"completed\",\"steps\":4,\"wall_s\":9.5}\n");
    free(text);
}

static void keeps_nine_digits(void **state) {
    tri_run_info run = info();
    run.log_every_n_steps = 1;
    const tri_event_sink *sinks[] = {&tri_sink_jsonl};
    tri_observer *o = tri_observer_create(&run, sinks, 1);
    float loss = 0.0012345679f; // nine digits tell any two floats apart
    train(o, 1, loss, 1);
    tri_observer_destroy(o);
    char *text = contents("metrics.jsonl");
    assert_true(strtof(strstr(text, "\"loss\":") + 7, NULL) == loss);
    free(text);
}

static void resumes_after_a_torn_line(void **state) {
    static const struct {
        const char *before, *kept;
    } cases[] = {{"{\"a\":1}\n{\"b\":2}\n{\"kind\":\"tr", "{\"a\":1}\n{\"b\":2}\n"},
                 {"{\"a\":1}\n", "{\"a\":1}\n"},
                 {"{\"torn", ""},
                 {"", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unlink(path_of("metrics.jsonl"));
        append("metrics.jsonl", cases[i].before);
        tri_run_info run = info();
        const tri_event_sink *sinks[] = {&tri_sink_jsonl};
        tri_observer *o = tri_observer_create(&run, sinks, 1);
        tri_observe_end(o, TRI_STOPPED, "by a signal", 7, NULL);
        tri_observer_destroy(o);
        char *text = contents("metrics.jsonl");
        assert_memory_equal(text, cases[i].kept, strlen(cases[i].kept));
        assert_string_equal(
            text + strlen(cases[i].kept),
            "{\"kind\":\"end\",\"status\":\"stopped\",\"reason\":\"by a signal\",\"steps\":7,"
            "\"wall_s\":0.0}\n");
        free(text);
    }
}

static void a_long_torn_line_is_cut(void **state) {
    append("metrics.jsonl", "{\"a\":1}\n");
    char block[1001];
    memset(block, 'x', 1000);
    block[1000] = 0;
    for (int i = 0; i < 10; i++) append("metrics.jsonl", block);
    tri_run_info run = info();
    const tri_event_sink *sinks[] = {&tri_sink_jsonl};
    tri_observer_destroy(tri_observer_create(&run, sinks, 1));
    char *text = contents("metrics.jsonl");
    assert_string_equal(text, "{\"a\":1}\n");
    free(text);
}

// Runs `body` while standard error is a terminal with `columns` columns; 0: a pipe. Returns what
// was written there, which is so little that it need not be read before `body` ends.
static char *stderr_of(void (*body)(void), int columns) {
    bool on_terminal = columns > 0;
    int ours, theirs, ends[2];
    if (on_terminal) {
        ours = posix_openpt(O_RDWR | O_NOCTTY);
        assert_true(ours >= 0 && grantpt(ours) == 0 && unlockpt(ours) == 0);
        theirs = open(ptsname(ours), O_RDWR | O_NOCTTY);
        struct winsize window = {.ws_col = (unsigned short)columns, .ws_row = 24};
        assert_int_equal(ioctl(theirs, TIOCSWINSZ, &window), 0);
    } else {
        assert_int_equal(pipe(ends), 0);
        ours = ends[0];
        theirs = ends[1];
    }
    int kept = dup(STDERR_FILENO);
    dup2(theirs, STDERR_FILENO);
    body();
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(theirs);
    char *text = calloc(1, 1 << 16);
    size_t used = 0;
    for (ssize_t got; (got = read(ours, text + used, (1 << 16) - 1 - used)) > 0;)
        used += (size_t)got;
    close(ours);
    return text;
}

static void short_run(void) {
    tri_run_info run = info();
    const tri_event_sink *sinks[] = {&tri_sink_progress};
    tri_observer *o = tri_observer_create(&run, sinks, 1);
    for (int step = 1; step <= 4; step++) train(o, step, 1.0 / step, 1);
    tri_log_line(TRI_LOG_INFO, "hello");
    tri_metric_value metrics[] = {
        {.name = "recalls", .figures = &(double){1}, .shape = tri_shape_of(1)}, // not shown
        {.name = "accuracy", .value = 0.5}};
    tri_observe_val(
        o, (tri_val_event){
               .step = 4, .loss = 0.25, .metrics = metrics, .metric_count = 2, .samples = 100});
    tri_observe_end(o, TRI_OK, NULL, 4, NULL);
    tri_observer_destroy(o);
}

static void prints_plain_lines_on_a_pipe(void **state) {
    char *text = stderr_of(short_run, 0);
    assert_string_equal(text, "epoch 1/2  step 2/20  loss 0.5  lr 1  64 samples/s  eta 00:18\n"
                              "epoch 1/2  step 4/20  loss 0.25  lr 1  64 samples/s  eta 00:16\n"
                              "trireme: hello\n"
                              "epoch 1  evaluation  loss 0.25  accuracy 0.5000  (100 samples)\n"
                              "completed after 4 steps, 00:04\n");
    free(text);
}

// Of each line's 2 s, training waited for data for 0.06, 0.01 and 6 s.
static void waiting_run(void) {
    tri_run_info run = info();
    const tri_event_sink *sinks[] = {&tri_sink_progress};
    const double data_s[] = {0.05, 0.01, 0, 0.01, 3, 3};
    tri_observer *o = tri_observer_create(&run, sinks, 1);
    for (int i = 0; i < 6; i++) {
        now_ns += 1000000000;
        tri_train_event event = {.step = i + 1, .loss = 1, .samples = 64, .data_s = data_s[i]};
        tri_observe_train(o, event);
    }
    tri_observer_destroy(o);
}

static void shows_when_data_are_late(void **state) {
    char *text = stderr_of(waiting_run, 0);
    const char *const ends[] = {"  data 3%\n", "\n", "  data 100%\n"}, *at = text;
    for (int i = 0; i < 3; i++) {
        const char *found = strstr(at, ends[i]), *end = strchr(at, '\n') + 1;
        assert_true(found && found + strlen(ends[i]) == end);
        if (i == 1) assert_false(strstr(at, "  data ") < end);
        at = end;
    }
    free(text);
}

static void redraws_on_a_terminal(void **state) {
    setenv("LC_ALL", "C", 1);
    setenv("NO_COLOR", "1", 1);
    char *text = stderr_of(short_run, 120);
    assert_non_null(
        strstr(text, "\r\x1b[K#####...................  epoch 1/2  step 4/20  loss 0.2500  64 "
                     "samples/s  eta 00:16\r\x1b[Ktrireme: hello"));
    assert_non_null(strstr(text, "completed after 4 steps, 00:04"));
    assert_null(strstr(text, "\x1b[32m"));
    free(text);
    unsetenv("NO_COLOR");
    setenv("LC_ALL", "C.UTF-8", 1);
    text = stderr_of(short_run, 120);
    assert_non_null(strstr(text, "\x1b[32m━"));
    free(text);
}

// A line wider than the screen would wrap, and redrawing it would leave its beginning behind.
static void fits_a_narrow_terminal(void **state) {
    static const struct {
        int columns;
        const char *line; // as many whole fields as fit
    } screens[] = {{80, "  epoch 1/2  step 1/20  loss 1.0000  64 samples/s  eta 00:19"},
                   {50, "  epoch 1/2  step 1/20  loss 1.0000  64 samples/s"},
                   {40, "  epoch 1/2  step 1/20  loss 1.0000"},
                   {30, "  epoch 1/2  step 1/20"},
                   {8, "  epoch"}};
    setenv("NO_COLOR", "1", 1);
    setenv("LC_ALL", "C", 1);
    for (int i = 0; i < 5; i++) {
        char *text = stderr_of(short_run, screens[i].columns);
        const char *drawn = strstr(text, "\r\x1b[K");
        assert_non_null(drawn);
        size_t size = strcspn(drawn + 4, "\r");
        assert_true(size < (size_t)screens[i].columns);
        const char *begin = drawn + 4 + strspn(drawn + 4, "#.");
        size -= (size_t)(begin - drawn - 4);
        assert_int_equal(size, strlen(screens[i].line));
        assert_memory_equal(begin, screens[i].line, size);
        free(text);
    }
    unsetenv("NO_COLOR");
}

static void full_disk_run(void) {
    tri_run_info run = info();
    const tri_event_sink *sinks[] = {&tri_sink_jsonl, &tri_sink_tensorboard};
    tri_observer *o = tri_observer_create(&run, sinks, 2);
    train(o, 2, 1, 1);
    disk_is_full = true;
    for (int step = 4; step <= 10; step += 2) train(o, step, 1, 1);
    disk_is_full = false;
    train(o, 12, 1, 1);
    tri_observer_destroy(o);
}

static bool has_memory = true;

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *__wrap_calloc(size_t count, size_t size) {
    return has_memory ? __real_calloc(count, size) : NULL;
}

static void no_memory_run(void) {
    tri_run_info run = info();
    const tri_event_sink *sinks[] = {&tri_sink_jsonl};
    has_memory = false;
    tri_observer *o = tri_observer_create(&run, sinks, 1);
    has_memory = true;
    assert_null(o);
    train(o, 1, 1, 1);
    tri_observer_destroy(o);
}

static void warns_without_memory(void **state) {
    char *text = stderr_of(no_memory_run, 0);
    assert_non_null(strstr(text, "no memory"));
    assert_non_null(strstr(text, "metrics"));
    free(text);
}

static void warns_once_when_the_disk_is_full(void **state) {
    char *text = stderr_of(full_disk_run, 0);
    const char *first = strstr(text, "gaps in metrics.jsonl");
    assert_non_null(first);
    assert_null(strstr(first + 1, "gaps in metrics.jsonl"));
    assert_non_null(strstr(text, "gaps in TensorBoard's curves"));
    assert_non_null(strstr(text, "No space left on device"));
    int lines = 0;
    for (const char *c = text; *c; c++) lines += *c == '\n';
    assert_int_equal(lines, 2);
    free(text);
    // The disk was full in steps 4 to 10 (full_disk_run), so only steps 2 and 12 are left, and
    // nothing of a line that was cut off.
    text = contents("metrics.jsonl");
    assert_non_null(strstr(text, "\"step\":2,"));
    assert_non_null(strstr(text, "}\n{\"kind\":\"train\",\"step\":12,"));
    assert_null(strstr(text, "\"step\":4,"));
    free(text);
}

static void no_folder_run(void) {
    tri_run_info run = info();
    run.folder = path_of("a-file");
    const tri_event_sink *sinks[] = {&tri_sink_jsonl, &tri_sink_tensorboard};
    tri_observer *o = tri_observer_create(&run, sinks, 2);
    train(o, 2, 1, 1);
    tri_observe_end(o, TRI_OK, NULL, 2, NULL);
    tri_observer_destroy(o);
}

static void goes_on_without_a_sink_that_cannot_open(void **state) {
    append("a-file", "x");
    char *text = stderr_of(no_folder_run, 0);
    assert_non_null(strstr(text, "training continues without metrics.jsonl\n"));
    assert_non_null(strstr(text, "training continues without TensorBoard's curves\n"));
    free(text);
}

static bool file_holds(const char *path, const char *word) {
    char *text = NULL;
    size_t size;
    assert_int_equal(tri_os_read_file(path, 1 << 20, &text, &size), TRI_OK);
    bool found = memmem(text, size, word, strlen(word)) != NULL;
    free(text);
    return found;
}

static void writes_curves(void **state) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    const char *text =
        "{seed: 3, optimizer: {name: sgd, betas: [1, 2]}, init: null, log: {progress: true}}";
    tri_tree *recipe;
    assert_int_equal(tri_yaml_parse(arena, text, strlen(text), "r", &recipe), TRI_OK);
    tri_run_info run = info();
    static const char *const names[] = {"accuracy"};
    run.recipe = recipe;
    run.metrics = names;
    run.metric_count = 1;
    const tri_event_sink *sinks[] = {&tri_sink_tensorboard};
    tri_observer *o = tri_observer_create(&run, sinks, 1);
    train(o, 2, 1, 1);
    tri_metric_value metrics[] = {
        {.name = "accuracy", .value = 0.5},
        {.name = "recalls", .figures = (double[]){1, 0.5}, .shape = tri_shape_of(2)}};
    tri_observe_val(o, (tri_val_event){.step = 2, .metrics = metrics, .metric_count = 2});
    tri_observe_end(o, TRI_OK, NULL, 2, NULL);
    tri_observer_destroy(o);
    tri_arena_destroy(arena);
    glob_t found;
    assert_int_equal(glob(path_of("tensorboard/events.out.tfevents.*"), 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    static const char *const words[] = {
        "train/loss",     "train/lr",     "train/grad_norm",
        "val/loss",       "val/accuracy", "val/recalls/1",
        "optimizer.name", "[1, 2]",       "_hparams_/session_end_info"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        assert_true(file_holds(found.gl_pathv[0], words[i]));
    assert_false(file_holds(found.gl_pathv[0], "init"));
    globfree(&found);
}

// A process tells where it begins, warnings that are printed meanwhile become lines, and the end
// says what took the time.
static void tells_start_warnings_and_actions(void **state) {
    tri_arena *arena = tri_arena_create(NULL, "test");
    tri_run_info run = info();
    tri_tree *start = tri_tree_map(arena), *actions = tri_tree_list(arena);
    tri_tree_put_int(arena, start, "ranks", 2);
    tri_tree_append(arena, actions, tri_tree_string(arena, "FORWARD"));
    run.start = start;
    run.first_step = 6;
    const tri_event_sink *sinks[] = {&tri_sink_jsonl};
    tri_observer *o = tri_observer_create(&run, sinks, 1);
    tri_log_line(TRI_LOG_WARNING, "it is \"slow\"");
    train(o, 7, 1, 0.5);
    tri_log_line(TRI_LOG_WARNING, "at last");
    tri_observe_end(o, TRI_OK, NULL, 7, actions);
    tri_log_line(TRI_LOG_WARNING, "after the end");
    tri_observer_destroy(o);
    tri_log_line(TRI_LOG_WARNING, "nobody listens");
    tri_arena_destroy(arena);
    char *text = contents("metrics.jsonl");
    assert_string_equal(text,
                        "{\"kind\":\"start\",\"step\":6,\"ranks\":2}\n"
                        "{\"kind\":\"message\",\"step\":7,\"text\":\"it is \\\"slow\\\"\"}\n"
                        "{\"kind\":\"message\",\"step\":7,\"text\":\"at last\"}\n"
                        "{\"kind\":\"end\",\"status\":\"completed\",\"steps\":7,\"wall_s\":0.5,"
                        "\"actions\":[\"FORWARD\"]}\n"
                        "{\"kind\":\"message\",\"step\":7,\"text\":\"after the end\"}\n");
    free(text);
}

static void chooses_sinks(void **state) {
    tri_run_info run = info();
    const tri_event_sink *sinks[TRI_MAX_SINKS];
    assert_int_equal(
        tri_sinks_choose(&(tri_log_options){.tensorboard = true, .progress = true}, &run, sinks),
        3);
    assert_int_equal(tri_sinks_choose(&(tri_log_options){.progress = false}, &run, sinks), 1);
    assert_ptr_equal(sinks[0], &tri_sink_jsonl);
    run.folder = NULL;
    assert_int_equal(
        tri_sinks_choose(&(tri_log_options){.tensorboard = true, .progress = true}, &run, sinks),
        1);
    tri_observe_train(NULL, (tri_train_event){.step = 1}); // ranks other than 0 have no observer
    tri_observe_end(NULL, TRI_OK, NULL, 1, NULL);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, drop_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(writes_the_documented_lines),
        WITH_FOLDER(keeps_nine_digits),
        WITH_FOLDER(resumes_after_a_torn_line),
        WITH_FOLDER(a_long_torn_line_is_cut),
        WITH_FOLDER(prints_plain_lines_on_a_pipe),
        WITH_FOLDER(shows_when_data_are_late),
        WITH_FOLDER(redraws_on_a_terminal),
        WITH_FOLDER(fits_a_narrow_terminal),
        WITH_FOLDER(warns_without_memory),
        WITH_FOLDER(warns_once_when_the_disk_is_full),
        WITH_FOLDER(goes_on_without_a_sink_that_cannot_open),
        WITH_FOLDER(writes_curves),
        WITH_FOLDER(tells_start_warnings_and_actions),
        WITH_FOLDER(chooses_sinks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
