// Text inside XML documents, such as SVG pictures.
#ifndef TRIREME_BASE_XML_H
#define TRIREME_BASE_XML_H

#include <stdio.h>

// Writes `text` so that it is only text in an element or a quoted attribute: names of blocks come
// from users and must not become markup. What XML cannot hold, a control character, becomes a
// question mark.
void tri_xml_put(const char *text, FILE *out);

#endif
