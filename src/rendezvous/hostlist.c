// Reads Slurm's lists of hosts. A host's name consists of texts and numbers: "rack[1-2]n[01-16]"
// has the texts "rack" and "n" and two numbers, and lists rack1n01, rack1n02, …, rack2n01, ….
#include "rendezvous/hostlist.h"

#include "base/limits.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { GROUPS = 4, DIGITS = 9 };

// One range of numbers: "7", or "001-016".
typedef struct range {
    int first, last, width; // width: how many digits `first` has, leading zeros included
} range;

// One entry of a list of hosts: a name with groups of ranges, each group in brackets. The entry
// stands for all combinations of the groups' numbers.
typedef struct item {
    const char *text;
    size_t length;
    const char *groups[GROUPS]; // the text after each "["
    int sizes[GROUPS];          // by group: how many numbers its ranges have together
    int group_count, hosts;     // hosts: how many hosts the entry stands for
} item;

static bool read_number(const char **at, int *out, int *width) {
    const char *begin = *at;
    int value = 0;
    while (isdigit((unsigned char)**at) && *at - begin < DIGITS)
        value = value * 10 + (*(*at)++ - '0');
    *out = value;
    *width = (int)(*at - begin);
    return *width > 0;
}

// Reads a range, and moves *at to the "," or "]" behind it. False: it is not a range.
static bool read_range(const char **at, range *out) {
    int width;
    if (!read_number(at, &out->first, &out->width)) return false;
    out->last = out->first;
    if (**at == '-') {
        ++*at;
        if (!read_number(at, &out->last, &width)) return false;
    }
    return (**at == ',' || **at == ']') && out->last >= out->first;
}

// Counts the numbers that a group such as "[1-3,7]" stands for, and writes number `index` of them
// to `out`, if that is not NULL. The whole list of names is never made, because it may be long. *at
// points behind the "[" before the call, and behind the "]" after it. False: the text is not a
// group, or the group is too long.
static bool read_group(const char **at, int index, int *count, char *out, size_t size) {
    int64_t total = 0;
    for (;;) {
        range r;
        if (!read_range(at, &r)) return false;
        if (out && index >= total && index <= total + r.last - r.first)
            snprintf(out, size, "%0*d", r.width, r.first + (int)(index - total));
        total += (int64_t)r.last - r.first + 1;
        if (total > TRI_MAX_RANKS) return false;
        if (*(*at)++ == ']') break;
    }
    *count = (int)total;
    return true;
}

static tri_status bad_list(const char *list) {
    return TRI_FAIL(TRI_BAD_INPUT,
                    "'%.80s' is not a list of hosts such as \"n[01-16],login1\" (at most %d hosts)",
                    list, TRI_MAX_RANKS);
}

// Reads the item at *at and moves *at behind the item and its comma. False: it is not an item.
static bool read_item(const char **at, item *out) {
    *out = (item){.text = *at, .hosts = 1};
    while (**at && **at != ',') {
        char c = *(*at)++;
        if (c == ']' || isspace((unsigned char)c) || !isprint((unsigned char)c)) return false;
        if (c != '[') continue;
        if (out->group_count == GROUPS) return false;
        out->groups[out->group_count] = *at;
        int *size = &out->sizes[out->group_count++];
        if (!read_group(at, 0, size, NULL, 0)) return false;
        if ((int64_t)out->hosts * *size > TRI_MAX_RANKS) return false;
        out->hosts *= *size;
    }
    out->length = (size_t)(*at - out->text);
    if (out->length == 0) return false;
    if (!**at) return true;
    return *++*at != 0; // false: nothing follows the comma
}

// Writes the name of the item's host `index`. False: it does not fit.
static bool write_name(const item *it, int index, char *out, size_t size) {
    size_t used = 0;
    int group = 0, rest = it->hosts;
    for (const char *at = it->text; at < it->text + it->length;) {
        char number[DIGITS + 2] = {*at, 0};
        if (*at++ == '[') {
            int count;
            rest /= it->sizes[group++];
            if (!read_group(&at, index / rest, &count, number, sizeof number)) return false;
            index %= rest;
        }
        size_t length = strlen(number);
        if (used + length >= size) return false;
        memcpy(out + used, number, length);
        used += length;
    }
    out[used] = 0;
    return true;
}

tri_status tri_hostlist_count(const char *list, int *out) {
    int64_t total = 0;
    const char *at = list;
    do {
        item it;
        if (!read_item(&at, &it) || (total += it.hosts) > TRI_MAX_RANKS) return bad_list(list);
    } while (*at);
    *out = (int)total;
    return TRI_OK;
}

tri_status tri_hostlist_at(const char *list, int index, char *out, size_t size) {
    int count;
    TRI_TRY(tri_hostlist_count(list, &count));
    if (index < 0 || index >= count)
        return TRI_FAIL(TRI_NOT_FOUND, "'%.80s' has no host %d: it names %d", list, index, count);
    const char *at = list;
    item it;
    while (read_item(&at, &it) && index >= it.hosts) index -= it.hosts;
    return write_name(&it, index, out, size) ? TRI_OK : bad_list(list);
}
