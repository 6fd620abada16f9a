// Packed text (data.name=jsonl): its windows are the tokens of the documents with an end mark
// behind each; it is made once, and again when its files or settings change.
#include "data/pack.h"
#include "format/jsonl.h"
#include "format/tokenizer/tokenizer.h"
#include "format/tokens.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utime.h>

#include <cmocka.h>

#include "support/data_fixture.h"

#define TOKENIZER TRIREME_SOURCE_DIR "/tests/support/goldens/tokenizers/gpt2.json"

static const char *const documents[] = {"The king", "", "is \"gone\"\n", "caf\xc3\xa9 and more"};
enum { COUNT = 4 };

static void put_documents(const char *name, int first, int end, const char *more) {
    tokenizer_text text = {0};
    for (int i = first; i < end; i++) {
        tokenizer_text_append(&text, "{\"text\":", 8);
        tri_jsonl_put_string(&text, (tokenizer_string){documents[i], strlen(documents[i])});
        tokenizer_text_append(&text, "}\n", 2);
    }
    tokenizer_text_append(&text, more, strlen(more));
    fixture_put(name, text.data, text.size);
    tokenizer_text_free(&text);
}

// The tokens of all documents.
static tri_token_ids expected_ids(void) {
    tri_tokenizer *tokenizer;
    tri_token_encoder *encoder;
    tri_token_ids ids = {0};
    uint32_t end;
    assert_int_equal(tri_tokenizer_open(TOKENIZER, &tokenizer), TRI_OK);
    assert_int_equal(tri_token_encoder_create(tokenizer, &encoder), TRI_OK);
    assert_int_equal(tri_tokenizer_end(tokenizer, &end), TRI_OK);
    for (int i = 0; i < COUNT; i++) {
        const char *mark = "<|endoftext|>";
        assert_int_equal(tri_token_encode(encoder, documents[i], strlen(documents[i]), &ids),
                         TRI_OK);
        assert_int_equal(tri_token_encode(encoder, mark, strlen(mark), &ids), TRI_OK);
        assert_int_equal(ids.ids[ids.count - 1], end);
    }
    tri_token_encoder_destroy(encoder);
    tri_tokenizer_close(tokenizer);
    return ids;
}

static tri_status try_open(const char *tokenizer, int sequence, const char *yaml,
                           tri_dataset **out) {
    tri_data_options *options = TRI_NEW(fixture_arena, tri_data_options);
    *options = fixture_options(tri_arena_printf(
        fixture_arena, "name: jsonl, tokenizer: %s, sequence: %d, %s", tokenizer, sequence, yaml));
    return tri_dataset_open(options, TRI_DATA_TRAIN, 1, out);
}

static void check_windows(const char *yaml, int64_t left_out) {
    tri_dataset *dataset;
    int64_t window[5];
    tri_token_ids ids = expected_ids();
    if (try_open(TOKENIZER, 5, yaml, &dataset) != TRI_OK)
        fail_msg("%s: %s", yaml, tri_error_message());
    assert_int_equal(tri_dataset_samples(dataset), ids.count / 5);
    assert_int_equal(tri_dataset_documents_left_out(dataset), left_out);
    tri_data_lengths lengths = tri_dataset_documents(dataset);
    assert_int_equal(lengths.count, COUNT);
    assert_int_equal(lengths.least, 0); // of the document without text
    assert_int_equal(lengths.sum, ids.count - COUNT);
    assert_in_range(lengths.most, (lengths.sum + COUNT - 1) / COUNT, lengths.sum);
    for (int64_t i = 0; i < tri_dataset_samples(dataset); i++) {
        assert_int_equal(fixture_read(dataset, 0, i, 0, window), TRI_OK);
        for (int k = 0; k < 5; k++) assert_int_equal(window[k], ids.ids[5 * i + k]);
    }
    tri_dataset_close(dataset);
    free(ids.ids);
}

static void test_windows(void **state) {
    put_documents("all.jsonl", 0, COUNT, "");
    put_documents("first.jsonl", 0, 2, "\n");
    put_documents("second.jsonl", 2, COUNT, " \t");
    check_windows("train: all.jsonl", 0);
    check_windows("train: [first.jsonl, second.jsonl]", 0);
    check_windows("train: '[fs][ie]*.jsonl'", 0);
    check_windows("train: all.jsonl", 0); // that was packed before
    char *text, *marked;
    size_t size;
    assert_int_equal(tri_os_read_file(fixture_path("all.jsonl"), 1 << 20, &text, &size), TRI_OK);
    marked = tri_arena_printf(fixture_arena, "\xef\xbb\xbf%.*s", (int)size, text);
    fixture_put("marked.jsonl", marked, size + 3);
    free(text);
    check_windows("train: marked.jsonl", 0);
}

static tri_pack open_pack(const char *yaml, ino_t *inode) {
    tri_data_options options = fixture_options(
        tri_arena_printf(fixture_arena, "name: jsonl, tokenizer: %s, %s", TOKENIZER, yaml));
    const char *const paths[] = {fixture_path("kept.jsonl")};
    tri_pack pack;
    struct stat info;
    if (tri_pack_open(fixture_arena, &options, paths, 1, false, &pack) != TRI_OK)
        fail_msg("%s: %s", yaml, tri_error_message());
    assert_int_equal(stat(pack.path, &info), 0);
    assert_int_equal(info.st_size, 2 * pack.tokens);
    *inode = info.st_ino;
    return pack;
}

static void test_kept(void **state) {
    ino_t first, again;
    put_documents("kept.jsonl", 0, COUNT, "");
    tri_pack pack = open_pack("train: kept.jsonl", &first);
    assert_string_equal(open_pack("train: kept.jsonl", &again).path, pack.path);
    assert_int_equal(first, again);
    const struct utimbuf times = {1, 1};
    assert_int_equal(utime(fixture_path("kept.jsonl"), &times), 0);
    assert_string_not_equal(open_pack("train: kept.jsonl", &again).path, pack.path);
    // A file of tokens that is not complete is made again.
    tri_pack second = open_pack("train: kept.jsonl", &first);
    assert_int_not_equal(access(pack.path, F_OK), 0); // that was stale
    assert_int_equal(truncate(second.path, 2), 0);
    assert_int_equal(open_pack("train: kept.jsonl", &again).tokens, pack.tokens);
    const char *folder = fixture_path("cache/of mine");
    pack = open_pack(tri_arena_printf(fixture_arena, "train: kept.jsonl, cache: '%s'", folder),
                     &again);
    assert_memory_equal(pack.path, folder, strlen(folder));
}

// In an image all files may have one time, whatever is in them.
static void test_content(void **state) {
    const struct utimbuf times = {1, 1};
    ino_t inode;
    const char *before[2];
    for (int i = 0; i < 2; i++) {
        fixture_put("kept.jsonl", i ? "{\"text\":\"jello\"}\n" : "{\"text\":\"hello\"}\n", 17);
        assert_int_equal(utime(fixture_path("kept.jsonl"), &times), 0);
        before[i] = open_pack("train: kept.jsonl", &inode).path;
    }
    assert_string_not_equal(before[0], before[1]);
}

// In a shared folder, the tokens of a user who keeps them from others are no obstacle to these.
static const char *kept_away;

static int away(const char *path, int mode) {
    if (strcmp(path, kept_away) != 0 || !(mode & (R_OK | W_OK)))
        return tri_os_system.access(path, mode);
    errno = EACCES;
    return -1;
}

static void test_kept_away(void **state) {
    ino_t inode;
    const char *own = fixture_path("own");
    put_documents("kept.jsonl", 0, COUNT, "");
    setenv("XDG_CACHE_HOME", own, 1);
    tri_pack beside = open_pack("train: kept.jsonl", &inode);
    const char *lock = tri_arena_printf(
        fixture_arena, "%.*s.lock", (int)(strrchr(beside.path, '-') - beside.path), beside.path);
    fixture_put(strrchr(lock, '/') + 1, "", 0);
    tri_os.access = away;
    kept_away = beside.path;
    tri_pack mine = open_pack("train: kept.jsonl", &inode);
    assert_memory_equal(mine.path, own, strlen(own));
    assert_int_equal(mine.tokens, beside.tokens);
    assert_int_equal(unlink(beside.path), 0);
    kept_away = lock;
    assert_string_equal(open_pack("train: kept.jsonl", &inode).path, mine.path);
    tri_os = tri_os_system;
    unsetenv("XDG_CACHE_HOME");
    assert_int_equal(unlink(lock), 0);
}

static int64_t read_bytes;

static ssize_t counted_pread(int fd, void *data, size_t size, off_t offset) {
    ssize_t got = tri_os_system.pread(fd, data, size, offset);
    read_bytes += got > 0 ? got : 0;
    return got;
}

static int no_locks(int fd) {
    errno = ENOSYS;
    return -1;
}

// A later run reads no token before its first sample.
static void test_largest_is_kept(void **state) {
    tri_dataset *dataset;
    int64_t window[5];
    put_documents("all.jsonl", 0, COUNT, "");
    check_windows("train: all.jsonl", 0);
    tri_os.pread = counted_pread;
    read_bytes = 0;
    assert_int_equal(try_open(TOKENIZER, 5, "train: all.jsonl", &dataset), TRI_OK);
    // Only the heads of both files, by which a pointer to content that is elsewhere is known, and
    // the documents, by which a change is noticed.
    struct stat text;
    assert_int_equal(stat(fixture_path("all.jsonl"), &text), 0);
    int64_t before = read_bytes;
    assert_true(before <= 2 * 64 + text.st_size);
    tri_token_ids ids = expected_ids();
    uint32_t largest = tri_tokens_largest_of(TRI_U32, ids.ids, (int64_t)ids.count);
    free(ids.ids);
    assert_int_equal(tri_dataset_classes(dataset, "input_ids"), largest + 1);
    assert_int_equal(fixture_read(dataset, 0, 0, 0, window), TRI_OK);
    assert_true(read_bytes <= before + 10);
    tri_dataset_close(dataset);
    tri_os = tri_os_system;
}

// A file beside kept tokens may be wrong: a token above its largest reaches no model.
static void test_wrong_info(void **state) {
    ino_t inode;
    tri_dataset *dataset;
    int64_t window[5];
    put_documents("kept.jsonl", 0, COUNT, "");
    tri_pack pack = open_pack("train: kept.jsonl", &inode);
    const char *info =
        tri_arena_printf(fixture_arena, "%.*s.json", (int)strlen(pack.path) - 4, pack.path);
    static const char *const remade[] = {"{", "[]", "{\"tokens\": -1}",
                                         "{\"tokens\": 16, \"left_out\": 0, \"largest\": -7}"};
    for (size_t i = 0; i < sizeof remade / sizeof *remade; i++) {
        assert_int_equal(tri_os_replace_file(info, remade[i], strlen(remade[i])), TRI_OK);
        assert_int_equal(open_pack("train: kept.jsonl", &inode).largest, pack.largest);
    }
    const char *small = tri_arena_printf(
        fixture_arena,
        "{\"tokens\": %lld, \"documents\": [1, 1, 1, 1], \"left_out\": 0, \"largest\": 5}",
        (long long)pack.tokens);
    assert_int_equal(tri_os_replace_file(info, small, strlen(small)), TRI_OK);
    assert_int_equal(try_open(TOKENIZER, 5, "train: kept.jsonl", &dataset), TRI_OK);
    assert_int_equal(fixture_read(dataset, 0, 0, 0, window), TRI_IO);
    assert_non_null(strstr(tri_error_message(), pack.path));
    tri_dataset_close(dataset);
}

// On a file system without locks each process makes what it needs.
static void test_no_locks(void **state) {
    put_documents("lockless.jsonl", 0, COUNT, "");
    tri_os.lock = no_locks;
    check_windows("train: lockless.jsonl", 0);
    tri_os = tri_os_system;
}

// Processes that need it at a time have the same file, which one of them made.
static void test_made_once(void **state) {
    enum { PROCESSES = 4 };
    int out[2];
    ino_t inodes[PROCESSES];
    put_documents("kept.jsonl", 0, 1, "");
    assert_int_equal(pipe(out), 0);
    for (int i = 0; i < PROCESSES; i++) {
        if (fork() > 0) continue;
        ino_t inode;
        open_pack("train: kept.jsonl", &inode);
        _exit(write(out[1], &inode, sizeof inode) != sizeof inode);
    }
    close(out[1]);
    for (int i = 0; i < PROCESSES; i++) {
        assert_int_equal(read(out[0], &inodes[i], sizeof *inodes), sizeof *inodes);
        assert_int_equal(inodes[i], inodes[0]);
    }
    for (int i = 0; i < PROCESSES; i++) assert_true(wait(NULL) > 0);
    close(out[0]);
}

static void check_refused(const char *tokenizer, int sequence, const char *yaml,
                          tri_status expected, const char *named) {
    tri_dataset *dataset;
    assert_int_equal(try_open(tokenizer, sequence, yaml, &dataset), expected);
    if (!strstr(tri_error_message(), named)) fail_msg("%s", tri_error_message());
}

static void test_damaged(void **state) {
    put_documents("odd.jsonl", 0, COUNT, "{\"text\": 1}\n[]\n{\"text\":\"a\"");
    check_refused(TOKENIZER, 5, "train: odd.jsonl", TRI_CORRUPT, "odd.jsonl:5:");
    check_windows("train: odd.jsonl, on_error: skip", 3);
    check_windows("train: odd.jsonl, on_error: skip", 3); // that was packed before
    check_refused(TOKENIZER, 5, "train: none.jsonl", TRI_NOT_FOUND, "none.jsonl");
    fixture_put("empty.jsonl", "\n", 1);
    check_refused(TOKENIZER, 5, "train: empty.jsonl", TRI_BAD_INPUT, "empty.jsonl");
    check_refused(TOKENIZER, 500, "train: odd.jsonl, on_error: skip", TRI_BAD_INPUT, "odd.jsonl");
    check_refused("none.json", 5, "train: all.jsonl", TRI_NOT_FOUND, "none.json");
    fixture_put("packed.jsonl.gz", "\x1f\x8b\x08\0\0\0\0\0", 8);
    check_refused(TOKENIZER, 5, "train: packed.jsonl.gz, on_error: skip", TRI_BAD_INPUT, "gzip");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),         cmocka_unit_test(test_kept),
        cmocka_unit_test(test_largest_is_kept), cmocka_unit_test(test_wrong_info),
        cmocka_unit_test(test_no_locks),        cmocka_unit_test(test_made_once),
        cmocka_unit_test(test_content),         cmocka_unit_test(test_kept_away),
        cmocka_unit_test(test_damaged)};
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
