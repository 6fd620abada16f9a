// Tokenizers: the numbers and texts that Hugging Face's and Google's libraries make
// (tests/support/make_tokenizer_goldens.py), long words, parts that are refused, lines of JSON.
#include "base/tree.h"
#include "format/jsonl.h"
#include "format/tokenizer/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/data_fixture.h"

#define GOLDENS TRIREME_SOURCE_DIR "/tests/support/goldens/tokenizers/"

static size_t from_hex(const char *hex, char *out) {
    size_t size = strlen(hex) / 2;
    for (size_t i = 0; i < size; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        out[i] = (char)byte;
    }
    return size;
}

static void check_line(tri_token_encoder *encoder, const char *hex, const char *expected,
                       const char *text_hex) {
    static char text[1 << 14];
    tri_token_ids ids = {0};
    const char *decoded;
    char *list = NULL;
    size_t size = from_hex(hex, text), list_size, decoded_size;
    assert_int_equal(tri_token_encode(encoder, text, size, &ids), TRI_OK);
    FILE *out = open_memstream(&list, &list_size);
    for (size_t i = 0; i < ids.count; i++) fprintf(out, "%s%u", i ? " " : "", ids.ids[i]);
    fclose(out);
    assert_string_equal(list, expected);
    assert_int_equal(tri_token_decode(encoder, ids.ids, ids.count, &decoded, &decoded_size),
                     TRI_OK);
    size = from_hex(text_hex, text);
    assert_int_equal(decoded_size, size);
    assert_memory_equal(decoded, text, size);
    free(list);
    free(ids.ids);
}

static void test_goldens(void **state) {
    tri_tree *root;
    assert_int_equal(tri_json_read_file(fixture_arena, GOLDENS "expected.json", &root), TRI_OK);
    const tri_tree *lines = tri_tree_get(root, "lines");
    int tokenizers = 0;
    for (int i = 0; i < root->count; i++) {
        const tri_tree *golden = root->items[i];
        tri_tokenizer *tokenizer;
        tri_token_encoder *encoder;
        if (golden == lines || golden == tri_tree_get(root, "long")) continue;
        const char *path = tri_arena_printf(fixture_arena, GOLDENS "%s", golden->key);
        assert_int_equal(tri_tokenizer_open(path, &tokenizer), TRI_OK);
        assert_int_equal(tri_token_encoder_create(tokenizer, &encoder), TRI_OK);
        const tri_tree *ids = tri_tree_get(golden, "ids"), *texts = tri_tree_get(golden, "texts");
        // The second time, short words come from the encoder's memory.
        for (int turn = 0; turn < 2; turn++)
            for (int j = 0; j < lines->count; j++)
                check_line(encoder, lines->items[j]->text, ids->items[j]->text,
                           texts->items[j]->text);
        tri_token_encoder_destroy(encoder);
        tri_tokenizer_close(tokenizer);
        tokenizers++;
    }
    assert_int_equal(tokenizers, 10);
}

// Scores of a long line are summed as sentencepiece does it, so its last tokens are the same.
static void test_long_sum(void **state) {
    static const char *const names[] = {"bpe.model", "unigram.model"};
    tri_tree *root;
    assert_int_equal(tri_json_read_file(fixture_arena, GOLDENS "expected.json", &root), TRI_OK);
    const tri_tree *line = tri_tree_get(root, "long");
    char *text, *list;
    size_t size, list_size;
    FILE *out = open_memstream(&text, &size);
    for (int i = 0; i < atoi(tri_tree_get(line, "count")->text); i++)
        fputs(tri_tree_get(line, "part")->text, out);
    fputs(tri_tree_get(line, "end")->text, out);
    fclose(out);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tri_tokenizer *tokenizer;
        tri_token_encoder *encoder;
        tri_token_ids ids = {0};
        const char *path = tri_arena_printf(fixture_arena, GOLDENS "%s", names[i]);
        assert_int_equal(tri_tokenizer_open(path, &tokenizer), TRI_OK);
        assert_int_equal(tri_token_encoder_create(tokenizer, &encoder), TRI_OK);
        assert_int_equal(tri_token_encode(encoder, text, size, &ids), TRI_OK);
        assert_true(ids.count > 8);
        out = open_memstream(&list, &list_size);
        for (size_t k = ids.count - 8; k < ids.count; k++)
            fprintf(out, "%s%u", k > ids.count - 8 ? " " : "", ids.ids[k]);
        fclose(out);
        assert_string_equal(list, tri_tree_get(tri_tree_get(root, names[i]), "long")->text);
        free(list);
        free(ids.ids);
        tri_token_encoder_destroy(encoder);
        tri_tokenizer_close(tokenizer);
    }
    free(text);
}

// The scanner of a well-known pattern finds what the regular expression does. Another branch, which
// never matches, makes the pattern an unknown one.
static void test_scanner(void **state) {
    static const char *const names[] = {"llama3.json", "qwen2.json", "newer.json"};
    tri_tree *root;
    assert_int_equal(tri_json_read_file(fixture_arena, GOLDENS "expected.json", &root), TRI_OK);
    const tri_tree *lines = tri_tree_get(root, "lines");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *text;
        size_t size;
        tri_tokenizer *tokenizer;
        tri_token_encoder *encoder;
        const char *path = tri_arena_printf(fixture_arena, GOLDENS "%s", names[i]);
        assert_int_equal(tri_os_read_file(path, 1 << 20, &text, &size), TRI_OK);
        const char *end = strstr(text, "|\\\\s+\"");
        assert_non_null(end);
        const char *changed =
            tri_arena_printf(fixture_arena, "%.*s|\\\\s+%s", (int)(end - text), text, end);
        fixture_put("tokenizer.json", changed, strlen(changed));
        assert_int_equal(tri_tokenizer_open(fixture_path("tokenizer.json"), &tokenizer), TRI_OK);
        assert_int_equal(tri_token_encoder_create(tokenizer, &encoder), TRI_OK);
        const tri_tree *golden = tri_tree_get(root, names[i]), *ids = tri_tree_get(golden, "ids"),
                       *texts = tri_tree_get(golden, "texts");
        for (int j = 0; j < lines->count; j++)
            check_line(encoder, lines->items[j]->text, ids->items[j]->text, texts->items[j]->text);
        tri_token_encoder_destroy(encoder);
        tri_tokenizer_close(tokenizer);
        free(text);
    }
}

// A token that strips white space behind it leaves the next token what remains of its text.
static void test_neighbours(void **state) {
    static const char text[] = "x  ab\r  ab\r";
    tri_tokenizer *tokenizer;
    tri_token_encoder *encoder;
    tri_token_ids ids = {0};
    uint32_t id;
    assert_int_equal(tri_tokenizer_open(GOLDENS "added.json", &tokenizer), TRI_OK);
    assert_int_equal(tri_token_encoder_create(tokenizer, &encoder), TRI_OK);
    assert_true(tri_tokenizer_find(tokenizer, " ab", &id));
    assert_int_equal(tri_token_encode(encoder, text, sizeof text - 1, &ids), TRI_OK);
    assert_true(ids.count > 2);
    assert_int_equal(ids.ids[ids.count - 2], id);
    assert_int_equal(ids.ids[ids.count - 1], id);
    free(ids.ids);
    tri_token_encoder_destroy(encoder);
    tri_tokenizer_close(tokenizer);
}

// The tokens of a word of a million characters are those of its pieces, and take no long time.
static void test_long_words(void **state) {
    enum { LENGTH = 1 << 20 };
    static const char *const names[] = {"gpt2.json", "llama2.json", "bpe.model", "unigram.model"};
    char *word = malloc(LENGTH);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        tri_tokenizer *tokenizer;
        tri_token_encoder *encoder;
        tri_token_ids ids = {0};
        const char *text;
        size_t size;
        memset(word, 'a' + (int)i, LENGTH);
        const char *path = tri_arena_printf(fixture_arena, GOLDENS "%s", names[i]);
        assert_int_equal(tri_tokenizer_open(path, &tokenizer), TRI_OK);
        assert_int_equal(tri_token_encoder_create(tokenizer, &encoder), TRI_OK);
        assert_int_equal(tri_token_encode(encoder, word, LENGTH, &ids), TRI_OK);
        assert_int_equal(tri_token_decode(encoder, ids.ids, ids.count, &text, &size), TRI_OK);
        assert_int_equal(size, LENGTH);
        assert_memory_equal(text, word, LENGTH);
        free(ids.ids);
        tri_token_encoder_destroy(encoder);
        tri_tokenizer_close(tokenizer);
    }
    free(word);
}

// Writes a tokenizer.json with this part, and checks that it is refused and what the message names.
static void check_refused(const char *part, tri_status expected, const char *named) {
    tri_tokenizer *tokenizer;
    const char *text = tri_arena_printf(
        fixture_arena,
        "{%s, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []}}",
        part);
    fixture_put("tokenizer.json", text, strlen(text));
    assert_int_equal(tri_tokenizer_open(fixture_path("tokenizer.json"), &tokenizer), expected);
    assert_null(tokenizer);
    assert_non_null(strstr(tri_error_message(), fixture_path("tokenizer.json")));
    if (!strstr(tri_error_message(), named)) fail_msg("%s", tri_error_message());
}

static void test_refused(void **state) {
    check_refused("\"normalizer\": {\"type\": \"Odd\"}", TRI_UNSUPPORTED, "normalizer 'Odd'");
    check_refused("\"pre_tokenizer\": {\"type\": \"UnicodeScripts\"}", TRI_UNSUPPORTED,
                  "pre_tokenizer 'UnicodeScripts'");
    check_refused("\"decoder\": {\"type\": \"Odd\"}", TRI_UNSUPPORTED, "decoder 'Odd'");
    check_refused("\"post_processor\": {\"type\": \"Odd\"}", TRI_UNSUPPORTED,
                  "post_processor 'Odd'");
    check_refused("\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"\\\\h+\"}, "
                  "\"content\": \"\"}",
                  TRI_UNSUPPORTED, "\\h");
    check_refused("\"added_tokens\": [{\"id\": 5, \"content\": \"b\"}]", TRI_BAD_INPUT, "'b'");
    tri_tokenizer *tokenizer;
    fixture_put("odd", "nothing", 7);
    assert_int_equal(tri_tokenizer_open(fixture_path("odd"), &tokenizer), TRI_BAD_INPUT);
    assert_int_equal(tri_tokenizer_open(fixture_path("none"), &tokenizer), TRI_NOT_FOUND);
}

static const tri_token_ids *framed(const char *processor) {
    static tri_token_ids ids;
    tri_tokenizer *tokenizer;
    char text[1024];
    snprintf(text, sizeof text,
             "{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}, "
             "\"unk_token\": \"a\"}, \"post_processor\": %s}",
             processor);
    fixture_put("framed.json", text, strlen(text));
    if (tri_tokenizer_open(fixture_path("framed.json"), &tokenizer) != TRI_OK) return NULL;
    free(ids.ids);
    ids = (tri_token_ids){.ids = calloc(2, sizeof *ids.ids), .count = 2, .capacity = 2};
    assert_int_equal(tri_token_frame(tokenizer, &ids), TRI_OK);
    tri_tokenizer_close(tokenizer);
    return &ids;
}

#define A_TEXT "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}"
#define MARK(name) "{\"SpecialToken\": {\"id\": \"" name "\", \"type_id\": 0}}"
#define TEMPLATE(single)                                                                           \
    "{\"type\": \"TemplateProcessing\", \"single\": [" single "], \"special_tokens\": {"           \
    "\"<s>\": {\"id\": \"<s>\", \"ids\": [7], \"tokens\": [\"<s>\"]}, "                            \
    "\"</s>\": {\"id\": \"</s>\", \"ids\": [8, 9], \"tokens\": []}}}"
#define BERT "{\"type\": \"BertProcessing\", \"sep\": [\"b\", 5], \"cls\": [\"c\", 4]}"

// The tokens around a prompt, which stands for 0 0.
static void test_frame(void **state) {
    static const struct {
        const char *processor;
        size_t count;
        uint32_t ids[8];
    } cases[] = {
        {"null", 2, {0, 0}},
        {"{\"type\": \"ByteLevel\"}", 2, {0, 0}},
        {TEMPLATE(MARK("<s>") ", " A_TEXT), 3, {7, 0, 0}},
        {TEMPLATE(MARK("<s>") ", " A_TEXT ", " MARK("</s>")), 5, {7, 0, 0, 8, 9}},
        {BERT, 4, {4, 0, 0, 5}},
        {"{\"type\": \"Sequence\", \"processors\": [" TEMPLATE(MARK("<s>") ", " A_TEXT) ", " BERT
                                                                                        "]}",
         5,
         {4, 7, 0, 0, 5}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tri_token_ids *ids = framed(cases[i].processor);
        assert_non_null(ids);
        assert_int_equal(ids->count, cases[i].count);
        assert_memory_equal(ids->ids, cases[i].ids, ids->count * sizeof *ids->ids);
    }
    assert_null(framed(TEMPLATE(MARK("<s>"))));
    assert_null(framed(TEMPLATE(MARK("<odd>") ", " A_TEXT)));
    assert_null(framed("{\"type\": \"BertProcessing\", \"sep\": [\"b\", -1]}"));
}

static void check_end(const char *config, const char *text) {
    tri_tokenizer *tokenizer;
    uint32_t id, expected;
    fixture_put("tokenizer_config.json", config, strlen(config));
    assert_int_equal(tri_tokenizer_open(fixture_path("tokenizer.json"), &tokenizer), TRI_OK);
    assert_int_equal(tri_tokenizer_end(tokenizer, &id), TRI_OK);
    assert_true(tri_tokenizer_find(tokenizer, text, &expected));
    assert_int_equal(id, expected);
    tri_tokenizer_close(tokenizer);
}

static void test_end(void **state) {
    char *text;
    size_t size;
    tri_tokenizer *tokenizer;
    uint32_t id, expected;
    assert_int_equal(tri_os_read_file(GOLDENS "gpt2.json", 1 << 20, &text, &size), TRI_OK);
    fixture_put("tokenizer.json", text, size);
    free(text);
    check_end("{}", "<|endoftext|>");
    check_end("{\"eos_token\": {\"content\": \"a\"}}", "a");
    check_end("{\"eos_token\": \"Z\"}", "Z");
    assert_int_equal(tri_tokenizer_open(GOLDENS "bpe.model", &tokenizer), TRI_OK);
    assert_int_equal(tri_tokenizer_end(tokenizer, &id), TRI_OK);
    assert_true(tri_tokenizer_find(tokenizer, "</s>", &expected));
    assert_int_equal(id, expected);
    tri_tokenizer_close(tokenizer);
    assert_int_equal(tri_tokenizer_open(GOLDENS "bert.json", &tokenizer), TRI_OK);
    assert_int_equal(tri_tokenizer_end(tokenizer, &id), TRI_OK); // [SEP]
    tri_tokenizer_close(tokenizer);
}

static void check_field(const char *line, const char *expected) {
    tokenizer_text memory = {0};
    tokenizer_string out, text = {line, strlen(line)};
    const char *wrong = tri_jsonl_field(text, (tokenizer_string){"text", 4}, &memory, &out);
    if (expected) {
        assert_null(wrong);
        assert_int_equal(out.size, strlen(expected));
        assert_memory_equal(out.data, expected, out.size);
    } else if (!wrong) {
        fail_msg("accepted: %s", line);
    }
    tokenizer_text_free(&memory);
}

static void test_jsonl(void **state) {
    check_field("{\"text\":\"\"}", "");
    check_field(" { \"a\" : [1, {\"text\": 2}, -0.5e+3, []], \"text\" : \"b\" , \"c\":null} ", "b");
    check_field("{\"text\":\"a\\u00e9\\ud83d\\ude00\\n\\\\\\/\"}",
                "a\xc3\xa9\xf0\x9f\x98\x80\n\\/");
    check_field("{\"\\u0074ext\":\"long enough to be read by words of eight bytes\"}",
                "long enough to be read by words of eight bytes");
    check_field("{\"a\":NaN,\"text\":\"b\",\"c\":[Infinity,-Infinity]}", "b");
    static const char *const wrong[] = {"",
                                        "[]",
                                        "{}",
                                        "{\"text\":1}",
                                        "{\"text\":\"a\"",
                                        "{\"text\":\"a\"}}",
                                        "{\"text\":\"a\",}",
                                        "{\"text\":\"a\" \"b\":1}",
                                        "{\"text\":\"a\\x\"}",
                                        "{\"text\":\"\\ud83d\"}",
                                        "{\"text\":\"\\ude00\"}",
                                        "{\"text\":\"a\tb\"}",
                                        "{\"text\":\"\xff\"}",
                                        "{\"text\":\"a\",\"text\":\"b\"}",
                                        "{\"text\":\"a\",\"b\":01}",
                                        "{\"text\":\"a\",\"b\":-NaN}",
                                        "{\"text\":NaN}",
                                        "{\"text\":\"a\",\"b\":1.}",
                                        "{\"text\":\"a\",\"b\":[1,]}",
                                        "{\"text\":\"a\",\"b\":{\"c\"}}",
                                        "{\"text\":\"a\",\"b\":tru}",
                                        "{\"text\":\"a\",\"b\":[}",
                                        "{\"text\":\"\\u12g4\"}",
                                        "{text:\"a\"}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) check_field(wrong[i], NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),    cmocka_unit_test(test_long_sum),
        cmocka_unit_test(test_scanner),    cmocka_unit_test(test_neighbours),
        cmocka_unit_test(test_long_words), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_end),        cmocka_unit_test(test_jsonl),
        cmocka_unit_test(test_frame)};
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
