// The version of the library.
#include <trireme/trireme.h>

const char *tri_version(void) { return TRIREME_VERSION; }
