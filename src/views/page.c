// Writes the page of a report. Its style and script are files of src/views/page, which the build
// makes part of the program (cmake/embed.cmake).
#include "views/page.h"
#include "views/report.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

// Writes the source expression that allows a script or style of this text: its SHA-256 in base64
// (Content Security Policy Level 3).
static void write_hash(FILE *out, const views_page_part *part) {
    unsigned char hash[EVP_MAX_MD_SIZE], text[2 * EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_Digest(part->text, part->size, hash, &size, EVP_sha256(), NULL);
    EVP_EncodeBlock(text, hash, (int)size);
    fprintf(out, "'sha256-%s'", (const char *)text);
}

static void write_part(FILE *out, const views_page_part *part) {
    fwrite(part->text, 1, part->size, out);
}

// Writes text between tags.
static void write_escaped(FILE *out, const char *text) {
    for (; *text; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        default:
            fputc(*text, out);
        }
    }
}

// In JSON "<" stands only inside of strings, where an escape does as well. Without it, a name with
// "</script>" would end the data.
static void write_data(FILE *out, const char *json) {
    for (; *json; json++) *json == '<' ? fputs("\\u003c", out) : fputc(*json, out);
}

tri_status views_report_write_page(FILE *out, const views_report_run *runs, int count) {
    char *json = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&json, &size);
    if (memory) views_report_write_data(memory, runs, count);
    if (!memory || fclose(memory) != 0) {
        free(json);
        return TRI_FAIL(TRI_NO_MEMORY, "no memory for the report's data");
    }
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src ",
          out);
    write_hash(out, &views_page_script);
    fputs("; style-src ", out);
    write_hash(out, &views_page_style);
    fputs("; base-uri 'none'; form-action 'none'\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
          out);
    write_escaped(out, runs[0].run->name);
    if (count > 1) fprintf(out, " and %d more", count - 1);
    fputs(" · Trireme</title>\n<style>", out);
    write_part(out, &views_page_style);
    fputs("</style>\n</head>\n<body>\n<main id=\"page\"></main>\n"
          "<svg id=\"svg\" width=\"0\" height=\"0\"></svg>\n"
          "<noscript>This page draws its curves by a script, which this browser does not run."
          "</noscript>\n<script type=\"application/json\" id=\"data\">",
          out);
    write_data(out, json);
    fputs("</script>\n<script>", out);
    write_part(out, &views_page_script);
    fputs("</script>\n</body>\n</html>\n", out);
    free(json);
    return TRI_OK;
}
