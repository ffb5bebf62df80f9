#include "reducer/admin/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/metric_type.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "wire/store_messages.h"

namespace sluice::reducer::admin {
namespace {

using Json = nlohmann::json;
using Pointer = nlohmann::json_pointer<std::string>;

// Class MetricFamilies collects metrics family by family: name, help text and samples.
class MetricFamilies {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // Begins a family, to which the following add() calls belong.
  MetricFamilies& gauge(const char* name, const char* help) {
    return begin(name, help, prometheus::MetricType::Gauge);
  }
  MetricFamilies& counter(const char* name, const char* help) {
    return begin(name, help, prometheus::MetricType::Counter);
  }
  MetricFamilies& histogram(const char* name, const char* help) {
    return begin(name, help, prometheus::MetricType::Histogram);
  }

  MetricFamilies& add(double value, const Labels& labels = {}) {
    prometheus::ClientMetric metric = labelled(labels);
    (all_.back().type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    all_.back().metric.push_back(std::move(metric));
    return *this;
  }
  MetricFamilies& add(prometheus::ClientMetric::Histogram histogram, const Labels& labels = {}) {
    prometheus::ClientMetric metric = labelled(labels);
    metric.histogram = std::move(histogram);
    all_.back().metric.push_back(std::move(metric));
    return *this;
  }

  // The families that have samples.
  [[nodiscard]] std::vector<prometheus::MetricFamily> take() {
    std::erase_if(all_, [](const prometheus::MetricFamily& family) { return family.metric.empty(); });
    return std::move(all_);
  }

 private:
  MetricFamilies& begin(const char* name, const char* help, prometheus::MetricType type) {
    all_.push_back({.name = name, .help = help, .type = type, .metric = {}});
    return *this;
  }
  static prometheus::ClientMetric labelled(const Labels& labels) {
    prometheus::ClientMetric metric;
    for (const auto& [name, value] : labels) metric.label.push_back({.name = name, .value = value});
    return metric;
  }

  std::vector<prometheus::MetricFamily> all_;
};

// 0 if the status has no such number.
double number(const Json& status, const char* where) {
  const Json value = status.value(Pointer(where), Json(0));
  return value.is_number() ? value.get<double>() : 0;
}

const Json& object(const Json& status, const char* name) {
  static const Json none = Json::object();
  const auto found = status.find(name);
  return found != status.end() && found->is_object() ? *found : none;
}

void add_reducer(MetricFamilies& f, const Json& status, const std::map<std::string, std::string>& build,
                 const HostFacts& host) {
  MetricFamilies::Labels labels = {{"version", status.value("version", "")}};
  labels.insert(labels.end(), build.begin(), build.end());
  f.gauge("sluice_build_info", "Version and build of the reducer.").add(1, labels);
  f.gauge("sluice_transport_info", "Network interfaces and RDMA devices that lanes can use.");
  for (const NetworkLink& link : host.links) f.add(1, {{"transport", "tcp"}, {"device", link.device}});
  for (const Json& rail : status.value("/rdma/rails"_json_pointer, Json::array())) {
    const std::string name = rail.is_string() ? rail.get<std::string>() : "";
    f.add(1, {{"transport", "rdma"}, {"device", name.substr(0, name.find(' '))}});  // "mlx5_0 (10.0.0.1)"
  }
  f.gauge("sluice_link_speed_bytes_per_second",
          "Speed of the network interface that workers connect to, in each direction.");
  for (const NetworkLink& link : host.links)
    f.add(static_cast<double>(link.bytes_per_second), {{"device", link.device}});
  const bool draining = status.value("draining", false);
  f.gauge("sluice_ready", "1 if the reducer accepts new sessions, else 0.").add(draining ? 0 : 1);
  f.gauge("sluice_draining", "1 if the reducer drains, else 0.").add(draining ? 1 : 0);
}

void add_sessions(MetricFamilies& f, const Json& status) {
  f.gauge("sluice_sessions", "Sessions on this reducer, by state.")
      .add(number(status, "/sessions/joining"), {{"state", "joining"}})
      .add(number(status, "/sessions/active"), {{"state", "active"}})
      .add(number(status, "/sessions/ending"), {{"state", "ending"}});
  f.counter("sluice_sessions_total",
            "Sessions that ended on this reducer. Moved sessions continue on other reducers.")
      .add(number(status, "/sessions/completed"), {{"result", "completed"}})
      .add(number(status, "/sessions/failed"), {{"result", "failed"}})
      .add(number(status, "/sessions/moved"), {{"result", "moved"}});
  f.gauge("sluice_waiting_sessions",
          "Sessions that have waited for a rank for at least 1 s. /status names the ranks.")
      .add(number(status, "/waits/sessions"));
  f.gauge("sluice_longest_wait_seconds", "Longest wait of a session that waits for a rank now.")
      .add(1e-3 * number(status, "/waits/longest_ms"));
  f.gauge("sluice_held_sessions", "Sessions held back in favor of other sessions' shares.")
      .add(number(status, "/fair/held"));
  f.counter("sluice_resumes_total", "Connections of running sessions that were resumed after a break.")
      .add(number(status, "/resumes/control"), {{"connection", "control"}})
      .add(number(status, "/resumes/lane"), {{"connection", "lane"}});
  f.counter("sluice_view_changes_total", "View changes that this reducer arbitrated.")
      .add(number(status, "/view_changes/proposed"), {{"step", "proposed"}})
      .add(number(status, "/view_changes/committed"), {{"step", "committed"}});
}

void add_connections(MetricFamilies& f, const Json& status, const HostFacts& host) {
  f.gauge("sluice_connections", "Open lane connections, by transport.")
      .add(number(status, "/transports/tcp/connections"), {{"transport", "tcp"}})
      .add(number(status, "/transports/rdma/connections"), {{"transport", "rdma"}});
  f.counter("sluice_tcp_retransmits_total", "TCP segments retransmitted by this network namespace.")
      .add(static_cast<double>(host.tcp_retransmits));
  f.counter("sluice_data_packets_total",
            "TCP data packets of lane connections. Workers report what they send (receive) once a second.")
      .add(number(status, "/data/packets_in"), {{"direction", "receive"}})
      .add(number(status, "/data/packets_out"), {{"direction", "send"}});
  f.counter("sluice_lost_packets_total", "Those of sluice_data_packets_total that were sent again.")
      .add(number(status, "/data/lost_packets_in"), {{"direction", "receive"}})
      .add(number(status, "/data/lost_packets_out"), {{"direction", "send"}});
  f.gauge("sluice_stalled_ranks",
          "Ranks of sessions with a lane connection on which no sent byte has been acknowledged for 5 s. "
          "/status names them.")
      .add(number(status, "/stalls/ranks"));
  f.gauge("sluice_control_connections", "Open control connections and connections in the handshake.")
      .add(number(status, "/connections/open"));
  f.counter("sluice_accepted_connections_total", "Connections accepted on the data port.")
      .add(number(status, "/connections/accepted"));

  const Json& closed = object(status, "closed");
  const Json& refused = object(status, "refused");
  // Every known reason is served from the start, since a rate misses the first event of a new series.
  f.counter("sluice_protocol_errors_total",
            "Connections closed because the peer violated the protocol, by reason.");
  for (unsigned i = 0; i < 128; ++i) {
    if (const auto code = static_cast<Errc>(i); is_known(code) && is_bad_frame(code))
      f.add(closed.value(to_string(code), 0.0), {{"reason", std::string(to_string(code))}});
  }
  f.counter("sluice_closed_connections_total",
            "Connections closed for other reasons, by reason. The reason closed is a normal close.");
  for (unsigned i = 0; i < 128; ++i) {
    const auto code = static_cast<Errc>(i);
    const std::string reason(to_string(code));
    if (is_known(code) && !is_bad_frame(code) && closed.contains(reason))
      f.add(closed[reason].get<double>(), {{"reason", reason}});
  }
  f.counter("sluice_refused_joins_total", "Requests to join a session that were refused, by reason.");
  for (auto i = static_cast<unsigned>(Errc::kUnauthenticated); i <= static_cast<unsigned>(Errc::kTooMany);
       ++i) {
    const std::string reason(to_string(static_cast<Errc>(i)));
    f.add(refused.value(reason, 0.0), {{"reason", reason}});
  }
  f.counter("sluice_tls_handshakes_total", "TLS handshakes, by result.")
      .add(number(status, "/tls/agreed"), {{"result", "agreed"}})
      .add(number(status, "/tls/failed"), {{"result", "failed"}});
}

double sum(const Json& numbers) {
  double all = 0;
  for (const Json& one : numbers) all += one.get<double>();
  return all;
}

// `numbers` is {dtype: {op: number}}.
void add_by_type(MetricFamilies& f, const Json& numbers) {
  for (const auto& [dtype, ops] : numbers.items()) {
    for (const auto& [op, number] : ops.items()) f.add(number.get<double>(), {{"dtype", dtype}, {"op", op}});
  }
}

// The buckets' upper bounds double from the first. The last bucket has none.
prometheus::ClientMetric::Histogram durations(const Json& buckets, double sum_us) {
  prometheus::ClientMetric::Histogram histogram;
  double bound = 1e-6 * number(buckets, "/first_bound_us");
  const Json counts = buckets.value("counts", Json::array());
  for (const Json& count : counts) {
    histogram.sample_count += count.get<uint64_t>();
    if (histogram.bucket.size() + 1 < counts.size())
      histogram.bucket.push_back({.cumulative_count = histogram.sample_count, .upper_bound = bound});
    bound *= 2;
  }
  histogram.bucket.push_back(
      {.cumulative_count = histogram.sample_count, .upper_bound = std::numeric_limits<double>::infinity()});
  histogram.sample_sum = 1e-6 * sum_us;
  return histogram;
}

void add_work(MetricFamilies& f, const Json& status) {
  f.counter("sluice_receive_bytes_total", "Payload bytes of contributions received.")
      .add(number(status, "/transports/tcp/bytes_in"), {{"transport", "tcp"}})
      .add(number(status, "/transports/rdma/bytes_in"), {{"transport", "rdma"}});
  f.counter("sluice_transmit_bytes_total", "Payload bytes of results sent.")
      .add(number(status, "/transports/tcp/bytes_out"), {{"transport", "tcp"}})
      .add(number(status, "/transports/rdma/bytes_out"), {{"transport", "rdma"}});
  f.counter("sluice_backpressure_seconds_total",
            "Time in which results were ready but a worker's TCP connection accepted no data, summed over "
            "connections.")
      .add(1e-9 * number(status, "/data/send_blocked_ns"), {{"direction", "send"}});
  f.counter("sluice_reduced_bytes_total", "Payload bytes of contributions that were reduced.");
  add_by_type(f, object(status, "folded"));
  f.counter("sluice_chunks_total", "Chunks reduced.").add(number(status, "/data/chunks"));
  f.counter("sluice_operations_total", "Operations. Each reducer counts the fraction that it reduced.");
  add_by_type(f, object(status, "operations"));
  f.histogram("sluice_operation_duration_seconds",
              "Duration of one lane's part of an operation, from its first contribution to its last result.");
  for (const auto& [op, buckets] : object(status, "operation_durations").items()) {
    if (buckets.is_object()) f.add(durations(buckets, number(buckets, "/sum_us")), {{"op", op}});
  }
  f.counter("sluice_findings_total",
            "Chunks in which a contribution looks wrong, by kind of the worst finding. With --health only; "
            "/status names the ranks.");
  for (const char* kind : {"non_finite", "outlier", "zeros"})
    f.add(number(status, (std::string("/findings/") + kind).c_str()), {{"kind", kind}});
  f.counter("sluice_resent_results_total", "Results sent again on resumed connections.")
      .add(number(status, "/data/results_resent"));
  f.histogram("sluice_straggler_wait_seconds", "Time from the first to the last contribution of a chunk.")
      .add(durations(object(status, "straggler_waits"), number(status, "/data/straggler_us")));
  const Json turns = status.value(Pointer("/control/turns"), Json::object());
  f.histogram("sluice_control_turn_seconds",
              "Processor time of one handler of the control loop. A long one delays all connections.")
      .add(durations(turns, number(turns, "/sum_us")));
  f.gauge("sluice_lanes", "Lane threads.").add(number(status, "/lanes"));
  f.counter("sluice_lane_busy_seconds_total", "Time in which the lane had work to do.");
  const Json busy = status.value("lane_busy_seconds", Json::array());
  for (size_t lane = 0; lane < busy.size(); ++lane)
    f.add(busy[lane].get<double>(), {{"lane", std::to_string(lane)}});
  const double all = sum(busy), folds = sum(status.value("lane_fold_seconds", Json::array()));
  f.counter("sluice_reduce_cpu_seconds_total",
            "Busy time of all lanes. Stage reduce: sums and checksums of results. Stage transfer: the rest.")
      .add(folds, {{"stage", "reduce"}})
      .add(std::max(0.0, all - folds), {{"stage", "transfer"}});
  f.counter("sluice_full_queues_total",
            "Times that a bounded queue between the control loop and a lane was full.")
      .add(number(status, "/data/ring_full"));
  f.gauge("sluice_chunk_pool_bytes", "Bytes that sessions may reserve (--memory-limit).")
      .add(number(status, "/memory/limit_bytes"));
  f.gauge("sluice_chunk_pool_used_bytes", "Bytes that sessions have reserved.")
      .add(number(status, "/memory/reserved_bytes"));
}

void add_rdma(MetricFamilies& f, const Json& status) {
  f.counter("sluice_rdma_pairings_total",
            "Lane connections that requested RDMA, by the transport that they use.")
      .add(number(status, "/rdma/paired"), {{"result", "paired"}})
      .add(number(status, "/rdma/on_tcp"), {{"result", "tcp"}});
  const Json devices = status.value("/rdma/devices"_json_pointer, Json::array());
  f.counter("sluice_rdma_completion_errors_total",
            "Connections that broke by a completion error of their queue pair, by error.");
  for (const Json& device : devices) {
    for (const auto& [reason, count] : object(device, "completion_errors").items())
      f.add(count.get<double>(), {{"device", device.value("device", "")}, {"reason", reason}});
  }
  f.counter("sluice_rdma_port_losses_total", "Times that a port of the RDMA device went down.");
  for (const Json& device : devices)
    f.add(device.value("port_losses", 0.0), {{"device", device.value("device", "")}});
}

// The reducer bounds the number of models in its status, and so that of the values of the label.
void add_models(MetricFamilies& f, const Json& status) {
  const Json models = status.value("models", Json::array());
  const auto add_each = [&](const std::function<double(const Json&)>& value, MetricFamilies::Labels more) {
    more.emplace(more.begin(), "model", "");
    for (const Json& m : models) {
      if (!m.is_object()) continue;
      more.front().second = m.value("name", "");
      f.add(value(m), more);
    }
  };
  const auto add = [&](const std::string& key, const MetricFamilies::Labels& more = {}) {
    add_each([&](const Json& m) { return number(m, key.c_str()); }, more);
  };
  f.gauge("sluice_model_version", "Current version.");
  add("/version");
  f.gauge("sluice_model_shards", "Shards on this reducer.");
  add("/owned", {{"role", "owner"}});
  add("/copied", {{"role", "copy"}});
  f.counter("sluice_model_steps_total", "Steps of a leader on this reducer.");
  add("/steps", {{"result", "made"}});
  add("/failed_steps", {{"result", "failed"}});
  f.gauge("sluice_model_step_age_seconds", "Time since the last step, or the start.");
  add_each([](const Json& m) { return 1e-3 * number(m, "/step_age_ms"); }, {});
  f.counter("sluice_model_pushes_total", "Pushes that a leader on this reducer answered.");
  for (const std::string_view outcome : wire::kPushOutcomeNames)
    add("/pushes/" + std::string(outcome), {{"outcome", std::string(outcome)}});
  f.counter("sluice_model_pulls_total", "Arrays of shards sent to readers.");
  add("/pulls");
  f.counter("sluice_model_ended_pulls_total",
            "Pulls that were ended because a step needed the place of their version.");
  add("/ended_pulls");
  f.counter("sluice_model_receive_bytes_total", "Bytes of deltas.");
  add("/delta_bytes");
  f.counter("sluice_model_transmit_bytes_total", "Bytes of versions.");
  add("/pull_bytes", {{"to", "readers"}});
  add("/copy_bytes", {{"to", "copies"}});
  f.gauge("sluice_model_staged_deltas", "Deltas that wait for a step.");
  add("/staged");
  f.gauge("sluice_model_memory_bytes", "Reserved memory.");
  add("/memory_bytes");
  f.gauge("sluice_model_disk_bytes", "Size of the version files.");
  add("/disk_bytes");
  f.gauge("sluice_model_unavailable",
          "1 if pushes are refused or steps fail now, else 0. /status has the reason.");
  add_each([](const Json& m) { return m.contains("unavailable") ? 1 : 0; }, {});
  if (!status.contains("store")) return;  // no --state
  const Json budgets = status["store"].value("budgets", Json::object());
  f.counter("sluice_models_refused_total", "Connections and requests refused because a budget was used up.");
  for (const auto& [name, budget] : budgets.items()) {
    if (budget.contains("refused")) f.add(number(budget, "/refused"), {{"budget", name}});
  }
  f.counter("sluice_models_late_total", "Connections ended because the peer took too long in this state.");
  const Json late = budgets.value("late", Json::object());
  for (const auto& [state, count] : late.items()) f.add(count.get<double>(), {{"state", state}});
  f.gauge("sluice_models_memory_bytes", "Reserved memory of all models.")
      .add(number(status, "/store/memory/reserved_bytes"));
  f.gauge("sluice_models_memory_limit_bytes", "Its limit (--state-memory).")
      .add(number(status, "/store/memory/limit_bytes"));
}

void add_process(MetricFamilies& f, const ProcessFacts& p) {
  f.counter("process_cpu_seconds_total", "CPU time of the process, user and system.").add(p.cpu_seconds);
  f.gauge("process_start_time_seconds", "Start time of the process in seconds since the epoch.")
      .add(p.start_seconds);
  f.gauge("process_resident_memory_bytes", "Resident memory of the process in bytes.")
      .add(static_cast<double>(p.resident_bytes));
  f.gauge("process_virtual_memory_bytes", "Virtual memory of the process in bytes.")
      .add(static_cast<double>(p.virtual_bytes));
  f.gauge("process_threads", "Threads of the process.").add(static_cast<double>(p.threads));
  f.gauge("process_open_fds", "Open file descriptors.").add(static_cast<double>(p.open_descriptors));
  f.gauge("process_max_fds", "Limit of open file descriptors.").add(static_cast<double>(p.max_descriptors));
}

}  // namespace

Result<std::string> metrics_text(const nlohmann::json& status,
                                 const std::map<std::string, std::string>& build, const HostFacts& host) {
  if (!status.is_object()) return fail(Errc::kInternal, "the reducer's status is not valid JSON");
  MetricFamilies families;
  add_reducer(families, status, build, host);
  add_sessions(families, status);
  add_connections(families, status, host);
  add_work(families, status);
  add_rdma(families, status);
  add_models(families, status);
  add_process(families, host.process);
  return prometheus::TextSerializer().Serialize(families.take());
}

}  // namespace sluice::reducer::admin
