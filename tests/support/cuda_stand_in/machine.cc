#include "tests/support/cuda_stand_in/machine.h"

#include <algorithm>
#include <utility>

namespace sluice::cuda_stand_in {

Machine& machine() {
  // Never destroyed: a thread of a test's may still be here when the process ends.
  static Machine* const made = [] {
    auto* const m = new Machine;
    for (int i = 0; i < kMostGpus; ++i) m->primary[static_cast<size_t>(i)].ordinal = i;
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

Stream* Machine::find(CUstream handle) {
  Context* const here = current();
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    if (here == nullptr) return nullptr;
    if (!here->legacy) here->legacy = make_stream(*here, false);
    return here->legacy.get();
  }
  if (handle == CU_STREAM_PER_THREAD) {
    if (here == nullptr) return nullptr;
    auto& stream = here->per_thread[std::this_thread::get_id()];
    if (!stream) stream = make_stream(*here, true);
    return stream.get();
  }
  const auto found = streams.find(as<Stream>(handle));
  return found == streams.end() ? nullptr : found->first;
}

std::shared_ptr<Stream> Machine::make_stream(Context& context, bool blocking) {
  auto stream = std::make_shared<Stream>();
  stream->context = &context;
  stream->blocking = blocking;
  if (one_queue) stream->queue = context.only_queue.lock();
  if (!stream->queue) stream->queue = std::make_shared<Queue>();
  if (one_queue) context.only_queue = stream->queue;
  return stream;
}

const Allocation* Machine::find(CUdeviceptr at, CUdeviceptr& begin) const {
  auto found = memory.upper_bound(at);
  if (found == memory.begin()) return nullptr;
  --found;
  begin = found->first;
  return at - begin < found->second.bytes ? &found->second : nullptr;
}

bool Machine::capturing() const {
  return std::ranges::any_of(streams, [](const auto& entry) { return entry.first->capturing; });
}

CUresult enter(const char* function, Needs needs) {
  Machine& m = machine();
  const Lock lock(m.mutex);
  for (auto fault = m.faults.begin(); fault != m.faults.end(); ++fault) {
    if (fault->function != function || --fault->nth > 0) continue;
    const CUresult result = fault->result;
    m.faults.erase(fault);
    // As a driver's is, so that nothing given before goes on without the order that the failed call would
    // have made.
    if (Context* const here = current(); result == CUDA_ERROR_ILLEGAL_ADDRESS && here != nullptr) {
      here->broken = result;
      m.changed.notify_all();
    }
    return result;
  }
  if (needs == Needs::kNothing) return CUDA_SUCCESS;
  if (!m.started) return CUDA_ERROR_NOT_INITIALIZED;
  if (needs == Needs::kStarted) return CUDA_SUCCESS;
  Context* const here = current();
  return here == nullptr ? CUDA_ERROR_INVALID_CONTEXT : here->broken;
}

CUresult enter_unsafe(const char* function) {
  if (const CUresult r = enter(function); r != CUDA_SUCCESS) return r;
  Machine& m = machine();
  const Lock lock(m.mutex);
  const bool breaks = capture_mode() == CU_STREAM_CAPTURE_MODE_GLOBAL && m.capturing();
  return breaks ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult give(CUstream handle, std::function<CUresult()> work) {
  Machine& m = machine();
  const Lock lock(m.mutex);
  Stream* const stream = m.find(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Context* const context = stream->context;
  if (context->broken != CUDA_SUCCESS) return context->broken;
  // The legacy stream and the blocking ones of its context are in one order.
  std::vector<std::pair<std::shared_ptr<Progress>, uint64_t>> before;
  const auto wait_for = [&](const Stream& other) {
    if (&other != stream) before.emplace_back(other.progress, other.progress->given);
  };
  if (stream == context->legacy.get()) {
    for (const auto& [key, other] : m.streams) {
      if (other->blocking && other->context == context) wait_for(*other);
    }
    for (const auto& [thread, other] : context->per_thread) wait_for(*other);
  } else if (stream->blocking && context->legacy) {
    wait_for(*context->legacy);
  }
  const uint64_t number = ++stream->progress->given;
  stream->queue->give(
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
  const uint64_t until = progress->given;
  machine().changed.wait(lock, [&] { return progress->done >= until; });
  return context.broken;
}

}  // namespace sluice::cuda_stand_in
