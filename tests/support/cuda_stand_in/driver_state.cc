#include "tests/support/cuda_stand_in/driver_state.h"

#include <algorithm>
#include <utility>

namespace sluice::cuda_stand_in {

DriverState& driver_state() {
  // Never destroyed, because a thread of a test may still use it when the process ends.
  static DriverState* const made = [] {
    auto* const m = new DriverState;
    for (int i = 0; i < kMaxGpus; ++i) m->primary[static_cast<size_t>(i)].ordinal = i;
    return m;
  }();
  return *made;
}

std::vector<Context*>& context_stack() {
  static thread_local std::vector<Context*> stack;
  return stack;
}

Context* current() {
  return context_stack().empty() ? nullptr : context_stack().back();
}

CUstreamCaptureMode& capture_mode() {
  static thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

Stream* DriverState::find(CUstream handle) {
  Context* const context = current();
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    if (context == nullptr) return nullptr;
    if (!context->legacy) context->legacy = make_stream(*context, false);
    return context->legacy.get();
  }
  if (handle == CU_STREAM_PER_THREAD) {
    if (context == nullptr) return nullptr;
    auto& stream = context->per_thread[std::this_thread::get_id()];
    if (!stream) stream = make_stream(*context, true);
    return stream.get();
  }
  const auto found = streams.find(as<Stream>(handle));
  return found == streams.end() ? nullptr : found->first;
}

std::shared_ptr<Stream> DriverState::make_stream(Context& context, bool blocking) {
  auto stream = std::make_shared<Stream>();
  stream->context = &context;
  stream->blocking = blocking;
  if (one_queue) stream->queue = context.only_queue.lock();
  if (!stream->queue) stream->queue = std::make_shared<HardwareQueue>();
  if (one_queue) context.only_queue = stream->queue;
  return stream;
}

const Allocation* DriverState::find(CUdeviceptr at, CUdeviceptr& begin) const {
  auto found = memory.upper_bound(at);
  if (found == memory.begin()) return nullptr;
  --found;
  begin = found->first;
  return at - begin < found->second.bytes ? &found->second : nullptr;
}

bool DriverState::capturing() const {
  return std::ranges::any_of(streams, [](const auto& entry) { return entry.first->capturing; });
}

CUresult enter(const char* function, Requires needs) {
  DriverState& m = driver_state();
  const Lock lock(m.mutex);
  for (auto fault = m.faults.begin(); fault != m.faults.end(); ++fault) {
    if (fault->function != function || --fault->nth > 0) continue;
    const CUresult result = fault->result;
    m.faults.erase(fault);
    // Breaks the context, as a driver does. Otherwise earlier work could continue without the order that the
    // failed call would have enforced.
    if (Context* const context = current(); result == CUDA_ERROR_ILLEGAL_ADDRESS && context != nullptr) {
      context->broken = result;
      m.changed.notify_all();
    }
    return result;
  }
  if (needs == Requires::kNothing) return CUDA_SUCCESS;
  if (!m.started) return CUDA_ERROR_NOT_INITIALIZED;
  if (needs == Requires::kStarted) return CUDA_SUCCESS;
  Context* const context = current();
  return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : context->broken;
}

CUresult enter_unsafe(const char* function) {
  if (const CUresult r = enter(function); r != CUDA_SUCCESS) return r;
  DriverState& m = driver_state();
  const Lock lock(m.mutex);
  const bool breaks = capture_mode() == CU_STREAM_CAPTURE_MODE_GLOBAL && m.capturing();
  return breaks ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult enqueue(CUstream handle, std::function<CUresult()> work) {
  DriverState& m = driver_state();
  const Lock lock(m.mutex);
  Stream* const stream = m.find(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Context* const context = stream->context;
  if (context->broken != CUDA_SUCCESS) return context->broken;
  // The legacy stream and the blocking streams of its context wait for each other.
  std::vector<std::pair<std::shared_ptr<StreamProgress>, uint64_t>> before;
  const auto wait_for = [&](const Stream& other) {
    if (&other != stream) before.emplace_back(other.progress, other.progress->enqueued);
  };
  if (stream == context->legacy.get()) {
    for (const auto& [key, other] : m.streams) {
      if (other->blocking && other->context == context) wait_for(*other);
    }
    for (const auto& [thread, other] : context->per_thread) wait_for(*other);
  } else if (stream->blocking && context->legacy) {
    wait_for(*context->legacy);
  }
  const uint64_t number = ++stream->progress->enqueued;
  stream->queue->enqueue(
      [&m, context, number, progress = stream->progress, before = std::move(before), work = std::move(work)] {
        Lock waiting(m.mutex);
        for (const auto& [other, until] : before)
          m.changed.wait(waiting, [&other = other, &until = until] { return other->done >= until; });
        const bool broken = context->broken != CUDA_SUCCESS;
        waiting.unlock();
        const CUresult result = broken ? CUDA_SUCCESS : work();
        waiting.lock();
        if (result != CUDA_SUCCESS && context->broken == CUDA_SUCCESS) context->broken = result;
        progress->done = number;
        m.changed.notify_all();
      });
  return CUDA_SUCCESS;
}

CUresult synchronize(Lock& lock, const Stream& stream) {
  const Context& context = *stream.context;
  const auto progress = stream.progress;
  const uint64_t until = progress->enqueued;
  driver_state().changed.wait(lock, [&] { return progress->done >= until; });
  return context.broken;
}

}  // namespace sluice::cuda_stand_in
