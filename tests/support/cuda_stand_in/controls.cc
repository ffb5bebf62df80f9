#include "tests/support/cuda_stand_in/driver_state.h"
#include "tests/support/cuda_stand_in/stand_in.h"

namespace sluice::cuda_stand_in {

Live live() {
  DriverState& m = driver_state();
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
  DriverState& m = driver_state();
  const Lock lock(m.mutex);
  m.gpus = 2;
  m.one_queue = false;
  m.faults.clear();
  m.kernel_fault = CUDA_SUCCESS;
  for (Context& context : m.primary) context.broken = CUDA_SUCCESS;
}

void set_gpus(int count) {
  const Lock lock(driver_state().mutex);
  driver_state().gpus = count;
}

void use_one_queue(bool one) {
  const Lock lock(driver_state().mutex);
  driver_state().one_queue = one;
}

void fail_call(const char* function, int nth, CUresult result) {
  const Lock lock(driver_state().mutex);
  driver_state().faults.push_back({function, nth, result});
}

void fail_kernel(CUresult result) {
  const Lock lock(driver_state().mutex);
  driver_state().kernel_fault = result;
}

void capture(CUstream stream, bool capturing) {
  const Lock lock(driver_state().mutex);
  if (Stream* const s = driver_state().find(stream); s != nullptr) s->capturing = capturing;
}

}  // namespace sluice::cuda_stand_in
