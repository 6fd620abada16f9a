#!/bin/sh
# Every fuzz target, with the same inputs each time; `make fuzz` looks for new ones.
exec scripts/fuzz same
