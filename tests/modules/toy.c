// A module (shared object with a table) that unit/test_module loads.
#include "base/module.h"

TRI_MODULE("toys", 7, "toy", "a table");
