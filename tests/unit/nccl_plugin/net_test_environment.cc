// Sets the environment variables of the tests before the plugin reads them, which it does once.
#include <cstdlib>

namespace {

const bool kSet = [] {
  ::setenv("SLUICE_NET", "always", 1);
  ::setenv("SLUICE_IFNAME", "=lo", 1);
  ::setenv("SLUICE_STREAMS", "3", 1);
  return true;
}();

}  // namespace
