#include "bench/gpu/bench_device.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "bench/e2e/process/exit_codes.h"
#include "core/arena.h"
#include "gpu_client/host/host_device.h"

#ifdef SLUICE_HAVE_CUDA
#include "gpu_client/cuda/cuda_device.h"
#include "gpu_client/cuda/device_memory.h"
#endif

namespace sluice::bench {
namespace {

using pipeline::BufferRange;
using pipeline::Cast;

// Returns the data of `memory`, an Arena or a cuda::DeviceMemory, as their owner.
template <typename Memory>
std::shared_ptr<std::byte> shared_data(Memory memory) {
  auto owner = std::make_shared<Memory>(std::move(memory));
  return {owner, owner->data()};
}

// The only uses of CUDA in this program.
#ifdef SLUICE_HAVE_CUDA
Result<int> count_gpus() {
  return cuda::count_gpus();
}
Result<std::unique_ptr<pipeline::Device>> open_gpu(int ordinal) {
  return cuda::open_cuda_device(ordinal);
}
Result<std::shared_ptr<std::byte>> allocate_on_gpu(int ordinal, uint64_t bytes) {
  return cuda::DeviceMemory::allocate(ordinal, bytes).map(shared_data<cuda::DeviceMemory>);
}
#else
Result<int> count_gpus() {
  return fail(Errc::kUnsupported, "this program was built without CUDA");
}
Result<std::unique_ptr<pipeline::Device>> open_gpu(int /*ordinal*/) {
  return tl::unexpected(count_gpus().error());
}
Result<std::shared_ptr<std::byte>> allocate_on_gpu(int /*ordinal*/, uint64_t /*bytes*/) {
  return tl::unexpected(count_gpus().error());
}
#endif

}  // namespace

DeviceChoice parse_device(const std::string& text) {
  if (text == "host") return {.kind = SLUICE_DEVICE_HOST};
  if (text == "cuda") return {.kind = SLUICE_DEVICE_CUDA};
  if (text.starts_with("cuda:")) {
    DeviceChoice choice{.kind = SLUICE_DEVICE_CUDA};
    const char* const end = text.data() + text.size();
    const auto [read, error] = std::from_chars(text.data() + 5, end, choice.ordinal);
    if (error == std::errc{} && read == end && choice.ordinal >= 0) return choice;
  }
  throw Failure(kExitUsage, fmt::format("device \"{}\": expected host, cuda or cuda:N", text));
}

BenchDevice::BenchDevice(sluice_device_kind kind, int ordinal, std::unique_ptr<pipeline::Device> device)
    : kind_(kind), ordinal_(ordinal), device_(std::move(device)) {
  drained_ = value_or_fail(device_->make_event(), kExitFailure);
}

BenchDevice BenchDevice::open(const DeviceChoice& choice, uint32_t rank) {
  std::string host_reason;
  if (choice.kind != SLUICE_DEVICE_HOST) {
    const auto gpus = count_gpus();
    if (gpus) {
      const int ordinal = choice.ordinal >= 0 ? choice.ordinal : static_cast<int>(rank) % *gpus;
      return {SLUICE_DEVICE_CUDA, ordinal, value_or_fail(open_gpu(ordinal), kExitUnavailable)};
    }
    if (choice.kind) throw Failure(kExitUnavailable, "no usable GPU: " + gpus.error().text);
    host_reason = gpus.error().text;
  }
  BenchDevice opened(SLUICE_DEVICE_HOST, 0, value_or_fail(host::open_host_device(), kExitFailure));
  opened.host_reason_ = std::move(host_reason);
  return opened;
}

const char* BenchDevice::name() const noexcept {
  return kind_ == SLUICE_DEVICE_CUDA ? "cuda" : "host";
}

std::shared_ptr<std::byte> BenchDevice::allocate(uint64_t bytes) {
  if (kind_ == SLUICE_DEVICE_CUDA) return value_or_fail(allocate_on_gpu(ordinal_, bytes), kExitFailure);
  return shared_data(value_or_fail(Arena::map(bytes), kExitFailure));
}

std::unique_ptr<pipeline::PinnedMemory> BenchDevice::pin(uint64_t bytes) {
  return value_or_fail(device_->allocate_pinned(bytes), kExitFailure);
}

void BenchDevice::read(const std::byte* from, std::byte* pinned, uint64_t bytes) {
  const BufferRange whole{.send = from, .recv = nullptr, .count = bytes};
  check(device_->gather(device_->copy_out_stream(), {&whole, 1}, pinned, Cast{.element_bytes = 1}));
  drain(device_->copy_out_stream());
}

void BenchDevice::write(const std::byte* pinned, std::byte* to, uint64_t bytes) {
  const BufferRange whole{.send = nullptr, .recv = to, .count = bytes};
  check(device_->scatter(device_->copy_in_stream(), pinned, {&whole, 1}, Cast{.element_bytes = 1}));
  drain(device_->copy_in_stream());
}

void BenchDevice::drain(pipeline::Device::Stream stream) {
  check(device_->record(*drained_, stream));
  check(device_->synchronize(*drained_));
}

void BenchDevice::check(Status status) {
  if (!status.ok()) throw Failure(kExitFailure, device_->last_error());
}

}  // namespace sluice::bench
