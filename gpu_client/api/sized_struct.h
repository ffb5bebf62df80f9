// Options of a caller who was compiled against an older or a newer header than this library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "core/result.h"
#include "gpu_client/include/sluice/sluice.h"

namespace sluice::api {

// `given` over `defaults`, in our own size. `first` is the size of the first version: no caller's is smaller.
// kInvalidArgument: it was never initialised; kUnsupported: it holds what we do not know.
template <typename Struct>
Result<Struct> in_our_size(const Struct& given, Struct defaults, size_t first, const std::string& name) {
  if (given.struct_size < first) {
    return fail(Errc::kInvalidArgument, name + " is not initialised: call " + name + "_init first");
  }
  const auto* const unknown = reinterpret_cast<const unsigned char*>(&given) + sizeof(Struct);
  if (given.struct_size > sizeof(Struct) &&
      std::any_of(unknown, unknown + (given.struct_size - sizeof(Struct)),
                  [](unsigned char b) { return b != 0; })) {
    return fail(Errc::kUnsupported, name + " holds options of a newer version than this library (" +
                                        std::string(sluice_version()) + ")");
  }
  std::memcpy(&defaults, &given, std::min(given.struct_size, sizeof(Struct)));
  return defaults;
}

}  // namespace sluice::api
