#include "tests/nccl/player/communicator.h"

#include <sys/mman.h>

#include <mutex>

#include "tests/nccl/player/failure.h"

namespace player {
namespace {

// NCCL does not close the listener after a failed connect. The reference kept here prevents a leak report.
void keep_listener(void* listener) {
  static std::mutex mutex;
  static std::vector<void*>& listeners = *new std::vector<void*>;
  const std::lock_guard lock(mutex);
  listeners.push_back(listener);
}

}  // namespace

Communicator::Communicator(Rank& rank, CollNet& collnet, void* context, Group group, Geometry geometry)
    : rank_(rank), collnet_(collnet), context_(context), group_(std::move(group)), geometry_(geometry) {}

Communicator::~Communicator() {
  if (region_ != nullptr) munmap(region_, geometry_.region_bytes());
}

void Communicator::listen(Block* handle) {
  DeviceFacts facts;
  require_success(collnet_.properties(group_.device, &facts), "CollNet getProperties");
  // The bytes after the handle belong to the next rank.
  handle->assign(kHandleBytes + 64, std::byte{0x5a});
  std::fill_n(handle->begin(), kHandleBytes, std::byte{0});
  require_success(collnet_.listen(context_, group_.device, handle->data(), &listener_), "CollNet listen");
  require(listener_ != nullptr, "CollNet listen returned no listener");
  for (size_t at = kHandleBytes; at < handle->size(); ++at)
    require((*handle)[at] == std::byte{0x5a}, "CollNet listen wrote beyond the handle");
  handle->resize(kHandleBytes);
}

Result Communicator::connect() {
  Block handle_block;
  rank_.step("listen, " + group_.name);
  service_.run([&] { listen(&handle_block); });
  rank_.step("all-gather of handles, " + group_.name);
  std::vector<Block> all =
      rank_.bootstrap().all_gather("handles " + group_.name, group_.place, group_.ranks, handle_block);
  rank_.step("connect, " + group_.name);
  if (before_connect) before_connect();
  Result result = kSuccess;
  service_.run([&] {
    std::vector<void*> handles;
    for (Block& handle : all) handles.push_back(handle.data());
    result = collnet_.connect(handles.data(), group_.ranks, group_.rank, listener_, &comm_);
    // NCCL treats a connect without a comm as failed.
    if (result == kSuccess && comm_ == nullptr) result = -1;
    if (result != kSuccess) return keep_listener(listener_);
    require_success(collnet_.close_listen(listener_), "CollNet closeListen");
  });
  return result;
}

void Communicator::only_listen(bool close_listener) {
  Block handle_block;
  service_.run([&] { listen(&handle_block); });
  (void)rank_.bootstrap().all_gather("handles " + group_.name, group_.place, group_.ranks, handle_block);
  if (!close_listener) return keep_listener(listener_);
  service_.run([&] { require_success(collnet_.close_listen(listener_), "CollNet closeListen"); });
}

void Communicator::register_region() {
  rank_.step("regMr, " + group_.name);
  void* const memory = mmap(nullptr, geometry_.region_bytes(), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(memory != MAP_FAILED, "cannot map the region");
  region_ = static_cast<std::byte*>(memory);
  service_.run([&] {
    for (int channel = 0; channel < geometry_.channels; ++channel) {
      for (std::vector<void*>* mhandles : {&receive_mhandles_, &send_mhandles_}) {
        void* mhandle = nullptr;
        require_success(collnet_.reg_mr(comm_, region_, geometry_.region_bytes(), &mhandle), "CollNet regMr");
        mhandles->push_back(mhandle);
      }
    }
  });
}

void Communicator::close() {
  rank_.step("close, " + group_.name);
  service_.run([&] {
    const auto deregister = [&](std::vector<void*>& mhandles) {
      for (void* mhandle : mhandles) {
        // NCCL does not store a null handle.
        if (mhandle != nullptr) require_success(collnet_.dereg_mr(comm_, mhandle), "CollNet deregMr");
      }
      mhandles.clear();
    };
    deregister(send_mhandles_);
    // A later access crashes the process, and the addresses are not reused.
    if (region_ != nullptr)
      require(mprotect(region_, geometry_.region_bytes(), PROT_NONE) == 0, "cannot protect the region");
    deregister(receive_mhandles_);
    require_success(collnet_.close_coll(comm_), "CollNet closeColl");
    comm_ = nullptr;
  });
}

}  // namespace player
