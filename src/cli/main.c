// The program `trireme`. A user's own program calls tri_main with its own task instead.
#include <trireme/trireme.h>

int main(int argc, char **argv) { return tri_main(argc, argv, NULL); }
