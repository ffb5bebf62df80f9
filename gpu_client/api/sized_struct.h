// Reads option structs of callers that were compiled against an older or newer header than this library.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/result.h"
#include "gpu_client/include/sluice/sluice.h"

namespace sluice::api {

// Copies the fields of `caller_struct` that the caller's version has over `defaults`. `first_size` is the
// size of the struct in the first release; no caller has a smaller one. Returns kInvalidArgument if the
// struct was not initialized, kUnsupported if it sets a field that this library does not know.
template <typename Struct>
Result<Struct> read_sized_struct(const Struct& caller_struct, Struct defaults, size_t first_size,
                                 const std::string& name) {
  if (caller_struct.struct_size < first_size) {
    return fail(Errc::kInvalidArgument, name + " is not initialized; call " + name + "_init first");
  }
  const auto* const unknown = reinterpret_cast<const unsigned char*>(&caller_struct) + sizeof(Struct);
  if (caller_struct.struct_size > sizeof(Struct) &&
      std::any_of(unknown, unknown + (caller_struct.struct_size - sizeof(Struct)),
                  [](unsigned char b) { return b != 0; })) {
    return fail(Errc::kUnsupported, name + " sets options of a newer version than this library (" +
                                        std::string(sluice_version()) + ")");
  }
  std::memcpy(&defaults, &caller_struct, std::min(caller_struct.struct_size, sizeof(Struct)));
  return defaults;
}

}  // namespace sluice::api
