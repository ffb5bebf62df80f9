#include "gpu_client/engine/join/colocation.h"

namespace sluice::engine {

const char* to_string(ColocationMode mode) noexcept {
  switch (mode) {
    case ColocationMode::kAuto: return "auto";
    case ColocationMode::kOff: return "off";
    case ColocationMode::kAlways: return "always";
  }
  return "?";
}

Result<ColocationMode> parse_colocation_mode(const std::string& text) {
  for (const auto mode : {ColocationMode::kAuto, ColocationMode::kOff, ColocationMode::kAlways}) {
    if (text == to_string(mode)) return mode;
  }
  return fail(Errc::kInvalidArgument, "\"" + text + "\": expected auto, off or always");
}

}  // namespace sluice::engine
