#include "tests/fuzz/local_rails.h"

#include <algorithm>
#include <cstring>

#include "reducer/kernels/fold.h"

namespace sluice::fuzz {

class LocalRails::Member final : public engine::CollectiveSession {
 public:
  Member(LocalRails& rails, OfHost& host) : rails_(rails), host_(host) {}

  Status start(engine::OpRequest request, uint64_t& handle) override {
    if (rails_.ended_ != Errc::kOk) return rails_.ended_;
    if (host_.open.size() == kMostOpen) return Errc::kExhausted;
    Bytes piece_of(request.piece_of.begin(), request.piece_of.end());
    request.piece_of = {};
    host_.open.push_back({request, std::move(piece_of)});
    handle = host_.done + host_.open.size();
    return Errc::kOk;
  }
  Status test(uint64_t handle, bool& done) override {
    done = handle <= host_.done || rails_.ended_ != Errc::kOk;
    return handle <= host_.done ? Errc::kOk : rails_.ended_;
  }
  Status wait(uint64_t /*handle*/, Nanos /*deadline*/) override { return Errc::kTimeout; }
  void progress() noexcept override {}
  [[nodiscard]] Rank rank() const noexcept override { return 0; }
  [[nodiscard]] uint32_t ranks() const noexcept override { return 0; }
  [[nodiscard]] bool accepts_blocks() const noexcept override { return true; }
  [[nodiscard]] Sums sums() const noexcept override { return Sums::kReducers; }
  [[nodiscard]] Nanos linger() const noexcept override { return 0; }
  [[nodiscard]] Errc code() const noexcept override { return rails_.ended_; }
  [[nodiscard]] std::string reason() const override { return {}; }
  [[nodiscard]] Rank ended_by() const noexcept override { return wire::kNoRank; }
  [[nodiscard]] engine::SessionStats stats() override { return {}; }
  [[nodiscard]] engine::FindingQueue& findings() noexcept override { return findings_; }
  [[nodiscard]] engine::SessionLog log() const override { return {{}, 0}; }
  [[nodiscard]] engine::CollectiveObserver* trace() const noexcept override { return nullptr; }
  Result<void> set_reducers(std::optional<config::Pool> /*pool*/) override { return {}; }
  [[nodiscard]] Result<void> may_set_reducers() const override { return {}; }
  [[nodiscard]] std::vector<config::Endpoint> usable_reducers() const override { return {}; }
  Result<void> register_memory(std::span<std::byte> /*bytes*/) override { return {}; }
  Result<void> register_device_memory(std::span<std::byte> /*bytes*/,
                                      const transport::rdma::DmaBuf& /*dmabuf*/) override {
    return {};
  }
  [[nodiscard]] bool is_device_memory(const std::byte* /*at*/, uint64_t /*size*/) const override {
    return false;
  }
  Status deregister_memory(std::span<std::byte> /*bytes*/) override { return Errc::kOk; }
  Status close(Nanos /*deadline*/) override { return Errc::kOk; }
  void abort(Errc /*code*/, const std::string& /*reason*/) noexcept override {}
  void abort_for_caller(const std::string& /*reason*/) noexcept override {}

 private:
  LocalRails& rails_;
  OfHost& host_;
  engine::FindingQueue findings_;
};

LocalRails::LocalRails(uint32_t rails, uint32_t hosts) : rails_(rails, std::vector<OfHost>(hosts)) {}
LocalRails::~LocalRails() = default;

std::unique_ptr<engine::CollectiveSession> LocalRails::member(uint32_t rail, uint32_t host) {
  return std::make_unique<Member>(*this, rails_[rail][host]);
}

bool LocalRails::step(uint32_t rail) {
  std::vector<OfHost>& hosts = rails_[rail];
  if (ended_ != Errc::kOk || std::ranges::any_of(hosts, [](const OfHost& h) { return h.open.empty(); }))
    return false;
  const Operation& first = hosts[0].open.front();
  for (const OfHost& host : hosts) {
    const Operation& other = host.open.front();
    const engine::OpRequest &a = first.request, &b = other.request;
    if (a.kind != b.kind || a.dtype != b.dtype || a.op != b.op || a.count != b.count || a.root != b.root ||
        first.piece_of != other.piece_of)
      ended_ = Errc::kMismatch;
  }
  if (ended_ == Errc::kOk) {
    compute(hosts);
    for (OfHost& host : hosts) ++host.done;
  }
  for (OfHost& host : hosts) {
    engine::EndListener* const listener = host.open.front().request.listener;
    if (ended_ == Errc::kOk) host.open.pop_front();
    listener->on_operation_ended();
  }
  return true;
}

void LocalRails::compute(std::vector<OfHost>& hosts) const {
  const engine::OpRequest& r = hosts[0].open.front().request;
  const size_t bytes = r.count * wire::size_of(r.dtype);
  Bytes result(bytes);
  if (r.kind == wire::Kind::kAllGather) {
    const size_t part = bytes / hosts.size();
    for (size_t host = 0; host < hosts.size(); ++host)
      std::memcpy(result.data() + host * part, hosts[host].open.front().request.send, part);
  } else if (wire::copies(r.kind)) {
    std::memcpy(result.data(), hosts[r.root].open.front().request.send, bytes);
  } else {
    std::vector<const std::byte*> sources;
    for (const OfHost& host : hosts) sources.push_back(host.open.front().request.send);
    kernels::find_fold(r.dtype, r.op, kernels::Stage::kWhole)(sources, r.count, 1, result.data());
  }
  for (uint32_t host = 0; host < hosts.size(); ++host) {
    std::byte* const recv = hosts[host].open.front().request.recv;
    const size_t part = bytes / hosts.size();
    if (r.kind == wire::Kind::kReduceScatter) {
      std::memcpy(recv, result.data() + host * part, part);
    } else if (r.kind != wire::Kind::kReduce || r.root == host) {
      std::memcpy(recv, result.data(), bytes);
    }
  }
}

}  // namespace sluice::fuzz
