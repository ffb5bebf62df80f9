#include "demo/outer_steps/island.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace sluice::demo {
namespace {

// Adds `n` to the first 32 bits of the id. The join reports an id that is malformed.
std::string derived_session(const std::string& id, uint32_t n) {
  constexpr size_t kDigits = 8;
  uint32_t first = 0;
  const auto [end, error] = std::from_chars(id.data(), id.data() + std::min(kDigits, id.size()), first, 16);
  if (error != std::errc{} || end != id.data() + kDigits) return id;
  return fmt::format("{:08x}{}", first + n, id.substr(kDigits));
}

}  // namespace

Island island_of(const bench::WorkerOptions& worker, uint32_t islands) {
  const uint32_t workers = worker.ranks / islands;
  Island island{.index = worker.rank / workers, .session = worker};
  island.session.session = derived_session(worker.session, island.index + 1);
  island.session.rank = worker.rank % workers;
  island.session.ranks = workers;
  return island;
}

Dataset images_of(const Dataset& all, uint32_t island, uint32_t islands) {
  Dataset own;
  const size_t count = all.size() / islands;
  for (size_t i = 0; i < count; ++i) {
    const size_t from = i * islands + island;
    const std::span<const float> image = all.image(from);
    own.pixels.insert(own.pixels.end(), image.begin(), image.end());
    own.labels.push_back(all.labels[from]);
  }
  return own;
}

}  // namespace sluice::demo
