// The program `trireme`, whose recipes name built-in models. A user's own program calls tri_main in
// the same way, with a tri_task, the user's model, instead of NULL.
#include <trireme/trireme.h>

#include <sys/prctl.h>

int main(int argc, char **argv) {
    // In the bundle that scripts/bundle makes, a starter runs a dynamic loader (ld.so) with this
    // program as its argument. Without this call, ps would show the loader's name.
    prctl(PR_SET_NAME, "trireme");
    return tri_main(argc, argv, NULL);
}
