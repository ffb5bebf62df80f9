# shellcheck shell=bash disable=SC2034
# Debian bookworm packages, and how they get here. Sourced by quickstart.sh and test.sh; docs name the same lists.

# What it takes to build and run bin/sluice.
BUILD_PACKAGES=(
  g++ cmake ninja-build
  libexpected-dev     # tl::expected
  libhwy-dev          # Highway: run-time SIMD dispatch in reducer/kernels
  libboost-dev        # Asio, headers only
  prometheus-cpp-dev  # its text format, for /metrics
  libspdlog-dev libfmt-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev
  zlib1g-dev
  libssl-dev          # OpenSSL 3, for libsluice_tls.so alone
  libibverbs-dev      # headers; the library is loaded where there is a device
)

# What the tests take beside that.
TEST_PACKAGES=(libgtest-dev libgmock-dev python3 spin openssl pkgconf)

# What format, clang-tidy, the benchmarks, the counts of instructions, the test with real NCCL (pip), those of label python (pip, venv) and the wheel
# take; without them those are skipped.
CHECK_PACKAGES=(clang-14 libclang-rt-14-dev lld-14 clang-format-14 clang-tidy-14 libbenchmark-dev libisal-dev python3-pip python3-venv
  python3-setuptools python3-wheel valgrind)

# Other libraries that bench/peers measures beside ours; those that are missing are left out. The two MPIs live beside each other.
PEER_PACKAGES=(openmpi-bin libopenmpi-dev mpich libmpich-dev libgloo-dev)

# What tests of label rdma take: a guest with a kernel that has soft-RoCE, and the user's side of it. Not linux-image-cloud-amd64, which has no InfiniBand.
RDMA_PACKAGES=(qemu-system-x86 busybox-static cpio kmod xz-utils iproute2 linux-image-amd64 ibverbs-providers perftest)

# What tests of label deploy take.
DEPLOY_PACKAGES=(
  python3-yaml python3-jsonschema
  g++-aarch64-linux-gnu qemu-user-static dnsmasq-base
  zsh fish man-db mandoc          # completion, manual pages
  systemd                         # systemd-analyze
  lintian file mmdebstrap buildah # packages and images, on a system made for them
  reuse                           # licences
  prometheus chromium             # rules and the scrape; the page
  slurmctld slurmd slurm-client munge iproute2 # a cluster
)

# What bench/report takes beside the peers.
REPORT_PACKAGES=(python3 python3-matplotlib iproute2)

# missing_packages PACKAGE...: prints the packages that are not installed.
missing_packages() {
  local package
  for package in "$@"; do
    if [[ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" != installed ]]; then
      printf '%s\n' "$package"
    fi
  done
}

# install_packages PACKAGE...: installs the missing packages with apt-get and prints their names before. Returns 1 with one line on stderr where it cannot.
install_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "not a Debian system: expecting what these packages hold to be there: $*" >&2
    return 0
  fi
  local missing=()
  mapfile -t missing < <(missing_packages "$@")
  if ((${#missing[@]} == 0)); then
    echo "packages: all there"
    return 0
  fi
  local as_root=()
  if ((EUID != 0)); then
    # -n where nobody can type a password.
    as_root=(sudo)
    if [[ ! -t 0 ]]; then as_root=(sudo -n); fi
    if ! command -v sudo >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
      echo "packages are missing and user $(id -un 2>/dev/null || id -u) cannot install them; as root: apt-get install ${missing[*]}" >&2
      return 1
    fi
  fi
  echo "packages: installing ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=400 -o Acquire::Retries=3)
  # Everything is downloaded before anything is installed: a network that fails leaves nothing half-installed.
  if ! "${apt[@]}" update >/dev/null || ! "${apt[@]}" install -y --no-install-recommends --download-only "${missing[@]}" >/dev/null; then
    echo "apt-get could not download (is the network reachable?): ${missing[*]}" >&2
    return 1
  fi
  if ! "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null; then
    echo "apt-get could not install: ${missing[*]}" >&2
    return 1
  fi
}
