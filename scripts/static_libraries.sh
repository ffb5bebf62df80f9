# shellcheck shell=bash
# Builds the libraries that Debian has only as shared libraries as static ones, from Debian's source packages. release.sh sources this
# file.

readonly ARCHIVES=build/archives
# Archive, package of the headers, folder of its sources, the sources, definitions.
readonly STATIC_LIBRARIES=(
  "libfmt.a libfmt-dev src format.cc,os.cc"
  "libspdlog.a libspdlog-dev src *.cpp -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL"
  "libprometheus-cpp-core.a prometheus-cpp-dev core/src *.cc"
)

# static_libraries: makes build/archives. The archives have the versions of the installed headers, and are made again after an update
# of those. Returns 1, with the reason in one line on stderr, if this is not possible.
static_libraries() {
  local versions work apt sources source
  if ! versions=$(dpkg-query -W -f '${source:Package}=${source:Version}\n' libfmt-dev libspdlog-dev prometheus-cpp-dev 2>/dev/null); then
    echo "no static libraries: the packages libfmt-dev, libspdlog-dev and prometheus-cpp-dev are not installed" >&2
    return 1
  fi
  if [[ "$(cat "$ARCHIVES/versions" 2>/dev/null)" == "$versions" ]]; then return 0; fi
  rm -rf "$ARCHIVES" # CMake would link them with headers of other versions
  if ! command -v dpkg-source >/dev/null; then
    echo "no static libraries: dpkg-source (package dpkg-dev) is not installed" >&2
    return 1
  fi
  mkdir -p "$ARCHIVES"
  work=$(cd "$ARCHIVES" && pwd)/work
  mkdir -p "$work"/{lists/partial,cache/archives/partial,sources}
  # The package sources of this machine, but their source packages. The lists of the machine stay as they are.
  local origin
  for origin in Debian Ubuntu; do
    # shellcheck disable=SC2016
    apt-get indextargets --format 'deb-src $(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' "Origin: $origin" | sort -u
  done >"$work/sources.list"
  apt=(apt-get -q -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$work/lists"
    -o "Dir::Cache=$work/cache" -o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Sandbox::User=root)
  if ! "${apt[@]}" update >"$work/log" 2>&1 ||
    ! (cd "$work/sources" && mapfile -t sources <<<"$versions" && "${apt[@]}" source "${sources[@]}" >>"$work/log" 2>&1); then
    echo "no static libraries: apt-get cannot download the source packages ${versions//$'\n'/ }: $(grep -E '^E:' "$work/log" | head -n 1)" >&2
    return 1
  fi
  local library archive package folder files definitions
  for library in "${STATIC_LIBRARIES[@]}"; do
    read -r archive package folder files definitions <<<"$library"
    source=$(dpkg-query -W -f '${source:Package}' "$package")
    # The headers are the installed ones. Paths of this machine must not get into the objects.
    # shellcheck disable=SC2086
    if ! (cd "$work/sources/$source"-*/"$folder" && printf '%s\n' ${files//,/ } |
      xargs -P "$(build_jobs)" -I{} g++ -std=c++17 -O2 -DNDEBUG -fPIC -ffile-prefix-map="$PWD=." $definitions -c {} -o "$work/$package-{}.o" &&
      ar crD "$work/../$archive" "$work/$package"-*.o) >>"$work/log" 2>&1; then
      tail -n 5 "$work/log" >&2
      echo "no static libraries: cannot compile $source; see the compiler output above" >&2
      return 1
    fi
  done
  rm -rf "$work"
  echo "$versions" >"$ARCHIVES/versions"
}
