#include <sys/mman.h>

#include <cstring>

#include "tests/support/cuda_stand_in/driver_state.h"

using namespace sluice::cuda_stand_in;  // NOLINT(google-build-using-namespace): the driver's functions have
                                        // no namespace

namespace {

CUresult allocate(size_t bytes, Kind kind, CUdeviceptr* at) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  // Nothing may rely on zeroed memory, which drivers do not guarantee.
  std::memset(mapped, 0xa5, bytes < 4096 ? bytes : 4096);
  *at = reinterpret_cast<CUdeviceptr>(mapped);
  const Lock lock(driver_state().mutex);
  driver_state().memory[*at] = {.bytes = bytes, .kind = kind, .context = current()};
  return CUDA_SUCCESS;
}

// Waits for all work of the context's streams before it frees memory, as drivers do.
CUresult free(CUdeviceptr at, Kind kind) {
  DriverState& m = driver_state();
  decltype(m.streams) streams;  // destroyed after the lock is released
  Lock lock(m.mutex);
  const auto found = m.memory.find(at);
  if (found == m.memory.end()) return CUDA_ERROR_INVALID_VALUE;
  const Allocation allocation = found->second;
  const bool matches =
      allocation.kind == kind || (kind == Kind::kDevice && allocation.kind == Kind::kManaged);
  if (!matches) return CUDA_ERROR_INVALID_VALUE;
  streams = m.streams;
  for (const auto& [key, stream] : streams) {
    if (stream->context == allocation.context) (void)synchronize(lock, *stream);
  }
  m.memory.erase(at);
  if (kind != Kind::kRegistered) ::munmap(reinterpret_cast<void*>(at), allocation.bytes);
  return CUDA_SUCCESS;
}

CUresult copy(void* to, const void* from, size_t bytes, CUstream stream) {
  return enqueue(stream, [=] {
    std::memcpy(to, from, bytes);
    return CUDA_SUCCESS;
  });
}

bool is_host(CUdeviceptr at) {
  const Lock lock(driver_state().mutex);
  CUdeviceptr begin = 0;
  const Allocation* const found = driver_state().find(at, begin);
  return found == nullptr || found->kind == Kind::kPinned || found->kind == Kind::kRegistered;
}

void describe_range(CUpointer_attribute attribute, void* value, CUdeviceptr begin, const Allocation& a) {
  const bool host = a.kind == Kind::kPinned || a.kind == Kind::kRegistered;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *static_cast<CUcontext*>(value) = as<CUctx_st>(a.context); break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned int*>(value) = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *static_cast<bool*>(value) = a.kind == Kind::kManaged; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int*>(value) = a.context->ordinal; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *static_cast<CUdeviceptr*>(value) = begin; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *static_cast<size_t*>(value) = a.bytes; break;
    default: break;
  }
}

}  // namespace

CUresult CUDAAPI cuMemAlloc(CUdeviceptr* at, size_t bytes) {
  const CUresult r = enter_unsafe("cuMemAlloc");
  return r != CUDA_SUCCESS ? r : allocate(bytes, Kind::kDevice, at);
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr* at, size_t bytes, unsigned int /*flags*/) {
  const CUresult r = enter_unsafe("cuMemAllocManaged");
  return r != CUDA_SUCCESS ? r : allocate(bytes, Kind::kManaged, at);
}

CUresult CUDAAPI cuMemFree(CUdeviceptr at) {
  const CUresult r = enter_unsafe("cuMemFree");
  // Frees the memory of a broken context too, so that tests can detect leaks.
  (void)free(at, Kind::kDevice);
  return r;
}

CUresult CUDAAPI cuMemHostAlloc(void** at, size_t bytes, unsigned int /*flags*/) {
  const CUresult r = enter_unsafe("cuMemHostAlloc");
  if (r != CUDA_SUCCESS) return r;
  CUdeviceptr allocated = 0;
  const CUresult made = allocate(bytes, Kind::kPinned, &allocated);
  *at = reinterpret_cast<void*>(allocated);
  return made;
}

CUresult CUDAAPI cuMemFreeHost(void* at) {
  const CUresult r = enter_unsafe("cuMemFreeHost");
  (void)free(reinterpret_cast<CUdeviceptr>(at), Kind::kPinned);
  return r;
}

CUresult CUDAAPI cuMemHostRegister(void* at, size_t bytes, unsigned int /*flags*/) {
  const CUresult r = enter_unsafe("cuMemHostRegister");
  if (r != CUDA_SUCCESS) return r;
  const Lock lock(driver_state().mutex);
  driver_state().memory[reinterpret_cast<CUdeviceptr>(at)] = {
      .bytes = bytes, .kind = Kind::kRegistered, .context = current()};
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostUnregister(void* at) {
  const CUresult r = enter_unsafe("cuMemHostUnregister");
  (void)free(reinterpret_cast<CUdeviceptr>(at), Kind::kRegistered);
  return r;
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream) {
  if (const CUresult r = enter("cuMemsetD8Async"); r != CUDA_SUCCESS) return r;
  return enqueue(stream, [=] {
    std::memset(reinterpret_cast<void*>(at), value, bytes);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  if (const CUresult r = enter("cuMemcpyDtoHAsync"); r != CUDA_SUCCESS) return r;
  if (is_host(from)) return CUDA_ERROR_INVALID_VALUE;
  return copy(to, reinterpret_cast<const void*>(from), bytes, stream);
}

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  if (const CUresult r = enter("cuMemcpyHtoDAsync"); r != CUDA_SUCCESS) return r;
  if (is_host(to)) return CUDA_ERROR_INVALID_VALUE;
  return copy(reinterpret_cast<void*>(to), from, bytes, stream);
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** values,
                                        CUdeviceptr at) {
  if (const CUresult r = enter("cuPointerGetAttributes"); r != CUDA_SUCCESS) return r;
  const Lock lock(driver_state().mutex);
  CUdeviceptr begin = 0;
  const Allocation* const found = driver_state().find(at, begin);
  for (unsigned int i = 0; i < count; ++i) {
    if (found != nullptr)
      describe_range(attributes[i], values[i], begin, *found);
    else if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
      *static_cast<unsigned int*>(values[i]) = 0;
  }
  return CUDA_SUCCESS;
}
