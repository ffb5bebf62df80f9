#!/usr/bin/env bash
# Builds the images sluice-reducer, sluice-plugin and sluice-auto from Debian packages with docker or, if not installed, buildah.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

usage() {
  cat <<'END'
usage: deploy/docker/build.sh [--push REGISTRY/NAME] [--tag T] [--base IMAGE] [--packages FOLDER] [reducer|plugin|auto ...]

  --push PREFIX      also push the images: PREFIX/sluice-reducer:T, ...
  --tag T            tag of the images; default: the version
  --base IMAGE       base image: Debian 12 or derived from it; default: debian:12-slim
  --packages FOLDER  folder with the .deb files of one version; default: build/packages, created by cpack from build/release
END
}

push='' tag='' base='' packages='' images=()
while (($# > 0)); do
  case $1 in
    --push | --tag | --base | --packages)
      if (($# < 2)); then
        echo "build.sh: $1: expected a value" >&2
        exit 64
      fi
      declare "${1#--}=$2"
      shift 2
      ;;
    reducer | plugin | auto)
      images+=("$1")
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      echo "build.sh: unknown argument $1" >&2
      usage >&2
      exit 64
      ;;
  esac
done
if ((${#images[@]} == 0)); then images=(reducer plugin auto); fi
version=$(<"$root/VERSION")
tag=${tag:-$version}

if [[ -z "$packages" ]]; then
  packages=$root/build/packages
  # Always create the packages, because existing ones may be from an older build.
  echo "build.sh: creating the packages in build/packages from build/release" >&2
  rm -f "$packages"/*.deb
  cpack --config "$root/build/release/CPackConfig.cmake" -B "$packages" >&2
  rm -rf "$packages/_CPack_Packages" # work folder of cpack, not part of an image
fi
for package in libnccl-net-sluice libsluice-tls sluice-reducer sluice-tools; do
  mapfile -t found < <(compgen -G "$packages/${package}_*.deb")
  if ((${#found[@]} > 1)); then
    echo "build.sh: $packages has ${#found[@]} packages ${package}; expected one version" >&2
    exit 64
  fi
done

if command -v docker >/dev/null; then
  build=(docker build)
  tool=docker
elif command -v buildah >/dev/null; then
  # Only the docker format supports HEALTHCHECK.
  build=(buildah bud --format docker)
  tool=buildah
else
  echo "build.sh: neither docker nor buildah is installed" >&2
  exit 69
fi

revision=$(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)
arguments=(--build-arg "VERSION=$version" --build-arg "REVISION=$revision")
if [[ -n "$base" ]]; then arguments+=(--build-arg "BASE=$base"); fi
for image in "${images[@]}"; do
  name=sluice-$image:$tag
  "${build[@]}" "${arguments[@]}" -t "$name" -f "$root/deploy/docker/Dockerfile.$image" "$packages"
  if [[ -n "$push" ]]; then
    "$tool" tag "$name" "$push/$name"
    "$tool" push "$push/$name"
  fi
done
