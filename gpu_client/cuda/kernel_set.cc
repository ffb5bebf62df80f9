#include "gpu_client/cuda/kernel_set.h"

#include <algorithm>
#include <utility>

#include "gpu_client/cuda/kernel_image.h"

namespace sluice::cuda {
namespace {

using pipeline::Cast;
using pipeline::CastError;
using pipeline::kScaleBlock;
using pipeline::Segment;
using pipeline::WireCast;
using Side = KernelSet::Side;

// A guess that no GPU has been asked about, to be measured there: what PCIe holds on its way is under 100 KB
// (50 GB/s by 2 us), and 64 blocks of 256 threads that have 8 bytes each under way are 128 KiB. More would
// take multiprocessors from the training and move nothing faster.
constexpr uint64_t kBlocks = 64;

// Another such guess: a copy costs the host some two microseconds, as a kernel does, but moves with full
// width and takes no multiprocessor.
constexpr size_t kCopies = 8;

uint8_t* bytes_at(const std::byte* at) {
  return reinterpret_cast<uint8_t*>(const_cast<std::byte*>(at));
}

uint8_t* memory_of(const Segment& segment, Side side) {
  return bytes_at(side == Side::kSend ? segment.send : segment.recv);
}

CUdeviceptr device_pointer(const void* at) {
  return reinterpret_cast<CUdeviceptr>(at);
}

// give(launch) for as many launches as the segments take; `unit` is what counts as one in them.
template <typename Give>
CUresult each_launch(std::span<const Segment> segments, Side side, uint64_t unit, Launch& launch,
                     Give&& give) {
  uint64_t first = 0;
  launch.count = 0;
  launch.total = 0;
  for (const Segment& segment : segments) {
    if (segment.count == 0) continue;
    const uint64_t count = segment.count * unit;
    if (launch.count == kParts) {
      if (const CUresult r = give(launch); r != CUDA_SUCCESS) return r;
      launch.count = 0;
      launch.total = 0;
    }
    launch.parts[launch.count++] = {memory_of(segment, side), first, count};
    launch.total += count;
    first += count;
  }
  return launch.count == 0 ? CUDA_SUCCESS : give(launch);
}

uint64_t blocks_for(uint64_t total, uint64_t tile) {
  return std::min(kBlocks, (total + tile - 1) / tile);
}

}  // namespace

Result<std::unique_ptr<KernelSet>> KernelSet::load(std::shared_ptr<Context> context, CUstream warm) {
  std::unique_ptr<KernelSet> set(new KernelSet(std::move(context)));
  const CUresult r = set->context_->within([&](const Driver&) { return set->prepare(warm); });
  if (r == CUDA_SUCCESS) return set;
  const Driver& d = set->context_->driver();
  int version = 0;
  (void)d.driver_get_version(&version);
  const auto text = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
  const std::string why = "GPU " + std::to_string(set->context_->ordinal()) +
                          " does not take the kernels, of CUDA " + text(kKernelCompiler) +
                          ", with a driver of CUDA " + text(version) + ": " + describe(d, r);
  const bool unfit = r == CUDA_ERROR_NO_BINARY_FOR_GPU || r == CUDA_ERROR_INVALID_IMAGE ||
                     r == CUDA_ERROR_INVALID_PTX || r == CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  return fail(unfit ? Errc::kUnsupported : Errc::kSystem, why);
}

CUresult KernelSet::prepare(CUstream warm) {
  const Driver& d = context_->driver();
  CUresult r = d.module_load_data(&module_, kKernelImage);
  const std::pair<const char*, CUfunction*> kernels[] = {{"gather_cast", &gather_cast_},
                                                         {"scatter_cast", &scatter_cast_},
                                                         {"gather_bytes", &gather_bytes_},
                                                         {"scatter_bytes", &scatter_bytes_},
                                                         {"find_exponents", &find_exponents_}};
  for (const auto& [name, kernel] : kernels) {
    if (r == CUDA_SUCCESS) r = d.module_get_function(kernel, module_, name);
  }
  if (r == CUDA_SUCCESS) r = d.mem_alloc(&error_, sizeof(CastError));
  if (r == CUDA_SUCCESS) r = d.memset_d8_async(error_, 0, sizeof(CastError), warm);
  void* at = nullptr;
  if (r == CUDA_SUCCESS) r = d.mem_host_alloc(&at, sizeof(CastError), CU_MEMHOSTALLOC_PORTABLE);
  read_ = static_cast<CastError*>(at);
  // The first launch of a kernel may bring its code into the GPU, which waits for all streams: for ever, once
  // one of them is held. So each is launched here, with nothing to do.
  Launch nothing{};
  nothing.count = 1;
  for (const auto& [name, kernel] : kernels) {
    if (r == CUDA_SUCCESS && *kernel != find_exponents_) r = launch(*kernel, 1, warm, nothing);
  }
  // This one writes what it has found for the block that it is.
  nothing.found = static_cast<uint8_t*>(at);
  if (r == CUDA_SUCCESS) r = launch(find_exponents_, 1, warm, nothing);
  return r == CUDA_SUCCESS ? d.stream_synchronize(warm) : r;
}

KernelSet::~KernelSet() {
  (void)context_->within([this](const Driver& d) {
    if (read_ != nullptr) (void)d.mem_free_host(read_);
    if (error_ != 0) (void)d.mem_free(error_);
    return module_ != nullptr ? d.module_unload(module_) : CUDA_SUCCESS;
  });
}

CUresult KernelSet::launch(CUfunction kernel, uint64_t blocks, CUstream stream, Launch& parameters) const {
  void* values[] = {&parameters};
  return context_->driver().launch_kernel(kernel, static_cast<unsigned int>(blocks), 1, 1, kThreads, 1, 1, 0,
                                          stream, values, nullptr);
}

CUresult KernelSet::gather(CUstream stream, std::span<const Segment> segments, std::byte* staging,
                           const Cast& cast) {
  return move(stream, segments, Side::kSend, staging, cast);
}

CUresult KernelSet::scatter(CUstream stream, const std::byte* staging, std::span<const Segment> segments,
                            const Cast& cast) {
  return move(stream, segments, Side::kRecv, const_cast<std::byte*>(staging), cast);
}

CUresult KernelSet::move(CUstream stream, std::span<const Segment> segments, Side side, std::byte* staging,
                         const Cast& cast) {
  const bool out = side == Side::kSend;
  if (cast.wire == WireCast::kNone && segments.size() <= kCopies)
    return copy(stream, segments, side, staging, cast.element_bytes);
  Launch l{};
  l.staging = bytes_at(staging);
  if (cast.wire == WireCast::kNone) {
    return each_launch(segments, side, cast.element_bytes, l, [&](Launch& full) {
      return launch(out ? gather_bytes_ : scatter_bytes_, blocks_for(full.total, kTileBytes), stream, full);
    });
  }
  l.exponents = cast.exponents;
  l.round_first = cast.first;
  l.top = cast.top;
  l.wire = cast.wire;
  l.measure = out && cast.measure;
  l.error = reinterpret_cast<CastError*>(error_);
  return each_launch(segments, side, 1, l, [&](Launch& full) {
    return launch(out ? gather_cast_ : scatter_cast_, blocks_for(full.total, kTile), stream, full);
  });
}

CUresult KernelSet::copy(CUstream stream, std::span<const Segment> segments, Side side, std::byte* staging,
                         uint32_t element_bytes) {
  const Driver& d = context_->driver();
  for (const Segment& segment : segments) {
    const uint64_t bytes = segment.count * element_bytes;
    if (bytes == 0) continue;
    const CUresult r = side == Side::kSend
                           ? d.memcpy_dtoh_async(staging, device_pointer(segment.send), bytes, stream)
                           : d.memcpy_htod_async(device_pointer(segment.recv), staging, bytes, stream);
    if (r != CUDA_SUCCESS) return r;
    staging += bytes;
  }
  return CUDA_SUCCESS;
}

CUresult KernelSet::find_exponents(CUstream stream, std::span<const Segment> segments, uint8_t* exponents) {
  Launch l{};
  l.found = exponents;
  return each_launch(segments, Side::kSend, 1, l, [&](Launch& full) {
    const uint64_t first = full.parts[0].first / kScaleBlock;
    const uint64_t last = (full.parts[0].first + full.total - 1) / kScaleBlock;
    return launch(find_exponents_, last - first + 1, stream, full);
  });
}

CUresult KernelSet::read_error(CUstream stream, CastError& error) {
  const Driver& d = context_->driver();
  CUresult r = d.memcpy_dtoh_async(read_, error_, sizeof(CastError), stream);
  if (r == CUDA_SUCCESS) r = d.stream_synchronize(stream);
  if (r == CUDA_SUCCESS) error = *read_;
  return r;
}

}  // namespace sluice::cuda
