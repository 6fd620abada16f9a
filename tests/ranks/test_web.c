// Tests the data set of tar archives: its index is kept and used, made again when it is stale or
// damaged, and never believed; few archives are open at a time.
#include "data/loader.h"
#include "data/open_files.h"
#include "format/tar_index.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <isa-l/crc.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utime.h>

#include <cmocka.h>

#include "support/dataset_cases.h"

enum { BLOCK = 512, MOST = 1 << 16 };

static void put_file(const char *name, const void *data, size_t size) {
    assert_int_equal(tri_os_replace_fleeting(fixture_path(name), data, size), TRI_OK);
}

// An archive in memory.
typedef struct tar {
    uint8_t bytes[MOST];
    size_t size;
} tar;

static void add(tar *t, const char *name, const void *data, size_t size) {
    uint8_t *header = t->bytes + t->size;
    unsigned sum = 0;
    assert_true(t->size + 4 * BLOCK + size <= MOST);
    memset(header, 0, BLOCK);
    snprintf((char *)header, 100, "%s", name);
    memcpy(header + 100, "0000644", 8);
    snprintf((char *)header + 124, 12, "%011o", (unsigned)size);
    snprintf((char *)header + 136, 12, "%011o", 1u);
    memset(header + 148, ' ', 8);
    header[156] = '0';
    memcpy(header + 257, "ustar\00000", 8);
    for (int i = 0; i < BLOCK; i++) sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
    t->size += BLOCK;
    memset(t->bytes + t->size, 0, (size + BLOCK - 1) / BLOCK * BLOCK);
    memcpy(t->bytes + t->size, data, size);
    t->size += (size + BLOCK - 1) / BLOCK * BLOCK;
}

// Adds a grey image of one pixel, `value`, and its class, value mod 7.
static void add_sample(tar *t, int key, int value) {
    char name[32], image[16], label[8];
    int size = snprintf(image, sizeof image, "P5 1 1 255\n%c", value);
    snprintf(name, sizeof name, "%d.pgm", key);
    add(t, name, image, (size_t)size);
    snprintf(name, sizeof name, "%d.cls", key);
    add(t, name, label, (size_t)snprintf(label, sizeof label, "%d", value % 7));
}

static tar *begin(void) { return calloc(1, sizeof(tar)); }

static void finish(tar *t) {
    memset(t->bytes + t->size, 0, (size_t)2 * BLOCK);
    t->size += (size_t)2 * BLOCK;
}

// Writes an archive with one sample for each value.
static void put_tar(const char *name, const int *values, int count) {
    tar *t = begin();
    for (int i = 0; i < count; i++) add_sample(t, i, values[i]);
    finish(t);
    put_file(name, t->bytes, t->size);
    free(t);
}

// Writes the same as a gzip file, whose blocks are stored.
static void put_gzip(const char *name, const int *values, int count) {
    tar *t = begin();
    for (int i = 0; i < count; i++) add_sample(t, i, values[i]);
    finish(t);
    uint8_t *out = calloc(1, 2 * (size_t)MOST);
    size_t at = 10, done = 0;
    memcpy(out, (const uint8_t[]){0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3}, 10);
    while (done < t->size) {
        size_t some = t->size - done < 60000 ? t->size - done : 60000;
        uint16_t length = (uint16_t)some, inverse = (uint16_t)~length;
        out[at] = done + some == t->size;
        memcpy(out + at + 1, &length, 2);
        memcpy(out + at + 3, &inverse, 2);
        memcpy(out + at + 5, t->bytes + done, some);
        at += 5 + some;
        done += some;
    }
    uint32_t crc = crc32_gzip_refl(0, t->bytes, t->size), size = (uint32_t)t->size;
    memcpy(out + at, &crc, 4);
    memcpy(out + at + 4, &size, 4);
    put_file(name, out, at + 8);
    free(out);
    free(t);
}

static void check_values(const tri_dataset *dataset, const int *values, int count) {
    assert_int_equal(tri_dataset_samples(dataset), count);
    assert_int_equal(tri_dataset_field_count(dataset), 2);
    for (int i = 0; i < count; i++) {
        float pixels[3];
        int64_t label;
        if (fixture_read(dataset, 0, i, 0, pixels) != TRI_OK) fail_msg("%s", tri_error_message());
        assert_int_equal(fixture_read(dataset, 1, i, 0, &label), TRI_OK);
        assert_true(pixels[0] == (float)values[i] / 255.0f);
        assert_int_equal(label, values[i] % 7);
    }
}

static tri_dataset *open_tars(const char *train) {
    tri_data_options *options = TRI_NEW(fixture_arena, tri_data_options);
    *options = fixture_options(tri_arena_printf(
        fixture_arena, "name: webdataset, transform: [{resize: [1, 1]}], train: %s", train));
    return opened(options, TRI_DATA_TRAIN);
}

static void check_tars(const char *train, const int *values, int count) {
    tri_dataset *dataset = open_tars(train);
    check_values(dataset, values, count);
    tri_dataset_close(dataset);
}

// The only file for which the pattern stands.
static const char *only(const char *pattern) {
    glob_t found;
    assert_int_equal(glob(fixture_path(pattern), 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    const char *path = tri_arena_strdup(fixture_arena, found.gl_pathv[0]);
    globfree(&found);
    return path;
}

static int opened_archives;

static bool is_archive(const char *path) {
    size_t length = strlen(path);
    const char *slash = strrchr(path, '/');
    return length > 4 && slash && slash[1] != '.' &&
           (!strcmp(path + length - 4, ".tar") || !strcmp(path + length - 4, ".tgz"));
}

static int counting_open(const char *path, int flags, mode_t mode) {
    opened_archives += is_archive(path);
    return tri_os_system.open(path, flags, mode);
}

static int count_opened(const char *train, const int *values, int count, bool reads) {
    tri_os.open = counting_open;
    opened_archives = 0;
    tri_dataset *dataset = open_tars(train);
    int at_start = opened_archives;
    if (reads) check_values(dataset, values, count);
    tri_dataset_close(dataset);
    tri_os = tri_os_system;
    return at_start;
}

// A later start opens archives only to notice changes, before it reads a sample of it.
static void test_kept(void **state) {
    const int values[] = {1, 2, 3, 4, 5};
    put_tar("k-0.tar", values, 2);
    put_tar("k-1.tar", values + 2, 3);
    assert_int_equal(count_opened("k-*.tar", values, 5, true), 2 + 2);
    assert_int_equal(count_opened("k-*.tar", values, 5, false), 2);
    assert_int_equal(opened_archives, 2);
    assert_int_equal(count_opened("k-*.tar", values, 5, true), 2);
    // Another list of archives has another index.
    check_tars("[k-1.tar, k-0.tar]", (const int[]){3, 4, 5, 1, 2}, 5);
    assert_int_equal(count_opened("k-*.tar", values, 5, false), 2);
}

// An archive that has changed is listed again, and the former index is gone. In an image all files
// may have one time, and tar pads, so that size and time do not tell it.
static void test_stale(void **state) {
    const int values[] = {1, 2, 3, 4, 5}, others[] = {9, 8, 3, 4, 5};
    put_tar("s-0.tar", values, 2);
    put_tar("s-1.tar", values + 2, 3);
    check_tars("s-*.tar", values, 5);
    const char *index = only(".s-0.tar.*.index");
    const struct utimbuf times = {1, 1};
    for (int turn = 0; turn < 2; turn++) {
        put_tar("s-0.tar", turn ? values : others, 2);
        assert_int_equal(utime(fixture_path("s-0.tar"), &times), 0);
        check_tars("s-*.tar", turn ? values : others, 5);
        assert_string_not_equal(only(".s-0.tar.*.index"), index);
        index = only(".s-0.tar.*.index");
    }
}

// How often a start opens one archive and one that is compressed. To notice changes: both for the
// index and the latter for its copy. The first start also lists both, which needs the copy's name.
enum { OPENED_LATER = 3, OPENED_FIRST = OPENED_LATER + 3 };

// A compressed archive is unpacked once; its copy is used until it changes, or the copy does.
static void test_compressed(void **state) {
    const int values[] = {1, 2, 3, 4, 5}, others[] = {9, 8, 7};
    put_gzip("z.tgz", values, 3);
    put_tar("z.tar", values + 3, 2);
    assert_int_equal(count_opened("[z.tgz, z.tar]", values, 5, true), OPENED_FIRST);
    const char *copy = only(".z.tgz.*.tar");
    assert_int_equal(count_opened("[z.tgz, z.tar]", values, 5, false), OPENED_LATER);
    check_tars("z.tgz", values, 3); // by another index, and the same copy
    assert_string_equal(only(".z.tgz.*.tar"), copy);
    assert_int_equal(truncate(copy, 1024), 0);
    check_tars("[z.tgz, z.tar]", values, 5);
    assert_int_equal(unlink(copy), 0);
    check_tars("[z.tgz, z.tar]", values, 5);
    // A process that has it open goes on when another one makes the copy again.
    tri_dataset *running = open_tars("z.tgz");
    assert_int_equal(unlink(copy), 0);
    check_tars("z.tgz", values, 3);
    check_values(running, values, 3);
    tri_dataset_close(running);
    put_gzip("z.tgz", others, 3);
    check_tars("z.tgz", others, 3);
    assert_string_not_equal(only(".z.tgz.*.tar"), copy);
    // What is compressed by something else is named.
    put_file("x.tar.xz", "\xfd\x37zXZ\0 and so on", 16);
    put_file("x.tar.bz2", "BZh91AY&SY and so on", 20);
    refuse("name: webdataset, transform: [{resize: [1, 1]}], train: x.tar.xz", TRI_DATA_TRAIN,
           TRI_BAD_INPUT, "x.tar.xz: is xz-compressed");
    refuse("name: webdataset, transform: [{resize: [1, 1]}], train: x.tar.bz2", TRI_DATA_TRAIN,
           TRI_BAD_INPUT, "x.tar.bz2: is bzip2-compressed");
    put_gzip("cut.tgz", values, 3);
    assert_int_equal(truncate(fixture_path("cut.tgz"), 900), 0);
    refuse("name: webdataset, transform: [{resize: [1, 1]}], train: cut.tgz", TRI_DATA_TRAIN,
           TRI_CORRUPT, "cut.tgz");
}

// Whatever byte of the index is wrong, and wherever it ends, the samples are the right ones.
static void test_damaged(void **state) {
    enum { STEP = 131 };
    const int values[] = {1, 2, 3};
    char *bytes;
    size_t size;
    put_tar("d.tar", values, 3);
    check_tars("d.tar", values, 3);
    const char *index = only(".d.tar.*.index");
    assert_int_equal(tri_os_read_file(index, 1 << 20, &bytes, &size), TRI_OK);
    for (size_t at = 0; at < size; at += at < 120 || at + 48 >= size ? 1 : STEP) {
        bytes[at] ^= 0x41;
        assert_int_equal(tri_os_replace_fleeting(index, bytes, size), TRI_OK);
        bytes[at] ^= 0x41;
        check_tars("d.tar", values, 3);
    }
    for (size_t cut = 0; cut < size; cut += 999) {
        assert_int_equal(tri_os_replace_fleeting(index, bytes, cut), TRI_OK);
        check_tars("d.tar", values, 3);
    }
    free(bytes);
}

// An index with right checksums that lies: records outside of the archive, wrong classes.
static void test_lies(void **state) {
    enum { ARCHIVE = 4096 };
    const uint8_t key[TRI_TAR_INDEX_KEY_BYTES] = {7};
    static const tri_tar_sample lies[] = {{-1, 1, 0},         {ARCHIVE, 1, 0},  {0, ARCHIVE + 1, 0},
                                          {INT64_MAX, 1, 0},  {0, 1, 5},        {0, 1, -1},
                                          {0, UINT32_MAX, 0}, {0, 1, INT32_MIN}};
    static tri_tar_totals totals;
    const char *path = fixture_path("lies");
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
        for (int64_t archive_bytes = 0; archive_bytes <= ARCHIVE; archive_bytes += ARCHIVE) {
            const tri_tar_sample samples[] = {{0, 0, 4}, lies[i]};
            tri_tar_row row = {0};
            tri_tar_index index;
            tri_tar_sample found;
            int archive, fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
            totals = (tri_tar_totals){.samples = 2, .classes = 5, .has_labels = true};
            assert_int_equal(tri_tar_index_write(fd, path, 1, 0, samples, 2, &row), TRI_OK);
            assert_int_equal(tri_tar_index_finish(fd, path, key, &row, 1, &totals), TRI_OK);
            assert_int_equal(tri_tar_index_open(fd, path, key, 1, &index), TRI_OK);
            assert_int_equal(tri_tar_index_check(&index, 0, archive_bytes), TRI_CORRUPT);
            assert_int_equal(tri_tar_index_read(&index, 0, &found, &archive), TRI_OK);
            tri_tar_index_close(&index);
            assert_int_equal(unlink(path), 0);
        }
}

// With few files that a process may open, many archives are read by many threads.
typedef struct reading {
    tri_dataset *dataset;
    int first, failures;
} reading;

enum { ARCHIVES = 200, THREADS = 8 };

static void *read_all(void *context) {
    reading *r = context;
    for (int i = 0; i < ARCHIVES; i++) {
        int sample = (r->first + 7 * i) % ARCHIVES;
        int64_t label;
        bool is_right =
            fixture_read(r->dataset, 1, sample, 0, &label) == TRI_OK && label == (1 + sample) % 7;
        r->failures += !is_right;
    }
    return NULL;
}

static void test_few_open(void **state) {
    struct rlimit limit, low;
    pthread_t threads[THREADS];
    reading readings[THREADS];
    for (int i = 0; i < ARCHIVES; i++) {
        const int value = 1 + i;
        put_tar(tri_arena_printf(fixture_arena, "few-%03d.tar", i), &value, 1);
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    tri_dataset *dataset = open_tars("'few-{000..199}.tar'");
    for (int i = 0; i < THREADS; i++) {
        readings[i] = (reading){.dataset = dataset, .first = 25 * i};
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, &readings[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readings[i].failures, 0);
    }
    int fd = open("/dev/null", O_RDONLY);
    assert_in_range(fd, 3, 3 + 64 / 8 + 16); // of its 64 files it has taken an eighth
    close(fd);
    tri_dataset_close(dataset);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

// The last few files stay open; one that is in use is never closed.
static void test_open_files(void **state) {
    enum { FILES = TRI_OPEN_FILES + 10 };
    tri_open_files *files;
    tri_file_state states[FILES];
    int fds[FILES], again;
    for (int i = 0; i < FILES; i++) {
        const char *path = fixture_path(tri_arena_printf(fixture_arena, "open-%03d.tar", i));
        put_file(path + strlen(fixture_folder) + 1, &i, sizeof i);
        assert_int_equal(tri_file_state_of(path, &states[i]), TRI_OK);
    }
    tri_os.open = counting_open;
    opened_archives = 0;
    assert_int_equal(tri_open_files_create(&files), TRI_OK);
    for (int i = 0; i < FILES; i++) {
        const char *path = fixture_path(tri_arena_printf(fixture_arena, "open-%03d.tar", i));
        assert_int_equal(tri_open_files_take(files, i, path, &states[i], &fds[i]), TRI_OK);
    }
    for (int i = 0; i < FILES; i++) {
        int content;
        assert_int_equal(pread(fds[i], &content, sizeof content, 0), sizeof content);
        assert_int_equal(content, i);
        tri_open_files_release(files, fds[i]);
    }
    assert_int_equal(opened_archives, FILES);
    const char *path = fixture_path("open-000.tar");
    assert_int_equal(tri_open_files_take(files, 0, path, &states[0], &again), TRI_OK);
    assert_int_equal(opened_archives, FILES);
    tri_open_files_release(files, again);
    put_file("open-073.tar", "changed", 7);
    assert_int_equal(tri_open_files_take(files, FILES - 1, fixture_path("open-073.tar"),
                                         &states[FILES - 1], &again),
                     TRI_IO);
    tri_open_files_destroy(files);
    tri_os = tri_os_system;
}

// Where nobody may write beside the data, the index is made in the user's own folder, and one that
// lies beside the data is used. Where nothing may be written, each start lists the archives.
static int read_only(const char *path, int mode) {
    if (mode != W_OK) return tri_os_system.access(path, mode);
    errno = EROFS;
    return -1;
}

static void test_read_only(void **state) {
    const int values[] = {1, 2, 3};
    put_tar("r.tar", values, 2);
    put_gzip("r.tgz", values + 2, 1);
    setenv("XDG_CACHE_HOME", fixture_path("own"), 1);
    for (int turn = 0; turn < 2; turn++) {
        tri_os.access = read_only;
        check_tars("[r.tar, r.tgz]", values, 3);
        tri_os = tri_os_system;
    }
    only("own/trireme/.r.tar.*.index");
    only("own/trireme/.r.tgz.*.tar");
    check_tars("r.tar", values, 2); // beside
    const char *beside = only(".r.tar.*.index");
    tri_os.access = read_only;
    assert_int_equal(tri_os_remove_tree(fixture_path("own")), TRI_OK);
    check_tars("r.tar", values, 2);
    assert_int_not_equal(access(fixture_path("own"), F_OK), 0);
    assert_int_equal(unlink(beside), 0);
    setenv("XDG_CACHE_HOME", "/dev/null/own", 1);
    for (int turn = 0; turn < 2; turn++) {
        tri_os.access = read_only;
        check_tars("r.tar", values, 2);
        tri_os = tri_os_system;
    }
    tri_os.access = read_only;
    refuse("name: webdataset, transform: [{resize: [1, 1]}], train: r.tgz", TRI_DATA_TRAIN,
           TRI_NOT_FOUND, "data.cache");
    tri_os = tri_os_system;
    unsetenv("XDG_CACHE_HOME");
    const char *cache = tri_arena_printf(fixture_arena, "r.tar, cache: '%s'", fixture_path("mine"));
    check_tars(cache, values, 2);
    only("mine/.r.tar.*.index");
}

static struct {
    dev_t device;
    ino_t inode;
} archive_ids[2];
static int64_t archive_bytes;

static ssize_t archive_pread(int fd, void *data, size_t size, off_t offset) {
    struct stat info;
    ssize_t got = tri_os_system.pread(fd, data, size, offset);
    assert_int_equal(fstat(fd, &info), 0);
    for (int i = 0; i < 2; i++)
        if (info.st_dev == archive_ids[i].device && info.st_ino == archive_ids[i].inode)
            archive_bytes += got;
    return got;
}

// In an epoch, each of two ranks reads the bytes of its own images from the archives, and no other.
static void test_own_samples(void **state) {
    enum { SAMPLES = 12, RANKS = 2, IMAGE_BYTES = 12 };
    const int values[SAMPLES] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    put_tar("own-0.tar", values, 5);
    put_tar("own-1.tar", values + 5, SAMPLES - 5);
    for (int i = 0; i < 2; i++) {
        struct stat info;
        const char *name = tri_arena_printf(fixture_arena, "own-%d.tar", i);
        assert_int_equal(stat(fixture_path(name), &info), 0);
        archive_ids[i].device = info.st_dev;
        archive_ids[i].inode = info.st_ino;
    }
    check_tars("own-*.tar", values, SAMPLES);
    tri_os.pread = archive_pread;
    for (int rank = 0; rank < RANKS; rank++) {
        tri_dataset *dataset = open_tars("own-*.tar");
        archive_bytes = 0;
        tri_sampler sampler;
        tri_loader *loader;
        const tri_data_batch *batch;
        assert_int_equal(tri_sampler_make(
                             &(tri_sampler_options){
                                 .samples = SAMPLES, .global = 4, .replicas = RANKS, .seed = 1},
                             &sampler),
                         TRI_OK);
        const tri_loader_options options = {.replica = rank, .end_epoch = 1};
        assert_int_equal(tri_loader_create(dataset, &sampler, &options, &loader), TRI_OK);
        for (;;) {
            assert_int_equal(tri_loader_next(loader, &batch), TRI_OK);
            if (!batch) break;
            tri_loader_release(loader, batch);
        }
        assert_int_equal(archive_bytes, SAMPLES / RANKS * IMAGE_BYTES);
        tri_loader_destroy(loader);
        tri_dataset_close(dataset);
    }
    tri_os = tri_os_system;
}

// Processes that start at a time list the archives once.
static void test_made_once(void **state) {
    enum { PROCESSES = 4 };
    const int values[] = {1, 2, 3};
    int out[2], sum = 0;
    put_tar("o.tar", values, 3);
    put_gzip("o.tgz", values, 1);
    assert_int_equal(pipe(out), 0);
    for (int i = 0; i < PROCESSES; i++) {
        if (fork() > 0) continue;
        int opened = count_opened("[o.tar, o.tgz]", values, 4, false);
        _exit(write(out[1], &opened, sizeof opened) != sizeof opened);
    }
    close(out[1]);
    for (int i = 0; i < PROCESSES; i++) {
        int opened;
        assert_int_equal(read(out[0], &opened, sizeof opened), sizeof opened);
        sum += opened;
    }
    for (int i = 0; i < PROCESSES; i++) assert_true(wait(NULL) > 0);
    assert_int_equal(sum, OPENED_FIRST + (PROCESSES - 1) * OPENED_LATER);
    close(out[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),        cmocka_unit_test(test_stale),
        cmocka_unit_test(test_compressed),  cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_lies),        cmocka_unit_test(test_few_open),
        cmocka_unit_test(test_open_files),  cmocka_unit_test(test_read_only),
        cmocka_unit_test(test_own_samples), cmocka_unit_test(test_made_once),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
