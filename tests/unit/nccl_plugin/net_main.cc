// What the plugin reads once, set before anything reads it.
#include <cstdlib>

namespace {

const bool kSet = [] {
  ::setenv("SLUICE_NET", "always", 1);
  ::setenv("SLUICE_IFNAME", "=lo", 1);
  ::setenv("SLUICE_STREAMS", "3", 1);
  return true;
}();

}  // namespace
