#!/usr/bin/env bash
# Builds the images sluice-reducer, sluice-plugin and sluice-auto from Debian packages with docker, podman or buildah.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

usage() {
  cat <<'END'
usage: deploy/docker/build.sh [--push REGISTRY/NAME] [--tag T] [--tool TOOL] [--base IMAGE] [--packages FOLDER]
                              [reducer|plugin|auto ...]

  --push PREFIX      also push the images: PREFIX/sluice-reducer:T, ...
  --tag T            tag of the images; default: the version
  --tool TOOL        docker, podman or buildah; default: the first of them that works here
  --base IMAGE       base image with apt-get, such as Debian 12 or Ubuntu 22.04; default: debian:12-slim
  --packages FOLDER  folder with the .deb files of one version; default: build/packages, made from build/release, which
                     ./quickstart.sh makes
END
}

push='' tag='' tool='' base='' packages='' images=()
while (($# > 0)); do
  case $1 in
    --push | --tag | --tool | --base | --packages)
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

# works TOOL: whether TOOL is installed and can build. A docker client without a daemon cannot.
works() { command -v "$1" >/dev/null && { [[ "$1" == buildah ]] || "$1" info >/dev/null 2>&1; }; }
case $tool in
  '')
    for tool in docker podman buildah none; do
      if works "$tool"; then break; fi
    done
    if [[ "$tool" == none ]]; then
      echo "build.sh: no tool works: docker (with its daemon), podman or buildah is needed" >&2
      exit 69
    fi
    ;;
  docker | podman | buildah)
    if ! works "$tool"; then
      echo "build.sh: --tool $tool: it is not installed, or its daemon does not answer" >&2
      exit 69
    fi
    ;;
  *)
    echo "build.sh: --tool $tool: expected docker, podman or buildah" >&2
    exit 64
    ;;
esac
case $tool in
  docker) build=(docker build) ;;
  # Only the docker format supports HEALTHCHECK.
  podman) build=(podman build --format docker) ;;
  buildah) build=(buildah bud --format docker) ;;
esac

if [[ -z "$packages" ]]; then
  packages=$root/build/packages
  if [[ ! -e "$root/build/release/CMakeCache.txt" ]]; then
    echo "build.sh: build/release does not exist; run ./quickstart.sh --build-only, or name the packages of a release: --packages build/artefacts" >&2
    exit 69
  fi
  # Always create the packages, because existing ones may be from an older build.
  echo "build.sh: creating the packages in build/packages from build/release" >&2
  jobs=$(cd "$root" && bash -c 'source scripts/machine.sh && source scripts/build.sh && build_jobs') # limited by memory
  cmake --build "$root/build/release" --parallel "$jobs" --target sluice_artefacts >&2
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

# shellcheck source=deploy/project.env
source "$root/deploy/project.env"
revision=$(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)
arguments=(--build-arg "VERSION=$version" --build-arg "REVISION=$revision")
for label in "vendor=${PROJECT_MAINTAINER% <*}" "authors=$PROJECT_MAINTAINER" "url=$PROJECT_URL" "source=$PROJECT_URL" "base.name=${base:-debian:12-slim}"; do
  arguments+=(--label "org.opencontainers.image.$label")
done
if [[ -n "$base" ]]; then arguments+=(--build-arg "BASE=$base"); fi
for image in "${images[@]}"; do
  name=sluice-$image:$tag
  "${build[@]}" "${arguments[@]}" -t "$name" -f "$root/deploy/docker/Dockerfile.$image" "$packages"
  if [[ -n "$push" ]]; then
    "$tool" tag "$name" "$push/$name"
    "$tool" push "$push/$name"
  fi
done
