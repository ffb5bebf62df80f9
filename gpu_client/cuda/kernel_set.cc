#include "gpu_client/cuda/kernel_set.h"

#include <algorithm>
#include <utility>

#include "gpu_client/cuda/kernel_image.h"

namespace sluice::cuda {
namespace {

using pipeline::BufferRange;
using pipeline::Cast;
using pipeline::CastError;
using pipeline::kScaleBlock;
using pipeline::WireCast;
using Side = KernelSet::Side;

// An estimate, not measured on a GPU. PCIe holds less than 100 KB in flight (50 GB/s times 2 us). 64 blocks
// of 256 threads with 8 bytes each in flight are 128 KiB. More blocks would take multiprocessors from the
// training without more throughput.
constexpr uint64_t kMaxBlocks = 64;

// Also an estimate. Up to this number of ranges a batch is copied with one driver call for each. Such a call
// costs the host some 2 us, as a kernel launch does, but the copy has full bandwidth and needs no
// multiprocessor.
constexpr size_t kMaxCopies = 8;

uint8_t* as_bytes(const std::byte* data) {
  return reinterpret_cast<uint8_t*>(const_cast<std::byte*>(data));
}

uint8_t* memory_of(const BufferRange& range, Side side) {
  return as_bytes(side == Side::kSend ? range.send : range.recv);
}

CUdeviceptr device_pointer(const void* data) {
  return reinterpret_cast<CUdeviceptr>(data);
}

// Splits the ranges into launches of at most kMaxRanges and calls enqueue(launch) for each. `units` is the
// number of units of the kernel (elements or bytes) in an element.
template <typename Enqueue>
CUresult each_launch(std::span<const BufferRange> ranges, Side side, uint64_t units, Launch& launch,
                     Enqueue&& enqueue) {
  uint64_t first = 0;
  launch.count = 0;
  launch.total = 0;
  for (const BufferRange& range : ranges) {
    if (range.count == 0) continue;
    const uint64_t count = range.count * units;
    if (launch.count == kMaxRanges) {
      if (const CUresult r = enqueue(launch); r != CUDA_SUCCESS) return r;
      launch.count = 0;
      launch.total = 0;
    }
    launch.ranges[launch.count++] = {memory_of(range, side), first, count, range.residual};
    launch.total += count;
    first += count;
  }
  return launch.count == 0 ? CUDA_SUCCESS : enqueue(launch);
}

uint64_t blocks_for(uint64_t total, uint64_t tile) {
  return std::min(kMaxBlocks, (total + tile - 1) / tile);
}

}  // namespace

Result<std::unique_ptr<KernelSet>> KernelSet::load(std::shared_ptr<Context> context, CUstream warm_up) {
  std::unique_ptr<KernelSet> set(new KernelSet(std::move(context)));
  const CUresult r = set->context_->invoke([&](const Driver&) { return set->prepare(warm_up); });
  if (r == CUDA_SUCCESS) return set;
  const Driver& d = set->context_->driver();
  int version = 0;
  (void)d.driver_get_version(&version);
  const auto text = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
  const std::string error = "GPU " + std::to_string(set->context_->ordinal()) +
                            ": cannot load the kernels, compiled by CUDA " + text(kKernelCompiler) +
                            ", with a driver for CUDA " + text(version) + ": " + describe(d, r);
  const bool unsupported = r == CUDA_ERROR_NO_BINARY_FOR_GPU || r == CUDA_ERROR_INVALID_IMAGE ||
                           r == CUDA_ERROR_INVALID_PTX || r == CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  return fail(unsupported ? Errc::kUnsupported : Errc::kSystem, error);
}

CUresult KernelSet::prepare(CUstream warm_up) {
  const Driver& d = context_->driver();
  CUresult r = d.module_load_data(&module_, kKernelImage);
  const std::pair<const char*, CUfunction*> kernels[] = {
      {"gather_cast", &gather_cast_},      {"scatter_cast", &scatter_cast_},
      {"gather_bytes", &gather_bytes_},    {"scatter_bytes", &scatter_bytes_},
      {"gather_blocks", &gather_blocks_},  {"scatter_blocks", &scatter_blocks_},
      {"find_exponents", &find_exponents_}};
  for (const auto& [name, kernel] : kernels) {
    if (r == CUDA_SUCCESS) r = d.module_get_function(kernel, module_, name);
  }
  if (r == CUDA_SUCCESS) r = d.mem_alloc(&error_, sizeof(CastError));
  if (r == CUDA_SUCCESS) r = d.memset_d8_async(error_, 0, sizeof(CastError), warm_up);
  void* host_error = nullptr;
  if (r == CUDA_SUCCESS) r = d.mem_host_alloc(&host_error, sizeof(CastError), CU_MEMHOSTALLOC_PORTABLE);
  host_error_ = static_cast<CastError*>(host_error);
  // The first launch of a kernel may load its code into the GPU, which waits for all streams. That would
  // deadlock with a stream in wait_value(). So each kernel is launched here, with nothing to do.
  Launch empty{};
  empty.count = 1;
  for (const auto& [name, kernel] : kernels) {
    if (r == CUDA_SUCCESS && *kernel != find_exponents_) r = launch(*kernel, 1, warm_up, empty);
  }
  // find_exponents writes a byte even then.
  empty.found = static_cast<uint8_t*>(host_error);
  if (r == CUDA_SUCCESS) r = launch(find_exponents_, 1, warm_up, empty);
  return r == CUDA_SUCCESS ? d.stream_synchronize(warm_up) : r;
}

KernelSet::~KernelSet() {
  (void)context_->invoke([this](const Driver& d) {
    if (host_error_ != nullptr) (void)d.mem_free_host(host_error_);
    if (error_ != 0) (void)d.mem_free(error_);
    return module_ != nullptr ? d.module_unload(module_) : CUDA_SUCCESS;
  });
}

CUresult KernelSet::launch(CUfunction kernel, uint64_t blocks, CUstream stream, Launch& parameters) const {
  void* values[] = {&parameters};
  return context_->driver().launch_kernel(kernel, static_cast<unsigned int>(blocks), 1, 1, kThreadsPerBlock,
                                          1, 1, 0, stream, values, nullptr);
}

CUresult KernelSet::transfer(CUstream stream, std::span<const BufferRange> ranges, Side side,
                             std::byte* staging, const Cast& cast) {
  const bool out = side == Side::kSend;
  if (cast.wire == WireCast::kNone && ranges.size() <= kMaxCopies)
    return copy_ranges(stream, ranges, side, staging, cast.element_bytes);
  Launch l{};
  l.staging = as_bytes(staging);
  if (cast.wire == WireCast::kNone) {
    return each_launch(ranges, side, cast.element_bytes, l, [&](Launch& part) {
      return launch(out ? gather_bytes_ : scatter_bytes_, blocks_for(part.total, kTileBytes), stream, part);
    });
  }
  l.exponents = cast.exponents;
  l.batch_first = cast.first;
  l.exponent_limit = cast.exponent_limit;
  l.wire = cast.wire;
  l.measure = out && cast.measure;
  l.stochastic = cast.stochastic;
  l.seed = cast.seed;
  l.error = reinterpret_cast<CastError*>(error_);
  if (is_block(cast.wire)) {
    // One launch, because a batch of a block type has at most kMaxRanges ranges.
    return each_launch(ranges, side, 1, l, [&](Launch& part) {
      const uint64_t blocks = blocks_for(part.total, kTileElements);
      return launch(out ? gather_blocks_ : scatter_blocks_, blocks, stream, part);
    });
  }
  return each_launch(ranges, side, 1, l, [&](Launch& part) {
    return launch(out ? gather_cast_ : scatter_cast_, blocks_for(part.total, kTileElements), stream, part);
  });
}

CUresult KernelSet::copy_ranges(CUstream stream, std::span<const BufferRange> ranges, Side side,
                                std::byte* staging, uint32_t element_bytes) {
  const Driver& d = context_->driver();
  for (const BufferRange& range : ranges) {
    const uint64_t bytes = range.count * element_bytes;
    if (bytes == 0) continue;
    const CUresult r = side == Side::kSend
                           ? d.memcpy_dtoh_async(staging, device_pointer(range.send), bytes, stream)
                           : d.memcpy_htod_async(device_pointer(range.recv), staging, bytes, stream);
    if (r != CUDA_SUCCESS) return r;
    staging += bytes;
  }
  return CUDA_SUCCESS;
}

CUresult KernelSet::find_exponents(CUstream stream, std::span<const BufferRange> ranges, uint8_t* exponents) {
  Launch l{};
  l.found = exponents;
  return each_launch(ranges, Side::kSend, 1, l, [&](Launch& part) {
    const uint64_t first = part.ranges[0].first / kScaleBlock;
    const uint64_t last = (part.ranges[0].first + part.total - 1) / kScaleBlock;
    return launch(find_exponents_, last - first + 1, stream, part);
  });
}

CUresult KernelSet::read_error(CUstream stream, CastError& error) {
  const Driver& d = context_->driver();
  CUresult r = d.memcpy_dtoh_async(host_error_, error_, sizeof(CastError), stream);
  if (r == CUDA_SUCCESS) r = d.stream_synchronize(stream);
  if (r == CUDA_SUCCESS) error = *host_error_;
  return r;
}

}  // namespace sluice::cuda
