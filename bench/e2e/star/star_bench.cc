#include "bench/e2e/star/star_bench.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <vector>

#include "bench/e2e/pool/local_pool.h"
#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/process/process_group.h"
#include "bench/e2e/report/machine_facts.h"
#include "bench/e2e/report/output.h"
#include "bench/e2e/report/quantiles.h"
#include "bench/e2e/star/star_client.h"
#include "bench/e2e/star/star_server.h"
#include "bench/e2e/workload/pattern.h"
#include "config/json.h"
#include "config/sizes.h"
#include "core/arena.h"
#include "core/clock.h"

namespace sluice::bench {
namespace {

constexpr Nanos kWorkerStartTimeout = 60 * kSecond;
constexpr Nanos kRoundTimeout = 120 * kSecond;
constexpr Nanos kStarStopTimeout = 10 * kSecond;

// The commands of the bench to a worker, on its stdin.
constexpr char kStarRound = 's';     // exchanges with the star; answer: "done"
constexpr char kReducerRound = 'r';  // runs a sum allreduce of f32; answer: "done"
constexpr char kCheckRound = 'c';    // answer: the number of wrong elements of the last allreduce

// Measurement of one server in one round.
struct RoundCost {
  double cpu_seconds_per_gb = 0;
  double gb_per_second = 0;  // received from all workers; the server sends as much
};

double process_cpu_seconds(pid_t pid) {
  clockid_t clock{};
  timespec t{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
    throw Failure(kExitFailure, "cannot read the CPU clock of a server process");
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Returns the share of user time in the CPU time of a process. The kernel counts in ticks of 1/100 s, so the
// share is meaningful only for a whole run.
double user_share(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t name_end = text.rfind(')');  // field 2, the program name, may contain spaces and parentheses
  double user = 0;
  double system = 0;
  if (name_end == std::string::npos ||
      std::sscanf(text.c_str() + name_end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lf %lf", &user,
                  &system) != 2 ||
      user + system == 0) {
    return 0;
  }
  return user / (user + system);
}

// Class StarBench starts the servers and workers and runs the rounds.
class StarBench {
 public:
  explicit StarBench(const StarBenchOptions& options) : options_(options) {}

  int run() {
    try {
      start();
      return measure();
    } catch (const Failure&) {
      // A failure after a signal is a consequence of the signal.
      if (processes_.interrupted() == 0) throw;
    }
    processes_.stop_all(kStarStopTimeout);
    return 128 + processes_.interrupted();
  }

 private:
  void start() {
    start_servers();
    for (uint32_t rank = 0; rank < options_.workers; ++rank) start_worker(rank);
    for (size_t worker : workers_) expect_line(worker, "ready", kWorkerStartTimeout);
  }

  int measure() {
    machine_ = machine_facts(pool_.list());
    print_flushed(text_of(machine_) + header());
    run_round(kStarRound, star_.child);  // warms up buffers and congestion windows
    run_round(kReducerRound, reducer_);
    for (uint32_t round = 0; round < options_.rounds; ++round) {
      RoundCost star;
      RoundCost reducer;
      if (round % 2 == 0) star = run_round(kStarRound, star_.child);
      reducer = run_round(kReducerRound, reducer_);
      wrong_ += count_wrong();
      if (round % 2 != 0) star = run_round(kStarRound, star_.child);
      stars_.push_back(star);
      reducers_.push_back(reducer);
      print_flushed(fmt::format("{:>7}  {:>9.4f}  {:>7.2f}  {:>9.4f}  {:>7.2f}  {:>6.3f}\n", round,
                                star.cpu_seconds_per_gb, star.gb_per_second, reducer.cpu_seconds_per_gb,
                                reducer.gb_per_second, reducer.cpu_seconds_per_gb / star.cpu_seconds_per_gb));
    }
    return finish();
  }

  void start_servers() {
    // No spinning, because the benchmark measures the CPU time of the server.
    star_ = value_or_fail(start_star(processes_, 0), kExitFailure);
    pool_ = value_or_fail(
        LocalPool::start(
            processes_,
            {.reducers = 1, .lanes = 1, .payload_crc = options_.payload_crc, .health = options_.health}),
        kExitFailure);
    reducer_ = pool_.children().front();
  }

  void start_worker(uint32_t rank) {
    ChildSpec spec{.name = fmt::format("worker {}", rank), .arguments = {}, .piped = true};
    spec.arguments = {"--log-level", "warn",
                      "bench",       "star-worker",
                      "--rank",      std::to_string(rank),
                      "--workers",   std::to_string(options_.workers),
                      "--session",   session_,
                      "--connect",   pool_.list(),
                      "--lanes",     "1",
                      "--star-port", std::to_string(star_.port),
                      "--size",      std::to_string(options_.bytes),
                      "--slot",      std::to_string(options_.chunk_bytes),
                      "--window",    std::to_string(options_.window_bytes),
                      "--threads",   std::to_string(options_.progress_threads)};
    spec.arguments.insert(spec.arguments.end(), {"--ranks-per-host", "1"});  // whatever the environment says
    if (!options_.payload_crc) spec.arguments.emplace_back("--no-crc");
    workers_.push_back(value_or_fail(processes_.start(spec), kExitFailure));
    lines_.emplace_back();
  }

  // Returns the next line of a worker. Throws Failure on timeout and when the worker ends.
  std::string read_line(size_t worker, Nanos timeout) {
    std::string& pending = lines_[worker - workers_.front()];
    const Nanos deadline = monotonic_now() + timeout;
    for (;;) {
      if (const size_t end = pending.find('\n'); end != std::string::npos) {
        std::string line = pending.substr(0, end);
        pending.erase(0, end + 1);
        return line;
      }
      if (!processes_.wait_readable(processes_.output(worker), deadline))
        throw Failure(kExitFailure, fmt::format("a worker did not answer within {} s", timeout / kSecond));
      char buffer[256];
      const ssize_t n = read(processes_.output(worker), buffer, sizeof buffer);
      if (n <= 0) {
        const auto ended = processes_.wait(monotonic_now() + kSecond);
        throw Failure(kExitFailure, ended ? ended->text() : std::string("a worker closed its output"));
      }
      pending.append(buffer, static_cast<size_t>(n));
    }
  }

  void expect_line(size_t worker, const std::string& expected, Nanos timeout) {
    if (const std::string line = read_line(worker, timeout); line != expected)
      throw Failure(kExitFailure, fmt::format("a worker answered \"{}\", expected \"{}\"", line, expected));
  }

  void send_command(char letter) {
    for (size_t worker : workers_) {
      if (write(processes_.input(worker), &letter, 1) != 1)
        throw Failure(kExitFailure, "cannot send a command to a worker: its stdin is closed");
    }
  }

  RoundCost run_round(char letter, size_t server) {
    const pid_t pid = processes_.pid(server);
    const double cpu = process_cpu_seconds(pid);
    const Nanos begin = monotonic_now();
    send_command(letter);
    for (size_t worker : workers_) expect_line(worker, "done", kRoundTimeout);
    const double gb = 1e-9 * static_cast<double>(options_.bytes) * options_.workers;
    return {.cpu_seconds_per_gb = (process_cpu_seconds(pid) - cpu) / gb,
            .gb_per_second = gb / (1e-9 * static_cast<double>(monotonic_now() - begin))};
  }

  uint64_t count_wrong() {
    send_command(kCheckRound);
    uint64_t wrong = 0;
    for (size_t worker : workers_) wrong += std::stoull(read_line(worker, kRoundTimeout));
    return wrong;
  }

  std::string header() const {
    return fmt::format(
        "# sluice bench star: {} workers, {} each per round, chunks of {}, window {}, one server thread, "
        "payload CRC {}\n"
        "# CPU: user and system seconds of the server process per 1e9 bytes received (and sent)\n"
        "#                star               reducer\n"
        "# round   CPU s/GB     GB/s   CPU s/GB     GB/s   ratio\n",
        options_.workers, config::size_text(options_.bytes), config::size_text(options_.chunk_bytes),
        config::size_text(options_.window_bytes), options_.payload_crc ? "on" : "off");
  }

  std::string csv() const {
    std::string text =
        "round,star_cpu_seconds_per_gb,star_gb_per_second,reducer_cpu_seconds_per_gb,reducer_gb_per_second\n";
    for (size_t i = 0; i < stars_.size(); ++i) {
      text += fmt::format("{},{},{},{},{}\n", i, stars_[i].cpu_seconds_per_gb, stars_[i].gb_per_second,
                          reducers_[i].cpu_seconds_per_gb, reducers_[i].gb_per_second);
    }
    return text;
  }

  int finish() {
    const double star_user = user_share(processes_.pid(star_.child));
    const double reducer_user = user_share(processes_.pid(reducer_));
    std::vector<double> star, reducer, ratio, star_rate, reducer_rate;
    for (size_t i = 0; i < stars_.size(); ++i) {
      star.push_back(stars_[i].cpu_seconds_per_gb);
      reducer.push_back(reducers_[i].cpu_seconds_per_gb);
      ratio.push_back(reducers_[i].cpu_seconds_per_gb / stars_[i].cpu_seconds_per_gb);
      star_rate.push_back(stars_[i].gb_per_second);
      reducer_rate.push_back(reducers_[i].gb_per_second);
    }
    print_flushed(
        fmt::format("#  median  {:>8.4f}  {:>7.2f}  {:>9.4f}  {:>7.2f}  {:>6.3f}\n"
                    "# user share of CPU time: star {:.0f} %, reducer {:.0f} %\n"
                    "# Wrong values         : {} {}\n"
                    "# Reducer over star    : {:.3f} (median of {} rounds)\n",
                    median_of(star), median_of(star_rate), median_of(reducer), median_of(reducer_rate),
                    median_of(ratio), 100 * star_user, 100 * reducer_user, wrong_,
                    wrong_ == 0 ? "OK" : "FAILED", median_of(ratio), ratio.size()));
    if (!options_.json.empty()) {
      nlohmann::ordered_json json = {
          {"schema", "sluice.bench.star/1"},     {"machine", to_json(machine_)},
          {"workers", options_.workers},         {"bytes", options_.bytes},
          {"chunk_bytes", options_.chunk_bytes}, {"window_bytes", options_.window_bytes},
          {"payload_crc", options_.payload_crc}, {"progress_threads", options_.progress_threads}};
      json["star_cpu_seconds_per_gb"] = star;
      json["reducer_cpu_seconds_per_gb"] = reducer;
      json["star_gb_per_second"] = star_rate;
      json["reducer_gb_per_second"] = reducer_rate;
      json["star_user_share"] = star_user;
      json["reducer_user_share"] = reducer_user;
      json["median_ratio"] = median_of(ratio);
      json["nwrong"] = wrong_;
      write_result_file(options_.json, config::json_text(json, 2) + "\n");
    }
    if (!options_.csv.empty()) write_result_file(options_.csv, csv());
    for (size_t worker : workers_) processes_.close_input(worker);  // the workers leave and exit
    const Nanos deadline = monotonic_now() + kStarStopTimeout;
    for (size_t left = workers_.size(); left > 0; --left) {
      const auto ended = processes_.wait(deadline);
      if (!ended || !ended->ok())
        throw Failure(kExitFailure,
                      ended ? ended->text()
                            : fmt::format("a worker did not exit within {} s", kStarStopTimeout / kSecond));
    }
    for (const ChildEnd& end : processes_.stop_all(kStarStopTimeout)) {
      if (end.child == reducer_ && !end.ok()) throw Failure(kExitFailure, end.text());
    }
    return wrong_ != 0 || (options_.max_ratio > 0 && median_of(ratio) > options_.max_ratio) ? kExitCheckFailed
                                                                                            : kExitOk;
  }

  const StarBenchOptions& options_;
  ProcessGroup processes_;
  const std::string session_ = random_session_id();
  LocalPool pool_;
  MachineFacts machine_;
  LocalStar star_;
  size_t reducer_ = 0;
  std::vector<size_t> workers_;
  std::vector<std::string> lines_;  // output of each worker after the last complete line
  std::vector<RoundCost> stars_;
  std::vector<RoundCost> reducers_;
  uint64_t wrong_ = 0;
};

void print_answer(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

}  // namespace

int run_star_bench(const StarBenchOptions& options) {
  if (options.chunk_bytes == 0 || options.bytes == 0 || options.bytes % options.chunk_bytes != 0) {
    throw Failure(kExitUsage, fmt::format("size {} B is not a positive multiple of the chunk size, {} B",
                                          options.bytes, options.chunk_bytes));
  }
  if (options.rounds == 0 || options.workers == 0)
    throw Failure(kExitUsage, "rounds and workers: expected positive numbers");
  return StarBench(options).run();
}

int run_star_worker(const StarWorkerOptions& options, const WorkerOptions& worker) {
  const size_t count = options.bytes / sizeof(float);
  Arena send = value_or_fail(Arena::map(options.bytes), kExitFailure);
  Arena recv = value_or_fail(Arena::map(options.bytes), kExitFailure);
  const Pattern pattern(wire::DType::kF32, wire::Op::kSum, worker.ranks, 1);
  pattern.fill(worker.rank, count, send.data());

  StarClient star({.host = "127.0.0.1", .port = options.star_port},
                  {.workers = worker.ranks,
                   .slots = star_slots(options.window_bytes, options.chunk_bytes),
                   .chunk_bytes = options.chunk_bytes},
                  StarWait::kSleep);
  WorkerSession session(worker);
  print_answer("ready");
  for (int command = std::getchar(); command != EOF; command = std::getchar()) {
    switch (command) {
      case kStarRound:
        star.exchange(send.data(), recv.data(), options.bytes);
        print_answer("done");
        break;
      case kReducerRound:
        session.allreduce(send.data(), recv.data(), count, wire::DType::kF32, wire::Op::kSum);
        print_answer("done");
        break;
      case kCheckRound: print_answer(std::to_string(pattern.count_wrong(recv.data(), count))); break;
      default: throw Failure(kExitFailure, fmt::format("unknown command {} on stdin", command));
    }
  }
  session.close();
  return kExitOk;
}

}  // namespace sluice::bench
