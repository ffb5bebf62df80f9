#include "gpu_client/host/host_device.h"

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "gpu_client/host/cast_copy.h"
#include "gpu_client/host/futex.h"
#include "gpu_client/host/host_stream.h"

namespace sluice::host {
namespace {

using pipeline::BufferRange;
using pipeline::Cast;
using pipeline::CastError;
using pipeline::Event;

class HostPinnedMemory final : public pipeline::PinnedMemory {
 public:
  explicit HostPinnedMemory(Arena arena) : arena_(std::move(arena)) {
    bytes_ = {arena_.data(), arena_.size()};
  }

 private:
  Arena arena_;
};

// The position in a stream at which an event was recorded.
class Position {
 public:
  [[nodiscard]] bool is_reached() noexcept {
    return std::atomic_ref(state_).load(std::memory_order_acquire) == kReached;
  }
  void set_reached() noexcept {
    if (std::atomic_ref(state_).exchange(kReached, std::memory_order_acq_rel) == kAwaited)
      futex_wake_all(&state_);
  }
  void wait() noexcept {
    uint32_t expected = kAhead;
    std::atomic_ref(state_).compare_exchange_strong(expected, kAwaited, std::memory_order_acq_rel);
    while (!is_reached()) futex_wait(&state_, kAwaited);
  }

 private:
  enum : uint32_t { kAhead, kAwaited, kReached };
  uint32_t state_ = kAhead;
};

class HostEvent final : public Event {
 public:
  [[nodiscard]] std::shared_ptr<Position> position() {
    const std::lock_guard lock(mutex_);
    return position_;
  }
  void set_position(std::shared_ptr<Position> position) {
    const std::lock_guard lock(mutex_);
    position_ = std::move(position);
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Position> position_;  // null: never recorded, which counts as complete
};

void wait_until(uint32_t* word, uint32_t value) noexcept {
  const std::atomic_ref<uint32_t> current(*word);
  for (uint32_t now = current.load(std::memory_order_acquire); static_cast<int32_t>(now - value) < 0;
       now = current.load(std::memory_order_acquire))
    futex_wait(word, now);
}

class HostDevice final : public pipeline::Device {
 public:
  HostDevice(std::unique_ptr<HostStream> out, std::unique_ptr<HostStream> in)
      : out_(std::move(out)), in_(std::move(in)) {}

  Result<std::unique_ptr<pipeline::PinnedMemory>> allocate_pinned(size_t bytes) override {
    auto arena = Arena::map(bytes);
    if (!arena) return tl::unexpected(arena.error());
    return std::make_unique<HostPinnedMemory>(std::move(*arena));
  }
  Result<std::unique_ptr<Event>> make_event() override { return std::make_unique<HostEvent>(); }
  void synchronize_copy_streams() noexcept override {
    out_->synchronize();
    in_->synchronize();
  }
  Stream copy_out_stream() noexcept override { return out_.get(); }
  Stream copy_in_stream() noexcept override { return in_.get(); }

  Result<void> check_stream(Stream stream) override {
    if (stream == nullptr || HostStream::is_live(stream)) return {};
    return fail(Errc::kInvalidArgument, "stream is not a live stream of sluice_host_stream_create");
  }
  bool is_ordered(Stream stream) const noexcept override { return stream != nullptr; }
  Result<MemoryLocation> locate(const void* /*address*/, uint64_t /*bytes*/) override {
    return MemoryLocation::kHost;
  }
  bool can_access_host_memory() const noexcept override { return true; }

  Status record(Event& event, Stream stream) override {
    auto position = std::make_shared<Position>();
    static_cast<HostEvent&>(event).set_position(position);
    enqueue(stream, [position] { position->set_reached(); });
    return {};
  }
  Status wait(Stream stream, Event& event) override {
    if (stream == nullptr) return {};  // no stream: there is no later work that could wait
    if (auto position = static_cast<HostEvent&>(event).position())
      enqueue(stream, [position] { position->wait(); });
    return {};
  }
  Status wait_value(Stream stream, uint32_t* word, uint32_t value) override {
    enqueue(stream, [word, value] { wait_until(word, value); });
    return {};
  }

  Status gather(Stream stream, std::span<const BufferRange> ranges, std::byte* staging,
                const Cast& cast) override {
    enqueue(stream, [this, copied = copy(ranges), staging, cast] {
      CastError error;
      host::gather(copied, staging, cast, error);
      if (!cast.measure) return;
      const std::lock_guard lock(error_mutex_);
      error_.error_squares += error.error_squares;
      error_.value_squares += error.value_squares;
    });
    return {};
  }
  Status scatter(Stream stream, const std::byte* staging, std::span<const BufferRange> ranges,
                 const Cast& cast) override {
    enqueue(stream, [copied = copy(ranges), staging, cast] { host::scatter(staging, copied, cast); });
    return {};
  }
  Status find_exponents(Stream stream, std::span<const BufferRange> ranges, uint8_t* exponents) override {
    enqueue(stream, [copied = copy(ranges), exponents] { host::find_exponents(copied, exponents); });
    return {};
  }

  Status synchronize(Event& event) override {
    if (const auto position = static_cast<HostEvent&>(event).position()) position->wait();
    return {};
  }
  bool is_complete(Event& event) override {
    const auto position = static_cast<HostEvent&>(event).position();
    return !position || position->is_reached();
  }
  void write_value(uint32_t* word, uint32_t value) noexcept override {
    std::atomic_ref(*word).store(value, std::memory_order_release);
    futex_wake_all(word);
  }

  Result<CastError> cast_error() override {
    const std::lock_guard lock(error_mutex_);
    return error_;
  }
  std::string last_error() const override { return "no error: the host device never fails"; }

 private:
  static std::vector<BufferRange> copy(std::span<const BufferRange> ranges) {
    return {ranges.begin(), ranges.end()};
  }
  // Without a stream the work runs at once.
  template <typename Work>
  static void enqueue(Stream stream, Work&& work) {
    if (stream != nullptr) return static_cast<HostStream*>(stream)->submit(std::forward<Work>(work));
    work();
  }

  std::mutex error_mutex_;
  CastError error_;
  std::unique_ptr<HostStream> out_, in_;  // the last members: their work uses the others
};

}  // namespace

Result<std::unique_ptr<pipeline::Device>> open_host_device() {
  auto out = HostStream::start();
  if (!out) return tl::unexpected(out.error());
  auto in = HostStream::start();
  if (!in) return tl::unexpected(in.error());
  return std::make_unique<HostDevice>(std::move(*out), std::move(*in));
}

}  // namespace sluice::host
