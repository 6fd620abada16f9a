// The program `trireme`. A user's own program calls tri_main in the same way, but with its own
// task.
#include <trireme/trireme.h>

#include <sys/prctl.h>

int main(int argc, char **argv) {
    prctl(PR_SET_NAME, "trireme"); // else ps shows the loader's name where that started the program
    return tri_main(argc, argv, NULL);
}
