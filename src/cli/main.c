// The program `trireme`, whose recipes name built-in models. A user's own program also calls
// tri_main, and passes the user's model (a tri_task) instead of NULL.
#include <trireme/trireme.h>

#include <sys/prctl.h>

int main(int argc, char **argv) {
    // scripts/bundle packs this program into a folder with all libraries that it needs. There a
    // starter runs a dynamic loader (ld.so) with this program as its argument. Without this call,
    // ps would show the loader's name.
    prctl(PR_SET_NAME, "trireme");
    return tri_main(argc, argv, NULL);
}
