#include "bench/e2e/report/nccl_table.h"

#include <cstdarg>
#include <cstdio>

namespace sluice::bench {
namespace {

[[gnu::format(printf, 1, 2)]] std::string print(const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  return line;
}

std::string measurement_text(const Measurement& m) {
  const std::string numbers =
      print("  %7s  %6s  %6s", format_to_width(m.seconds * 1e6, 7).c_str(),
            format_to_width(m.alg_bw, 6).c_str(), format_to_width(m.bus_bw, 6).c_str());
  return numbers + (m.checked ? print("  %6g", static_cast<double>(m.wrong)) : std::string("    N/A"));
}

std::string per_gb(double seconds) {
  return seconds < 0 ? "-" : print("%.3f", seconds);
}

constexpr const char* kExtraFormat = "  %11s  %11s  %7s  %7s";

}  // namespace

const char* nccl_type_name(wire::DType t) noexcept {
  switch (t) {
    case wire::DType::kI8: return "int8";
    case wire::DType::kU8: return "uint8";
    case wire::DType::kI32: return "int32";
    case wire::DType::kU32: return "uint32";
    case wire::DType::kI64: return "int64";
    case wire::DType::kU64: return "uint64";
    case wire::DType::kF16: return "half";
    case wire::DType::kF32: return "float";
    case wire::DType::kF64: return "double";
    case wire::DType::kBf16: return "bfloat16";
    case wire::DType::kF8e4m3: return "f8e4m3";
    case wire::DType::kF8e5m2: return "f8e5m2";
    case wire::DType::kMxfp8:
    case wire::DType::kInt8Block: break;  // NCCL has no such types
  }
  return "unknown";
}

const std::vector<wire::DType>& nccl_type_order() {
  using wire::DType;
  static const std::vector<DType> order = {DType::kI8,  DType::kU8,   DType::kI32,    DType::kU32,
                                           DType::kI64, DType::kU64,  DType::kF16,    DType::kF32,
                                           DType::kF64, DType::kBf16, DType::kF8e4m3, DType::kF8e5m2};
  return order;
}

const std::vector<wire::Op>& nccl_op_order() {
  static const std::vector<wire::Op> order = {wire::Op::kSum, wire::Op::kProd, wire::Op::kMax, wire::Op::kMin,
                                              wire::Op::kAvg};
  return order;
}

std::string format_to_width(double value, int width) {
  for (int decimals = 2; decimals >= 0; --decimals) {
    std::string text = print("%*.*f", width, decimals, value);
    if (text.size() <= static_cast<size_t>(width)) return text;
  }
  return print("%*.*e", width, width >= 7 ? 1 : 0, value).substr(0, static_cast<size_t>(width));
}

std::string preamble(const TableConfig& c) {
  std::string text = "# sluice version " + c.version + "\n";
  text += "# Collective test starting: " + c.program + "\n";
  text += print(
      "# nThread %d nGpus %d minBytes %ld maxBytes %ld step: %ld(%s) warmup iters: %d iters: %d agg iters: "
      "%d validation: %d graph: %d unalign: %d\n",
      1, 1, static_cast<long>(c.min_bytes), static_cast<long>(c.max_bytes), static_cast<long>(c.step),
      c.step_is_factor ? "factor" : "bytes", c.warmup, c.iterations, c.aggregated, c.check, 0, c.unalign);
  if (c.blocking == 1) text += "# Blocking Enabled: wait and barrier after each inner iteration (-m) \n";
  if (c.blocking == 2) text += "# Blocking Enabled: wait after each inner iteration (-m), no barrier \n";
  if (c.blocking == 3)
    text += "# Blocking Enabled: wait and barrier after each outer iteration (-n); time excludes barrier \n";
  text += "#\n# Using devices\n";
  return text;
}

std::string device_line(uint32_t rank, int pid, const std::string& host, int device,
                        const std::string& kind) {
  return print("#  Rank %2d Group %2d Pid %6d on %10s device %2d [%04x:%02x:%02x] %s\n",
               static_cast<int>(rank), 0, pid, host.c_str(), device, 0, 0, 0, kind.c_str());
}

std::string header(bool extras) {
  const auto line = [](const char* a, const char* b, const char* c, const char* d, const char* e,
                       const char* time, const char* alg, const char* bus, const char* wrong) {
    return print("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s ", a, b, c, d, e, time,
                 alg, bus, wrong, time, alg, bus, wrong);
  };
  const auto extra = [extras](const char* a, const char* b, const char* c, const char* d) {
    return extras ? print(kExtraFormat, a, b, c, d) : std::string();
  };
  std::string text = "#\n";
  text += print("# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place          ",
                "", "", "", "", "");
  if (extras) text += "   ";  // the first header line of nccl-tests is three characters shorter
  text += extra("wire sent", "wire rcvd", "reducer", "worker") + "\n";
  text += line("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong");
  text += extra("per op", "and worker", "CPU", "CPU") + "\n";
  text += line("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "");
  text += extra("(B)", "(B)", "(s/GB)", "(s/GB)") + "\n";
  return text;
}

std::string row_line(const Row& row, bool extras) {
  std::string text = print("%12li  %12li  %8s  %6s  %6s", static_cast<long>(row.bytes),
                           static_cast<long>(row.count), nccl_type_name(row.dtype),
                           std::string(wire::to_string(row.op)).c_str(), print("%6i", -1).c_str());
  text += measurement_text(row.out_of_place) + measurement_text(row.in_place);
  if (extras) {
    text +=
        " " + print(kExtraFormat, std::to_string(row.wire_out).c_str(), std::to_string(row.wire_in).c_str(),
                    per_gb(row.reducer_cpu_per_gb).c_str(), per_gb(row.worker_cpu_per_gb).c_str());
  }
  return text + "\n";
}

std::string footer(const std::string& program, uint64_t wrong, double average_bus_bw, double min_bw) {
  std::string text = print("# %-20s : %d %s\n", "Out of bounds values", static_cast<int>(wrong),
                           wrong != 0 ? "FAILED" : "OK");
  const char* verdict = min_bw < 0 ? "" : below_min_bw(average_bus_bw, min_bw) ? "FAILED" : "OK";
  text += print("# %-20s : %g %s\n", "Avg bus bandwidth", average_bus_bw, verdict);
  text += "#\n# Collective test concluded: " + program + "\n#\n\n";
  return text;
}

bool below_min_bw(double average_bus_bw, double min_bw) noexcept {
  return min_bw >= 0 && average_bus_bw < 0.9 * min_bw;
}

}  // namespace sluice::bench
