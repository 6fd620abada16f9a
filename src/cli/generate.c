// `trireme generate`: continues texts by a model's scores. Read next: train/generate.c.
#include "train/generate.h"
#include "cli/generate_model.h"

#include "base/os.h"
#include "format/lines.h"
#include "format/tokenizer/text.h"
#include "format/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cli_flag generate_flags[] = {
    {"checkpoint", "PATH", "a checkpoint, a run folder, or a file or folder of weights", 0},
    {"prompt", "TEXT", "the text to continue", 0},
    {"prompt-file", "FILE", "texts to continue, one a line", 0},
    {"max-new-tokens", "N", "how many tokens a text gets at most (100)", 0},
    {"temperature", "T", "by which scores are divided; 0 takes the likeliest token (0)", 0},
    {"top-k", "K", "draw one of the K likeliest tokens (0: of all)", 0},
    {"top-p", "P", "draw one of the likeliest tokens that make up the probability P (1: all)", 0},
    {"repetition-penalty", "X", "by which scores of tokens in the text are divided (1)", 0},
    {"seed", "S", "of the random numbers (0)", 0},
    {"json", NULL, "print an object for each prompt: prompt_ids, ids and text", 0},
    CLI_DEVICE_FLAG("the device that computes"),
    {0}};

typedef struct texts {
    tri_arena *arena;
    tri_tokenizer *tokenizer; // NULL: a token is a byte
    tri_token_encoder *encoder;
    tokenizer_text decoded; // of bytes
    tri_generated_text *items;
    int count, capacity;
    int64_t most; // new tokens of a text
    const cli_text_model *model;
    size_t shown; // bytes of the only text that were printed
} texts;

static tri_status read_number(tri_arena *arena, const cli_arguments *a, const char *flag,
                              double least, double most, double *out) {
    const char *text = cli_value(a, flag);
    if (!text) return TRI_OK;
    if (tri_tree_to_double(tri_tree_plain(arena, text), out) && *out >= least && *out <= most)
        return TRI_OK;
    return TRI_FAIL(TRI_BAD_INPUT, "--%s: must be a number from %g to %g, not '%s'", flag, least,
                    most, text);
}

static tri_status read_draw(tri_arena *arena, const cli_arguments *a, train_draw_options *out,
                            int64_t *most) {
    int64_t seed = 0;
    *out = (train_draw_options){.top_p = 1, .repetition_penalty = 1};
    *most = 100;
    TRI_TRY(cli_read_whole(a, "max-new-tokens", 0, 1 << 24, most));
    TRI_TRY(cli_read_whole(a, "top-k", 0, INT32_MAX, &out->top_k));
    TRI_TRY(cli_read_whole(a, "seed", 0, INT64_MAX, &seed));
    TRI_TRY(read_number(arena, a, "temperature", 0, 1e6, &out->temperature));
    TRI_TRY(read_number(arena, a, "top-p", 0, 1, &out->top_p));
    out->seed = (uint64_t)seed;
    return read_number(arena, a, "repetition-penalty", 1e-6, 1e6, &out->repetition_penalty);
}

static tri_status encode(texts *t, const char *text, size_t size, tri_token_ids *ids) {
    if (t->tokenizer) {
        TRI_TRY(tri_token_encode(t->encoder, text, size, ids));
        return tri_token_frame(t->tokenizer, ids);
    }
    ids->ids = malloc((size + 1) * sizeof *ids->ids);
    if (!ids->ids) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a prompt");
    for (size_t i = 0; i < size; i++) ids->ids[i] = (uint8_t)text[i];
    ids->count = size;
    return TRI_OK;
}

static tri_status add_prompt(texts *t, const char *text, size_t size) {
    tri_token_ids ids = {0};
    tri_status status = encode(t, text, size, &ids);
    if (status == TRI_OK && ids.count == 0)
        status = TRI_FAIL(TRI_BAD_INPUT, "prompt %d is empty", t->count + 1);
    if (status == TRI_OK) {
        int64_t *prompt = TRI_NEW_ARRAY(t->arena, int64_t, (int64_t)ids.count);
        for (size_t i = 0; i < ids.count; i++) prompt[i] = ids.ids[i];
        TRI_PUSH(t->arena, t->items, t->count, t->capacity) =
            (tri_generated_text){.prompt = prompt,
                                 .prompt_count = (int64_t)ids.count,
                                 .ids = TRI_NEW_ARRAY(t->arena, int64_t, t->most)};
    }
    free(ids.ids);
    return status;
}

static tri_status read_lines(texts *t, const char *path) {
    tri_lines lines = {.path = path};
    TRI_TRY(tri_os_open_input(path, &lines.fd));
    tokenizer_string line;
    bool has_line = true;
    tri_status status = TRI_OK;
    while (status == TRI_OK && has_line) {
        status = tri_lines_next(&lines, &line, &has_line);
        if (status != TRI_OK || !has_line) break;
        if (line.size > 0 && line.data[line.size - 1] == '\r') line.size--; // of Windows
        status = add_prompt(t, line.data, line.size);
    }
    tri_lines_free(&lines);
    tri_os.close(lines.fd);
    if (status == TRI_OK && t->count == 0)
        return TRI_FAIL(TRI_BAD_INPUT, "--prompt-file: %s has no line", path);
    return status;
}

static tri_status read_prompts(texts *t, const cli_arguments *a) {
    const char *prompt = cli_value(a, "prompt");
    if (t->model->tokenizer) {
        TRI_TRY(tri_tokenizer_open(t->model->tokenizer, &t->tokenizer));
        TRI_TRY(tri_token_encoder_create(t->tokenizer, &t->encoder));
    }
    if (prompt) return add_prompt(t, prompt, strlen(prompt));
    return read_lines(t, cli_value(a, "prompt-file"));
}

static bool ends(const cli_text_model *m, int64_t token) {
    for (int i = 0; i < m->end_count; i++)
        if (m->ends[i] == token) return true;
    return false;
}

static tri_status decode_bytes(texts *t, const tri_generated_text *text, const char **out,
                               size_t *size) {
    char *bytes = malloc((size_t)text->count + 1);
    t->decoded.size = 0;
    for (int64_t i = 0; bytes && i < text->count; i++) bytes[i] = (char)text->ids[i];
    if (bytes) tokenizer_repair(&t->decoded, bytes, (size_t)text->count);
    bool failed = !bytes || t->decoded.failed;
    free(bytes);
    if (failed) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a text");
    *out = t->decoded.size > 0 ? t->decoded.data : "";
    *size = t->decoded.size;
    return TRI_OK;
}

// The text of what was generated, without its end mark. The next call overwrites it.
static tri_status decode(texts *t, const tri_generated_text *text, const char **out, size_t *size) {
    int64_t count = text->count;
    if (!t->tokenizer) return decode_bytes(t, text, out, size);
    if (count > 0 && ends(t->model, text->ids[count - 1])) count--;
    uint32_t *ids = malloc((size_t)(count + 1) * sizeof *ids);
    size_t known = 0; // a model may have more tokens than its tokenizer, which stand for no text
    if (!ids) return TRI_FAIL(TRI_NO_MEMORY, "no memory for a text");
    for (int64_t i = 0; i < count; i++)
        if (tri_tokenizer_has(t->tokenizer, text->ids[i])) ids[known++] = (uint32_t)text->ids[i];
    tri_status status = tri_token_decode(t->encoder, ids, known, out, size);
    free(ids);
    return status;
}

// Prints what the only text has got. A character whose bytes are not all there yet waits.
static tri_status show(void *context) {
    texts *t = context;
    const char *text;
    size_t size;
    TRI_TRY(decode(t, t->items, &text, &size));
    if (size >= 3 && !memcmp(text + size - 3, "\xef\xbf\xbd", 3)) return TRI_OK;
    if (size > t->shown) fwrite(text + t->shown, 1, size - t->shown, stdout);
    fflush(stdout);
    if (size > t->shown) t->shown = size;
    return TRI_OK;
}

static tri_tree *numbers(tri_arena *arena, const int64_t *ids, int64_t count) {
    tri_tree *list = tri_tree_list(arena);
    for (int64_t i = 0; i < count; i++) tri_tree_append(arena, list, tri_tree_int(arena, ids[i]));
    return list;
}

// Prints the text as JSON, also where it has the character 0.
static void print_quoted(const char *text, size_t size) {
    char character[TRI_JSON_CHARACTER_BYTES];
    for (size_t i = 0; i < size;) {
        i += tri_json_character(text + i, character);
        fputs(character, stdout);
    }
}

static tri_status print(texts *t, bool json) {
    for (int64_t i = 0; i < t->count; i++) {
        const tri_generated_text *item = &t->items[i];
        const char *text;
        size_t size;
        TRI_TRY(decode(t, item, &text, &size));
        if (json) {
            tri_tree *map = tri_tree_map(t->arena);
            tri_tree_put(t->arena, map, "prompt_ids",
                         numbers(t->arena, item->prompt, item->prompt_count));
            tri_tree_put(t->arena, map, "ids", numbers(t->arena, item->ids, item->count));
            const char *rest = tri_json_emit(t->arena, map);
            printf("%.*s, \"text\": \"", (int)strlen(rest) - 1, rest); // without its brace
            print_quoted(text, size);
            printf("\"}\n");
        } else {
            size_t shown = t->count == 1 ? t->shown : 0;
            if (size > shown) fwrite(text + shown, 1, size - shown, stdout);
            printf("\n");
        }
    }
    return TRI_OK;
}

static tri_status generate(tri_arena *arena, const cli_context *context, const cli_arguments *a) {
    cli_text_model model;
    texts t = {.arena = arena, .model = &model};
    tri_generate_request request = {.backends = &cli_backends,
                                    .recipe = &model.recipe,
                                    .task = context->task,
                                    .device =
                                        cli_has(a, "device") ? cli_value(a, "device") : "auto"};
    int cores, rank = 0;
    TRI_TRY(read_draw(arena, a, &request.draw, &t.most));
    TRI_TRY(cli_find_text_model(arena, context, a, &model));
    tri_status status = read_prompts(&t, a);
    if (status == TRI_OK) status = cli_bind_rank(&cores);
    if (status == TRI_OK) {
        request.checkpoint = model.checkpoint;
        request.texts = t.items;
        request.text_count = t.count;
        request.max_new_tokens = t.most;
        request.ends = model.ends;
        request.end_count = model.end_count;
        request.context = &t;
        if (t.count == 1 && !cli_has(a, "json")) request.progress = show;
        status = tri_generate(&request, &rank);
    }
    if (status == TRI_OK && rank == 0) status = print(&t, cli_has(a, "json"));
    tri_token_encoder_destroy(t.encoder);
    tri_tokenizer_close(t.tokenizer);
    tokenizer_text_free(&t.decoded);
    return status;
}

static int run_generate(const cli_context *context, int argc, char **argv) {
    cli_arguments a;
    int code = cli_parse(&cli_generate, argc, argv, &a);
    if (code >= 0) return code;
    if (cli_has(&a, "prompt") == cli_has(&a, "prompt-file"))
        return cli_usage(&cli_generate, "generate: needs --prompt or --prompt-file");
    tri_arena *arena = tri_arena_create(NULL, "command");
    tri_status status = generate(arena, context, &a);
    if (status == TRI_OK) cli_warn_of_null(&a, "the text means nothing");
    code = status == TRI_OK ? 0 : cli_fail(status);
    tri_arena_destroy(arena);
    return code;
}

const cli_command cli_generate = {
    .name = "generate",
    .arguments = "[RECIPE|DIR] [--checkpoint PATH] --prompt TEXT [key.path=value ...]",
    .help = "Continue texts by a decoder such as llama.",
    .flags = generate_flags,
    .more = "DIR is a run's folder, or a model as Hugging Face has it: config.json, weights and "
            "tokenizer.\nWith a recipe, the weights are those of --checkpoint. The tokenizer is "
            "data.tokenizer or lies beside\nthe weights; of a model of bytes (data.name=tokens) a "
            "token is a byte. A text ends at\nmax-new-tokens, or behind an end mark of "
            "config.json.\n",
    .examples = "trireme generate runs/llama-tiny --prompt 'ROMEO:' --temperature 0.8\n"
                "trireme generate models/tiny-llama --prompt 'Once upon a time'\n"
                "trireme generate models/tiny-llama --prompt-file prompts.txt --temperature 0.8 "
                "--top-p 0.9 --json\n",
    .run = run_generate};
