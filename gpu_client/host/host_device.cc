#include "gpu_client/host/host_device.h"

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "gpu_client/host/cast_copy.h"
#include "gpu_client/host/host_stream.h"

namespace sluice::host {
namespace {

using pipeline::Cast;
using pipeline::CastError;
using pipeline::Event;
using pipeline::Segment;

class HostPinned final : public pipeline::Pinned {
 public:
  explicit HostPinned(Arena arena) : arena_(std::move(arena)) { bytes_ = {arena_.data(), arena_.size()}; }

 private:
  Arena arena_;
};

// The place in a stream that an event stood for when it was recorded.
struct Mark {
  std::atomic<bool> over{false};
  void reach() noexcept {
    over.store(true, std::memory_order_release);
    over.notify_all();
  }
  void await() const noexcept { over.wait(false, std::memory_order_acquire); }
};

class HostEvent final : public Event {
 public:
  [[nodiscard]] std::shared_ptr<Mark> mark() {
    const std::lock_guard lock(mutex_);
    return mark_;
  }
  void stand_for(std::shared_ptr<Mark> mark) {
    const std::lock_guard lock(mutex_);
    mark_ = std::move(mark);
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Mark> mark_;  // none: never recorded, hence over
};

void wait_until(uint32_t* word, uint32_t value) noexcept {
  const std::atomic_ref<uint32_t> reached(*word);
  for (uint32_t now = reached.load(std::memory_order_acquire); static_cast<int32_t>(now - value) < 0;
       now = reached.load(std::memory_order_acquire))
    reached.wait(now, std::memory_order_acquire);
}

class HostDevice final : public pipeline::Device {
 public:
  HostDevice(std::unique_ptr<HostStream> out, std::unique_ptr<HostStream> in)
      : out_(std::move(out)), in_(std::move(in)) {}

  Result<std::unique_ptr<pipeline::Pinned>> pin(size_t bytes) override {
    auto arena = Arena::map(bytes);
    if (!arena) return tl::unexpected(arena.error());
    return std::make_unique<HostPinned>(std::move(*arena));
  }
  Result<std::unique_ptr<Event>> make_event() override { return std::make_unique<HostEvent>(); }
  void finish() noexcept override {
    out_->synchronize();
    in_->synchronize();
  }
  Stream out() noexcept override { return out_.get(); }
  Stream in() noexcept override { return in_.get(); }

  Result<void> check_stream(Stream stream) override {
    if (stream == nullptr || HostStream::is_one(stream)) return {};
    return fail(Errc::kInvalidArgument, "stream is none of sluice_host_stream_create that lives");
  }
  bool keeps_order(Stream stream) const noexcept override { return stream != nullptr; }
  Result<Where> look_at(const void* /*at*/, uint64_t /*bytes*/) override { return Where::kHost; }
  bool reaches_host_memory() const noexcept override { return true; }

  Status record(Event& event, Stream stream) override {
    auto mark = std::make_shared<Mark>();
    static_cast<HostEvent&>(event).stand_for(mark);
    give(stream, [mark] { mark->reach(); });
    return {};
  }
  Status wait(Stream stream, Event& event) override {
    if (stream == nullptr) return {};  // the caller's own order has nothing that could wait
    if (auto mark = static_cast<HostEvent&>(event).mark()) give(stream, [mark] { mark->await(); });
    return {};
  }
  Status hold(Stream stream, uint32_t* word, uint32_t value) override {
    give(stream, [word, value] { wait_until(word, value); });
    return {};
  }

  Status gather(Stream stream, std::span<const Segment> segments, std::byte* staging,
                const Cast& cast) override {
    give(stream, [this, parts = copy(segments), staging, cast] {
      CastError error;
      host::gather(parts, staging, cast, error);
      if (!cast.measure) return;
      const std::lock_guard lock(error_mutex_);
      error_.error_squares += error.error_squares;
      error_.value_squares += error.value_squares;
    });
    return {};
  }
  Status scatter(Stream stream, const std::byte* staging, std::span<const Segment> segments,
                 const Cast& cast) override {
    give(stream, [parts = copy(segments), staging, cast] { host::scatter(staging, parts, cast); });
    return {};
  }
  Status find_exponents(Stream stream, std::span<const Segment> segments, uint8_t* exponents) override {
    give(stream, [parts = copy(segments), exponents] { host::find_exponents(parts, exponents); });
    return {};
  }

  Status await(Event& event) override {
    if (const auto mark = static_cast<HostEvent&>(event).mark()) mark->await();
    return {};
  }
  bool is_over(Event& event) override {
    const auto mark = static_cast<HostEvent&>(event).mark();
    return !mark || mark->over.load(std::memory_order_acquire);
  }
  void open(uint32_t* word, uint32_t value) noexcept override {
    const std::atomic_ref<uint32_t> reached(*word);
    reached.store(value, std::memory_order_release);
    reached.notify_all();
  }

  Result<CastError> cast_error() override {
    const std::lock_guard lock(error_mutex_);
    return error_;
  }
  std::string last_words() const override { return "the host device does not fail"; }

 private:
  static std::vector<Segment> copy(std::span<const Segment> segments) {
    return {segments.begin(), segments.end()};
  }
  // What the caller's own order (no stream) is given is done at once.
  template <typename Work>
  static void give(Stream stream, Work&& work) {
    if (stream != nullptr) return static_cast<HostStream*>(stream)->submit(std::forward<Work>(work));
    work();
  }

  std::mutex error_mutex_;
  CastError error_;
  std::unique_ptr<HostStream> out_, in_;  // the last to be made: their work uses all the rest
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
