#!/usr/bin/env bash
# Builds the artefacts of a release: Debian packages, a tarball, a wheel, and images.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() {
  cat <<'END'
usage: ./release.sh [--out FOLDER] [--images TOOL] [--base IMAGE]
       ./release.sh --libraries | --build

Builds build/release with third-party libraries linked statically, so that its files run on each distribution with glibc 2.34 or
newer, and writes to FOLDER: Debian packages, a tarball of programs and libraries, a Python wheel, an SPDX bill of materials, and
SHA256SUMS. The same commit gives the same bytes.

  --out FOLDER   default: build/artefacts; its files of an earlier release are replaced
  --images TOOL  also build the container images with TOOL: docker, podman or buildah; default: buildah if it is installed,
                 otherwise no images; none: no images
  --base IMAGE   base of the images; default: debian:12-slim
  --libraries    only fetch and build the static libraries, in build/archives
  --build        only build build/release, statically linked if the libraries can be fetched; `pip install .` calls it

Debian has no static fmt, spdlog and prometheus-cpp: the script downloads their source packages, in the installed versions, with an
apt configuration of its own. deploy/project.env names the maintainer and the address that the artefacts show. Environment:
SLUICE_BUILD, a finished build to package in place of build/release; SLUICE_JOBS, the number of parallel compiler processes.

Exit codes: 0 success; 1 a step failed; 64 invalid argument; 69 this machine cannot build the release.
END
}

out=build/artefacts images='' base='' only=''
while (($# > 0)); do
  case $1 in
    --out | --images | --base)
      if (($# < 2)); then
        echo "release.sh: $1: expected a value" >&2
        exit 64
      fi
      declare "${1#--}=$2"
      shift
      ;;
    --libraries | --build) only=${1#--} ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      echo "release.sh: unknown argument $1" >&2
      usage >&2
      exit 64
      ;;
  esac
  shift
done
case $images in
  '') if command -v buildah >/dev/null; then images=buildah; else images=none; fi ;;
  docker | podman | buildah | none) ;;
  *)
    echo "release.sh: --images $images: expected docker, podman, buildah or none" >&2
    exit 64
    ;;
esac

# shellcheck source=scripts/machine.sh
source scripts/machine.sh
# shellcheck source=scripts/packages.sh
source scripts/packages.sh
# shellcheck source=scripts/build.sh
source scripts/build.sh
# shellcheck source=scripts/static_libraries.sh
source scripts/static_libraries.sh

readonly BUILD_TARGETS=(sluice_artefacts)

# build_release [CMAKE-ARGUMENT...]: configures build/release, without tests unless it has them already, and builds BUILD_TARGETS.
build_release() {
  local arguments=("$@")
  if [[ ! -e build/release/CMakeCache.txt ]]; then arguments+=(-DSLUICE_TESTS=OFF); fi
  build_preset release "${arguments[@]}"
  sed -nE 's/^-- +(TLS|RDMA|CUDA|PROMETHEUS|COORDINATOR): (not built|off)/release.sh: left out: \1: \2/p' build/release/configure.log >&2
}

case $only in
  libraries)
    static_libraries || exit "$EXIT_UNAVAILABLE"
    exit
    ;;
  build)
    check_machine
    check_tools
    static_libraries || echo "release.sh: the programs are linked with this machine's libraries" >&2
    build_release -DSLUICE_PORTABLE=AUTO
    exit
    ;;
esac

check_machine
echo "== 1. packages"
install_packages "${BUILD_PACKAGES[@]}" "${RELEASE_PACKAGES[@]}" || exit "$EXIT_UNAVAILABLE"
check_tools
built=${SLUICE_BUILD:-build/release}
if [[ -z "${SLUICE_BUILD:-}" ]]; then
  echo "== 2. static libraries, $built"
  static_libraries || exit "$EXIT_UNAVAILABLE"
  build_release -DSLUICE_PORTABLE=ON
fi
for file in bin/sluice bin/sluice-gpu-bench lib/libsluice.so.0 lib/libsluice_tls.so lib/libnccl-net-sluice.so; do
  if [[ "$file" == lib/libsluice_tls.so && ! -e "$built/$file" ]]; then
    echo "left out: libsluice_tls, which $built does not have" >&2
    continue
  fi
  newest=$(objdump -T "$built/$file" | grep -oE '\bGLIBC_[0-9.]+' | sort -V | tail -n 1)
  foreign=$(objdump -p "$built/$file" | awk '$1 == "NEEDED" { print $2 }' | grep -vE '^(lib(c|m|dl|pthread|rt|ssl|crypto)\.so\.[0-9]+|ld-linux.*)$' || true)
  if [[ -n "$foreign" ]] || ! at_least "$NEEDED_GLIBC" "${newest#GLIBC_}"; then
    echo "release.sh: $built/$file is not portable: it needs $newest $foreign" >&2
    exit 1
  fi
done

# The time of all files in the artefacts: that of the commit, or of the newest version in an archive of the tree.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date -d "$(sed -n 's/^ -- .*>  //p' deploy/packaging/debian/changelog | head -n 1)" +%s)}
export SOURCE_DATE_EPOCH SLUICE_BUILD=$built
version=$(<VERSION)
mkdir -p "$out"
# Only files of an earlier release: the folder may hold other things.
rm -f "${out:?}"/{sluice,libsluice,libnccl-net-sluice}*.{deb,tar.gz,whl,spdx.json} "$out/SHA256SUMS"
work=$(mktemp -d "$(cd "$out" && pwd)/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT

echo "== 3. packages, tarball, wheel"
cpack --config "$built/CPackConfig.cmake" -B "$work/packages" >"$work/cpack.log" || {
  cat "$work/cpack.log" >&2
  exit 1
}
mv "$work"/packages/*.deb "$out"
name=sluice-$version-linux-$(uname -m)
for component in reducer tls nccl_plugin bench client_library client; do
  cmake --install "$built" --prefix "$work/$name" --component "$component" --strip >/dev/null
done
cp LICENSE THIRD_PARTY.md "$work/$name/"
tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --format=gnu -c "$name" |
  gzip -n >"$out/$name.tar.gz"
# Debian's Python has the packages that the backend needs, so that nothing is downloaded.
/usr/bin/python3 -m pip -q wheel . --no-deps --no-build-isolation --no-index -w "$out"

echo "== 4. bill of materials, checksums"
/usr/bin/python3 -B scripts/bill_of_materials.py "$out"
(cd "$out" && shopt -s nullglob && sha256sum -- {sluice,libsluice,libnccl-net-sluice}*.{deb,tar.gz,whl,spdx.json} >SHA256SUMS)
if [[ "$images" != none ]]; then
  echo "== 5. images"
  deploy/docker/build.sh --tool "$images" --packages "$out" ${base:+--base "$base"}
fi
cat "$out/SHA256SUMS"
