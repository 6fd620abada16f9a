// A module (shared object) with an older interface; unit/test_module checks that it is refused.
#include "base/module.h"

TRI_MODULE("toys", 6, "old", "a table");
