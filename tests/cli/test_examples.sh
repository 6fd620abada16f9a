#!/bin/sh
# Compiles a user's program with the installed library, found by pkg-config, and as a shared object.
set -eu
build=$1
here=$(pwd)
data=/usr/share/datasets/fashion-mnist
[ -d "$data" ] || { echo "skip: $data is not installed"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
DESTDIR="$folder/root" cmake --install "$build" --prefix /usr >"$folder/install.log"
[ -s "$folder/root/usr/share/bash-completion/completions/trireme" ]
[ -s "$folder/root/usr/share/man/man1/trireme.1" ]
lib=$(find "$folder/root" -name trireme.pc -printf '%h\n')
export PKG_CONFIG_PATH="$lib"
flags=$(pkg-config --cflags --libs trireme)
cp "$here"/examples/*.c "$here"/examples/*.yaml "$folder"
cd "$folder"
export OMP_NUM_THREADS=1 LD_LIBRARY_PATH="$(dirname "$lib")"
# shellcheck disable=SC2086
cc -Wall -Wextra -Werror two-layer.c -o two-layer $flags
# shellcheck disable=SC2086
cc -Wall -Wextra -Werror -shared -fPIC two-layer.c -o two-layer.so $(pkg-config --cflags trireme)
settings="data.limit=640 trainer.max_steps=5 trainer.log_every_n_steps=1"
settings="$settings trainer.limit_val_batches=1"
# shellcheck disable=SC2086
./two-layer train two-layer.yaml $settings --run-dir own
# shellcheck disable=SC2086
"$build/bin/trireme" train two-layer.yaml model.name=./two-layer.so $settings --run-dir object
./two-layer --help | grep -q checkpoint
./two-layer plan two-layer.yaml | grep -q 407,050
./two-layer train --keys model | grep -q "This program's model is two-layer"
./two-layer bench kernels 2>&1 | grep -q 'which recipe of model two-layer?'
./two-layer checkpoint init two-layer.yaml --out start.safetensors
./two-layer train two-layer.yaml $settings optimizer.lr=0 trainer.max_steps=1 --run-dir still
"$build/bin/trireme" checkpoint diff start.safetensors still
./two-layer plan two-layer.yaml data.name=synthetic 'data.shape=[1,28,28]' data.classes=10 \
    data.samples=64 | grep -q 407,050
grep -o '"loss":[^,]*' own/metrics.jsonl >own.txt
grep -o '"loss":[^,]*' object/metrics.jsonl >object.txt
[ "$(wc -l <own.txt)" -ge 5 ]
cmp own.txt object.txt

# An op of the program's own: its gradient, and training by one rank, by two replicas that share the
# state, and by two ranks that divide layers.
# shellcheck disable=SC2086
cc -Wall -Wextra -Werror own-op.c -o own-op $flags
./own-op check | grep -q sparsemax
losses() {
    sed -n 's/.*"step":\([1-5]\),.*"loss":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl" | head -5
}
together() {
    rm -rf together
    # shellcheck disable=SC2086
    ./own-op run --standalone --nproc-per-node 2 ./own-op train two-layer.yaml $settings "$@" \
        --run-dir together
    { losses alone && losses together; } | sort -n | awk '
        $1 == step && ($2 - loss > 1e-5 || loss - $2 > 1e-5) { apart = 1 }
        { step = $1; loss = $2; many++ }
        END { exit apart || many != 10 }'
}
# shellcheck disable=SC2086
./own-op train two-layer.yaml $settings --run-dir alone
together batch.micro=32 strategy.name=fsdp
together strategy.mesh.tensor=2 'strategy.tensor={experts: column, fc2: row}'
