#!/bin/sh
# Data sets from the command line: their content, how fast they load, and every error.
set -eu
trireme=$(cd "$1" && pwd)/bin/trireme
recipe=$PWD/recipes/mnist-cnn.yaml
shared=/usr/share/datasets/fashion-mnist
[ -f "$shared/train-images-idx3-ubyte.gz" ] || {
    echo "Fashion-MNIST is not there: scripts/install-deps --demo installs it"
    exit 77
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
    echo "FAIL: $*"
    exit 1
}

"$trireme" data list | grep -q '^idx ' || fail "data list has no idx"
"$trireme" data check "$recipe" --json >"$folder/check"
grep -q '"split":"train","samples":60000,"classes":10,"least":6000,"most":6000' "$folder/check" ||
    fail "data check: $(cat "$folder/check")"
grep -q '"split":"test","samples":10000' "$folder/check" || fail "data check lacks the test data"
"$trireme" bench data "$recipe" --seconds 0.05 data.workers=2 --json >"$folder/bench"
for workers in 0 1 2; do
    grep -q "\"workers\":$workers,\"samples_per_s\"" "$folder/bench" ||
        fail "bench data has no $workers: $(cat "$folder/bench")"
done
"$trireme" bench data "$recipe" --seconds 0.02 data.workers=1 >"$folder/bench"
grep -q '^data.workers=[1-9]' "$folder/bench" || fail "no advice: $(cat "$folder/bench")"
"$trireme" bench data "$recipe" --seconds 0.02 data.workers=0 >"$folder/bench"
grep -q "^data.workers=[1-9].* recipe's 0 .* for each micro-batch" "$folder/bench" ||
    fail "no workers are advised: $(cat "$folder/bench")"

# Exit code 2, one line that has the words, and no run folder.
refused() {
    words=$1
    shift
    code=0
    "$trireme" train "$recipe" --run-dir "$folder/run" "$@" 2>"$folder/error" || code=$?
    [ "$code" = 2 ] || fail "code $code, not 2: $words"
    [ "$(wc -l <"$folder/error")" = 1 ] || fail "not one line: $(cat "$folder/error")"
    grep -qF "$words" "$folder/error" || fail "'$(cat "$folder/error")' lacks '$words'"
    [ ! -e "$folder/run" ] || fail "a run folder was left: $words"
}
data=$folder/data
fresh() {
    rm -rf "$data"
    mkdir "$data"
    cp "$shared"/*.gz "$data"
}
images=$data/train-images-idx3-ubyte labels=$data/train-labels-idx1-ubyte

refused "$folder/nowhere/train-images-idx3-ubyte" data.path="$folder/nowhere"
fresh
truncate -s 1000000 "$images.gz"
refused truncated data.path="$data"
fresh
mv "$labels.gz" "$folder/kept"
mv "$images.gz" "$labels.gz"
mv "$folder/kept" "$images.gz"
refused swapped data.path="$data"
fresh
gzip -dc "$shared/train-images-idx3-ubyte.gz" >"$images"
rm "$images.gz"
truncate -s 1000000 "$images"
refused "it has 47040000 bytes" data.path="$data"
echo "no images at all" >"$images"
refused magic data.path="$data"
fresh
cp "$data/t10k-labels-idx1-ubyte.gz" "$labels.gz"
refused "60,000 images, but 10,000 labels" data.path="$data"
fresh
rm "$data"/t10k-labels*
refused t10k-labels-idx1-ubyte data.path="$data"
printf '\0\0\0\0\0\0\0\200{}' >"$data/huge"
refused "a header of 9223372036854775808 bytes" data.name=tensors data.train="$data/huge"
printf '{}' >"$data/huge"
refused "too few" data.name=tensors data.train="$data/huge"
refused "did you mean 'normalize'" "data.transform=[{normalise: {}}]"
refused "2 values of 'mean'" "data.transform=[{normalize: {mean: [0, 1]}}]"
refused "data.transfrom" "data.transfrom=[]"
refused "fewer than batch.global" data.limit=10 data.drop_last=true
