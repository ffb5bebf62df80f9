#include <chrono>
#include <utility>

#include "tests/support/cuda_stand_in/machine.h"

using namespace sluice::cuda_stand_in;  // NOLINT(google-build-using-namespace): the driver's names have none

namespace {

// Null where there is none such.
Event* find_event(CUevent handle) {
  const auto found = machine().events.find(as<Event>(handle));
  return found == machine().events.end() ? nullptr : found->first;
}

CUresult wait_for(const std::shared_ptr<Mark>& mark, const Context& context) {
  Lock lock(machine().mutex);
  machine().changed.wait(lock, [&] { return mark->over || context.broken != CUDA_SUCCESS; });
  return context.broken;
}

// What the event stands for now. False: it is none.
bool copy_event(CUevent event, Event& now) {
  const Lock lock(machine().mutex);
  const Event* const e = find_event(event);
  if (e == nullptr) return false;
  now = *e;
  return true;
}

}  // namespace

CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned int flags) {
  if (const CUresult r = enter("cuStreamCreate"); r != CUDA_SUCCESS) return r;
  Machine& m = machine();
  const Lock lock(m.mutex);
  auto made = m.make_stream(*current(), flags != CU_STREAM_NON_BLOCKING);
  *stream = as<CUstream_st>(made.get());
  m.streams[made.get()] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamDestroy(CUstream stream) {
  const CUresult r = enter("cuStreamDestroy");
  Machine& m = machine();
  std::shared_ptr<Stream> gone;
  const Lock lock(m.mutex);
  const auto found = m.streams.find(as<Stream>(stream));
  if (found == m.streams.end()) return CUDA_ERROR_INVALID_HANDLE;
  gone = std::move(found->second);
  m.streams.erase(found);
  return r;  // its queue ends behind the lock
}

CUresult CUDAAPI cuStreamSynchronize(CUstream stream) {
  if (const CUresult r = enter_unsafe("cuStreamSynchronize"); r != CUDA_SUCCESS) return r;
  Machine& m = machine();
  Lock lock(m.mutex);
  const Stream* const s = m.find(stream);
  return s == nullptr ? CUDA_ERROR_INVALID_HANDLE : synchronize(lock, *s);
}

CUresult CUDAAPI cuStreamGetCtx(CUstream stream, CUcontext* context) {
  if (const CUresult r = enter("cuStreamGetCtx"); r != CUDA_SUCCESS) return r;
  const Lock lock(machine().mutex);
  const Stream* const s = machine().find(stream);
  if (s == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *context = as<CUctx_st>(s->context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  if (const CUresult r = enter("cuStreamIsCapturing"); r != CUDA_SUCCESS) return r;
  Machine& m = machine();
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
  Event now;
  if (!copy_event(event, now)) return CUDA_ERROR_INVALID_HANDLE;
  if (!now.mark) return CUDA_SUCCESS;  // nothing was recorded
  return give(stream, [now] { return wait_for(now.mark, *now.context); });
}

CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned int flags) {
  if (const CUresult r = enter("cuStreamWaitValue32"); r != CUDA_SUCCESS) return r;
  if ((flags & ~static_cast<unsigned int>(CU_STREAM_WAIT_VALUE_FLUSH)) != CU_STREAM_WAIT_VALUE_GEQ)
    return CUDA_ERROR_INVALID_VALUE;
  const Context* const context = current();
  return give(stream, [at, value, context] {
    const auto* const word = reinterpret_cast<const uint32_t*>(at);
    // GPUs poll, too.
    while (static_cast<int32_t>(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) < 0) {
      {
        const Lock lock(machine().mutex);
        if (context->broken != CUDA_SUCCESS) break;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn function, void* argument) {
  if (const CUresult r = enter("cuLaunchHostFunc"); r != CUDA_SUCCESS) return r;
  return give(stream, [function, argument] {
    function(argument);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned int /*flags*/) {
  if (const CUresult r = enter("cuEventCreate"); r != CUDA_SUCCESS) return r;
  auto made = std::make_unique<Event>();
  made->context = current();
  *event = as<CUevent_st>(made.get());
  const Lock lock(machine().mutex);
  machine().events[made.get()] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventDestroy(CUevent event) {
  const CUresult r = enter("cuEventDestroy");
  const Lock lock(machine().mutex);
  return machine().events.erase(as<Event>(event)) == 1 ? r : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
  if (const CUresult r = enter("cuEventRecord"); r != CUDA_SUCCESS) return r;
  auto mark = std::make_shared<Mark>();
  {
    const Lock lock(machine().mutex);
    Event* const e = find_event(event);
    const Stream* const s = machine().find(stream);
    if (e == nullptr || s == nullptr || e->context != s->context) return CUDA_ERROR_INVALID_HANDLE;
    e->mark = mark;
  }
  return give(stream, [mark] {
    const Lock lock(machine().mutex);
    mark->over = true;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuEventQuery(CUevent event) {
  if (const CUresult r = enter_unsafe("cuEventQuery"); r != CUDA_SUCCESS) return r;
  const Lock lock(machine().mutex);
  const Event* const e = find_event(event);
  if (e == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return !e->mark || e->mark->over ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult CUDAAPI cuEventSynchronize(CUevent event) {
  if (const CUresult r = enter_unsafe("cuEventSynchronize"); r != CUDA_SUCCESS) return r;
  Event now;
  if (!copy_event(event, now)) return CUDA_ERROR_INVALID_HANDLE;
  return now.mark ? wait_for(now.mark, *now.context) : CUDA_SUCCESS;
}
