// The program `trireme`. A user's own program calls tri_main in the same way, with its own task.
#include <trireme/trireme.h>

#include <sys/prctl.h>

int main(int argc, char **argv) {
    // Without this call ps would show the loader's name if a loader started the program.
    prctl(PR_SET_NAME, "trireme");
    return tri_main(argc, argv, NULL);
}
