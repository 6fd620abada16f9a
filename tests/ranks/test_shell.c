// Checks that a shell reads every word that tri_shell_word has quoted as the word that it was.
#include "base/shell.h"
#include "support/arena_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void sh_reads_it_back(void **state) {
    static const char *const words[] = {"runs/a",  "my run",  "it's",        "",
                                        "$HOME",   "a\"b`c`", "'",           "two\nlines",
                                        "~/x",     "#1",      "a;b&c|d>e<f", "*?[ab]{}",
                                        "\\",      "tab\t",   "-n",          "schl\xc3\xbcssel",
                                        "a=(b c)", "!x"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char read[256] = "";
        FILE *sh =
            popen(tri_arena_printf(arena, "printf %%s %s", tri_shell_word(arena, words[i])), "r");
        assert_non_null(sh);
        size_t size = fread(read, 1, sizeof read - 1, sh);
        assert_int_equal(pclose(sh), 0);
        assert_int_equal(size, strlen(words[i]));
        assert_string_equal(read, words[i]);
    }
    assert_string_equal(tri_shell_word(arena, "runs/a-1_b.c"), "runs/a-1_b.c");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sh_reads_it_back)};
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}
