// Class Waker tells the thread of a context that one of its endpoints has work.
//
// Endpoints share the Waker of the peer's context, so it may outlive that context. notify() runs on any
// thread. A frame is put for each few microseconds of work, so notify() must be cheap while the thread is
// awake: no system call and no lock then.
#pragma once

namespace sluice::transport::memory {

class Waker {
 public:
  Waker() = default;
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;
  virtual ~Waker() = default;

  // The thread polls the endpoints of its context once more after this call. The caller has stored the work
  // with sequentially consistent stores, or is that thread.
  virtual void notify() noexcept = 0;
};

}  // namespace sluice::transport::memory
