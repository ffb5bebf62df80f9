// What a session does about losses (PROTOCOL.md section 11), between the parts that know one thing each: the
// keeper hears control connections, the driver loses lane connections, menders open them again, the follower
// knows what may be agreed to, the exchange restarts.
//
// One thread of its own, started with the first event: a session to which nothing happens has none.
// All state is that thread's; others post events. What may last is done elsewhere, so that a second loss is
// heard during the first: connections are opened by menders, reducers that come up are joined by a thread
// each, and looked for by PoolWatch.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/units.h"
#include "gpu_client/engine/driver.h"
#include "gpu_client/engine/exchange.h"
#include "gpu_client/engine/join.h"
#include "gpu_client/engine/keeper.h"
#include "gpu_client/engine/membership.h"
#include "gpu_client/engine/mender.h"
#include "gpu_client/engine/pool_watch.h"
#include "gpu_client/engine/progress.h"
#include "gpu_client/engine/session_log.h"
#include "gpu_client/engine/view_follower.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::engine {

struct SurvivalCounts {
  // Stalls below 10 ms, 100 ms, 1 s, 10 s, and longer ones.
  static constexpr std::array<Nanos, 4> kBounds = {10 * kMillisecond, 100 * kMillisecond, kSecond,
                                                   10 * kSecond};
  uint64_t connections_resumed = 0;
  uint64_t view_changes = 0;
  uint32_t reducers_lost = 0;  // left because this rank had lost them: not drained, not off the list
  uint64_t stalled_ns = 0;     // from the first word of a loss to the restart or the last connection resumed
  uint64_t longest_stall_ns = 0;
  std::array<uint32_t, kBounds.size() + 1> stalls{};
};

class Survival final : Mender::Listener, PoolWatch::Listener {
 public:
  // Bad frames that a reducer's connection may be closed for in a row, with fewer than kGoodFrames on a
  // connection between two.
  static constexpr unsigned kMaxBadFrames = 16;
  static constexpr uint64_t kGoodFrames = 1024;

  class Listener {
   public:
    // Survival's thread, at most once: no reducer is left, or one broke the rules of a view change.
    virtual void on_not_survived(const Error& why) noexcept = 0;
    // In its place where the system has no thread for Survival: from within whatever posted the first event,
    // the keeper's calls too, so the keeper must not be called.
    virtual void on_no_thread(const Error& why) noexcept = 0;

   protected:
    ~Listener() = default;
  };

  // What it works on. All outlive stop().
  struct Session {
    Keeper& keeper;
    Driver& driver;
    Exchange& exchange;
    transport::tcp::TcpContext& context;
    Progress& progress;
  };

  // Before the lanes of the membership are handed to links, in their order. Events are kept until begin().
  Survival(const JoinOptions& options, const Membership& membership, Session session, Listener& listener);
  ~Survival();
  Survival(const Survival&) = delete;

  // `kept`: the keeper's name of the session.
  void begin(uint64_t kept);

  // Any thread; cheap but for memory.
  void link_lost(uint32_t link, Errc reason, uint64_t frames_on_it, const char* words);
  void link_resumed(uint32_t link);
  void peer_gone(size_t peer, Errc code, std::string text);
  void view_query(size_t peer, wire::ViewQuery query);
  void view_commit(size_t peer, const wire::ViewCommit& commit);
  void drain_notice(size_t peer, const wire::DrainNotice& notice);

  // What the list of reducers is now, or, with nothing, that its file is to be read now. Of rank 0 alone: the
  // others hear of it by view changes, and their lists count for nothing. Any thread.
  [[nodiscard]] Result<void> set_reducers(std::optional<config::Pool> pool);

  // Ends what is under way and its threads. Nothing of the session is touched after it, but what was posted
  // to the driver before may still be done there. Not from the listener.
  void stop() noexcept;

  [[nodiscard]] SurvivalCounts counts() const noexcept;

 private:
  // One reducer of the roster, by the keeper's index.
  struct Post;
  // A reducer that is being joined on VIEW_QUERY, by a thread.
  struct Joining;

  // survival.cc: the thread, and what it decides
  void post(std::function<void()> event);
  void start_if_due();
  void run();
  void on_link_lost(uint32_t link, Errc reason, uint64_t frames, const std::string& words);
  void on_peer_gone(size_t peer, Errc code, const std::string& text);
  void on_query(size_t peer, const wire::ViewQuery& query);
  void on_commit(size_t peer, const wire::ViewCommit& commit);
  void on_drain_notice(Post& p);
  void ask_for_drains();
  void suspect(Post& p, Errc code, const std::string& why);
  void give_up(const Error& why);
  void begin_stall();
  void end_stall(const char* what);
  [[nodiscard]] bool mended() const;

  void on_control_mended(uint64_t reducer, ControlLink link) noexcept override;
  void on_lane_mended(uint64_t reducer, uint32_t lane, transport::tcp::Socket socket) noexcept override;
  void on_reducer_gone(uint64_t reducer, Errc code, std::string text) noexcept override;
  void on_reducer_found(const config::Endpoint& address, Seat seat) override;
  void on_unlisted(std::vector<uint64_t> reducers) override;

  // survival_steps.cc: what it has done
  [[nodiscard]] bool on_driver(std::function<void()> work);
  void let_go(Post& p);
  [[nodiscard]] bool out_of_reach(const Post& p) const;
  void mend(Post& p, bool control, uint64_t lanes);
  void take_control(Post& p, ControlLink link);
  void give_link(uint32_t index, transport::tcp::Socket& socket);
  void take_lane(const Post& p, uint32_t lane, transport::tcp::Socket socket);
  void try_restart();
  [[nodiscard]] std::vector<uint32_t> placement();
  [[nodiscard]] Post* post_of(uint64_t reducer) noexcept;  // null: never joined here
  void tell_watch(Result<void> told);

  // survival_newcomers.cc: reducers that come, and that the list has no more
  void take_found(const config::Endpoint& address, Seat seat);
  void join(const ViewFollower::Newcomer& newcomer);
  void start_joining(const ViewFollower::Newcomer& newcomer);
  void on_joined(uint64_t reducer, Result<Seat> seat);
  [[nodiscard]] bool take_in(uint64_t reducer, Seat& seat);
  void cannot_join(uint64_t reducer, const std::string& why);
  void stop_joining(uint64_t reducer);
  void hurry_joins();
  void end_late_joins();
  void drop_unlisted(const std::vector<uint64_t>& reducers);
  void answer_query();
  [[nodiscard]] Nanos join_time() const noexcept;

  const JoinOptions options_;
  const SessionLog log_;
  const uint64_t incarnation_;
  const wire::View first_view_;
  const uint64_t view_hash_;  // its hash
  const Session session_;
  uint64_t kept_ = 0;
  Listener& listener_;
  ViewFollower follower_;
  std::deque<Post> posts_;
  std::map<uint64_t, Seat> seats_;  // that this rank, which looks for all, has taken before it was asked to
  std::vector<Joining> joinings_;
  size_t asked_by_ = 0;  // who asked last, by VIEW_QUERY
  bool restart_due_ = false;
  bool given_up_ = false;
  Nanos stalled_since_ = 0;  // 0: not
  std::string stall_reason_;

  std::mutex mutex_;  // of the events and what follows
  std::condition_variable changed_;
  std::deque<std::function<void()>> events_;
  bool begun_ = false, stopping_ = false;
  std::thread thread_;
  std::unique_ptr<PoolWatch> watch_;  // rank 0's

  std::atomic<uint64_t> resumed_{0}, view_changes_{0}, stalled_ns_{0}, longest_stall_ns_{0};
  std::atomic<uint32_t> reducers_lost_{0};
  std::array<std::atomic<uint32_t>, SurvivalCounts::kBounds.size() + 1> stalls_{};
};

}  // namespace sluice::engine
