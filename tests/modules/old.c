// A module of an older interface, for unit/test_module.
#include "base/module.h"

TRI_MODULE("toys", 6, "old", "a table");
