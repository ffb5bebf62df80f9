#include "tests/support/cuda_stand_in/machine.h"
#include "tests/support/cuda_stand_in/stand_in.h"

namespace sluice::cuda_stand_in {

Live live() {
  Machine& m = machine();
  const Lock lock(m.mutex);
  Live out;
  for (const Context& context : m.primary) out.contexts += context.retained;
  out.streams = static_cast<int>(m.streams.size());
  out.events = static_cast<int>(m.events.size());
  out.modules = static_cast<int>(m.modules.size());
  for (const auto& [at, allocation] : m.memory) {
    if (allocation.kind == Kind::kPinned) out.pinned_bytes += allocation.bytes;
    if (allocation.kind == Kind::kDevice) out.device_bytes += allocation.bytes;
  }
  return out;
}

void reset() {
  Machine& m = machine();
  const Lock lock(m.mutex);
  m.gpus = 2;
  m.one_queue = false;
  m.faults.clear();
  m.kernel_fault = CUDA_SUCCESS;
  for (Context& context : m.primary) context.broken = CUDA_SUCCESS;
}

void set_gpus(int count) {
  const Lock lock(machine().mutex);
  machine().gpus = count;
}

void use_one_queue(bool one) {
  const Lock lock(machine().mutex);
  machine().one_queue = one;
}

void fail_call(const char* function, int nth, CUresult result) {
  const Lock lock(machine().mutex);
  machine().faults.push_back({function, nth, result});
}

void fail_kernel(CUresult result) {
  const Lock lock(machine().mutex);
  machine().kernel_fault = result;
}

void capture(CUstream stream, bool capturing) {
  const Lock lock(machine().mutex);
  if (Stream* const s = machine().find(stream); s != nullptr) s->capturing = capturing;
}

}  // namespace sluice::cuda_stand_in
