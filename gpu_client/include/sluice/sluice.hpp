// Sluice client library, C++ API for C++17 and later. Header-only wrapper of sluice.h that adds ownership,
// exceptions and element types. sluice.h documents the rules for threads, buffers and fork().
//
//   sluice::client::Options options;
//   options.reducers = "10.0.0.2,10.0.0.3";
//   options.session_id = id;  // 16 bytes, the same on all ranks
//   options.rank = rank, options.ranks = n;
//   sluice::client::Session session(options);
//   session.allreduce(gradients.data(), gradients.data(), gradients.size());
#pragma once

#include <sluice/sluice.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace sluice::client {

// Thrown for every status other than SLUICE_OK. what() is the reason as text, status() the code.
class Error : public std::runtime_error {
 public:
  Error(sluice_status status, const std::string& reason)
      : std::runtime_error(reason.empty() ? sluice_status_string(status) : reason), status_(status) {}
  [[nodiscard]] sluice_status status() const noexcept { return status_; }

 private:
  sluice_status status_;
};

// Returns the sluice_dtype of an arithmetic C++ type. For f16, bf16 and fp8, which C++17 does not have, use
// the functions with a sluice_dtype parameter.
template <typename T>
[[nodiscard]] constexpr sluice_dtype dtype_of() noexcept {
  static_assert(std::is_arithmetic_v<T> && !std::is_same_v<std::remove_cv_t<T>, bool>,
                "expected an arithmetic type other than bool");
  static_assert(std::is_integral_v<T> || sizeof(T) == 4 || sizeof(T) == 8,
                "there is no wire type of this width");
  static_assert(sizeof(T) != 2, "there are no 16-bit integers on the wire");
  if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? SLUICE_F32 : SLUICE_F64;
  } else if constexpr (std::is_signed_v<T>) {
    return sizeof(T) == 1 ? SLUICE_I8 : sizeof(T) == 4 ? SLUICE_I32 : SLUICE_I64;
  } else {
    return sizeof(T) == 1 ? SLUICE_U8 : sizeof(T) == 4 ? SLUICE_U32 : SLUICE_U64;
  }
}

// sluice_options with owned strings. `raw` contains all other options. Its numbers that also exist here are
// ignored; its strings are used if those here are empty: `raw.key_file = ""` ignores SLUICE_KEY_FILE.
struct Options {
  // Sets the defaults and reads the environment variables, as sluice_options_init.
  Options() noexcept { sluice_options_init_sized(&raw, sizeof raw); }
  std::string reducers;  // empty: from SLUICE_REDUCERS or the platform
  std::array<std::uint8_t, 16> session_id{};
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::string job, key_file, token_file, tls, tls_ca, tls_cert, tls_key;  // empty: the variables
  std::string interface_address;
  std::string tenant;      // empty: SLUICE_TENANT
  std::string rendezvous;  // empty: SLUICE_RENDEZVOUS
  sluice_options raw{};
};

class Session;
class Streams;

// Owns an open operation. The destructor waits for the operation, because its buffers are in use until then.
// The session must outlive the request.
class Request {
 public:
  Request(Request&& other) noexcept
      : session_(std::exchange(other.session_, nullptr)), request_(other.request_) {}
  Request& operator=(Request&& other) noexcept {
    if (this != &other) {
      finish();
      session_ = std::exchange(other.session_, nullptr);
      request_ = other.request_;
    }
    return *this;
  }
  ~Request() { finish(); }

  // Returns whether the operation has ended, without blocking. Throws Error if it failed.
  [[nodiscard]] bool test();
  // Blocks until the operation has ended. Throws Error if it failed.
  void wait();
  // The same for at most `timeout_ms` milliseconds. Returns false if the operation is still open.
  [[nodiscard]] bool wait_for(int timeout_ms);

 private:
  friend class Session;
  friend class Streams;  // streams.hpp
  Request(sluice_session* session, sluice_request request) noexcept : session_(session), request_(request) {}
  void finish() noexcept {
    if (session_ != nullptr) static_cast<void>(sluice_wait(std::exchange(session_, nullptr), request_, -1));
  }
  void check(sluice_status status);
  sluice_session* session_ = nullptr;  // null: the operation has ended
  sluice_request request_ = 0;
};

// Owns a session.
class Session {
 public:
  // Joins the session as sluice_session_create. Throws Error.
  explicit Session(const Options& options) {
    sluice_options o = options.raw;
    std::memcpy(o.session_id, options.session_id.data(), options.session_id.size());
    o.rank = options.rank;
    o.ranks = options.ranks;
    const auto set = [](const char*& field, const std::string& text) {
      if (!text.empty()) field = text.c_str();
    };
    set(o.reducers, options.reducers);
    set(o.job, options.job);
    set(o.key_file, options.key_file);
    set(o.token_file, options.token_file);
    set(o.tls, options.tls);
    set(o.tls_ca, options.tls_ca);
    set(o.tls_cert, options.tls_cert);
    set(o.tls_key, options.tls_key);
    set(o.interface_address, options.interface_address);
    set(o.tenant, options.tenant);
    set(o.rendezvous, options.rendezvous);
    std::array<char, 2048> reason{};
    const sluice_status status = sluice_session_create(&o, &session_, reason.data(), reason.size());
    if (status != SLUICE_OK) throw Error(status, reason.data());
  }
  Session(Session&& other) noexcept : session_(std::exchange(other.session_, nullptr)) {}
  Session& operator=(Session&& other) noexcept {
    if (this != &other) {
      static_cast<void>(sluice_session_close(session_));
      session_ = std::exchange(other.session_, nullptr);
    }
    return *this;
  }
  // Closes the session and ignores errors; call close() to see them. All requests must have ended.
  ~Session() { static_cast<void>(sluice_session_close(session_)); }

  // Starts an operation as sluice_allreduce_async. Returns nullopt if too many operations are open. Throws
  // Error.
  [[nodiscard]] std::optional<Request> try_allreduce_async(const void* send, void* recv, std::size_t count,
                                                           sluice_dtype dtype, sluice_op op = SLUICE_SUM) {
    sluice_request request = 0;
    const sluice_status status = sluice_allreduce_async(session_, send, recv, count, dtype, op, &request);
    if (status == SLUICE_AGAIN) return std::nullopt;
    check(status);
    return Request(session_, request);
  }
  // Starts an operation. Throws Error, with SLUICE_AGAIN if too many operations are open.
  template <typename T>
  [[nodiscard]] Request allreduce_async(const T* send, T* recv, std::size_t count,
                                        sluice_op op = SLUICE_SUM) {
    auto request = try_allreduce_async(send, recv, count, dtype_of<T>(), op);
    if (!request) throw Error(SLUICE_AGAIN, "too many open operations; wait for one");
    return std::move(*request);
  }
  // Reduces `count` elements of `send` over all ranks into `recv` and blocks until the result is there.
  // Throws Error.
  template <typename T>
  void allreduce(const T* send, T* recv, std::size_t count, sluice_op op = SLUICE_SUM) {
    allreduce(send, recv, count, dtype_of<T>(), op);
  }
  void allreduce(const void* send, void* recv, std::size_t count, sluice_dtype dtype, sluice_op op) {
    check(sluice_allreduce(session_, send, recv, count, dtype, op));
  }

  // Start the other collectives of sluice.h. `counts`: NULL, or the elements of each rank's part. All throw
  // Error, with SLUICE_AGAIN if too many operations are open.
  [[nodiscard]] Request reduce_scatter_async(const void* send, void* recv, std::size_t count,
                                             const std::size_t* counts, sluice_dtype dtype,
                                             sluice_op op = SLUICE_SUM) {
    sluice_request r = 0;
    return started(sluice_reduce_scatter_async(session_, send, recv, count, counts, dtype, op, &r), r);
  }
  [[nodiscard]] Request all_gather_async(const void* send, void* recv, std::size_t count,
                                         const std::size_t* counts, sluice_dtype dtype) {
    sluice_request r = 0;
    return started(sluice_all_gather_async(session_, send, recv, count, counts, dtype, &r), r);
  }
  [[nodiscard]] Request reduce_async(const void* send, void* recv, std::size_t count, sluice_dtype dtype,
                                     sluice_op op, std::uint32_t root) {
    sluice_request r = 0;
    return started(sluice_reduce_async(session_, send, recv, count, dtype, op, root, &r), r);
  }
  [[nodiscard]] Request broadcast_async(void* buffer, std::size_t count, sluice_dtype dtype,
                                        std::uint32_t root) {
    sluice_request r = 0;
    return started(sluice_broadcast_async(session_, buffer, count, dtype, root, &r), r);
  }

  // Makes progress once, for sessions with progress_threads = 0. Throws Error if the session has failed.
  void progress() { check(sluice_progress(session_)); }
  // The rank that ended the session, as sluice_session_ended_by. SLUICE_NO_RANK if none is known.
  [[nodiscard]] std::uint32_t ended_by() {
    std::uint32_t rank = SLUICE_NO_RANK;
    static_cast<void>(sluice_session_ended_by(session_, &rank));
    return rank;
  }
  [[nodiscard]] sluice_stats stats() {
    sluice_stats s{};
    s.struct_size = sizeof s;
    check(sluice_session_stats(session_, &s));
    return s;
  }
  // Replaces the list of reducers, "host:port,..." or "@FILE", as sluice_session_set_reducers. An empty
  // string reads the watched file now. Throws Error.
  void set_reducers(const std::string& reducers = {}) {
    std::array<char, 2048> reason{};
    const sluice_status status = sluice_session_set_reducers(
        session_, reducers.empty() ? nullptr : reducers.c_str(), reason.data(), reason.size());
    if (status != SLUICE_OK) throw Error(status, reason.data());
  }
  // Ends the session at once on all ranks, as sluice_session_abort. Close it afterwards.
  void abort(const std::string& reason) { static_cast<void>(sluice_session_abort(session_, reason.c_str())); }
  // Leaves and closes the session. Throws Error if the session failed or the linger time expired; the session
  // is closed in any case.
  void close() {
    const sluice_status status = sluice_session_close(std::exchange(session_, nullptr));
    if (status != SLUICE_OK) throw Error(status, std::string("close: ") + sluice_status_string(status));
  }
  // Returns the handle for the C API. The object keeps the ownership.
  [[nodiscard]] sluice_session* get() const noexcept { return session_; }

 private:
  [[nodiscard]] Request started(sluice_status status, const sluice_request& request) {
    if (status == SLUICE_AGAIN) throw Error(status, "too many open operations; wait for one");
    check(status);
    return Request(session_, request);
  }
  void check(sluice_status status) {
    if (status == SLUICE_OK) return;
    std::array<char, 2048> reason{};
    static_cast<void>(sluice_session_error(session_, reason.data(), reason.size()));
    throw Error(status, reason.data());
  }
  sluice_session* session_ = nullptr;
};

inline void Request::check(sluice_status status) {
  sluice_session* const session = std::exchange(session_, nullptr);
  if (status == SLUICE_OK) return;
  std::array<char, 2048> reason{};
  static_cast<void>(sluice_session_error(session, reason.data(), reason.size()));
  throw Error(status, reason.data());
}

inline bool Request::test() {
  if (session_ == nullptr) return true;
  int done = 0;
  const sluice_status status = sluice_test(session_, request_, &done);
  if (status == SLUICE_OK && done == 0) return false;
  check(status);
  return true;
}

inline void Request::wait() {
  if (session_ != nullptr) check(sluice_wait(session_, request_, -1));
}

inline bool Request::wait_for(int timeout_ms) {
  if (session_ == nullptr) return true;
  const sluice_status status = sluice_wait(session_, request_, timeout_ms);
  if (status == SLUICE_TIMEOUT) {
    int done = 0;
    const sluice_status test_status = sluice_test(session_, request_, &done);
    if (test_status == SLUICE_OK && done == 0) return false;
    // SLUICE_INVALID_ARGUMENT: sluice_wait has reported the operation's end, so its status counts.
    check(test_status == SLUICE_INVALID_ARGUMENT ? status : test_status);
    return true;
  }
  check(status);
  return true;
}

}  // namespace sluice::client
