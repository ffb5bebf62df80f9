#include "transport/memory/pairing.h"

#include <sys/random.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace sluice::transport::memory {
namespace {

struct OfferedEnds {
  std::mutex mutex;
  std::map<PipeKey, std::unique_ptr<PipeEnd>> by_key;
};

OfferedEnds& offered_ends() {
  // Never destroyed: a session may outlive the static objects of a process that exits.
  static auto* const ends = new OfferedEnds;
  return *ends;
}

}  // namespace

Result<OfferedPipe> OfferedPipe::make() {
  PipeKey key{};
  if (::getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size()))
    return fail(Errc::kSystem, "cannot get random bytes from the system");
  auto [near_end, far_end] = make_pipe_ends();
  OfferedEnds& ends = offered_ends();
  const std::lock_guard lock(ends.mutex);
  if (ends.by_key.size() >= kMaxOfferedPipes)
    return fail(Errc::kExhausted, "too many lane connections are being attached in this process");
  ends.by_key.emplace(key, std::move(far_end));
  return OfferedPipe(key, std::move(near_end));
}

OfferedPipe::OfferedPipe(OfferedPipe&& other) noexcept
    : key_(other.key_), near_(std::move(other.near_)), is_offered_(std::exchange(other.is_offered_, false)) {}

OfferedPipe::~OfferedPipe() {
  if (is_offered_) static_cast<void>(take_offered_pipe(key_));
}

std::unique_ptr<PipeEnd> take_offered_pipe(std::span<const uint8_t> key) noexcept {
  PipeKey wanted{};
  if (key.size() != wanted.size()) return nullptr;
  std::ranges::copy(key, wanted.begin());
  OfferedEnds& ends = offered_ends();
  const std::lock_guard lock(ends.mutex);
  const auto found = ends.by_key.find(wanted);
  if (found == ends.by_key.end()) return nullptr;
  auto end = std::move(found->second);
  ends.by_key.erase(found);
  return end;
}

}  // namespace sluice::transport::memory
