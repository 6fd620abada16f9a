#include <trireme/trireme.h>

int main(int argc, char **argv) { return tri_main(argc, argv, NULL); }
