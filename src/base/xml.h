// Writes text into XML documents, such as SVG pictures.
#ifndef TRIREME_BASE_XML_H
#define TRIREME_BASE_XML_H

#include <stdio.h>

// Writes `text` so that an element or a quoted attribute contains it as text, because names of
// blocks come from users and must not become markup. Control characters, which XML does not allow,
// become question marks.
void tri_xml_put(const char *text, FILE *out);

#endif
