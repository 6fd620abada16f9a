// Tests reading Slurm's lists of hosts: which hosts a list names, in which order, and which texts
// are rejected because they are no list.
#include "rendezvous/hostlist.h"

#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *list, *hosts;
} lists[] = {
    {"node1", "node1"},
    {"node1,node2", "node1 node2"},
    {"n[1-3]", "n1 n2 n3"},
    {"n[001-003,007],login1", "n001 n002 n003 n007 login1"},
    {"nid[098-101]", "nid098 nid099 nid100 nid101"},
    {"n[9-11]-ib", "n9-ib n10-ib n11-ib"},
    {"rack[1-2]n[01-02,5]", "rack1n01 rack1n02 rack1n5 rack2n01 rack2n02 rack2n5"},
    {"a[0],b.example.org", "a0 b.example.org"},
    {"[1-2]", "1 2"},
};

static void every_host_in_order(void **state) {
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char all[512] = "", name[64];
        int count, used = 0;
        assert_int_equal(tri_hostlist_count(lists[i].list, &count), TRI_OK);
        for (int k = 0; k < count; k++) {
            assert_int_equal(tri_hostlist_at(lists[i].list, k, name, sizeof name), TRI_OK);
            used += snprintf(all + used, sizeof all - (size_t)used, "%s%s", k ? " " : "", name);
        }
        assert_string_equal(all, lists[i].hosts);
        assert_int_equal(tri_hostlist_at(lists[i].list, count, name, sizeof name), TRI_NOT_FOUND);
        assert_int_equal(tri_hostlist_at(lists[i].list, -1, name, sizeof name), TRI_NOT_FOUND);
    }
}

static void what_is_no_list(void **state) {
    static const char *const bad[] = {
        "",
        ",",
        "n1,",
        ",n1",
        "n[",
        "n[1",
        "n[1-",
        "n[]",
        "n[2-1]",
        "n[a]",
        "n[1-2",
        "n]",
        "n 1",
        "n[1,]",
        "n[[1]]",
        "n[-1]",
        "n[1-a]",
        "n[1-99999]",
        "n[1-2]\n",
        "n[0-9999999999]",
        "a[1]b[1]c[1]d[1]e[1]",
        "n[1-1000]m[1-1000]",
        "n[1-60000],m[1-60000]",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int count;
        char name[64];
        if (tri_hostlist_count(bad[i], &count) != TRI_BAD_INPUT) fail_msg("'%s' counts", bad[i]);
        assert_int_equal(tri_hostlist_at(bad[i], 0, name, sizeof name), TRI_BAD_INPUT);
    }
    char name[4];
    assert_int_equal(tri_hostlist_at("n[1-200]", 98, name, sizeof name), TRI_OK);
    assert_string_equal(name, "n99");
    assert_int_equal(tri_hostlist_at("n[1-200]", 99, name, sizeof name), TRI_BAD_INPUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_host_in_order),
        cmocka_unit_test(what_is_no_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
