#include "store/server/limits/version_reader.h"

#include <algorithm>

namespace sluice::store {

bool VersionReader::is_late(Nanos now) const noexcept {
  const Nanos time = now - begun_.load() - limits_.grace;
  if (time <= 0 || is_excused_.load()) return false;
  const double needed =
      static_cast<double>(limits_.rate) * static_cast<double>(time) / static_cast<double>(kSecond);
  return static_cast<double>(sent_.load(std::memory_order_relaxed)) < needed;
}

std::string VersionReader::reason(Nanos now) const {
  const double seconds =
      static_cast<double>(std::max<Nanos>(now - begun_.load(), 1)) / static_cast<double>(kSecond);
  const auto rate = static_cast<uint64_t>(static_cast<double>(sent_.load()) / seconds);
  return "a step needs the place of version " + std::to_string(version_) + ", which was read at " +
         std::to_string(rate) + " bytes/s; read at least " + std::to_string(limits_.rate) +
         " bytes/s, or create the model with more versions";
}

}  // namespace sluice::store
