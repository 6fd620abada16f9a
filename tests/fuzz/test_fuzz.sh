#!/bin/sh
# Every fuzz target for a few seconds; `make fuzz` runs them longer.
exec scripts/fuzz "${FUZZ_SECONDS:-3}"
