// Sluice client library, C++ API for collectives in the order of CUDA or host streams, for C++17 and later.
// Header-only wrapper of streams.h that adds ownership and exceptions. streams.h documents the rules.
//
//   sluice::client::Session session(options);
//   sluice::client::Streams streams(session, sluice::client::on_gpu());
//   streams.allreduce(gradients, gradients, count, SLUICE_AVG, stream);  // CUDA pointers, cudaStream_t
#pragma once

#include <sluice/streams.h>
#include <sluice/sluice.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace sluice::client {

// Returns the default options: host streams and host memory.
[[nodiscard]] inline sluice_stream_options on_host() noexcept {
  sluice_stream_options o;
  sluice_stream_options_init(&o);
  return o;
}
// Returns the options for streams and memory of a GPU. -1 means the GPU of the caller's current context.
[[nodiscard]] inline sluice_stream_options on_gpu(int device = -1) noexcept {
  sluice_stream_options o = on_host();
  o.device_kind = SLUICE_DEVICE_CUDA;
  o.device = device;
  return o;
}

// Owns a host stream, which runs submitted work in order on its own thread.
class HostStream {
 public:
  // Throws Error if the thread cannot be started.
  HostStream() { check(sluice_host_stream_create(&stream_)); }
  HostStream(HostStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  HostStream& operator=(HostStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  // Runs all submitted work. No session may use the stream any longer.
  ~HostStream() { static_cast<void>(sluice_host_stream_destroy(stream_)); }

  // Appends work, which must not throw.
  void submit(std::function<void()> work) {
    auto owned = std::make_unique<std::function<void()>>(std::move(work));
    const auto run = [](void* argument) {
      const std::unique_ptr<std::function<void()>> callable(static_cast<std::function<void()>*>(argument));
      (*callable)();
    };
    check(sluice_host_stream_submit(stream_, run, owned.get()));
    static_cast<void>(owned.release());
  }
  // Blocks until all work that was submitted before the call is done.
  void synchronize() { check(sluice_host_stream_synchronize(stream_)); }
  [[nodiscard]] sluice_stream get() const noexcept { return stream_; }

 private:
  static void check(sluice_status status) {
    if (status != SLUICE_OK) throw Error(status, sluice_refusal());
  }
  sluice_stream stream_ = nullptr;
};

// Opens and uses the streams of a session, which must outlive the object.
class Streams {
 public:
  // Throws Error, see sluice_session_open_streams.
  explicit Streams(Session& session, const sluice_stream_options& options = on_host())
      : session_(session.get()) {
    check(sluice_session_open_streams(session_, &options, nullptr, 0));
  }

  // Enqueues an operation after the earlier work of `stream` and before its later work. Throws Error if it is
  // refused.
  template <typename T>
  void allreduce(const T* send, T* recv, std::size_t count, sluice_op op, sluice_stream stream) {
    allreduce(send, recv, count, dtype_of<T>(), op, stream);
  }
  void allreduce(const void* send, void* recv, std::size_t count, sluice_dtype dtype, sluice_op op,
                 sluice_stream stream) {
    check(sluice_allreduce_on_stream(session_, send, recv, count, dtype, op, stream, nullptr));
  }
  // The same with a request, which reports the end of the operation.
  template <typename T>
  [[nodiscard]] Request allreduce_async(const T* send, T* recv, std::size_t count, sluice_op op,
                                        sluice_stream stream) {
    return allreduce_async(send, recv, count, dtype_of<T>(), op, stream);
  }
  [[nodiscard]] Request allreduce_async(const void* send, void* recv, std::size_t count, sluice_dtype dtype,
                                        sluice_op op, sluice_stream stream) {
    sluice_request request = 0;
    check(sluice_allreduce_on_stream(session_, send, recv, count, dtype, op, stream, &request));
    return Request(session_, request);
  }

  // Other collectives. `counts`: the elements of each rank's part, or null with `count` in each.
  template <typename T>
  void reduce_scatter(const T* send, T* recv, std::size_t count, sluice_op op, sluice_stream stream,
                      const std::size_t* counts = nullptr) {
    check(sluice_reduce_scatter_on_stream(session_, send, recv, count, counts, dtype_of<T>(), op, nullptr,
                                          stream, nullptr));
  }
  template <typename T>
  void all_gather(const T* send, T* recv, std::size_t count, sluice_stream stream,
                  const std::size_t* counts = nullptr) {
    check(sluice_all_gather_on_stream(session_, send, recv, count, counts, dtype_of<T>(), stream, nullptr));
  }
  template <typename T>
  void reduce(const T* send, T* recv, std::size_t count, sluice_op op, std::uint32_t root,
              sluice_stream stream) {
    check(sluice_reduce_on_stream(session_, send, recv, count, dtype_of<T>(), op, root, nullptr, stream,
                                  nullptr));
  }
  template <typename T>
  void broadcast(T* buffer, std::size_t count, std::uint32_t root, sluice_stream stream) {
    check(sluice_broadcast_on_stream(session_, buffer, count, dtype_of<T>(), root, stream, nullptr));
  }

  // Runs `body` and merges the operations that it starts. If `body` throws, none of them
  // runs.
  template <typename Body>
  void group(Body&& body) {
    collect(std::forward<Body>(body));
    check(sluice_group_end(session_, nullptr));
  }
  // The same with a request for the whole group.
  template <typename Body>
  [[nodiscard]] Request group_async(Body&& body) {
    collect(std::forward<Body>(body));
    sluice_request request = 0;
    check(sluice_group_end(session_, &request));
    return Request(session_, request);
  }

  [[nodiscard]] sluice_stream_stats stats() {
    sluice_stream_stats s{};
    s.struct_size = sizeof s;
    check(sluice_session_stream_stats(session_, &s));
    return s;
  }

 private:
  static void check(sluice_status status) {
    if (status != SLUICE_OK) throw Error(status, sluice_refusal());
  }
  template <typename Body>
  void collect(Body&& body) {
    check(sluice_group_begin(session_));
    try {
      std::forward<Body>(body)();
    } catch (...) {
      // Issues an invalid operation: then the end of the group fails, and nothing of the group runs.
      static_cast<void>(sluice_allreduce_on_stream(session_, nullptr, nullptr, 1, SLUICE_F32, SLUICE_SUM,
                                                   nullptr, nullptr));
      static_cast<void>(sluice_group_end(session_, nullptr));
      throw;
    }
  }
  sluice_session* session_;
};

}  // namespace sluice::client
