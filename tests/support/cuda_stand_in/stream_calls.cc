#include <chrono>
#include <utility>

#include "tests/support/cuda_stand_in/driver_state.h"

using namespace sluice::cuda_stand_in;  // NOLINT(google-build-using-namespace): the driver's functions have
                                        // no namespace

namespace {

// Returns null for an unknown event.
Event* find_event(CUevent handle) {
  const auto found = driver_state().events.find(as<Event>(handle));
  return found == driver_state().events.end() ? nullptr : found->first;
}

CUresult wait_for(const std::shared_ptr<EventPosition>& position, const Context& context) {
  Lock lock(driver_state().mutex);
  driver_state().changed.wait(lock, [&] { return position->reached || context.broken != CUDA_SUCCESS; });
  return context.broken;
}

// Copies the current state of an event. Returns false for an unknown event.
bool copy_event(CUevent event, Event& copy) {
  const Lock lock(driver_state().mutex);
  const Event* const e = find_event(event);
  if (e == nullptr) return false;
  copy = *e;
  return true;
}

}  // namespace

CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned int flags) {
  if (const CUresult r = enter("cuStreamCreate"); r != CUDA_SUCCESS) return r;
  DriverState& m = driver_state();
  const Lock lock(m.mutex);
  auto created = m.make_stream(*current(), flags != CU_STREAM_NON_BLOCKING);
  *stream = as<CUstream_st>(created.get());
  m.streams[created.get()] = std::move(created);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamDestroy(CUstream stream) {
  const CUresult r = enter("cuStreamDestroy");
  DriverState& m = driver_state();
  std::shared_ptr<Stream> removed;
  const Lock lock(m.mutex);
  const auto found = m.streams.find(as<Stream>(stream));
  if (found == m.streams.end()) return CUDA_ERROR_INVALID_HANDLE;
  removed = std::move(found->second);
  m.streams.erase(found);
  return r;  // `removed` destroys the queue after the lock is released
}

CUresult CUDAAPI cuStreamSynchronize(CUstream stream) {
  if (const CUresult r = enter_unsafe("cuStreamSynchronize"); r != CUDA_SUCCESS) return r;
  DriverState& m = driver_state();
  Lock lock(m.mutex);
  const Stream* const s = m.find(stream);
  return s == nullptr ? CUDA_ERROR_INVALID_HANDLE : synchronize(lock, *s);
}

CUresult CUDAAPI cuStreamGetCtx(CUstream stream, CUcontext* context) {
  if (const CUresult r = enter("cuStreamGetCtx"); r != CUDA_SUCCESS) return r;
  const Lock lock(driver_state().mutex);
  const Stream* const s = driver_state().find(stream);
  if (s == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *context = as<CUctx_st>(s->context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  if (const CUresult r = enter("cuStreamIsCapturing"); r != CUDA_SUCCESS) return r;
  DriverState& m = driver_state();
  const Lock lock(m.mutex);
  const Stream* const s = m.find(stream);
  if (s == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (s == s->context->legacy.get()) {
    for (const auto& [key, other] : m.streams) {
      if (other->capturing && other->blocking) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  *status = s->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int /*flags*/) {
  if (const CUresult r = enter("cuStreamWaitEvent"); r != CUDA_SUCCESS) return r;
  Event copy;
  if (!copy_event(event, copy)) return CUDA_ERROR_INVALID_HANDLE;
  if (!copy.position) return CUDA_SUCCESS;  // never recorded
  return enqueue(stream, [copy] { return wait_for(copy.position, *copy.context); });
}

CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned int flags) {
  if (const CUresult r = enter("cuStreamWaitValue32"); r != CUDA_SUCCESS) return r;
  if ((flags & ~static_cast<unsigned int>(CU_STREAM_WAIT_VALUE_FLUSH)) != CU_STREAM_WAIT_VALUE_GEQ)
    return CUDA_ERROR_INVALID_VALUE;
  const Context* const context = current();
  return enqueue(stream, [at, value, context] {
    const auto* const word = reinterpret_cast<const uint32_t*>(at);
    // Polls, as GPUs do.
    while (static_cast<int32_t>(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) < 0) {
      {
        const Lock lock(driver_state().mutex);
        if (context->broken != CUDA_SUCCESS) break;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn function, void* argument) {
  if (const CUresult r = enter("cuLaunchHostFunc"); r != CUDA_SUCCESS) return r;
  return enqueue(stream, [function, argument] {
    function(argument);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned int /*flags*/) {
  if (const CUresult r = enter("cuEventCreate"); r != CUDA_SUCCESS) return r;
  auto created = std::make_unique<Event>();
  created->context = current();
  *event = as<CUevent_st>(created.get());
  const Lock lock(driver_state().mutex);
  driver_state().events[created.get()] = std::move(created);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventDestroy(CUevent event) {
  const CUresult r = enter("cuEventDestroy");
  const Lock lock(driver_state().mutex);
  return driver_state().events.erase(as<Event>(event)) == 1 ? r : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
  if (const CUresult r = enter("cuEventRecord"); r != CUDA_SUCCESS) return r;
  auto position = std::make_shared<EventPosition>();
  {
    const Lock lock(driver_state().mutex);
    Event* const e = find_event(event);
    const Stream* const s = driver_state().find(stream);
    if (e == nullptr || s == nullptr || e->context != s->context) return CUDA_ERROR_INVALID_HANDLE;
    e->position = position;
  }
  return enqueue(stream, [position] {
    const Lock lock(driver_state().mutex);
    position->reached = true;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuEventQuery(CUevent event) {
  if (const CUresult r = enter_unsafe("cuEventQuery"); r != CUDA_SUCCESS) return r;
  const Lock lock(driver_state().mutex);
  const Event* const e = find_event(event);
  if (e == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return !e->position || e->position->reached ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult CUDAAPI cuEventSynchronize(CUevent event) {
  if (const CUresult r = enter_unsafe("cuEventSynchronize"); r != CUDA_SUCCESS) return r;
  Event copy;
  if (!copy_event(event, copy)) return CUDA_ERROR_INVALID_HANDLE;
  return copy.position ? wait_for(copy.position, *copy.context) : CUDA_SUCCESS;
}
