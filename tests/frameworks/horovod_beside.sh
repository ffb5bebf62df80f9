#!/usr/bin/env bash
# usage: tests/frameworks/horovod_beside.sh [FOLDER]
# Builds Horovod 0.28.1 from its source distribution, with Gloo for CPUs, in an environment in FOLDER (build/frameworks/horovod-itself), and prints the
# losses of examples/horovod/train_digits.py with Horovod and with sluice.horovod, in f32 and with Compression.fp16. Run by hand: the build takes 5
# minutes. Needs cmake, g++, the headers of Python, mpirun and a release build of Sluice (build/release).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

folder=$(realpath -m "${1:-build/frameworks/horovod-itself}")
readonly VERSION=0.28.1
python=$folder/bin/python
source=$folder/source/horovod-$VERSION

scripts/python_env.sh "$folder" tests/frameworks/horovod.txt
if ! "$python" -c 'import horovod.torch' 2>/dev/null; then
  "$python" -m pip install -q 'setuptools<70' wheel cloudpickle psutil pyyaml packaging 'cffi>=1.4'
  "$python" -m pip download -q --no-deps --no-binary horovod --no-build-isolation -d "$folder/source" "horovod==$VERSION"
  tar -C "$folder/source" -xzf "$folder/source/horovod-$VERSION.tar.gz"
  # torch needs C++20, and its CUDA build is used without the CUDA toolkit.
  sed -i -E 's/(CMAKE_CXX_STANDARD) 1[0-9]/\1 20/; s/-std=c\+\+1[0-9]/-std=c++20/' "$source/CMakeLists.txt" "$source/horovod/torch/CMakeLists.txt"
  sed -i -E 's/print\(True if \(\(torch.version.cuda[^"]*"/print(False)"/' "$source/cmake/Modules/FindPytorch.cmake"
  CMAKE_POLICY_VERSION_MINIMUM=3.5 HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITH_GLOO=1 \
    MAKEFLAGS="-j${SLUICE_JOBS:-2}" "$python" -m pip install -q --no-deps --no-build-isolation "$source"
fi

trap 'kill "$reducer"' EXIT
port_file=$folder/port
rm -f "$port_file"
build/release/bin/sluice reducer --listen 127.0.0.1:0 --port-file "$port_file" &
reducer=$!
until [[ -s $port_file ]]; do kill -0 "$reducer" && sleep 0.1; done
export PYTHONPATH=gpu_client/python/src SLUICE_LIBRARY=$PWD/build/release/lib/libsluice.so SLUICE_HOSTS=off SLUICE_REDUCERS
SLUICE_REDUCERS=127.0.0.1:$(<"$port_file")
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for options in "" "--fp16"; do
  echo "== Horovod $VERSION $options"
  # shellcheck disable=SC2086 # no option or one
  "$folder/bin/horovodrun" --gloo -np 2 "$python" examples/horovod/train_digits.py --module horovod.torch $options
  echo "== sluice.horovod, mpirun $options"
  # shellcheck disable=SC2086
  mpirun -n 2 --oversubscribe --bind-to none "$python" examples/horovod/train_digits.py $options
done
