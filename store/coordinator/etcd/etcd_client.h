// Class EtcdClient sends requests to an etcd cluster over the JSON gateway of its API v3, and changes to
// another server when one fails. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "store/coordinator/etcd/etcd_endpoint.h"
#include "store/coordinator/etcd/etcd_options.h"

namespace sluice::store::etcd {

class EtcdClient {
 public:
  // kOnce: the request changes something, so it is not sent again if a server may have carried it out.
  enum class Repeat : uint8_t { kSafe, kOnce };
  enum class Verdict : uint8_t { kDone, kNotFound, kCompacted };
  struct Answer {
    Verdict verdict = Verdict::kDone;
    nlohmann::json body;  // an object
    std::string server;   // "etcd at 127.0.0.1:2379"
  };

  explicit EtcdClient(const EtcdOptions& options);

  // Sends `body` to `path`, such as "/v3/kv/range". A stream's first message counts as the answer. Blocks at
  // most for the request timeout. The error names each server that was tried; codes:
  // store/coordinator/coordinator.h.
  [[nodiscard]] Result<Answer> call(const std::string& path, const nlohmann::json& body, Repeat repeat);

 private:
  struct Failure {
    Error error;
    bool may_be_done = false;  // the server may have received the request
  };
  [[nodiscard]] tl::expected<Answer, Failure> try_one(EtcdEndpoint& endpoint, const std::string& path,
                                                      const std::string& text, Nanos connect_by,
                                                      Nanos answer_by, Repeat repeat);
  // Sends later requests to the next server.
  void report_failure(const EtcdEndpoint& endpoint) noexcept;

  const Nanos request_timeout_;
  std::vector<std::unique_ptr<EtcdEndpoint>> endpoints_;
  std::atomic<size_t> current_{0};
};

}  // namespace sluice::store::etcd
