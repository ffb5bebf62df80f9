# shellcheck shell=bash disable=SC2034
# Lists of Debian bookworm packages, and functions that install them. quickstart.sh and test.sh source this file.

# Packages to build and run bin/sluice.
BUILD_PACKAGES=(
  g++ cmake ninja-build
  libexpected-dev     # tl::expected
  libc-ares-dev       # DNS of config/discovery, linked statically
  libhwy-dev          # Highway: run-time SIMD dispatch in reducer/kernels
  libboost-dev        # Asio, headers only
  prometheus-cpp-dev  # text format of /metrics
  libspdlog-dev libfmt-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev
  zlib1g-dev
  libsqlite3-dev      # store/coordinator
  libssl-dev pkgconf  # OpenSSL 3, only for libsluice_tls.so
  libibverbs-dev      # headers; the library is loaded at run time
)

# Additional packages of the tests.
TEST_PACKAGES=(libgtest-dev libgmock-dev python3 spin openssl)

# Packages for the benchmarks, the instruction counts, the test with real NCCL (pip), the tests with
# the label python (pip, venv), the wheel, and the coordinator with etcd. These steps are skipped without their packages.
CHECK_PACKAGES=(libbenchmark-dev libisal-dev python3-pip python3-venv
  python3-setuptools python3-wheel valgrind etcd-server)

# Compiler of the sanitizers, format check and clang-tidy. Debian 13 has other versions only, which format and warn differently.
CLANG_PACKAGES=(clang-14 libclang-rt-14-dev lld-14 clang-format-14 clang-tidy-14)

# Libraries that bench/peers compares with Sluice; libraries that are not installed are skipped. Both MPIs can be installed.
PEER_PACKAGES=(openmpi-bin libopenmpi-dev mpich libmpich-dev libgloo-dev)

# Packages for tests with the label rdma: a guest whose kernel has soft-RoCE, and its user space. linux-image-cloud-amd64 has no
# InfiniBand.
RDMA_PACKAGES=(qemu-system-x86 busybox-static cpio kmod xz-utils iproute2 linux-image-amd64 ibverbs-providers perftest)

# Packages for tests with the labels deploy and frameworks.
DEPLOY_PACKAGES=(
  python3-yaml python3-jsonschema
  g++-aarch64-linux-gnu qemu-user-static dnsmasq-base
  zsh fish man-db mandoc          # completion, manual pages
  systemd                         # systemd-analyze
  lintian file mmdebstrap buildah # packages and images in a new base system
  reuse                           # licenses
  prometheus chromium             # rules and scrape configuration; status page
  slurmctld slurmd slurm-client munge iproute2 # a Slurm cluster
  default-jre-headless                         # Spark, for a test with the label frameworks
)

# Additional packages of release.sh.
RELEASE_PACKAGES=(dpkg-dev file python3-pip python3-setuptools python3-wheel)

# Additional packages of bench/report.
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

# install_packages [--optional] PACKAGE...: prints the missing packages and installs them with apt-get. Returns 1 with one line on
# stderr on error. --optional: prints those that this system does not have, and installs the others.
install_packages() {
  local optional=0
  if [[ ${1:-} == --optional ]]; then
    optional=1
    shift
  fi
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "not a Debian system; install the equivalents of these packages: $*" >&2
    return 0
  fi
  local missing=()
  mapfile -t missing < <(missing_packages "$@")
  if ((${#missing[@]} == 0)); then
    echo "packages: all installed"
    return 0
  fi
  local as_root=()
  if ((EUID != 0)); then
    # -n without a terminal, because nobody can type a password.
    as_root=(sudo)
    if [[ ! -t 0 ]]; then as_root=(sudo -n); fi
    if ! command -v sudo >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
      echo "packages are missing and user $(id -un 2>/dev/null || id -u) cannot install them; run as root: apt-get install ${missing[*]}" >&2
      return 1
    fi
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=400 -o Acquire::Retries=3)
  local package updated=1 known=()
  "${apt[@]}" update >/dev/null || updated=0
  if ((optional && updated)); then
    for package in "${missing[@]}"; do
      if [[ $(LC_ALL=C apt-cache policy "$package") == *"Candidate: "[0-9]* ]]; then known+=("$package"); else echo "packages: this system has no $package"; fi
    done
    if ((${#known[@]} == 0)); then return 1; fi
    missing=("${known[@]}")
  fi
  echo "packages: installing ${missing[*]}"
  # Downloads all packages before it installs the first one, so that a network failure leaves no partial installation.
  if ((!updated)) || ! "${apt[@]}" install -y --no-install-recommends --download-only "${missing[@]}" >/dev/null; then
    echo "apt-get cannot download packages; check the network connection: ${missing[*]}" >&2
    return 1
  fi
  if ! "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null; then
    echo "apt-get cannot install packages: ${missing[*]}" >&2
    return 1
  fi
}
