// Checks that the program finds its own file however it was started: directly, through a symbolic
// link, by a loader that got it as an argument, and by the starter of a bundle (the program packed
// with its libraries).
#include "base/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define LOADER "/lib64/ld-linux-x86-64.so.2"

static char folder[] = "/tmp/trireme program XXXXXX";

static int say_paths(void) {
    char file[PATH_MAX], start[PATH_MAX];
    if (!tri_program_file(file) || !tri_program_start(start)) return 1;
    printf("%s\n%s\n", file, start);
    return 0;
}

static void run(const char *words) {
    char command[3 * PATH_MAX];
    snprintf(command, sizeof command, "cd '%s' && %s", folder, words);
    assert_int_equal(system(command), 0);
}

// Runs the command line `words` in the shell. It starts libexec/name, a copy of this test, which
// prints two paths: that of its own file, and the path by which it can be started again. Checks
// that these are `file` and `start`, relative to the test's folder.
static void check_says(const char *words, const char *file, const char *start) {
    char command[PATH_MAX], wanted[PATH_MAX], line[PATH_MAX];
    snprintf(command, sizeof command, "cd '%s' && %s", folder, words);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    const char *const paths[] = {file, start};
    for (int i = 0; i < 2; i++) {
        snprintf(wanted, sizeof wanted, "%s/%s\n", folder, paths[i]);
        assert_non_null(fgets(line, sizeof line, out));
        assert_string_equal(line, wanted);
    }
    assert_int_equal(pclose(out), 0);
}

static int make_folder(void **state) {
    char self[PATH_MAX] = "", words[2 * PATH_MAX];
    if (!mkdtemp(folder) || readlink("/proc/self/exe", self, sizeof self - 1) <= 0) return 1;
    snprintf(words, sizeof words, "mkdir libexec && cp '%s' libexec/name", self);
    run(words);
    return 0;
}

static int remove_folder(void **state) {
    run("rm -r \"$PWD\"");
    return 0;
}

static void test_alone(void **state) {
    check_says("./libexec/name --say", "libexec/name", "libexec/name");
    check_says("ln -s libexec/name link && ./link --say", "libexec/name", "libexec/name");
    check_says(LOADER " ./libexec/name --say", "libexec/name", "libexec/name");
}

// In a bundle, the program starts itself again by the path of the starter, bin/name.
static void test_in_a_bundle(void **state) {
    run("mkdir bin && echo '#!/bin/sh' > bin/name");
    // bin/name is not executable yet, so it is not taken for the starter.
    check_says("./libexec/name --say", "libexec/name", "libexec/name");
    run("chmod +x bin/name");
    check_says("./libexec/name --say", "libexec/name", "bin/name");
    check_says(LOADER " ./libexec/name --say", "libexec/name", "bin/name");
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--say")) return say_paths();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_in_a_bundle),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
