// Sluice client for C++17 and later: owners, exceptions and element types over sluice.h, which is the manual.
// Header only.
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

// what() is the reason in words, status() the code.
class Error : public std::runtime_error {
 public:
  Error(sluice_status status, const std::string& words)
      : std::runtime_error(words.empty() ? sluice_status_string(status) : words), status_(status) {}
  [[nodiscard]] sluice_status status() const noexcept { return status_; }

 private:
  sluice_status status_;
};

// The wire type of a C++ element type. Types without a C++ name of their own (f16, bf16, fp8) go through the
// functions that take a sluice_dtype.
template <typename T>
[[nodiscard]] constexpr sluice_dtype dtype_of() noexcept {
  static_assert(std::is_arithmetic_v<T> && !std::is_same_v<std::remove_cv_t<T>, bool>, "not an element type");
  static_assert(std::is_integral_v<T> || sizeof(T) == 4 || sizeof(T) == 8, "no wire type of this width");
  static_assert(sizeof(T) != 2, "there are no 16 bit integers on the wire");
  if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? SLUICE_F32 : SLUICE_F64;
  } else if constexpr (std::is_signed_v<T>) {
    return sizeof(T) == 1 ? SLUICE_I8 : sizeof(T) == 4 ? SLUICE_I32 : SLUICE_I64;
  } else {
    return sizeof(T) == 1 ? SLUICE_U8 : sizeof(T) == 4 ? SLUICE_U32 : SLUICE_U64;
  }
}

// sluice_options with strings that own their text. Empty strings stand for NULL. `raw` holds everything else.
struct Options {
  Options() noexcept { sluice_options_init_sized(&raw, sizeof raw); }
  std::string reducers;
  std::array<std::uint8_t, 16> session_id{};
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::string job, key_file, token_file, interface_address;
  std::string tenant;  // empty: SLUICE_TENANT counts
  sluice_options raw{};
};

class Session;
class Streams;

// An operation under way. Destroying one that has not ended waits for it: its buffers are in use until then.
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

  // True when it has ended; then it is over. Throws Error when it failed.
  [[nodiscard]] bool test();
  void wait();
  // False when the time (milliseconds) was not enough.
  [[nodiscard]] bool wait_for(int timeout_ms);

 private:
  friend class Session;
  friend class Streams;  // streams.hpp
  Request(sluice_session* session, sluice_request request) noexcept : session_(session), request_(request) {}
  void finish() noexcept {
    if (session_ != nullptr) static_cast<void>(sluice_wait(std::exchange(session_, nullptr), request_, -1));
  }
  void check(sluice_status status);
  sluice_session* session_ = nullptr;  // null: over
  sluice_request request_ = 0;
};

class Session {
 public:
  // Joins; throws Error. Blocks as sluice_session_create does.
  explicit Session(const Options& options) {
    sluice_options o = options.raw;
    const auto text = [](const std::string& s) { return s.empty() ? nullptr : s.c_str(); };
    o.reducers = options.reducers.c_str();
    std::memcpy(o.session_id, options.session_id.data(), options.session_id.size());
    o.rank = options.rank;
    o.ranks = options.ranks;
    o.job = text(options.job);
    o.key_file = text(options.key_file);
    o.token_file = text(options.token_file);
    o.interface_address = text(options.interface_address);
    if (!options.tenant.empty()) o.tenant = options.tenant.c_str();
    std::array<char, 2048> words{};
    const sluice_status status = sluice_session_create(&o, &session_, words.data(), words.size());
    if (status != SLUICE_OK) throw Error(status, words.data());
  }
  Session(Session&& other) noexcept : session_(std::exchange(other.session_, nullptr)) {}
  Session& operator=(Session&& other) noexcept {
    if (this != &other) {
      static_cast<void>(sluice_session_close(session_));
      session_ = std::exchange(other.session_, nullptr);
    }
    return *this;
  }
  // Closes. All requests must be over. A failure to leave in order goes unnoticed: call close() to see it.
  ~Session() { static_cast<void>(sluice_session_close(session_)); }

  // Nothing when too many operations are open: end one first.
  [[nodiscard]] std::optional<Request> try_allreduce_async(const void* send, void* recv, std::size_t count,
                                                           sluice_dtype dtype, sluice_op op = SLUICE_SUM) {
    sluice_request request = 0;
    const sluice_status status = sluice_allreduce_async(session_, send, recv, count, dtype, op, &request);
    if (status == SLUICE_AGAIN) return std::nullopt;
    check(status);
    return Request(session_, request);
  }
  template <typename T>
  [[nodiscard]] Request allreduce_async(const T* send, T* recv, std::size_t count,
                                        sluice_op op = SLUICE_SUM) {
    auto request = try_allreduce_async(send, recv, count, dtype_of<T>(), op);
    if (!request) throw Error(SLUICE_AGAIN, "too many operations are open");
    return std::move(*request);
  }
  template <typename T>
  void allreduce(const T* send, T* recv, std::size_t count, sluice_op op = SLUICE_SUM) {
    allreduce(send, recv, count, dtype_of<T>(), op);
  }
  void allreduce(const void* send, void* recv, std::size_t count, sluice_dtype dtype, sluice_op op) {
    check(sluice_allreduce(session_, send, recv, count, dtype, op));
  }

  // One turn when the session has no thread of its own.
  void progress() { check(sluice_progress(session_)); }
  [[nodiscard]] sluice_stats stats() {
    sluice_stats s{};
    s.struct_size = sizeof s;
    check(sluice_session_stats(session_, &s));
    return s;
  }
  // Another list of reducers, "host:port,..." or "@FILE"; empty: the file is read again now. Rank 0's counts.
  void set_reducers(const std::string& reducers = {}) {
    std::array<char, 2048> words{};
    const sluice_status status = sluice_session_set_reducers(
        session_, reducers.empty() ? nullptr : reducers.c_str(), words.data(), words.size());
    if (status != SLUICE_OK) throw Error(status, words.data());
  }
  // Leaves and closes; throws Error when that did not go in order. The session is over either way.
  void close() {
    const sluice_status status = sluice_session_close(std::exchange(session_, nullptr));
    if (status != SLUICE_OK) throw Error(status, std::string("close: ") + sluice_status_string(status));
  }
  [[nodiscard]] sluice_session* get() const noexcept { return session_; }

 private:
  void check(sluice_status status) {
    if (status == SLUICE_OK) return;
    std::array<char, 2048> words{};
    static_cast<void>(sluice_session_error(session_, words.data(), words.size()));
    throw Error(status, words.data());
  }
  sluice_session* session_ = nullptr;
};

inline void Request::check(sluice_status status) {
  sluice_session* const session = std::exchange(session_, nullptr);
  if (status == SLUICE_OK) return;
  std::array<char, 2048> words{};
  static_cast<void>(sluice_session_error(session, words.data(), words.size()));
  throw Error(status, words.data());
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
    const sluice_status now = sluice_test(session_, request_, &done);
    if (now == SLUICE_OK && done == 0) return false;
    check(now == SLUICE_INVALID_ARGUMENT ? status : now);  // the former: sluice_wait has reported its end
    return true;
  }
  check(status);
  return true;
}

}  // namespace sluice::client
