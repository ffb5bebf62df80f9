// Class Connection is one accepted connection while the control loop serves it.
//
// Every connection starts with the handshake. After JOIN it is the rank's control connection and passes
// messages to the session. After ATTACH it is a lane connection: its socket goes to the lane. Control thread
// only, except wants_pair().
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "reducer/control/admission_policy.h"
#include "reducer/control/connection/frame_connection.h"
#include "reducer/control/job_budgets.h"
#include "transport/rdma/pairing.h"
#include "wire/messages.h"
#include "wire/sha256.h"

namespace sluice::reducer {

class Session;
struct GatherGroup;
using GatheredFrames = std::vector<std::shared_ptr<const std::vector<std::byte>>>;

class Connection final : public FrameConnection {
 public:
  Connection(ControlLoop& loop, asio::ip::tcp::socket socket, std::string peer);

  // Starts reading, as one of the unproved connections.
  void start();
  // Sends REFUSED with this error, then finishes.
  void refuse(const Error& error, uint32_t rank = wire::kNoRank);
  // A newer connection replaces this one: closes at once without notifying the session.
  void supersede();
  // Answers a GATHER. The client may send the GATHER of another round, or close.
  // In a turn of its own, because it has much to copy.
  void send_gathered(std::shared_ptr<const GatheredFrames> frames, std::shared_ptr<GatherGroup> group);
  // `rank` has left the group: the client gets no answer any more.
  void abort_gather(const Error& why, uint32_t rank);
  // With whom the client has finished a round; null: with nobody yet.
  [[nodiscard]] const std::shared_ptr<GatherGroup>& gather_group() const noexcept { return gather_group_; }
  // Closes at once for a newer connection, since the client has proved nothing yet. It may still read `why`.
  void displace(const std::string& why);
  // From now on messages go to `session`, as those of `rank`.
  void bind(Session& session, uint32_t rank, uint32_t handle);
  void check_deadline(Nanos now) override;
  [[nodiscard]] Nanos next_check() const noexcept override;

  [[nodiscard]] bool is_control() const noexcept { return state_ == State::kControl; }
  // The place that its token's key has in the key file now. kDropped: it stays, but cannot connect again.
  enum class PoolKey : uint8_t { kNone, kFirst, kOld, kDropped };
  [[nodiscard]] PoolKey pool_key() const;

  // Any thread.
  [[nodiscard]] bool wants_pair() const noexcept { return wants_pair_.load(std::memory_order_relaxed); }
  // The result of QueuePairFactory::create().
  void on_pair_created(Result<transport::rdma::PairOffer> created) noexcept;

  [[nodiscard]] std::shared_ptr<Connection> shared_self() {
    return std::static_pointer_cast<Connection>(shared_from_this());
  }

 private:
  // kSecuring: WELCOME and the TLS handshake. kPairing: the lane is attached, RDMA is being negotiated.
  // kAnswering: the status is being made.
  enum class State : uint8_t {
    kHello,
    kSecuring,
    kRequest,
    kAnswering,
    kPairing,
    kControl,
    kGather,
    kHandedOver
  };

  void on_frame() override;
  [[nodiscard]] bool expects_frame() const noexcept override;
  void on_all_written() override;
  void on_finishing() noexcept override;
  void on_closing() noexcept override;
  void on_closed(Errc reason) override;
  void on_control();
  void report_unauthenticated(const std::string& why);
  [[nodiscard]] bool has_left_unproved(Errc reason) const noexcept;
  template <typename M>
  void pass_to_session(void (Session::*handler)(Connection&, uint32_t, const M&));

  // ---- connection_handshake.cc ----
  void on_hello();
  void start_tls();
  void on_request();
  void on_join();
  void on_resume();
  void on_attach();
  void on_gather();
  void on_store();
  void on_drain();
  void answer_status(std::function<void()> then);
  template <typename Query>
  [[nodiscard]] bool accept_query();
  // The session that an ATTACH names; null after a refusal.
  [[nodiscard]] Session* find_session_of_attach(wire::Attach& attach);
  // Why the client is refused: its mac is wrong, or its job has too many connections. Without an error the
  // connection is none of the unproved ones any more, and counts for its job.
  [[nodiscard]] std::optional<Error> check_proof(const wire::Mac& mac, uint64_t view_hash);
  void hand_over_to_lane();

  // ---- connection_pairing.cc ----
  void on_pair();
  void on_paired();
  void on_pipe_offered(const wire::Pair& request);
  void offer_pair(Result<transport::rdma::PairOffer> created);
  void drop_pair() noexcept;
  void continue_on_tcp(const std::string& reason);
  void refuse_tcp(const std::string& reason);

  State state_ = State::kHello;
  uint64_t unproved_number_ = 0;
  JobBudgets::Share share_;  // of its job's connections
  wire::Hello hello_;
  wire::Welcome welcome_;
  std::optional<Credential> credential_;  // of the client; nothing: no authentication

  std::shared_ptr<GatherGroup> gather_group_;

  // Control connection:
  Session* session_ = nullptr;
  uint32_t rank_ = wire::kNoRank;

  // Lane connection:
  bool hand_over_when_written_ = false;
  bool is_creating_pair_ = false;                          // on another thread; nothing is read meanwhile
  std::atomic<bool> wants_pair_{false};                    // read by that thread before it starts
  std::unique_ptr<transport::tcp::AttachedChannel> pair_;  // offered and joined; PAIRED has not arrived
  std::shared_ptr<void> pair_reservation_;
};

}  // namespace sluice::reducer
