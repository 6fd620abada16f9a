// A module for unit/test_module.
#include "base/module.h"

TRI_MODULE("toys", 7, "toy", "a table");
