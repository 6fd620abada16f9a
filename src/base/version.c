// Returns the version of the library, which the build sets.
#include <trireme/trireme.h>

const char *tri_version(void) { return TRIREME_VERSION; }
