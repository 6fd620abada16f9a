// The style and the script of a report's page: src/views/page/*, made part of the program.
#ifndef TRIREME_VIEWS_PAGE_H
#define TRIREME_VIEWS_PAGE_H

#include <stddef.h>

typedef struct views_page_part {
    const char *text;
    size_t size;
} views_page_part;

extern const views_page_part views_page_style, views_page_script;

#endif
