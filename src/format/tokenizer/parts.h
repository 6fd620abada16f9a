// Inside of a tokenizer: its parts, each a row of a table with a function that reads it from JSON
// and one that applies it, and what they work on.
#ifndef TRIREME_FORMAT_TOKENIZER_PARTS_H
#define TRIREME_FORMAT_TOKENIZER_PARTS_H

#include "base/index.h"
#include "base/tree.h"
#include "format/tokenizer/charsmap.h"
#include "format/tokenizer/merges.h"
#include "format/tokenizer/text.h"
#include "format/tokenizer/tokenizer.h"
#include "format/tokenizer/trie.h"

#include <jansson.h>

typedef enum tokenizer_stage {
    TOKENIZER_NORMALIZER,
    TOKENIZER_PRE_TOKENIZER,
    TOKENIZER_DECODER,
    TOKENIZER_STAGES,
} tokenizer_stage;

// Parts of a text, which one buffer holds.
typedef struct tokenizer_span {
    size_t start, size;
} tokenizer_span;

typedef struct tokenizer_spans {
    tokenizer_span *items;
    size_t count, capacity;
    bool failed; // there was no memory
} tokenizer_spans;
void tokenizer_spans_push(tokenizer_spans *spans, size_t start, size_t size);

// The strings on which parts work: one text for normalizers, words for pre-tokenizers, tokens for
// decoders. A part that changes the text writes it into the other buffer.
typedef struct tokenizer_strings {
    const char *data; // the caller's text, or texts[0] or [1]
    tokenizer_spans spans, spare;
    tokenizer_text texts[2];
    bool is_first; // the first string is the beginning of the whole text
} tokenizer_strings;
// Empties the buffer that `strings` does not use, for a part to write to. tokenizer_strings_swap
// makes it the text of the strings.
tokenizer_text *tokenizer_strings_other(tokenizer_strings *strings);
void tokenizer_strings_swap(tokenizer_strings *strings, const tokenizer_text *text);

typedef struct tokenizer_regex tokenizer_regex;

// What a search needs, of PCRE2.
typedef struct tokenizer_regex_memory {
    struct pcre2_real_match_data_8 *match;
    struct pcre2_real_match_context_8 *context;
    struct pcre2_real_jit_stack_8 *stack;
} tokenizer_regex_memory;

// The pattern by which GPT-2 splits text.
#define TOKENIZER_GPT2                                                                             \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

typedef struct tokenizer_scanner tokenizer_scanner;

// What is searched in a text: a regular expression, a literal text, or characters of a class.
typedef struct tokenizer_pattern {
    tokenizer_regex *regex;
    const tokenizer_scanner *scanner; // that finds what `regex` does, faster; NULL: none
    tokenizer_string literal;
    bool (*class)(uint32_t code);
} tokenizer_pattern;

typedef enum tokenizer_behavior {
    TOKENIZER_REMOVED,
    TOKENIZER_ISOLATED,
    TOKENIZER_MERGED_WITH_PREVIOUS,
    TOKENIZER_MERGED_WITH_NEXT,
    TOKENIZER_CONTIGUOUS,
} tokenizer_behavior;

// One part, as the file describes it. Each kind of part uses some of the members.
typedef struct tokenizer_part {
    const struct tokenizer_row *row;
    tokenizer_pattern pattern;
    tokenizer_behavior behavior;
    tokenizer_string text; // what is put in, such as a prefix or a replacement
    bool flags[4];
    int64_t numbers[2];
    const tokenizer_charsmap *charsmap;
} tokenizer_part;

// Where a tokenizer.json is read.
typedef struct tokenizer_reader {
    tri_tokenizer *tokenizer;
    tri_arena *arena;
    const char *path;
} tokenizer_reader;

// A kind of part. `option` distinguishes rows that share functions.
typedef struct tokenizer_row {
    tokenizer_stage stage;
    const char *type; // as tokenizer.json names it
    tri_status (*parse)(tokenizer_reader *reader, const json_t *json, tokenizer_part *out);
    tri_status (*apply)(const tokenizer_part *part, tri_token_encoder *encoder,
                        tokenizer_strings *strings);
    int option;
} tokenizer_row;

typedef struct tokenizer_rows {
    const tokenizer_row *rows;
    int count;
} tokenizer_rows;
extern const tokenizer_rows tokenizer_normalizers, tokenizer_pre_tokenizers, tokenizer_decoders;

// A model. `init` is its state in tri_tokenizer.
typedef struct tokenizer_model {
    const char *type;
    tri_status (*parse)(tokenizer_reader *reader, const json_t *json);
    // Appends the tokens of a word, which is not empty.
    tri_status (*encode)(tri_token_encoder *encoder, const char *word, size_t size);
} tokenizer_model;
extern const tokenizer_model tokenizer_bpe, tokenizer_wordpiece, tokenizer_unigram,
    tokenizer_wordlevel;

typedef struct tokenizer_added {
    tokenizer_string text;
    uint32_t id;
    bool is_special, is_normalized, is_single_word, strips_left, strips_right;
} tokenizer_added;

enum { TOKENIZER_NO_ID = -1, TOKENIZER_MAX_PARTS = 64 };

struct tri_tokenizer {
    tri_arena *arena;
    const char *path;
    // The vocabulary: from texts to numbers, and from numbers to texts (data NULL: no such token).
    tri_index index, byte_index; // byte_index: by what the tokens are as bytes
    tokenizer_string *tokens;
    int64_t size, capacity;
    tokenizer_part parts[TOKENIZER_STAGES][TOKENIZER_MAX_PARTS];
    int part_count[TOKENIZER_STAGES];
    tokenizer_regex **regexes; // to be freed
    int regex_count, regex_capacity;
    tokenizer_added *added;
    int added_count;
    tokenizer_trie added_raw, added_normalized; // values: positions in `added`
    const tokenizer_model *model;
    // Models use some of these.
    int64_t unknown; // number of the token for what no token stands for; TOKENIZER_NO_ID: none
    tokenizer_string prefix, suffix; // of words' later pieces, and of their ends
    bool fuses_unknown, ignores_merges, cuts_at_space;
    bool is_by_byte; // the model's symbols are bytes, and the vocabulary was translated to bytes
    tokenizer_merges merges;
    int64_t byte_ids[256]; // by_byte: the token of each byte; byte fallback: <0x00> to <0xFF>
    bool has_byte_fallback;
    int64_t max_word_characters;
    tokenizer_trie trie; // of the vocabulary; values: numbers of tokens
    double *scores;      // by number of the token
    double unknown_score;
    struct tokenizer_sentencepiece *sentencepiece; // NULL: the file is a tokenizer.json
    int64_t end;                 // the token that ends a document; TOKENIZER_NO_ID: not known
    tri_token_ids before, after; // tokens around a text that a model is given (tri_token_frame)
};

typedef struct tokenizer_cache tokenizer_cache;

struct tri_token_encoder {
    const tri_tokenizer *tokenizer;
    tri_token_ids *out;
    tokenizer_strings strings;
    tokenizer_text repaired, normalized, word, scratch;
    tri_token_ids symbols;
    bool failed; // there was no memory for all tokens
    tokenizer_merge_memory merge_memory;
    tokenizer_cache *cache;
    struct tokenizer_path *best; // of Unigram: the best way to each position of a word
    size_t best_capacity;
    tokenizer_regex_memory regex_memory;
};

// Fails with "PATH: …".
#define TOKENIZER_FAIL(reader, status, format, ...)                                                \
    TRI_FAIL(status, "%s: " format, (reader)->path, ##__VA_ARGS__)

// Defined in frame.c. Reads the post_processor of a tokenizer.json; NULL or null: there is none.
tri_status tokenizer_frame_read(tokenizer_reader *reader, const json_t *json);

// Reading JSON. A missing or null value gives `otherwise`; one of another type fails and names the
// key.
tri_status tokenizer_read_bool(const tokenizer_reader *reader, const json_t *json, const char *key,
                               bool otherwise, bool *out);
tri_status tokenizer_read_int(const tokenizer_reader *reader, const json_t *json, const char *key,
                              int64_t otherwise, int64_t *out);
// The text is copied to the arena. Without it, out->data is NULL.
tri_status tokenizer_read_string(const tokenizer_reader *reader, const json_t *json,
                                 const char *key, tokenizer_string *out);
// Decodes base64. NULL: it is not valid.
void *tokenizer_base64(tri_arena *arena, tokenizer_string text, size_t *size);
tokenizer_string tokenizer_copy(tri_arena *arena, const char *data, size_t size);
// Reads {"String": …} or {"Regex": …}.
tri_status tokenizer_read_pattern(tokenizer_reader *reader, const json_t *json,
                                  tokenizer_pattern *out);

// The vocabulary. tokenizer_vocabulary_add makes `id` the number of the token; its text has to live
// as long as the tokenizer.
tri_status tokenizer_vocabulary_add(const tokenizer_reader *reader, tokenizer_string text,
                                    int64_t id);
// Makes the text that of number `id`, which is not found by it.
tri_status tokenizer_token_set(const tokenizer_reader *reader, tokenizer_string text, int64_t id);
tri_status tokenizer_vocabulary_read(tokenizer_reader *reader, const json_t *vocabulary);
int64_t tokenizer_find(const tri_tokenizer *tokenizer, const char *text, size_t size);
// Sets byte_ids to the tokens <0x00> to <0xFF>.
void tokenizer_find_bytes(tri_tokenizer *tokenizer);

// Makes the trie of the vocabulary.
tri_status tokenizer_vocabulary_trie(tokenizer_reader *reader);
// True if no token has a mark of a space, U+2581, behind another character: then no merge crosses
// such a place, and a text can be cut there. tokenizer_cut does so.
bool tokenizer_can_cut(const tri_tokenizer *tokenizer);
void tokenizer_cut(const char *data, tokenizer_span from, tokenizer_spans *out);

// Appends a token to what the encoder's caller gets.
bool tokenizer_ids_reserve(tri_token_ids *ids, size_t more);
void tokenizer_emit(tri_token_encoder *encoder, int64_t id);

// Added tokens.
tri_status tokenizer_added_read(tokenizer_reader *reader, const json_t *json);
tri_status tokenizer_added_index(tokenizer_reader *reader);
// Finds the next added token in the text from `from` on: what of the text it takes, spaces that it
// strips included. False: there is none. `least`: where the text begins that is not taken yet.
bool tokenizer_added_search(const tri_tokenizer *tokenizer, bool normalized, const char *text,
                            size_t size, size_t *from, size_t least, tokenizer_span *found,
                            uint32_t *id);

// Patterns.
tri_status tokenizer_regex_compile(tokenizer_reader *reader, tokenizer_string pattern,
                                   tokenizer_regex **out);
void tokenizer_regex_free(tokenizer_regex *regex);
// Finds the next match at or behind *from, and sets *from to where to go on. *found: false at the
// end.
tri_status tokenizer_match(const tokenizer_pattern *pattern, tri_token_encoder *encoder,
                           const char *text, size_t size, size_t *from, tokenizer_span *match,
                           bool *found);
// Splits each string at the matches of a pattern.
tri_status tokenizer_split(const tokenizer_pattern *pattern, tokenizer_behavior behavior,
                           bool inverted, tri_token_encoder *encoder, tokenizer_strings *strings);

// Appends what becomes of one string. `index`: its position among the strings.
typedef tri_status (*tokenizer_mapper)(const tokenizer_part *part, tri_token_encoder *encoder,
                                       tokenizer_string text, size_t index, tokenizer_text *out);
// Replaces each string by what the mapper makes of it; strings that become empty stay.
tri_status tokenizer_map(tokenizer_mapper mapper, const tokenizer_part *part,
                         tri_token_encoder *encoder, tokenizer_strings *strings);
// The mapper of Replace, which is a normalizer and a decoder.
tri_status tokenizer_replace(const tokenizer_part *part, tri_token_encoder *encoder,
                             tokenizer_string text, size_t index, tokenizer_text *out);
tri_status tokenizer_parse_replace(tokenizer_reader *reader, const json_t *json,
                                   tokenizer_part *out);
tri_status tokenizer_parse_metaspace(tokenizer_reader *reader, const json_t *json,
                                     tokenizer_part *out);
// Appends each byte as the character that stands for it.
void tokenizer_map_bytes(tokenizer_string text, tokenizer_text *out);

// GPT-2's alphabet: the character that stands for a byte in byte-level vocabularies, and back (-1:
// none does).
uint32_t tokenizer_byte_character(unsigned char byte);
int tokenizer_character_byte(uint32_t code);
// Translates the vocabulary to bytes if the last pre-tokenizer is ByteLevel and the model allows
// it.
tri_status tokenizer_by_byte(tokenizer_reader *reader);

tri_status tokenizer_apply(tri_token_encoder *encoder, tokenizer_stage stage,
                           tokenizer_strings *strings);
// Encodes words through the cache.
tri_status tokenizer_encode_words(tri_token_encoder *encoder, const char *data,
                                  const tokenizer_spans *words);

// Reads a file beside the tokenizer; *out is NULL if it is not there.
tri_status tokenizer_read_beside(const tri_tokenizer *tokenizer, tri_arena *arena, const char *name,
                                 tri_tree **out);
tri_status tokenizer_begin_with(tri_tokenizer *tokenizer, uint32_t id);

// sentencepiece's tokenizer.model.
tri_status tokenizer_sentencepiece_read(tri_tokenizer *tokenizer, const char *data, size_t size);
tri_status tokenizer_sentencepiece_encode(tri_token_encoder *encoder, const char *text,
                                          size_t size);
tri_status tokenizer_sentencepiece_decode(tri_token_encoder *encoder, const uint32_t *ids,
                                          size_t count, const char **text, size_t *size);

tri_status tokenizer_json_read(tri_tokenizer *tokenizer, const char *text, size_t size);
tri_status tokenizer_json_encode(tri_token_encoder *encoder, const char *text, size_t size);
tri_status tokenizer_json_decode(tri_token_encoder *encoder, const uint32_t *ids, size_t count,
                                 const char **text, size_t *size);

#endif
