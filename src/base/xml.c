// Escapes text for XML documents (XML 1.0, sections 2.2 and 2.4).
#include "base/xml.h"

static const char *escape_of(char c) {
    switch (c) {
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '&':
        return "&amp;";
    case '"':
        return "&quot;";
    default:
        return (unsigned char)c < ' ' && c != '\n' && c != '\t' ? "?" : NULL;
    }
}

void tri_xml_put(const char *text, FILE *out) {
    for (; *text; text++) {
        const char *escape = escape_of(*text);
        if (escape)
            fputs(escape, out);
        else
            fputc(*text, out);
    }
}
