#!/bin/bash
# A plain PyTorch program runs under `trireme run`, and a program of this library under torchrun.
set -u
build=$1
run="$build/bin/fault_test_launch"
[ -x "$run" ] || { echo "skip: $run is not built"; exit 77; }

python=
for candidate in /usr/bin/python3 python3; do
    if "$candidate" -c 'import torch.distributed as d; assert d.is_available()' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || { echo "skip: no python3 with torch (package python3-torch)"; exit 77; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $1"; cat "$folder"/out "$folder"/err 2>/dev/null; exit 1; }

cat >"$folder/sum.py" <<'PY'
import os, sys
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
assert (rank, size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
total = torch.arange(8, dtype=torch.float32) * (rank + 1)
dist.all_reduce(total)
assert torch.equal(total, torch.arange(8, dtype=torch.float32) * size * (size + 1) / 2), total
if "--crash-once" in sys.argv and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit("crashing once")
print(f"sum of {size} right on {rank}", flush=True)
PY

# All flags of a usual call, a restart in the middle.
export PYTHON_EXEC=$python
"$run" run --standalone --nproc-per-node 2 --max-restarts 1 "$folder/sum.py" --crash-once \
    >"$folder/out" 2>"$folder/err" || fail "the gloo program under trireme run"
for rank in 0 1; do
    grep -q "sum of 2 right on $rank" "$folder/out" || fail "rank $rank said nothing"
done
grep -q "restart 1 of 1" "$folder/err" || fail "no restart was made"

# PyTorch's own error file, by its @record, is understood.
cat >"$folder/record.py" <<'PY'
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    raise ValueError("the oar broke")

main()
PY
"$run" run --standalone "$folder/record.py" >"$folder/out" 2>"$folder/err"
[ $? = 1 ] || fail "exit code of a recorded failure"
sed -n '/root cause/,$p' "$folder/err" | grep -q "ValueError: the oar broke" ||
    fail "the recorded error is not shown"

# torchrun starts a program of this library. PyTorch 1.13 under Python 3.11 reads its own default of
# --tee and --redirects, 0, as no value at all; the script corrects its parser.
cat >"$folder/torchrun.py" <<'PY'
from torch.distributed import run
from torch.distributed.elastic.multiprocessing.api import Std

read = Std.from_str
if read("0") is None:
    Std.from_str = staticmethod(lambda text: read(text) or Std.NONE)
run.main()
PY
"$python" "$folder/torchrun.py" --standalone --nproc_per_node 2 --no_python "$run" whoami \
    >"$folder/out" 2>"$folder/err" || fail "torchrun"
for rank in 0 1; do
    grep -q "^torchrun rank $rank of 2, local $rank of 2, met 2$" "$folder/out" ||
        fail "rank $rank under torchrun"
done
echo "passed"
